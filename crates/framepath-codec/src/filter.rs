// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs of libavfilter: the filters of `ffmpeg -vf`.
//!
//! The graph reads frames in place or in copies ([`InputMemory`]) and must not write to them; a
//! filter that changes pixels in place makes a copy first. With [`InputMemory::InPlace`], a frame
//! that comes out unchanged is the same frame, or the copy that the filters have read. Every other
//! picture, and with [`InputMemory::Copied`] every picture, is copied once into the memory of the
//! caller.

mod input;
mod library;

use std::collections::VecDeque;
use std::ffi::{CString, c_int};
use std::ptr::{self, NonNull};

use ffmpeg_sys_next as ff;
use framepath_model::format::{Layout, LayoutError, PixelFormat};
use framepath_model::stream::{FrameMeta, Rational, StreamInfo};
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, FrameMut};

use crate::colors::colors_of;
use crate::error::libav_message;
use crate::libav::PictureRef;
use crate::libav_format::{libav_format, pixel_format};
use crate::picture::field_order;
use input::InputFrames;
use library::{FilterContext, FilterFunctions, Graph, OpenEnd, functions};

/// Alignment of the rows of output pictures in bytes, for the vector code of later stages.
const ROW_ALIGN: usize = 64;

/// Number of spare bytes of a slot behind an output picture or the copy of an input frame, because
/// vector code reads beyond the last row.
const SLACK: usize = 256;

/// Number of input frames whose metadata is kept for the output. Filters that keep more frames than this
/// output them with the metadata of the newest input.
const MOST_INSIDE: usize = 1024;

/// Error of a graph of filters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// libavfilter cannot be loaded.
    #[error("cannot load libavfilter: {0}")]
    Library(String),
    /// There is no filter with this name.
    #[error("libavfilter has no filter `{0}` (`ffmpeg -filters` lists them)")]
    Unknown(String),
    /// The text is not a graph with one input and one output, an option is invalid, the filters
    /// cannot be connected or have failed on a frame, or there is not enough memory.
    #[error("cannot {operation} the filters: {message}")]
    Graph {
        /// Failed operation, as a verb phrase.
        operation: &'static str,
        /// libav's message.
        message: String,
    },
    /// The frame is not a picture, the output has an invalid layout, or the provided slot is too
    /// small for the output.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl GraphError {
    fn graph(operation: &'static str, code: c_int) -> GraphError {
        let message = libav_message(code);
        let message = match code == ff::AVERROR(libc::EPERM) {
            true => format!("{message}; a filter in a worker can open no file: add host=inline"),
            false => message,
        };
        GraphError::Graph { operation, message }
    }
}

/// Way in which filters read their input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputMemory {
    /// In place, except frames that another process or a device can change, and frames with less
    /// than 64 bytes of their slot after the last plane: these are copied first. Frames that the
    /// filters do not change are output themselves; if they were copied first, their copies are
    /// output.
    InPlace,
    /// In a copy, for a caller whose frames the graph must not keep after [`FilterGraph::push`].
    /// Every output picture is new.
    Copied,
}

/// Output of a [`FilterGraph`].
#[derive(Debug)]
pub enum Filtered {
    /// An input frame that no filter has changed, with its own time; or the graph's copy of the
    /// frame, if the graph copied the frame to read it. Only with [`InputMemory::InPlace`].
    Same(Frame),
    /// A new picture, in memory that the caller has provided.
    New(FrameMut, FrameMeta),
    /// The graph needs more frames.
    NeedsFrame,
    /// The last frame was output.
    End,
}

/// Graph of filters with one input and one output, for frames of one format and size. A graph may
/// move between threads.
pub struct FilterGraph {
    functions: &'static FilterFunctions,
    graph: NonNull<Graph>,
    source: NonNull<FilterContext>,
    sink: NonNull<FilterContext>,
    picture: PictureRef,
    inputs: InputFrames,
    /// Duration of one tick of the input and output frames' presentation times, seconds.
    time_base: Rational,
    /// Numbers and metadata of the last input frames, at most [`MOST_INSIDE`], oldest first.
    metas: VecDeque<(u64, FrameMeta)>,
    /// Number of input frames so far; frames count from 1.
    pushed: u64,
}

