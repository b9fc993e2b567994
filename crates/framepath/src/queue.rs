// SPDX-License-Identifier: MIT OR Apache-2.0
//! `queue`: a thread boundary between two hops.
//!
//! The writing end is the last hop of one thread, or inside a `tee`; the reading end is the input of another
//! thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::sync::queue::{Sender, Sent};

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::stage::Stage;

/// Default of the option `depth`, as text.
pub(crate) const DEFAULT_DEPTH: &str = "16";

static DEFINITION: Definition = Definition::link(
    "queue",
    "a thread boundary: the hops behind it run in a thread of their own",
)
.args(&[
    Arg::option(
        "depth",
        ValueKind::count(1, 65_536),
        DefaultValue::Is(DEFAULT_DEPTH),
        "capacity in frames or packets",
    )
    .known_as(&["max-size-buffers"]),
    Arg::option(
        "leaky",
        ValueKind::choice(&["no", "upstream", "downstream"]),
        DefaultValue::Is("no"),
        "when full: wait (no), drop the new frame or packet (upstream), or drop the oldest (downstream)",
    ),
])
.known_as(&["queue2"]);

pub(crate) fn element() -> Element {
    Element::queue(&DEFINITION)
}

/// An entry of a queue.
pub(crate) enum Queued {
    /// A frame or packet.
    Item {
        item: Item,
        /// Time of the hand-off to the queue, CLOCK_MONOTONIC nanoseconds; has no meaning at level `off`.
        enqueued_ns: u64,
        /// Number of the last seek or flush before the item; 0 without one.
        generation: u64,
    },
    /// A seek or flush with this number: the hops behind the queue have to discard the items inside them.
    Flush(u64),
    /// The end of a stream that is held open for a seek: the hops behind the queue have to drain.
    End,
}

/// Writing end of a queue: the last stage of the thread in front of the queue, or a part of a `tee`.
pub(crate) struct QueueEnd {
    /// Index of the link in the path.
    index: u16,
    /// Sender to the reading end; `None` after the drain that ends the run, or once [`QueueEnd::offer`] has
    /// found the reading end closed.
    sender: Option<Sender<Queued>>,
    /// Number of items that full queues have dropped; shared by all queues of the pipeline.
    dropped: Arc<AtomicU64>,
}

/// An item that a full queue has dropped, and the CLOCK_MONOTONIC time of its hand-off to the queue,
/// nanoseconds.
pub(crate) type Dropped = (Item, u64);

impl QueueEnd {
    pub(crate) fn new(index: u16, sender: Sender<Queued>, dropped: Arc<AtomicU64>) -> QueueEnd {
        QueueEnd { index, sender: Some(sender), dropped }
    }

    /// True until the drain that ends the run, or until a call of [`offer`](QueueEnd::offer) finds the reading
    /// end closed.
    pub(crate) fn is_open(&self) -> bool {
        self.sender.is_some()
    }

    /// Puts `item` into the queue; waits for room unless the queue is leaky. Returns the item that a full
    /// leaky queue dropped: an older one, or `item` itself; `None` if it dropped no item.
    ///
    /// # Errors
    /// The reading end or this end of the queue is closed. This end is closed afterwards.
    #[inline]
    pub(crate) fn offer(&mut self, item: Item, out: &mut Out<'_>) -> Result<Option<Dropped>, HopFailure> {
        let Some(sender) = &mut self.sender else {
            return Err(out.fail(StageError::Downstream));
        };
        let enqueued_ns = out.recorder().last_ns();
        match sender.send(Queued::Item { item, enqueued_ns, generation: out.generation() }) {
            Ok(Sent::Queued) => Ok(None),
            Ok(Sent::DroppedNew(queued) | Sent::DroppedOldest(queued)) => match queued {
                Queued::Item { item, enqueued_ns, .. } => Ok(Some((item, enqueued_ns))),
                // A dropped marker is harmless, because an item of its generation follows.
                Queued::Flush(_) | Queued::End => Ok(None),
            },
            Err(_) => {
                self.sender = None;
                Err(out.fail(StageError::Downstream))
            }
        }
    }

    /// Counts an item that the queue has dropped, and writes its ledger row.
    pub(crate) fn count_dropped(&self, (item, enqueued_ns): &Dropped, out: &mut Out<'_>) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        out.recorder().dropped(self.index, &item.meta(), *enqueued_ns);
    }

    /// Puts `marker` ([`Queued::Flush`] or [`Queued::End`]) into the queue. Waits for room even if the queue
    /// is leaky. Fails if the reading end or this end of the queue is closed.
    fn mark(&mut self, marker: Queued, out: &Out<'_>) -> Result<(), HopFailure> {
        let sent = self.sender.as_mut().is_some_and(|sender| sender.send_waiting(marker).is_ok());
        if sent { Ok(()) } else { Err(out.fail(StageError::Downstream)) }
    }
}

impl Stage for QueueEnd {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    #[inline]
    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Some(dropped) = self.offer(item, out)? {
            self.count_dropped(&dropped, out);
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.mark(Queued::Flush(out.generation()), out)
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if out.holds() {
            return self.mark(Queued::End, out);
        }
        self.sender = None;
        Ok(())
    }
}
