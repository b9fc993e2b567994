// SPDX-License-Identifier: MIT OR Apache-2.0
//! Service under test in a process of its own, and clients that send it any message.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use framepath_model::wire::{MESSAGE_BYTES, Message, StreamStatus, VERSION};
use framepath_os::crossing::Socket;
use framepath_os::process::children;
use framepath_serve::{Snapshot, Viewer};

use crate::checkout::in_checkout;
use crate::command::framepath;
use crate::deadline::until;

/// Number of equal counts in a row of the service's open files after which
/// [`ServiceProcess::quiet`] returns: the service then has no more files to close.
const STABLE_COUNTS: u32 = 10;

/// Time limit of a client for an answer of the service.
const PATIENCE: Duration = Duration::from_secs(60);

const SIGTERM: i32 = 15;

/// Returns true while process `pid` runs; false for a zombie, and if there is no such process.
pub fn lives(pid: u32) -> bool {
    // A zombie's command line is empty.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Running `framepath serve` with a socket in a temporary folder. Dropping the value kills the
/// process and removes the folder.
pub struct ServiceProcess {
    child: Option<Child>,
    folder: tempfile::TempDir,
}

impl ServiceProcess {
    /// Starts a service with these options, and waits until it listens and its two spare workers
    /// are ready. The options must leave the number of spare workers at 2. Panics if the wait takes
    /// longer than 120 s.
    pub fn start(options: &[&str]) -> ServiceProcess {
        let folder = tempfile::tempdir().unwrap();
        // Some tests connect as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let socket = folder.path().join("socket");
        let mut command = framepath(&["serve", "--socket", socket.to_str().unwrap()]);
        command.args(options).stdout(Stdio::null());
        command.stderr(fs::File::create(folder.path().join("stderr")).unwrap());
        let service = ServiceProcess { child: Some(command.spawn().unwrap()), folder };
        until("a service with its spare", || {
            socket.exists() && Viewer::connect(&socket).is_ok_and(|viewer| has_spare(&viewer))
        });
        service.quiet();
        service
    }

    /// Returns the path of the service's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Returns the text that the service has written to standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    /// Returns the process id of the service.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Returns the number of open files of the service process.
    pub fn fds(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Returns the process ids of the service's child processes, which are its workers, including
    /// spares.
    pub fn workers(&self) -> Vec<u32> {
        let pid = self.pid();
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Waits until no client is connected, the two spare workers are ready, and the number of the
    /// service's open files no longer changes. Returns this number. Panics if one of these waits
    /// takes longer than 120 s.
    pub fn quiet(&self) -> usize {
        until("no client is connected, and the spare workers are ready", || {
            let snapshot = self.snapshot();
            let totals = snapshot.totals;
            // The viewer itself is one of the connections.
            (totals.connections, totals.streams, totals.spares) == (1, 0, 2) && self.workers().len() == 2
        });
        let fds = || self.fds();
        let (mut last, mut equal) = (fds(), 0);
        // The service closes the viewer's connection a moment later: on a busy machine, not at once.
        until("the number of its files is stable", || {
            thread::sleep(Duration::from_millis(20));
            equal = if std::mem::replace(&mut last, fds()) == last { equal + 1 } else { 0 };
            equal == STABLE_COUNTS
        });
        last
    }

    /// Returns the status of the service and its streams, as `framepath top` shows it. Panics if
    /// the service cannot be reached.
    pub fn snapshot(&self) -> Snapshot {
        Viewer::connect(&self.socket()).unwrap().snapshot().unwrap()
    }

    /// Returns true if the service accepts one more client and answers it.
    pub fn has_room(&self) -> bool {
        Viewer::connect(&self.socket()).is_ok_and(|viewer| viewer.snapshot().is_ok())
    }

    /// Waits until a stream of client process `pid` has frames; returns the status of the stream.
    /// Panics after 120 s.
    pub fn stream_of(&self, pid: u32) -> StreamStatus {
        let mut found = None;
        until("frames of the client", || {
            found = self.snapshot().streams.into_iter().find(|s| s.client_pid == pid && s.figures.frames > 0);
            found.is_some()
        });
        found.unwrap()
    }

    /// Creates a command that runs `file CLIP OPTIONS host=service socket=SOCKET ! SINK` with this
    /// service's socket. `clip` is a file name in the folder of clips. `options` may contain
    /// further hops, such as `! decode threads=1`; `host=service` belongs to the last of them, else
    /// to `file`.
    pub fn client(&self, clip: &str, options: &str, sink: &str) -> Command {
        let socket = self.socket();
        let path = format!(
            "file '{}' {options} host=service socket={} ! {sink}",
            in_checkout(&format!("clips/{clip}")).display(),
            socket.display()
        );
        framepath(&["run", &path])
    }

    /// Sends SIGTERM to the service.
    pub fn terminate(&self) {
        children::signal(self.child.as_ref().unwrap(), SIGTERM).unwrap();
    }

    /// Waits for the service's end and returns its exit code, `None` if a signal ended it. Panics
    /// after 120 s, and if the file of the service's socket still exists.
    pub fn ended(mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        until("the end of the service", || child.try_wait().unwrap().is_some());
        assert!(!self.socket().exists(), "the file of its socket is left");
        child.wait().unwrap().code()
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn has_spare(viewer: &Viewer) -> bool {
    viewer.snapshot().is_ok_and(|snapshot| snapshot.totals.spares == 2)
}

/// Client of the service that can send any message.
pub struct RawClient(pub Socket);

impl RawClient {
    /// Connects to the service at `socket` without sending a message.
    pub fn connect(socket: &Path) -> RawClient {
        RawClient(Socket::connect(socket).unwrap())
    }

    /// Sends one message without a file descriptor. Panics if the socket fails.
    pub fn send(&self, message: &Message) {
        let mut bytes = [0; MESSAGE_BYTES];
        message.encode(&mut bytes);
        self.0.send(&bytes, None).unwrap();
    }

    /// Sends the message that requests a stream, with this build's version of the wire format.
    pub fn hello(&self) {
        self.send(&Message::Hello { version: VERSION });
    }

    /// Receives the next message with its file descriptor, if it has one; `None` after the end of
    /// the connection. Panics if the service sends nothing within 60 s, or an invalid message.
    pub fn recv(&self) -> Option<(Message, Option<std::os::fd::OwnedFd>)> {
        assert!(self.0.readable_within(PATIENCE).unwrap(), "the service does not answer");
        let mut bytes = [0; MESSAGE_BYTES];
        let (len, fd) = self.0.receive(&mut bytes).unwrap();
        (len > 0).then(|| (Message::decode(&bytes[..len]).unwrap(), fd))
    }

    /// Receives a denial and returns its text. Panics on any other message, at the end of the
    /// connection, and as [`RawClient::recv`].
    #[track_caller]
    pub fn denied(&self) -> String {
        match self.recv() {
            Some((Message::Denied { text }, None)) => text,
            other => panic!("{other:?}"),
        }
    }

    /// Receives a grant; returns the stream's number and the worker's socket. Panics on any other
    /// message, at the end of the connection, and as [`RawClient::recv`].
    #[track_caller]
    pub fn granted(&self) -> (u32, Socket) {
        match self.recv() {
            Some((Message::Grant { stream, .. }, Some(fd))) => (stream, Socket::from(fd)),
            other => panic!("{other:?}"),
        }
    }
}