// SAFETY: owned by one value, and libavfilter ties nothing to a thread. The filters are part of the graph.
unsafe impl Send for FilterGraph {}

impl FilterGraph {
    /// Loads libavfilter into this process, for code that enters a sandbox without access to files afterwards.
    ///
    /// # Errors
    /// The library cannot be loaded.
    pub fn load() -> Result<(), GraphError> {
        functions().map(drop)
    }

    /// Makes the graph that `text` describes, in libavfilter's syntax (`ffmpeg-filters(1)`), for
    /// frames of the layout `layout` of the stream `info`. Each filter that can divide a picture
    /// divides it among `threads` threads (0: as many as libavfilter chooses); with more than 1,
    /// the graph starts threads of its own.
    ///
    /// # Errors
    /// libavfilter cannot be loaded; the text is wrong; the last filter has no output in a
    /// supported pixel format; or there is not enough memory.
    pub fn new(
        text: &str,
        layout: &Layout,
        info: &StreamInfo,
        memory: InputMemory,
        threads: u32,
    ) -> Result<FilterGraph, GraphError> {
        let functions = functions()?;
        let no_memory = || GraphError::graph("set up", ff::AVERROR(libc::ENOMEM));
        // SAFETY: no arguments; freed on drop of the result.
        let graph = NonNull::new(unsafe { (functions.avfilter_graph_alloc)() }).ok_or_else(no_memory)?;
        let picture = PictureRef::new("filter").map_err(|_| no_memory())?;
        let mut made = FilterGraph {
            functions,
            graph,
            source: NonNull::dangling(),
            sink: NonNull::dangling(),
            picture,
            inputs: InputFrames::new(memory),
            time_base: info.time_base,
            metas: VecDeque::new(),
            pushed: 0,
        };
        // SAFETY: a new graph, whose first field is its class. Fails only for a number that no caller gives.
        unsafe { ff::av_opt_set_int(graph.as_ptr().cast(), c"threads".as_ptr(), threads.into(), 0) };
        made.source = made.create(c"buffer", c"in", &source_options(layout, info))?;
        made.sink = made.create(c"buffersink", c"out", "")?;
        let formats: Vec<String> =
            PixelFormat::ALL.map(|format| (libav_format(format) as c_int).to_string()).into();
        let format = made.create(c"format", c"format", &format!("pix_fmts={}", formats.join("|")))?;
        // SAFETY: filters of this graph, with one pad each.
        let code = unsafe { (functions.avfilter_link)(format.as_ptr(), 0, made.sink.as_ptr(), 0) };
        if code < 0 {
            return Err(GraphError::graph("connect", code));
        }
        made.parse(text, format)?;
        // SAFETY: a graph whose filters are connected.
        let code = unsafe { (functions.avfilter_graph_config)(graph.as_ptr(), ptr::null_mut()) };
        if code < 0 { Err(GraphError::graph("configure", code)) } else { Ok(made) }
    }

    fn create(
        &self,
        filter: &std::ffi::CStr,
        name: &std::ffi::CStr,
        options: &str,
    ) -> Result<NonNull<FilterContext>, GraphError> {
        let mut made = ptr::null_mut();
        let options = CString::new(options).unwrap_or_default();
        // SAFETY: a valid graph and C strings; the filter becomes part of the graph.
        let code = unsafe {
            let description = (self.functions.avfilter_get_by_name)(filter.as_ptr());
            (self.functions.avfilter_graph_create_filter)(
                &mut made,
                description,
                name.as_ptr(),
                options.as_ptr(),
                ptr::null_mut(),
                self.graph.as_ptr(),
            )
        };
        NonNull::new(made).filter(|_| code >= 0).ok_or_else(|| GraphError::graph("make", code))
    }

