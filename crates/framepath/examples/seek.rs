// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeks to 10 times of a file, forwards and backwards, and prints the presentation time of
//! the frame there: `cargo run --example seek -- clip.mp4`.

use std::time::Duration;

use framepath::{Pipeline, SeekTo, path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: seek FILE")?;
    let mut frames = Pipeline::parse(&format!("file {} ! decode", path::quote(&file)))?.frames()?;
    for tenths in [0, 5, 3, 9, 1, 8, 2, 7, 4, 60] {
        let time = Duration::from_millis(100 * tenths);
        frames.seek(time, SeekTo::Exact)?;
        match frames.next().transpose()? {
            Some(frame) => println!("{time:?}: frame at {:?}", frame.meta().pts),
            None => println!("{time:?}: after the end"),
        }
    }
    Ok(())
}
