// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two rings of cells in the shared area, and the bells that wake threads sleeping on them.
//!
//! Each side keeps its own position in private memory and publishes a copy. A side accepts only
//! positions of the other side that are possible with its own position: the writer's position is at least
//! the reader's, and at most the ring's size above it. A side does not remember the other side's earlier
//! positions, so it does not notice a peer that moves its position back within these limits. Such a peer
//! can only delay or falsify the data that passes through the ring.

use std::sync::Arc;
use std::time::Duration;

use super::area::{AreaWord, RingName};
use super::{Breach, Cell, SharedArea};
use crate::measure::meter;
use crate::sync::adaptive_poll::AdaptivePoll;
use crate::sync::atomics::{AtomicU32, Ordering, fence};
use crate::sync::futex;

/// Futex word in the shared area, for sleepers and ringers in both processes. The word is 1 while a thread
/// sleeps on it or is about to sleep, until a ringer sets it to 0.
///
/// ```text
/// sleeper: bell = 1; fence; look again; futex wait
/// ringer:  change something; fence; where bell is not 0: bell = 0, futex wake
/// ```
///
/// At least one of the two sees the other's write. A ringer makes no system call while the word is 0.
#[derive(Clone, Debug)]
pub struct Bell {
    area: Arc<SharedArea>,
    line: AreaWord,
}

impl Bell {
    fn flag(&self) -> &AtomicU32 {
        self.area.flag(self.line)
    }

    /// If the word is not 0, sets it to 0 and wakes one thread that sleeps on the bell. Call this after the
    /// change that the sleeper waits for.
    pub fn ring(&self) {
        // Pairs with the fence in `sleep_unless`.
        fence(Ordering::SeqCst);
        if self.flag().load(Ordering::Relaxed) != 0 {
            self.flag().store(0, Ordering::Relaxed);
            futex::wake_shared(self.flag());
        }
    }

    /// Sets the bell's word to 1, and then calls `ready` once. If `ready` returns false, sleeps until another
    /// thread rings the bell, for at most `limit` (`None`: no limit). May return early, so the caller has to
    /// check again. Sets the word to 0 at the end. Returns false if `limit` has passed, and true otherwise.
    pub fn sleep_unless(&self, ready: impl Fn() -> bool, limit: Option<Duration>) -> bool {
        self.flag().store(1, Ordering::Relaxed);
        // Pairs with the fence in `ring`.
        fence(Ordering::SeqCst);
        let in_time = ready() || futex::wait_shared(self.flag(), 1, limit);
        self.flag().store(0, Ordering::Relaxed);
        in_time
    }

    /// Returns the bell on which the caller waits for free space in the submission ring.
    pub fn for_room(area: &Arc<SharedArea>) -> Bell {
        Bell { area: area.clone(), line: AreaWord::RoomBell }
    }

    /// Returns the bell on which the worker waits for free space in the completion ring.
    pub fn of_completion_room(area: &Arc<SharedArea>) -> Bell {
        Bell { area: area.clone(), line: AreaWord::CompletionRoomBell }
    }

    /// Returns the bell on which the caller waits until the worker releases packets of a
    /// [`PacketArea`](super::PacketArea).
    pub fn for_packets(area: &Arc<SharedArea>) -> Bell {
        Bell { area: area.clone(), line: AreaWord::PacketBell }
    }

    /// Returns the bell on which the owner of a pool of frames or packets in one process waits until the
    /// other process returns one of them.
    pub fn for_slots(area: &Arc<SharedArea>) -> Bell {
        Bell { area: area.clone(), line: AreaWord::SlotBell }
    }

    /// Sets the word to 0 and wakes all threads that sleep on the bell, whatever the word's value was: a dead
    /// or hostile peer may have written any value, and may sleep on the bell itself. One system call.
    pub fn ring_out(&self) {
        fence(Ordering::SeqCst);
        self.flag().store(0, Ordering::Relaxed);
        futex::wake_all_shared(self.flag());
    }

    /// Returns true if the word says that a thread sleeps on this bell. The other side may have written
    /// any value.
    pub fn sleeps(&self) -> bool {
        self.flag().load(Ordering::Relaxed) != 0
    }
}

/// Writing end of a ring of cells in the shared area. Used by one thread at a time.
#[derive(Debug)]
pub struct CellWriter {
    area: Arc<SharedArea>,
    ring: RingName,
    tail_line: AreaWord,
    head_line: AreaWord,
    /// Number of cells written since the start.
    tail: u64,
    /// Bell on which the reader sleeps until there is a cell.
    bell: Bell,
    /// Bell on which this end sleeps while the ring is full; the reader rings it when half the ring is free.
    room: Bell,
}

