// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of FFmpeg's libraries and of GStreamer at which frames and packets change hands, those with which programs show
//! pictures, and the events of their calls.
//!
//! Source of the offsets: the public headers of FFmpeg (they are equal in versions 4 to 8) and of GStreamer 1.0. Source of
//! the arguments: the public headers of libX11, libXext, libXv, libXpresent, libxcb, SDL 2, EGL, GLX, libwayland and libdrm.

/// Function whose calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    /// `avcodec_open2(AVCodecContext *, ...)`: threads that are started inside belong to the codec.
    OpenCodec,
    /// `av_read_frame(AVFormatContext *, AVPacket *)`.
    ReadPacket,
    /// `avcodec_send_packet(AVCodecContext *, const AVPacket *)`.
    SendPacket,
    /// `avcodec_default_get_buffer2(AVCodecContext *, AVFrame *, int)`: on the thread that decodes the frame.
    GetBuffer,
    /// `avcodec_receive_frame(AVCodecContext *, AVFrame *)`.
    ReceiveFrame,
    /// `av_buffersrc_add_frame_flags(AVFilterContext *, AVFrame *, int)`.
    FilterInput,
    /// `av_buffersink_get_frame_flags(AVFilterContext *, AVFrame *, int)`.
    FilterOutput,
    /// `avcodec_send_frame(AVCodecContext *, const AVFrame *)`.
    SendFrame,
    /// `avcodec_receive_packet(AVCodecContext *, AVPacket *)`.
    ReceivePacket,
    /// `av_interleaved_write_frame(AVFormatContext *, AVPacket *)`, or `av_write_frame`.
    WritePacket,
    /// `avformat_find_stream_info(AVFormatContext *, ...)`: the demuxer is known.
    OpenInput,
    /// `avformat_write_header(AVFormatContext *, ...)`: the muxer is known.
    OpenOutput,
    /// `avfilter_graph_config(AVFilterGraph *, ...)`: the filters are known.
    OpenGraph,
    /// `gst_pad_push(GstPad *, GstBuffer *)` or `gst_pad_push_list(GstPad *, GstBufferList *)`: an element passes a buffer or
    /// several on. It returns when the elements behind it, up to the next one with a thread of its own, have done their work.
    PadPush,
    /// `gst_clock_id_wait(GstClockID, GstClockTimeDiff *)`: a sink waits for the time of a buffer.
    ClockWait,
    /// `SDL_UpdateYUVTexture(SDL_Texture *, const SDL_Rect *, const Uint8 *, ...)` and its relatives, and
    /// `zimg_filter_graph_process(const zimg_filter_graph *, const zimg_image_buffer_const *, ...)`: the picture goes into a texture
    /// or other pixels, which the next [`Call::Present`] of the thread shows.
    Upload,
    /// A picture is given to the server of the display, or to the display itself: `XPutImage`, `SDL_RenderPresent`,
    /// `eglSwapBuffers` and others.
    Present,
    /// `wl_surface.attach`: a surface of Wayland gets a picture, which the next [`Call::Commit`] shows.
    Attach,
    /// `wl_surface.commit`.
    Commit,
    /// `av_frame_copy_props(AVFrame *, const AVFrame *)` and `av_frame_copy`: the first frame is made from the second one. Only
    /// their begin is recorded.
    CopyFrame,
    /// `gst_buffer_copy_into(GstBuffer *, GstBuffer *, ...)`: the first buffer is made from the second one. Only the begin is
    /// recorded.
    CopyBuffer,
    /// `gst_video_encoder_finish_frame(GstVideoEncoder *, GstVideoCodecFrame *)` and its relatives: a codec passes on what it has
    /// made of a frame's input buffer.
    FinishFrame,
    /// `gst_aggregator_pad_pop_buffer(GstAggregatorPad *)`: a muxer or mixer takes a buffer that waited at one of its inputs.
    PopBuffer,
    /// Time in which a thread has a frame that the program names itself.
    Mark,
}