    /// Adds the filters of `text` between the source and `last`. Fails with [`GraphError::Unknown`]
    /// if the parser of libavfilter fails and the text names an unknown filter, otherwise with the
    /// parser's error.
    fn parse(&self, text: &str, last: NonNull<FilterContext>) -> Result<(), GraphError> {
        let invalid = |code| GraphError::graph("parse", code);
        let c_text = CString::new(text).map_err(|_| invalid(ff::AVERROR(libc::EINVAL)))?;
        // SAFETY: the ends are allocated by libavfilter with names that it frees, and freed below in any
        // case; the parser may replace them. A null end is handled by the parser as a lack of it.
        let code = unsafe {
            let mut outputs = self.open_end(c"in", self.source);
            let mut inputs = self.open_end(c"out", last);
            let code = (self.functions.avfilter_graph_parse_ptr)(
                self.graph.as_ptr(),
                c_text.as_ptr(),
                &mut inputs,
                &mut outputs,
                ptr::null_mut(),
            );
            (self.functions.avfilter_inout_free)(&mut inputs);
            (self.functions.avfilter_inout_free)(&mut outputs);
            code
        };
        match self.unknown_filter(text) {
            Some(name) if code < 0 => Err(GraphError::Unknown(name)),
            _ if code < 0 => Err(invalid(code)),
            _ => Ok(()),
        }
    }

    /// Makes an open end with `name` at the first pad of `filter`; null without memory.
    ///
    /// # Safety
    /// `filter` is part of the graph.
    unsafe fn open_end(&self, name: &std::ffi::CStr, filter: NonNull<FilterContext>) -> *mut OpenEnd {
        // SAFETY: a new end, whose fields are ours to set; the name is allocated as libavfilter frees it.
        unsafe {
            let end = (self.functions.avfilter_inout_alloc)();
            if let Some(end) = end.as_mut() {
                end.name = ff::av_strdup(name.as_ptr());
                end.filter = filter.as_ptr();
                (end.pad, end.next) = (0, ptr::null_mut());
            }
            end
        }
    }

