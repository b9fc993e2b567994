// SPDX-License-Identifier: MIT OR Apache-2.0
//! Touches files, standard output and threads; the kernel and the codecs only
//! through the crates below. No unsafe code.
//!
//! A path is built from its text and run; the run comes back with its ledger:
//!
//! ```
//! use framepath::{Options, run};
//!
//! let path = framepath::path::parse("test frames=10 ! queue depth=4 ! null").unwrap();
//! let report = run(&path, &Options::default()).unwrap();
//! assert_eq!(report.frames, 10);
//! ```
#![forbid(unsafe_code)]

mod build;
mod device;
mod error;
pub mod export;
pub mod host;
mod item;
mod link;
mod loss;
mod out;
pub mod pgm;
pub mod plugins;
mod recorder;
mod report;
mod runner;
pub mod serve;
mod sink;
mod source;
mod stage;

pub use build::Built;
pub use error::{RunError, StageError};
pub use framepath_codec::silence_ffmpeg;
pub use framepath_model::path::{self, Path, PathError};
pub use framepath_os::meter::Level;
pub use framepath_os::queue::Leaky;
pub use item::Item;
pub use loss::{Loss, LossReason};
pub use out::{Failure, Out};
pub use report::{HopInfo, PlayReport, Report, WorkerReport};
pub use runner::{Options, Progress, run};
pub use source::Source;
pub use source::test::{Test, TestOptions};
pub use stage::Stage;
