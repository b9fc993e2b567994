// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual network device (TUN): a program reads the packets that the kernel sends through it, and writes those that
//! the kernel receives from it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Largest name of a network device, with the 0 at its end (IFNAMSIZ).
const NAME_BYTES: usize = 16;

/// Makes the device `name` in the calling process's network namespace, which needs CAP_NET_ADMIN there. Each read of
/// the returned file is one IP packet, and so is each write. The device ends with the file, also if it has been
/// moved to another namespace.
///
/// # Errors
/// The name is too long or in use, there is no `/dev/net/tun`, or the process may not use it or make devices.
pub fn open_tun(name: &str) -> io::Result<File> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= NAME_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives during the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if made < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_cut_are_refused() {
        for name in ["", "sixteen-letters-"] {
            assert_eq!(open_tun(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
