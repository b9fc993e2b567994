// SPDX-License-Identifier: MIT OR Apache-2.0
//! `queue`: the end of one thread's chain.

use framepath_model::path::{Arg, DefaultValue, Definition, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::queue::{Sender, Sent};

use crate::element::Element;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::stage::Stage;

static DEFINITION: Definition =
    Definition::link("queue", "a thread boundary: what follows runs in a thread of its own")
        .args(&[
            Arg::option("depth", ValueKind::count(1, 65_536), DefaultValue::Is("16"), "frames it holds")
                .known_as(&["max-size-buffers"]),
            Arg::option(
                "leaky",
                ValueKind::choice(&["no", "upstream", "downstream"]),
                DefaultValue::Is("no"),
                "when full: wait, drop what comes, or drop the oldest",
            ),
        ])
        .known_as(&["queue2"]);

pub(crate) fn element() -> Element {
    Element::queue(&DEFINITION)
}

/// What passes through a queue.
pub(crate) enum Queued {
    /// An item.
    Item {
        item: Item,
        /// Stamp of its hand-off.
        enqueued_ns: u64,
        /// Number of the last seek or flush before it.
        generation: u64,
    },
    /// What the hops behind hold is from before the seek or flush of this number.
    Flush(u64),
    /// The stream has ended, and the run goes on.
    End,
}

/// The writing end of a queue, as the last stage of its thread.
pub(crate) struct QueueEnd {
    /// Index of the link in the path.
    pub(crate) index: u16,
    /// `None` once the stream has ended.
    pub(crate) sender: Option<Sender<Queued>>,
    /// Frames a full queue has dropped.
    pub(crate) dropped: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl QueueEnd {
    /// Sends a marker, for which even a leaky queue waits until it has room.
    fn mark(&mut self, marker: Queued, out: &Out<'_>) -> Result<(), Failure> {
        let sent = self.sender.as_mut().is_some_and(|sender| sender.send_waiting(marker).is_ok());
        if sent { Ok(()) } else { Err(out.fail(StageError::Downstream)) }
    }
}

impl Stage for QueueEnd {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    #[inline]
    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), Failure> {
        let Some(sender) = &mut self.sender else {
            return Err(out.fail(StageError::Downstream));
        };
        let enqueued_ns = out.recorder().last_ns();
        match sender.send(Queued::Item { item, enqueued_ns, generation: out.generation() }) {
            Ok(Sent::Queued) => Ok(()),
            Ok(Sent::DroppedNew(queued) | Sent::DroppedOldest(queued)) => {
                // A marker that leaves is followed by an item of its generation.
                if let Queued::Item { item, enqueued_ns, .. } = queued {
                    self.dropped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    out.recorder().dropped(self.index, &item.meta(), enqueued_ns);
                }
                Ok(())
            }
            Err(_) => Err(out.fail(StageError::Downstream)),
        }
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), Failure> {
        self.mark(Queued::Flush(out.generation()), out)
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), Failure> {
        if out.holds() {
            return self.mark(Queued::End, out);
        }
        self.sender = None;
        Ok(())
    }
}
