// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiment `decode`: repeats the decode comparison that the project daedalus-v4l2 published. Each
//! clip is decoded at full speed, and the frames are discarded. The frames are NV12 (P010 for more than 8
//! bits); only `bare` and `bare-t1` (libavcodec alone) and `inline-native` do not convert. Every compared
//! contender runs in its own process; its CPU time includes the start of that process, and for `service`,
//! `device` and `ffmpeg-v4l2m2m` the CPU time of the service. The runs with the ledger at `full`, among them
//! `inline-native`, are in the lab's process, and no comparison uses them. Case `paced-30` (module [`paced`])
//! differs: its contenders decode at 30 frames per second with the ledger at `times`.

mod device;
mod paced;
mod service;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use framepath::{HopFailure, Item, Level, Options, Out, Pipeline, Stage, StageError, StreamInfo};
use framepath_codec::Demuxer;
use framepath_model::summary::Summary;

use crate::error::LabError;
use crate::experiment::{ExperimentResult, ExperimentSettings, Size};
use crate::kept::KeptLedger;
use crate::measure::{Contender, Measured, complete};
use crate::pairs::{self, Comparison};
use crate::process::Program;
use crate::progress::ProgressView;

use device::Device;
use service::Served;

/// Number of frames of each clip in [`CLIPS`].
const FRAMES: u64 = 150;

/// A committed clip. The hard clips run only with `--full` or by name.
struct CommittedClip {
    file: &'static str,
    codec: &'static str,
    ten_bits: bool,
    hard: bool,
}

const fn clip(file: &'static str, codec: &'static str, ten_bits: bool, hard: bool) -> CommittedClip {
    CommittedClip { file, codec, ten_bits, hard }
}

const CLIPS: &[CommittedClip] = &[
    clip("vp9-1080p8.ivf", "vp9", false, false),
    clip("av1-1080p8.ivf", "av1", false, false),
    clip("h264-1080p8.h264", "h264", false, false),
    clip("vp9-1080p10.ivf", "vp9", true, false),
    clip("hard-vp9-1080p8.ivf", "vp9", false, true),
    clip("hard-av1-1080p8.ivf", "av1", false, true),
    clip("hard-h264-1080p8.h264", "h264", false, true),
    clip("hard-hevc-1080p10.hevc", "hevc", true, true),
];

impl CommittedClip {
    /// Returns the case's name, such as `vp9-1080p8`.
    fn case(&self) -> &'static str {
        self.file.rsplit_once('.').map_or(self.file, |(stem, _)| stem)
    }
}

/// A clip to decode: a committed clip, or a file of the command line.
struct Clip {
    file: PathBuf,
    /// Name of the case: the file's name without its extension.
    case: String,
    /// Name of the codec, as in libavcodec.
    codec: &'static str,
    ten_bits: bool,
    /// Number of frames that `decode` outputs.
    frames: u64,
}

/// A contender of framepath: `decode` with one value of `host=` and one value of `threads=`.
pub(super) struct OwnDecoder {
    pub(super) contender: &'static str,
    pub(super) host: &'static str,
    pub(super) threads: &'static str,
    /// Name of the contender that runs the same decoder, with as many threads, in the caller's
    /// process: the baseline of the comparison. A contender with host `inline` names itself.
    inline: &'static str,
}

/// Framepath's own contenders; the quick size has only the first three.
const OURS: [OwnDecoder; 4] = [
    OwnDecoder { contender: "inline", host: "inline", threads: "auto", inline: "inline" },
    OwnDecoder { contender: "inline-t1", host: "inline", threads: "1", inline: "inline-t1" },
    OwnDecoder { contender: "process", host: "process", threads: "auto", inline: "inline" },
    OwnDecoder { contender: "process-t1", host: "process", threads: "1", inline: "inline-t1" },
];

/// Paths that run once in this process with the ledger at `full`: contender, host, format (`None`
/// is the clip's NV12 or P010), threads. The quick size has only the first four.
const LEDGERS: [(&str, &str, Option<&str>, &str); 5] = [
    ("inline", "inline", None, "auto"),
    ("inline-t1", "inline", None, "1"),
    ("inline-native", "inline", Some("native"), "1"),
    ("process", "process", None, "auto"),
    ("process-t1", "process", None, "1"),
];

