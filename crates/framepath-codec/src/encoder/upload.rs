// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy of frames into the memory of a hardware encoder (VA-API).

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use ffmpeg_sys_next as ff;
use framepath_model::format::Layout;
use framepath_os::machine::nodes;
use framepath_os::measure::meter;
use framepath_os::memory::pool::Frame;

use super::EncodeError;
use super::error::failure;
use crate::EncoderApi;
use crate::encoder_settings::EncoderName;
use crate::lent_frame::lend;
use crate::libav::PictureRef;
use crate::libav_format::libav_format;

/// Number of pictures in the pool of the device.
const PICTURES: c_int = 8;

/// Returns the device node that `api` needs if it is obviously missing, as a text that begins with `no`;
/// otherwise `None`. The drivers' errors have less detail.
pub(super) fn absent(api: EncoderApi) -> Option<&'static str> {
    let none = |folder, prefix| nodes(folder, prefix).is_empty();
    match api {
        EncoderApi::Software => None,
        EncoderApi::Vaapi => none("/dev/dri", "renderD").then_some("no device: no /dev/dri/renderD*"),
        EncoderApi::Nvenc => none("/dev", "nvidia").then_some("no device: no /dev/nvidia*"),
        EncoderApi::V4l2m2m => none("/dev", "video").then_some("no device: no /dev/video*"),
    }
}

/// Pool of pictures in the memory of a device: an `AVHWFramesContext`, released on drop.
pub(super) struct Uploader {
    frames: NonNull<ff::AVBufferRef>,
}

// SAFETY: a counted reference to an object with libavutil's own locks.
unsafe impl Send for Uploader {}

impl Uploader {
    /// Opens the machine's default device, and a pool for pictures like `layout`.
    pub(super) fn open(encoder: EncoderName, layout: &Layout) -> Result<Uploader, EncodeError> {
        let mut device = ptr::null_mut();
        // SAFETY: writes a new reference, or leaves null.
        let code = unsafe {
            let kind = ff::AVHWDeviceType::AV_HWDEVICE_TYPE_VAAPI;
            ff::av_hwdevice_ctx_create(&mut device, kind, ptr::null(), ptr::null_mut(), 0)
        };
        if code < 0 {
            return Err(match absent(EncoderApi::Vaapi) {
                Some(what) => EncodeError::Encoder {
                    encoder: encoder.name.to_string_lossy().into_owned(),
                    operation: "open the encoder",
                    message: what.to_owned(),
                },
                None => failure(encoder, "open the device", code),
            });
        }
        // SAFETY: an open device, of which the pool keeps a reference of its own; the new context is ours until it is
        // initialised. Enums are written as integers as in C.
        unsafe {
            let raw = ff::av_hwframe_ctx_alloc(device);
            ff::av_buffer_unref(&mut device);
            let frames = NonNull::new(raw)
                .map(|frames| Uploader { frames })
                .ok_or_else(|| failure(encoder, "open the device", ff::AVERROR(libc::ENOMEM)))?;
            let context = (*raw).data.cast::<ff::AVHWFramesContext>();
            (*context).format = ff::AVPixelFormat::AV_PIX_FMT_VAAPI;
            (*context).sw_format = libav_format(layout.format);
            (*context).width = layout.width as c_int;
            (*context).height = layout.height as c_int;
            (*context).initial_pool_size = PICTURES;
            match ff::av_hwframe_ctx_init(raw) {
                code if code < 0 => Err(failure(encoder, "make pictures on the device", code)),
                _ => Ok(frames),
            }
        }
    }

    /// Makes the encoder `context` read pictures of this pool. Returns libav's code as an error.
    ///
    /// # Safety
    /// `context` is valid and not open.
    pub(super) unsafe fn attach(&self, context: *mut ff::AVCodecContext) -> Result<(), c_int> {
        // SAFETY: guaranteed by the caller; the context owns the new reference.
        unsafe {
            (*context).pix_fmt = ff::AVPixelFormat::AV_PIX_FMT_VAAPI;
            (*context).hw_frames_ctx = ff::av_buffer_ref(self.frames.as_ptr());
            if (*context).hw_frames_ctx.is_null() { Err(ff::AVERROR(libc::ENOMEM)) } else { Ok(()) }
        }
    }

    /// Copies `frame` into a picture of the device; the meter counts the bytes. Returns libav's code as an error.
    pub(super) fn upload(&self, frame: &Frame) -> Result<PictureRef, c_int> {
        let no_memory = ff::AVERROR(libc::ENOMEM);
        let from = lend(Box::new(frame.share())).ok_or(no_memory)?;
        let to = PictureRef::new("frame").map_err(|_| no_memory)?;
        // SAFETY: the pool is initialised, and both frames are ours. The properties are colours and times.
        let code = meter::copy(frame.layout().pixel_bytes(), || unsafe {
            match ff::av_hwframe_get_buffer(self.frames.as_ptr(), to.as_ptr(), 0) {
                code if code < 0 => return code,
                _ => {}
            }
            match ff::av_hwframe_transfer_data(to.as_ptr(), from.as_ptr(), 0) {
                code if code < 0 => code,
                _ => ff::av_frame_copy_props(to.as_ptr(), from.as_ptr()),
            }
        });
        if code < 0 { Err(code) } else { Ok(to) }
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        let mut raw = self.frames.as_ptr();
        // SAFETY: our reference, released once.
        unsafe { ff::av_buffer_unref(&mut raw) };
    }
}
