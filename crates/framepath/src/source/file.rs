// SPDX-License-Identifier: MIT OR Apache-2.0
//! `file`: packets of one video track of a media file.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use framepath_codec::{CodecError, Demuxer, Formats, MediaFile, Packet, TrackInfo};
use framepath_model::path::{Arg, DefaultValue, Definition, Hop, Hosts, INFINITE, ValueKind, all_hops};
use framepath_model::stream::{SeekTo, StreamInfo};
use framepath_model::wire;
use framepath_os::process::{cancel, signal};

use crate::element::{Element, HopPlace};
use crate::error::StageError;
use crate::host::{DemuxedInput, DemuxerSpec, RemoteDemuxer, ServiceStream, Task, WorkerOptions};
use crate::hosting::{refuse_required_sandbox, refuse_worker_options, service_stream_of, worker_options};
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::request::{Answered, Request};
use crate::source::refill::{Feed, Sequence, read_only, refilled};
use crate::source::{Pace, PaceWait, Source};

/// The part of a file to read, and how to read it.
pub(crate) struct FileOptions {
    /// Number of times to read the file; [`INFINITE`]: no limit.
    pub(crate) loops: u64,
    /// Packets per second; 0: as fast as possible.
    pub(crate) rate: f64,
    /// Time in the stream where each pass through the file begins.
    pub(crate) start: Duration,
    /// Number of the video track, from 0; `None` chooses the best.
    pub(crate) track: Option<usize>,
}

/// The option `start` of `file`, and of `url` for a file on a web server.
pub(super) const START: Arg = Arg::option(
    "start",
    ValueKind::StreamTime,
    DefaultValue::Is("0s"),
    "time in the stream of the first frame",
);
/// The option `track` of every source that demuxes.
pub(super) const TRACK: Arg = Arg::option(
    "track",
    ValueKind::count(0, 99),
    DefaultValue::Unset("the track that libavformat rates best"),
    "video track to read: its number among the video tracks, counted from 0; cover pictures do not count",
);
/// The option `loop` of `file`, and of `url` for a file on a web server.
pub(super) const LOOP: Arg = Arg::option(
    "loop",
    ValueKind::count_or(1, 1_000_000_000, "inf", INFINITE),
    DefaultValue::Is("1"),
    "number of times to play the file, each time from `start`",
);
/// The option `rate` of `file`, and of `url` for a file on a web server.
pub(super) const RATE: Arg =
    Arg::option("rate", ValueKind::Rate, DefaultValue::Is("0"), "packets per second; 0: as fast as possible");

static DEFINITION: Definition = Definition::source("file", "packets of one video track of a file")
    .args(&[
        Arg::word(
            "path",
            ValueKind::Text("the path of a media file, or `-`"),
            "the file to read; `-` is standard input, a pattern such as `shot-%03d.png` an image sequence",
        )
        .known_as(&["location"]),
        START,
        TRACK,
        LOOP,
        RATE,
    ])
    .hosts(Hosts::AsDecoder)
    .known_as(&["filesrc", "uridecodebin"]);

pub(crate) fn element() -> Element {
    Element::source(&DEFINITION, make)
}

impl FileOptions {
    /// Reads the options `loop`, `rate`, `start` and `track` of `hop`.
    pub(super) fn of(hop: &Hop) -> FileOptions {
        FileOptions {
            loops: hop.count("loop"),
            rate: hop.rate("rate"),
            start: Duration::from_nanos(hop.duration_ns("start")),
            track: hop.is_set("track").then(|| hop.count("track") as usize),
        }
    }
}

fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<File, StageError> {
    let options = FileOptions::of(hop);
    let decoders = decoders(place.behind);
    let is_open = !hop.is_set("host") && decoders.iter().all(|decoder| !decoder.is_set("host"));
    let spec = demuxer_of(hop, &decoders)?;
    if spec.is_none() {
        refuse_required_sandbox(hop)?;
    }
    let (media, feed) = open(hop.text("path"))?;
    place.outcomes.is_sequence.store(media.is_sequence(), Ordering::Relaxed);
    let opened = match spec {
        Some(spec) => File::demuxed_by(media, &options, spec),
        None if is_open => File::demuxed_where_safe(media, &options, || unknown_demuxer_of(hop)),
        None => File::demuxed_inline(media, &options, Formats::All),
    };
    // The demuxer sees an error of the thread only as the end of the bytes.
    let mut file = opened.map_err(|error| {
        let unread = feed.as_ref().and_then(|feed| feed.check().err());
        unread.map_or(error, StageError::io("file"))
    })?;
    match file.worker() {
        None => refuse_worker_options(hop)?,
        Some(_) if is_open => place.outcomes.is_unusual.store(true, Ordering::Relaxed),
        Some(_) => {}
    }
    file.feed = feed.or(file.feed);
    file.report_worker(place);
    Ok(file)
}