impl Clip {
    /// Makes a clip of a file of the command line: decodes the file once, for its number of frames and the
    /// bits of its samples.
    ///
    /// # Errors
    /// The file cannot be read, decoded or decoded without loss, or the decoding was interrupted.
    fn open(file: &Path) -> Result<Clip, LabError> {
        // The demuxer's errors begin with the name of the file.
        let demuxer = Demuxer::open(file).map_err(|error| LabError::Unknown(error.to_string()))?;
        let codec = demuxer.info().codec.name();
        let bits = Arc::<AtomicU32>::default();
        let name = framepath_model::path::quote(&file.to_string_lossy());
        let pipeline = Pipeline::parse(&format!("file {name} ! decode threads=1"))?;
        let pipeline = pipeline.stage(BitDepth(bits.clone())).append("null")?;
        let report = complete(pipeline.run(&Options { level: Level::Off, ..Options::default() })?)?;
        let stem = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy();
        let case = framepath_model::shown::shown(&stem).into_owned();
        let ten_bits = bits.load(Ordering::Relaxed) > 8;
        Ok(Clip { file: file.to_owned(), case, codec, ten_bits, frames: report.frames })
    }

    fn format(&self) -> &'static str {
        if self.ten_bits { "p010" } else { "nv12" }
    }

    fn case(&self) -> &str {
        &self.case
    }
}

/// Stage that passes each frame on, and stores the number of bits of the samples of the latest frame.
struct BitDepth(Arc<AtomicU32>);

impl Stage for BitDepth {
    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if let Item::Frame(frame) = &item {
            self.0.store(frame.layout().format.depth(), Ordering::Relaxed);
        }
        out.push(item)
    }
}

/// Returns the clips to decode. With files in the settings, returns all of them, whatever cases are named.
/// Without files, returns the committed clips of the named cases; without named cases, those of the size.
///
/// # Errors
/// As [`Clip::open`]; or a committed clip is missing.
fn clips(settings: &ExperimentSettings) -> Result<Vec<Clip>, LabError> {
    if !settings.files.is_empty() {
        return settings.files.iter().map(|file| Clip::open(file)).collect();
    }
    let (quick, named) = (settings.size == Size::Quick, !settings.cases.is_empty());
    let wanted = CLIPS.iter().filter(|c| settings.wants(c.case()) && (named || !quick || !c.hard));
    wanted
        .map(|clip| {
            let file = settings.clip(clip.file)?;
            let case = clip.case().to_owned();
            Ok(Clip { file, case, codec: clip.codec, ten_bits: clip.ten_bits, frames: FRAMES })
        })
        .collect()
}

/// Returns the names of all cases, those that run only with `--full` included.
pub(super) fn cases() -> Vec<String> {
    CLIPS.iter().map(CommittedClip::case).chain([paced::CASE]).map(str::to_owned).collect()
}

pub(super) fn run(
    settings: &ExperimentSettings,
    watch: &dyn ProgressView,
    findings: &mut ExperimentResult,
) -> Result<(), LabError> {
    let summary = &mut findings.summary;
    let quick = settings.size == Size::Quick;
    let named = !settings.cases.is_empty();
    let clips = clips(settings)?;
    let rounds = settings.rounds(3, 10);
    // The quick size has only the first three of framepath's contenders, because the quick set has a
    // time limit.
    let ours = &OURS[..if quick { 3 } else { OURS.len() }];
    let ledgers = &LEDGERS[..if quick { 4 } else { LEDGERS.len() }];
    // Besides framepath's: ffmpeg and bare-t1; with `--full` also service, device, ffmpeg-v4l2m2m,
    // ffmpeg-t1 and bare.
    let contenders = ours.len() + if quick { 2 } else { 7 };
    let device = Device::find();
    let served = if quick { None } else { Some(Served::start(settings, device.is_there())?) };
    // The quick size has no paced runs without `--case`, because each run takes its clip's duration. The
    // case `paced-30` has a clip of its own, so it does not run with files.
    let paced = settings.files.is_empty() && (named && settings.wants(paced::CASE) || !named && !quick);
    let paced_steps = if paced { paced::steps(rounds) } else { 0 };
    watch.begin("decode", (clips.len() * (contenders * rounds + ledgers.len()) + paced_steps) as u64);
    for clip in &clips {
        let one = OneClip { settings, clip, ours, served: served.as_ref(), device: &device };
        one.compare(rounds, watch, summary)?;
        for &(contender, host, format, threads) in ledgers {
            watch.step(&format!("{} ledger of {contender}", clip.case()));
            let format = format.unwrap_or(clip.format());
            let kept = add_ledger(clip, &path_text(&clip.file, host, format, threads), contender, summary)?;
            findings.ledgers.push(kept);
        }
    }
    if paced {
        paced::run(settings, rounds, watch, summary)?;
    }
    summary.notes.push(
        "wall time and CPU include all processes; framepath's latency, causes and copies come from a separate \
         run with the ledger at `full`, which is in no ratio; copies include pixels and packets in both \
         processes"
            .to_owned(),
    );
    Ok(())
}

