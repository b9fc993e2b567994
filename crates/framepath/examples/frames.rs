// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the mean luma of every frame of a file with 8 bits per sample:
//! `cargo run --example frames -- clip.mp4`.

use framepath::{Pipeline, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: frames FILE")?;
    let pipeline = Pipeline::parse(&format!("file {} ! decode", path::quote(&file)))?;
    for frame in pipeline.frames()? {
        let frame = frame?;
        let (width, height) = (frame.layout().width, frame.layout().height);
        let mut sum = 0;
        for y in 0..height as usize {
            frame.row(0, y).visit(|row| sum += row.iter().map(|&luma| u64::from(luma)).sum::<u64>());
        }
        let mean = sum as f64 / f64::from(width * height);
        println!("frame {}: {width}x{height}, mean luma {mean:.2}", frame.meta().seq);
    }
    Ok(())
}
