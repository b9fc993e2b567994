// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any order of taking, sharing, output and dropping, compared with a model that only counts.

use super::*;
use framepath_model::stream::FrameMeta;
use proptest::prelude::*;

enum Handle {
    Writable(FrameMut),
    Readable(Frame),
    Held(Hold),
}

impl Handle {
    fn slot(&self) -> u32 {
        match self {
            Handle::Writable(frame) => frame.slot(),
            Handle::Readable(frame) => frame.slot(),
            Handle::Held(hold) => hold.slot,
        }
    }

    fn unit(&self) -> u32 {
        if matches!(self, Handle::Held(_)) { HOLD } else { FRAME }
    }
}

/// Next action of the test; the number selects one of the existing handles.
#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire,
    AcquireHold,
    /// Freezes a writable handle, tries to make a readable handle writable, or outputs a frame of a hold and
    /// keeps the hold.
    Turn(usize),
    Share(usize),
    Drop(usize),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Acquire),
        3 => Just(Step::AcquireHold),
        6 => any::<usize>().prop_map(Step::Turn),
        3 => any::<usize>().prop_map(Step::Share),
        7 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Close),
    ]
}

struct Run {
    pool: Option<Pool>,
    slots: u32,
    handles: Vec<Handle>,
    /// Value that the pixels of each slot are expected to have.
    stamps: Vec<u64>,
    written: u64,
}

impl Run {
    fn new(slots: u32) -> Run {
        let pool = Some(Pool::new(64, slots).unwrap());
        Run { pool, slots, handles: Vec::new(), stamps: vec![0; slots as usize], written: 0 }
    }

    fn references(&self, slot: u32) -> u32 {
        self.handles.iter().filter(|h| h.slot() == slot).map(Handle::unit).sum()
    }

    /// Takes a slot by `take`, unless that would sleep.
    fn acquire(&mut self, take: impl FnOnce(&mut Pool) -> Result<Handle, PoolError>) {
        let free = (0..self.slots).any(|slot| self.references(slot) == 0);
        let readers = self.handles.iter().any(|h| h.unit() == FRAME);
        let Some(pool) = self.pool.as_mut().filter(|_| free || !readers) else { return };
        match take(pool) {
            Ok(handle) => {
                assert_eq!(self.references(handle.slot()), 0, "a slot still referenced was handed out");
                self.handles.push(handle);
            }
            Err(error) => {
                assert!(!free, "{error} with a free slot");
                assert!(matches!(error, PoolError::Starved { slots } if slots == self.slots));
            }
        }
    }

    fn stamp(&mut self, frame: &mut FrameMut) {
        self.written += 1;
        self.stamps[frame.slot() as usize] = self.written;
        frame.plane_mut(0)[..8].copy_from_slice(&self.written.to_ne_bytes());
    }

    fn step(&mut self, step: Step) {
        let count = self.handles.len();
        match step {
            Step::Acquire => self.acquire(|pool| pool.acquire().map(Handle::Writable)),
            Step::AcquireHold => self.acquire(|pool| pool.acquire_hold().map(Handle::Held)),
            Step::Close => self.pool = None,
            Step::Turn(_) | Step::Share(_) | Step::Drop(_) if count == 0 => {}
            Step::Drop(n) => drop(self.handles.swap_remove(n % count)),
            Step::Share(n) => {
                if let Handle::Readable(frame) = &self.handles[n % count] {
                    self.handles.push(Handle::Readable(frame.share()));
                }
            }
            Step::Turn(n) => match self.handles.swap_remove(n % count) {
                Handle::Writable(mut frame) => {
                    self.stamp(&mut frame);
                    self.handles.push(Handle::Readable(frame.freeze(FrameMeta::default())));
                }
                Handle::Readable(frame) => {
                    let alone = self.references(frame.slot()) == 0;
                    let turned = frame.try_unique();
                    assert_eq!(turned.is_ok(), alone);
                    self.handles.push(match turned {
                        Ok(unique) => Handle::Writable(unique),
                        Err(shared) => Handle::Readable(shared),
                    });
                }
                Handle::Held(hold) => {
                    let frame = hold.frame(&Layout::opaque(64), FrameMeta::default()).unwrap();
                    self.stamps[hold.slot as usize] = frame_stamp(&frame);
                    self.handles.extend([Handle::Held(hold), Handle::Readable(frame)]);
                }
            },
        }
    }

    /// Compares the counts with the model's, and the pixels with those written.
    fn check(&self) {
        for handle in &self.handles {
            if let Handle::Readable(frame) = handle {
                assert_eq!(frame_stamp(frame), self.stamps[frame.slot() as usize]);
            }
        }
        let Some(pool) = &self.pool else { return };
        for (slot, held) in pool.inner().slots.iter().enumerate() {
            let expected = match self.references(slot as u32) {
                0 => FRAME,
                references => references,
            };
            assert_eq!(held.refs.load(Ordering::Relaxed), expected, "slot {slot}");
        }
    }
}

fn frame_stamp(frame: &Frame) -> u64 {
    u64::from_ne_bytes(frame.plane(0).sub(0..8).to_vec().try_into().unwrap())
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "too slow, and it wants a directory")]
    fn slots_are_counted_and_never_handed_out_twice(slots in 1u32..5, steps in prop::collection::vec(step(), 0..200)) {
        let mut run = Run::new(slots);
        for step in steps {
            run.step(step);
            run.check();
        }
    }
}
