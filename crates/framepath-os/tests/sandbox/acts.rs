// SPDX-License-Identifier: MIT OR Apache-2.0
//! Acts that the sandbox forbids to a worker, each as a function that tries the act.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};

/// Objects on which the acts work, sent to the worker by its parent.
pub struct Scene {
    /// Process id of the worker's parent in the parent's namespace.
    pub parent: libc::pid_t,
    /// Pidfd of the worker's parent.
    pub parent_pidfd: RawFd,
    /// Memfd of one page, opened for reading only.
    pub read_only: RawFd,
    /// Memfd of one page, sealed like that of a pool.
    pub pool: RawFd,
    /// One end of a pair of sockets, whose other end the parent has.
    pub socket: RawFd,
    /// Path of a listening unix socket in the file system.
    pub listener: std::ffi::CString,
}

/// Result of an act: an error with the errno if the kernel denied the act.
pub type Outcome = Result<(), i32>;

/// Act that the sandbox forbids.
pub struct Act {
    /// Description of the act, for messages.
    pub name: &'static str,
    /// True if the act succeeds for every user in a worker without a sandbox, on every kernel.
    /// This shows that the test of the act itself works.
    pub free_outside: bool,
    /// True if a worker with network access may do the act.
    pub is_network: bool,
    /// Function that tries the act.
    pub attempt: fn(&Scene) -> Outcome,
}

/// Makes the system call `$number` and returns its result, or an error with the errno.
macro_rules! call {
    ($number:ident $(, $argument:expr)* $(,)?) => {{
        // SAFETY: pointers among the arguments are valid for the call, or the kernel
        // checks them; a call that would end or change this process is denied, or undone
        // by the act.
        let result = unsafe { libc::syscall(libc::$number $(, $argument)*) };
        if result < 0 {
            Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            Ok(result)
        }
    }};
}
pub(crate) use call;

const PAGE: usize = 4096;
const NO: usize = 0;

fn done<T>(result: Result<T, i32>) -> Outcome {
    result.map(|_| ())
}

fn open(path: &CStr, flags: libc::c_int) -> Outcome {
    let fd = call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600)?;
    done(call!(SYS_close, fd))
}

fn map(bytes: usize, protection: i32, flags: i32, fd: RawFd) -> Result<usize, i32> {
    call!(SYS_mmap, null::<u8>(), bytes, protection, flags, fd, NO).map(|address| address as usize)
}

fn unmap(address: usize) -> Outcome {
    done(call!(SYS_munmap, address, PAGE))
}

fn socket(family: i32) -> Result<i64, i32> {
    call!(SYS_socket, family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)
}

fn loopback() -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 80u16.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    }
}

fn on_loopback(call: fn(i64, &libc::sockaddr_in, usize) -> Result<i64, i32>) -> Outcome {
    done(call(socket(libc::AF_INET)?, &loopback(), size_of::<libc::sockaddr_in>()))
}

fn connect_unix(scene: &Scene) -> Outcome {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    for (to, from) in address.sun_path.iter_mut().zip(scene.listener.to_bytes()) {
        *to = *from as libc::c_char;
    }
    let fd = socket(libc::AF_UNIX)?;
    done(call!(SYS_connect, fd, &raw const address, size_of::<libc::sockaddr_un>()))
}

/// Tries to start a thread with all flags of a process's threads except `flag`. The null stack is never
/// used, because the kernel must deny the call.
fn thread_without(flag: i32) -> Outcome {
    let all = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    done(call!(SYS_clone, (all & !flag) as usize, NO, NO, NO, NO))
}

fn send_descriptor(scene: &Scene) -> Outcome {
    let mut byte = 0u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        fd: RawFd,
    }
    // SAFETY: all-zero is a valid cmsghdr and msghdr.
    let (header, mut message): (libc::cmsghdr, libc::msghdr) = unsafe { std::mem::zeroed() };
    let mut control = Control { header, fd: scene.read_only };
    control.header.cmsg_len = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
    control.header.cmsg_level = libc::SOL_SOCKET;
    control.header.cmsg_type = libc::SCM_RIGHTS;
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    done(call!(SYS_sendmsg, scene.socket, &raw const message, libc::MSG_DONTWAIT))
}

/// Ends the child process that an act has made: exits in the child (`pid` is 0), waits for it in the
/// parent.
fn ends_child(pid: i64) -> Outcome {
    if pid == 0 {
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) }
    }
    done(call!(SYS_wait4, pid, null_mut::<i32>(), 0, null_mut::<u8>()))
}

