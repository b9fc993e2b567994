// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker side of these tests: this binary, started as a worker.

use std::ffi::CString;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use framepath_os::process::sandbox::{self, Layer, ResourceLimits, SandboxError, SandboxRole};
use framepath_os::process::spawn::{Bounds, Zygote, take_socket};
use rustix::fs::{SealFlags, fcntl_add_seals};

use crate::acts::{ACTS, Scene, call};
use crate::wire::{receive, send};

pub const LIMITS: ResourceLimits =
    ResourceLimits { address_space_bytes: 1 << 30, file_bytes: 1 << 20, open_files: 32, threads: 64 };

/// Runs the worker in the mode that `arguments` select: the program's arguments without the one that marks
/// a worker. Sends the mode's answer to the parent, and returns when the parent closes the socket.
pub fn run(arguments: &[String]) {
    let socket = take_socket().unwrap();
    assert!(take_socket().is_err(), "taken twice");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments.as_slice() {
        ["idle"] => "ready".to_owned(),
        ["acts", role, file] => acts(socket.as_fd(), role, Path::new(file)),
        ["allowed"] => allowed(socket.as_fd()),
        ["network", allowed, other] => network(allowed.parse().unwrap(), other.parse().unwrap()),
        ["old-kernel"] => old_kernel(),
        ["zygote"] => zygote(),
        ["plugin", file, other] => plugin(Path::new(file), other),
        other => panic!("no such mode: {other:?}"),
    };
    send(socket.as_fd(), &answer, &[]).unwrap();
    // Waits until the parent closes its end.
    receive(socket.as_fd()).unwrap();
}

/// Enters `role` and tries the acts. Returns the wire form of the layers in the first line, then one line
/// per act: `done` or an errno.
fn acts(socket: BorrowedFd<'_>, role: &str, file: &Path) -> String {
    let (text, fds) = receive(socket).unwrap();
    let [pool, read_only, parent_pidfd, end] = fds.as_slice() else { panic!("{} descriptors", fds.len()) };
    let (parent, listener) = text.split_once(' ').unwrap();
    let scene = Scene {
        parent: parent.parse().unwrap(),
        parent_pidfd: parent_pidfd.as_raw_fd(),
        read_only: read_only.as_raw_fd(),
        pool: pool.as_raw_fd(),
        socket: end.as_raw_fd(),
        listener: CString::new(listener).unwrap(),
    };
    let locked = role != "free";
    let layers = match role {
        "decode" => sandbox::enter(SandboxRole::Decode, &LIMITS).unwrap(),
        "decode-by-device" => {
            let layers = sandbox::enter(SandboxRole::DecodeByDevice, &LIMITS).unwrap();
            // VIDIOC_QUERYCAP reaches the kernel, for which a memfd is no device.
            let asked = call!(SYS_ioctl, scene.pool, 0x8068_5600_u32, [0u8; 104].as_mut_ptr());
            assert_eq!(asked, Err(libc::ENOTTY));
            layers
        }
        "network" => sandbox::enter(SandboxRole::Network { tcp_port: Some(1) }, &LIMITS).unwrap(),
        "plugin" => {
            sandbox::enter(SandboxRole::PluginLoading { file }, &LIMITS).unwrap();
            // A thread of a constructor could set the flag again after the next role was entered.
            let dumpable = call!(SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0usize, 0usize, 0usize);
            assert_eq!(dumpable, Err(libc::EPERM));
            sandbox::enter(SandboxRole::Plugin, &LIMITS).unwrap()
        }
        _ => sandbox::Layers::default(),
    };
    let mut answer = layers.bits().to_string();
    for act in ACTS.iter().filter(|act| locked || act.free_outside) {
        match (act.attempt)(&scene) {
            Ok(()) => answer.push_str("\ndone"),
            Err(errno) => answer.push_str(&format!("\n{errno}")),
        }
    }
    answer
}

