// SPDX-License-Identifier: MIT OR Apache-2.0
//! The encoders alone: time for each picture of a desktop, bytes, and the difference from the input.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use framepath::{
    Frame, FrameMeta, HopFailure, Item, Level, Options, Out, Pipeline, Pool, Rational, Source, Stage,
    StageError, StreamInfo,
};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::ledger::Latency;

use super::contender::{CRF, GOP, KILOBITS, THREADS};
use super::desktop::{DesktopPictures, RATE};
use crate::error::LabError;
use crate::measure::{Measured, complete};

/// Codecs, as in `encode CODEC`.
pub(super) const CODECS: [&str; 4] = ["h264", "vp8", "vp9", "av1"];
/// Index of the encoder's hop in the path: behind the source, which is 0.
const ENCODER: u16 = 1;
/// Index of the decoder's hop: behind the counter of bytes.
const DECODER: u16 = 3;
/// Number of frames of the source's pool.
const SLOTS: u32 = 8;

/// Encodes `frames` pictures of a desktop with the stream's settings, and decodes them.
///
/// # Errors
/// [`LabError::Missing`]: the codec has no encoder here. The path fails or loses frames.
pub(super) fn run(codec: &str, frames: u64) -> Result<Measured, LabError> {
    // The quality of the stream's H.264; the numbers of other codecs mean something else.
    let quality = if codec == "h264" { format!(" crf={CRF}") } else { String::new() };
    let stage =
        format!("encode {codec} bitrate={KILOBITS}k{quality} gop={GOP} preset=ultrafast threads={THREADS}");
    // A second, in which the bit rate settles.
    coded(&stage, frames, RATE.into())
}

/// Encodes by the stage `stage` and decodes. The quality is that of the pictures behind the first `settling`.
fn coded(stage: &str, frames: u64, settling: u64) -> Result<Measured, LabError> {
    let figures = Arc::new(Mutex::new(Coded::default()));
    let (of_packets, of_frames) = (figures.clone(), figures.clone());
    let pictures = Arc::new(DesktopPictures::new());
    let expected = pictures.clone();
    let source = DesktopSource::new(pictures, frames)?;
    let pipeline = Pipeline::from_source(source)
        .append(stage)
        .map_err(|error| LabError::Missing(error.to_string()))?
        .stage(PacketCounter(of_packets))
        .append("decode threads=1")?
        .sink_fn(move |frame| {
            let mut coded = locked(&of_frames);
            if coded.pictures >= settling {
                let luma = expected.luma(coded.pictures);
                coded.compared += 1;
                coded.squares += squared_difference(&luma, &frame);
            }
            coded.pictures += 1;
        });
    let report = complete(pipeline.run(&Options { level: Level::Times, ..Options::default() })?)?;
    // Not the figures of the whole path, which also draws and decodes.
    let (wall_ns, cpu_ns) = (report.wall_ns, report.cpu_ns);
    let mut measured = Measured { frames: report.frames, wall_ns, cpu_ns, ..Measured::default() };
    measured.extra.extend(locked(&figures).named());
    for (hop, name) in [(ENCODER, "encode"), (DECODER, "decode")] {
        let mut times: Vec<u64> =
            report.rows.iter().filter(|row| row.hop == hop).map(|row| row.wall_ns()).collect();
        times.sort_unstable();
        if let Some(latency) = Latency::from_sorted(&times) {
            measured.extra.insert(format!("{name}_p50_ms"), latency.p50 as f64 / 1e6);
            measured.extra.insert(format!("{name}_p99_ms"), latency.p99 as f64 / 1e6);
        }
    }
    Ok(measured)
}

/// Result of encoding and decoding.
#[derive(Debug, Default)]
struct Coded {
    /// Bytes of all packets.
    bytes: u64,
    /// Number of decoded pictures.
    pictures: u64,
    /// Number of pictures that were compared with the input.
    compared: u64,
    /// Sum of the squared differences of their pixels' luma.
    squares: u64,
}

