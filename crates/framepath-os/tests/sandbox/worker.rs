// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this binary does where the tests started it as a worker.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use framepath_os::sandbox::{self, Layer, Limits, Role, SandboxError};
use framepath_os::spawn::take_socket;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};

use crate::acts::{ACTS, Scene, call};
use crate::wire::{receive, send};

pub const LIMITS: Limits = Limits { memory_bytes: 1 << 30, file_bytes: 1 << 20, open_files: 32 };

/// Runs the mode named by the arguments, the worker's first word left out.
pub fn run(arguments: &[String]) {
    let socket = take_socket().unwrap();
    assert!(take_socket().is_err(), "taken twice");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments.as_slice() {
        ["idle"] => "ready".to_owned(),
        ["acts", role, file] => acts(socket.as_fd(), role, Path::new(file)),
        ["allowed"] => allowed(socket.as_fd()),
        ["old-kernel"] => old_kernel(),
        ["plugin", file, other] => plugin(Path::new(file), other),
        other => panic!("no such mode: {other:?}"),
    };
    send(socket.as_fd(), &answer, &[]).unwrap();
    // Until the parent closes its end.
    receive(socket.as_fd()).unwrap();
}

/// The layers' wire form, and an errno (or `done`) for each act.
fn acts(socket: BorrowedFd<'_>, role: &str, file: &Path) -> String {
    let (text, fds) = receive(socket).unwrap();
    let [pool, read_only, parent_pidfd] = fds.as_slice() else { panic!("{} descriptors", fds.len()) };
    let (parent, listener) = text.split_once(' ').unwrap();
    let scene = Scene {
        parent: parent.parse().unwrap(),
        parent_pidfd: parent_pidfd.as_raw_fd(),
        read_only: read_only.as_raw_fd(),
        pool: pool.as_raw_fd(),
        listener: CString::new(listener).unwrap(),
    };
    let locked = role != "free";
    let layers = match role {
        "decode" => sandbox::enter(Role::Decode, &LIMITS).unwrap(),
        "decode-by-device" => {
            let layers = sandbox::enter(Role::DecodeByDevice, &LIMITS).unwrap();
            // VIDIOC_QUERYCAP goes through to the kernel, to which a memfd is no device.
            let asked = call!(SYS_ioctl, scene.pool, 0x8068_5600_u32, [0u8; 104].as_mut_ptr());
            assert_eq!(asked, Err(libc::ENOTTY));
            layers
        }
        "plugin" => {
            sandbox::enter(Role::PluginLoading { file }, &LIMITS).unwrap();
            sandbox::enter(Role::Plugin, &LIMITS).unwrap()
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

/// `ok`, and a sealed memfd sent before it. A panic's text goes with the
/// process: the parent sees that it ended.
fn allowed(socket: BorrowedFd<'_>) -> String {
    // A thread that was there before is bound as well.
    let (go, wait) = mpsc::channel();
    let early = thread::spawn(move || {
        wait.recv().unwrap();
        call!(SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDONLY, 0)
    });
    let layers = sandbox::enter(Role::Decode, &LIMITS).unwrap();
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
        LIMITS.memory_bytes as usize,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        -1,
        0usize
    );
    assert_eq!(too_much, Err(libc::ENOMEM));

    let pool = memfd_create("pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&pool, LIMITS.file_bytes).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&pool, seals).unwrap();
    assert_eq!(fcntl_get_seals(&pool).unwrap(), seals);
    assert_eq!(rustix::fs::fstat(&pool).unwrap().st_size as u64, LIMITS.file_bytes);
    // SAFETY: ignoring a signal; it says that a file would become too large.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let large = memfd_create("large", MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(ftruncate(&large, LIMITS.file_bytes + 1), Err(rustix::io::Errno::FBIG));

    let mut files = vec![];
    let full = loop {
        match memfd_create("many", MemfdFlags::CLOEXEC) {
            Ok(file) => files.push(file),
            Err(errno) => break errno,
        }
    };
    assert_eq!(full, rustix::io::Errno::MFILE);
    assert!((files.len() as u64) < LIMITS.open_files);
    drop(files);

    assert!(thread::available_parallelism().is_ok());
    thread::sleep(std::time::Duration::from_millis(1));
    send(socket, "pool", &[pool.as_fd()]).unwrap();
    "ok".to_owned()
}

/// What `enter` says where neither seccomp nor Landlock is there: a filter
/// answers for a kernel that has neither.
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
    match sandbox::enter(Role::Decode, &LIMITS) {
        Err(SandboxError::NoSeccomp { layers, .. }) => layers.to_string(),
        other => format!("{other:?}"),
    }
}

/// `ok` where loading works as far as it should and no further.
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

    let layers = sandbox::enter(Role::PluginLoading { file }, &LIMITS).unwrap();
    // Without Landlock any file can be read until the role is sealed.
    if layers.has(Layer::LandlockFiles) {
        assert_eq!(open(&other, libc::O_RDONLY), Err(libc::EACCES), "another file");
    }
    assert_eq!(open(&path, libc::O_RDWR), Err(libc::EPERM), "the file, for writing");
    assert!(open(&path, libc::O_RDONLY).is_ok(), "the file, for reading");
    assert!(code().is_ok(), "code can be mapped");
    // SAFETY: a library of the C library's own, without constructors of note.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "dlopen");

    sandbox::enter(Role::Plugin, &LIMITS).unwrap();
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