/// Opens the file `path`, standard input for `-`, or an image sequence if `path` has a `%d` or `%0Nd` and no
/// file has this name. Also returns the handle of the thread that reads a sequence; `None` for other files.
fn open(path: &str) -> Result<(MediaFile, Option<Feed>), StageError> {
    if path == "-" {
        return Ok((MediaFile::standard_input().map_err(StageError::io("standard input"))?, None));
    }
    match Sequence::of(path) {
        Some(sequence) if !Path::new(path).exists() => {
            let (file, feed) = sequence.open().map_err(StageError::io(path))?;
            Ok((file, Some(feed)))
        }
        _ => Ok((MediaFile::open(path.as_ref())?, None)),
    }
}

/// Returns the description of the demuxer's worker if the path asks for a worker: by the `host` of `file`,
/// or, without one, by that of the first decoder behind it that runs in a worker. Else `None`: the file is
/// then demuxed inline, or where it is safe. An option of `file` overrides that of the decoder.
fn demuxer_of(file: &Hop, decoders: &[&Hop]) -> Result<Option<DemuxerSpec>, StageError> {
    let decoder = decoders.iter().find(|decoder| decoder.is_hosted());
    let hop = match decoder {
        Some(decoder) if !file.is_set("host") => decoder,
        _ if file.is_hosted() => file,
        _ => return Ok(None),
    };
    let naming = |option: &str| if file.is_set(option) { file } else { hop };
    let options = worker_options(file, Task::Stage, naming)?;
    let service = service_stream_of(hop, naming("socket"));
    // A decoder in this process must not read memory that the worker can change.
    let private = decoder.is_none() || decoders.iter().any(|decoder| !decoder.is_hosted());
    Ok(Some(spec_of(file, options, service, private)))
}

/// Returns the description of the demuxer's worker for an input that is never demuxed in this process.
#[cfg(feature = "http")]
pub(super) fn always_demuxer_of(hop: &Hop, behind: &[Hop]) -> Result<DemuxerSpec, StageError> {
    match demuxer_of(hop, &decoders(behind))? {
        Some(spec) => Ok(spec),
        None => Ok(spec_of(hop, worker_options(hop, Task::Stage, |_| hop)?, None, true)),
    }
}

/// Returns the description of the demuxer's worker for a file whose container or codec is not one of the known
/// ones. Its decoders run in workers, too (see [`Codec::Other`]).
fn unknown_demuxer_of(file: &Hop) -> Result<DemuxerSpec, StageError> {
    Ok(spec_of(file, worker_options(file, Task::Stage, |_| file)?, None, false))
}

fn spec_of(
    file: &Hop,
    options: WorkerOptions,
    service: Option<Arc<ServiceStream>>,
    private: bool,
) -> DemuxerSpec {
    DemuxerSpec {
        loops: file.count("loop"),
        start: Duration::from_nanos(file.duration_ns("start")),
        track: file.is_set("track").then(|| file.count("track") as u32),
        options,
        service,
        private,
    }
}

/// Returns true if `error` comes from a call that a signal or a stop request canceled.
fn is_canceled(error: &StageError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    std::iter::from_fn(|| {
        let this = cause?;
        cause = this.source();
        Some(this)
    })
    .any(|cause| cause.downcast_ref().is_some_and(cancel::is_canceled))
}

/// Returns the decoders among the hops behind the file.
fn decoders(behind: &[Hop]) -> Vec<&Hop> {
    all_hops(behind).filter(|hop| hop.name() == "decode").collect()
}

/// Demuxer of the file, in this process or in a worker.
enum Demuxing {
    /// Demuxer in the thread that runs the source.
    Inline(Box<Inline>),
    /// Demuxer in a worker, which reads ahead.
    Worker(Box<RemoteDemuxer>),
}

/// Demuxer in this process, and the state of the option `loop`.
struct Inline {
    demuxer: Demuxer,
    /// Time in the stream where each pass through the file begins.
    start: Duration,
    /// Number of passes after the present one.
    loops_left: u64,
    /// Number of packets read so far in this pass whose frames are output.
    packets_of_this_loop: u64,
}

