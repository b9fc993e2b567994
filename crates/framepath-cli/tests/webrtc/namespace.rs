// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network namespace with one interface that is not the loopback interface, for servers that offer only such addresses.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use framepath_testkit::harness::Missing;
use framepath_testkit::{program, wait};

/// Address of the interface.
pub const ADDRESS: &str = "10.88.0.1";
/// Addresses of the neighbour, one after the other.
pub const NEIGHBOURS: [&str; 2] = ["10.88.0.2", "10.88.0.3"];

/// Network namespace, which ends with this value.
pub struct Namespace {
    /// Process that holds the namespace until its standard input ends.
    holder: Child,
}

impl Namespace {
    pub fn new() -> Result<Namespace, Missing> {
        let set_up = format!(
            "ip link add one type veth peer name two && ip address add {ADDRESS}/24 dev one && ip link set one up && \
             ip link set two up && ip link set lo up && echo ready && exec cat"
        );
        let mut holder = Command::new("unshare");
        holder.args(["--user", "--map-root-user", "--net", "sh", "-c", &set_up]);
        Namespace::held_by(holder)
    }

    /// Makes a namespace on the other end of this one's interface, with the first address of [`NEIGHBOURS`].
    pub fn neighbour(&self) -> Result<Namespace, Missing> {
        let mut holder = self.inside("unshare");
        holder.args(["--net", "sh", "-c", "echo ready && exec cat"]);
        let neighbour = Namespace::held_by(holder)?;
        self.run(&format!("ip link set two netns {}", neighbour.holder.id()));
        let first = NEIGHBOURS[0];
        neighbour.run(&format!("ip link set lo up; ip address add {first}/24 dev two; ip link set two up"));
        Ok(neighbour)
    }

    /// Gives the neighbour its second address in the place of the first.
    pub fn change_address(&self) {
        let [first, second] = NEIGHBOURS;
        self.run(&format!("ip address del {first}/24 dev two; ip address add {second}/24 dev two"));
    }

    /// Runs commands of the shell in the namespace.
    fn run(&self, commands: &str) {
        let ended = self.inside("sh").args(["-ec", commands]).output().unwrap();
        assert!(ended.status.success(), "{commands}: {}", String::from_utf8_lossy(&ended.stderr));
    }

    fn held_by(mut command: Command) -> Result<Namespace, Missing> {
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            wait(holder, "unshare");
            return Err(Missing::new(
                "no network namespace; run the tests as root, with util-linux and iproute2",
            ));
        }
        Ok(Namespace { holder })
    }

    /// Returns a command that runs `program` in the namespace.
    pub fn inside(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        let holder = self.holder.id().to_string();
        command.args(["--preserve-credentials", "--user", "--net", "--target", &holder, "--"]);
        command.arg(program.as_ref());
        command
    }

    /// Returns a command that runs a path of framepath in the namespace.
    pub fn framepath(&self, path: &str) -> Command {
        let mut command = self.inside(program());
        command.args(["run", "-v", "--quiet", path]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the text of a file in the folder `net` of /proc, such as `udp`.
    pub fn net(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/net/{file}", self.holder.id())).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
