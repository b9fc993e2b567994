// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of BGR0 and BGRA to 4:2:0, NV12 or YUV420P, without libswscale, which takes several times as long.
//!
//! BT.601, limited range (ITU-T H.273: matrix 6). A chroma sample is the mean of its block of 2x2 pixels: it lies in the
//! centre of the block, as in JPEG and MPEG-1, and as libswscale places it by default. At odd sizes the last column
//! and row are repeated. Alpha is ignored. Sums are exact, and rounded once: a sample differs by at most one level
//! from the same calculation in double precision.

use std::ops::Range;

use framepath_model::format::PixelFormat;
use framepath_os::memory::pool::{Frame, FrameMut};

/// Number of fractional bits of the factors.
const BITS: u32 = 14;

/// Factors of blue, green and red for luma, with [`BITS`] fractional bits: 24.966, 128.553 and
/// 65.481 (BT.601), each divided by 255.
const LUMA: [i32; 3] = [1604, 8260, 4207];

/// Factors of blue, green and red for the chroma of blue, with [`BITS`] fractional bits: 112,
/// -74.203 and -37.797, each divided by 255. Their sum is 0, so that grey has no colour.
const BLUE: [i32; 3] = [7196, -4768, -2428];

/// Factors of blue, green and red for the chroma of red, with [`BITS`] fractional bits: -18.214,
/// -93.786 and 112, each divided by 255. Their sum is 0, so that grey has no colour.
const RED: [i32; 3] = [-1170, -6026, 7196];

/// Returns true if [`RgbToYuv`] converts pictures in `from` to `to`.
pub(crate) fn converts(from: PixelFormat, to: PixelFormat) -> bool {
    matches!(from, PixelFormat::Bgr0 | PixelFormat::Bgra)
        && matches!(to, PixelFormat::Nv12 | PixelFormat::Yuv420p)
}

/// Converter from BGR0 and BGRA to NV12 and YUV420P, with its scratch memory.
#[derive(Debug, Default)]
pub(crate) struct RgbToYuv {
    /// Copies of two rows of pixels, used only for a frame that another process or a device may
    /// change.
    pixels: [Vec<u8>; 2],
    /// Scratch memory for one row of each chroma plane: blue, red.
    chroma: [Vec<u8>; 2],
}

impl RgbToYuv {
    /// Writes the rows of `bands` of the picture `from` into `into`, whose layout has the same size. A row whose
    /// neighbour has the same chroma is written with it.
    ///
    /// # Panics
    /// [`converts`] is false for the formats, the sizes differ, or a band ends below the picture.
    pub(crate) fn convert(&mut self, from: &Frame, into: &mut FrameMut, bands: &[Range<u32>]) {
        let (source, target) = (*from.layout(), *into.layout());
        assert!(converts(source.format, target.format), "{} to {}", source.format, target.format);
        assert_eq!((source.width, source.height), (target.width, target.height), "equal sizes");
        let (width, height) = (source.width as usize, source.height as usize);
        let kernels = Kernels::best();
        let [u, v] = &mut self.chroma;
        u.resize(width.div_ceil(2), 0);
        v.resize(width.div_ceil(2), 0);
        let pairs = |band: &Range<u32>| band.start as usize / 2..(band.end as usize).div_ceil(2);
        for pair in bands.iter().flat_map(pairs) {
            let numbers = [2 * pair, (2 * pair + 1).min(height - 1)];
            let [first, second] = &mut self.pixels;
            let rows = [stable(from, numbers[0], first), stable(from, numbers[1], second)];
            for (y, row) in numbers.into_iter().zip(rows) {
                kernels.luma(row, row_mut(into, 0, y));
            }
            kernels.chroma(rows, u, v);
            if target.format == PixelFormat::Nv12 {
                let to = row_mut(into, 1, pair).chunks_exact_mut(2);
                to.zip(u.iter().zip(v.iter())).for_each(|(to, (u, v))| to.copy_from_slice(&[*u, *v]));
            } else {
                row_mut(into, 1, pair).copy_from_slice(u);
                row_mut(into, 2, pair).copy_from_slice(v);
            }
        }
    }
}

