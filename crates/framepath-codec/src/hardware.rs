// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoding by hardware decoders, through FFmpeg's hwaccel layer.
//!
//! The picture stays in the driver's memory until libavutil copies it into a slot of the pool:
//! one copy, which the meter counts.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};

use ffmpeg_sys_next as ff;
use framepath_model::format::{Layout, PixelFormat};
use framepath_os::machine::nodes;
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, GiveBack, Hold, Pool};

use crate::colors::colors_of;
use crate::error::libav_message;
use crate::hardware_api::HardwareApi;
use crate::libav::{CodecContext, PictureRef};
use crate::libav_format::libav_format;
use crate::numbers::Numbers;
use crate::output_format::OutputFormat;
use crate::picture::described;
use crate::{Codec, CodecError, DecoderOutput, DecoderThreads, Packet, TrackInfo};

/// Device opened through an API: an `AVHWDeviceContext`, released on drop. It may move between
/// threads.
pub struct Hardware {
    api: HardwareApi,
    device: NonNull<ff::AVBufferRef>,
}

// SAFETY: a counted reference to an object with libavutil's own locks.
unsafe impl Send for Hardware {}

impl Hardware {
    /// Opens the machine's default device for `api`.
    ///
    /// # Errors
    /// [`CodecError::Hardware`] if libavutil cannot open the device, for example because there is
    /// no device, or no driver for it.
    pub fn open(api: HardwareApi) -> Result<Hardware, CodecError> {
        let mut device = ptr::null_mut();
        // SAFETY: writes a new reference, or leaves null.
        let code = unsafe {
            ff::av_hwdevice_ctx_create(&mut device, device_type(api), ptr::null(), ptr::null_mut(), 0)
        };
        match NonNull::new(device) {
            Some(device) if code >= 0 => Ok(Hardware { api, device }),
            _ => {
                let why = absent(api).map_or_else(|| libav_message(code), str::to_owned);
                Err(CodecError::Hardware { api, reason: format!("no device: {why}") })
            }
        }
    }

    /// Returns the codecs of [`Codec::KNOWN`] that the installed FFmpeg can decode with `api`. The
    /// driver may still reject a stream.
    pub fn codecs(api: HardwareApi) -> impl Iterator<Item = Codec> {
        Codec::KNOWN.into_iter().filter(move |codec| decoder_for(*codec, api).is_some())
    }

    /// Returns the minimum and maximum size of pictures that the driver makes, as width and height
    /// in pixels; `None` if the driver declares no limits, or no maximum width.
    pub fn sizes(&self) -> Option<[(u32, u32); 2]> {
        // SAFETY: an open device; the returned constraints are ours to free.
        unsafe {
            let mut limits = ff::av_hwdevice_get_hwframe_constraints(self.device.as_ptr(), ptr::null());
            if limits.is_null() {
                return None;
            }
            let side = |pixels: c_int| u32::try_from(pixels).unwrap_or(0);
            let sizes = [
                (side((*limits).min_width), side((*limits).min_height)),
                (side((*limits).max_width), side((*limits).max_height)),
            ];
            ff::av_hwframe_constraints_free(&mut limits);
            // Drivers without a limit leave the maximum integer.
            (sizes[1].0 > 0 && sizes[1].0 < i32::MAX as u32).then_some(sizes)
        }
    }
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hardware").field("api", &self.api).finish_non_exhaustive()
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        let mut raw = self.device.as_ptr();
        // SAFETY: our reference, released once.
        unsafe { ff::av_buffer_unref(&mut raw) };
    }
}

/// Returns the device node or display that `api` needs if it is obviously missing, as a text that
/// begins with `no`; otherwise `None`. The drivers' errors have less detail.
fn absent(api: HardwareApi) -> Option<&'static str> {
    let none = |folder, prefix| nodes(folder, prefix).is_empty();
    match api {
        HardwareApi::Vaapi | HardwareApi::Vulkan => {
            none("/dev/dri", "renderD").then_some("no /dev/dri/renderD*")
        }
        HardwareApi::Nvdec => none("/dev", "nvidia").then_some("no /dev/nvidia*"),
        HardwareApi::Vdpau => std::env::var_os("DISPLAY").is_none().then_some("no X display"),
    }
}

/// Returns libavutil's type of the device that `api` opens.
fn device_type(api: HardwareApi) -> ff::AVHWDeviceType {
    match api {
        HardwareApi::Vaapi => ff::AVHWDeviceType::AV_HWDEVICE_TYPE_VAAPI,
        HardwareApi::Nvdec => ff::AVHWDeviceType::AV_HWDEVICE_TYPE_CUDA,
        HardwareApi::Vdpau => ff::AVHWDeviceType::AV_HWDEVICE_TYPE_VDPAU,
        HardwareApi::Vulkan => ff::AVHWDeviceType::AV_HWDEVICE_TYPE_VULKAN,
    }
}

