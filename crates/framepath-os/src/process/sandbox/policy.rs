// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements of a policy file: system calls and conditions on their arguments. The tables of all
//! architectures are built and tested on every architecture.

/// Rule of a role for one system call: allowed under a condition, or reported as absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Name of the system call as in the C library, such as `SYS_read`.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare tables by it"))]
    pub(super) name: &'static str,
    /// Number of the system call on the table's architecture.
    pub(super) number: i64,
    /// Condition on the call's arguments under which the call is allowed; [`When::Absent`] forbids the call.
    pub(super) when: When,
}

/// Condition on the arguments of a system call, which count from 0. Arguments are compared as 32-bit
/// numbers, because only flags, commands and ids are checked, except for [`When::Null`].
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    /// The call is allowed with any arguments.
    Always,
    /// The call is allowed if argument number `.0` is one of the values `.1`.
    OneOf(u8, &'static [u32]),
    /// The call is allowed if argument number `.0`, masked with the bits `.1`, equals `.2`.
    Bits(u8, u32, u32),
    /// The call is allowed if argument number `.0` is the id of the process that installs the filter.
    OwnPid(u8),
    /// The call is allowed if argument number `.0` is one of the values `.2`, or has the bit `.1`.
    BitOrOneOf(u8, u32, &'static [u32]),
    /// The call is allowed if argument number `.0` is a null pointer (all 64 bits).
    Null(u8),
    /// The call is allowed if it matches one of the lists. A list has pairs of an argument number and a
    /// value; a call matches if every argument in the list has the value beside its number.
    AnyOf(&'static [&'static [(u8, u32)]]),
    /// The call always fails with ENOSYS, so that the C library uses another call.
    Absent,
}

/// All rules of one role on one architecture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Tables of rules; a later table's rule for a call replaces an earlier table's rule.
    pub(super) tables: &'static [&'static [Rule]],
}

/// System call policies of all roles on one architecture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policies {
    pub(super) decode: Policy,
    pub(super) decode_by_device: Policy,
    pub(super) plugin_loading: Policy,
    pub(super) plugin: Policy,
    pub(super) network: Policy,
}

/// Declares a table of [`Rule`]s, each as `SYS_name = number` with an optional ` if condition`. On the
/// table's own architecture the numbers are compared with the C library's at compile time.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident on $arch:tt: $($call:ident = $number:literal $(if $when:expr)?,)+) => {
        $(#[$doc])*
        pub(in crate::process::sandbox) const $name: &[$crate::process::sandbox::policy::Rule] = &[$(
            $crate::process::sandbox::policy::Rule {
                name: stringify!($call),
                number: $number,
                when: $crate::process::sandbox::policy::table!(@when $($when)?),
            }
        ),+];
        #[cfg(target_arch = $arch)]
        const _: () = {
            $(assert!(libc::$call == $number, stringify!($call));)+
        };
    };
    (@when) => { $crate::process::sandbox::policy::When::Always };
    (@when $when:expr) => { $when };
}
pub(super) use table;

/// Conditions for all architectures.
pub(super) mod condition {
    use super::When;

    const PROT_EXEC: u32 = 4;
    const CLONE_VM: u32 = 0x0000_0100;
    const CLONE_FS: u32 = 0x0000_0200;
    const CLONE_FILES: u32 = 0x0000_0400;
    const CLONE_SIGHAND: u32 = 0x0000_0800;
    const CLONE_PTRACE: u32 = 0x0000_2000;
    const CLONE_VFORK: u32 = 0x0000_4000;
    const CLONE_PARENT: u32 = 0x0000_8000;
    const CLONE_THREAD: u32 = 0x0001_0000;
    /// All CLONE_NEW* flags of clone(2): new namespaces for mount, cgroup, uts, ipc, user, pid, net.
    const CLONE_NEW: u32 = 0x7e02_0000;
    /// Flags of clone(2) for everything that the threads of a process share. Without CLONE_FILES each
    /// thread would have its own table and limit of descriptors.
    const THREAD: u32 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;