/// Returns the pixels of row `y` of `frame`; copied into `copy` if another process or a device may
/// change them.
fn stable<'a>(frame: &'a Frame, y: usize, copy: &'a mut Vec<u8>) -> &'a [u8] {
    let row = frame.row(0, y);
    match row.as_stable() {
        Some(bytes) => bytes,
        None => {
            copy.resize(row.len(), 0);
            row.copy_to(copy);
            copy
        }
    }
}

fn row_mut(frame: &mut FrameMut, plane: usize, y: usize) -> &mut [u8] {
    let layout = frame.layout().planes()[plane];
    &mut frame.plane_mut(plane)[y * layout.stride..][..layout.width]
}

/// Instructions with which the loops below run: those of every machine of the architecture, or
/// AVX2.
#[derive(Clone, Copy)]
enum Kernels {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Kernels {
    fn best() -> Kernels {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Kernels::Avx2;
        }
        Kernels::Baseline
    }

    /// Writes the luma of the row `pixels` to `to`.
    fn luma(self, pixels: &[u8], to: &mut [u8]) {
        match self {
            Kernels::Baseline => luma(pixels, to),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has found the instructions.
            Kernels::Avx2 => unsafe { luma_avx2(pixels, to) },
        }
    }

    /// Writes a row of each chroma plane, from two rows of pixels.
    fn chroma(self, rows: [&[u8]; 2], u: &mut [u8], v: &mut [u8]) {
        match self {
            Kernels::Baseline => chroma(rows, u, v),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has found the instructions.
            Kernels::Avx2 => unsafe { chroma_avx2(rows, u, v) },
        }
    }
}

/// Does the work of [`luma`], compiled for AVX2.
///
/// # Safety
/// The machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn luma_avx2(pixels: &[u8], to: &mut [u8]) {
    luma(pixels, to);
}

/// Number of pixels that [`chroma_avx2`] reads from a row at a time.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 16;

/// Does the work of [`chroma`] with AVX2 instructions chosen by hand, because the compiler adds
/// pairs of pixels slowly.
///
/// # Safety
/// The machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn chroma_avx2(rows: [&[u8]; 2], u: &mut [u8], v: &mut [u8]) {
    use std::arch::x86_64::*;

    // SAFETY: the machine has the instructions, as the caller guarantees; each load reads 32 bytes of a slice
    // that long.
    unsafe {
        let factors = |[blue, green, red]: [i32; 3]| {
            let pixel = [blue, green, red, 0].map(|factor| factor as i16);
            pixel.iter().rev().fold(0, |word, factor| word << 16 | i64::from(*factor as u16))
        };
        let (blue, red) = (_mm256_set1_epi64x(factors(BLUE)), _mm256_set1_epi64x(factors(RED)));
        let base = _mm256_set1_epi32((128 << (BITS + 2)) + (1 << (BITS + 1)));
        // Chroma of eight pixels in each of two rows: blue of two blocks and red of two blocks, in each half.
        let four_blocks = |upper: *const u8, lower: *const u8| {
            let zero = _mm256_setzero_si256();
            let (upper, lower) = (_mm256_loadu_si256(upper.cast()), _mm256_loadu_si256(lower.cast()));
            let add_rows = |upper, lower| {
                let column = _mm256_add_epi16(upper, lower);
                // The other pixel of the block is in the other half of 64 bits.
                _mm256_add_epi16(column, _mm256_shuffle_epi32::<0b01_00_11_10>(column))
            };
            let first = add_rows(_mm256_unpacklo_epi8(upper, zero), _mm256_unpacklo_epi8(lower, zero));
            let second = add_rows(_mm256_unpackhi_epi8(upper, zero), _mm256_unpackhi_epi8(lower, zero));
            let sums = _mm256_unpacklo_epi64(first, second);
            let chroma = _mm256_hadd_epi32(_mm256_madd_epi16(sums, blue), _mm256_madd_epi16(sums, red));
            _mm256_srli_epi32::<{ (BITS + 2) as i32 }>(_mm256_add_epi32(chroma, base))
        };
        let steps = rows[0].chunks_exact(4 * STEP).zip(rows[1].chunks_exact(4 * STEP));
        let mut done = 0;
        for ((upper, lower), (u, v)) in
            steps.zip(u.chunks_exact_mut(STEP / 2).zip(v.chunks_exact_mut(STEP / 2)))
        {
            let parts =
                [0, 32].map(|at| four_blocks(upper[at..at + 32].as_ptr(), lower[at..at + 32].as_ptr()));
            let words = _mm256_packus_epi32(parts[0], parts[1]);
            let bytes = _mm256_packus_epi16(words, words);
            // Pairs of blue and red, from the two halves in turn; then all of blue, and all of red.
            let pairs =
                _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
            let sorted = _mm_shuffle_epi32::<0b11_01_10_00>(pairs);
            u.copy_from_slice(&_mm_cvtsi128_si64(sorted).to_le_bytes());
            v.copy_from_slice(&_mm_extract_epi64::<1>(sorted).to_le_bytes());
            done += STEP;
        }
        chroma(rows.map(|row| &row[4 * done..]), &mut u[done / 2..], &mut v[done / 2..]);
    }
}