    /// Returns the first word of `text` that stands in the place of a filter's name but names no
    /// filter of libavfilter; `None` if there is none.
    fn unknown_filter(&self, text: &str) -> Option<String> {
        let plain = |part: &str| {
            let part = part
                .rsplit_once(']')
                .map_or(part, |(labels, rest)| if rest.is_empty() { labels } else { rest });
            let end = part.find(['=', '@', '[', ' ']).unwrap_or(part.len());
            part[..end].trim().to_owned()
        };
        let names = text.split([',', ';']).map(str::trim).map(plain);
        names.filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')).find(|name| {
            let c_name = CString::new(name.as_str()).unwrap_or_default();
            // SAFETY: searches a static table.
            !name.is_empty() && unsafe { (self.functions.avfilter_get_by_name)(c_name.as_ptr()) }.is_null()
        })
    }

    /// Returns the description of the output: `info` with the format, size, rate and sample aspect of the
    /// frames that come out. The time base stays that of the input.
    pub fn output(&self, info: &StreamInfo) -> StreamInfo {
        let side = |length: c_int| u32::try_from(length).unwrap_or(0);
        let (functions, sink) = (self.functions, self.sink.as_ptr());
        // SAFETY: the sink of a configured graph.
        let (format, width, height, rate, aspect) = unsafe {
            (
                (functions.av_buffersink_get_format)(sink),
                (functions.av_buffersink_get_w)(sink),
                (functions.av_buffersink_get_h)(sink),
                (functions.av_buffersink_get_frame_rate)(sink),
                (functions.av_buffersink_get_sample_aspect_ratio)(sink),
            )
        };
        StreamInfo {
            format: pixel_format(format),
            width: side(width),
            height: side(height),
            frame_rate: Rational::new(rate.num, rate.den),
            sample_aspect: Rational::new(aspect.num, aspect.den),
            ..*info
        }
    }

    /// Returns the number of bytes that a slot needs for an output picture with `layout`.
    pub fn slot_bytes(layout: &Layout) -> usize {
        layout.size + SLACK
    }

    /// Sends the next frame to the filters. The caller then calls [`receive`](FilterGraph::receive)
    /// until [`Filtered::NeedsFrame`].
    ///
    /// # Errors
    /// The frame is not a picture, the filters reject it, or there is not enough memory.
    pub fn push(&mut self, frame: Frame) -> Result<(), GraphError> {
        self.pushed += 1;
        if self.metas.len() == MOST_INSIDE {
            self.metas.pop_front();
        }
        self.metas.push_back((self.pushed, frame.meta()));
        let rejected = |code| GraphError::graph("run", code);
        let picture =
            self.inputs.wrap(frame, self.pushed)?.ok_or_else(|| rejected(ff::AVERROR(libc::ENOMEM)))?;
        // SAFETY: the source of a configured graph, and a frame of ours, whose reference it takes.
        let code = unsafe {
            (self.functions.av_buffersrc_add_frame_flags)(self.source.as_ptr(), picture.as_ptr(), 0)
        };
        if code < 0 { Err(rejected(code)) } else { Ok(()) }
    }

    /// Announces that no frame follows: [`receive`](FilterGraph::receive) then returns the frames
    /// that the filters still hold, and [`Filtered::End`].
    pub fn drain(&mut self) {
        // SAFETY: the source of a configured graph; a null frame means the end. It fails only if the end
        // was announced before.
        unsafe {
            (self.functions.av_buffersrc_add_frame_flags)(self.source.as_ptr(), ptr::null_mut(), 0);
        }
    }

    /// Returns the next frame that comes out of the filters, or the reason why there is none.
    /// `slot` provides memory for a picture with the given layout, of at least
    /// [`slot_bytes`](FilterGraph::slot_bytes); the graph calls it only for a new picture. The
    /// meter counts the copy of a new picture.
    ///
    /// # Errors
    /// A filter or `slot` failed, or the picture has an invalid layout or does not fit the slot.
    pub fn receive<E: From<GraphError>>(
        &mut self,
        slot: impl FnOnce(&Layout) -> Result<FrameMut, E>,
    ) -> Result<Filtered, E> {
        let picture = self.picture.as_ptr();
        // SAFETY: the sink of a configured graph, and a frame of ours that is empty.
        let code = unsafe { (self.functions.av_buffersink_get_frame)(self.sink.as_ptr(), picture) };
        match code {
            0.. => {}
            _ if code == ff::AVERROR(libc::EAGAIN) => return Ok(Filtered::NeedsFrame),
            _ if code == ff::AVERROR_EOF => return Ok(Filtered::End),
            _ => return Err(GraphError::graph("run", code).into()),
        }
        // SAFETY: a filled frame of ours.
        let meta = unsafe { self.meta_of(picture) };
        // SAFETY: as above.
        let filtered = match unsafe { self.inputs.same(picture) } {
            Some(frame) if (frame.meta().pts, frame.meta().picture()) == (meta.pts, meta.picture()) => {
                Ok(Filtered::Same(frame))
            }
            // SAFETY: as above.
            _ => unsafe { copied(picture, slot) }.map(|copy| Filtered::New(copy, meta)),
        };
        // SAFETY: as above; nothing refers to the frame any more.
        unsafe { ff::av_frame_unref(picture) };
        filtered
    }

    /// Returns the metadata for the output frame `picture`: that of the input frame from which the
    /// picture was made (of the newest input frame if this one is not known), with the picture's
    /// own field order, and with its own presentation time if it has one.
    ///
    /// # Safety
    /// `picture` is a valid frame.
    unsafe fn meta_of(&mut self, picture: *const ff::AVFrame) -> FrameMeta {
        // SAFETY: guaranteed by the caller; the sink is part of the graph.
        let (number, pts, ticks) = unsafe {
            let ticks = (self.functions.av_buffersink_get_time_base)(self.sink.as_ptr());
            ((*picture).opaque.addr() as u64, (*picture).pts, ticks)
        };
        let found = self.metas.iter().find(|(known, _)| *known == number).or(self.metas.back());
        let meta = found.map_or_else(FrameMeta::default, |(_, meta)| *meta);
        let base = ff::AVRational { num: self.time_base.num, den: self.time_base.den };
        // SAFETY: plain numbers; denominators are not 0 in a configured graph.
        let rescaled = || unsafe { ff::av_rescale_q(pts, ticks, base) };
        let has_time = pts != ff::AV_NOPTS_VALUE && base.den != 0;
        // SAFETY: guaranteed by the caller.
        let field_order = unsafe { field_order(picture) };
        FrameMeta { pts: if has_time { Some(rescaled()) } else { meta.pts }, field_order, ..meta }
    }
}

