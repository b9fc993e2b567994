// SPDX-License-Identifier: MIT OR Apache-2.0
//! An X server of the test's own, ended with it.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Child, Command, Stdio};

pub struct Xvfb {
    child: Child,
    name: String,
    size: (u32, u32),
}

impl Xvfb {
    /// One with a screen of that size; `None`, and said why, where there is none.
    pub fn start(size: (u32, u32)) -> Option<Xvfb> {
        let screen = format!("{}x{}x24", size.0, size.1);
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", &screen, "-nolisten", "tcp", "-noreset"]);
        let mut child =
            match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
                Ok(child) => child,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    eprintln!("skipped: no X server to show on: apt install xvfb xdotool");
                    return None;
                }
                Err(error) => panic!("Xvfb: {error}"),
            };
        let mut number = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut number).unwrap();
        assert!(!number.trim().is_empty(), "Xvfb did not start");
        Some(Xvfb { child, name: format!(":{}", number.trim()), size })
    }

    pub fn name(&self) -> String {
        self.name.clone()
    }

    pub fn size(&self) -> String {
        format!("{}x{}", self.size.0, self.size.1)
    }
}

impl Drop for Xvfb {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
