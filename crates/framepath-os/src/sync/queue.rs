// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounded queue between two threads: a ring, whose consumer sleeps while the ring is empty, and whose
//! producer sleeps while the ring is full.
//!
//! A side makes system calls only to sleep, or to wake the other side. A side sets a flag in the ring
//! before it sleeps. The other side makes the system call that wakes only if this flag is set:
//!
//! ```text
//! sleeper: flag = 1; barrier; look at the ring again; futex wait
//! waker:   change the ring; barrier; look at flag; futex wake
//! ```
//!
//! At least one of the two sides sees the write of the other side (see `barrier`). The consumer wakes a
//! producer that sleeps because the queue is full when half of the queue is free, or at the latest when
//! the queue is empty. So a slow consumer makes one wake-up for each half queue, and not one for each
//! value.

// over 600 lines because the file also has the model of the sleeping handshake.

use std::time::Duration;

use crate::measure::meter;
use crate::sync::adaptive_poll::AdaptivePoll;
use crate::sync::atomics::{AtomicU32, Ordering};
use crate::sync::barrier::Barrier;
use crate::sync::futex;
use crate::sync::ring::{self, Consumer, Producer, Reason, RingState, SendError};
use crate::time::now_ns;

#[cfg(loom)]
use loom::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc;

/// Policy of [`Sender::send`] when the queue is full, with the names and meanings of GStreamer's `leaky`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaky {
    /// The sender waits until there is room or the receiver is gone.
    No,
    /// The new value does not enter the queue, and [`Sender::send`] returns it.
    Upstream,
    /// The oldest value is removed from the queue to make room, and [`Sender::send`] returns it.
    Downstream,
}

/// Result of a successful [`Sender::send`].
#[derive(Debug, PartialEq, Eq)]
pub enum Sent<T> {
    /// The value is in the queue.
    Queued,
    /// The queue was full and the new value was rejected (`Upstream`).
    DroppedNew(T),
    /// The value is in the queue; the oldest value was removed to make room (`Downstream`).
    DroppedOldest(T),
}

/// Period in which the consumer waited for a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Time at which the consumer found the queue empty, CLOCK_MONOTONIC nanoseconds.
    pub since_ns: u64,
    /// Time at which the consumer was running again and found a value, CLOCK_MONOTONIC nanoseconds.
    pub until_ns: u64,
}

/// Duration of the sleep between two checks of the ring by a side that cannot rely on a wake-up, because
/// its barrier failed.
const UNWOKEN_NAP: Duration = Duration::from_micros(200);

/// Makes an empty queue with room for `depth` values (0 counts as 1). `leaky` is the policy when the
/// queue is full.
pub fn queue<T: Send>(depth: usize, leaky: Leaky) -> (Sender<T>, Receiver<T>) {
    queue_with(depth, leaky, Barrier::choose())
}

fn queue_with<T: Send>(depth: usize, leaky: Leaky, barrier: Barrier) -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = ring::ring(depth, leaky == Leaky::Downstream);
    (
        Sender { producer, leaky, patience: AdaptivePoll::default(), barrier },
        Receiver {
            consumer,
            patience: AdaptivePoll::default(),
            barrier,
            timed: false,
            idle: Idle::default(),
            longest_sleep: None,
        },
    )
}

/// Writing end of a queue. Used by one thread at a time. When it is dropped, the receiver takes the
/// values that are left, and then sees the end.
pub struct Sender<T: Send> {
    producer: Producer<T>,
    leaky: Leaky,
    patience: AdaptivePoll,
    barrier: Barrier,
}

impl<T: Send> Sender<T> {
    /// Adds `value`. If the queue is full, follows the queue's [`Leaky`] policy. Wakes the receiver if it
    /// sleeps. The meter of the calling thread records the time of a sleep as blocked.
    ///
    /// # Errors
    /// The receiver is gone; the error contains `value`. If the receiver goes during the call, an oldest
    /// value that the policy `Downstream` has already removed is dropped.
    #[inline(always)]
    pub fn send(&mut self, value: T) -> Result<Sent<T>, SendError<T>> {
        match self.producer.push(value) {
            Ok(()) => {
                self.wake_consumer();
                Ok(Sent::Queued)
            }
            Err(SendError { value, reason: Reason::Full }) => self.send_full(value),
            Err(closed) => Err(closed),
        }
    }