fn remote_memory(scene: &Scene, writing: bool) -> Outcome {
    let mut here = [0u8; 8];
    let local = libc::iovec { iov_base: here.as_mut_ptr().cast(), iov_len: 8 };
    // An arbitrary address; the permission is checked before the address is used.
    let remote = libc::iovec { iov_base: PAGE as *mut libc::c_void, iov_len: 8 };
    let (l, r) = (&raw const local, &raw const remote);
    done(if writing {
        call!(SYS_process_vm_writev, scene.parent, l, 1usize, r, 1usize, NO)
    } else {
        call!(SYS_process_vm_readv, scene.parent, l, 1usize, r, 1usize, NO)
    })
}

fn raise_limit(resource: u32) -> Outcome {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    done(call!(SYS_prlimit64, 0, resource, &raw const limit, null_mut::<u8>()))
}

fn zeroed_attributes(first: u32) -> [u32; 32] {
    let mut attributes = [0; 32];
    attributes[0] = first;
    attributes
}

/// Makes an act that may also fail outside a sandbox.
const fn act(name: &'static str, attempt: fn(&Scene) -> Outcome) -> Act {
    Act { name, free_outside: false, is_network: false, attempt }
}

/// Makes an act that succeeds outside a sandbox, for every user and on every kernel.
const fn free(name: &'static str, attempt: fn(&Scene) -> Outcome) -> Act {
    Act { name, free_outside: true, is_network: false, attempt }
}

/// Marks an act that a worker with network access may do.
const fn network(act: Act) -> Act {
    Act { is_network: true, ..act }
}

/// Makes a socket of `family`, `kind` and `protocol`, and closes it.
fn make_socket(family: i32, kind: i32, protocol: i32) -> Outcome {
    let fd = call!(SYS_socket, family, kind | libc::SOCK_CLOEXEC, protocol)?;
    done(call!(SYS_close, fd))
}