/// Returns `base` plus the sum of three samples, each times its factor, rounded to a whole level.
/// The factors have `bits` fractional bits.
#[inline(always)]
fn weighted(samples: [i32; 3], factors: [i32; 3], base: i32, bits: u32) -> u8 {
    let sum = samples[0] * factors[0] + samples[1] * factors[1] + samples[2] * factors[2];
    ((sum + (base << bits) + (1 << (bits - 1))) >> bits) as u8
}

#[inline(always)]
fn luma(pixels: &[u8], to: &mut [u8]) {
    for (pixel, to) in pixels.chunks_exact(4).zip(to) {
        *to = weighted(samples(pixel), LUMA, 16, BITS);
    }
}

/// Number of blocks that are computed at a time: the compiler then keeps the sums in vectors.
const GROUP: usize = 16;

#[inline(always)]
fn chroma(rows: [&[u8]; 2], u: &mut [u8], v: &mut [u8]) {
    let groups = rows[0].chunks_exact(8 * GROUP).zip(rows[1].chunks_exact(8 * GROUP));
    let mut done = 0;
    for ((upper, lower), (u, v)) in groups.zip(u.chunks_exact_mut(GROUP).zip(v.chunks_exact_mut(GROUP))) {
        group([upper, lower], u, v);
        done += GROUP;
    }
    let rest = rows.map(|row| &row[8 * done..]);
    let blocks = rest[0].chunks_exact(8).zip(rest[1].chunks_exact(8));
    for ((upper, lower), (u, v)) in blocks.zip(u[done..].iter_mut().zip(v[done..].iter_mut())) {
        (*u, *v) = block([upper, lower]);
    }
    // The last column of an odd width counts twice.
    if let (Some(u), Some(v), 4) = (u.last_mut(), v.last_mut(), rows[0].len() % 8) {
        let twice = rows.map(|row| {
            let last = &row[row.len() - 4..];
            [last[0], last[1], last[2], last[3], last[0], last[1], last[2], last[3]]
        });
        (*u, *v) = block([&twice[0], &twice[1]]);
    }
}

/// Returns blue, green and red of the pixel in the first four bytes.
#[inline(always)]
fn samples(pixel: &[u8]) -> [i32; 3] {
    let pixel = u32::from_le_bytes([pixel[0], pixel[1], pixel[2], pixel[3]]);
    [pixel & 0xff, pixel >> 8 & 0xff, pixel >> 16 & 0xff].map(|sample| sample as i32)
}

