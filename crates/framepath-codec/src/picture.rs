// SPDX-License-Identifier: MIT OR Apache-2.0
//! Field order and orientation in FFmpeg's description of pictures and streams.

use std::ffi::c_int;

use ffmpeg_sys_next as ff;
use framepath_model::orientation::Orientation;
use framepath_model::stream::{FieldOrder, FrameMeta};

/// Number of 32-bit numbers in a display matrix.
const MATRIX: usize = 9;

/// Returns `meta` with the field order of `frame`, and with its orientation if the bitstream declares one.
///
/// # Safety
/// `frame` is valid.
pub(crate) unsafe fn described(frame: *const ff::AVFrame, meta: FrameMeta) -> FrameMeta {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let orientation = frame_orientation(frame).unwrap_or(meta.orientation);
        FrameMeta { field_order: field_order(frame), orientation, ..meta }
    }
}

/// Returns the field order of `frame`.
///
/// # Safety
/// `frame` is valid.
pub(crate) unsafe fn field_order(frame: *const ff::AVFrame) -> FieldOrder {
    // SAFETY: fields of a valid frame.
    #[cfg(not(frame_has_field_flags))]
    let (interlaced, top_first) = unsafe { ((*frame).interlaced_frame != 0, (*frame).top_field_first != 0) };
    // SAFETY: a field of a valid frame.
    #[cfg(frame_has_field_flags)]
    let (interlaced, top_first) = unsafe {
        let flags = (*frame).flags;
        let has = |flag: c_int| flags & flag != 0;
        (has(ff::AV_FRAME_FLAG_INTERLACED as c_int), has(ff::AV_FRAME_FLAG_TOP_FIELD_FIRST as c_int))
    };
    match (interlaced, top_first) {
        (false, _) => FieldOrder::Progressive,
        (true, true) => FieldOrder::TopFirst,
        (true, false) => FieldOrder::BottomFirst,
    }
}

/// Sets the field order of `frame`.
///
/// # Safety
/// `frame` is valid, and only used here.
pub(crate) unsafe fn set_field_order(frame: *mut ff::AVFrame, order: FieldOrder) {
    let interlaced = order != FieldOrder::Progressive;
    let top_first = order == FieldOrder::TopFirst;
    // SAFETY: fields of a valid frame.
    #[cfg(not(frame_has_field_flags))]
    unsafe {
        (*frame).interlaced_frame = c_int::from(interlaced);
        (*frame).top_field_first = c_int::from(top_first);
    }
    // SAFETY: a field of a valid frame.
    #[cfg(frame_has_field_flags)]
    unsafe {
        let interlaced_flag = ff::AV_FRAME_FLAG_INTERLACED as c_int;
        let top_flag = ff::AV_FRAME_FLAG_TOP_FIELD_FIRST as c_int;
        (*frame).flags &= !(interlaced_flag | top_flag);
        (*frame).flags |= if interlaced { interlaced_flag } else { 0 } | if top_first { top_flag } else { 0 };
    }
}

/// Returns the orientation that the bitstream declares for `frame`, such as EXIF in a JPEG picture; `None`
/// if it declares none.
///
/// # Safety
/// `frame` is valid.
unsafe fn frame_orientation(frame: *const ff::AVFrame) -> Option<Orientation> {
    let kind = ff::AVFrameSideDataType::AV_FRAME_DATA_DISPLAYMATRIX;
    // SAFETY: a valid frame, whose side data the frame keeps.
    unsafe {
        let side = ff::av_frame_get_side_data(frame, kind);
        if side.is_null() { None } else { orientation((*side).data, (*side).size as usize) }
    }
}

/// Returns the orientation that the container declares for `stream`; upright if it declares none.
///
/// # Safety
/// `stream` is valid.
pub(crate) unsafe fn stream_orientation(stream: *const ff::AVStream) -> Orientation {
    let kind = ff::AVPacketSideDataType::AV_PKT_DATA_DISPLAYMATRIX;
    // SAFETY: a valid stream, which keeps its side data.
    #[cfg(not(frame_has_field_flags))]
    let found = unsafe {
        let mut size = 0;
        let data = ff::av_stream_get_side_data(stream, kind, &mut size);
        orientation(data, size)
    };
    // SAFETY: as above.
    #[cfg(frame_has_field_flags)]
    let found = unsafe {
        let parameters = (*stream).codecpar;
        let (all, count) = ((*parameters).coded_side_data, (*parameters).nb_coded_side_data);
        let side = ff::av_packet_side_data_get(all, count, kind);
        if side.is_null() { None } else { orientation((*side).data, (*side).size as usize) }
    };
    found.unwrap_or_default()
}

/// Returns the orientation of the display matrix in the `size` bytes at `data`; `None` if `data` is
/// null or has fewer bytes than a matrix.
///
/// # Safety
/// `data` is null or has `size` readable bytes.
unsafe fn orientation(data: *const u8, size: usize) -> Option<Orientation> {
    if data.is_null() || size < MATRIX * size_of::<i32>() {
        return None;
    }
    // SAFETY: checked above; the bytes may be unaligned.
    let [a, b, c, d] = unsafe { [0, 1, 3, 4].map(|at| data.cast::<i32>().add(at).read_unaligned()) };
    Some(Orientation::from_matrix(a, b, c, d))
}
