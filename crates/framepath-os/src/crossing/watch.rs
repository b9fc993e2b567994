// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that watches a peer for its end and for missing progress.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::Socket;
use super::watcher_sleep::{WatchResult, WatcherSleep};
use crate::time::timespec;

/// Owner of the thread that [`watch`] starts. Dropping the watcher ends the connection for both sides, and
/// waits until the thread has ended.
#[derive(Debug)]
pub struct Watcher {
    socket: Arc<Socket>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State that a [`Watcher`] shares with its thread. The watcher is *quiet* while the word in `quiet` is 1:
/// the thread then sleeps without a limit.
#[derive(Debug)]
struct Shared {
    quiet: WatcherSleep,
    /// Eventfd by which [`Watcher::notify`] wakes the watcher's thread while the watcher is quiet.
    stirred: OwnedFd,
}

/// Watches the peer of `socket` in a new thread. The thread calls `look` every `period`, the first time after
/// one period. If `look` returns [`WatchResult::Quiet`], the thread calls `look` again immediately; if the
/// result is `Quiet` again, the thread makes no more calls until [`Watcher::notify`], and then continues every
/// `period`. The thread calls `gone` once, and ends, when the connection has ended (dropping the watcher ends
/// it, too) or poll(2) fails.
///
/// # Errors
/// The thread or event descriptor could not be made.
pub fn watch(
    socket: Arc<Socket>,
    period: Duration,
    mut look: impl FnMut() -> WatchResult + Send + 'static,
    gone: impl FnOnce() + Send + 'static,
) -> io::Result<Watcher> {
    let stirred = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let shared = Arc::new(Shared { quiet: WatcherSleep::new(), stirred });
    let (watched, inside) = (socket.clone(), shared.clone());
    let thread = std::thread::Builder::new().name("fp-watch".to_owned()).spawn(move || {
        loop {
            match inside.wait(&watched, period) {
                Woken::Gone => break,
                Woken::Stirred => {}
                Woken::Period => inside.quiet.check_and_sleep(&mut look),
            }
        }
        gone();
    })?;
    Ok(Watcher { socket, shared, thread: Some(thread) })
}

/// Calls `gone` once, from a new thread, when the connection of `socket` has ended
/// ([`Socket::has_ended`]), or poll(2) fails. For a side that watches nothing else and may not make an event
/// descriptor. The caller has no handle to end the thread earlier.
///
/// # Errors
/// The thread could not be started.
pub fn at_end(socket: Arc<Socket>, gone: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("fp-watch".to_owned());
    thread.spawn(move || {
        while let Err(Errno::INTR) | Ok(0) = poll(&mut [PollFd::new(&*socket, PollFlags::empty())], None) {}
        gone();
    })?;
    Ok(())
}

/// Reason why the thread of a [`Watcher`] woke from its wait for the end of the connection.
enum Woken {
    /// The connection has ended, or poll(2) failed.
    Gone,
    /// Another thread called [`Watcher::notify`], or a signal arrived.
    Stirred,
    /// The period has passed: it is time to call `look`.
    Period,
}

impl Shared {
    /// Sleeps on the watcher's thread for at most `period`, or without a limit if the watcher is quiet.
    /// Returns the reason of the wake-up. After a [`Watcher::notify`], the watcher is not quiet any more.
    fn wait(&self, socket: &Socket, period: Duration) -> Woken {
        let limit = timespec(period);
        let quiet = self.quiet.is_settled();
        // Requests no event of the socket: poll(2) always reports the end.
        let mut fds = [PollFd::new(socket, PollFlags::empty()), PollFd::new(&self.stirred, PollFlags::IN)];
        match poll(&mut fds, if quiet { None } else { Some(&limit) }) {
            Ok(0) => Woken::Period,
            Err(Errno::INTR) => Woken::Stirred,
            Ok(_) if fds[0].revents().is_empty() => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.stirred, &mut count);
                self.quiet.wake_up();
                Woken::Stirred
            }
            Ok(_) | Err(_) => Woken::Gone,
        }
    }
}

impl Watcher {
    /// Makes the thread of the watcher call `look` every period again, the first time after one period, if
    /// the watcher is quiet: `look` returned [`WatchResult::Quiet`] twice. Call this after the change that
    /// `look` has to see. Makes no system call if the watcher is not quiet.
    pub fn notify(&self) {
        if self.shared.quiet.must_wake() {
            // Fails only after 2^64 notifications.
            let _ = rustix::io::write(self.shared.stirred.as_fd(), &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.socket.shut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn the_end_of_a_peer_is_seen_once() {
        for closes_itself in [false, true] {
            let (a, b) = Socket::pair().unwrap();
            let (sender, gone) = mpsc::channel();
            let watcher =
                watch(Arc::new(a), LONG, || WatchResult::Again, move || sender.send(()).unwrap()).unwrap();
            assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Empty));
            if closes_itself {
                drop(watcher);
            } else {
                drop(b);
            }
            assert_eq!(gone.recv(), Ok(()));
            assert!(gone.recv().is_err());
        }
    }

    #[test]
    fn a_quiet_watcher_looks_again_when_stirred() {
        let (a, _b) = Socket::pair().unwrap();
        let (sender, looks) = mpsc::channel();
        let look = move || {
            sender.send(()).unwrap();
            WatchResult::Quiet
        };
        let watcher = watch(Arc::new(a), Duration::from_millis(1), look, || ()).unwrap();
        // Two calls of `look`: before and after the watcher goes quiet.
        looks.recv().unwrap();
        looks.recv().unwrap();
        assert!(looks.recv_timeout(Duration::from_millis(20)).is_err());
        watcher.notify();
        looks.recv().unwrap();
    }
}
