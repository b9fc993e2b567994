// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words of the memory of another process, without a wait for a file system of that process.
//!
//! A page of its memory can belong to a file of FUSE whose daemon does not answer. A read of `/proc/PID/mem` then has no end, no
//! signal ends it, and it keeps the memory locked: neither can a probe be removed from the process. So only pages that are in
//! memory are read, which `/proc/PID/pagemap` tells without a wait. The process can still take a page away between the two, so a
//! child reads, which has no other descriptors, and this process waits for it with a limit.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::param::page_size;
use rustix::pipe::{PipeFlags, pipe_with};

use super::process_room::has_room_for;

/// Most words of one call: they fit in a pipe, so that the child never waits for this process.
const MOST_WORDS: usize = 1024;

/// Bytes of a word in the pipe: a number that is 1 if it was read, and the word.
const BYTES: usize = 16;

/// Bit of a page in pagemap (proc(5)) that is in memory.
const PRESENT: u64 = 1 << 63;

/// Reads the words of 8 bytes at `addresses` of the memory of `process`, at most the first 1024. A word is `None` if its page is
/// not in memory, or its address is no multiple of 8.
///
/// # Errors
/// `TimedOut` if the read takes longer than `limit`; `ResourceBusy` if there is no room for a child
/// ([`has_room_for`]); the process has ended or is another user's; there can be no child.
pub fn memory_words(process: u32, addresses: &[u64], limit: Duration) -> io::Result<Vec<Option<u64>>> {
    let deadline = Instant::now() + limit;
    let addresses = &addresses[..addresses.len().min(MOST_WORDS)];
    let pages = File::open(format!("/proc/{process}/pagemap"))?;
    let present: Vec<bool> = addresses.iter().map(|address| is_present(&pages, *address)).collect();
    if !present.contains(&true) {
        return Ok(vec![None; addresses.len()]);
    }
    let wanted: Vec<u64> = addresses.iter().zip(&present).filter(|(_, is)| **is).map(|(at, _)| *at).collect();
    let mut found = read_by_child(process, &wanted, deadline)?.into_iter();
    Ok(present.into_iter().map(|is_present| if is_present { found.next().flatten() } else { None }).collect())
}

/// True if the word at `address` is in a page that is in memory.
fn is_present(pages: &File, address: u64) -> bool {
    let mut entry = [0; 8];
    let at = (address / page_size() as u64).wrapping_mul(8);
    let is_read = address % 8 == 0 && pages.read_exact_at(&mut entry, at).is_ok();
    is_read && u64::from_ne_bytes(entry) & PRESENT != 0
}

/// Reads words as [`memory_words`], in a child.
fn read_by_child(process: u32, addresses: &[u64], deadline: Instant) -> io::Result<Vec<Option<u64>>> {
    if !has_room_for(1) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child makes only system calls, and ends by one.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: this is the child, which has both descriptors.
            unsafe { write_words(memory.as_raw_fd(), write.as_raw_fd(), addresses) }
        }
        child => child,
    };
    drop(write);
    let found = read_words(&mut File::from(read), addresses.len(), deadline);
    // A child that waits for a file system ends later: nobody else waits for it, and it goes with this process.
    // SAFETY: only this function waits for the child, once.
    unsafe { end_child(child, if found.is_ok() { 0 } else { libc::WNOHANG }) };
    found
}

/// Kills a child of this process, and waits for it as `flags` of waitpid(2) say.
///
/// # Safety
/// Nobody has waited for the child, so that the number is still its own.
pub(super) unsafe fn end_child(child: libc::pid_t, flags: libc::c_int) {
    // SAFETY: plain system calls. The kill has no effect on a child that has ended.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        while libc::waitpid(child, std::ptr::null_mut(), flags) == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// Waits until the other end of `from` has written something, or is closed.
///
/// # Errors
/// `TimedOut` behind the deadline; poll(2) failed.
pub(super) fn wait_for_answer(from: impl AsFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()));
        let left = left.map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the words from the child, which then ends.
fn read_words(from: &mut File, count: usize, deadline: Instant) -> io::Result<Vec<Option<u64>>> {
    let mut bytes = vec![0; count * BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        wait_for_answer(&*from, deadline)?;
        match from.read(&mut bytes[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    Ok(bytes.chunks_exact(BYTES).map(|bytes| (word(bytes) == 1).then(|| word(&bytes[8..]))).collect())
}

/// Writes the words at `addresses` of `memory` to `to`, and ends this process.
///
/// # Safety
/// This process is a child of [`libc::fork`] that has done nothing yet. Both descriptors are open.
unsafe fn write_words(memory: RawFd, to: RawFd, addresses: &[u64]) -> ! {
    // SAFETY: plain system calls; the buffers outlive them. Nothing here allocates, locks or returns.
    unsafe {
        // A child that never ends must keep none of the files of this process, above all no probes.
        if !close_others(memory, to) {
            libc::_exit(1);
        }
        for address in addresses {
            let mut word = [0u64; 2];
            let read = libc::pread(memory, (&raw mut word[1]).cast(), 8, *address as libc::off_t);
            word[0] = u64::from(read == 8);
            if libc::write(to, (&raw const word).cast(), BYTES) != BYTES as isize {
                libc::_exit(1);
            }
        }
        libc::_exit(0)
    }
}

/// Closes all descriptors of this process but `one` and `other`. Returns false if that fails.
///
/// # Safety
/// This process uses none of its other descriptors afterwards.
pub(super) unsafe fn close_others(one: RawFd, other: RawFd) -> bool {
    let (low, high) = (i64::from(one.min(other)), i64::from(one.max(other)));
    let ranges = [(0, low - 1), (low + 1, high - 1), (high + 1, i64::from(u32::MAX))];
    ranges.into_iter().filter(|(first, last)| first <= last).all(|(first, last)| {
        // SAFETY: a system call with numbers.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn words_are_those_of_the_memory() {
        let words: Vec<u64> = (0..2000).map(|n| n * n).collect();
        let mut addresses: Vec<u64> = words.iter().map(|word| std::ptr::from_ref(word) as u64).collect();
        addresses[1] = 8;
        addresses[2] = u64::MAX - 3;
        let found = memory_words(std::process::id(), &addresses, LIMIT).unwrap();
        assert_eq!(found.len(), MOST_WORDS);
        assert_eq!((found[0], found[1], found[2], found[1023]), (Some(0), None, None, Some(1023 * 1023)));
        assert_eq!(memory_words(std::process::id(), &[], LIMIT).unwrap(), []);
        // A page that was never touched.
        let bytes = vec![0u64; 1 << 20];
        let untouched = std::ptr::from_ref(&bytes[1 << 19]) as u64;
        assert_eq!(memory_words(std::process::id(), &[untouched], LIMIT).unwrap(), [None]);
        assert!(memory_words(u32::MAX, &[8], LIMIT).is_err());
    }

    #[test]
    fn a_read_that_takes_too_long_is_given_up() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let error = read_words(&mut File::from(read), 1, Instant::now() + Duration::from_millis(10));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(write);
    }
}
