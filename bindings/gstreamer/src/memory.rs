// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a frame as a buffer of GStreamer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use framepath::Frame;
use gst_video::{VideoFormat, VideoFrameFlags, VideoMeta};

/// Frames of the decoder that a pipeline may keep while the decoder goes on (see `framepath::Frames`); further ones are copied.
const MOST_KEPT: usize = 4;

/// Number of frames that the pipeline keeps.
pub(crate) type KeptFrames = Arc<AtomicUsize>;

/// Frame inside a memory of GStreamer.
struct WrappedFrame {
    /// Keeps the memory.
    _frame: Frame,
    first: usize,
    bytes: usize,
    kept: KeptFrames,
}

impl AsRef<[u8]> for WrappedFrame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the planes are inside the frame's slot, which the frame keeps. A frame of a sandboxed process can change at any time;
        // GStreamer takes only the address and the length of this slice, and no Rust code reads it.
        unsafe { std::slice::from_raw_parts(self.first as *const u8, self.bytes) }
    }
}

impl Drop for WrappedFrame {
    fn drop(&mut self) {
        self.kept.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Places of a frame's planes in a buffer.
struct PlanePlaces {
    offsets: Vec<usize>,
    strides: Vec<i32>,
}

/// Makes a buffer of a frame: of its own memory if the pipeline keeps few frames and understands strides (`has_meta`), else of a copy.
pub(crate) fn buffer(
    frame: Frame,
    format: VideoFormat,
    kept: &KeptFrames,
    has_meta: bool,
) -> Result<gst::Buffer, gst::FlowError> {
    let layout = *frame.layout();
    if has_meta && kept.load(Ordering::Acquire) < MOST_KEPT {
        let planes = layout.planes();
        let address = |index: usize| frame.plane(index).as_ptr() as usize;
        let first = (0..planes.len()).map(address).min().unwrap_or(0);
        let end = (0..planes.len()).map(|index| address(index) + frame.plane(index).len()).max().unwrap_or(0);
        let places = PlanePlaces {
            offsets: (0..planes.len()).map(|index| address(index) - first).collect(),
            strides: planes.iter().map(|plane| plane.stride as i32).collect(),
        };
        kept.fetch_add(1, Ordering::AcqRel);
        let wrapped = WrappedFrame { _frame: frame, first, bytes: end - first, kept: kept.clone() };
        let mut buffer = gst::Buffer::new();
        let writable = buffer.get_mut().ok_or(gst::FlowError::Error)?;
        writable.append_memory(gst::Memory::from_slice(wrapped));
        add_meta(writable, format, (layout.width, layout.height), &places)?;
        return Ok(buffer);
    }
    copy(&frame, format)
}

fn add_meta(
    buffer: &mut gst::BufferRef,
    format: VideoFormat,
    (width, height): (u32, u32),
    places: &PlanePlaces,
) -> Result<(), gst::FlowError> {
    let PlanePlaces { offsets, strides } = places;
    VideoMeta::add_full(buffer, VideoFrameFlags::empty(), format, width, height, offsets, strides)
        .map(|_| ())
        .map_err(|_| gst::FlowError::Error)
}

/// Copies a frame into a buffer with GStreamer's usual places of the planes.
fn copy(frame: &Frame, format: VideoFormat) -> Result<gst::Buffer, gst::FlowError> {
    let layout = frame.layout();
    let info = gst_video::VideoInfo::builder(format, layout.width, layout.height).build();
    let info = info.map_err(|_| gst::FlowError::NotNegotiated)?;
    let mut bytes = vec![0; info.size()];
    for (index, plane) in layout.planes().iter().enumerate() {
        let stride = info.stride()[index] as usize;
        for y in 0..plane.rows {
            let at = info.offset()[index] + y * stride;
            frame.row(index, y).copy_to(&mut bytes[at..at + plane.width]);
        }
    }
    Ok(gst::Buffer::from_mut_slice(bytes))
}
