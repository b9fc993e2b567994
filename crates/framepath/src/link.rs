// SPDX-License-Identifier: MIT OR Apache-2.0
//! `queue`: the end of one thread's chain.

use framepath_model::stream::StreamInfo;
use framepath_os::queue::{Sender, Sent};

use crate::error::StageError;
use crate::item::Item;
use crate::out::{Failure, Out};
use crate::stage::Stage;

/// An item in a queue, with the stamp of its hand-off.
pub(crate) struct Queued {
    pub(crate) item: Item,
    pub(crate) enqueued_ns: u64,
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
        match sender.send(Queued { item, enqueued_ns }) {
            Ok(Sent::Queued) => Ok(()),
            Ok(Sent::DroppedNew(queued) | Sent::DroppedOldest(queued)) => {
                self.dropped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                out.recorder().dropped(self.index, &queued.item.meta(), queued.enqueued_ns);
                Ok(())
            }
            Err(_) => Err(out.fail(StageError::Downstream)),
        }
    }

    fn drain(&mut self, _: &mut Out<'_>) -> Result<(), Failure> {
        self.sender = None;
        Ok(())
    }
}
