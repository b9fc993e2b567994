// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time of the conversion of BGR0 to NV12 and YUV420P at 1080p, compared with libswscale's, in interleaved pairs.
//!
//! `cargo run --release --example rgb_to_yuv -p framepath-codec`

use std::time::Instant;

use framepath_codec::{Converter, ScaleFilter};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::stream::FrameMeta;
use framepath_os::memory::pool::Pool;

const SIZE: (u32, u32) = (1920, 1080);
const PAIRS: usize = 101;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layout = Layout::aligned(PixelFormat::Bgr0, SIZE.0, SIZE.1, 64)?;
    let mut source = Pool::new(layout.size, 1)?.acquire()?;
    source.set_layout(&layout)?;
    source.plane_mut(0).iter_mut().enumerate().for_each(|(at, byte)| *byte = ((at * at) >> 9) as u8);
    let source = source.freeze(FrameMeta::default());
    for to in [PixelFormat::Nv12, PixelFormat::Yuv420p] {
        let target = Layout::aligned(to, SIZE.0, SIZE.1, 64)?;
        let mut pool = Pool::new(Converter::slot_bytes(&target), 2)?;
        // A scaling converter always uses libswscale, here at the same size.
        let mut converters = [Converter::new(to), Converter::scaling(to, SIZE, ScaleFilter::Bicubic)];
        let mut ratios = Vec::new();
        let mut milliseconds = [0.0; 2];
        for pair in 0..PAIRS {
            let mut times = [0.0; 2];
            // Each goes first in every second pair.
            for step in 0..2 {
                let which = (pair + step) % 2;
                let mut into = pool.acquire()?;
                into.set_layout(&target)?;
                let start = Instant::now();
                converters[which].convert(&source, &mut into)?;
                times[which] = start.elapsed().as_secs_f64() * 1e3;
            }
            ratios.push(times[0] / times[1]);
            (milliseconds[0], milliseconds[1]) = (milliseconds[0] + times[0], milliseconds[1] + times[1]);
        }
        ratios.sort_by(f64::total_cmp);
        // Ranks of the 95 % interval of a median of 101 values (binomial distribution).
        let (low, median, high) = (ratios[40], ratios[PAIRS / 2], ratios[60]);
        let [own, swscale] = milliseconds.map(|sum| sum / PAIRS as f64);
        println!(
            "BGR0 to {to}: {own:.2} ms, libswscale {swscale:.2} ms, ratio {median:.3} ({low:.3} to {high:.3})"
        );
    }
    Ok(())
}
