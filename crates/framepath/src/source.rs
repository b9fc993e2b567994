// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a source is.

pub(crate) mod file;
pub(crate) mod fixture;
mod pace;
pub(crate) mod pattern;
pub(crate) mod test;
pub(crate) mod v4l2;

use framepath_model::stream::StreamInfo;

pub(crate) use pace::Pace;

use crate::out::{Failure, Out};
use crate::stage::short_name;

/// Gives frames or packets; the thread that runs it asks for the next when the
/// one before has passed the whole chain.
///
/// ```
/// use framepath::format::{Layout, PixelFormat};
/// use framepath::{Failure, FrameMeta, Item, Options, Out, Pipeline, Pool, Rational, Source, StreamInfo};
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
///         StreamInfo::of_frames(&self.layout, Rational::new(25, 1))
///     }
///
///     fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, Failure> {
///         let birth_ns = out.birth();
///         let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
///         frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
///         frame.plane_mut(0).fill(self.next);
///         let seq = u64::from(self.next);
///         let meta = FrameMeta { seq, birth_ns, pts: Some(seq as i64), duration: 1 };
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
    /// Name in errors and in the ledger; by default the type's.
    fn name(&self) -> &str {
        short_name(std::any::type_name::<Self>())
    }

    /// The stream it gives.
    fn info(&self) -> StreamInfo;

    /// Pushes the next item to `out`, numbered and with its birth stamp from
    /// [`Out::birth`]. `false` at the end: it is not called again.
    ///
    /// # Errors
    /// Its own by [`Out::fail`], or what a push returned, as it is.
    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, Failure>;
}
