// SPDX-License-Identifier: MIT OR Apache-2.0
//! The used part of `linux/videodev2.h`: structures, ioctl numbers, constants. For machines with
//! 64-bit longs, of either byte order.

pub(super) mod layout;

use rustix::ioctl::{Opcode, opcode};

pub(super) const CAP_VIDEO_CAPTURE: u32 = 0x1;
pub(super) const CAP_VIDEO_OUTPUT: u32 = 0x2;
pub(super) const CAP_VIDEO_CAPTURE_MPLANE: u32 = 0x1000;
pub(super) const CAP_VIDEO_OUTPUT_MPLANE: u32 = 0x2000;
pub(super) const CAP_VIDEO_M2M_MPLANE: u32 = 0x4000;
pub(super) const CAP_VIDEO_M2M: u32 = 0x8000;
pub(super) const CAP_READWRITE: u32 = 0x0100_0000;
pub(super) const CAP_STREAMING: u32 = 0x0400_0000;
pub(super) const CAP_DEVICE_CAPS: u32 = 0x8000_0000;

pub(super) const TYPE_CAPTURE: u32 = 1;
pub(super) const TYPE_OUTPUT: u32 = 2;
pub(super) const TYPE_CAPTURE_MPLANE: u32 = 9;
pub(super) const TYPE_OUTPUT_MPLANE: u32 = 10;

pub(super) const MEMORY_MMAP: u32 = 1;
pub(super) const MEMORY_USERPTR: u32 = 2;
pub(super) const MEMORY_DMABUF: u32 = 4;

pub(super) const FIELD_ANY: u32 = 0;
pub(super) const FIELD_NONE: u32 = 1;

pub(super) const FMT_FLAG_COMPRESSED: u32 = 1;

pub(super) const BUF_FLAG_ERROR: u32 = 0x40;
pub(super) const BUF_FLAG_TIMESTAMP_MASK: u32 = 0xe000;
pub(super) const BUF_FLAG_TIMESTAMP_MONOTONIC: u32 = 0x2000;
pub(super) const BUF_FLAG_LAST: u32 = 0x0010_0000;

pub(super) const SEL_TGT_COMPOSE: u32 = 0x100;

pub(super) const EVENT_EOS: u32 = 2;
pub(super) const EVENT_SOURCE_CHANGE: u32 = 5;
pub(super) const EVENT_SRC_CH_RESOLUTION: u32 = 1;

pub(super) const DEC_CMD_START: u32 = 0;
pub(super) const DEC_CMD_STOP: u32 = 1;

pub(super) const CID_MIN_BUFFERS_FOR_CAPTURE: u32 = 0x0098_0927;

pub(super) const COLORSPACE_SMPTE170M: u32 = 1;
pub(super) const COLORSPACE_SMPTE240M: u32 = 2;
pub(super) const COLORSPACE_REC709: u32 = 3;
pub(super) const COLORSPACE_470_SYSTEM_M: u32 = 5;
pub(super) const COLORSPACE_470_SYSTEM_BG: u32 = 6;
pub(super) const COLORSPACE_JPEG: u32 = 7;
pub(super) const COLORSPACE_SRGB: u32 = 8;
pub(super) const COLORSPACE_BT2020: u32 = 10;
pub(super) const COLORSPACE_DCI_P3: u32 = 12;

pub(super) const XFER_FUNC_709: u32 = 1;
pub(super) const XFER_FUNC_SRGB: u32 = 2;
pub(super) const XFER_FUNC_SMPTE240M: u32 = 4;
pub(super) const XFER_FUNC_NONE: u32 = 5;
pub(super) const XFER_FUNC_DCI_P3: u32 = 6;
pub(super) const XFER_FUNC_SMPTE2084: u32 = 7;

pub(super) const YCBCR_ENC_601: u32 = 1;
pub(super) const YCBCR_ENC_709: u32 = 2;
pub(super) const YCBCR_ENC_XV601: u32 = 3;
pub(super) const YCBCR_ENC_XV709: u32 = 4;
pub(super) const YCBCR_ENC_SYCC: u32 = 5;
pub(super) const YCBCR_ENC_BT2020: u32 = 6;
pub(super) const YCBCR_ENC_BT2020_CONST_LUM: u32 = 7;
pub(super) const YCBCR_ENC_SMPTE240M: u32 = 8;

pub(super) const QUANTIZATION_FULL_RANGE: u32 = 1;
pub(super) const QUANTIZATION_LIM_RANGE: u32 = 2;