/// Reading end of a ring of cells in the shared area. Used by one thread at a time.
#[derive(Debug)]
pub struct CellReader {
    area: Arc<SharedArea>,
    ring: RingName,
    tail_line: AreaWord,
    head_line: AreaWord,
    /// Number of cells read since the start.
    head: u64,
    /// Bell on which this end sleeps until there is a cell.
    bell: Bell,
    /// Bell on which the writer sleeps while the ring is full; this end rings it when half the ring is free.
    room: Bell,
    patience: AdaptivePoll,
}

/// Returns both ends of the ring from the caller to the worker. Each process uses one end.
pub fn submissions(area: &Arc<SharedArea>) -> (CellWriter, CellReader) {
    let lines = (AreaWord::SubmissionTail, AreaWord::SubmissionHead);
    ends(area, RingName::Submissions, lines, AreaWord::WorkerBell, Bell::for_room(area))
}

/// Returns both ends of the ring from the worker to the caller. Each process uses one end.
pub fn completions(area: &Arc<SharedArea>) -> (CellWriter, CellReader) {
    let lines = (AreaWord::CompletionTail, AreaWord::CompletionHead);
    ends(area, RingName::Completions, lines, AreaWord::CallerBell, Bell::of_completion_room(area))
}

fn ends(
    area: &Arc<SharedArea>,
    ring: RingName,
    lines: (AreaWord, AreaWord),
    bell: AreaWord,
    room: Bell,
) -> (CellWriter, CellReader) {
    let (tail_line, head_line) = lines;
    let bell = Bell { area: area.clone(), line: bell };
    let writer = CellWriter {
        area: area.clone(),
        ring,
        tail_line,
        head_line,
        tail: 0,
        bell: bell.clone(),
        room: room.clone(),
    };
    let reader = CellReader {
        area: area.clone(),
        ring,
        tail_line,
        head_line,
        head: 0,
        bell,
        room,
        patience: AdaptivePoll::default(),
    };
    (writer, reader)
}

impl CellWriter {
    /// Returns the number of cells written and not yet taken.
    ///
    /// # Errors
    /// The reader reports that it took more cells than were written, or so few that more cells than the
    /// ring has would be left. A reader that moves its position back within the ring's size is not noticed.
    pub fn len(&self) -> Result<u64, Breach> {
        // Acquire: pairs with the Release in `CellReader::pop`. The reader's loads of a cell come
        // before this end's next stores to it.
        let head = self.area.word(self.head_line).load(Ordering::Acquire);
        match self.tail.checked_sub(head) {
            Some(len) if len <= u64::from(self.area.sizes().cells) => Ok(len),
            _ => Err(Breach("ring position out of range")),
        }
    }

    /// Returns true if the ring is empty.
    ///
    /// # Errors
    /// As [`CellWriter::len`].
    pub fn is_empty(&self) -> Result<bool, Breach> {
        Ok(self.len()? == 0)
    }

    /// Returns the size of the ring, in cells.
    pub fn cells(&self) -> u64 {
        self.area.sizes().cells.into()
    }

    /// Returns the number of cells that can be written now.
    ///
    /// # Errors
    /// As [`CellWriter::len`].
    pub fn room(&self) -> Result<u64, Breach> {
        Ok(u64::from(self.area.sizes().cells) - self.len()?)
    }

    /// Writes a cell and wakes a sleeping reader. Returns false, and does neither, if the ring is full.
    ///
    /// # Errors
    /// As [`CellWriter::len`].
    pub fn push(&mut self, cell: &Cell) -> Result<bool, Breach> {
        if !self.push_quietly(cell)? {
            return Ok(false);
        }
        self.bell.ring();
        Ok(true)
    }

    /// Writes a cell, but does not wake the reader. Returns false, and writes nothing, if the ring is full. For
    /// a cell that another cell follows immediately: the caller wakes the reader with the last one.
    ///
    /// # Errors
    /// As [`CellWriter::len`].
    pub fn push_quietly(&mut self, cell: &Cell) -> Result<bool, Breach> {
        if self.room()? == 0 {
            return Ok(false);
        }
        for (index, word) in cell.iter().enumerate() {
            self.area.cell(self.ring, self.tail, index).store(*word, Ordering::Relaxed);
        }
        self.tail += 1;
        // Release: pairs with the Acquire in `CellReader::available`. A thread that sees the
        // position also sees the cell, and everything written before it.
        self.area.word(self.tail_line).store(self.tail, Ordering::Release);
        Ok(true)
    }

