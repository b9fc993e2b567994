// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the converter: comparison with the pixels of the `ffmpeg` tool, for all pairs of
//! formats.

use std::fs;
use std::path::Path;
use std::process::Command;

use framepath_codec::{ConvertError, Converter};
use framepath_model::colors::{BT709, ColorRange, Colors, MATRIX_RGB, SMPTE170M};
use framepath_model::format::{ColorFamily, Layout, PixelFormat};
use framepath_model::stream::FrameMeta;
use framepath_os::measure::meter;
use framepath_os::memory::pool::{Frame, Pool};

/// Returns the name of `format` in the `ffmpeg` tool.
fn tools_name(format: PixelFormat) -> String {
    match format {
        PixelFormat::Yuyv => "yuyv422".to_owned(),
        PixelFormat::Uyvy => "uyvy422".to_owned(),
        PixelFormat::Bgr0 => "bgr0".to_owned(),
        _ => {
            let name = format.name().to_lowercase().replace("grey", "gray");
            if format.luma_bytes() == 2 { format!("{name}le") } else { name }
        }
    }
}

/// The formats that are compared in every pair and size.
const USUAL: [PixelFormat; 6] = [
    PixelFormat::Grey,
    PixelFormat::Yuv420p,
    PixelFormat::Nv12,
    PixelFormat::Yuv420p10,
    PixelFormat::P010,
    PixelFormat::Rgba,
];

/// Returns the formats to convert `from` to: the usual ones from a usual one, and one of each kind from and to
/// the others. libswscale does not make palettes.
fn targets(from: PixelFormat) -> Vec<PixelFormat> {
    let is_usual = |format: &PixelFormat| USUAL.contains(format);
    let all = PixelFormat::ALL.into_iter().filter(|to| *to != from && *to != PixelFormat::Pal8);
    match from {
        PixelFormat::Yuv420p => all.collect(),
        from if is_usual(&from) => all.filter(is_usual).collect(),
        _ => all.filter(|to| matches!(to, PixelFormat::Yuv420p | PixelFormat::Rgba)).collect(),
    }
}

fn frame(layout: &Layout, bytes: &[u8]) -> Frame {
    // If the slot is full to its last byte, the mapping ends there too.
    let mut frame = Pool::new(layout.size, 1).unwrap().acquire().unwrap();
    frame.set_layout(layout).unwrap();
    let mut rest = bytes;
    for (index, plane) in layout.planes().iter().enumerate() {
        for row in frame.plane_mut(index).chunks_mut(plane.stride) {
            let (here, after) = rest.split_at(plane.width);
            row[..plane.width].copy_from_slice(here);
            rest = after;
        }
    }
    frame.freeze(FrameMeta::default())
}

/// Converts `bytes`, a picture of the size `size`, with the `ffmpeg` tool set to exact conversion.
/// `colors` are further options of the tool's filter `scale`. Returns the bytes of the converted
/// picture.
fn by_the_tool(
    folder: &Path,
    bytes: &[u8],
    (from, colors): (PixelFormat, &str),
    to: PixelFormat,
    size: &str,
) -> Vec<u8> {
    let (input, output) = (folder.join("in"), folder.join("out"));
    fs::write(&input, bytes).unwrap();
    let filter = format!(
        "scale=flags=bicubic+full_chroma_int+accurate_rnd+bitexact{colors},format={}",
        tools_name(to)
    );
    let ran = Command::new("ffmpeg")
        .args([
            "-nostdin",
            "-v",
            "error",
            "-y",
            "-f",
            "rawvideo",
            "-pix_fmt",
            &tools_name(from),
            "-s",
            size,
            "-i",
        ])
        .arg(&input)
        .args(["-vf", &filter, "-f", "rawvideo"])
        .arg(&output)
        .output()
        .expect("these tests need the `ffmpeg` tool (apt install ffmpeg)");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    fs::read(&output).unwrap()
}