/// Returns libavcodec's decoder of `codec` that can use `api`, and the number of its pixel format
/// on the device; `None` if no decoder can. The format is a number, because the installed library
/// may have more formats, codecs and devices than the bindings.
fn decoder_for(codec: Codec, api: HardwareApi) -> Option<(*const ff::AVCodec, c_int)> {
    let mut place: *mut c_void = ptr::null_mut();
    loop {
        // SAFETY: iterates over a static table; `place` is the iterator's state.
        let found = unsafe { ff::av_codec_iterate(&mut place) };
        if found.is_null() {
            return None;
        }
        // SAFETY: a static description; its id is read as an integer as in C.
        let fits = unsafe {
            let id = (&raw const (*found).id).cast::<u32>().read();
            id == codec.id() && ff::av_codec_is_decoder(found) != 0
        };
        if !fits {
            continue;
        }
        for index in 0.. {
            // SAFETY: as above; null after the last one.
            let config = unsafe { ff::avcodec_get_hw_config(found, index) };
            if config.is_null() {
                break;
            }
            // SAFETY: a static description; enums are read as integers.
            let (methods, kind, format) = unsafe {
                let kind = (&raw const (*config).device_type).cast::<c_int>().read();
                let format = (&raw const (*config).pix_fmt).cast::<c_int>().read();
                ((*config).methods, kind, format)
            };
            let api_kind = device_type(api) as c_int;
            if methods & ff::AV_CODEC_HW_CONFIG_METHOD_HW_DEVICE_CTX as c_int != 0 && kind == api_kind {
                return Some((found, format));
            }
        }
    }
}

/// Options of the copy of pictures from the device into a pool.
pub(crate) struct Download {
    /// Number of slots of the pool.
    pub(crate) slots: u32,
    pub(crate) output: OutputFormat,
    /// Collector of the frames that another process reads and releases; `None` if only this process
    /// reads them.
    pub(crate) give_back: Option<&'static GiveBack>,
}

pub(crate) struct HardwareDecoder {
    context: CodecContext,
    /// Last received picture, in the driver's memory. Released after its copy; a picture that is
    /// not copied is released by the next receive.
    picture: PictureRef,
    /// Destination of the copy: refers to a slot of the pool while the copy runs, otherwise empty.
    target: PictureRef,
    codec: &'static str,
    api: HardwareApi,
    download: Download,
    pool: Option<Pool>,
    numbers: Numbers,
    draining: bool,
    ended: bool,
}

impl HardwareDecoder {
    pub(crate) fn open(
        track: &TrackInfo,
        hardware: &Hardware,
        download: Download,
    ) -> Result<HardwareDecoder, CodecError> {
        let (api, name) = (hardware.api, track.codec.name());
        let (codec, format) = decoder_for(track.codec, api).ok_or_else(|| CodecError::Hardware {
            api,
            reason: format!("the installed libavcodec cannot decode {name} with it"),
        })?;
        // Frame threads would only add a queue before the device.
        let mut context = CodecContext::new(track, codec, DecoderThreads::Count(1))?;
        // SAFETY: valid, not open; `choose` reads the number back. `choose` has the C library's
        // own signature, where formats are integers.
        unsafe {
            let raw = context.as_ptr();
            (*raw).hw_device_ctx = ff::av_buffer_ref(hardware.device.as_ptr());
            (*raw).opaque = ptr::without_provenance_mut(format as usize);
            (&raw mut (*raw).get_format).cast::<Option<GetFormat>>().write(Some(choose));
        }
        context.open(name, codec)?;
        Ok(HardwareDecoder {
            context,
            picture: PictureRef::new(name)?,
            target: PictureRef::new(name)?,
            codec: name,
            api,
            download,
            pool: None,
            numbers: Numbers::new(1),
            draining: false,
            ended: false,
        })
    }

    pub(crate) fn send(&mut self, packet: Packet) -> Result<(), CodecError> {
        if self.draining || self.ended || packet.is_empty() {
            return Ok(());
        }
        let number = self.numbers.insert(packet.meta(), packet.preroll());
        // SAFETY: only this call uses the packet; the context is open.
        let code = unsafe {
            (*packet.as_ptr()).pts = number;
            ff::avcodec_send_packet(self.context.as_ptr(), packet.as_ptr())
        };
        match code {
            _ if code == ff::AVERROR(libc::EAGAIN) => Err(CodecError::NotDrained { codec: self.codec }),
            _ if code < 0 => Err(self.failed(code)),
            _ => Ok(()),
        }
    }