    /// Adds `value`. If the queue is full, waits for room, whatever the queue's [`Leaky`] policy is.
    ///
    /// # Errors
    /// The receiver is gone; the error contains `value`.
    pub fn send_waiting(&mut self, mut value: T) -> Result<(), SendError<T>> {
        loop {
            match self.producer.push(value) {
                Ok(()) => {
                    self.wake_consumer();
                    return Ok(());
                }
                Err(SendError { value: back, reason: Reason::Full }) => value = back,
                Err(closed) => return Err(closed),
            }
            self.wait_for_space();
        }
    }

    #[cold]
    fn send_full(&mut self, mut value: T) -> Result<Sent<T>, SendError<T>> {
        let mut oldest = None;
        loop {
            match self.leaky {
                Leaky::Upstream => return Ok(Sent::DroppedNew(value)),
                // If `drop_oldest` returns nothing, the consumer has just made room.
                Leaky::Downstream => oldest = oldest.or_else(|| self.producer.drop_oldest()),
                Leaky::No => self.wait_for_space(),
            }
            match self.producer.push(value) {
                Ok(()) => {
                    self.wake_consumer();
                    return Ok(oldest.map_or(Sent::Queued, Sent::DroppedOldest));
                }
                Err(SendError { value: back, reason: Reason::Full }) => value = back,
                Err(closed) => return Err(closed),
            }
        }
    }

    fn wait_for_space(&mut self) {
        let ring = &self.producer.ring;
        let low = ring.depth() / 2;
        let producer = &self.producer;
        let has_room = || producer.len() <= low || producer.consumer_gone();
        if self.patience.spin(has_room) {
            return;
        }
        let full = || producer.len() >= ring.depth() && !producer.consumer_gone();
        let barrier = self.barrier;
        self.patience.sleep(|| meter::blocked(|| sleep_while(full, &ring.producer_sleeps.0, barrier, None)));
    }

    /// Returns the number of values in the queue. The receiver may take values at any time, so the real
    /// number may be smaller.
    pub fn len(&self) -> usize {
        self.producer.len()
    }

    /// Returns true if no value is in the queue.
    pub fn is_empty(&self) -> bool {
        self.producer.is_empty()
    }

    #[inline]
    fn wake_consumer(&self) {
        self.barrier.before_look();
        wake(&self.producer.ring.consumer_sleeps.0);
        self.barrier.may_land();
    }
}

impl<T: Send> Drop for Sender<T> {
    fn drop(&mut self) {
        self.producer.close();
        self.wake_consumer();
    }
}

/// Result of [`Receiver::recv_unless`].
#[derive(Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// The oldest value, taken out of the queue.
    Value(T),
    /// The sender is gone and all values were taken.
    Closed,
    /// The queue is empty, the sender is not gone, and `news` of [`Receiver::recv_unless`] returned true.
    News,
}

/// Handle by which any thread wakes the thread that waits in [`Receiver::recv_unless`].
pub struct Waker<T: Send> {
    ring: Arc<RingState<T>>,
    barrier: Barrier,
}

impl<T: Send> Waker<T> {
    /// Makes the thread that waits in [`Receiver::recv_unless`] call its `news` function again. The caller
    /// makes `news` true before this call. Makes a system call only if that thread sleeps or is about to
    /// sleep.
    pub fn wake(&self) {
        self.barrier.before_look();
        wake(&self.ring.consumer_sleeps.0);
        self.barrier.may_land();
    }
}

/// Reading end of a queue. Used by one thread at a time. When it is dropped, the values that are left
/// in the queue are dropped, and later sends fail.
pub struct Receiver<T: Send> {
    consumer: Consumer<T>,
    patience: AdaptivePoll,
    barrier: Barrier,
    timed: bool,
    idle: Idle,
    longest_sleep: Option<Duration>,
}

impl<T: Send> Receiver<T> {
    /// Sets the time after which [`Receiver::recv_unless`] calls its `news` function again while it waits, even
    /// if nothing has woken it. At first, and with `None`, there is no such time.
    pub fn set_longest_sleep(&mut self, longest: Option<Duration>) {
        self.longest_sleep = longest;
    }

