// SPDX-License-Identifier: MIT OR Apache-2.0
//! Situations in which a command is blocked.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use framepath_os::crossing::{Listener, Socket};
use rustix::fs::{Mode, mknodat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use tempfile::TempDir;

use framepath_testkit::{framepath, in_checkout};

/// A command that never ends by itself.
pub struct Situation {
    pub what: &'static str,
    /// Arguments of `framepath`; `{fifo}`, `{clip}`, `{socket}` and `{sdp}` are replaced by paths, `{port}` by a TCP
    /// port.
    args: &'static [&'static str],
    with: With,
}

/// Environment that the command needs besides its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    Nothing,
    /// A fifo that no other process opens.
    Fifo,
    /// A fifo with a writer that writes this number of bytes of the clip, and then waits.
    Writer(usize),
    /// Standard input is a pipe without data.
    SilentInput,
    /// Standard output is an open pipe that no process reads, so that writes block once it is full.
    FullPipe,
    /// Standard output and standard error are one open pipe that no process reads.
    FullPipes,
    /// A service that accepts no client, with room in its backlog.
    SilentService,
    /// A service that accepts no client, with a full backlog.
    CrowdedService,
    /// A worker program that only sleeps, and sends no message.
    IdleWorker,
    /// A TCP server that accepts no client, with room in its backlog.
    SilentServer,
    /// A session description; nobody sends the session.
    Session,
}

/// Bytes of about half of the clip: enough for a demuxer to find the stream.
const HALF: usize = 10_000;

#[rustfmt::skip]
pub const SITUATIONS: &[Situation] = &[
    situation("opening a fifo without a writer", &["run", "file {fifo} ! null"], With::Fifo),
    situation("reading a fifo without data", &["run", "file {fifo} ! null"], With::Writer(0)),
    situation("reading a fifo in the middle of a stream", &["run", "file {fifo} ! decode ! queue ! null"], With::Writer(HALF)),
    situation("reading a pipe on standard input", &["run", "file /dev/stdin ! decode host=process ! null"], With::SilentInput),
    situation("opening a fifo without a reader", &["run", "test size=64x48 ! framemd5 {fifo}"], With::Fifo),
    situation("y4m into a full pipe", &["run", "test size=640x480 format=yuv420p frames=0 ! y4m -"], With::FullPipe),
    situation("framemd5 into a full pipe, behind a queue", &["run", "test size=64x48 frames=0 ! queue ! framemd5 -"], With::FullPipe),
    situation("a full pipe behind a worker; standard error too", &["run", "file {clip} loop=100000 ! decode host=process format=native ! queue ! y4m -"], With::FullPipes),
    situation("a worker that hangs, with the stream inside", &["run", "file {clip} ! decode host=process fault=hang@0 watchdog=60s ! null"], With::Nothing),
    situation("a worker that hangs and has no room", &["run", "file {clip} loop=100000 ! decode host=process fault=hang@3 watchdog=60s ! null"], With::Nothing),
    situation("a worker that does not open", &["run", "file {clip} ! decode host=process ! null"], With::IdleWorker),
    situation("a service that does not answer", &["run", "file {clip} ! decode host=service socket={socket} ! null"], With::SilentService),
    situation("a service without room for a client", &["run", "file {clip} ! decode host=service socket={socket} ! null"], With::CrowdedService),
    situation("top at a service that does not answer", &["top", "--once", "--socket", "{socket}"], With::SilentService),
    situation("a network server that does not answer", &["run", "url rtsp://127.0.0.1:{port}/x timeout=60s ! null"], With::SilentServer),
    situation("a session that nobody sends", &["run", "rtp sdp={sdp} timeout=60s ! null"], With::Session),
    situation("a paced source", &["run", "test size=64x48 frames=0 rate=0.001 ! null"], With::Nothing),
    situation("a paced source with a sink that shows", &["run", "test size=64x48 frames=0 rate=0.001 ! play driver=null"], With::Nothing),
    situation("a full queue", &["run", "test size=64x48 frames=0 ! queue depth=2 ! block time=60s ! null"], With::Nothing),
    situation("an empty pool", &["run", "test size=64x48 pool=2 frames=0 ! queue depth=8 ! block time=60s ! null"], With::Nothing),
    situation("a comparison of a path that is blocked", &["compare", "file {fifo} ! null", "test ! null"], With::Fifo),
    situation("a comparison of a command that ignores SIGTERM", &["compare", "--", "sh -c 'trap \"\" TERM INT; read x <{fifo}'", "true"], With::Fifo),
];

