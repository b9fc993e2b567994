// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs two pipelines at once and stops one of them:
//! `cargo run --example two_pipelines`.

use framepath::Pipeline;

fn main() -> Result<(), framepath::RunError> {
    let mut endless = Pipeline::parse("test frames=0 rate=50 size=64x48")?.frames()?;
    let short = Pipeline::parse("test frames=100 size=64x48")?.frames()?;
    let stop = endless.stop_handle();
    println!(
        "first frame of the endless pipeline: {:?}",
        endless.next().transpose()?.map(|frame| frame.meta().seq)
    );
    println!("frames of the short pipeline: {}", short.count());
    stop.stop();
    println!("the endless pipeline ended after {} more frames", endless.count());
    Ok(())
}
