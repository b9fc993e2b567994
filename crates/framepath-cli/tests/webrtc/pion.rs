// SPDX-License-Identifier: MIT OR Apache-2.0
//! WHIP and WHEP with a server of others: Pion's example, which passes one stream of H.264 on to any number of viewers. It offers no
//! address of the loopback interface, so it runs in a network namespace.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use framepath_testkit::harness::{Missing, Tested, needs_program};
use framepath_testkit::{program, until, wait};
use rustix::process::Signal;

use crate::chromium::Chromium;
use crate::clip::{hashes, numbered};
use crate::pictures::{WATCH, aligned, assert_pictures, seen_pictures};
use crate::sender::signal;

/// Address of the network namespace's only interface.
const ADDRESS: &str = "10.88.0.1";
/// Port of Pion's example, which cannot be chosen.
const PORT: u16 = 8080;
/// RTP timestamps from one picture to the next.
const TICKS: u64 = 90_000 / 60;
/// Viewers that come and go, one behind the other.
const VIEWERS: u64 = 100;
/// Page that the server serves beside its endpoints.
const PAGE: &str = "<!doctype html><title>viewer</title><link rel=icon href=data:><video id=picture autoplay muted playsinline></video>";

/// Network namespace with one interface, and Pion's server in it. Both end with this value.
struct Server {
    /// Process that holds the namespace until its standard input ends.
    holder: Child,
    pion: Child,
}

impl Server {
    /// Starts the server, whose files are in `folder`.
    fn start(folder: &Path) -> Result<Server, Missing> {
        let peer = program().ancestors().nth(2).unwrap().join("peers/whip-whep");
        if !peer.is_file() {
            return Err(Missing::new("Pion's server is not built; make -C peers whip-whep"));
        }
        fs::write(folder.join("index.html"), PAGE).unwrap();
        let set_up = format!(
            "ip link add one type veth peer name two && ip address add {ADDRESS}/24 dev one && ip link set one up && \
             ip link set two up && ip link set lo up && echo ready && exec cat"
        );
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c", &set_up])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            wait(holder, "unshare");
            return Err(Missing::new(
                "no network namespace; run the tests as root, with util-linux and iproute2",
            ));
        }
        let mut command = inside(&holder, &peer);
        let pion = command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Server { holder, pion };
        let state = format!(":{PORT:04X} 00000000000000000000000000000000:0000 0A");
        let listens = || fs::read_to_string(server.file("net/tcp6")).unwrap().contains(&state);
        until("Pion's server listens", listens);
        Ok(server)
    }

    /// Returns a command that runs `program` in the namespace.
    fn inside(&self, program: impl AsRef<Path>) -> Command {
        inside(&self.holder, program.as_ref())
    }

    /// Returns a command that runs a path of framepath in the namespace.
    fn framepath(&self, path: &str) -> Command {
        let mut command = self.inside(program());
        command.args(["run", "-v", "--quiet", path]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the number of UDP sockets in the namespace.
    fn sockets(&self) -> usize {
        let count = |file| fs::read_to_string(self.file(file)).unwrap().lines().count() - 1;
        count("net/udp") + count("net/udp6")
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.pion.id())
    }
}

impl Drop for Server {
    /// Ends the server and the namespace.
    fn drop(&mut self) {
        // Both may have ended already.
        for child in [&mut self.pion, &mut self.holder] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn inside(holder: &Child, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--preserve-credentials", "--user", "--net", "--target", &holder.id().to_string(), "--"]);
    command.arg(program);
    command
}

pub fn a_stream_goes_through_a_server_to_a_browser_and_to_framepath() -> Tested {
    needs_program("chromium", "chromium")?;
    let folder = tempfile::tempdir().unwrap();
    let clip = numbered(folder.path());
    let server = Server::start(folder.path())?;
    let url = format!("http://{ADDRESS}:{PORT}");
    let path = format!("file {} loop=inf rate=60 ! send whip={url}/whip", clip.display());
    let sender = server.framepath(&path).spawn().unwrap();
    // The server gives viewers a track before it has the stream, and asks for keyframes every three seconds.
    let mut browser = Chromium::open_by(server.inside("sh"), &url, (800, 600));
    browser.until("document.getElementById('picture') !== null");
    browser.value(WATCH);
    browser.value("watch({}, document.getElementById('picture')).then(() => true)");
    browser.until("document.getElementById('picture').videoWidth === 512");
    // The server keeps the RTP timestamps; those of the first picture may be any.
    let number =
        format!("Math.round((2 ** 32 + one.rtpTimestamp - seen[0].rtpTimestamp) % 2 ** 32 / {TICKS})");
    assert_pictures(&aligned(&seen_pictures(&mut browser, 200, "true", &number)));
    // framepath's own viewer gets the pictures of the file, in order.
    let view = format!("recv {url}/whep timeout=60s ! decode ! framemd5 -");
    let mut viewer = server.framepath(&view);
    let viewer = wait(viewer.args(["--frames", "100"]).spawn().unwrap(), "recv");
    assert_eq!(viewer.code, Some(0), "{}", viewer.stderr);
    let all = framepath_testkit::run(&[
        "run",
        "--quiet",
        &format!("file {} ! decode ! framemd5 -", clip.display()),
    ]);
    let (all, got) = (hashes(&all.ended(0).frames()), hashes(&viewer.frames()));
    let at = all.iter().position(|hash| *hash == got[0]).unwrap();
    let expected: Vec<_> = all.iter().cycle().skip(at).take(got.len()).cloned().collect();
    assert_eq!(got, expected);
    // Nothing is left of viewers, once the server has seen that they are gone.
    let before = server.sockets();
    assert_eq!(browser.value(&format!("comeAndGo({VIEWERS})")), VIEWERS);
    drop(browser);
    until("the server has forgotten its viewers", || server.sockets() < before);
    signal(&sender, Signal::INT);
    let sender = wait(sender, "send");
    assert_eq!(sender.code, Some(130), "{}", sender.stderr);
    Ok(())
}
