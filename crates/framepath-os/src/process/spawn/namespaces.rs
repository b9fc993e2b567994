// SPDX-License-Identifier: MIT OR Apache-2.0
//! Namespaces of a child: as many as the kernel allows this user.

use std::io;

use super::{Made, clone_child};

/// Kinds of namespaces in which a worker is separate from the rest of the machine. Each is the worker's
/// own, except that the workers of one zygote share their pid namespace, and share the zygote's other
/// namespaces if the kernel denies a worker namespaces of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// True for a separate user namespace: separate users and capabilities.
    pub user: bool,
    /// True for a separate pid namespace: processes outside of it have no id in the worker, so the worker
    /// cannot signal or trace them.
    pub pid: bool,
    /// True for a separate network namespace, which reaches no network; even its loopback device is down.
    pub net: bool,
    /// True for a separate IPC namespace: separate System V IPC objects (shared memory, semaphores, message
    /// queues) and POSIX message queues.
    pub ipc: bool,
    /// True for a separate UTS namespace: a separate host name.
    pub uts: bool,
}

impl Namespaces {
    /// All kinds except the user namespace.
    const OTHERS: Namespaces = Namespaces { user: false, pid: true, net: true, ipc: true, uts: true };

    /// Sets of namespaces in the order in which they are tried; the last one is empty. Without a user
    /// namespace only root may make the others; root in a chroot may make all except a user namespace.
    pub(super) const CANDIDATES: [Namespaces; 5] = [
        Namespaces { user: true, ..Namespaces::OTHERS },
        Namespaces { user: true, net: false, ..Namespaces::OTHERS },
        Namespaces::OTHERS,
        Namespaces { user: true, pid: false, net: false, ipc: false, uts: false },
        Namespaces { user: false, pid: false, net: false, ipc: false, uts: false },
    ];

    /// Returns the CLONE_NEW* flags of these kinds for clone(2) and unshare(2).
    pub(super) fn flags(self) -> libc::c_int {
        [
            (self.user, libc::CLONE_NEWUSER),
            (self.pid, libc::CLONE_NEWPID),
            (self.net, libc::CLONE_NEWNET),
            (self.ipc, libc::CLONE_NEWIPC),
            (self.uts, libc::CLONE_NEWUTS),
        ]
        .into_iter()
        .fold(0, |flags, (requested, flag)| if requested { flags | flag } else { flags })
    }
}

/// Makes a child process that runs `child` in the namespaces of this process.
pub(super) fn clone_with_none(child: impl FnOnce()) -> io::Result<Made> {
    let (pid, pidfd) = clone_child(0, child)?;
    Ok(Made { pid, pidfd, namespaces: Namespaces::default() })
}

/// Makes a child process that runs `child` in the first set of [`Namespaces::CANDIDATES`] that
/// the kernel allows. If `net` is false, the child stays in the network namespace of this process. Fails
/// with the first error that is not a refusal ([`is_refusal`]), such as ENOMEM.
pub(super) fn clone_with_most(net: bool, child: impl Fn()) -> io::Result<Made> {
    let mut refusal = io::Error::from_raw_os_error(libc::EPERM);
    for candidate in Namespaces::CANDIDATES {
        let namespaces = Namespaces { net: candidate.net && net, ..candidate };
        match clone_child(namespaces.flags(), &child) {
            Ok((pid, pidfd)) => return Ok(Made { pid, pidfd, namespaces }),
            Err(error) if is_refusal(&error) => refusal = error,
            Err(error) => return Err(error),
        }
    }
    Err(refusal)
}

/// Returns true if `error` is EPERM, EACCES, EINVAL, ENOSPC or EUSERS: this user, this kernel or a limit does
/// not allow a namespace.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::EINVAL | libc::ENOSPC | libc::EUSERS)
    )
}
