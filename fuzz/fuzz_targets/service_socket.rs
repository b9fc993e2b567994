// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of running services: clients connect to their sockets, send the input
//! with and without file descriptors, receive an answer or not, and disconnect at any
//! moment. Every answer is a message. After the last client no file, stream or worker
//! is left, and the service accepts the next client.
//!
//! There is one service for each of the [`ACTS`]. This program is also the worker
//! program. The services limit the new streams per minute, because the start of a
//! worker is slow, and deny the others. The first answer depends on the time of the
//! worker's start.
#![no_main]

use std::fs::{File, read_dir, remove_dir_all};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use framepath_model::wire::{MAGIC, MESSAGE_BYTES, Message, VERSION};
use framepath_os::crossing::{Listener, Socket};
use framepath_os::process::signal::Stops;
use framepath_os::process::spawn::take_socket;
use framepath_serve::{Service, ServiceSettings, UserLimits, Viewer};
use libfuzzer_sys::fuzz_target;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Maximum number of clients; the service denies the fourth.
const CLIENTS: usize = 4;
const LIMITS: UserLimits =
    UserLimits { connections: 3, streams: 4, opens_per_minute: 60, replacements_per_minute: 30 };
/// Number of bytes of a message that the input supplies, after the magic number and the
/// version; the bytes after them are 0.
const GIVEN: usize = 10;
/// Maximum number of file descriptors that the kernel passes with one message.
const MOST_FILES: usize = 253;
/// Timeout of a service for a client's message.
const PATIENCE: Duration = Duration::from_millis(100);
/// Timeout of an operation that normally takes microseconds or [`PATIENCE`]; the target
/// fails afterwards.
const LIMIT: Duration = Duration::from_secs(20);

/// Behaviours of the workers; all workers of one service have the same one. A service
/// passes the behaviour's index to its workers as their memory limit in bytes.
const ACTS: [fn(&Socket); 5] = [
    // Ends immediately.
    |_| (),
    // Waits for its stream.
    |socket| {
        say(socket, &Message::Ready { layers: 0 });
        stay(socket);
    },
    // Is never ready.
    stay,
    // Ends around the time of its stream's start.
    |socket| say(socket, &Message::Ready { layers: 0 }),
    // Sends an unexpected message.
    |socket| {
        let _ = socket.send(b"FPWM", None);
        stay(socket);
    },
];

/// Paths of the services' sockets, by the index in [`ACTS`].
static SERVICES: OnceLock<Vec<PathBuf>> = OnceLock::new();

fn say(socket: &Socket, message: &Message) {
    let mut bytes = [0; MESSAGE_BYTES];
    message.encode(&mut bytes);
    let _ = socket.send(&bytes, None);
}

/// Receives and ignores messages until the other side disconnects.
fn stay(socket: &Socket) {
    while socket.receive(&mut [0; 2 * MESSAGE_BYTES]).is_ok_and(|(len, _)| len > 0) {}
}

/// Starts the services. If the arguments are those of a worker, acts as this worker
/// instead and ends the process.
fn start() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, worker, kind] = arguments.as_slice() {
        if let ("framepath-worker", Some(act)) = (worker.as_str(), kind.strip_prefix("stage memory=")) {
            let act = ACTS[act.parse::<usize>().expect("a number")];
            act(&Socket::from(take_socket().expect("a service's")));
            std::process::exit(0);
        }
    }
    // SAFETY: there is no other thread yet.
    unsafe { std::env::set_var("FRAMEPATH_WORKER", "/proc/self/exe") };
    let folder = folder();
    let services = (0..ACTS.len()).map(|act| {
        let path = folder.join(format!("{act}.sock"));
        let listener = Listener::bind(&path, 0o600).expect("a socket");
        let settings = ServiceSettings {
            limits: LIMITS,
            spares: 0,
            memory_bytes: act as u64,
            patience: PATIENCE,
            ..ServiceSettings::default()
        };
        let service = Service::new(listener, None, settings).expect("no address to listen at");
        let (sender, open) = channel();
        thread::spawn(move || {
            let stops = Stops::open().expect("a descriptor");
            sender.send(()).expect("it waits");
            panic!("a service ended: {:?}", service.run(&stops));
        });
        open.recv().expect("it opens");
        path
    });
    SERVICES.set(services.collect()).expect("it is called once");
}

/// Creates the folder of this process's sockets and returns its path; removes the
/// folders of processes that have ended.
fn folder() -> PathBuf {
    const NAME: &str = "framepath-fuzz-";
    let all = std::env::temp_dir();
    for entry in read_dir(&all).expect("a folder").flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if name.strip_prefix(NAME).is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = remove_dir_all(entry.path());
        }
    }
    let own = all.join(format!("{NAME}{}", std::process::id()));
    std::fs::create_dir(&own).expect("a folder");
    own
}

fn open_files() -> usize {
    read_dir("/proc/self/fd").expect("/proc").count()
}

/// Waits until the service at `path` has released all resources of its disconnected
/// clients, and this process has `files` open files again. Panics after [`LIMIT`].
fn settle(path: &Path, files: usize) {
    let since = Instant::now();
    let late = || since.elapsed() > LIMIT;
    // The service accepts this client only after all earlier clients.
    let look = || Viewer::connect(path).and_then(|viewer| viewer.snapshot());
    loop {
        match look() {
            Ok(it) if (it.totals.streams, it.totals.connections) == (0, 1) => break,
            other => assert!(!late(), "it still has others: {other:?}"),
        }
    }
    while open_files() != files {
        assert!(!late(), "{files} files were open, now {}", open_files());
        thread::sleep(Duration::from_micros(20));
    }
}

