// SPDX-License-Identifier: MIT OR Apache-2.0
//! FFmpeg's enums grow with every version, and streams contain their numbers. A number without a
//! name in the bindings must not become a Rust enum, and not be part of a struct that is
//! referenced or copied.

use std::fs;
use std::path::Path;

/// Fields of FFmpeg's structs that the bindings declare as Rust enums.
const ENUM_FIELDS: &[&str] = &[
    "audio_service_type",
    "chroma_location",
    "chroma_sample_location",
    "codec_id",
    "codec_type",
    "color_primaries",
    "color_range",
    "color_space",
    "color_trc",
    "colorspace",
    "device_type",
    "discard",
    "duration_estimation_method",
    "field_order",
    "id",
    "pict_type",
    "pix_fmt",
    "request_sample_fmt",
    "sample_fmt",
    "skip_frame",
    "skip_idct",
    "skip_loop_filter",
    "sw_pix_fmt",
    "type_",
    "video_codec_id",
];

/// Functions of FFmpeg that return a Rust enum.
const ENUM_RESULTS: &[&str] = &[
    "av_codec_get_id",
    "av_get_pix_fmt(",
    "av_guess_codec",
    "av_hwdevice_find_type_by_name",
    "av_hwdevice_iterate_types",
    "avcodec_default_get_format",
    "avcodec_get_type",
    "avcodec_pix_fmt_to_",
    "avcodec_find_best_pix_fmt",
];

/// Returns a description of the line's access to a Rust enum of FFmpeg; `None` if there is no such
/// access.
fn fault(line: &str) -> Option<String> {
    let code = line.split("//").next().unwrap_or(line);
    for field in ENUM_FIELDS {
        let access = format!(").{field}");
        for (at, found) in code.match_indices(&access) {
            let rest = code[at + found.len()..].trim_start();
            let whole_name = !code[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let is_call = rest.starts_with('(');
            let is_written = rest.starts_with('=') && !rest.starts_with("==");
            let is_address = code[..at].rfind("&raw").is_some_and(|raw| {
                code[raw..at]
                    .trim_start_matches("&raw const")
                    .trim_start_matches("&raw mut")
                    .trim()
                    .starts_with("(*")
            });
            let is_place = code[..at].contains("(*");
            if whole_name && is_place && !is_call && !is_written && !is_address {
                return Some(format!("reads `{field}` as a Rust enum"));
            }
        }
    }
    if let Some(function) = ENUM_RESULTS.iter().find(|function| code.contains(&format!("ff::{function}"))) {
        return Some(format!("`{function}` returns a Rust enum"));
    }
    // A reference to, or a copy of, a whole struct.
    let of_struct =
        ["context", "frame", "picture", "target", "stream", "parameters", "codecpar", "config", "raw"];
    for name in of_struct {
        let whole = [
            format!("&*{name}"),
            format!("&mut *{name}"),
            format!("= *{name};"),
            format!("= *(*{name});"),
            format!("&*self.{name}.as_ptr()"),
            format!("&mut *self.{name}.as_ptr()"),
            format!("self.{name}.0.as_ref()"),
            format!("self.{name}.0.as_mut()"),
        ];
        if let Some(whole) = whole.iter().find(|whole| code.contains(whole.as_str())) {
            return Some(format!("`{whole}` makes a reference to, or a copy of, a struct with enums"));
        }
    }
    None
}

#[test]
fn no_enum_of_c_is_read_as_a_rust_enum() {
    let mut faults = Vec::new();
    let mut files = 0;
    let mut paths = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // dav1d's bindings have plain integers (build.rs).
        if !text.contains("ffmpeg_sys_next") {
            continue;
        }
        files += 1;
        for (number, line) in text.lines().enumerate() {
            if let Some(fault) = fault(line) {
                faults.push(format!("{}:{}: {fault}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(files > 20, "{files}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_patterns_are_found() {
    for line in [
        "let id = (*parameters).codec_id;",
        "ff::avcodec_get_name((*parameters).codec_id)",
        "if (*found).id == codec.id() {",
        "let picture = unsafe { &*self.picture.as_ptr() };",
        "let frame = unsafe { &mut *frame };",
        "let context = &*context;",
        "let stream = *(*stream);",
        "let format = ff::av_get_pix_fmt(name);",
    ] {
        assert!(fault(line).is_some(), "{line}");
    }
    for line in [
        "let id = (&raw const (*parameters).codec_id).cast::<u32>().read();",
        "(*raw).codec_id = codec.id();",
        "let width = (*frame).width;",
        "Codec::ALL.into_iter().find(|codec| codec.id() as u32 == id)",
        "// let id = (*parameters).codec_id;",
    ] {
        assert!(fault(line).is_none(), "{line}");
    }
}
