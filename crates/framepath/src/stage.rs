// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trait [`Stage`], and the built-in stages.

pub(crate) mod block;
pub(crate) mod burn;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod crop;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod fill;
pub(crate) mod filter;
pub(crate) mod plugin;
pub(crate) mod scale;
pub(crate) mod threshold;
pub(crate) mod turn;

use framepath_model::stream::StreamInfo;

use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};

/// Role of a hop in its thread's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HopRole {
    /// The hop passes items to the next hop of the thread, or to a worker.
    Through,
    /// The hop is a sink, the last hop of the thread.
    Sink,
    /// The hop is the writing end of a queue, the last hop of the thread.
    Link,
}

/// A part of a pipeline that takes and emits frames or packets. Only one thread at a time calls it, which
/// need not be the thread that made it.
///
/// This stage inverts grey levels, in place if the frame has no other reader:
///
/// ```
/// use framepath::{CopyPool, HopFailure, Item, Out, Pipeline, Stage, StageError, StreamInfo};
///
/// struct Invert {
///     copies: CopyPool,
/// }
///
/// impl Stage for Invert {
///     fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
///         Ok(*info)
///     }
///
///     fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
///         let frame = item.into_frame().map_err(|error| out.fail(error))?;
///         let meta = frame.meta();
///         let mut frame = self.copies.writable(frame).map_err(|error| out.fail(error))?;
///         frame.plane_mut(0).iter_mut().for_each(|pixel| *pixel = 255 - *pixel);
///         out.push(Item::Frame(frame.freeze(meta)))
///     }
/// }
///
/// let pipeline = Pipeline::parse("test frames=2 size=64x48 format=grey")?.stage(Invert { copies: CopyPool::new() });
/// assert_eq!(pipeline.frames()?.count(), 2);
/// # Ok::<(), framepath::RunError>(())
/// ```
pub trait Stage: Send {
    /// Returns the name for errors and the ledger. The default is the name of the type.
    fn name(&self) -> &str {
        short_name(std::any::type_name::<Self>())
    }

    /// Prepares the stage. Gets the description of its input stream and returns that of its output
    /// stream; a sink returns its input's. Called once, before the first item.
    ///
    /// # Errors
    /// The stage cannot work on this stream. The run fails before its first frame.
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError>;

    /// Takes one item. The stage passes its output for the item to [`Out::push`], in this or a later
    /// call. In a worker, the stage must not keep an input frame for a later call, because the process
    /// that runs the path then uses the memory for other frames.
    ///
    /// # Errors
    /// The error that [`Out::push`] returned, [`Out::fail`] with an error of its own, or
    /// [`Out::enough`].
    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure>;

    /// Returns the number of threads that do the stage's work; 1, the default, for a stage that works in its
    /// caller's thread only. Only a worker calls this, after [`Stage::start`].
    fn threads(&self) -> u32 {
        1
    }

    /// True if the stage's output depends only on its input since the last random access point, so that
    /// another worker can repeat the output after a crash. The default is true. Only a worker calls this,
    /// after [`Stage::start`].
    fn replayable(&self) -> bool {
        true
    }

    /// Emits the items that are still inside, because no more items come: the stream or the run has ended, a
    /// hop in front has failed, or this stage has returned [`Out::enough`]. Not called if this stage has failed,
    /// or if a hop behind it in its thread has failed or takes no more items. The default does nothing.
    ///
    /// With [`Pipeline::frames`](crate::Pipeline::frames) the program may seek after the end. A call of
    /// [`flush`](Stage::flush) and further items then follow.
    ///
    /// # Errors
    /// As [`push`](Stage::push).
    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let _ = out;
        Ok(())
    }

    /// Discards the items inside, because later items follow a seek or flush. A stage that keeps items
    /// must implement this, and report the number of discarded items by [`Out::flushed`]. It must not
    /// push items. The default does nothing.
    ///
    /// # Errors
    /// The stage cannot go on.
    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let _ = out;
        Ok(())
    }

    /// Handles a request from a later hop or from outside the run, between two items. Returns
    /// [`Answered::Done`] if the stage has performed it; the default passes all on. An encoder should answer
    /// [`Request::Keyframe`] and [`Request::BitRate`]. A seek or flush goes on to the source, whatever the
    /// answer. A stage that runs in a worker gets no requests: they go on to the hop in front. The built-in encoder
    /// gets them there, too.
    fn request(&mut self, request: &Request) -> Answered {
        let _ = request;
        Answered::PassOn
    }
}

/// Returns the last part of a type's path, without type parameters: `Invert` for `program::Invert<u8>`.
pub(crate) fn short_name(path: &str) -> &str {
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

/// Allows stages of several types in one variable.
impl Stage for Box<dyn Stage> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        (**self).start(info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        (**self).push(item, out)
    }

    fn threads(&self) -> u32 {
        (**self).threads()
    }

    fn replayable(&self) -> bool {
        (**self).replayable()
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        (**self).drain(out)
    }

    fn flush(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        (**self).flush(out)
    }

    fn request(&mut self, request: &Request) -> Answered {
        (**self).request(request)
    }
}
