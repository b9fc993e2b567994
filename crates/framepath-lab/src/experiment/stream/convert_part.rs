// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conversion of a captured picture for the encoder alone: framepath's own, and libswscale's.

use framepath_codec::{Converter, ScaleFilter};
use framepath_model::format::PixelFormat;
use framepath_model::ledger::Latency;
use framepath_os::memory::pool::Pool;
use framepath_os::time::{now_ns, process_cpu_ns};

use super::desktop::{DesktopPictures, SIZE};
use crate::error::LabError;
use crate::measure::Measured;

/// Names of the converters.
pub(super) const CONVERTERS: [&str; 2] = ["convert", "swscale"];

/// Converts a picture of a desktop from BGR0 to 4:2:0, `frames` times.
///
/// # Errors
/// [`LabError::Unknown`]: without memory.
pub(super) fn run(name: &str, frames: u64) -> Result<Measured, LabError> {
    let failed = |error: &dyn std::fmt::Display| LabError::Unknown(format!("{name}: {error}"));
    let (from, to) =
        (DesktopPictures::layout(PixelFormat::Bgr0)?, DesktopPictures::layout(PixelFormat::Yuv420p)?);
    let mut converter = if name == CONVERTERS[0] {
        Converter::new(to.format)
    } else {
        // Scaling to the same size is libswscale's work.
        Converter::scaling(to.format, (SIZE.0.into(), SIZE.1.into()), ScaleFilter::Bicubic)
    };
    let mut inputs = Pool::new(from.size, 1).map_err(|error| failed(&error))?;
    let mut outputs = Pool::new(Converter::slot_bytes(&to), 1).map_err(|error| failed(&error))?;
    let mut input = inputs.acquire().map_err(|error| failed(&error))?;
    input.set_layout(&from).map_err(|error| failed(&error))?;
    DesktopPictures::new().draw_bgr0(0, &mut input);
    let input = input.freeze(framepath::FrameMeta::default());
    let mut output = outputs.acquire().map_err(|error| failed(&error))?;
    output.set_layout(&to).map_err(|error| failed(&error))?;
    // The first conversion makes libswscale's tables.
    converter.convert(&input, &mut output).map_err(|error| failed(&error))?;
    let (start_ns, start_cpu_ns) = (now_ns(), process_cpu_ns());
    let mut times = Vec::new();
    for _ in 0..frames {
        let start = now_ns();
        converter.convert(&input, &mut output).map_err(|error| failed(&error))?;
        times.push(now_ns() - start);
    }
    let (wall_ns, cpu_ns) = (now_ns() - start_ns, process_cpu_ns() - start_cpu_ns);
    times.sort_unstable();
    let latency = Latency::from_sorted(&times);
    let extra = latency.map(|latency| ("convert_p50_ms".to_owned(), latency.p50 as f64 / 1e6));
    Ok(Measured { frames, wall_ns, cpu_ns, extra: extra.into_iter().collect(), ..Measured::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_converters_convert_every_frame() {
        for name in CONVERTERS {
            let measured = run(name, 3).unwrap();
            assert_eq!(measured.frames, 3);
            assert!(measured.metric("convert_p50_ms").is_some_and(|time| time > 0.0), "{name}: {measured:?}");
        }
    }
}