    pub(crate) fn drain(&mut self) {
        if !self.draining {
            self.draining = true;
            // SAFETY: an open context; a null packet means the end.
            unsafe { ff::avcodec_send_packet(self.context.as_ptr(), ptr::null()) };
        }
    }

    pub(crate) fn receive(&mut self) -> Result<DecoderOutput, CodecError> {
        while !self.ended {
            // SAFETY: both are valid; libavcodec clears the picture first.
            let code = unsafe { ff::avcodec_receive_frame(self.context.as_ptr(), self.picture.as_ptr()) };
            match code {
                0 => {
                    if let Some(frame) = self.next_downloaded()? {
                        return Ok(DecoderOutput::Frame(frame));
                    }
                }
                _ if code == ff::AVERROR(libc::EAGAIN) && !self.draining => {
                    return Ok(DecoderOutput::NeedsPacket);
                }
                _ if code == ff::AVERROR_EOF || code == ff::AVERROR(libc::EAGAIN) => self.ended = true,
                _ => return Err(self.failed(code)),
            }
        }
        Ok(DecoderOutput::End)
    }

    /// Drops the pending pictures; decoding restarts with the next packet. Returns the number of
    /// dropped pictures, as [`Numbers::flush`] counts them.
    pub(crate) fn flush(&mut self) -> u64 {
        // SAFETY: an open context; no picture is left that was not received.
        unsafe { ff::avcodec_flush_buffers(self.context.as_ptr()) };
        (self.draining, self.ended) = (false, false);
        self.numbers.flush()
    }

    /// Copies the received picture into a slot of the pool and returns it as a frame; `None` if the
    /// picture is preroll. Waits while later stages hold all slots.
    fn next_downloaded(&mut self) -> Result<Option<Frame>, CodecError> {
        let picture = self.picture.as_ptr();
        // SAFETY: a filled frame, ours until the next receive. No reference to it is made,
        // because its enums may have any value.
        let (number, width, height) = unsafe { ((*picture).pts, (*picture).width, (*picture).height) };
        let Some(meta) = self.numbers.find(number) else { return Ok(None) };
        // SAFETY: a filled frame.
        let meta = unsafe { described(picture, meta) };
        let format = self.transfer_format()?;
        let (width, height) = (width.max(0) as u32, height.max(0) as u32);
        let layout = Layout::packed(format, width, height)
            .map_err(|source| CodecError::Layout { codec: self.codec, source })?;
        // SAFETY: a filled frame.
        let layout = layout.with_colors(unsafe { colors_of(picture) });
        let hold = self.slot(layout.size)?;
        let code = self.transfer(&layout, &hold);
        if code < 0 {
            return Err(self.failed(code));
        }
        let frame = hold.frame(&layout, meta);
        frame.map(Some).map_err(|source| CodecError::Layout { codec: self.codec, source })
    }

    fn slot(&mut self, bytes: usize) -> Result<Hold, CodecError> {
        let pool_error = |source| CodecError::Pool { codec: self.codec, source };
        let pool = match &mut self.pool {
            Some(pool) if pool.slot_bytes() >= bytes => pool,
            place => {
                let pool = match self.download.give_back {
                    None => Pool::new(bytes, self.download.slots),
                    Some(give_back) => Pool::new_shared(bytes, self.download.slots, give_back),
                };
                place.insert(pool.map_err(pool_error)?)
            }
        };
        pool.acquire_hold().map_err(pool_error)
    }

    /// Copies the received picture from the device into `hold`: the only copy, which the meter
    /// counts. Returns libav's code, negative on failure.
    fn transfer(&mut self, layout: &Layout, hold: &Hold) -> c_int {
        // SAFETY: the target is an empty frame of ours. Its planes are inside the slot, which
        // outlives the call, and no other code accesses the slot. The buffer owns nothing: it
        // only declares that the memory exists.
        unsafe {
            let target = self.target.as_ptr();
            ff::av_frame_unref(target);
            let buffer = ff::av_buffer_create(hold.as_ptr(), hold.len(), Some(keep), ptr::null_mut(), 0);
            (*target).buf[0] = buffer;
            if buffer.is_null() {
                return ff::AVERROR(libc::ENOMEM);
            }
            (*target).format = libav_format(layout.format) as c_int;
            ((*target).width, (*target).height) = (layout.width as c_int, layout.height as c_int);
            for (index, plane) in layout.planes().iter().enumerate() {
                (*target).data[index] = hold.as_ptr().add(plane.offset);
                (*target).linesize[index] = plane.stride as c_int;
            }
            let code = meter::copy(layout.pixel_bytes(), || {
                ff::av_hwframe_transfer_data(target, self.picture.as_ptr(), 0)
            });
            ff::av_frame_unref(target);
            ff::av_frame_unref(self.picture.as_ptr());
            code
        }
    }

