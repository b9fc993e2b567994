// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workers between their start and their stream: those started ahead, and those that a stream waits for.
//!
//! The spawner of a program and the service each have such a pool of workers.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use framepath_model::wire::Message;
use framepath_os::crossing::Socket;
use framepath_os::process::sandbox::Layers;
use framepath_os::time::now_ns;

use super::HostError;
use super::message_io::{recv, recv_within};
use super::policy::LOADING;

/// A worker without a stream; `P` is the parent's handle on its process.
#[derive(Debug)]
pub struct Spare<P> {
    /// The parent's handle on the worker's process.
    pub process: P,
    /// Socket to the worker.
    pub socket: Socket,
    /// Path of the started program, for errors; empty for a worker that a zygote has forked.
    pub program: PathBuf,
    /// Layers of the worker's sandbox. Until the worker is ready, only the layers that the parent made; then
    /// also those that the worker has reported.
    pub layers: Layers,
    /// CLOCK_MONOTONIC time by which the worker has to be ready, nanoseconds; `None` when it is ready.
    until_ns: Option<u64>,
}

impl<P> Spare<P> {
    /// Makes the entry of a worker that was just started and is loading.
    pub fn new(process: P, socket: Socket, program: PathBuf, layers: Layers) -> Spare<P> {
        let until_ns = Some(now_ns() + LOADING.as_nanos() as u64);
        Spare { process, socket, program, layers, until_ns }
    }

    /// Returns true once the worker has reported that it is inside the sandbox.
    pub fn is_ready(&self) -> bool {
        self.until_ns.is_none()
    }

    /// Returns true unless a ready worker has ended, or has sent a message that nobody asked for.
    fn is_alive(&self) -> bool {
        self.socket.readable_within(Duration::ZERO).is_ok_and(|is_readable| !is_readable)
    }

    /// Waits, at most 20 s, for the worker's message that it is inside the sandbox. Returns at once if the
    /// worker is ready.
    ///
    /// # Errors
    /// The worker reported an error, ended, took too long or sent an invalid or unexpected message; or the
    /// socket failed.
    pub fn wait(&mut self) -> Result<(), HostError> {
        if self.is_ready() { Ok(()) } else { self.on_message(recv_within(&self.socket, LOADING)) }
    }

    /// Receives the worker's message that it is inside the sandbox. Waits without a time limit, so call this
    /// function when the worker's socket is readable.
    ///
    /// # Errors
    /// As [`Spare::wait`], except that no wait is too long.
    pub fn recv(&mut self) -> Result<(), HostError> {
        self.on_message(recv(&self.socket))
    }

    fn on_message(
        &mut self,
        message: Result<Option<(Message, Option<std::os::fd::OwnedFd>)>, HostError>,
    ) -> Result<(), HostError> {
        match message.map_err(|error| error.with_worker(&self.program))? {
            Some((Message::Ready { layers }, _)) => {
                self.layers = self.layers.and(Layers::from_bits(layers).unwrap_or_default());
                self.until_ns = None;
                Ok(())
            }
            Some((Message::Refused { text }, _)) => Err(HostError::Refused { text }),
            Some(_) => {
                Err(HostError::NotOpened { what: "start worker: the worker sent an unexpected message" })
            }
            None => Err(HostError::NeverReady { program: self.program.display().to_string() }),
        }
    }
}

/// Workers of one kind that have no stream yet, ready or still loading, oldest first.
#[derive(Debug)]
pub struct Spares<P>(VecDeque<Spare<P>>);

impl<P> Default for Spares<P> {
    fn default() -> Spares<P> {
        Spares(VecDeque::new())
    }
}

impl<P> Spares<P> {
    /// Returns the number of workers, ready or loading.
    #[allow(clippy::len_without_is_empty, reason = "no caller needs is_empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the workers that are ready.
    pub fn ready(&self) -> impl Iterator<Item = &Spare<P>> {
        self.0.iter().filter(|spare| spare.is_ready())
    }

    /// Returns the workers that are loading, each with the worker's socket, to wait for by poll(2).
    pub fn loading(&self) -> impl Iterator<Item = (&Spare<P>, BorrowedFd<'_>)> {
        self.0.iter().filter(|spare| !spare.is_ready()).map(|spare| (spare, spare.socket.as_fd()))
    }