/// The `file` source. The birth of a packet is the time when the path requests it. With a rate, this is its
/// due time, or later if the path is late. A worker may have read the packet before.
pub(crate) struct File {
    demuxing: Demuxing,
    /// Number of the next packet, from 0; goes on after a seek.
    next_seq: u64,
    /// True if the file is read more than once (`loop`).
    is_repeated: bool,
    /// Deadlines of the packets; `None` without a rate.
    pace: Option<Pace>,
    /// Handle of the thread that reads the file's bytes for the demuxer; `None` if the demuxer reads them itself.
    feed: Option<Feed>,
}

impl File {
    /// Demuxes `file` in a worker that `spec` describes. The worker gets a descriptor that it can only read.
    fn demuxed_by(file: MediaFile, options: &FileOptions, spec: DemuxerSpec) -> Result<File, StageError> {
        let path = file.name().to_owned();
        let (file, feed) = read_only(file).map_err(StageError::io(&path))?;
        Ok(File { feed, ..File::remote(&path, DemuxedInput::File(file), options, spec)? })
    }

    /// Demuxes `input`, the file `path`, in a worker that `spec` describes. The worker gets the descriptor of
    /// `input`.
    pub(super) fn remote(
        path: &str,
        input: DemuxedInput,
        options: &FileOptions,
        spec: DemuxerSpec,
    ) -> Result<File, StageError> {
        Ok(File::new(path, options, Demuxing::Worker(Box::new(RemoteDemuxer::open(input, spec)?))))
    }

    /// Demuxes `file` in this process, by the demuxers and decoders of `formats`.
    fn demuxed_inline(file: MediaFile, options: &FileOptions, formats: Formats) -> Result<File, StageError> {
        let path = file.name().to_owned();
        File::from_demuxer(&path, Demuxer::open_track(file, options.track, formats)?, options)
    }

    fn from_demuxer(path: &str, mut demuxer: Demuxer, options: &FileOptions) -> Result<File, StageError> {
        if !options.start.is_zero() {
            demuxer.seek(options.start, SeekTo::Exact)?;
        }
        let (start, loops_left) = (options.start, options.loops.saturating_sub(1));
        let inline = Inline { demuxer, start, loops_left, packets_of_this_loop: 0 };
        Ok(File::new(path, options, Demuxing::Inline(Box::new(inline))))
    }

