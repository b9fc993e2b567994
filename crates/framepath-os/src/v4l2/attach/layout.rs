// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of the decoder interface with `kernel/uapi/framepath.h`, for
//! `tests/c_layout.rs`.

use super::*;
use crate::c_layout::{Facts, numbers, structure};

pub(crate) fn list(facts: &mut Facts) {
    structure!(facts, None, Attach = "struct fp_attach" {
        version = "version", reserved = "reserved",
    });
    structure!(facts, None, Accept = "struct fp_accept" {
        id = "id", codec = "codec", stream = "stream", stash = "stash", width = "width",
        height = "height", epoch = "epoch", uid = "uid", flags = "flags",
    });
    structure!(facts, None, PacketMark = "struct fp_mark" {
        timestamp = "timestamp", flags = "flags", field = "field", timecode = "timecode",
    });
    structure!(facts, None, PacketInfo = "struct fp_packet" {
        kind = "kind", epoch = "epoch", seq = "seq", index = "index", generation = "generation",
        offset = "offset", bytes = "bytes", mark = "mark",
    });
    structure!(facts, None, PacketDone = "struct fp_packet_done" {
        seq = "seq", index = "index", failed = "failed",
    });
    structure!(facts, None, CaptureInfo = "struct fp_capture" {
        kind = "kind", epoch = "epoch", index = "index", generation = "generation", count = "count",
        pixelformat = "pixelformat", length = "length", reserved = "reserved",
    });
    structure!(facts, None, Export = "struct fp_export" {
        queue = "queue", index = "index", generation = "generation", fd = "fd",
    });
    structure!(facts, None, StreamFormat = "struct fp_format" {
        epoch = "epoch", depth = "depth", width = "width", height = "height",
        bytesperline = "bytesperline", left = "left", top = "top", visible_width = "visible_width",
        visible_height = "visible_height", sizeimage_native = "sizeimage_native",
        sizeimage_packed = "sizeimage_packed", min_buffers = "min_buffers", colorspace = "colorspace",
        xfer_func = "xfer_func", ycbcr_enc = "ycbcr_enc", quantization = "quantization",
    });
    structure!(facts, None, FrameInfo = "struct fp_frame" {
        seq = "seq", epoch = "epoch", index = "index", generation = "generation", failed = "failed",
        copied = "copied", reserved = "reserved", mark = "mark",
    });
    structure!(facts, None, DrainedInfo = "struct fp_drained" {
        epoch = "epoch", why = "why", index = "index", reserved = "reserved",
    });
    structure!(facts, None, Fail = "struct fp_fail" { error = "error", reserved = "reserved" });
    structure!(facts, None, Delivered = "struct fp_delivered" {
        first = "first", next = "next", bits = "bits",
    });
    numbers!(facts {
        VERSION => "FRAMEPATH_VERSION",
        STASH_BYTES => "FRAMEPATH_STASH_BYTES",
        LIMITED => "FRAMEPATH_ACCEPT_LIMITED",
        CAPTURE => "FRAMEPATH_QUEUE_CAPTURE",
        DELIVERED => "sizeof(((struct fp_delivered *)0)->bits) * 8",
        PACKET => "FRAMEPATH_PACKET",
        DRAIN => "FRAMEPATH_DRAIN",
        FLUSH => "FRAMEPATH_FLUSH",
        CAPTURE_ON => "FRAMEPATH_CAPTURE_ON",
        CAPTURE_OFF => "FRAMEPATH_CAPTURE_OFF",
        CAPTURE_QUEUED => "FRAMEPATH_CAPTURE_QUEUED",
        CAPTURE_FLUSH => "FRAMEPATH_CAPTURE_FLUSH",
        Drained::End => "FRAMEPATH_DRAINED_END",
        Drained::Change => "FRAMEPATH_DRAINED_CHANGE",
        ATTACH => "FRAMEPATH_IOC_ATTACH",
        ACCEPT => "FRAMEPATH_IOC_ACCEPT",
        NEXT_PACKET => "FRAMEPATH_IOC_NEXT_PACKET",
        PACKET_DONE => "FRAMEPATH_IOC_PACKET_DONE",
        NEXT_CAPTURE => "FRAMEPATH_IOC_NEXT_CAPTURE",
        EXPORT => "FRAMEPATH_IOC_EXPORT",
        FORMAT => "FRAMEPATH_IOC_FORMAT",
        FRAME => "FRAMEPATH_IOC_FRAME",
        DRAINED => "FRAMEPATH_IOC_DRAINED",
        FAIL => "FRAMEPATH_IOC_FAIL",
        DELIVERED_IOC => "FRAMEPATH_IOC_DELIVERED",
        STOP => "FRAMEPATH_IOC_STOP",
    });
}