/// Tries everything that a decoder must be able to do in its sandbox, and returns `ok`. Seals the granted
/// memory. The text of a panic is lost, but the parent sees that the process ended.
fn allowed(socket: BorrowedFd<'_>) -> String {
    let (text, fds) = receive(socket).unwrap();
    let [pool, open] = fds.as_slice() else { panic!("{} descriptors", fds.len()) };
    let bounded = text == "threads are bounded";
    // An earlier thread is restricted as well.
    let (go, wait) = mpsc::channel();
    let early = thread::spawn(move || {
        wait.recv().unwrap();
        call!(SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDONLY, 0)
    });
    let layers = sandbox::enter(SandboxRole::Decode, &LIMITS).unwrap();
    assert!(layers.has(Layer::Seccomp));
    go.send(()).unwrap();
    assert_eq!(early.join().unwrap(), Err(libc::EPERM), "the thread from before");

    let threads: Vec<_> = (0..4u64)
        .map(|i| {
            let work = move || (0..1000u64).map(|n| n * i).sum::<u64>();
            thread::Builder::new().name(format!("decode-{i}")).spawn(work).unwrap()
        })
        .collect();
    let sums: Vec<u64> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(sums, [0, 499_500, 999_000, 1_498_500]);

    let memory = vec![1u8; 64 << 20];
    assert_eq!(memory.iter().step_by(4096).map(|b| u64::from(*b)).sum::<u64>(), (64 << 20) / 4096);
    drop(memory);
    let too_much = call!(
        SYS_mmap,
        std::ptr::null::<u8>(),
        LIMITS.address_space_bytes as usize,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        -1,
        0usize
    );
    assert_eq!(too_much, Err(libc::ENOMEM));

    // A pool that no other process reads needs no file.
    let mut private = framepath_os::memory::pool::Pool::new(4096, 2).unwrap();
    private.acquire().unwrap().plane_mut(0).fill(7);
    // Another pool is made in the granted memory.
    fcntl_add_seals(pool, SealFlags::FUTURE_WRITE | SealFlags::SEAL).unwrap();
    assert_eq!(rustix::fs::fstat(pool).unwrap().st_size as u64, LIMITS.file_bytes);
    // SAFETY: ignoring a signal, which reports that a file would become too large.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    assert_eq!(rustix::io::pwrite(open, b"x", LIMITS.file_bytes), Err(rustix::io::Errno::FBIG));

    let mut files = vec![];
    let full = loop {
        match rustix::io::fcntl_dupfd_cloexec(pool, 0) {
            Ok(file) => files.push(file),
            Err(errno) => break errno,
        }
    };
    assert_eq!(full, rustix::io::Errno::MFILE);
    assert!((files.len() as u64) < LIMITS.open_files);
    drop(files);

    // The limit on threads applies to every user but root, if there are namespaces.
    if bounded {
        let (sender, ends) = mpsc::channel::<()>();
        let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
        let mut waiting = vec![];
        let refused = loop {
            let ends = ends.clone();
            let wait = move || ends.lock().unwrap().recv().is_err();
            match thread::Builder::new().stack_size(1 << 16).spawn(wait) {
                Ok(thread) => waiting.push(thread),
                Err(error) => break error.raw_os_error(),
            }
        };
        assert_eq!((refused, waiting.len() as u64), (Some(libc::EAGAIN), LIMITS.threads - 1));
        drop(sender);
        assert!(waiting.into_iter().all(|thread| thread.join().unwrap()));
    }

    assert!(thread::available_parallelism().is_ok());
    thread::sleep(std::time::Duration::from_millis(1));
    "ok".to_owned()
}

/// Enters the role with network access and TCP port `allowed`, and returns `ok` after a connection to this port.
/// With Landlock's network layer, `other` cannot be reached and no TCP port can be bound.
fn network(allowed: u16, other: u16) -> String {
    let layers = sandbox::enter(SandboxRole::Network { tcp_port: Some(allowed) }, &LIMITS).unwrap();
    TcpStream::connect((Ipv4Addr::LOCALHOST, allowed)).unwrap();
    let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(datagrams.send_to(b"x", datagrams.local_addr().unwrap()).unwrap(), 1);
    if layers.has(Layer::LandlockNet) {
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, other)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    }
    "ok".to_owned()
}

/// Turns this worker into a zygote, forks several processes, and returns one line per process about its
/// end.
fn zygote() -> String {
    let zygote = Zygote::new().unwrap();
    let bounds = Bounds { memory_bytes: 1 << 30, threads: 64 };
    let (_ours, theirs) = crate::wire::pair();
    let forked = |run: fn() -> i32| {
        // Standard error is kept, and this worker has none.
        let mut process = zygote.fork(theirs.as_fd(), bounds, |_| run()).unwrap();
        process.wait().unwrap()
    };
    let mut outcomes = vec![
        // SAFETY: ends the process.
        format!("abort {:?}", forked(|| unsafe { libc::abort() }).signal),
        // SAFETY: the default action of the signal is to end the process.
        format!("raise {:?}", forked(|| unsafe { libc::raise(libc::SIGTERM) }).signal),
    ];
    outcomes.push(match forked(knows_itself).exit_code {
        Some(0) => "thread ids match, its mutex knows it, not the first process".to_owned(),
        other => format!("a process that does not know itself: {other:?}"),
    });
    let names = |code| if code == Some(0) { "clean" } else { "with others" };
    let clean = || {
        let known = ["LANG", "LD_LIBRARY_PATH", "FRAMEPATH_SOCKET"];
        i32::from(std::env::vars_os().any(|(name, _)| known.iter().all(|known| name != *known)))
    };
    outcomes.push(format!("environment {}", names(forked(clean).exit_code)));
    outcomes.push(format!("panic {:?}", forked(|| std::panic::resume_unwind(Box::new(()))).exit_code));
    let mut process = zygote.fork(theirs.as_fd(), bounds, |_| framepath_os::process::crash::hang()).unwrap();
    outcomes.push(own_namespaces(&process).to_owned());
    process.kill().unwrap();
    outcomes.push(format!("killed {:?}", process.wait().unwrap().signal));
    outcomes.join("\n")
}