/// All acts that the sandbox forbids.
pub const ACTS: &[Act] = &[
    free("move who sleeps on a shared word to another (futex requeue)", |_| {
        let words = [0u32; 2];
        let (first, second) = (words.as_ptr(), words[1..].as_ptr());
        done(call!(SYS_futex, first, libc::FUTEX_CMP_REQUEUE, NO, 1usize, second, NO))
    }),
    free("queue for a shared word where no wake-up passes (futex lock)", |_| {
        let word = 0u32;
        done(call!(SYS_futex, &raw const word, libc::FUTEX_LOCK_PI, NO, NO, NO, NO))
    }),
    // Files.
    free("open a file for reading", |_| open(c"/proc/version", libc::O_RDONLY)),
    free("open a file for writing", |_| open(c"/dev/null", libc::O_WRONLY)),
    free("create a file in /tmp", |_| {
        open(c"/tmp", libc::O_TMPFILE | libc::O_WRONLY).or_else(|errno| match errno {
            // For a file system without nameless files.
            libc::EOPNOTSUPP => open(c"/tmp/framepath-probe", libc::O_CREAT | libc::O_WRONLY),
            errno => Err(errno),
        })
    }),
    free("open /proc/self/mem", |_| open(c"/proc/self/mem", libc::O_RDWR)),
    free("list a folder", |_| open(c"/", libc::O_DIRECTORY)),
    free("ask whether a file exists", |_| {
        let mut stat = [0u64; 64];
        done(call!(SYS_newfstatat, libc::AT_FDCWD, c"/proc/version".as_ptr(), stat.as_mut_ptr(), 0))
    }),
    act("remove a file", |_| done(call!(SYS_unlinkat, libc::AT_FDCWD, c"/tmp/framepath-probe".as_ptr(), 0))),
    free("change the working folder", |_| done(call!(SYS_chdir, c"/".as_ptr()))),
    act("chroot", |_| done(call!(SYS_chroot, c"/".as_ptr()))),
    act("mount", |_| done(call!(SYS_mount, c"none".as_ptr(), c"/mnt".as_ptr(), c"tmpfs".as_ptr(), NO, NO))),
    // The network and other programs' sockets.
    network(free("make a TCP socket", |_| done(socket(libc::AF_INET)))),
    network(free("make a UDP socket", |_| make_socket(libc::AF_INET, libc::SOCK_DGRAM, 0))),
    network(act("connect to 127.0.0.1", |_| on_loopback(|fd, at, size| call!(SYS_connect, fd, at, size)))),
    free("make a unix socket", |_| make_socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)),
    free("make a netlink socket", |_| make_socket(libc::AF_NETLINK, libc::SOCK_RAW, 0)),
    act("make a packet socket", |_| make_socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0)),
    act("make a socket of the kernel's ciphers", |_| make_socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)),
    act("make a socket to a hypervisor", |_| make_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    act("make a raw socket", |_| make_socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)),
    act("make a ping socket", |_| make_socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)),
    act("make a multipath TCP socket", |_| {
        make_socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)
    }),
    act("make an SCTP socket", |_| make_socket(libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_SCTP)),
    free("listen on a TCP port", |_| {
        let fd = socket(libc::AF_INET)?;
        let listens = call!(SYS_listen, fd, 1);
        call!(SYS_close, fd)?;
        done(listens)
    }),
    free("attach a filter to a socket", |scene| {
        let program = libc::sock_fprog { len: 0, filter: null_mut() };
        let size = size_of::<libc::sock_fprog>();
        let option = libc::SO_ATTACH_FILTER;
        match call!(SYS_setsockopt, scene.socket, libc::SOL_SOCKET, option, &raw const program, size) {
            // The kernel's error for an empty program.
            Err(libc::EINVAL) => Ok(()),
            other => done(other),
        }
    }),
    act("connect by a message (TCP Fast Open)", |_| {
        on_loopback(|fd, at, size| call!(SYS_sendto, fd, c"x".as_ptr(), 1, libc::MSG_FASTOPEN, at, size))
    }),
    act("bind a port", |_| on_loopback(|fd, at, size| call!(SYS_bind, fd, at, size))),
    free("connect to a unix socket", connect_unix),
    free("make a socket pair", |_| {
        let mut pair = [0i32; 2];
        done(call!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()))
    }),
    free("make a file in memory", |_| {
        let fd = call!(SYS_memfd_create, c"probe".as_ptr(), 0)?;
        done(call!(SYS_close, fd))
    }),
    free("send a descriptor", send_descriptor),
    // Programs and processes.
    act("run a program", |_| {
        let argv = [c"/bin/true".as_ptr(), null()];
        done(call!(SYS_execve, argv[0], argv.as_ptr(), argv[1..].as_ptr()))
    }),
    act("run a program by descriptor", |scene| {
        let argv = [c"".as_ptr(), null()];
        done(call!(SYS_execveat, scene.pool, argv[0], argv.as_ptr(), argv[1..].as_ptr(), libc::AT_EMPTY_PATH))
    }),
    free("fork", |_| ends_child(call!(SYS_clone, libc::SIGCHLD as usize, NO, NO, NO, NO)?)),
    free("make a process with clone3", |_| {
        let mut arguments = [0u64; 8];
        arguments[4] = libc::SIGCHLD as u64;
        ends_child(call!(SYS_clone3, arguments.as_mut_ptr(), size_of_val(&arguments))?)
    }),
    act("make a thread with descriptors of its own", |_| thread_without(libc::CLONE_FILES)),
    act("make a thread with a working folder of its own", |_| thread_without(libc::CLONE_FS)),
    act("make a process in its own memory", |_| thread_without(libc::CLONE_THREAD)),
    free("have descriptors of its own (unshare)", |_| done(call!(SYS_unshare, libc::CLONE_FILES))),
    free("have more threads with clone3", |_| {
        // Refused because of its size, by a kernel that checks it.
        match call!(SYS_clone3, null::<u8>(), 1usize) {
            Err(libc::EINVAL) => Ok(()),
            other => done(other),
        }
    }),
    act("trace the parent", |scene| done(call!(SYS_ptrace, libc::PTRACE_SEIZE, scene.parent, NO, NO))),
    act("let the parent trace it", |_| done(call!(SYS_ptrace, libc::PTRACE_TRACEME, 0, NO, NO))),
    // Signal 0 asks for the same permission and does nothing.
    act("signal the parent", |scene| done(call!(SYS_kill, scene.parent, 0))),
    act("signal every process", |_| done(call!(SYS_kill, -1, 0))),
    act("signal a thread of the parent", |scene| done(call!(SYS_tgkill, scene.parent, scene.parent, 0))),
    act("signal the parent by pidfd", |scene| {
        done(call!(SYS_pidfd_send_signal, scene.parent_pidfd, 0, NO, 0))
    }),
    act("take a descriptor of the parent", |scene| done(call!(SYS_pidfd_getfd, scene.parent_pidfd, 0, 0))),
    act("read the parent's memory", |scene| remote_memory(scene, false)),
    act("write the parent's memory", |scene| remote_memory(scene, true)),
    act("enter a namespace of the parent", |scene| {
        done(call!(SYS_setns, scene.parent_pidfd, libc::CLONE_NEWNET))
    }),
    act("unshare", |_| done(call!(SYS_unshare, libc::CLONE_NEWUSER))),
    // Rights and limits.
    act("become root", |_| done(call!(SYS_setuid, 0))),
    act("raise the limit on memory", |_| raise_limit(libc::RLIMIT_AS)),
    act("raise the limit on files", |_| raise_limit(libc::RLIMIT_NOFILE)),
    free("become dumpable", |_| done(call!(SYS_prctl, libc::PR_SET_DUMPABLE, 1, NO, NO, NO))),
    free("move to another CPU", |_| {
        let all = [u64::MAX; 16];
        done(call!(SYS_sched_setaffinity, 0, size_of_val(&all), all.as_ptr()))
    }),
    // Code.
    free("map executable memory", |_| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        unmap(map(PAGE, libc::PROT_READ | libc::PROT_EXEC, flags, -1)?)
    }),
    free("make memory executable", |_| {
        let address = map(PAGE, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        let result = call!(SYS_mprotect, address, PAGE, libc::PROT_READ | libc::PROT_EXEC);
        unmap(address)?;
        done(result)
    }),
    free("make memory executable with a key", |_| {
        let address = map(PAGE, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        let result = call!(SYS_pkey_mprotect, address, PAGE, libc::PROT_READ | libc::PROT_EXEC, -1);
        unmap(address)?;
        done(result)
    }),
    free("map a memfd executable", |scene| {
        unmap(map(PAGE, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_SHARED, scene.pool)?)
    }),
    free("make all readable memory executable", |_| done(call!(SYS_personality, 0x0040_0000))),
    // The worker's own descriptors.
    act("map a read-only memfd writable", |scene| {
        done(map(PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, scene.read_only))
    }),
    act("make a read-only mapping writable", |scene| {
        let address = map(PAGE, libc::PROT_READ, libc::MAP_SHARED, scene.read_only)?;
        let result = call!(SYS_mprotect, address, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        unmap(address)?;
        done(result)
    }),
    act("write to a read-only memfd", |scene| {
        // The kernel's error for a descriptor that is not open for writing.
        match call!(SYS_write, scene.read_only, c"x".as_ptr(), 1usize) {
            Err(libc::EBADF) => Err(libc::EACCES),
            other => done(other),
        }
    }),
    free("open a read-only memfd again, writable", |scene| {
        let path = std::ffi::CString::new(format!("/proc/self/fd/{}", scene.read_only)).map_err(|_| 0)?;
        open(&path, libc::O_RDWR)
    }),
    act("grow the pool", |scene| done(call!(SYS_ftruncate, scene.pool, 2 * PAGE))),
    act("shrink the pool", |scene| done(call!(SYS_ftruncate, scene.pool, NO))),
    act("change the pool's seals", |scene| {
        done(call!(SYS_fcntl, scene.pool, libc::F_ADD_SEALS, libc::F_SEAL_WRITE))
    }),
    act("punch a hole into the pool", |scene| {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // Succeeds outside, because the file is not sealed against writing.
        done(call!(SYS_fallocate, scene.pool, mode, NO, PAGE))
    }),
    act("free the pool's pages", |scene| {
        let address = map(PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, scene.pool)?;
        let result = call!(SYS_madvise, address, PAGE, libc::MADV_REMOVE);
        unmap(address)?;
        done(result)
    }),
    free("control a descriptor (ioctl)", |scene| done(call!(SYS_ioctl, scene.pool, libc::FIOCLEX))),
    act("own a descriptor's signals", |scene| done(call!(SYS_fcntl, 3, libc::F_SETOWN, scene.parent))),
    // Large parts of the kernel.
    act("bpf", |_| {
        let mut attributes = zeroed_attributes(2);
        done(call!(SYS_bpf, 0, attributes.as_mut_ptr(), size_of_val(&attributes)))
    }),
    act("perf_event_open", |_| {
        // PERF_TYPE_SOFTWARE, and the size of the attributes.
        let mut attributes = zeroed_attributes(1);
        attributes[1] = 112;
        done(call!(SYS_perf_event_open, attributes.as_mut_ptr(), 0, -1, -1, NO))
    }),
    act("io_uring_setup", |_| {
        let mut parameters = [0u32; 30];
        done(call!(SYS_io_uring_setup, 1, parameters.as_mut_ptr()))
    }),
    act("userfaultfd", |_| done(call!(SYS_userfaultfd, 1))),
    // KEYCTL_GET_KEYRING_ID of the session's keyring, not made where absent.
    act("keyctl", |_| done(call!(SYS_keyctl, 0, -3, 0))),
    act("load a kernel module", |scene| done(call!(SYS_finit_module, scene.pool, c"".as_ptr(), 0))),
    free("make shared memory of System V", |_| {
        let id = call!(SYS_shmget, libc::IPC_PRIVATE, PAGE, 0o600)?;
        done(call!(SYS_shmctl, id, libc::IPC_RMID, NO))
    }),
    act("add a filter of its own", |_| {
        // SECCOMP_GET_ACTION_AVAIL of SECCOMP_RET_ALLOW.
        let allow = 0x7fff_0000u32;
        done(call!(SYS_seccomp, 2, 0, &raw const allow))
    }),
];
