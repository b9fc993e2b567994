// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a frame as a buffer of GStreamer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use framepath::Frame;
use gst_video::video_frame::VideoBufferExt;
use gst_video::{VideoFrameFlags, VideoInfo, VideoMeta};

use crate::fields::buffer_flags;

/// Frames of the decoder that a pipeline may keep while the decoder goes on (see `framepath::Frames`); further ones are copied.
const MOST_KEPT: usize = 4;

/// Number of frames that the pipeline keeps.
pub(crate) type KeptFrames = Arc<AtomicUsize>;

/// Frame whose memory a buffer of GStreamer has.
struct KeptFrame {
    /// Keeps the memory.
    _frame: Frame,
    count: KeptFrames,
}

impl Drop for KeptFrame {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Part of a frame's memory.
struct Part {
    _frame: Arc<KeptFrame>,
    first: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the part is inside the frame's slot, which the frame keeps. A frame of a sandboxed process can change at any time;
        // GStreamer takes only the address and the length of this slice, and no Rust code reads it.
        unsafe { std::slice::from_raw_parts(self.first as *const u8, self.bytes) }
    }
}

/// Makes a buffer of a frame: of its own memory if the pipeline keeps few frames and finds the planes there, else of a copy.
/// `has_meta`: the elements behind understand [`VideoMeta`], so the planes may be anywhere.
pub(crate) fn buffer(
    frame: Frame,
    info: &VideoInfo,
    kept: &KeptFrames,
    has_meta: bool,
) -> Result<gst::Buffer, gst::FlowError> {
    let flags = buffer_flags(frame.meta().field_order);
    let parts = parts(&frame, info, has_meta).filter(|_| kept.load(Ordering::Acquire) < MOST_KEPT);
    let mut buffer = match parts {
        Some(parts) => shared(frame, info, kept, parts)?,
        None => copy(&frame, info),
    };
    buffer.get_mut().ok_or(gst::FlowError::Error)?.set_video_flags(flags);
    Ok(buffer)
}

/// Makes a buffer of these parts of a frame's own memory.
fn shared(
    frame: Frame,
    info: &VideoInfo,
    kept: &KeptFrames,
    parts: Vec<(usize, usize)>,
) -> Result<gst::Buffer, gst::FlowError> {
    let layout = *frame.layout();
    let planes = layout.planes();
    // Offsets of GStreamer count the parts as if they were one behind the other.
    let first = parts[0].0;
    let offsets: Vec<usize> = match parts.len() {
        1 => (0..planes.len()).map(|index| address(&frame, index) - first).collect(),
        _ => info.offset().to_vec(),
    };
    let strides: Vec<i32> = planes.iter().map(|plane| plane.stride as i32).collect();
    kept.fetch_add(1, Ordering::AcqRel);
    let frame = Arc::new(KeptFrame { _frame: frame, count: kept.clone() });
    let mut buffer = gst::Buffer::new();
    let writable = buffer.get_mut().ok_or(gst::FlowError::Error)?;
    for (first, bytes) in parts {
        writable.append_memory(gst::Memory::from_slice(Part { _frame: frame.clone(), first, bytes }));
    }
    let (format, width, height) = (info.format(), layout.width, layout.height);
    // The fields are in the buffer's flags, as other decoders have them.
    VideoMeta::add_full(writable, VideoFrameFlags::empty(), format, width, height, &offsets, &strides)
        .map_err(|_| gst::FlowError::Error)?;
    Ok(buffer)
}

fn address(frame: &Frame, plane: usize) -> usize {
    frame.plane(plane).as_ptr() as usize
}

/// Returns the addresses and lengths of the parts of a frame's memory that make a buffer: one with all planes; or, for elements that
/// know only GStreamer's usual places, one for each plane. `None` if the planes cannot be put to these places.
fn parts(frame: &Frame, info: &VideoInfo, has_meta: bool) -> Option<Vec<(usize, usize)>> {
    let planes = frame.layout().planes();
    let count = planes.len();
    if has_meta {
        let first = (0..count).map(|index| address(frame, index)).min()?;
        let end = (0..count).map(|index| address(frame, index) + frame.plane(index).len()).max()?;
        return Some(vec![(first, end - first)]);
    }
    let mut parts = Vec::new();
    for (index, plane) in planes.iter().enumerate() {
        let end = info.offset().get(index + 1).copied().unwrap_or(info.size());
        let bytes = end - info.offset()[index];
        // The last row of a plane may be without its padding.
        if plane.stride as i32 != info.stride()[index] || frame.plane(index).len() != bytes {
            return None;
        }
        parts.push((address(frame, index), bytes));
    }
    Some(parts)
}

/// Copies a frame into a buffer with GStreamer's usual places of the planes.
fn copy(frame: &Frame, info: &VideoInfo) -> gst::Buffer {
    let mut bytes = vec![0; info.size()];
    for (index, plane) in frame.layout().planes().iter().enumerate() {
        let stride = info.stride()[index] as usize;
        for y in 0..plane.rows {
            let at = info.offset()[index] + y * stride;
            frame.row(index, y).copy_to(&mut bytes[at..at + plane.width]);
        }
    }
    gst::Buffer::from_mut_slice(bytes)
}