const fn situation(what: &'static str, args: &'static [&'static str], with: With) -> Situation {
    Situation { what, args, with }
}

/// Resources that must live as long as the command.
#[derive(Default)]
pub struct Others {
    folder: Option<TempDir>,
    writer: Option<File>,
    reader: Option<OwnedFd>,
    input: Option<OwnedFd>,
    listener: Option<Listener>,
    crowded: Option<OwnedFd>,
    clients: Vec<Socket>,
    server: Option<TcpListener>,
}

impl Situation {
    /// Starts the command, which blocks. Returns it with the resources that keep it blocked.
    pub fn begin(&self) -> (Child, Others) {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (fifo, socket, program) = (name("fifo"), name("socket"), name("worker"));
        let clip = in_checkout("clips/vp9-180p8.ivf");
        let (server, sdp) = (TcpListener::bind("127.0.0.1:0").unwrap(), name("session.sdp"));
        let port = server.local_addr().unwrap().port();
        let fill = |word: &&str| {
            let word = word.replace("{fifo}", &fifo).replace("{socket}", &socket);
            let word = word.replace("{port}", &port.to_string()).replace("{sdp}", &sdp);
            word.replace("{clip}", clip.to_str().unwrap())
        };
        let args: Vec<String> = self.args.iter().map(fill).collect();
        let mut command: Command = framepath(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut others = Others::default();
        match self.with {
            With::Nothing => {}
            With::Fifo => make_fifo(&fifo),
            With::Writer(bytes) => {
                make_fifo(&fifo);
                others.writer = Some(write_to(&fifo, &fs::read(&clip).unwrap()[..bytes]));
            }
            With::SilentInput => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                command.stdin(reader);
                others.input = Some(writer);
            }
            With::FullPipe | With::FullPipes => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                if self.with == With::FullPipes {
                    command.stderr(writer.try_clone().unwrap());
                }
                command.stdout(writer);
                others.reader = Some(reader);
            }
            With::SilentServer => others.server = Some(server),
            With::Session => {
                let media = format!("m=video {} RTP/AVP 96\na=rtpmap:96 H264/90000\n", port & !1);
                let head = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n";
                fs::write(&sdp, format!("{head}{media}")).unwrap();
            }
            With::SilentService => others.listener = Some(Listener::bind(socket.as_ref(), 0o600).unwrap()),
            With::CrowdedService => {
                others.crowded = Some(listen_to_one(&socket));
                others.clients.push(Socket::connect(socket.as_ref()).unwrap());
            }
            With::IdleWorker => {
                fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
                fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
                command.env("FRAMEPATH_WORKER", PathBuf::from(&program));
            }
        }
        others.folder = Some(folder);
        (command.spawn().unwrap(), others)
    }
}

fn make_fifo(name: &str) {
    mknodat(rustix::fs::CWD, name, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Opens the fifo for reading and writing, which needs no other reader, and writes `bytes` to it.
/// Returns the open file.
fn write_to(fifo: &str, bytes: &[u8]) -> File {
    const O_NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut writer = OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(fifo).unwrap();
    writer.write_all(bytes).unwrap();
    writer
}

/// Makes a listening socket at `name` whose backlog one client fills.
fn listen_to_one(name: &str) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(name).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    socket
}
