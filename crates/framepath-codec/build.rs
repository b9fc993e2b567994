// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates bindings of the installed dav1d header, and passes FFmpeg's version to the crate.
//!
//! dav1d's ABI changed between Debian 12 (1.0) and Debian 13 (1.5), so the
//! bindings come from the header that is there, never from a stored copy.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    ffmpeg_flags();
    bind_dav1d();
}

/// Sets the cfg `callbacks_need_flag` if the FFmpeg headers are older than 6.0, and `frame_has_field_flags` if
/// they are 6.1 or newer. `ffmpeg-sys-next` passes their version in environment variables.
fn ffmpeg_flags() {
    println!("cargo::rustc-check-cfg=cfg(callbacks_need_flag)");
    // FFmpeg 5 calls get_buffer2 from its frame threads only if the field thread_safe_callbacks
    // allows it. FFmpeg 6 and newer versions always do, and have no such field.
    if env::var("DEP_FFMPEG_FFMPEG_6_0").as_deref() != Ok("true") {
        println!("cargo::rustc-cfg=callbacks_need_flag");
    }
    println!("cargo::rustc-check-cfg=cfg(frame_has_field_flags)");
    // FFmpeg 6.1 has moved the field order of frames to flags, and a stream's side data to its parameters.
    if env::var("DEP_FFMPEG_FFMPEG_6_1").as_deref() == Ok("true") {
        println!("cargo::rustc-cfg=frame_has_field_flags");
    }
}

fn bind_dav1d() {
    let library = pkg_config::Config::new()
        .atleast_version("1.0")
        .probe("dav1d")
        .unwrap_or_else(|error| panic!("dav1d 1.0 or newer is needed (apt install libdav1d-dev): {error}"));
    let include_args = library.include_paths.iter().map(|path| format!("-I{}", path.display()));
    let bindings = bindgen::Builder::default()
        .header_contents("framepath_dav1d.h", "#include <dav1d/dav1d.h>\n")
        .clang_args(include_args)
        .allowlist_function(
            "dav1d_(version|default_settings|open|close|flush|send_data|get_picture|picture_unref)",
        )
        .allowlist_function("dav1d_(data_wrap|data_unref|get_decode_error_data_props|data_props_unref)")
        .allowlist_type("Dav1d(Settings|Context|Picture|Data|DataProps|PicAllocator|PixelLayout)")
        .allowlist_var("DAV1D_PICTURE_ALIGNMENT")
        // Plain integers: a value that a newer library adds must not be
        // undefined behaviour here.
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .generate()
        .unwrap_or_else(|error| panic!("bindgen could not read dav1d/dav1d.h: {error}"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("dav1d.rs");
    bindings.write_to_file(&out).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}