    /// Condition for mmap and mprotect: the memory is not executable.
    pub(in crate::process::sandbox) const NOT_EXECUTABLE: When = When::Bits(2, PROT_EXEC, 0);
    /// Condition for madvise: the advice affects only this process's own mappings. MADV_REMOVE is forbidden,
    /// because it would free pages of a file that other processes map. Allowed: MADV_NORMAL to
    /// MADV_DONTNEED, MADV_FREE, MADV_(NO)HUGEPAGE, MADV_DONTDUMP, MADV_DODUMP,
    /// MADV_GUARD_INSTALL, MADV_GUARD_REMOVE.
    pub(in crate::process::sandbox) const OWN_PAGES: When =
        When::OneOf(2, &[0, 1, 2, 3, 4, 8, 14, 15, 16, 17, 102, 103]);
    /// Condition for clone: the call makes a thread of this process.
    pub(in crate::process::sandbox) const THREAD_ONLY: When =
        When::Bits(0, THREAD | CLONE_PTRACE | CLONE_VFORK | CLONE_PARENT | CLONE_NEW, THREAD);
    /// Condition for fcntl: the command is F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC,
    /// F_ADD_SEALS or F_GET_SEALS.
    pub(in crate::process::sandbox) const FD_AND_SEALS: When =
        When::OneOf(1, &[1, 2, 3, 4, 1030, 1033, 1034]);
    /// Condition for prctl: the operation is PR_SET_NAME, or PR_TASK_PERF_EVENTS_ENABLE, which starts the switch
    /// records that the worker opened before it entered the sandbox.
    pub(in crate::process::sandbox) const NAME_AND_RECORDS: When = When::OneOf(0, &[15, 32]);
    /// Condition for prctl of a process that will enter the next role: the operation is PR_SET_NAME,
    /// PR_GET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS or PR_CAP_AMBIENT. Without
    /// capabilities none of them adds a right. PR_SET_DUMPABLE is forbidden: with it, a thread of a plug-in's
    /// constructor could make the process dumpable again at any time until the next filter.
    pub(in crate::process::sandbox) const NAME_AND_LOCKS: When = When::OneOf(0, &[15, 3, 23, 24, 38, 47]);
    /// Condition for futex: without FUTEX_PRIVATE_FLAG, on words that other processes may map, only the
    /// operations of the rings: FUTEX_WAIT, FUTEX_WAKE, and FUTEX_WAIT_BITSET and FUTEX_WAKE_BITSET with or
    /// without FUTEX_CLOCK_REALTIME. Other operations could move a sleeping caller to a word on which no
    /// thread wakes it. With FUTEX_PRIVATE_FLAG every operation is allowed, because it affects no other
    /// process.
    pub(in crate::process::sandbox) const NO_SLEEPER_MOVED: When =
        When::BitOrOneOf(1, 0x80, &[0, 1, 9, 10, 0x109, 0x10a]);
    /// Condition for ioctl: the request is one that a V4L2 decoder's client makes.
    pub(in crate::process::sandbox) const OF_DECODING: When = When::OneOf(1, &crate::v4l2::OF_DECODING);
    /// Condition for sendto: there is no address, so the record goes to the socket's peer.
    pub(in crate::process::sandbox) const NO_ADDRESS: When = When::Null(4);
    const AF_INET: u32 = 2;
    const AF_INET6: u32 = 10;
    const STREAM: u32 = 1;
    const DGRAM: u32 = 2;
    const CLOEXEC: u32 = 0o2_000_000;
    const TCP: u32 = 6;
    const UDP: u32 = 17;
    /// Condition for socket: TCP or UDP over IPv4 or IPv6. The protocol is checked, because an address family has
    /// others (ICMP, SCTP, MPTCP).
    pub(in crate::process::sandbox) const INTERNET_SOCKET: When = When::AnyOf(&[
        &[(0, AF_INET), (1, STREAM), (2, 0)],
        &[(0, AF_INET), (1, STREAM), (2, TCP)],
        &[(0, AF_INET), (1, STREAM | CLOEXEC), (2, 0)],
        &[(0, AF_INET), (1, STREAM | CLOEXEC), (2, TCP)],
        &[(0, AF_INET), (1, DGRAM), (2, 0)],
        &[(0, AF_INET), (1, DGRAM), (2, UDP)],
        &[(0, AF_INET), (1, DGRAM | CLOEXEC), (2, 0)],
        &[(0, AF_INET), (1, DGRAM | CLOEXEC), (2, UDP)],
        &[(0, AF_INET6), (1, STREAM), (2, 0)],
        &[(0, AF_INET6), (1, STREAM), (2, TCP)],
        &[(0, AF_INET6), (1, STREAM | CLOEXEC), (2, 0)],
        &[(0, AF_INET6), (1, STREAM | CLOEXEC), (2, TCP)],
        &[(0, AF_INET6), (1, DGRAM), (2, 0)],
        &[(0, AF_INET6), (1, DGRAM), (2, UDP)],
        &[(0, AF_INET6), (1, DGRAM | CLOEXEC), (2, 0)],
        &[(0, AF_INET6), (1, DGRAM | CLOEXEC), (2, UDP)],
    ]);
    const SOL_SOCKET: u32 = 1;
    const IPPROTO_IP: u32 = 0;
    const IPPROTO_IPV6: u32 = 41;
    /// Condition for sendto of a worker that reaches the network: MSG_FASTOPEN is unset; an address is
    /// allowed. With MSG_FASTOPEN, the call connects by TCP, and Landlock does not check the port.
    pub(in crate::process::sandbox) const NO_FAST_OPEN: When = When::Bits(3, 0x2000_0000, 0);
    /// Condition for setsockopt and getsockopt, as level and option: SO_REUSEADDR, SO_ERROR, SO_SNDBUF, SO_RCVBUF;
    /// TCP_NODELAY; IP_TTL, IP_MULTICAST_TTL, IP_ADD_MEMBERSHIP and IP_DROP_MEMBERSHIP, the same with a source;
    /// IPV6_UNICAST_HOPS, IPV6_MULTICAST_HOPS, IPV6_ADD_MEMBERSHIP, IPV6_DROP_MEMBERSHIP. A filter (SO_ATTACH_BPF)
    /// cannot be attached.
    pub(in crate::process::sandbox) const STREAMING_OPTION: When = When::AnyOf(&[
        &[(1, SOL_SOCKET), (2, 2)],
        &[(1, SOL_SOCKET), (2, 4)],
        &[(1, SOL_SOCKET), (2, 7)],
        &[(1, SOL_SOCKET), (2, 8)],
        &[(1, TCP), (2, 1)],
        &[(1, IPPROTO_IP), (2, 2)],
        &[(1, IPPROTO_IP), (2, 33)],
        &[(1, IPPROTO_IP), (2, 35)],
        &[(1, IPPROTO_IP), (2, 36)],
        &[(1, IPPROTO_IP), (2, 39)],
        &[(1, IPPROTO_IP), (2, 40)],
        &[(1, IPPROTO_IPV6), (2, 16)],
        &[(1, IPPROTO_IPV6), (2, 18)],
        &[(1, IPPROTO_IPV6), (2, 20)],
        &[(1, IPPROTO_IPV6), (2, 21)],
    ]);
    /// Condition for prlimit64: the process is the caller itself. Without a capability, the caller can raise
    /// no hard limit.
    pub(in crate::process::sandbox) const OWN_LIMITS: When = When::OneOf(0, &[0]);
    /// Returns the condition for open and openat: the file is opened only for reading (O_WRONLY, O_RDWR,
    /// O_CREAT and O_TRUNC are unset). The flags are in argument `argument`. O_PATH is forbidden too, because
    /// Landlock does not check such an open, and the descriptor stays.
    pub(in crate::process::sandbox) const fn reading(argument: u8) -> When {
        const O_PATH: u32 = 0o1000_0000;
        When::Bits(argument, O_PATH | 0o1103, 0)
    }
}
