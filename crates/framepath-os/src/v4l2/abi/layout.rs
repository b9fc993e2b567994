// SPDX-License-Identifier: MIT OR Apache-2.0
//! List of the structures and constants that `abi` mirrors, each with its C name in
//! `linux/videodev2.h`. `tests/c_layout.rs` compares their sizes, offsets and values with the header.

use super::*;
use crate::c_layout::{Facts, members, numbers, structure};

pub(in crate::v4l2) fn list(facts: &mut Facts) {
    formats(facts);
    buffers(facts);
    controls_and_events(facts);
    constants(facts);
}

fn formats(facts: &mut Facts) {
    structure!(facts, Allowed, Capability = "struct v4l2_capability" {
        driver = "driver", card = "card", bus_info = "bus_info", version = "version",
        capabilities = "capabilities", device_caps = "device_caps", reserved = "reserved",
    });
    structure!(facts, Allowed, FmtDesc = "struct v4l2_fmtdesc" {
        index = "index", kind = "type", flags = "flags", description = "description",
        pixelformat = "pixelformat", mbus_code = "mbus_code", reserved = "reserved",
    });
    structure!(facts, Allowed, PixFormat = "struct v4l2_pix_format" {
        width = "width", height = "height", pixelformat = "pixelformat", field = "field",
        bytesperline = "bytesperline", sizeimage = "sizeimage", colorspace = "colorspace",
        private = "priv", flags = "flags", ycbcr_enc = "ycbcr_enc", quantization = "quantization",
        xfer_func = "xfer_func",
    });
    structure!(facts, Allowed, PlanePixFormat = "struct v4l2_plane_pix_format" {
        sizeimage = "sizeimage", bytesperline = "bytesperline", reserved = "reserved",
    });
    structure!(facts, Allowed, PixFormatMplane = "struct v4l2_pix_format_mplane" {
        width = "width", height = "height", pixelformat = "pixelformat", field = "field",
        colorspace = "colorspace", planes = "plane_fmt", num_planes = "num_planes", flags = "flags",
        ycbcr_enc = "ycbcr_enc", quantization = "quantization", xfer_func = "xfer_func",
        reserved = "reserved",
    });
    structure!(facts, Allowed, RawFormat = "struct v4l2_format" { kind = "type", body = "fmt" });
    members!(facts, Allowed, FormatBody = "__typeof__(((struct v4l2_format *)0)->fmt)" {
        pix = "pix", pix_mp = "pix_mp", raw = "raw_data",
    });
    structure!(facts, Allowed, StreamParm = "struct v4l2_streamparm" {
        kind = "type", capability = "parm.capture.capability",
        capture_mode = "parm.capture.capturemode",
        numerator = "parm.capture.timeperframe.numerator",
        denominator = "parm.capture.timeperframe.denominator", rest = "",
    });
    structure!(facts, Allowed, Selection = "struct v4l2_selection" {
        kind = "type", target = "target", flags = "flags", left = "r.left", top = "r.top",
        width = "r.width", height = "r.height", reserved = "reserved",
    });
}

fn buffers(facts: &mut Facts) {
    structure!(facts, Allowed, RequestBuffers = "struct v4l2_requestbuffers" {
        count = "count", kind = "type", memory = "memory", capabilities = "capabilities",
        flags = "flags", reserved = "reserved",
    });
    members!(facts, Allowed, RawMemory = "__typeof__(((struct v4l2_buffer *)0)->m)" {
        offset = "offset", userptr = "userptr", fd = "fd", planes = "planes", whole = "",
    });
    members!(facts, Allowed, RawMemory = "__typeof__(((struct v4l2_plane *)0)->m)" {
        offset = "mem_offset", userptr = "userptr", fd = "fd",
    });
    structure!(facts, Allowed, RawPlane = "struct v4l2_plane" {
        bytesused = "bytesused", length = "length", m = "m", data_offset = "data_offset",
        reserved = "reserved",
    });
    structure!(facts, Allowed, Buffer = "struct v4l2_buffer" {
        index = "index", kind = "type", bytesused = "bytesused", flags = "flags", field = "field",
        seconds = "timestamp.tv_sec", microseconds = "timestamp.tv_usec", timecode = "timecode",
        sequence = "sequence", memory = "memory", m = "m", length = "length", reserved2 = "reserved2",
        request_fd = "request_fd",
    });
    structure!(facts, Allowed, ExportBuffer = "struct v4l2_exportbuffer" {
        kind = "type", index = "index", plane = "plane", flags = "flags", fd = "fd",
        reserved = "reserved",
    });
}

