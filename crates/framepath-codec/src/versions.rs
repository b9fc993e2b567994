// SPDX-License-Identifier: MIT OR Apache-2.0
//! Versions of the codec libraries that this process uses.

use std::ffi::{CStr, c_char};

use ffmpeg_sys_next as ff;

/// Returns the name and version of each library, as reported by the library at run time.
pub fn versions() -> Vec<(&'static str, String)> {
    // SAFETY: these functions take no arguments and may be called at any time.
    let (codec, format, scale) =
        unsafe { (ff::avcodec_version(), ff::avformat_version(), ff::swscale_version()) };
    // SAFETY: both return static NUL-terminated strings.
    let (ffmpeg, dav1d) = unsafe { (text(ff::av_version_info()), text(crate::dav1d::version())) };
    vec![
        ("FFmpeg libraries", ffmpeg),
        ("libavcodec", triple(codec)),
        ("libavformat", triple(format)),
        ("libswscale", triple(scale)),
        ("dav1d", dav1d),
    ]
}

/// Formats an `AV_VERSION_INT` (libavutil/version.h) as `major.minor.micro`.
fn triple(version: u32) -> String {
    format!("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff)
}

/// Copies a C string; returns an empty string for null.
///
/// # Safety
/// `pointer` is null or a NUL-terminated string that is never freed.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