/// Inputs of all contenders for one clip.
struct OneClip<'a> {
    settings: &'a ExperimentSettings,
    clip: &'a Clip,
    ours: &'a [OwnDecoder],
    served: Option<&'a Served>,
    device: &'a Device,
}

impl OneClip<'_> {
    fn compare(
        &self,
        rounds: usize,
        watch: &dyn ProgressView,
        summary: &mut Summary,
    ) -> Result<(), LabError> {
        let mut contenders = vec![Contender::new("ffmpeg", self.timed(self.ffmpeg(None, None)))];
        let inside = |ours: &OwnDecoder| self.timed(self.framepath(ours.host, ours.threads));
        contenders.extend(self.ours.iter().map(|one| Contender::new(one.contender, inside(one))));
        contenders.push(Contender::new("bare-t1", self.timed(self.bare("1"))));
        if let Some(served) = self.served {
            let socket = framepath_model::path::quote(&served.socket.to_string_lossy());
            let host = Ok(format!("service socket={socket}"));
            let ours = |host: Result<String, LabError>| host.map(|host| self.framepath(&host, "auto"));
            contenders.push(Contender::new("service", self.serviced(served, ours(host))));
            contenders.push(Contender::new("device", self.serviced(served, ours(self.device.options()))));
            let theirs = self.device.ffmpeg(self.clip).map(|decoder| self.ffmpeg(None, Some(&decoder)));
            contenders.push(Contender::new("ffmpeg-v4l2m2m", or_skipped(self.serviced(served, theirs))));
            contenders.push(Contender::new("ffmpeg-t1", self.timed(self.ffmpeg(Some("1"), None))));
            contenders.push(Contender::new("bare", self.timed(self.bare("auto"))));
        }
        let mut comparisons: Vec<Comparison<'_>> = Vec::new();
        let served = [("service", "inline"), ("device", "inline"), ("ffmpeg-v4l2m2m", "device")];
        for (ours, inline) in self.ours.iter().map(|one| (one.contender, one.inline)).chain(served) {
            for metric in ["cpu_ms", "wall_ms"] {
                comparisons.push((metric, ours, "ffmpeg"));
                if ours != inline {
                    comparisons.push((metric, ours, inline));
                }
            }
        }
        comparisons.extend([
            ("cpu_ms", "inline-t1", "bare-t1"),
            ("cpu_ms", "inline", "bare"),
            ("cpu_ms", "inline-t1", "ffmpeg-t1"),
        ]);
        pairs::run(self.clip.case(), contenders, &comparisons, rounds, watch, summary)?;
        Ok(())
    }

    /// Returns the function that runs a contender's `program` and measures it.
    fn timed(&self, program: Program) -> impl FnMut() -> Result<Measured, LabError> + use<> {
        let frames = self.clip.frames;
        move || Ok(program.run(false)?.measured(frames))
    }

    /// Returns a contender's function: it runs the client `program`, and adds the CPU time that the
    /// service used meanwhile. An error in `program` becomes [`LabError::Missing`] when the function is
    /// called, so that the contender is skipped.
    fn serviced<'s>(
        &self,
        served: &'s Served,
        program: Result<Program, LabError>,
    ) -> impl FnMut() -> Result<Measured, LabError> + use<'s> {
        let frames = self.clip.frames;
        move || {
            let program = program.as_ref().map_err(|missing| LabError::Missing(missing.to_string()))?;
            let (finished, cpu_ns) = served.charged(|| program.run(false))?;
            let measured = finished.measured(frames);
            Ok(Measured { cpu_ns: measured.cpu_ns + cpu_ns, ..measured })
        }
    }

    fn ffmpeg(&self, threads: Option<&str>, decoder: Option<&str>) -> Program {
        let pixels = if self.clip.ten_bits { "p010le" } else { "nv12" };
        let mut args: Vec<OsString> = vec!["-nostdin".into(), "-v".into(), "error".into()];
        args.extend(threads.into_iter().flat_map(|t| ["-threads".into(), t.into()]));
        args.extend(decoder.into_iter().flat_map(|name| ["-c:v".into(), name.into()]));
        args.extend(["-i".into(), self.clip.file.clone().into()]);
        // Outputs every frame: elementary streams have no times, and ffmpeg would drop some.
        args.extend(["-fps_mode", "passthrough", "-pix_fmt", pixels].map(Into::into));
        args.extend(["-f", "rawvideo", "-y", "/dev/null"].map(Into::into));
        Program::new("ffmpeg", args)
    }

    fn framepath(&self, host: &str, threads: &str) -> Program {
        let path = path_text(&self.clip.file, host, self.clip.format(), threads);
        Program::new(&self.settings.framepath, ["run", "--ledger", "off", "--quiet", &path])
    }

    fn bare(&self, threads: &str) -> Program {
        let args: [OsString; 4] =
            ["bare".into(), self.clip.file.clone().into(), "--threads".into(), threads.into()];
        Program::new(&self.settings.framepath, args)
    }
}

