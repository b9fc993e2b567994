// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lab of framepath: experiments that measure framepath and other people's programs, reports about them, and a
//! check of the machine. The lab starts programs, and uses the loopback network, network namespaces of its own, V4L2 devices,
//! displays, /proc, temporary files and the terminal's progress bar.
//!
//! An *experiment* runs *contenders* (paths, and programs of other people) over the same cases and compares
//! them. The machine is noisy, so contenders run interleaved in pairs, figures are medians, and a
//! comparison is the median of the ratios within the pairs, with a 95 % interval. A verdict needs an
//! interval that excludes 1.
//!
//! - [`experiment`] lists the experiments, one file each; [`pairs`] runs contenders interleaved.
//! - [`measure`] has [`Contender`](measure::Contender) and [`Measured`](measure::Measured), the figures of one run.
//! - [`process`] runs a program and counts its CPU time, that of the children it waited for included.
//! - [`compare`] pairs two paths or commands; [`gate`] compares summaries with budgets or with an older run; [`report`]
//!   creates the HTML page; [`plain`] puts summaries into words and tables for a terminal.
//! - [`doctor`] lists the capabilities of the machine.
//!
//! The commands `lab`, `compare`, `gate`, `report` and `doctor` of the program `framepath` call this crate,
//! and so do the hidden commands `handoff` and `asked`, which are contenders of experiments, and `relay`, a network with losses.
//!
//! # Example
//!
//! Two contenders over one case, in six pairs:
//!
//! ```
//! use framepath_lab::measure::{Contender, Measured};
//! use framepath_lab::{machine, pairs, progress};
//! use framepath_model::summary::Summary;
//!
//! let sum = |numbers: u64| Contender::new(&format!("sum-{numbers}"), move || {
//!     let begun = std::time::Instant::now();
//!     std::hint::black_box((0..numbers).sum::<u64>());
//!     Ok(Measured { wall_ns: begun.elapsed().as_nanos() as u64, ..Measured::default() })
//! });
//! let mut summary = Summary {
//!     experiment: "sums".to_owned(),
//!     machine: machine(),
//!     started_unix_s: None,
//!     rows: Vec::new(),
//!     ratios: Vec::new(),
//!     skipped: Vec::new(),
//!     notes: Vec::new(),
//! };
//! let contenders = vec![sum(10), sum(1_000_000)];
//! pairs::run("all", contenders, &[("wall_ms", "sum-10", "sum-1000000")], 6, &progress::NoProgress, &mut summary)?;
//! assert_eq!(summary.rows.len(), 2);
//! # Ok::<(), framepath_lab::LabError>(())
//! ```
#![forbid(unsafe_code)]

pub mod asked;
pub mod compare;
mod csv_line;
pub mod date;
mod descendants;
mod display;
pub mod doctor;
mod error;
pub mod experiment;
pub mod gate;
pub mod handoff;
mod kept;
pub mod measure;
mod own_child;
pub mod pairs;
pub mod plain;
pub mod process;
pub mod progress;
pub mod relay;
pub mod report;
mod temporary_folder;
pub mod test_link;
pub mod traced;

/// Exit code of `framepath run` if packets or frames were lost, or with `--strict` if the stream is damaged.
pub const LOST: u8 = 3;

pub use error::LabError;
pub use framepath::export::machine::machine;
pub use kept::KeptLedger;