fn controls_and_events(facts: &mut Facts) {
    structure!(facts, Allowed, RawControl = "struct v4l2_control" { id = "id", value = "value" });
    structure!(facts, Allowed, ExtControl = "struct v4l2_ext_control" {
        id = "id", size = "size", reserved = "reserved2", value = "string",
    });
    structure!(facts, Allowed, ExtControls = "struct v4l2_ext_controls" {
        which = "which", count = "count", error_idx = "error_idx", request_fd = "request_fd",
        reserved = "reserved", controls = "controls",
    });
    structure!(facts, Allowed, DecoderCmd = "struct v4l2_decoder_cmd" {
        cmd = "cmd", flags = "flags", raw = "raw.data",
    });
    structure!(facts, Allowed, EventBody = "__typeof__(((struct v4l2_event *)0)->u)" { 0 = "data" });
    structure!(facts, Allowed, RawEvent = "struct v4l2_event" {
        kind = "type", body = "u", pending = "pending", sequence = "sequence",
        seconds = "timestamp.tv_sec", nanoseconds = "timestamp.tv_nsec", id = "id",
        reserved = "reserved",
    });
    // For an event SOURCE_CHANGE, the first bytes of `body` are read as the field `changes`.
    let body = std::mem::offset_of!(RawEvent, body) as u64;
    facts.number("Event.body (changes)", "offsetof(struct v4l2_event, u.src_change.changes)", body);
    structure!(facts, Allowed, EventSubscription = "struct v4l2_event_subscription" {
        kind = "type", id = "id", flags = "flags", reserved = "reserved",
    });
}