/// Compares the namespaces of `process` with [`WorkerProcess::namespaces`]. Returns `namespaces of its
/// own` if they agree within a second, otherwise `namespaces of others`.
///
/// [`WorkerProcess::namespaces`]: framepath_os::process::spawn::WorkerProcess::namespaces
fn own_namespaces(process: &framepath_os::process::spawn::WorkerProcess) -> &'static str {
    let given = process.namespaces();
    let all = [
        ("user", given.user),
        ("pid", given.pid),
        ("net", given.net),
        ("ipc", given.ipc),
        ("uts", given.uts),
    ];
    // The child may not have entered its own namespaces yet.
    for _ in 0..1000 {
        let of = |pid: &str, name: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
        let pid = process.pid().to_string();
        if all.iter().all(|(name, own)| (of(&pid, name) != of("self", name)) == *own) {
            return "namespaces of its own";
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    "namespaces of others"
}

/// Returns 0 if the C library knows the id of the calling thread, and the process is not the first of its
/// pid namespace; otherwise the number of the failed check.
fn knows_itself() -> i32 {
    // SAFETY: an initialised mutex of this stack, locked and read by this thread.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attributes);
        libc::pthread_mutexattr_settype(&mut attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
        let mut mutex: libc::pthread_mutex_t = std::mem::zeroed();
        libc::pthread_mutex_init(&mut mutex, &attributes);
        if libc::pthread_mutex_lock(&mut mutex) != 0 || libc::pthread_mutex_lock(&mut mutex) != libc::EDEADLK
        {
            return 1;
        }
        // glibc: a lock word, a count, then the id of the owner.
        let owner = (&raw const mutex).cast::<i32>().add(2).read();
        let itself = libc::syscall(libc::SYS_gettid) as i32;
        if owner != itself || libc::gettid() != itself || libc::getpid() != itself {
            return 2;
        }
        if libc::pthread_kill(libc::pthread_self(), 0) != 0 || libc::pthread_mutex_unlock(&mut mutex) != 0 {
            return 3;
        }
        // First process of its pid namespace: the kernel would ignore its own signals.
        i32::from(itself == 1)
    }
}

/// Enters the decoder's sandbox on a kernel without seccomp and Landlock, which a filter simulates.
/// Returns the layers in force, or the unexpected result.
fn old_kernel() -> String {
    let absent = [libc::SYS_seccomp, libc::SYS_landlock_create_ruleset].map(|number| (number, Vec::new()));
    let filter = seccompiler::SeccompFilter::new(
        absent.into_iter().collect(),
        seccompiler::SeccompAction::Allow,
        seccompiler::SeccompAction::Errno(libc::ENOSYS as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    )
    .unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
    match sandbox::enter(SandboxRole::Decode, &LIMITS) {
        Err(SandboxError::NoSeccomp { layers, .. }) => layers.to_string(),
        other => format!("{other:?}"),
    }
}

/// Loads the plug-in `file` in its roles, and returns `ok`. Panics if the worker can open `other` or do
/// anything else that the roles forbid.
fn plugin(file: &Path, other: &str) -> String {
    let other = CString::new(other).unwrap();
    let path = CString::new(file.to_str().unwrap()).unwrap();
    let open =
        |path: &CString, flags: libc::c_int| call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
    let code = || {
        let (read, private) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        call!(SYS_mmap, std::ptr::null::<u8>(), 4096usize, read, private, -1, 0usize)
    };
    assert!(open(&other, libc::O_RDONLY).is_ok(), "before the sandbox");
    assert!(sandbox::mapped_bytes().unwrap() > 1 << 20);

    let layers = sandbox::enter(SandboxRole::PluginLoading { file }, &LIMITS).unwrap();
    // Without Landlock any file can be read until the role is sealed.
    if layers.has(Layer::LandlockFiles) {
        assert_eq!(open(&other, libc::O_RDONLY), Err(libc::EACCES), "another file");
    }
    // Landlock allows such a descriptor for any path.
    assert_eq!(open(&other, libc::O_PATH), Err(libc::EPERM), "another file, by O_PATH");
    assert_eq!(open(&other, libc::O_PATH | libc::O_DIRECTORY), Err(libc::EPERM), "O_PATH of a folder");
    assert_eq!(open(&path, libc::O_RDWR), Err(libc::EPERM), "the file, for writing");
    assert!(open(&path, libc::O_RDONLY).is_ok(), "the file, for reading");
    assert!(code().is_ok(), "code can be mapped");
    // SAFETY: a library of the C library's own, without constructors of note.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "dlopen");

    sandbox::enter(SandboxRole::Plugin, &LIMITS).unwrap();
    // An error, because a size of 0 would make the limit of the address space too low.
    assert!(sandbox::mapped_bytes().is_err(), "mapped memory, sealed");
    assert_eq!(open(&path, libc::O_RDONLY), Err(libc::EPERM), "the file, sealed");
    assert_eq!(code(), Err(libc::EPERM), "code, sealed");
    // SAFETY: the handle is live and the name ends in zero.
    let cos = unsafe { libc::dlsym(library, c"cos".as_ptr()) };
    assert!(!cos.is_null(), "dlsym");
    // SAFETY: the C library's function of that name.
    let cos = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(f64) -> f64>(cos) };
    assert_eq!(cos(0.0), 1.0);
    "ok".to_owned()
}