    /// Writes a cell as [`CellWriter::push`] does, but waits while the ring is full, without a limit; the
    /// meter of the calling thread records the time as blocked. The end of the peer's process does not end the
    /// wait.
    ///
    /// # Errors
    /// As [`CellWriter::len`].
    pub fn push_waiting(&mut self, cell: &Cell) -> Result<(), Breach> {
        while !self.push(cell)? {
            meter::blocked(|| self.room.sleep_unless(|| self.room() != Ok(0), None));
        }
        Ok(())
    }

    /// Returns the bell on which the reader sleeps until there is a cell.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl CellReader {
    /// Returns the number of cells that can be taken now.
    ///
    /// # Errors
    /// The writer reports fewer written cells than this end has taken, or more cells than the ring holds. A
    /// writer that moves its position back, but not below the cells taken, is not noticed.
    pub fn available(&self) -> Result<u64, Breach> {
        // Acquire: pairs with the Release in `CellWriter::push_quietly`.
        let tail = self.area.word(self.tail_line).load(Ordering::Acquire);
        match tail.checked_sub(self.head) {
            Some(len) if len <= u64::from(self.area.sizes().cells) => Ok(len),
            _ => Err(Breach("ring position out of range")),
        }
    }

    /// Takes the oldest cell as a private copy; `None` if the ring is empty. Reads each word once. Wakes
    /// a writer that waits for room if the ring is exactly half full, or empty, afterwards.
    ///
    /// # Errors
    /// As [`CellReader::available`], which is checked before and after the cell is taken. After the second
    /// check, the cell is lost.
    pub fn pop(&mut self) -> Result<Option<Cell>, Breach> {
        if self.available()? == 0 {
            return Ok(None);
        }
        let mut cell = Cell::default();
        for (index, word) in cell.iter_mut().enumerate() {
            *word = self.area.cell(self.ring, self.head, index).load(Ordering::Relaxed);
        }
        self.head += 1;
        // Release: pairs with the Acquire in `CellWriter::len`.
        self.area.word(self.head_line).store(self.head, Ordering::Release);
        // Wakes the writer only if half the ring is free, so that it can write a batch.
        let left = self.available()?;
        if left == u64::from(self.area.sizes().cells / 2) || left == 0 {
            self.room.ring();
        }
        Ok(Some(cell))
    }

    /// Waits until there is a cell, the writer's position is invalid, or `gone` returns true; may
    /// return early. Polls for a few microseconds before it sleeps, if the last sleep was short. The thread
    /// that makes `gone` true has to ring [`CellReader::bell`] afterwards. Returns false if the sleep has
    /// lasted `limit` (`None`: no limit), and true otherwise.
    pub fn sleep(&mut self, gone: impl Fn() -> bool, limit: Option<Duration>) -> bool {
        let mut patience = std::mem::take(&mut self.patience);
        let ready = || gone() || self.available() != Ok(0);
        let in_time = patience.spin(ready) || patience.sleep(|| self.bell.sleep_unless(ready, limit));
        self.patience = patience;
        in_time
    }

    /// Returns the bell on which [`CellReader::sleep`] sleeps.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::super::Sizes;
    use super::*;

    fn area(cells: u32) -> Arc<SharedArea> {
        Arc::new(SharedArea::new(Sizes { cells, packet_bytes: 4096 }).unwrap())
    }

    #[test]
    fn cells_pass_once_in_order_and_wake_who_sleeps() {
        let area = area(4);
        let (mut writer, mut reader) = completions(&area);
        let sender = std::thread::spawn(move || {
            let mut refused = 0;
            for n in 0..10_000u64 {
                while !writer.push(&[n; 8]).unwrap() {
                    refused += 1;
                    std::thread::yield_now();
                }
            }
            refused
        });
        for n in 0..10_000 {
            let cell = loop {
                match reader.pop().unwrap() {
                    Some(cell) => break cell,
                    None => assert!(reader.sleep(|| false, None)),
                }
            };
            assert_eq!(cell, [n; 8]);
        }
        sender.join().unwrap();
        assert_eq!(reader.pop(), Ok(None));
    }