/// Returns a function that calls `run` and turns the failure of a program ([`LabError::Command`]) into
/// [`LabError::Missing`], which skips the contender with the program's error text. The reason: ffmpeg 7
/// aborts if its last packet waits for a free buffer.
fn or_skipped(
    mut run: impl FnMut() -> Result<Measured, LabError>,
) -> impl FnMut() -> Result<Measured, LabError> {
    move || {
        run().map_err(|error| match error {
            LabError::Command { .. } => LabError::Missing(error.to_string()),
            other => other,
        })
    }
}

fn path_text(file: &Path, host: &str, format: &str, threads: &str) -> String {
    let file = framepath_model::path::quote(&file.to_string_lossy());
    format!("file {file} ! decode format={format} threads={threads}{} ! null", host_text(host))
}

/// Returns the options of `decode` for `host`, with a blank in front: ` host=HOST` for a host such
/// as `process`, `host` itself if it is a device's `api=v4l2m2m device=PATH`. Empty for `inline`, the
/// default.
fn host_text(host: &str) -> String {
    match host {
        "inline" => String::new(),
        device if device.starts_with("api=") => format!(" {device}"),
        _ => format!(" host={host}"),
    }
}

/// Runs the path `text` once in this process with the ledger at `full`. Sets latency, causes and
/// copies in the contender's row; if there is no such row, creates one with all figures of this run.
/// Returns the ledger.
fn add_ledger(
    clip: &Clip,
    text: &str,
    contender: &str,
    summary: &mut Summary,
) -> Result<KeptLedger, LabError> {
    let path = framepath::path::parse(text)?;
    let mut report = complete(framepath::run(&path, &Options { level: Level::Full, ..Options::default() })?)?;
    let measured = Measured::from_report(&mut report);
    match summary.rows.iter_mut().find(|r| r.case == clip.case() && r.contender == contender) {
        Some(row) => {
            row.latency_us = measured.latency;
            row.causes_us = measured.causes;
            row.copied_bytes_per_frame = measured.copied_bytes_per_frame;
        }
        None => summary.rows.push(pairs::row(clip.case(), contender, &[measured])),
    }
    Ok(KeptLedger { name: format!("decode {} {contender}", clip.case()), report })
}