impl Call {
    /// Returns true for a call whose object has been made ready, so that its name can be read.
    pub fn is_opening(self) -> bool {
        matches!(self, Call::OpenCodec | Call::OpenInput | Call::OpenOutput | Call::OpenGraph)
    }

    /// Returns true for a function that is called again inside its own calls with other objects.
    pub fn is_nested(self) -> bool {
        matches!(self, Call::PadPush | Call::FinishFrame)
    }

    /// Returns false for a function of which only the begin is recorded.
    pub fn has_return(self) -> bool {
        !matches!(self, Call::CopyFrame | Call::CopyBuffer)
    }

    /// Returns the function as one of whose implementations this one counts: a call of it inside another one is left out.
    pub(crate) fn outer(self) -> Call {
        match self {
            Call::Attach | Call::Commit => Call::Present,
            call => call,
        }
    }
}

/// Moment of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// The function begins.
    Enter,
    /// The function has returned.
    Leave,
}

/// Kind of a function's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallItem {
    /// An argument that is not read.
    None,
    /// An `AVPacket`.
    Packet,
    /// An `AVFrame`.
    Frame,
    /// Two of them: the object is the address of the first one's bytes.
    FramePair,
    /// A `GstBuffer`; its address stands for that of its bytes.
    Buffer,
    /// A `GstBufferList`; its first buffer stands for all of them.
    BufferList,
    /// A `GstBuffer` that the function returns.
    Returned,
    /// A `GstVideoCodecFrame`; the address of its input buffer stands for that of its bytes.
    CodecFrame,
    /// A `zimg_image_buffer_const`, whose first plane has the bytes; it has no time.
    Planes,
    /// A number, or the address of the bytes itself; it has no time.
    Value,
}

/// Offset of the address of the array in a `GstBufferList`, which is no public struct: equal in GStreamer 1.6 to 1.26. The
/// array begins with the address of the first buffer.
pub(crate) const LIST_BUFFERS: i32 = 64;

/// Offset of the number of buffers in a `GstBufferList`, 32 bits.
pub(crate) const LIST_LENGTH: i32 = 72;

/// Calls of a function that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFilter {
    /// All.
    All,
    /// Requests of Wayland, with the number of the request in the second argument: [`ATTACH`] and [`COMMIT`] of a
    /// `wl_surface`.
    Surface,
    /// Without the flag [`TEST_ONLY`] in the third argument.
    NotTested,
}

/// Number of the request `wl_surface.attach`.
pub const ATTACH: u8 = 1;
/// Number of the request `wl_surface.commit`.
pub const COMMIT: u8 = 6;
/// Number of the bit `DRM_MODE_ATOMIC_TEST_ONLY`.
pub const TEST_ONLY: u8 = 8;

/// Greatest number of arguments of a function that are looked at.
pub const ARGUMENTS: usize = 3;

/// How a function is observed. One argument, the object, tells streams or windows apart; another one is the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The function.
    pub call: Call,
    /// Library, as the beginning of its file's name.
    pub library: &'static str,
    /// Name of the function in the library's symbol table.
    pub symbol: &'static str,
    /// Its item.
    pub item: CallItem,
    /// Moment at which the item has the bytes.
    pub read_at: Phase,
    /// Places of the object and of the item in the list of its arguments, from 0 on.
    pub places: [u8; 2],
    /// Its calls that are recorded.
    pub filter: CallFilter,
}

impl CallSite {
    /// Returns the number of its first arguments that are looked at.
    pub(crate) fn arguments(&self) -> usize {
        let places = usize::from(self.places[0].max(self.places[1])) + 1;
        if self.filter == CallFilter::NotTested { ARGUMENTS } else { places }
    }
}