    /// Turns the timestamps that [`Receiver::idle`] returns on or off; they are off at first.
    pub fn set_timed(&mut self, timed: bool) {
        self.timed = timed;
    }

    /// Returns the last period in which this receiver found the queue empty and then received a value, with
    /// timestamps on; zeros if there was none. A wait that ends without a value does not change it.
    pub fn idle(&self) -> Idle {
        self.idle
    }

    /// Takes the oldest value; waits while there is none. Returns `None` if the sender is gone
    /// and all values were taken.
    #[inline(always)]
    pub fn recv(&mut self) -> Option<T> {
        match self.recv_unless(|| false) {
            Received::Value(value) => Some(value),
            Received::Closed | Received::News => None,
        }
    }

    /// Returns true if the queue is empty. The sender may add a value at any time.
    pub fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Returns a handle by which other threads wake this receiver.
    pub fn waker(&self) -> Waker<T> {
        Waker { ring: self.consumer.ring.clone(), barrier: self.barrier }
    }

    /// Takes a value as [`Receiver::recv`] does, but returns [`Received::News`] if the queue is empty, the
    /// sender is not gone, and `news` returns true. The thread that makes `news` true has to call
    /// [`Waker::wake`] afterwards, because this function may sleep.
    #[inline(always)]
    pub fn recv_unless(&mut self, news: impl Fn() -> bool) -> Received<T> {
        match self.consumer.pop() {
            Some(value) => {
                // Wakes a producer that sleeps because the queue was full: half of it is free now. A
                // producer that raises the flag only after this check is not lost: before it sleeps it
                // looks at the ring again, and `recv_empty` wakes it when the queue is empty.
                if self.consumer.known() == self.consumer.ring.depth() / 2 {
                    self.wake_producer();
                }
                Received::Value(value)
            }
            None => self.recv_empty(news),
        }
    }

    #[cold]
    fn recv_empty(&mut self, news: impl Fn() -> bool) -> Received<T> {
        let since_ns = if self.timed { now_ns() } else { 0 };
        loop {
            self.wake_producer();
            let gone = self.consumer.producer_gone();
            if let Some(value) = self.consumer.pop() {
                if self.timed {
                    self.idle = Idle { since_ns, until_ns: now_ns() };
                }
                return Received::Value(value);
            }
            if gone {
                return Received::Closed;
            }
            if news() {
                return Received::News;
            }
            self.wait_for_value(&news);
        }
    }

    fn wait_for_value(&mut self, news: impl Fn() -> bool) {
        let consumer = &self.consumer;
        let ready = || !consumer.is_empty() || consumer.producer_gone() || news();
        if self.patience.spin(ready) {
            return;
        }
        let ring = &consumer.ring;
        let barrier = self.barrier;
        let longest = self.longest_sleep;
        let asleep = || sleep_while(|| !ready(), &ring.consumer_sleeps.0, barrier, longest);
        self.patience.sleep(|| meter::blocked(asleep));
    }

    fn wake_producer(&self) {
        self.barrier.before_look();
        wake(&self.consumer.ring.producer_sleeps.0);
        self.barrier.may_land();
    }
}

impl<T: Send> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.consumer.close();
        self.wake_producer();
        // Drops the remaining values now, which returns frames to their pool. The owner of the pool may
        // wait for one of these frames, and would not notice that the receiver is gone.
        while self.consumer.pop().is_some() {}
    }
}

/// Sets `flag` to 1 and sleeps on it until the other side sets it to 0 and wakes this thread. Does not
/// sleep if `idle` returns false after the flag was set. May return early, and does after `longest`. If the
/// barrier failed, sleeps for [`UNWOKEN_NAP`] instead, whatever the flag is. Sets the flag to 0 at the end.
fn sleep_while(idle: impl Fn() -> bool, flag: &AtomicU32, barrier: Barrier, longest: Option<Duration>) {
    flag.store(1, Ordering::Relaxed);
    let will_be_woken = barrier.before_sleep();
    if idle() {
        if will_be_woken {
            #[cfg(loom)]
            while barrier == Barrier::Asymmetric && flag.load(Ordering::Relaxed) == 1 {
                // A thread that is switched out has executed a barrier.
                barrier.may_land();
                loom::thread::yield_now();
            }
            match longest {
                Some(longest) => futex::wait_for(flag, 1, longest),
                None => futex::wait(flag, 1),
            }
        } else {
            std::thread::sleep(UNWOKEN_NAP);
        }
    }
    flag.store(0, Ordering::Relaxed);
}