#[test]
fn pixels_are_those_of_the_tool() {
    let folder = tempfile::tempdir().unwrap();
    for (width, height) in [(64, 48), (70, 50), (99, 57), (1, 1), (5, 2)] {
        let all = PixelFormat::ALL.into_iter();
        for from in all.filter(|from| USUAL.contains(from) || [(99, 57), (70, 50)].contains(&(width, height)))
        {
            let layout = Layout::packed(from, width, height).unwrap();
            // A smooth gradient, within the bits of the samples.
            let mask = (((1u32 << from.depth()) - 1) >> 8) as u8;
            let wide = from.luma_bytes() == 2 && from != PixelFormat::P010;
            let bytes: Vec<u8> = (0..layout.size)
                .map(|at| if wide && at % 2 == 1 { (at / 64) as u8 & mask } else { (at / 3) as u8 })
                .collect();
            let given = frame(&layout, &bytes);
            let is_planar_rgb = from.family() == ColorFamily::Rgb && from.plane_count() > 1;
            for to in targets(from) {
                // For such pictures libswscale calculates the last column of chroma with bytes beyond the row.
                let is_own = matches!(from, PixelFormat::Bgr0 | PixelFormat::Bgra);
                // BGR0 and BGRA have a conversion without libswscale, which has tests of its own.
                if (is_own || is_planar_rgb && width % 2 == 1) && to == PixelFormat::Yuv420p {
                    continue;
                }
                let wanted = by_the_tool(folder.path(), &bytes, (from, ""), to, &format!("{width}x{height}"));
                let target = Layout::aligned(to, width, height, 64).unwrap();
                let mut made = Pool::new(Converter::slot_bytes(&target), 1).unwrap().acquire().unwrap();
                made.set_layout(&target).unwrap();
                meter::take();
                Converter::new(to).convert(&given, &mut made).unwrap();
                let first = (height as usize - 1) / 16 * 16;
                let last_rows: usize = layout
                    .planes()
                    .iter()
                    .enumerate()
                    .map(|(index, plane)| {
                        let is_palette = from == PixelFormat::Pal8 && index == 1;
                        let before = if is_palette { 0 } else { from.plane_size(index, 0, first).1 };
                        plane.width * (plane.rows - before)
                    })
                    .sum();
                assert_eq!(meter::take().copied_bytes, (target.pixel_bytes() + last_rows) as u64);
                let made = made.freeze(FrameMeta::default());
                let mut got = Vec::new();
                for (index, plane) in target.planes().iter().enumerate() {
                    (0..plane.rows).for_each(|y| got.extend(made.row(index, y).to_vec()));
                }
                assert!(got == wanted, "{from} to {to}, {width}x{height}");
            }
        }
    }
}

#[test]
fn colours_that_are_told_count() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::packed(PixelFormat::Yuv420p, 64, 48).unwrap();
    let bytes: Vec<u8> = (0..layout.size).map(|at| (at / 3) as u8).collect();
    let hd = Colors { matrix: BT709, range: ColorRange::Limited, ..Colors::UNKNOWN };
    let full = Colors { matrix: SMPTE170M, range: ColorRange::Full, ..Colors::UNKNOWN };
    let mut converter = Converter::new(PixelFormat::Rgba);
    let mut convert = |colors: Colors| {
        let from = frame(&layout.with_colors(colors), &bytes);
        let target = Layout::aligned(PixelFormat::Rgba, 64, 48, 64).unwrap();
        let target = target.with_colors(converter.colors(from.layout()));
        assert_eq!((target.colors.matrix, target.colors.range), (MATRIX_RGB, ColorRange::Full));
        let mut made = Pool::new(Converter::slot_bytes(&target), 1).unwrap().acquire().unwrap();
        made.set_layout(&target).unwrap();
        converter.convert(&from, &mut made).unwrap();
        let made = made.freeze(FrameMeta::default());
        (0..48).flat_map(|y| made.row(0, y).to_vec()).collect::<Vec<u8>>()
    };
    let yuv = PixelFormat::Yuv420p;
    for (colors, options) in [
        (Colors::UNKNOWN, ""),
        (hd, ":in_color_matrix=bt709:in_range=tv"),
        (full, ":in_color_matrix=bt601:in_range=pc"),
        (Colors::UNKNOWN, ""),
    ] {
        let wanted = by_the_tool(folder.path(), &bytes, (yuv, options), PixelFormat::Rgba, "64x48");
        assert!(convert(colors) == wanted, "{colors:?}");
    }
    // Luma only, of both ranges and depths.
    let grey = Layout::packed(PixelFormat::Grey, 64, 48).unwrap();
    let deep = Layout::packed(PixelFormat::Yuv420p10, 64, 48).unwrap();
    let two: Vec<u8> =
        (0..deep.size).map(|at| if at % 2 == 1 { (at / 64) as u8 & 3 } else { at as u8 }).collect();
    let limited = Colors { range: ColorRange::Limited, ..Colors::UNKNOWN };
    for (from, bytes, colors, options, to) in [
        (grey, &bytes[..grey.size], limited, ":in_range=tv", PixelFormat::Rgba),
        (grey, &bytes[..grey.size], limited, ":in_range=tv", PixelFormat::Yuv420p),
        (deep, &two[..], full, ":in_color_matrix=bt601:in_range=pc", PixelFormat::Grey),
        (deep, &two[..], limited, ":in_color_matrix=bt601:in_range=tv", PixelFormat::Grey),
    ] {
        let wanted = by_the_tool(folder.path(), bytes, (from.format, options), to, "64x48");
        let target = Layout::aligned(to, 64, 48, 64).unwrap();
        let mut made = Pool::new(Converter::slot_bytes(&target), 1).unwrap().acquire().unwrap();
        made.set_layout(&target).unwrap();
        Converter::new(to).convert(&frame(&from.with_colors(colors), bytes), &mut made).unwrap();
        let made = made.freeze(FrameMeta::default());
        let planes = target.planes().iter().enumerate();
        let got: Vec<u8> = planes
            .flat_map(|(index, plane)| (0..plane.rows).map(move |y| (index, y)))
            .flat_map(|(index, y)| made.row(index, y).to_vec())
            .collect();
        assert!(got == wanted, "{} {colors:?} to {to}", from.format);
    }
    // Pictures made of RGB are BT.601 at any size, and declare it.
    let wide = Layout::packed(PixelFormat::Rgba, 1280, 16).unwrap();
    let ramp: Vec<u8> = (0..wide.size).map(|at| [at / 20, 40, 200, 255][at % 4] as u8).collect();
    let wanted = by_the_tool(folder.path(), &ramp, (wide.format, ""), yuv, "1280x16");
    let mut to_yuv = Converter::new(yuv);
    assert_eq!(to_yuv.colors(&wide).matrix, SMPTE170M);
    let target = Layout::aligned(yuv, 1280, 16, 64).unwrap();
    let mut made = Pool::new(Converter::slot_bytes(&target), 1).unwrap().acquire().unwrap();
    made.set_layout(&target).unwrap();
    to_yuv.convert(&frame(&wide, &ramp), &mut made).unwrap();
    let made = made.freeze(FrameMeta::default());
    let luma: Vec<u8> = (0..16).flat_map(|y| made.row(0, y).to_vec()).collect();
    assert!(luma == wanted[..luma.len()]);
    // A conversion from YUV to YUV keeps the meaning of the values.
    let full_range = frame(&layout.with_colors(full), &bytes);
    let mut to_nv12 = Converter::new(PixelFormat::Nv12);
    assert_eq!(to_nv12.colors(full_range.layout()), full);
    let target = Layout::aligned(PixelFormat::Nv12, 64, 48, 64).unwrap();
    let mut made = Pool::new(Converter::slot_bytes(&target), 1).unwrap().acquire().unwrap();
    made.set_layout(&target).unwrap();
    to_nv12.convert(&full_range, &mut made).unwrap();
    let made = made.freeze(FrameMeta::default());
    assert!((0..48).all(|y| made.row(0, y).to_vec() == full_range.row(0, y).to_vec()));
}