impl CallItem {
    /// Returns the offset of the address of the bytes (of the first plane) in the item; `None` if the item's own address
    /// stands for it.
    pub fn data_offset(self) -> Option<i32> {
        match self {
            CallItem::Packet => Some(24),
            CallItem::Frame | CallItem::FramePair => Some(0),
            CallItem::CodecFrame => Some(56),
            CallItem::Planes => Some(8),
            CallItem::Buffer | CallItem::BufferList | CallItem::Returned => None,
            CallItem::Value | CallItem::None => None,
        }
    }

    /// Returns the offset of the presentation time in the item; `None` if it has none.
    pub fn pts_offset(self) -> Option<i32> {
        match self {
            CallItem::Packet => Some(8),
            CallItem::Frame | CallItem::FramePair => Some(136),
            CallItem::Buffer | CallItem::BufferList | CallItem::Returned => Some(72),
            CallItem::CodecFrame => Some(32),
            CallItem::Planes | CallItem::Value | CallItem::None => None,
        }
    }
}

const fn site(
    call: Call,
    library: &'static str,
    symbol: &'static str,
    item: CallItem,
    read_at: Phase,
) -> CallSite {
    CallSite { call, library, symbol, item, read_at, places: [0, 1], filter: CallFilter::All }
}

/// Function with which a codec of GStreamer passes on what it has made of a frame.
const fn finish_frame(symbol: &'static str) -> CallSite {
    site(Call::FinishFrame, "libgstvideo-1.0", symbol, CallItem::CodecFrame, Phase::Enter)
}

/// Function that gets the address of a picture's first plane, and puts the picture into the texture that is its first argument.
const fn upload(library: &'static str, symbol: &'static str) -> CallSite {
    let site = site(Call::Upload, library, symbol, CallItem::Value, Phase::Enter);
    CallSite { places: [0, 2], ..site }
}

/// Function that shows a picture in the window that is its argument `window`.
const fn present(library: &'static str, symbol: &'static str, window: u8) -> CallSite {
    let site = site(Call::Present, library, symbol, CallItem::Value, Phase::Enter);
    CallSite { places: [window, window], ..site }
}

/// Function that sends a request of Wayland.
const fn request(symbol: &'static str) -> CallSite {
    let site = site(Call::Commit, "libwayland-client", symbol, CallItem::Value, Phase::Enter);
    CallSite { filter: CallFilter::Surface, ..site }
}