impl Drop for FilterGraph {
    fn drop(&mut self) {
        let mut raw = self.graph.as_ptr();
        // SAFETY: from avfilter_graph_alloc, freed only here, with its filters. Ends their threads.
        unsafe { (self.functions.avfilter_graph_free)(&mut raw) };
    }
}

/// Returns the options of the graph's source, for frames with `layout` of the stream `info`.
fn source_options(layout: &Layout, info: &StreamInfo) -> String {
    let or = |value: Rational, default: (i32, i32)| match value.value() {
        Some(_) => (value.num, value.den),
        None => default,
    };
    let (ticks, aspect) = (or(info.time_base, (1, 1_000_000)), or(info.sample_aspect, (0, 1)));
    let mut options = format!(
        "video_size={}x{}:pix_fmt={}:time_base={}/{}:pixel_aspect={}/{}",
        layout.width,
        layout.height,
        libav_format(layout.format) as c_int,
        ticks.0,
        ticks.1,
        aspect.0,
        aspect.1
    );
    if info.frame_rate.value().is_some() {
        options += &format!(":frame_rate={}/{}", info.frame_rate.num, info.frame_rate.den);
    }
    options
}

/// Copies `picture` into the memory that `slot` provides. The meter counts the bytes.
///
/// # Safety
/// `picture` is a frame that came out of a graph, whose last filter outputs supported formats only.
unsafe fn copied<E: From<GraphError>>(
    picture: *const ff::AVFrame,
    slot: impl FnOnce(&Layout) -> Result<FrameMut, E>,
) -> Result<FrameMut, E> {
    let side = |length: c_int| u32::try_from(length).unwrap_or(0);
    // SAFETY: guaranteed by the caller.
    let (format, width, height, colors) =
        unsafe { ((*picture).format, side((*picture).width), side((*picture).height), colors_of(picture)) };
    let format = pixel_format(format).ok_or_else(|| GraphError::graph("run", ff::AVERROR(libc::ENOSYS)))?;
    let layout =
        Layout::aligned(format, width, height, ROW_ALIGN).map_err(GraphError::from)?.with_colors(colors);
    let mut copy = slot(&layout)?;
    copy.set_layout(&layout).map_err(GraphError::from)?;
    meter::copy(layout.pixel_bytes(), || {
        for (index, plane) in layout.planes().iter().enumerate() {
            let to = copy.plane_mut(index);
            for row in 0..plane.rows {
                // SAFETY: libavfilter's picture has these rows; strides may be negative. The target is memory of
                // the slot, so the two do not overlap.
                unsafe {
                    let (first, stride) = ((*picture).data[index], (*picture).linesize[index] as isize);
                    let from = std::slice::from_raw_parts(first.offset(row as isize * stride), plane.width);
                    to[row * plane.stride..][..plane.width].copy_from_slice(from);
                }
            }
        }
    });
    Ok(copy)
}
