// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values between the thread of GStreamer, which gives them, and the path, which takes them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait of a path for a value, after which it looks whether it is to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Bounded queue whose waits a third thread can end.
pub(crate) struct Handover<T, E> {
    /// Values that wait before the giver has to.
    most_waiting: usize,
    state: Mutex<HandoverState<T, E>>,
    changed: Condvar,
}

struct HandoverState<T, E> {
    waiting: VecDeque<T>,
    /// True after the last value.
    is_at_end: bool,
    /// True while the giver must not wait.
    is_unlocked: bool,
    /// Result of the taker, once it takes no more.
    end: Option<E>,
}

/// Result of a wait of the giver.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The taker will get the value, or has got all values.
    Done,
    /// The wait was ended; nothing has happened to the value.
    Unlocked,
    /// The taker takes no more.
    Ended,
}

/// Result of a wait of the taker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<T> {
    Value(T),
    /// The wait took too long.
    Nothing,
    /// There will be no further value.
    AtEnd,
}

impl<T, E> Handover<T, E> {
    /// Makes an empty queue for this number of values.
    pub(crate) fn new(most_waiting: usize) -> Handover<T, E> {
        let state =
            HandoverState { waiting: VecDeque::new(), is_at_end: false, is_unlocked: false, end: None };
        Handover { most_waiting, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HandoverState<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut HandoverState<T, E>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `is_done` returns true.
    fn wait(
        &self,
        is_done: impl Fn(&HandoverState<T, E>) -> bool,
    ) -> (Given, MutexGuard<'_, HandoverState<T, E>>) {
        let is_over =
            |state: &mut HandoverState<T, E>| is_done(state) || state.is_unlocked || state.end.is_some();
        let waited = self.changed.wait_while(self.lock(), |state| !is_over(state));
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        let given = match () {
            () if state.end.is_some() => Given::Ended,
            () if is_done(&state) => Given::Done,
            () => Given::Unlocked,
        };
        (given, state)
    }

    /// Gives a value; waits while too many wait. The value is lost unless the result is [`Given::Done`].
    pub(crate) fn give(&self, value: T) -> Given {
        let (given, mut state) = self.wait(|state| state.waiting.len() < self.most_waiting);
        if given == Given::Done {
            state.waiting.push_back(value);
            drop(state);
            self.changed.notify_all();
        }
        given
    }

    /// Says that no further value follows, and waits for the taker's end.
    pub(crate) fn finish(&self) -> Given {
        self.at_end();
        self.wait(|state| state.end.is_some()).0
    }

    /// Says that no further value follows.
    pub(crate) fn at_end(&self) {
        self.change(|state| state.is_at_end = true);
    }

    /// Takes the oldest value, after at most this time.
    pub(crate) fn take(&self, longest: Duration) -> Taken<T> {
        let is_idle = |state: &mut HandoverState<T, E>| state.waiting.is_empty() && !state.is_at_end;
        let waited = self.changed.wait_timeout_while(self.lock(), longest, is_idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (value, is_at_end) = (state.waiting.pop_front(), state.is_at_end);
        drop(state);
        match value {
            Some(value) => {
                self.changed.notify_all();
                Taken::Value(value)
            }
            None if is_at_end => Taken::AtEnd,
            None => Taken::Nothing,
        }
    }

    /// Says that the taker takes no more.
    pub(crate) fn end(&self, end: E) {
        self.change(|state| {
            state.waiting.clear();
            state.end = Some(end);
        });
    }

    /// Takes the result of the taker, once.
    pub(crate) fn take_end(&self) -> Option<E> {
        self.lock().end.take()
    }

    /// Waits until there is room for a value, the taker has ended, or the wait is ended.
    pub(crate) fn wait_for_room(&self) {
        drop(self.wait(|state| state.waiting.len() < self.most_waiting));
    }

    /// Ends the waits of the giver, or lets it wait again.
    pub(crate) fn set_unlocked(&self, is_unlocked: bool) {
        self.change(|state| state.is_unlocked = is_unlocked);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn a_full_queue_makes_the_giver_wait_until_a_value_is_taken() {
        let handover = Arc::new(Handover::<u32, ()>::new(2));
        let giver = handover.clone();
        let giving = thread::spawn(move || (0..100).all(|value| giver.give(value) == Given::Done));
        for value in 0..100 {
            assert_eq!(handover.take(Duration::from_secs(60)), Taken::Value(value));
        }
        assert!(giving.join().unwrap());
    }

    #[test]
    fn waits_end_when_they_are_unlocked_or_the_taker_has_ended() {
        let handover = Arc::new(Handover::<u32, &str>::new(2));
        assert_eq!([handover.give(1), handover.give(2)], [Given::Done, Given::Done]);
        let giver = handover.clone();
        let giving = thread::spawn(move || giver.give(3));
        handover.set_unlocked(true);
        assert_eq!(giving.join().unwrap(), Given::Unlocked);
        handover.set_unlocked(false);
        let giver = handover.clone();
        let finishing = thread::spawn(move || giver.finish());
        assert_eq!(handover.take(Duration::from_secs(60)), Taken::Value(1));
        handover.end("enough");
        assert_eq!(finishing.join().unwrap(), Given::Ended);
        assert_eq!((handover.give(4), handover.take_end()), (Given::Ended, Some("enough")));
    }

    #[test]
    fn the_end_comes_after_the_values() {
        let handover = Handover::<u32, ()>::new(2);
        assert_eq!(handover.take(Duration::ZERO), Taken::Nothing);
        handover.give(1);
        handover.at_end();
        assert_eq!(handover.take(Duration::ZERO), Taken::Value(1));
        assert_eq!(handover.take(Duration::ZERO), Taken::AtEnd);
    }
}
