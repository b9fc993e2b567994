// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes a file in sandboxed processes, which run this same program:
//! `cargo run --example sandboxed -- clip.mp4`.

use framepath::{Pipeline, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First in main, because the workers of this program run this call instead of the rest.
    framepath::worker::init();
    let file = std::env::args().nth(1).ok_or("usage: sandboxed FILE")?;
    let pipeline = Pipeline::parse(&format!("file {} ! decode host=process", path::quote(&file)))?;
    let mut frames = 0;
    for frame in pipeline.frames()? {
        frame?;
        frames += 1;
    }
    println!("{frames} frames");
    Ok(())
}