    #[test]
    fn a_sleeper_without_a_writer_wakes_at_its_limit() {
        let (_, mut reader) = submissions(&area(2));
        assert!(!reader.sleep(|| false, Some(Duration::from_millis(1))));
        assert!(reader.sleep(|| true, None));
    }

    #[test]
    fn a_full_ring_refuses_and_its_writer_is_woken_when_half_is_free() {
        let area = area(4);
        let (mut writer, mut reader) = submissions(&area);
        for n in 0..4 {
            assert_eq!(writer.push(&[n; 8]), Ok(true));
        }
        assert_eq!(writer.push(&[9; 8]), Ok(false));
        let room = Bell::for_room(&area);
        let waiter = std::thread::spawn(move || {
            while writer.room() == Ok(0) || writer.room() == Ok(1) {
                assert!(room.sleep_unless(|| writer.room().is_ok_and(|room| room >= 2), None));
            }
            writer.room()
        });
        reader.pop().unwrap();
        reader.pop().unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(2));
    }

    proptest! {
        /// A peer writes any value to any word: every result is a cell or a breach.
        #[test]
        fn a_hostile_peer_shows_as_a_breach(steps: Vec<(u8, u64)>) {
            let area = area(8);
            let (mut writer, _) = submissions(&area);
            let (_, mut reader) = completions(&area);
            let (mut written, mut read) = (0u64, 0u64);
            for (what, value) in steps {
                match what % 5 {
                    0 => area.word(AreaWord::SubmissionHead).store(value, Ordering::Relaxed),
                    1 => area.word(AreaWord::CompletionTail).store(value, Ordering::Relaxed),
                    2 => area.word(AreaWord::CompletionTail).store(read + value % 9, Ordering::Relaxed),
                    3 => match writer.push(&[value; 8]) {
                        Ok(pushed) => written += u64::from(pushed),
                        Err(Breach(_)) => {
                            let head = area.word(AreaWord::SubmissionHead).load(Ordering::Relaxed);
                            prop_assert!(head > written || written - head > 8);
                        }
                    },
                    _ => match reader.pop() {
                        Ok(cell) => read += u64::from(cell.is_some()),
                        Err(Breach(_)) => {
                            let tail = area.word(AreaWord::CompletionTail).load(Ordering::Relaxed);
                            prop_assert!(tail < read || tail - read > 8);
                        }
                    },
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::super::Sizes;
    use super::*;

    /// A reader that sleeps is woken when a cell is written. A lost wake-up ends the model as a livelock.
    #[test]
    fn a_sleeping_reader_is_woken() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let area = Arc::new(SharedArea::new(Sizes { cells: 2, packet_bytes: 0 }).unwrap());
            let (mut writer, mut reader) = completions(&area);
            let sender = loom::thread::spawn(move || {
                for n in 0..2 {
                    assert_eq!(writer.push(&[n; 8]), Ok(true));
                }
            });
            for n in 0..2 {
                let cell = loop {
                    match reader.pop().unwrap() {
                        Some(cell) => break cell,
                        None => assert!(reader.sleep(|| false, None)),
                    }
                };
                assert_eq!(cell, [n; 8]);
            }
            sender.join().unwrap();
        });
    }

    /// The writer of a full ring is woken when half of the ring is free, although the reader
    /// takes no more until then. All cells arrive.
    #[test]
    fn a_sleeping_writer_is_woken_when_half_is_free() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let area = Arc::new(SharedArea::new(Sizes { cells: 2, packet_bytes: 0 }).unwrap());
            let (mut writer, mut reader) = submissions(&area);
            let written = loom::sync::Arc::new(AtomicU32::new(0));
            let (room, done) = (Bell::for_room(&area), written.clone());
            let sender = loom::thread::spawn(move || {
                for n in 0..3 {
                    while !writer.push(&[n; 8]).unwrap() {
                        assert!(room.sleep_unless(|| writer.room() != Ok(0), None));
                    }
                }
                done.store(1, Ordering::Release);
            });
            let mut take = |n: u64| {
                let cell = loop {
                    match reader.pop().unwrap() {
                        Some(cell) => break cell,
                        None => assert!(reader.sleep(|| false, None)),
                    }
                };
                assert_eq!(cell, [n; 8]);
            };
            take(0);
            while written.load(Ordering::Acquire) == 0 {
                loom::thread::yield_now();
            }
            (1..3).for_each(&mut take);
            sender.join().unwrap();
        });
    }
}