    /// Demuxes `file` in this process if container and codec are known ones; otherwise, and for an image sequence,
    /// in the worker of `spec`, which reads the stream from its first byte.
    fn demuxed_where_safe(
        mut file: MediaFile,
        options: &FileOptions,
        spec: impl FnOnce() -> Result<DemuxerSpec, StageError>,
    ) -> Result<File, StageError> {
        if file.is_sequence() {
            return File::demuxed_by(file, options, spec()?);
        }
        let path = file.name().to_owned();
        let mut again = file.try_clone().map_err(StageError::io(&path))?;
        let read = (!file.is_seekable()).then(|| file.keep_bytes());
        let start = if file.is_seekable() { file.position().map_err(StageError::io(&path))? } else { 0 };
        match Demuxer::open_track(file, options.track, Formats::Known) {
            Ok(demuxer) => {
                read.inspect(|read| drop(read.take()));
                return File::from_demuxer(&path, demuxer, options);
            }
            Err(CodecError::UnsupportedContainer { .. } | CodecError::OtherCodec { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(read) = read else {
            again.set_position(start).map_err(StageError::io(path))?;
            return File::demuxed_by(again, options, spec()?);
        };
        let Some(first) = read.take() else {
            return Err(StageError::TooLateForWorker { file: path });
        };
        let (file, feed) = refilled(first, again).map_err(StageError::io(&path))?;
        Ok(File { feed: Some(feed), ..File::remote(&path, DemuxedInput::File(file), options, spec()?)? })
    }

    fn new(path: &str, options: &FileOptions, demuxing: Demuxing) -> File {
        let (pace, is_repeated) = (Pace::from_rate(options.rate), options.loops != 1);
        let file = File { demuxing, next_seq: 0, is_repeated, pace, feed: None };
        let (track, demuxed) = (file.track(), if file.worker().is_some() { "in a worker" } else { "inline" });
        let StreamInfo { width, height, .. } = track.stream;
        log::info!("file {path}: {} {width}x{height}, demuxed {demuxed}", track.codec);
        file
    }

    fn track(&self) -> &TrackInfo {
        match &self.demuxing {
            Demuxing::Inline(inline) => inline.demuxer.info(),
            Demuxing::Worker(remote) => remote.track(),
        }
    }

    /// Adds the statistics of the demuxer's worker, if there is one, to those of the run.
    pub(super) fn report_worker(&self, place: &HopPlace<'_>) {
        if let Some(worker) = self.worker() {
            place.outcomes.demuxer.get_or_init(|| worker.stats());
        }
    }

    /// Returns the demuxer in a worker; `None` if the file is demuxed in this process.
    pub(crate) fn worker(&self) -> Option<&RemoteDemuxer> {
        match &self.demuxing {
            Demuxing::Inline(_) => None,
            Demuxing::Worker(remote) => Some(remote),
        }
    }
}

impl Inline {
    fn read(&mut self) -> Result<Option<Packet>, StageError> {
        loop {
            if let Some(packet) = self.demuxer.read()? {
                self.packets_of_this_loop += u64::from(!packet.preroll().discarded);
                return Ok(Some(packet));
            }
            if self.loops_left == 0 {
                return Ok(None);
            }
            // Without this check, a file without packets would be read forever.
            if self.packets_of_this_loop == 0 {
                return Err(self.demuxer.nothing_to_repeat().into());
            }
            self.loops_left -= 1;
            self.packets_of_this_loop = 0;
            if self.start.is_zero() {
                self.demuxer.rewind()?;
            } else {
                self.demuxer.seek(self.start, SeekTo::Exact)?;
            }
        }
    }
}

impl Source for File {
    fn info(&self) -> StreamInfo {
        self.track().stream
    }

    fn track_info(&self) -> Option<TrackInfo> {
        Some(self.track().clone())
    }

    fn duration(&self) -> Option<Duration> {
        if self.is_repeated { None } else { self.track().duration }
    }

    fn produce(&mut self, out: &mut Out<'_>) -> Result<bool, HopFailure> {
        match self.pace.as_mut().map(|pace| pace.wait_for(self.next_seq, out)) {
            None | Some(PaceWait::Now) => {}
            Some(PaceWait::Ended) => return Ok(false),
            Some(PaceWait::Request) => return Ok(true),
        }
        let birth_ns = out.birth();
        let packet = match &mut self.demuxing {
            Demuxing::Inline(inline) => inline.read(),
            Demuxing::Worker(remote) => remote.read().map_err(StageError::from),
        };
        let packet = match packet {
            // The read was interrupted: the frames inside the path are still delivered.
            Err(error) if signal::interrupted() && is_canceled(&error) => None,
            packet => packet.map_err(|error| out.fail(error))?,
        };
        let Some(mut packet) = packet else {
            let failed = self.feed.as_ref().map_or(Ok(()), Feed::check);
            return failed.map(|()| false).map_err(|error| out.fail(StageError::io("file")(error)));
        };
        packet.meta_mut().seq = self.next_seq;
        packet.meta_mut().birth_ns = birth_ns;
        self.next_seq += 1;
        out.push(Item::Packet(packet))?;
        Ok(true)
    }

    fn can_seek(&self) -> Result<(), &'static str> {
        match &self.demuxing {
            Demuxing::Inline(inline) if inline.demuxer.is_seekable() => Ok(()),
            Demuxing::Inline(_) => Err("the input is a pipe or a device; only regular files are seekable"),
            Demuxing::Worker(remote) => remote.can_seek(),
        }
    }

    fn request(&mut self, request: &Request) -> Result<Answered, StageError> {
        let nanoseconds = |to: Duration| u64::try_from(to.as_nanos()).unwrap_or(u64::MAX);
        match (&mut self.demuxing, *request) {
            (Demuxing::Inline(inline), Request::Seek { to, mode }) => inline.demuxer.seek(to, mode)?,
            (Demuxing::Inline(inline), Request::Flush) => inline.demuxer.skip_to_key()?,
            (Demuxing::Worker(remote), Request::Seek { to, mode }) => {
                remote.seek(wire::DemuxPosition::Time(nanoseconds(to), mode))?;
            }
            (Demuxing::Worker(remote), Request::Flush) => remote.seek(wire::DemuxPosition::NextKey)?,
            _ => return Ok(Answered::PassOn),
        }
        self.pace.iter_mut().for_each(Pace::restart);
        Ok(Answered::Done)
    }
}
