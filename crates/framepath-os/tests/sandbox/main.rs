// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workers from their parent's view, and their abilities in the sandbox.
//!
//! The binary starts itself as the worker, so it has its own main. Arguments select the tests to
//! run.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use framepath_os::process::sandbox::{self, Layer, Layers};
use framepath_os::process::spawn::{
    Bounds, SpawnError, WorkerProcess, namespaces_given, spawn, spawn_with_network, spawn_zygote,
};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

mod acts;
mod wire;
mod worker;

const WORKER: &str = "--worker";

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_program_that_is_not_there_is_an_error_with_its_errno", no_program),
    ("a_killed_worker_is_reaped_and_said_to_be_killed", killed),
    ("a_dropped_worker_is_gone", dropped),
    ("a_worker_dies_with_the_thread_that_started_it", dies_with_its_thread),
    ("a_worker_has_its_socket_and_dev_null_and_nothing_else", inherits_nothing),
    ("a_worker_has_the_namespaces_it_is_said_to_have", own_namespaces),
    ("what_a_zygote_forks_is_a_whole_process", zygote_forks),
    ("what_is_forbidden_is_possible_outside", forbidden_acts_work_outside),
    ("a_decoder_is_denied_every_forbidden_act", decoder_is_denied),
    ("a_decoder_by_device_is_denied_every_forbidden_act", decoder_by_device_is_denied),
    ("a_plugin_is_denied_every_forbidden_act", plugin_is_denied),
    ("a_network_worker_is_denied_everything_but_internet_sockets", network_is_denied),
    ("a_network_worker_connects_to_one_tcp_port", network_connects),
    ("a_decoder_can_do_its_work_within_its_limits", decoder_works),
    ("a_plugin_is_loaded_from_its_file_and_then_sealed", plugin_loads),
    ("a_kernel_without_seccomp_is_an_error_and_one_without_landlock_is_told", old_kernel),
    ("the_layers_can_be_tried_without_locking_this_process", layers_tried),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == WORKER) {
        worker::run(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        if catch_unwind(AssertUnwindSafe(test)).is_ok() {
            println!("test {name} ... ok");
            passed += 1;
        } else {
            println!("test {name} ... FAILED");
            failed += 1;
        }
    }
    let filtered = TESTS.len() - passed - failed;
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts this binary as a worker with the arguments `mode`. Returns the worker and the parent's end of
/// its socket.
fn start(mode: &[&str]) -> (WorkerProcess, OwnedFd) {
    let (ours, theirs) = wire::pair();
    let arguments: Vec<&OsStr> = [WORKER].iter().chain(mode).map(OsStr::new).collect();
    let worker = spawn(&std::env::current_exe().unwrap(), &arguments, theirs.as_fd()).unwrap();
    (worker, ours)
}

fn hear(socket: &OwnedFd) -> String {
    wire::receive(socket.as_fd()).unwrap().0
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn has_no_child() -> bool {
    // SAFETY: a null status is allowed.
    let waited = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    waited == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
}

fn no_program() {
    let (_ours, theirs) = wire::pair();
    for (program, errno) in [("/nowhere/worker", libc::ENOENT), ("/dev/null", libc::EACCES)] {
        match spawn(Path::new(program), &[], theirs.as_fd()).unwrap_err() {
            SpawnError::Child { program: named, step, source } => {
                assert_eq!((named, step), (PathBuf::from(program), "execve"));
                assert_eq!(source.raw_os_error(), Some(errno));
            }
            other => panic!("{other}"),
        }
        assert!(has_no_child());
    }
    let zero = spawn(Path::new("/bin/true"), &[OsStr::new("a\0b")], theirs.as_fd()).unwrap_err();
    assert!(matches!(zero, SpawnError::ZeroByte { what: "an argument", .. }), "{zero}");
}

fn killed() {
    let (mut worker, socket) = start(&["idle"]);
    assert_eq!(hear(&socket), "ready");
    assert_eq!(worker.try_wait().unwrap(), None);
    let pid = worker.pid();
    worker.kill().unwrap();
    let usage = worker.wait().unwrap();
    assert_eq!((usage.signal, usage.exit_code), (Some(libc::SIGKILL), None));
    assert!(usage.cpu_ns > 0 && usage.peak_memory_kib > 0, "{usage:?}");
    assert!(!exists(pid) && has_no_child());
    // A second call returns the same result; no process is left to kill.
    assert_eq!(worker.wait().unwrap(), usage);
    assert_eq!(worker.try_wait().unwrap(), Some(usage));
    worker.kill().unwrap();
    assert_eq!(hear(&socket), "", "its end of the socket is closed");

    // A worker that ends by itself.
    let (mut worker, socket) = start(&["idle"]);
    assert_eq!(hear(&socket), "ready");
    drop(socket);
    assert_eq!(worker.wait().unwrap().exit_code, Some(0));
}

fn dropped() {
    let (worker, socket) = start(&["idle"]);
    assert_eq!(hear(&socket), "ready");
    let pid = worker.pid();
    drop(worker);
    assert!(!exists(pid) && has_no_child());
}

fn dies_with_its_thread() {
    let (mut worker, socket) = thread::spawn(|| start(&["idle"])).join().unwrap();
    assert_eq!(worker.wait().unwrap().signal, Some(libc::SIGKILL));
    drop(socket);
}

fn inherits_nothing() {
    let secret = fs::File::open("/proc/version").unwrap();
    rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
    // SAFETY: dispositions of this process, put back below.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
    }
    let (worker, socket) = start(&["idle"]);
    assert_eq!(hear(&socket), "ready");
    // SAFETY: as above.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        libc::signal(libc::SIGUSR1, libc::SIG_DFL);
    }
    let proc = PathBuf::from(format!("/proc/{}", worker.pid()));
    let mut files: Vec<(String, String)> = fs::read_dir(proc.join("fd"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let target = fs::read_link(entry.path()).unwrap().display().to_string();
            let kind = target.split(':').next().unwrap_or_default().to_owned();
            (entry.file_name().into_string().unwrap(), kind)
        })
        .collect();
    files.sort();
    let expected = [("0", "/dev/null"), ("1", "/dev/null"), ("2", "/dev/null"), ("3", "socket")];
    assert_eq!(files, expected.map(|(fd, kind)| (fd.to_owned(), kind.to_owned())));

    let status = fs::read_to_string(proc.join("status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
    };
    // Rust's own runtime ignores SIGPIPE at its start.
    let ignored = field("SigIgn") & !(1 << (libc::SIGPIPE - 1));
    assert_eq!((ignored, field("SigBlk"), field("NoNewPrivs")), (0, 0, 1));

    let stat = fs::read_to_string(proc.join("stat")).unwrap();
    let after_name: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(after_name[3], worker.pid().to_string(), "a session of its own");

    let environment = fs::read(proc.join("environ")).unwrap();
    for entry in environment.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let entry = String::from_utf8_lossy(entry);
        let known = ["LANG=", "LD_LIBRARY_PATH=", "FRAMEPATH_SOCKET="];
        assert!(known.iter().any(|name| entry.starts_with(name)), "{entry}");
    }
}