impl Coded {
    fn named(&self) -> Vec<(String, f64)> {
        if self.pictures == 0 {
            return Vec::new();
        }
        let mut figures = vec![("bytes_per_frame".to_owned(), self.bytes as f64 / self.pictures as f64)];
        // An exact copy has no finite ratio.
        if self.squares > 0 {
            let pixels = DesktopPictures::PIXELS * self.compared;
            let mean = self.squares as f64 / pixels as f64;
            figures.push(("y_psnr_db".to_owned(), 10.0 * (255.0 * 255.0 / mean).log10()));
        }
        figures
    }
}

/// Locks the figures; a panic of another thread leaves them usable.
fn locked(figures: &Mutex<Coded>) -> MutexGuard<'_, Coded> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sums the squared differences of the luma of `frame` from `expected`, which has no padding.
fn squared_difference(expected: &[u8], frame: &Frame) -> u64 {
    let layout = frame.layout();
    let width = layout.width as usize;
    let rows = expected.chunks_exact(width).enumerate();
    rows.map(|(y, expected)| {
        let row = frame.row(0, y).to_vec();
        expected.iter().zip(row).map(|(a, b)| u64::from(a.abs_diff(b)).pow(2)).sum::<u64>()
    })
    .sum()
}

/// Source of a desktop's pictures.
struct DesktopSource {
    pictures: Arc<DesktopPictures>,
    layout: Layout,
    pool: Pool,
    frames: u64,
    next: u64,
}

impl DesktopSource {
    fn new(pictures: Arc<DesktopPictures>, frames: u64) -> Result<DesktopSource, LabError> {
        let failed =
            |error: &dyn std::fmt::Display| LabError::Unknown(format!("pictures of a desktop: {error}"));
        let layout = DesktopPictures::layout(PixelFormat::Yuv420p)?;
        let pool = Pool::new(layout.size, SLOTS).map_err(|error| failed(&error))?;
        Ok(DesktopSource { pictures, layout, pool, frames, next: 0 })
    }
}

impl Source for DesktopSource {
    fn info(&self) -> StreamInfo {
        StreamInfo::from_layout(&self.layout, Rational::new(RATE as i32, 1))
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        let birth_ns = out.birth();
        let mut frame = self.pool.acquire().map_err(|error| out.fail(error))?;
        frame.set_layout(&self.layout).map_err(|error| out.fail(error))?;
        self.pictures.draw_yuv420p(self.next, &mut frame);
        let pts = Some(self.next as i64);
        let meta = FrameMeta { seq: self.next, birth_ns, pts, duration: 1, ..FrameMeta::default() };
        self.next += 1;
        out.push(Item::Frame(frame.freeze(meta)))?;
        Ok(self.next < self.frames)
    }
}

/// Stage that counts the bytes of packets.
struct PacketCounter(Arc<Mutex<Coded>>);

impl Stage for PacketCounter {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        let packet = item.into_packet().map_err(|error| out.fail(error))?;
        locked(&self.0).bytes += packet.len() as u64;
        out.push(Item::Packet(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_is_measured_with_its_bytes_and_its_quality() {
        let measured = coded("encode h264 crf=10 preset=ultrafast threads=1", 3, 1).unwrap();
        assert_eq!(measured.frames, 3);
        let figure = |name: &str| measured.metric(name).unwrap();
        // Fewer bytes than the pictures, and a likeness that no other picture would have.
        assert!(figure("bytes_per_frame") > 100.0 && figure("bytes_per_frame") < 2e6, "{measured:?}");
        assert!(figure("y_psnr_db") > 40.0 && figure("y_psnr_db") < 80.0, "{measured:?}");
        assert!(figure("encode_p50_ms") > 0.0 && figure("decode_p50_ms") > 0.0);
    }

    #[test]
    fn psnr_is_that_of_the_mean_square() {
        // Each pixel differs by 1.
        let coded = Coded { bytes: 100, pictures: 2, compared: 1, squares: DesktopPictures::PIXELS };
        let figures = coded.named();
        assert_eq!(figures[0].1, 50.0);
        assert!((figures[1].1 - 48.13).abs() < 0.01, "{figures:?}");
        assert_eq!(Coded { squares: 0, ..coded }.named().len(), 1);
    }
}