struct Client {
    socket: Socket,
    streams: Vec<u32>,
    /// Sockets of the workers that the service has granted, without those that were
    /// used.
    workers: Vec<Socket>,
}

impl Client {
    fn connect(path: &Path) -> Client {
        let socket = Socket::connect(path).expect("somebody listens");
        Client { socket, streams: Vec::new(), workers: Vec::new() }
    }

    /// Sends `record` with `files` file descriptors if the socket accepts it now;
    /// ignores errors, because the service may have disconnected.
    fn send(&self, record: &[u8], files: usize) {
        let null = File::open("/dev/null").expect("/dev/null");
        // A socket in flight to its own peer: only the kernel can close it.
        let kinds = [null.as_fd(), self.socket.as_fd()];
        let fds: Vec<BorrowedFd<'_>> =
            kinds.into_iter().chain(self.workers.iter().map(AsFd::as_fd)).cycle().take(files).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = sendmsg(&self.socket, &[IoSlice::new(record)], &mut control, flags);
    }

    fn say(&self, message: &Message, files: usize) {
        let mut record = [0; MESSAGE_BYTES];
        message.encode(&mut record);
        self.send(&record, files);
    }

    /// Receives one answer of the service if it comes within a millisecond, and keeps a
    /// granted stream and worker.
    fn hear(&mut self) {
        if !self.socket.readable_within(Duration::from_millis(1)).expect("poll") {
            return;
        }
        let mut record = [0; 2 * MESSAGE_BYTES];
        // The service has disconnected with unread data of this client.
        let Ok((len, fd)) = self.socket.receive(&mut record) else { return };
        if len == 0 {
            return;
        }
        match Message::decode(&record[..len]).expect("the service sends valid messages") {
            Message::Grant { stream, .. } => {
                // Another client may have used the worker in between and ended it.
                self.workers.push(Socket::from(fd.expect("a worker's socket")));
                self.streams.push(stream);
            }
            Message::Denied { text } => assert!(!text.is_empty()),
            Message::Totals(totals) => assert!(totals.connections <= LIMITS.connections),
            Message::Status(status) => assert!(status.stream > 0),
            other => panic!("{other:?}"),
        }
    }

    /// Returns a stream of this client, selected by the low two bits of `number`;
    /// `number` itself if the client has no such stream.
    fn stream(&self, number: u8) -> u32 {
        let own = self.streams.get(usize::from(number & 3)).copied();
        own.unwrap_or(u32::from(number))
    }
}

/// Runs one step of client number `who`: the operation `what`, with operands from the
/// front of `rest`. Connects the client first if it is not connected.
fn step(clients: &mut [Option<Client>], path: &Path, who: usize, what: u8, rest: &mut &[u8]) {
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at(count.min(rest.len()));
        *rest = left;
        taken
    };
    let place = &mut clients[who];
    if what % 16 == 0 {
        *place = None;
        return;
    }
    let client = place.get_or_insert_with(|| Client::connect(path));
    let files = match what >> 4 {
        0..12 => 0,
        12..15 => usize::from(what >> 4) - 11,
        _ => MOST_FILES,
    };
    let number = |bytes: &[u8]| bytes.first().copied().unwrap_or(0);
    match what % 16 {
        1 | 2 => client.say(&Message::Hello { version: VERSION }, files),
        3 => {
            let number = number(take(1));
            client.say(&Message::Replace { stream: client.stream(number), kill: number & 4 == 0 }, files);
        }
        4 => {
            let number = number(take(1));
            client.say(&Message::Release { stream: client.stream(number) }, files);
        }
        5 => client.say(&Message::Watch { from: u32::from(number(take(1))) }, files),
        6 | 7 => {
            let mut record = [0; MESSAGE_BYTES];
            record[..4].copy_from_slice(&MAGIC);
            record[4..6].copy_from_slice(&VERSION.to_le_bytes());
            let given = take(GIVEN);
            record[6..6 + given.len()].copy_from_slice(given);
            client.send(&record, files);
        }
        8 => {
            let len = usize::from(number(take(1)));
            client.send(take(len), files);
        }
        9 => {
            // A length around that of a message.
            let mut record = vec![0; MESSAGE_BYTES - 8 + usize::from(number(take(1)) % 16)];
            let given = take(GIVEN);
            record[..given.len()].copy_from_slice(given);
            client.send(&record, files);
        }
        10 => {
            // More answers than fit into the socket.
            for _ in 0..number(take(1)) {
                client.say(&Message::Watch { from: 0 }, 0);
            }
        }
        11 => client.socket.finish(),
        12 => client.socket.shut(),
        13 => {
            if let Some(worker) = client.workers.pop() {
                say(&worker, &Message::Ready { layers: 1 });
            }
        }
        _ => client.hear(),
    }
}

fuzz_target!(init: start(), |bytes: &[u8]| {
    let [service, steps @ ..] = bytes else { return };
    let services = SERVICES.get().expect("started");
    let path = &services[usize::from(*service) % services.len()];
    let files = open_files();
    let mut clients: [Option<Client>; CLIENTS] = Default::default();
    let mut rest: &[u8] = steps;
    while let [who, what, behind @ ..] = rest {
        rest = behind;
        step(&mut clients, path, usize::from(*who) % CLIENTS, *what, &mut rest);
    }
    drop(clients);
    settle(path, files);
});