fn own_namespaces() {
    let (worker, socket) = start(&["idle"]);
    assert_eq!(hear(&socket), "ready");
    let given = worker.namespaces();
    assert_eq!(given, namespaces_given().unwrap());
    for (name, own) in
        [("user", given.user), ("pid", given.pid), ("net", given.net), ("ipc", given.ipc), ("uts", given.uts)]
    {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
        assert_eq!(of(&worker.pid().to_string()) != of("self"), own, "{name}");
    }
}

/// Starts a worker that enters `role` and tries the acts. Returns the layers of its sandbox, and one text
/// per act: `done` or an errno. Role `free` has no sandbox and tries only the acts that succeed without it.
fn try_acts(role: &str) -> (Layers, Vec<String>) {
    let page = 4096;
    let pool = rustix::fs::memfd_create("pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&pool, page).unwrap();
    rustix::fs::fcntl_add_seals(&pool, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
    let reader = memory_for_reading(page);
    let own = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).unwrap();
    let path = std::env::temp_dir().join(format!("framepath-probe-{}-{role}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();

    let file = std::env::current_exe().unwrap();
    let (mut worker, socket) = start(&["acts", role, file.to_str().unwrap()]);
    let text = format!("{} {}", own.as_raw_nonzero(), path.display());
    let (_other_end, end) = wire::pair();
    let fds: [BorrowedFd<'_>; 4] = [pool.as_fd(), reader.as_fd(), pidfd.as_fd(), end.as_fd()];
    wire::send(socket.as_fd(), &text, &fds).unwrap();
    let answer = hear(&socket);
    drop((socket, listener));
    fs::remove_file(path).unwrap();
    assert_eq!(worker.wait().unwrap().exit_code, Some(0), "{answer}");

    assert_eq!(rustix::fs::fstat(&pool).unwrap().st_size, page as i64);
    let mut lines = answer.lines().map(str::to_owned);
    let bits = lines.next().unwrap().parse().unwrap();
    (Layers::from_bits(bits).unwrap(), lines.collect())
}

/// Makes a memfd of `bytes` bytes, and returns a descriptor that is open for reading only.
fn memory_for_reading(bytes: u64) -> OwnedFd {
    let writable = rustix::fs::memfd_create("frames", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&writable, bytes).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writable));
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn forbidden_acts_work_outside() {
    let (layers, outcomes) = try_acts("free");
    assert_eq!(layers, Layers::default());
    let free: Vec<&str> = acts::ACTS.iter().filter(|act| act.free_outside).map(|act| act.name).collect();
    assert_eq!(outcomes.len(), free.len());
    for (name, outcome) in free.iter().zip(outcomes) {
        assert_eq!(outcome, "done", "{name}");
    }
}

fn decoder_is_denied() {
    all_denied("decode");
}

fn decoder_by_device_is_denied() {
    all_denied("decode-by-device");
}

fn plugin_is_denied() {
    all_denied("plugin");
}

/// Acts that a network worker may do: make a TCP socket, make a UDP socket, connect.
const NETWORK_ACTS: usize = 3;

fn network_is_denied() {
    assert_eq!(acts::ACTS.iter().filter(|act| act.is_network).count(), NETWORK_ACTS);
    all_denied("network");
}

/// Checks that a network worker reaches a listener of this process, and with Landlock no other TCP port.
fn network_connects() {
    let (allowed, other) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
    let (ours, theirs) = wire::pair();
    let (program, bounds) = (std::env::current_exe().unwrap(), Bounds { memory_bytes: 1 << 30, threads: 64 });
    let ports = [port(&allowed), port(&other)];
    let arguments = [WORKER, "network", &ports[0], &ports[1]].map(OsStr::new);
    let mut worker = spawn_with_network(&program, &arguments, theirs.as_fd(), bounds).unwrap();
    assert!(!worker.namespaces().net);
    assert_eq!(hear(&ours), "ok");
    let (_stream, peer) = allowed.accept().unwrap();
    assert!(peer.ip().is_loopback());
    drop(ours);
    assert_eq!(worker.wait().unwrap().exit_code, Some(0));
}

fn all_denied(role: &str) {
    let (layers, outcomes) = try_acts(role);
    assert!(layers.has(Layer::Seccomp) && layers.has(Layer::Capabilities), "{layers}");
    assert_eq!(outcomes.len(), acts::ACTS.len());
    let denials = [libc::EPERM, libc::EACCES, libc::ENOSYS].map(|errno| errno.to_string());
    let possible: Vec<String> = acts::ACTS
        .iter()
        .zip(&outcomes)
        .filter(|(act, outcome)| !(denials.contains(outcome) || role == "network" && act.is_network))
        .map(|(act, outcome)| format!("{}: {outcome}", act.name))
        .collect();
    assert!(possible.is_empty(), "not denied: {possible:#?}");
    println!("{role}: {} acts denied", outcomes.len());
}

fn decoder_works() {
    let (mut worker, socket) = start(&["allowed"]);
    let pool = framepath_os::memory::commit::grant(worker::LIMITS.file_bytes).unwrap();
    let open = rustix::fs::memfd_create("open", MemfdFlags::CLOEXEC).unwrap();
    // The kernel exempts root.
    let bounded = worker.namespaces().user && !rustix::process::geteuid().is_root();
    let text = if bounded { "threads are bounded" } else { "threads are not bounded" };
    wire::send(socket.as_fd(), text, &[pool.as_fd(), open.as_fd()]).unwrap();
    assert_eq!(hear(&socket), "ok");
    let seals = rustix::fs::fcntl_get_seals(&pool).unwrap();
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    assert_eq!(seals, all);
    drop(socket);
    assert_eq!(worker.wait().unwrap().exit_code, Some(0));
}

/// Checks that a worker can load a plug-in and nothing else. The plug-in is the C library's libm under
/// another name.
fn plugin_loads() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).unwrap();
    let folder = std::env::temp_dir().join(format!("framepath-plugin-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let (file, other) = (folder.join("plugin.so"), folder.join("other"));
    fs::copy(Path::new(libc).with_file_name("libm.so.6"), &file).unwrap();
    fs::write(&other, "private").unwrap();
    let (mut worker, socket) = start(&["plugin", file.to_str().unwrap(), other.to_str().unwrap()]);
    let answer = hear(&socket);
    drop(socket);
    fs::remove_dir_all(folder).unwrap();
    assert_eq!(answer, "ok", "{:?}", worker.wait().unwrap());
}

fn old_kernel() {
    let (_worker, socket) = start(&["old-kernel"]);
    assert_eq!(
        hear(&socket),
        "no new privileges, not dumpable, limits, no capabilities; not in this kernel: Landlock files, \
         Landlock network, Landlock signals and sockets, seccomp"
    );
}

/// Checks the processes that a zygote forks. The worker is the zygote; it reports the end of each process
/// that it forked.
fn zygote_forks() {
    let (ours, theirs) = wire::pair();
    let arguments = [WORKER, "zygote"].map(OsStr::new);
    let mut zygote = spawn_zygote(&std::env::current_exe().unwrap(), &arguments, theirs.as_fd()).unwrap();
    drop(theirs);
    let outcomes = hear(&ours);
    drop(ours);
    assert_eq!(zygote.wait().unwrap().exit_code, Some(0), "{outcomes}");
    let expected = [
        format!("abort Some({})", libc::SIGABRT),
        format!("raise Some({})", libc::SIGTERM),
        "thread ids match, its mutex knows it, not the first process".to_owned(),
        "environment clean".to_owned(),
        "panic Some(101)".to_owned(),
        "namespaces of its own".to_owned(),
        "killed Some(9)".to_owned(),
    ];
    assert_eq!(outcomes.lines().collect::<Vec<_>>(), expected);
}

fn layers_tried() {
    let layers = sandbox::try_on_a_thread().unwrap();
    for layer in [Layer::NoNewPrivileges, Layer::Capabilities, Layer::Seccomp] {
        assert!(layers.has(layer), "{layers}");
    }
    assert!(fs::File::open("/proc/version").is_ok(), "this process is free");
}