    /// Returns all workers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Spare<P>> {
        self.0.iter()
    }

    /// Makes workers until there are `count` workers, ready or loading.
    ///
    /// # Errors
    /// The first error that `make` returns. The workers made before stay.
    pub fn fill(
        &mut self,
        count: usize,
        mut make: impl FnMut() -> Result<Spare<P>, HostError>,
    ) -> Result<(), HostError> {
        while self.len() < count {
            self.0.push_back(make()?);
        }
        Ok(())
    }

    /// Takes the oldest worker that becomes ready and lives, after waiting at most 20 s for each. Drops the
    /// older workers; `None` if there is no such worker.
    pub fn take_waiting(&mut self) -> Option<Spare<P>> {
        std::iter::from_fn(|| self.0.pop_front())
            .find_map(|mut spare| (spare.wait().is_ok() && spare.is_alive()).then_some(spare))
    }

    /// Takes the oldest worker for which `matches` is true; `None` if there is none.
    pub fn take(&mut self, matches: impl Fn(&Spare<P>) -> bool) -> Option<Spare<P>> {
        let at = self.0.iter().position(matches)?;
        self.0.remove(at)
    }

    /// Returns the oldest worker for which `matches` is true; `None` if there is none.
    pub fn get_mut(&mut self, matches: impl Fn(&Spare<P>) -> bool) -> Option<&mut Spare<P>> {
        self.0.iter_mut().find(|spare| matches(spare))
    }

    /// Takes one worker if there are more than `most`: the oldest that is loading, else the oldest. `None` if
    /// there are not more.
    pub fn take_surplus(&mut self, most: usize) -> Option<Spare<P>> {
        if self.len() <= most {
            return None;
        }
        self.take(|spare| !spare.is_ready()).or_else(|| self.0.pop_front())
    }

    /// Takes the oldest worker that is not ready although its deadline is not after `now_ns`
    /// (CLOCK_MONOTONIC); `None` if there is none.
    pub fn take_late(&mut self, now_ns: u64) -> Option<Spare<P>> {
        self.take(|spare| spare.until_ns.is_some_and(|until| until <= now_ns))
    }

    /// Returns the earliest deadline of a loading worker, CLOCK_MONOTONIC nanoseconds; `None` if no worker
    /// is loading.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.0.iter().filter_map(|spare| spare.until_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::host::message_io::send;

    fn spare(number: u32) -> (Spare<u32>, Arc<Socket>) {
        let (ours, theirs) = Socket::pair().unwrap();
        (Spare::new(number, ours, PathBuf::new(), Layers::default()), Arc::new(theirs))
    }

    fn pool(count: u32) -> (Spares<u32>, Vec<Arc<Socket>>) {
        let (mut spares, mut workers, mut number) = (Spares::default(), Vec::new(), 0);
        let make = || {
            let (spare, worker) = spare(number);
            number += 1;
            workers.push(worker);
            Ok(spare)
        };
        spares.fill(count as usize, make).unwrap();
        (spares, workers)
    }

    #[test]
    fn the_oldest_worker_that_becomes_ready_is_taken() {
        let (mut spares, mut workers) = pool(3);
        send(&workers[1], &Message::Ready { layers: 0 }, None).unwrap();
        send(&workers[2], &Message::Ready { layers: 0 }, None).unwrap();
        // The oldest worker dies.
        workers.remove(0);
        assert_eq!(spares.take_waiting().map(|spare| spare.process), Some(1));
        assert_eq!(spares.len(), 1);
    }

    #[test]
    fn a_ready_worker_that_has_ended_is_not_taken() {
        let (mut spares, mut workers) = pool(2);
        send(&workers[0], &Message::Ready { layers: 0 }, None).unwrap();
        send(&workers[1], &Message::Ready { layers: 0 }, None).unwrap();
        spares.get_mut(|spare| spare.process == 0).unwrap().recv().unwrap();
        workers.remove(0);
        assert_eq!(spares.take_waiting().map(|spare| spare.process), Some(1));
    }

    #[test]
    fn loading_spares_are_taken_before_ready_ones() {
        let (mut spares, workers) = pool(3);
        send(&workers[0], &Message::Ready { layers: 0 }, None).unwrap();
        spares.get_mut(|spare| spare.process == 0).unwrap().recv().unwrap();
        assert_eq!((spares.ready().count(), spares.loading().count()), (1, 2));
        let gone: Vec<u32> =
            std::iter::from_fn(|| spares.take_surplus(0)).map(|spare| spare.process).collect();
        assert_eq!(gone, [1, 2, 0]);
    }

    #[test]
    fn a_worker_that_loads_for_too_long_is_late() {
        let (mut spares, workers) = pool(2);
        send(&workers[0], &Message::Ready { layers: 0 }, None).unwrap();
        spares.get_mut(|spare| spare.process == 0).unwrap().recv().unwrap();
        let deadline = spares.deadline_ns().unwrap();
        assert!(spares.take_late(deadline - 1).is_none());
        assert_eq!(spares.take_late(deadline).map(|spare| spare.process), Some(1));
        assert!(spares.take_late(u64::MAX).is_none());
    }
}