/// libswscale reads beyond the end. A slot without a spare byte ends with its mapping, so the
/// read would crash the test.
#[test]
fn no_byte_behind_the_slot_is_read() {
    let layout = Layout::packed(PixelFormat::Rgba, 32, 32).unwrap();
    assert_eq!(layout.size % 4096, 0);
    let target = Layout::aligned(PixelFormat::Nv12, 32, 32, 64).unwrap();
    let mut converter = Converter::new(PixelFormat::Nv12);
    let frames: Vec<Frame> = (0..64).map(|_| frame(&layout, &vec![9; layout.size])).collect();
    for frame in &frames {
        let mut made = Pool::new(Converter::slot_bytes(&target), 1).unwrap().acquire().unwrap();
        made.set_layout(&target).unwrap();
        converter.convert(frame, &mut made).unwrap();
    }
}

#[test]
fn invalid_pictures_are_refused() {
    let layout = Layout::opaque(100_000);
    let given = frame(&layout, &[0; 100_000]);
    let mut made = Pool::new(layout.size, 1).unwrap().acquire().unwrap();
    made.set_layout(&layout).unwrap();
    let error = Converter::new(PixelFormat::Grey).convert(&given, &mut made).unwrap_err().to_string();
    assert!(error.contains("picture size 100000x1 is outside"), "{error}");
}

/// libswscale writes whole vectors. With a slot that ends with the picture, it would write into
/// the next slot, or beyond the pool.
#[test]
fn a_slot_without_room_behind_the_picture_is_refused() {
    let layout = Layout::packed(PixelFormat::Rgba, 33, 64).unwrap();
    let target = Layout::packed(PixelFormat::Grey, 64, 64).unwrap();
    assert_eq!(target.size % 4096, 0, "fills its pages");
    let from = Layout::packed(PixelFormat::Rgba, 64, 64).unwrap();
    let given = frame(&from, &vec![1; from.size]);
    let mut made = Pool::new(target.size, 1).unwrap().acquire().unwrap();
    made.set_layout(&target).unwrap();
    let refused = Converter::new(PixelFormat::Grey).convert(&given, &mut made);
    assert!(matches!(refused, Err(ConvertError::Layout(_))));
    // A layout with the planes of a smaller picture.
    let mut lying = layout;
    (lying.width, lying.height) = (4096, 4096);
    let given = frame(&lying, &vec![1; layout.size]);
    let large = Layout::packed(PixelFormat::Grey, 4096, 4096).unwrap();
    let mut made = Pool::new(Converter::slot_bytes(&large), 1).unwrap().acquire().unwrap();
    made.set_layout(&large).unwrap();
    let refused = Converter::new(PixelFormat::Grey).convert(&given, &mut made);
    assert!(matches!(refused, Err(ConvertError::Layout(_))));
}
