// SPDX-License-Identifier: MIT OR Apache-2.0
//! libavfilter, loaded at run time: it needs many other libraries, and only paths with `filter` use it.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use ffmpeg_sys_next as ff;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::GraphError;

/// A graph of filters (`AVFilterGraph`), only used by its address.
#[repr(C)]
pub(super) struct Graph(c_void);

/// A filter in a graph (`AVFilterContext`), only used by its address.
#[repr(C)]
pub(super) struct FilterContext(c_void);

/// Open end of a graph in text form: `AVFilterInOut` of libavfilter/avfilter.h, whose fields are public.
#[repr(C)]
pub(super) struct OpenEnd {
    pub(super) name: *mut c_char,
    pub(super) filter: *mut FilterContext,
    pub(super) pad: c_int,
    pub(super) next: *mut OpenEnd,
}

/// Declares the functions of the library that are used, and how to find them by their names.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of libavfilter; they may be called until the process ends.
        pub(super) struct FilterFunctions {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl FilterFunctions {
            /// Finds the functions in `library`.
            ///
            /// # Safety
            /// The library is libavfilter of the version whose headers these types come from.
            unsafe fn find(library: &Library) -> Result<FilterFunctions, libloading::Error> {
                // SAFETY: guaranteed by the caller; each function has the type that its header declares.
                unsafe { Ok(FilterFunctions { $($name: *library.get(stringify!($name).as_bytes())?,)* }) }
            }
        }
    };
}

functions! {
    avfilter_version: fn() -> c_uint;
    avfilter_graph_alloc: fn() -> *mut Graph;
    avfilter_graph_free: fn(*mut *mut Graph);
    avfilter_graph_create_filter: fn(*mut *mut FilterContext, *const c_void, *const c_char, *const c_char, *mut c_void, *mut Graph) -> c_int;
    avfilter_get_by_name: fn(*const c_char) -> *const c_void;
    avfilter_link: fn(*mut FilterContext, c_uint, *mut FilterContext, c_uint) -> c_int;
    avfilter_inout_alloc: fn() -> *mut OpenEnd;
    avfilter_inout_free: fn(*mut *mut OpenEnd);
    avfilter_graph_parse_ptr: fn(*mut Graph, *const c_char, *mut *mut OpenEnd, *mut *mut OpenEnd, *mut c_void) -> c_int;
    avfilter_graph_config: fn(*mut Graph, *mut c_void) -> c_int;
    av_buffersrc_add_frame_flags: fn(*mut FilterContext, *mut ff::AVFrame, c_int) -> c_int;
    av_buffersink_get_frame: fn(*mut FilterContext, *mut ff::AVFrame) -> c_int;
    av_buffersink_get_format: fn(*const FilterContext) -> c_int;
    av_buffersink_get_w: fn(*const FilterContext) -> c_int;
    av_buffersink_get_h: fn(*const FilterContext) -> c_int;
    av_buffersink_get_time_base: fn(*const FilterContext) -> ff::AVRational;
    av_buffersink_get_frame_rate: fn(*const FilterContext) -> ff::AVRational;
    av_buffersink_get_sample_aspect_ratio: fn(*const FilterContext) -> ff::AVRational;
}

/// Returns the functions of libavfilter; loads the library on the first call. The library stays
/// loaded, because its filters may have started threads. After a failure, later calls return the
/// same error without another attempt.
///
/// # Errors
/// The library of the same FFmpeg as libavcodec is not installed, has another version than its name
/// says, or lacks a function.
pub(super) fn functions() -> Result<&'static FilterFunctions, GraphError> {
    static LOADED: OnceLock<Result<FilterFunctions, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        // The major versions of FFmpeg's libraries differ by a constant (avcodec 59 and avfilter 8 in FFmpeg 5).
        // SAFETY: takes no arguments and may be called at any time.
        let major = unsafe { ff::avcodec_version() >> 16 }.saturating_sub(51);
        let name = format!("libavfilter.so.{major}");
        // SAFETY: the constructors of libavfilter and its dependencies run; these are the system's own libraries,
        // as libavcodec is.
        let library = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| format!("{error}; install libavfilter{major}"))?;
        // SAFETY: the name has the major version that belongs to the headers.
        let functions =
            unsafe { FilterFunctions::find(&library) }.map_err(|error| format!("{name}: {error}"))?;
        // SAFETY: takes no arguments.
        let found = unsafe { (functions.avfilter_version)() } >> 16;
        if found != major {
            return Err(format!("{name} is version {found}"));
        }
        // Keeps the library loaded until the process ends.
        std::mem::forget(library);
        Ok(functions)
    });
    loaded.as_ref().map_err(|reason| GraphError::Library(reason.clone()))
}