/// Writes the chroma of [`GROUP`] blocks, as [`block`] does.
#[inline(always)]
fn group(rows: [&[u8]; 2], u: &mut [u8], v: &mut [u8]) {
    // Blue, green and red of two pixels, one above the other.
    let mut columns = [[0i32; 2 * GROUP]; 3];
    for at in 0..2 * GROUP {
        let (upper, lower) = (samples(&rows[0][4 * at..4 * at + 4]), samples(&rows[1][4 * at..4 * at + 4]));
        for (color, column) in columns.iter_mut().enumerate() {
            column[at] = upper[color] + lower[color];
        }
    }
    let (mut blue, mut red) = ([0; GROUP], [0; GROUP]);
    for at in 0..GROUP {
        let sums = [0, 1, 2].map(|color| columns[color][2 * at] + columns[color][2 * at + 1]);
        blue[at] = weighted(sums, BLUE, 128, BITS + 2);
        red[at] = weighted(sums, RED, 128, BITS + 2);
    }
    u.copy_from_slice(&blue);
    v.copy_from_slice(&red);
}

/// Returns the chroma of a block of 2x2 pixels, from its two rows of eight bytes.
#[inline(always)]
fn block(rows: [&[u8]; 2]) -> (u8, u8) {
    let corners = [&rows[0][..4], &rows[0][4..8], &rows[1][..4], &rows[1][4..8]].map(samples);
    let sums = [0, 1, 2].map(|color| corners.iter().map(|corner| corner[color]).sum());
    (weighted(sums, BLUE, 128, BITS + 2), weighted(sums, RED, 128, BITS + 2))
}

#[cfg(test)]
mod tests {
    use framepath_model::changed_rows::ChangedRows;
    use framepath_model::format::Layout;
    use framepath_model::stream::FrameMeta;
    use framepath_os::memory::pool::Pool;

    use super::*;

    /// The conversion in double precision, rounded once.
    fn reference(blue: f64, green: f64, red: f64) -> [u8; 3] {
        let sum = |base: f64, factors: [f64; 3]| {
            let sum = (blue * factors[0] + green * factors[1] + red * factors[2]) / 255.0;
            (base + sum).round() as u8
        };
        [
            sum(16.0, [24.966, 128.553, 65.481]),
            sum(128.0, [112.0, -74.203, -37.797]),
            sum(128.0, [-18.214, -93.786, 112.0]),
        ]
    }

    /// Converts a picture with the pixels `pixel(x, y)`, and compares every sample with the reference.
    fn check(
        width: u32,
        height: u32,
        from: PixelFormat,
        to: PixelFormat,
        pixel: impl Fn(usize, usize) -> [u8; 3],
    ) {
        let layout = Layout::aligned(from, width, height, 64).unwrap();
        let mut source = Pool::new(layout.size, 1).unwrap().acquire().unwrap();
        source.set_layout(&layout).unwrap();
        let stride = layout.planes()[0].stride;
        for (y, row) in source.plane_mut(0).chunks_mut(stride).enumerate() {
            for (x, bytes) in row[..width as usize * 4].chunks_exact_mut(4).enumerate() {
                let [blue, green, red] = pixel(x, y);
                bytes.copy_from_slice(&[blue, green, red, (x * 7 + y) as u8]);
            }
        }
        let target = Layout::aligned(to, width, height, 32).unwrap();
        let mut made = Pool::new(target.size, 1).unwrap().acquire().unwrap();
        made.set_layout(&target).unwrap();
        let all = ChangedRows::all(source.layout().height);
        RgbToYuv::default().convert(&source.freeze(FrameMeta::default()), &mut made, all.bands());
        let made = made.freeze(FrameMeta::default());
        let near = |got: u8, wanted: u8, at: (usize, usize)| {
            assert!(
                got.abs_diff(wanted) <= 1,
                "{from} to {to}, {width}x{height} at {at:?}: {got}, not {wanted}"
            );
        };
        let (columns, rows) = (width as usize, height as usize);
        for y in 0..rows {
            for (x, got) in made.row(0, y).to_vec().into_iter().enumerate() {
                let [blue, green, red] = pixel(x, y).map(f64::from);
                near(got, reference(blue, green, red)[0], (x, y));
            }
        }
        for y in 0..rows.div_ceil(2) {
            let row = |plane: usize| made.row(plane, y).to_vec();
            let (u, v): (Vec<u8>, Vec<u8>) = match to {
                PixelFormat::Nv12 => row(1).chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip(),
                _ => (row(1), row(2)),
            };
            for x in 0..columns.div_ceil(2) {
                let corners = [(0, 0), (1, 0), (0, 1), (1, 1)];
                let block = corners.map(|(right, down)| {
                    pixel((2 * x + right).min(columns - 1), (2 * y + down).min(rows - 1)).map(f64::from)
                });
                let mean = [0, 1, 2].map(|sample| block.iter().map(|pixel| pixel[sample]).sum::<f64>() / 4.0);
                let [_, wanted_u, wanted_v] = reference(mean[0], mean[1], mean[2]);
                near(u[x], wanted_u, (x, y));
                near(v[x], wanted_v, (x, y));
            }
        }
    }