    /// Returns the format in which to copy the received picture: the first one offered by the
    /// driver that is in [`FORMATS`] and that the requested output allows. Fails if there is none.
    fn transfer_format(&self) -> Result<PixelFormat, CodecError> {
        let mut formats: *mut ff::AVPixelFormat = ptr::null_mut();
        // SAFETY: the picture is on the device, by `choose`; the list is ours to free and ends
        // with NONE.
        let code = unsafe {
            ff::av_hwframe_transfer_get_formats(
                (*self.picture.as_ptr()).hw_frames_ctx,
                ff::AVHWFrameTransferDirection::AV_HWFRAME_TRANSFER_DIRECTION_FROM,
                &mut formats,
                0,
            )
        };
        if code < 0 {
            return Err(self.failed(code));
        }
        let is_suitable = |format: PixelFormat| match self.download.output {
            OutputFormat::Native => true,
            OutputFormat::Nv12 => format == PixelFormat::Nv12,
            OutputFormat::P010 => format == PixelFormat::P010,
        };
        let mut found = None;
        // SAFETY: as above; read as integers as in C.
        unsafe {
            let mut at = formats.cast::<c_int>();
            while *at != ff::AVPixelFormat::AV_PIX_FMT_NONE as c_int && found.is_none() {
                found = FORMATS.iter().find(|(libav, ours)| *libav as c_int == *at && is_suitable(*ours));
                at = at.add(1);
            }
            ff::av_free(formats.cast());
        }
        found.map(|(_, ours)| *ours).ok_or_else(|| CodecError::Hardware {
            api: self.api,
            reason: format!("the driver cannot output {} pictures as {}", self.codec, self.download.output),
        })
    }

    fn failed(&self, code: c_int) -> CodecError {
        let reason = format!("{}: {}", self.codec, libav_message(code));
        CodecError::Hardware { api: self.api, reason }
    }
}

/// Formats in which pictures can be copied from a device: libav's and framepath's.
const FORMATS: [(ff::AVPixelFormat, PixelFormat); 4] = [
    (ff::AVPixelFormat::AV_PIX_FMT_NV12, PixelFormat::Nv12),
    (ff::AVPixelFormat::AV_PIX_FMT_P010LE, PixelFormat::P010),
    (ff::AVPixelFormat::AV_PIX_FMT_YUV420P, PixelFormat::Yuv420p),
    (ff::AVPixelFormat::AV_PIX_FMT_GRAY8, PixelFormat::Grey),
];

/// Type of `AVCodecContext::get_format` as in C: formats are integers, because a newer library
/// offers more than the bindings have names for.
type GetFormat = unsafe extern "C" fn(*mut ff::AVCodecContext, *const c_int) -> c_int;

/// Callback `get_format`: selects the device's format if libavcodec offers it, otherwise none. If
/// the driver cannot decode this stream, that has to be an error and not silent software decoding.
unsafe extern "C" fn choose(context: *mut ff::AVCodecContext, mut offered: *const c_int) -> c_int {
    const NONE: c_int = ff::AVPixelFormat::AV_PIX_FMT_NONE as c_int;
    // SAFETY: libavcodec passes a valid context, whose `opaque` is the number set by `open`, and
    // a list that ends with NONE.
    unsafe {
        let device_format = (*context).opaque.addr() as c_int;
        while *offered != NONE {
            if *offered == device_format {
                return *offered;
            }
            offered = offered.add(1);
        }
    }
    NONE
}

/// Callback for a buffer of libav that frees nothing, because the pool owns the memory.
unsafe extern "C" fn keep(_opaque: *mut c_void, _data: *mut u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_are_found_by_their_names() {
        for api in HardwareApi::ALL {
            assert_eq!(HardwareApi::named(api.name()), Some(api));
        }
        assert_eq!(HardwareApi::named("dxva2"), None);
    }

    #[test]
    fn debians_ffmpeg_decodes_every_codec_by_vaapi() {
        // Does not depend on a device.
        let codecs: Vec<Codec> = Hardware::codecs(HardwareApi::Vaapi).collect();
        assert_eq!(codecs, Codec::KNOWN);
    }
}
