// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running `send`, and its viewers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use framepath_testkit::{CommandOutput, framepath, until, wait};
use rustix::process::{Pid, Signal, kill_process};

/// Running command that sends a clip.
pub struct Sending {
    child: Child,
    /// Endpoint: `http://127.0.0.1:PORT/whep`.
    pub url: String,
    pub port: u16,
    /// Token of the sender if it is a random one; else empty.
    pub token: String,
    /// Lines of standard error so far.
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

/// Starts to send `clip` to the viewers that connect; `options` are those of `file` and of `send`.
pub fn start(clip: &Path, file: &str, send: &str) -> Sending {
    let path = format!("file {} {file} ! send listen=127.0.0.1:0 {send}", clip.display());
    started(&mut framepath(&["run", "-v", "--quiet", &path]))
}

/// Starts as [`start`] does, with control by [`Sending::enter`].
pub fn start_controlled(clip: &Path, file: &str, send: &str) -> Sending {
    let path = format!("file {} {file} ! send listen=127.0.0.1:0 control=yes {send}", clip.display());
    started(framepath(&["run", "-v", "--quiet", &path]).stdin(Stdio::piped()))
}

/// Starts a command that sends, and waits until it accepts viewers.
pub fn started(command: &mut Command) -> Sending {
    let mut child = command.spawn().unwrap();
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let (stderr, read) = (BufReader::new(child.stderr.take().unwrap()), lines.clone());
    let reader = thread::spawn(move || {
        for line in stderr.lines() {
            read.lock().unwrap().push(line.unwrap());
        }
    });
    let mut found = None;
    until("send prints its address", || {
        let lines = lines.lock().unwrap();
        let line = lines
            .iter()
            .find_map(|line| line.split_once("waits for `recv "))
            .map(|(_, rest)| rest.to_owned());
        assert!(line.is_some() || !reader.is_finished(), "{lines:#?}");
        found = line;
        found.is_some()
    });
    let found = found.unwrap();
    let found = found.trim_end_matches('`');
    let (url, token) = found.split_once(" token=").unwrap_or((found, ""));
    let port = url.split(['/', ':']).find_map(|part| part.parse().ok()).unwrap();
    Sending { url: url.to_owned(), token: token.to_owned(), port, child, lines, reader }
}

impl Sending {
    /// Returns the pairing code.
    pub fn code(&self) -> String {
        let mut found = None;
        until("send prints its pairing code", || {
            let lines = self.lines.lock().unwrap();
            found = lines
                .iter()
                .find_map(|line| line.split_once("framepath view "))
                .map(|(_, code)| code.to_owned());
            found.is_some()
        });
        found.unwrap()
    }

    /// Starts a viewer that hashes the decoded frames; `options` are those of `recv`.
    pub fn watch(&self, options: &str) -> Child {
        self.watch_at(&self.url, options)
    }

    /// Starts a viewer that connects by another address.
    pub fn watch_at(&self, url: &str, options: &str) -> Child {
        // A busy machine is no failure.
        let timeout = if options.contains("timeout=") { "" } else { "timeout=60s" };
        let path = format!("recv {url} token={} {timeout} {options} ! decode ! framemd5 -", self.token);
        framepath(&["run", "--quiet", &path]).spawn().unwrap()
    }

    /// Waits until the stream has begun, behind the wait for viewers.
    pub fn until_begun(&self) {
        let is_begin = |line: &String| line.contains(": pipeline of ");
        until("the stream begins", || self.lines.lock().unwrap().iter().any(is_begin));
    }

    /// Returns the number of its viewers, as its page of figures has it.
    pub fn viewers(&self) -> u64 {
        let page = crate::refusals::request(self, "GET /metrics HTTP/1.1", "");
        let line = page.lines().find_map(|line| line.strip_prefix("framepath_send_viewers "));
        line.unwrap().parse().unwrap()
    }

    /// Returns the numbers of its open descriptors and of its threads.
    pub fn descriptors_and_threads(&self) -> [usize; 2] {
        ["fd", "task"].map(|of| fs::read_dir(format!("/proc/{}/{of}", self.child.id())).unwrap().count())
    }

    /// Writes a line into the standard input.
    pub fn enter(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until a line of standard error contains `part`.
    pub fn until_printed(&self, part: &str) {
        until(part, || self.lines.lock().unwrap().iter().any(|line| line.contains(part)));
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        self::signal(&self.child, signal);
    }

    /// Waits for the end.
    pub fn end(self) -> CommandOutput {
        let output = wait(self.child, "send");
        self.reader.join().unwrap();
        let stderr = self.lines.lock().unwrap().join("\n");
        CommandOutput { stderr, ..output }
    }
}

/// Sends a signal to a command.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}