/// Sets the word `sleeps` to 0 and wakes the side of the queue that sleeps on this word. Does nothing if the
/// word is 0.
#[inline]
fn wake(sleeps: &AtomicU32) {
    if sleeps.load(Ordering::Relaxed) != 0 {
        sleeps.store(0, Ordering::Relaxed);
        futex::wake_one(sleeps);
    }
}

const _: () = {
    // The ring behind both ends must be usable from both threads.
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<RingState<u8>>();
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_in_order_for_every_depth() {
        for depth in [1, 2, 3, 16, 200] {
            let (mut tx, mut rx) = queue(depth, Leaky::No);
            let sender = std::thread::spawn(move || {
                for n in 0..20_000u32 {
                    assert_eq!(tx.send(n), Ok(Sent::Queued));
                }
            });
            for n in 0..20_000 {
                assert_eq!(rx.recv(), Some(n));
            }
            assert_eq!(rx.recv(), None);
            sender.join().unwrap();
        }
    }

    #[test]
    fn slow_ends_wake_each_other() {
        let pause = || std::thread::sleep(Duration::from_micros(300));
        for slow_sender in [true, false] {
            let (mut tx, mut rx) = queue(4, Leaky::No);
            let sender = std::thread::spawn(move || {
                for n in 0..100u32 {
                    if slow_sender {
                        pause();
                    }
                    tx.send(n).unwrap();
                }
            });
            let mut got = Vec::new();
            while let Some(n) = rx.recv() {
                got.push(n);
                if !slow_sender {
                    pause();
                }
            }
            sender.join().unwrap();
            assert_eq!(got, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn leaky_upstream_keeps_the_old() {
        let (mut tx, mut rx) = queue(2, Leaky::Upstream);
        let outcomes: Vec<_> = (0..4).map(|n| tx.send(n).unwrap()).collect();
        assert_eq!(outcomes, [Sent::Queued, Sent::Queued, Sent::DroppedNew(2), Sent::DroppedNew(3)]);
        drop(tx);
        assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Some(0), Some(1), None));
    }

    #[test]
    fn leaky_downstream_keeps_the_new() {
        let (mut tx, mut rx) = queue(2, Leaky::Downstream);
        let outcomes: Vec<_> = (0..4).map(|n| tx.send(n).unwrap()).collect();
        assert_eq!(outcomes, [Sent::Queued, Sent::Queued, Sent::DroppedOldest(0), Sent::DroppedOldest(1)]);
        drop(tx);
        assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Some(2), Some(3), None));
    }

    #[test]
    fn leaking_loses_nothing_twice_and_keeps_order() {
        let (mut tx, mut rx) = queue(3, Leaky::Downstream);
        let sender = std::thread::spawn(move || {
            let mut dropped = 0;
            for n in 0..50_000u32 {
                dropped += u32::from(matches!(tx.send(n).unwrap(), Sent::DroppedOldest(_)));
            }
            dropped
        });
        let got: Vec<_> = std::iter::from_fn(|| rx.recv()).collect();
        assert!(got.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(got.len() as u32 + sender.join().unwrap(), 50_000);
    }

    #[test]
    fn a_gone_receiver_gives_the_value_back_and_frees_the_sleeper() {
        let (mut tx, rx) = queue(1, Leaky::No);
        tx.send(1).unwrap();
        let sender = std::thread::spawn(move || tx.send(2));
        std::thread::sleep(Duration::from_millis(5));
        drop(rx);
        let refused = sender.join().unwrap().unwrap_err();
        assert_eq!(refused, SendError { value: 2, reason: Reason::Closed });
    }

    #[test]
    fn news_that_wake_nobody_are_seen_after_the_longest_sleep() {
        let (_tx, mut rx) = queue::<u32>(2, Leaky::No);
        rx.set_longest_sleep(Some(Duration::from_millis(5)));
        // Longer than the receiver polls before it sleeps.
        let begin = std::time::Instant::now();
        assert_eq!(rx.recv_unless(|| begin.elapsed() > Duration::from_millis(50)), Received::News);
    }

    #[test]
    fn news_wake_a_receiver_of_an_empty_queue_and_take_nothing() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let (mut tx, mut rx) = queue(2, Leaky::No);
        let news = Arc::new(AtomicBool::new(false));
        let waker = rx.waker();
        let (results, received) = std::sync::mpsc::channel();
        let receiver = std::thread::spawn({
            let news = news.clone();
            move || {
                results.send(rx.recv_unless(|| news.load(Ordering::Relaxed))).unwrap();
                // A value in the queue comes before news.
                while rx.is_empty() {
                    std::thread::yield_now();
                }
                results.send(rx.recv_unless(|| true)).unwrap();
                results.send(rx.recv_unless(|| false)).unwrap();
            }
        });
        let next = || received.recv_timeout(Duration::from_secs(60)).unwrap();
        news.store(true, Ordering::Relaxed);
        waker.wake();
        assert_eq!(next(), Received::News);
        tx.send_waiting(1).unwrap();
        assert_eq!(next(), Received::Value(1));
        drop(tx);
        assert_eq!(next(), Received::Closed);
        receiver.join().unwrap();
    }

    #[test]
    fn a_leaking_queue_waits_where_it_is_asked_to() {
        for leaky in [Leaky::Upstream, Leaky::Downstream] {
            let (mut tx, mut rx) = queue(1, leaky);
            tx.send(0u32).unwrap();
            let sender = std::thread::spawn(move || tx.send_waiting(1));
            assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Some(0), Some(1), None), "{leaky:?}");
            assert_eq!(sender.join().unwrap(), Ok(()));
        }
    }

    #[test]
    fn a_gone_receiver_lets_go_of_what_it_did_not_take() {
        let (mut tx, rx) = queue(4, Leaky::No);
        let value = std::sync::Arc::new(());
        for _ in 0..3 {
            tx.send(value.clone()).unwrap();
        }
        drop(rx);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}