pub(super) const MOST_PLANES: usize = 8;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Capability {
    pub driver: [u8; 16],
    pub card: [u8; 32],
    pub bus_info: [u8; 32],
    pub version: u32,
    pub capabilities: u32,
    pub device_caps: u32,
    pub reserved: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct FmtDesc {
    pub index: u32,
    pub kind: u32,
    pub flags: u32,
    pub description: [u8; 32],
    pub pixelformat: u32,
    pub mbus_code: u32,
    pub reserved: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PixFormat {
    pub width: u32,
    pub height: u32,
    pub pixelformat: u32,
    pub field: u32,
    pub bytesperline: u32,
    pub sizeimage: u32,
    pub colorspace: u32,
    pub private: u32,
    pub flags: u32,
    pub ycbcr_enc: u32,
    pub quantization: u32,
    pub xfer_func: u32,
}

/// `struct v4l2_plane_pix_format`, packed in C with an alignment of two bytes.
#[repr(C, packed(2))]
#[derive(Clone, Copy, Default)]
pub(super) struct PlanePixFormat {
    pub sizeimage: u32,
    pub bytesperline: u32,
    pub reserved: [u16; 6],
}

#[repr(C, packed(2))]
#[derive(Clone, Copy, Default)]
pub(super) struct PixFormatMplane {
    pub width: u32,
    pub height: u32,
    pub pixelformat: u32,
    pub field: u32,
    pub colorspace: u32,
    pub planes: [PlanePixFormat; MOST_PLANES],
    pub num_planes: u8,
    pub flags: u8,
    pub ycbcr_enc: u8,
    pub quantization: u8,
    pub xfer_func: u8,
    pub reserved: [u8; 7],
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) union FormatBody {
    pub pix: PixFormat,
    pub pix_mp: PixFormatMplane,
    pub raw: [u8; 200],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawFormat {
    pub kind: u32,
    pub body: FormatBody,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RequestBuffers {
    pub count: u32,
    pub kind: u32,
    pub memory: u32,
    pub capabilities: u32,
    pub flags: u8,
    pub reserved: [u8; 3],
}

/// Location of a buffer's memory: an offset, an address, a descriptor, or the address of planes.
/// Only the used member is written, the rest is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union RawMemory {
    pub offset: u32,
    pub userptr: usize,
    pub fd: i32,
    pub planes: *mut RawPlane,
    pub whole: u64,
}

impl Default for RawMemory {
    fn default() -> RawMemory {
        RawMemory { whole: 0 }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawPlane {
    pub bytesused: u32,
    pub length: u32,
    pub m: RawMemory,
    pub data_offset: u32,
    pub reserved: [u32; 11],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Buffer {
    pub index: u32,
    pub kind: u32,
    pub bytesused: u32,
    pub flags: u32,
    pub field: u32,
    /// Whole seconds of the timestamp, `struct timeval`.
    pub seconds: i64,
    /// Microseconds of the timestamp after `seconds`, `struct timeval`.
    pub microseconds: i64,
    /// Time code, `struct v4l2_timecode`; not used here.
    pub timecode: [u32; 4],
    pub sequence: u32,
    pub memory: u32,
    pub m: RawMemory,
    pub length: u32,
    pub reserved2: u32,
    pub request_fd: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ExportBuffer {
    pub kind: u32,
    pub index: u32,
    pub plane: u32,
    pub flags: u32,
    pub fd: i32,
    pub reserved: [u32; 11],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Selection {
    pub kind: u32,
    pub target: u32,
    pub flags: u32,
    pub left: i32,
    pub top: i32,
    pub width: u32,
    pub height: u32,
    pub reserved: [u32; 9],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawControl {
    pub id: u32,
    pub value: i32,
}

/// `struct v4l2_ext_control`, packed in C.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Default)]
pub(super) struct ExtControl {
    pub id: u32,
    pub size: u32,
    pub reserved: u32,
    /// Value of the control, in native byte order. A 32-bit value is in the first four bytes.
    pub value: [u8; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ExtControls {
    pub which: u32,
    pub count: u32,
    pub error_idx: u32,
    pub request_fd: i32,
    pub reserved: u32,
    pub controls: *mut ExtControl,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct DecoderCmd {
    pub cmd: u32,
    pub flags: u32,
    pub raw: [u32; 16],
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct EventBody(pub [u8; 64]);

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawEvent {
    pub kind: u32,
    pub body: EventBody,
    pub pending: u32,
    pub sequence: u32,
    pub seconds: i64,
    pub nanoseconds: i64,
    pub id: u32,
    pub reserved: [u32; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct EventSubscription {
    pub kind: u32,
    pub id: u32,
    pub flags: u32,
    pub reserved: [u32; 5],
}

/// `struct v4l2_streamparm` of a CAPTURE queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct StreamParm {
    pub kind: u32,
    pub capability: u32,
    pub capture_mode: u32,
    pub numerator: u32,
    pub denominator: u32,
    pub rest: [u32; 46],
}

const fn read<T>(number: u8) -> Opcode {
    opcode::read::<T>(b'V', number)
}

const fn write<T>(number: u8) -> Opcode {
    opcode::write::<T>(b'V', number)
}

const fn both<T>(number: u8) -> Opcode {
    opcode::read_write::<T>(b'V', number)
}

pub(super) const QUERYCAP: Opcode = read::<Capability>(0);
pub(super) const ENUM_FMT: Opcode = both::<FmtDesc>(2);
pub(super) const G_FMT: Opcode = both::<RawFormat>(4);
pub(super) const S_FMT: Opcode = both::<RawFormat>(5);
pub(super) const REQBUFS: Opcode = both::<RequestBuffers>(8);
pub(super) const QUERYBUF: Opcode = both::<Buffer>(9);
pub(super) const QBUF: Opcode = both::<Buffer>(15);
pub(super) const EXPBUF: Opcode = both::<ExportBuffer>(16);
pub(super) const DQBUF: Opcode = both::<Buffer>(17);
pub(super) const STREAMON: Opcode = write::<i32>(18);
pub(super) const STREAMOFF: Opcode = write::<i32>(19);
pub(super) const G_PARM: Opcode = both::<StreamParm>(21);
pub(super) const S_PARM: Opcode = both::<StreamParm>(22);
pub(super) const G_CTRL: Opcode = both::<RawControl>(27);
pub(super) const G_SELECTION: Opcode = both::<Selection>(94);
pub(super) const S_EXT_CTRLS: Opcode = both::<ExtControls>(72);
pub(super) const DQEVENT: Opcode = read::<RawEvent>(89);
pub(super) const SUBSCRIBE_EVENT: Opcode = write::<EventSubscription>(90);
pub(super) const DECODER_CMD: Opcode = both::<DecoderCmd>(96);

/// Ioctls that the sandbox of a decoding worker allows: those by which the worker uses a V4L2 decoder node.
pub(crate) const OF_DECODING: [Opcode; 15] = [
    QUERYCAP,
    ENUM_FMT,
    G_FMT,
    S_FMT,
    REQBUFS,
    QUERYBUF,
    QBUF,
    DQBUF,
    STREAMON,
    STREAMOFF,
    G_CTRL,
    G_SELECTION,
    DQEVENT,
    SUBSCRIBE_EVENT,
    DECODER_CMD,
];

// An ioctl's number contains the size of its structure, so the kernel does not know an ioctl with
// a wrong size. These are the kernel's sizes.
const _: () = {
    assert!(size_of::<Capability>() == 104 && size_of::<FmtDesc>() == 64);
    assert!(size_of::<PixFormat>() == 48 && size_of::<PlanePixFormat>() == 20);
    assert!(size_of::<PixFormatMplane>() == 192 && size_of::<RawFormat>() == 208);
    assert!(size_of::<RequestBuffers>() == 20 && size_of::<RawPlane>() == 64);
    assert!(size_of::<Buffer>() == 88 && size_of::<ExportBuffer>() == 64);
    assert!(size_of::<Selection>() == 64 && size_of::<ExtControl>() == 20);
    assert!(size_of::<ExtControls>() == 32 && size_of::<DecoderCmd>() == 72);
    assert!(size_of::<RawEvent>() == 136 && size_of::<EventSubscription>() == 32);
    assert!(size_of::<StreamParm>() == 204);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the ioctl numbers with those that a C program prints on x86-64 and aarch64.
    #[test]
    fn ioctls_have_the_kernels_numbers() {
        let numbers = [
            (QUERYCAP, 0x8068_5600_u32),
            (ENUM_FMT, 0xc040_5602),
            (G_FMT, 0xc0d0_5604),
            (S_FMT, 0xc0d0_5605),
            (REQBUFS, 0xc014_5608),
            (QUERYBUF, 0xc058_5609),
            (QBUF, 0xc058_560f),
            (EXPBUF, 0xc040_5610),
            (DQBUF, 0xc058_5611),
            (STREAMON, 0x4004_5612),
            (STREAMOFF, 0x4004_5613),
            (G_PARM, 0xc0cc_5615),
            (S_PARM, 0xc0cc_5616),
            (G_CTRL, 0xc008_561b),
            (S_EXT_CTRLS, 0xc020_5648),
            (DQEVENT, 0x8088_5659),
            (SUBSCRIBE_EVENT, 0x4020_565a),
            (G_SELECTION, 0xc040_565e),
            (DECODER_CMD, 0xc048_5660),
        ];
        for (ours, kernels) in numbers {
            assert_eq!(ours, kernels);
        }
    }
}