fn constants(facts: &mut Facts) {
    numbers!(facts {
        CAP_VIDEO_CAPTURE => "V4L2_CAP_VIDEO_CAPTURE",
        CAP_VIDEO_OUTPUT => "V4L2_CAP_VIDEO_OUTPUT",
        CAP_VIDEO_CAPTURE_MPLANE => "V4L2_CAP_VIDEO_CAPTURE_MPLANE",
        CAP_VIDEO_OUTPUT_MPLANE => "V4L2_CAP_VIDEO_OUTPUT_MPLANE",
        CAP_VIDEO_M2M_MPLANE => "V4L2_CAP_VIDEO_M2M_MPLANE",
        CAP_VIDEO_M2M => "V4L2_CAP_VIDEO_M2M",
        CAP_READWRITE => "V4L2_CAP_READWRITE",
        CAP_STREAMING => "V4L2_CAP_STREAMING",
        CAP_DEVICE_CAPS => "V4L2_CAP_DEVICE_CAPS",
        TYPE_CAPTURE => "V4L2_BUF_TYPE_VIDEO_CAPTURE",
        TYPE_OUTPUT => "V4L2_BUF_TYPE_VIDEO_OUTPUT",
        TYPE_CAPTURE_MPLANE => "V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE",
        TYPE_OUTPUT_MPLANE => "V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE",
        MEMORY_MMAP => "V4L2_MEMORY_MMAP",
        MEMORY_USERPTR => "V4L2_MEMORY_USERPTR",
        MEMORY_DMABUF => "V4L2_MEMORY_DMABUF",
        FIELD_ANY => "V4L2_FIELD_ANY",
        FIELD_NONE => "V4L2_FIELD_NONE",
        FMT_FLAG_COMPRESSED => "V4L2_FMT_FLAG_COMPRESSED",
        BUF_FLAG_ERROR => "V4L2_BUF_FLAG_ERROR",
        BUF_FLAG_TIMESTAMP_MASK => "V4L2_BUF_FLAG_TIMESTAMP_MASK",
        BUF_FLAG_TIMESTAMP_MONOTONIC => "V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC",
        BUF_FLAG_LAST => "V4L2_BUF_FLAG_LAST",
        SEL_TGT_COMPOSE => "V4L2_SEL_TGT_COMPOSE",
        EVENT_EOS => "V4L2_EVENT_EOS",
        EVENT_SOURCE_CHANGE => "V4L2_EVENT_SOURCE_CHANGE",
        EVENT_SRC_CH_RESOLUTION => "V4L2_EVENT_SRC_CH_RESOLUTION",
        DEC_CMD_START => "V4L2_DEC_CMD_START",
        DEC_CMD_STOP => "V4L2_DEC_CMD_STOP",
        CID_MIN_BUFFERS_FOR_CAPTURE => "V4L2_CID_MIN_BUFFERS_FOR_CAPTURE",
        MOST_PLANES => "VIDEO_MAX_PLANES",
        COLORSPACE_SMPTE170M => "V4L2_COLORSPACE_SMPTE170M",
        COLORSPACE_SMPTE240M => "V4L2_COLORSPACE_SMPTE240M",
        COLORSPACE_REC709 => "V4L2_COLORSPACE_REC709",
        COLORSPACE_470_SYSTEM_M => "V4L2_COLORSPACE_470_SYSTEM_M",
        COLORSPACE_470_SYSTEM_BG => "V4L2_COLORSPACE_470_SYSTEM_BG",
        COLORSPACE_JPEG => "V4L2_COLORSPACE_JPEG",
        COLORSPACE_SRGB => "V4L2_COLORSPACE_SRGB",
        COLORSPACE_BT2020 => "V4L2_COLORSPACE_BT2020",
        COLORSPACE_DCI_P3 => "V4L2_COLORSPACE_DCI_P3",
        XFER_FUNC_709 => "V4L2_XFER_FUNC_709",
        XFER_FUNC_SRGB => "V4L2_XFER_FUNC_SRGB",
        XFER_FUNC_SMPTE240M => "V4L2_XFER_FUNC_SMPTE240M",
        XFER_FUNC_NONE => "V4L2_XFER_FUNC_NONE",
        XFER_FUNC_DCI_P3 => "V4L2_XFER_FUNC_DCI_P3",
        XFER_FUNC_SMPTE2084 => "V4L2_XFER_FUNC_SMPTE2084",
        YCBCR_ENC_601 => "V4L2_YCBCR_ENC_601",
        YCBCR_ENC_709 => "V4L2_YCBCR_ENC_709",
        YCBCR_ENC_XV601 => "V4L2_YCBCR_ENC_XV601",
        YCBCR_ENC_XV709 => "V4L2_YCBCR_ENC_XV709",
        YCBCR_ENC_SYCC => "V4L2_YCBCR_ENC_SYCC",
        YCBCR_ENC_BT2020 => "V4L2_YCBCR_ENC_BT2020",
        YCBCR_ENC_BT2020_CONST_LUM => "V4L2_YCBCR_ENC_BT2020_CONST_LUM",
        YCBCR_ENC_SMPTE240M => "V4L2_YCBCR_ENC_SMPTE240M",
        QUANTIZATION_FULL_RANGE => "V4L2_QUANTIZATION_FULL_RANGE",
        QUANTIZATION_LIM_RANGE => "V4L2_QUANTIZATION_LIM_RANGE",
        QUERYCAP => "VIDIOC_QUERYCAP",
        ENUM_FMT => "VIDIOC_ENUM_FMT",
        G_FMT => "VIDIOC_G_FMT",
        S_FMT => "VIDIOC_S_FMT",
        REQBUFS => "VIDIOC_REQBUFS",
        QUERYBUF => "VIDIOC_QUERYBUF",
        QBUF => "VIDIOC_QBUF",
        EXPBUF => "VIDIOC_EXPBUF",
        DQBUF => "VIDIOC_DQBUF",
        STREAMON => "VIDIOC_STREAMON",
        STREAMOFF => "VIDIOC_STREAMOFF",
        G_PARM => "VIDIOC_G_PARM",
        S_PARM => "VIDIOC_S_PARM",
        G_CTRL => "VIDIOC_G_CTRL",
        G_SELECTION => "VIDIOC_G_SELECTION",
        S_EXT_CTRLS => "VIDIOC_S_EXT_CTRLS",
        DQEVENT => "VIDIOC_DQEVENT",
        SUBSCRIBE_EVENT => "VIDIOC_SUBSCRIBE_EVENT",
        DECODER_CMD => "VIDIOC_DECODER_CMD",
    });
}