/// Model of the sleeping handshake: a lost wake-up ends the model as a livelock.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::barrier::system;

    fn bounded() -> loom::model::Builder {
        bounded_by(3)
    }

    /// Makes a model with at most `most` preemptions; LOOM_MAX_PREEMPTIONS can lower this limit.
    fn bounded_by(most: usize) -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(model.preemption_bound.map_or(most, |requested| requested.min(most)));
        model
    }

    /// Checks a queue in which one thread sends `values` values and the other thread receives until the
    /// sender is gone: every value is received in order or reported as dropped, no thread sleeps forever,
    /// and the receiver sees the end.
    fn check(depth: usize, leaky: Leaky, values: u32) {
        check_with(bounded(), Barrier::Symmetric, depth, leaky, values);
    }

    fn check_with(model: loom::model::Builder, barrier: Barrier, depth: usize, leaky: Leaky, values: u32) {
        model.check(move || {
            let (mut tx, mut rx) = queue_with(depth, leaky, barrier);
            let sender = loom::thread::spawn(move || {
                system::run_as(0, move || {
                    (0..values).map(|n| u32::from(tx.send(n).unwrap() != Sent::Queued)).sum::<u32>()
                })
            });
            let got: Vec<_> = system::run_as(1, || std::iter::from_fn(|| rx.recv()).collect());
            assert!(got.windows(2).all(|w| w[0] < w[1]), "{got:?}");
            assert_eq!(got.len() as u32 + sender.join().unwrap(), values);
        });
    }

    #[test]
    fn a_barrier_of_the_sleeping_side_alone_wakes_both_ends() {
        check_with(bounded(), Barrier::Asymmetric, 1, Leaky::No, 2);
        check_with(bounded(), Barrier::Asymmetric, 2, Leaky::No, 3);
    }

    #[test]
    fn a_leaving_receiver_wakes_the_sender_with_its_barrier_alone() {
        bounded().check(|| {
            let (mut tx, rx) = queue_with(1, Leaky::No, Barrier::Asymmetric);
            let sender = loom::thread::spawn(move || {
                system::run_as(0, move || {
                    // Either send may be too late; neither may sleep forever.
                    let _ = tx.send(0u32);
                    tx.send(1)
                })
            });
            system::run_as(1, move || drop(rx));
            let refused = sender.join().unwrap();
            assert!(matches!(refused, Ok(Sent::Queued) | Err(SendError { reason: Reason::Closed, .. })));
        });
    }

    /// A consumer that saw the full queue wakes the producer when half of the queue is free. To prove
    /// this, the consumer here takes one of two values, and no more before the producer has sent the
    /// third. (A consumer that read the tail before the queue was full may not pass the half. Such a
    /// consumer wakes the producer when it finds no more values, as the other models show.)
    #[test]
    fn a_producer_is_woken_when_half_of_the_queue_is_free() {
        for barrier in [Barrier::Symmetric, Barrier::Asymmetric] {
            bounded().check(move || {
                let (mut tx, mut rx) = queue_with(2, Leaky::No, barrier);
                system::run_as(0, || (0..2u32).for_each(|n| drop(tx.send(n))));
                let sent = loom::sync::Arc::new(AtomicU32::new(0));
                let all = sent.clone();
                let sender = loom::thread::spawn(move || {
                    system::run_as(0, move || {
                        tx.send(2).unwrap();
                        all.store(1, Ordering::Release);
                    });
                });
                system::run_as(1, || {
                    assert_eq!(rx.recv(), Some(0));
                    while sent.load(Ordering::Acquire) == 0 {
                        barrier.may_land();
                        loom::thread::yield_now();
                    }
                    assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Some(1), Some(2), None));
                });
                sender.join().unwrap();
            });
        }
    }

    /// A stream longer than the queue ends with neither side asleep.
    #[test]
    fn a_stream_longer_than_the_queue_ends() {
        // More values than fit: the sender sleeps when the queue is full, and again after half of
        // the values.
        check_with(bounded_by(2), Barrier::Symmetric, 3, Leaky::No, 5);
        check_with(bounded_by(2), Barrier::Asymmetric, 3, Leaky::No, 5);
    }

    #[test]
    fn ends_of_a_queue_of_one_never_both_sleep() {
        check(1, Leaky::No, 3);
    }

    #[test]
    fn ends_of_a_queue_of_two_never_both_sleep() {
        check(2, Leaky::No, 3);
    }

    #[test]
    fn a_receiver_of_a_leaking_queue_is_woken() {
        check(1, Leaky::Downstream, 2);
        check(1, Leaky::Upstream, 2);
    }

    /// A receiver of an empty queue returns `News` when another thread makes `news` true and then calls
    /// [`Waker::wake`], whether the receiver sleeps at that time or not.
    #[test]
    fn news_wake_the_receiver() {
        for barrier in [Barrier::Symmetric, Barrier::Asymmetric] {
            bounded().check(move || {
                let (tx, mut rx) = queue_with::<u32>(1, Leaky::No, barrier);
                let news = loom::sync::Arc::new(AtomicU32::new(0));
                let (waker, set) = (rx.waker(), news.clone());
                let waking = loom::thread::spawn(move || {
                    system::run_as(0, move || {
                        set.store(1, Ordering::Relaxed);
                        waker.wake();
                    });
                });
                let received = system::run_as(1, || rx.recv_unless(|| news.load(Ordering::Relaxed) == 1));
                assert_eq!(received, Received::News);
                waking.join().unwrap();
                drop(tx);
            });
        }
    }

    #[test]
    fn a_leaving_receiver_wakes_the_sender() {
        bounded().check(|| {
            let (mut tx, rx) = queue(1, Leaky::No);
            tx.send(0).unwrap();
            let sender = loom::thread::spawn(move || tx.send(1u32));
            drop(rx);
            let refused = sender.join().unwrap();
            assert!(matches!(refused, Ok(Sent::Queued) | Err(SendError { reason: Reason::Closed, .. })));
        });
    }
}