/// All observed functions.
pub const CALL_SITES: [CallSite; 45] = [
    site(Call::OpenCodec, "libavcodec", "avcodec_open2", CallItem::None, Phase::Leave),
    site(Call::OpenInput, "libavformat", "avformat_find_stream_info", CallItem::None, Phase::Leave),
    site(Call::OpenOutput, "libavformat", "avformat_write_header", CallItem::None, Phase::Leave),
    site(Call::OpenGraph, "libavfilter", "avfilter_graph_config", CallItem::None, Phase::Leave),
    site(Call::ReadPacket, "libavformat", "av_read_frame", CallItem::Packet, Phase::Leave),
    site(Call::SendPacket, "libavcodec", "avcodec_send_packet", CallItem::Packet, Phase::Enter),
    site(Call::GetBuffer, "libavcodec", "avcodec_default_get_buffer2", CallItem::Frame, Phase::Leave),
    site(Call::ReceiveFrame, "libavcodec", "avcodec_receive_frame", CallItem::Frame, Phase::Leave),
    site(Call::FilterInput, "libavfilter", "av_buffersrc_add_frame_flags", CallItem::Frame, Phase::Enter),
    site(Call::FilterOutput, "libavfilter", "av_buffersink_get_frame_flags", CallItem::Frame, Phase::Leave),
    site(Call::FilterOutput, "libavfilter", "av_buffersink_get_frame", CallItem::Frame, Phase::Leave),
    site(Call::SendFrame, "libavcodec", "avcodec_send_frame", CallItem::Frame, Phase::Enter),
    site(Call::ReceivePacket, "libavcodec", "avcodec_receive_packet", CallItem::Packet, Phase::Leave),
    site(Call::WritePacket, "libavformat", "av_interleaved_write_frame", CallItem::Packet, Phase::Enter),
    site(Call::WritePacket, "libavformat", "av_write_frame", CallItem::Packet, Phase::Enter),
    site(Call::CopyFrame, "libavutil", "av_frame_copy_props", CallItem::FramePair, Phase::Enter),
    site(Call::CopyFrame, "libavutil", "av_frame_copy", CallItem::FramePair, Phase::Enter),
    site(Call::PadPush, "libgstreamer-1.0", "gst_pad_push", CallItem::Buffer, Phase::Enter),
    site(Call::PadPush, "libgstreamer-1.0", "gst_pad_push_list", CallItem::BufferList, Phase::Enter),
    site(Call::CopyBuffer, "libgstreamer-1.0", "gst_buffer_copy_into", CallItem::Buffer, Phase::Enter),
    finish_frame("gst_video_encoder_finish_frame"),
    finish_frame("gst_video_encoder_finish_subframe"),
    finish_frame("gst_video_decoder_finish_frame"),
    CallSite {
        places: [0, 0],
        ..site(
            Call::PopBuffer,
            "libgstbase-1.0",
            "gst_aggregator_pad_pop_buffer",
            CallItem::Returned,
            Phase::Leave,
        )
    },
    site(Call::ClockWait, "libgstreamer-1.0", "gst_clock_id_wait", CallItem::None, Phase::Leave),
    upload("libSDL", "SDL_UpdateYUVTexture"),
    upload("libSDL", "SDL_UpdateNVTexture"),
    upload("libSDL", "SDL_UpdateTexture"),
    // mpv turns each picture into pixels of the window on the thread that then shows them.
    site(Call::Upload, "libzimg", "zimg_filter_graph_process", CallItem::Planes, Phase::Enter),
    present("libSDL", "SDL_RenderPresent", 0),
    present("libSDL", "SDL_UpdateWindowSurface", 0),
    present("libX11.so", "XPutImage", 1),
    present("libXext", "XShmPutImage", 1),
    present("libXv.so", "XvPutImage", 2),
    present("libXv.so", "XvShmPutImage", 2),
    present("libXpresent", "XPresentPixmap", 1),
    present("libxcb.so", "xcb_put_image", 2),
    present("libxcb-shm", "xcb_shm_put_image", 1),
    present("libxcb-present", "xcb_present_pixmap", 1),
    present("libEGL.so", "eglSwapBuffers", 1),
    present("libGLX.so", "glXSwapBuffers", 1),
    // Of libwayland 1.20 and newer, and of older ones: all other functions with requests call these.
    request("wl_proxy_marshal_array_flags"),
    request("wl_proxy_marshal_array_constructor_versioned"),
    present("libdrm.so", "drmModePageFlip", 1),
    CallSite { filter: CallFilter::NotTested, ..present("libdrm.so", "drmModeAtomicCommit", 0) },
];

/// One moment of a call. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// Time of the moment.
    pub at_ns: u64,
    /// Id of the thread's process.
    pub process: i32,
    /// Id of the thread.
    pub thread: i32,
    /// The function.
    pub call: Call,
    /// Moment of the call.
    pub phase: Phase,
    /// Argument that tells streams or windows apart.
    pub object: u64,
    /// Address of the item's bytes, or the item itself; 0 if it has none or was not read at this moment.
    pub data: u64,
    /// Presentation time of the item; `NO_PTS` if it has none or was not read at this moment.
    pub pts: i64,
    /// Result of the function at [`Phase::Leave`], otherwise 0.
    pub result: i32,
}

/// `AV_NOPTS_VALUE`: no presentation time. That of GStreamer, `GST_CLOCK_TIME_NONE`, is -1.
pub const NO_PTS: i64 = i64::MIN;
