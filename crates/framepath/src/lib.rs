// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves video frames between stages, threads and sandboxed processes, and shows
//! where every microsecond, copy and wake-up of each frame went.
//!
//! This crate touches threads, files, standard input and output, worker processes and their sockets,
//! V4L2 devices, libraries of plug-ins and of libavfilter, and the name server for `url`; with the
//! feature `play`, a window; with the feature `x11`, an X server; with the feature `http`, web servers; and with
//! the feature `net`, TCP and UDP sockets.
//!
//! # Frames in a loop
//!
//! A [`Pipeline`] is made from path text, from parts of your own, or from both.
//! [`Pipeline::frames`] returns an iterator of the frames:
//!
//! ```
//! use framepath::Pipeline;
//!
//! for frame in Pipeline::parse("test frames=3 size=64x48 format=grey")?.frames()? {
//!     let frame = frame?;
//!     let luma = frame.plane(0).to_vec();
//!     let mean = luma.iter().map(|&pixel| u32::from(pixel)).sum::<u32>() / luma.len() as u32;
//!     println!("frame {}: mean luma {mean}", frame.meta().seq);
//! }
//! # Ok::<(), framepath::RunError>(())
//! ```
//!
//! The path syntax is that of the command: `file clip.mp4 ! decode` reads and decodes a file,
//! `queue` starts a thread, `host=process` puts a stage into a sandboxed process.
//!
//! # Runs and their ledger
//!
//! A pipeline with a sink runs to its end and returns a [`Report`] with the ledger of the run:
//!
//! ```
//! use framepath::{Options, Pipeline, export};
//!
//! let pipeline = Pipeline::parse("test frames=10 ! queue depth=4 ! null")?;
//! let mut report = pipeline.run(&Options::default())?;
//! assert_eq!(report.frames, 10);
//! println!("{}", export::text::summary(&mut report));
//! # Ok::<(), framepath::RunError>(())
//! ```
//!
//! # Main types
//!
//! | type | purpose |
//! | --- | --- |
//! | [`Pipeline`], [`Frames`] | a path that is ready to run; its frames as an iterator, with seek |
//! | [`Options`], [`Stop`], [`Requests`] | settings of a run; a handle that ends a run from any thread; seek, flush and other requests during a run |
//! | [`Report`] | frames, losses, latency and causes of a run; [`export`] writes them as text, HTML, JSON, CSV and Perfetto traces |
//! | [`Frame`], [`FrameMut`], [`Pool`], [`Packet`] | pixels in pool memory, for reading and for writing; the pool; compressed bytes |
//! | [`Stage`], [`Source`], [`Out`] | parts of your own |
//! | [`Registry`] | names of parts in path text |
//!
//! # Parts of your own
//!
//! [`Pipeline::sink_fn`] takes a closure. A [`Stage`] takes and emits frames or
//! packets; a sink is a stage too. A [`Source`] only emits. Pixels are in a
//! [`Frame`]: [`Frame::layout`] has size, format and strides, [`Frame::plane`] the
//! bytes.
//!
//! ```
//! use framepath::{Options, Pipeline};
//!
//! let report = Pipeline::parse("test frames=5 size=64x48 format=grey")?
//!     .sink_fn(|frame| println!("frame {} has {} rows", frame.meta().seq, frame.layout().height))
//!     .run(&Options::default())?;
//! assert_eq!(report.frames, 5);
//! # Ok::<(), framepath::RunError>(())
//! ```
//!
//! A [`Registry`] gives stages and sources names, so that path text can use them with options, help
//! and completion.
//!
//! # Decoders in a sandbox
//!
//! `decode host=process` runs demuxer and decoder in sandboxed processes (`docs/sandbox.md`). These
//! processes run your own program if [`worker::init`] is the first call in `main`; otherwise they run
//! the `framepath` command.
//!
//! # Side effects
//!
//! The library installs no signal handler, and changes neither the umask nor FFmpeg's log callback.
//! The sink `send` prints its address to standard error, and a token that it has made itself.
//! A program that wants signal handlers calls [`install_signal_handlers`]; a program that wants no
//! output of FFmpeg calls [`silence_ffmpeg`].
//! [`Options::stop`] ends one run.
//!
//! # Diagnostics
//!
//! The library reports through the crate [`log`](https://docs.rs/log), and is silent until the
//! program installs a logger. Targets begin with `framepath`.
//!
//! | level | reports |
//! | --- | --- |
//! | `error` | a run that failed; in a service, a worker that died or could not be started, and each stream that gets none |
//! | `warn` | a worker that died or hung, with the reason; a stage's note for the user, such as software in place of a hardware decoder; a lost network connection; a client that a service refused |
//! | `info` | a file that was opened, with codec and size; a pipeline that starts and ends; a worker that starts a stream; connections to a service |
//! | `debug` | hops, decoders, pools and their sizes |
//!
//! Messages per frame have level `trace`. Sandboxed workers have no logger: their log messages are
//! lost, and their failures reach the program as errors. Messages may contain text from files and
//! from other processes: escape it before a terminal shows it ([`shown::shown`]).
#![forbid(unsafe_code)]

mod congestion;
mod copy_pool;
mod damage;
mod device;
mod element;
mod error;
pub mod export;
mod frames;
mod from_path;
mod helper;
pub mod host;
mod hosting;
mod item;
mod live_ledger;
mod loss;
mod notes;
mod options;
mod out;
mod outcomes;
pub mod path;
pub mod pgm;
mod pipeline;
pub mod plugins;
mod queue;
mod recorder;
mod registry;
mod remote;
#[cfg(feature = "net")]
mod remote_table;
mod report;
mod request;
mod requests;
mod row_tap;
mod runner;
mod sink;
mod source;
mod stage;
mod tee;
pub mod worker;

pub use copy_pool::CopyPool;
pub use damage::{Damage, FirstDamage};
pub use element::HopPlace;
pub use error::{RunError, StageError};
pub use framepath_codec::{Codec, CodecError, Packet, TrackInfo, silence_ffmpeg};
pub use framepath_model::orientation::Orientation;
pub use framepath_model::path::{Path, PathError};
pub use framepath_model::stream::{FieldOrder, FrameMeta, PictureFlags, Rational, SeekTo, StreamInfo};
pub use framepath_model::{colors, format, ledger, shown};
#[cfg(feature = "net")]
pub use framepath_net::read_sender_metrics;
pub use framepath_os::measure::meter::{Level, copy as counted_copy};
pub use framepath_os::memory::pool::{Frame, FrameMut, Plane, Pool, PoolError};
pub use framepath_os::process::signal::install as install_signal_handlers;
pub use framepath_os::process::stop::Stop;
pub use framepath_os::sync::queue::Leaky;
pub use frames::{Frames, FramesWaker, NextFrame};
pub use helper::{HelperInfo, HelperKind};
pub use item::Item;
pub use live_ledger::LiveLedger;
pub use loss::{Loss, LossReason};
pub use options::{FrameCount, Options};
pub use out::{HopFailure, Out};
pub use pipeline::Pipeline;
pub use registry::Registry;
pub use remote::RemoteReport;
pub use report::{HopInfo, NetworkReport, PlayReport, Report, SinkReport, WorkerReport};
pub use request::{Answered, Request, RequestError};
pub use requests::Requests;
pub use runner::run;
pub use sink::function::SinkReturn;
pub use source::Source;
pub use source::test::{Test, TestOptions};
pub use stage::Stage;