    #[test]
    fn samples_are_within_a_level_of_double_precision() {
        let noise = |x: usize, y: usize| {
            let mut state =
                (x as u32).wrapping_mul(2_654_435_761) ^ (y as u32).wrapping_mul(40_503) ^ 0x9e37_79b9;
            [0; 3].map(|_: u8| {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                (state >> 11) as u8
            })
        };
        // Each corner of the colour cube, in blocks of one pixel.
        let corners =
            |x: usize, y: usize| [0, 1, 2].map(|bit| if (x + 3 * y) >> bit & 1 == 1 { 255 } else { 0 });
        let ramp = |x: usize, y: usize| [x as u8, y as u8, (x + y) as u8];
        for (width, height) in [(64, 48), (99, 57), (1, 1), (2, 1), (3, 3), (257, 255), (70, 2)] {
            for from in [PixelFormat::Bgr0, PixelFormat::Bgra] {
                for to in [PixelFormat::Nv12, PixelFormat::Yuv420p] {
                    check(width, height, from, to, noise);
                    check(width, height, from, to, corners);
                    check(width, height, from, to, ramp);
                }
            }
        }
    }

    #[test]
    fn known_colours_have_the_values_of_bt_601() {
        let convert = |blue: u8, green: u8, red: u8| {
            let pixel = [blue, green, red, 0];
            let mut row = [0];
            luma(&pixel, &mut row);
            let block = [pixel, pixel].concat();
            let (u, v) = super::block([&block, &block]);
            (row[0], u, v)
        };
        assert_eq!(convert(0, 0, 0), (16, 128, 128));
        assert_eq!(convert(255, 255, 255), (235, 128, 128));
        assert_eq!(convert(0, 0, 255), (81, 90, 240));
        assert_eq!(convert(0, 255, 0), (145, 54, 34));
        assert_eq!(convert(255, 0, 0), (41, 240, 110));
        for grey in 0..=255 {
            let (_, u, v) = convert(grey, grey, grey);
            assert_eq!((u, v), (128, 128));
        }
    }

    #[test]
    fn both_kernels_are_equal() {
        for width in (1..70).chain([131, 1920]) {
            let bytes: Vec<u8> = (0..4 * width * 2).map(|at| ((at * at) >> 3) as u8).collect();
            let rows = [&bytes[..4 * width], &bytes[4 * width..]];
            let run = |kernels: Kernels| {
                let (mut y, mut u) = (vec![0; width], vec![0; width.div_ceil(2)]);
                let mut v = u.clone();
                kernels.luma(rows[0], &mut y);
                kernels.chroma(rows, &mut u, &mut v);
                (y, u, v)
            };
            assert!(run(Kernels::best()) == run(Kernels::Baseline), "{width}");
        }
    }
}
