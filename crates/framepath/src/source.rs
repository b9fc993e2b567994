// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trait [`Source`], and the built-in sources.

pub(crate) mod file;
pub(crate) mod fixture;
pub(crate) mod kms;
mod pace;
pub(crate) mod pattern;
pub(crate) mod portal;
pub(crate) mod raw;
mod reconnect;
pub(crate) mod recv;
mod refill;
pub(crate) mod screen;
#[cfg(any(feature = "kms", feature = "wayland", feature = "x11"))]
mod screen_area;
#[cfg(any(feature = "kms", feature = "portal", feature = "wayland", feature = "x11"))]
mod screen_numbers;
mod screen_options;
#[cfg(any(feature = "kms", feature = "portal", feature = "wayland", feature = "x11"))]
mod screen_ticks;
pub(crate) mod test;
pub(crate) mod url;
pub(crate) mod v4l2;
pub(crate) mod wayland;
pub(crate) mod x11;

use std::time::Duration;

use framepath_codec::TrackInfo;
use framepath_model::path::{Arg, DefaultValue, Hop, ValueKind};
use framepath_model::stream::StreamInfo;
use framepath_os::v4l2::Heap;

pub(crate) use pace::{Pace, PaceWait};

use crate::error::StageError;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::stage::short_name;

/// The first part of a pipeline, which emits frames or packets. Its thread requests the next item when the
/// previous item has passed all stages of the thread.
///
/// ```
/// use framepath::format::{Layout, PixelFormat};
/// use framepath::{HopFailure, FrameMeta, Item, Options, Out, Pipeline, Pool, Rational, Source, StreamInfo};
///
/// /// Grey pictures that become lighter.
/// struct Fade {
///     layout: Layout,
///     pool: Pool,
///     next: u8,
/// }
///
/// impl Source for Fade {
///     fn info(&self) -> StreamInfo {
///         StreamInfo::from_layout(&self.layout, Rational::new(25, 1))
///     }
///
///     fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
///         let birth_ns = out.birth();
///         let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
///         frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
///         frame.plane_mut(0).fill(self.next);
///         let seq = u64::from(self.next);
///         let meta = FrameMeta { seq, birth_ns, pts: Some(seq as i64), duration: 1, ..FrameMeta::default() };
///         self.next += 1;
///         out.push(Item::Frame(frame.freeze(meta)))?;
///         Ok(self.next < 100)
///     }
/// }
///
/// let layout = Layout::packed(PixelFormat::Grey, 64, 48)?;
/// let source = Fade { layout, pool: Pool::new(layout.size, 4)?, next: 0 };
/// let report = Pipeline::from_source(source).sink_fn(|_| ()).run(&Options::default())?;
/// assert_eq!(report.frames, 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Source: Send {
    /// Returns the name for errors and the ledger. The default is the name of the type.
    fn name(&self) -> &str {
        short_name(std::any::type_name::<Self>())
    }

    /// Returns the description of the source's stream.
    fn info(&self) -> StreamInfo;

    /// Returns the description of the source's compressed track, for a later decoder. `None`, the default,
    /// for a source that emits frames, or packets that no decoder of path text has to decode.
    fn track_info(&self) -> Option<TrackInfo> {
        None
    }

    /// True if the items come from the present, such as a camera's or those of a live stream from the network. The sink
    /// `play` then shows each frame at once, instead of at its presentation time. The default is false.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns the time from the stream's start to its end, as far as it is known before the run. `None`, the default, for a source
    /// that has no end or does not know it.
    fn duration(&self) -> Option<Duration> {
        None
    }

    /// Pushes the next item to `out`, with its number and its birth stamp from [`Out::birth`]. Returns
    /// `true` to be called again, also without an item if [`Out::has_request`]. Returns `false` after the
    /// last item, or if a signal or a stop request ends the run; it is then called again only after a seek.
    ///
    /// # Errors
    /// The source's own error by [`Out::fail`], or the unchanged error of a push.
    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure>;

    /// Succeeds if the source answers [`Request::Seek`]. Called before the run.
    ///
    /// # Errors
    /// The reason, for [`RequestError::CannotSeek`](crate::RequestError::CannotSeek).
    fn can_seek(&self) -> Result<(), &'static str> {
        Err("the source is not seekable")
    }

    /// Handles a request from a later hop or from outside the run, between two items. Returns
    /// [`Answered::Done`] if the source has performed it, else [`Answered::PassOn`]. After a seek,
    /// [`produce`](Source::produce) emits the items from that time on, even if the source was at its end.
    /// After a flush it continues at an item where decoding can start. By default performs a flush only,
    /// for which a source without state has nothing to do.
    ///
    /// # Errors
    /// The source could not perform the request. The error ends the run.
    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        Ok(if *request == Request::Flush { Answered::Done } else { Answered::PassOn })
    }
}

/// Makes the option `frames`, with this default, of a source that has no end of its own.
const fn frames(default: &'static str) -> Arg {
    Arg::option(
        "frames",
        ValueKind::count(0, 1_000_000_000_000),
        DefaultValue::Is(default),
        "number of frames; 0: no limit",
    )
    .known_as(&["num-buffers"])
}

/// The option `heap` of a source whose frames devices can share.
const HEAP: Arg = Arg::option(
    "heap",
    ValueKind::Text("the path of a dma-heap's device file, `udmabuf` or `pages`"),
    DefaultValue::Unset("the system's dma-heap, or udmabuf where there is none"),
    "allocator of the memory that devices share (`v4l2`: with io=dmabuf), such as /dev/dma_heap/system; `pages` is \
     ordinary memory",
);

fn heap_of(hop: &Hop) -> Heap {
    if hop.is_set("heap") { Heap::named(hop.text("heap")) } else { Heap::any() }
}
