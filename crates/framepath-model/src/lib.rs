// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure data and arithmetic of framepath: touches no I/O, no clock, no thread, and has no unsafe code.
//!
//! Every other crate of the workspace builds on this one. Programs that move frames use the crate
//! `framepath`, which re-exports the types that they need. A tool that reads summaries, checks path
//! text or decodes the wire format can use this crate alone.
//!
//! | module | contents |
//! | --- | --- |
//! | [`mod@format`], [`colors`], [`orientation`], [`stream`] | pixel formats and planes, colours by H.273, turned pictures, times and sizes of a stream |
//! | [`changed_rows`] | the rows of a picture that differ from an earlier one |
//! | [`buffer_request`] | a decoder's request for buffers of a device or another process |
//! | [`path`] | the path syntax: parser, definitions of hops, errors, help and completion |
//! | [`ledger`] | rows of frames and hops, and the arithmetic from rows to causes |
//! | [`stats`], [`summary`] | medians, percentiles, intervals of paired ratios; JSON summaries |
//! | [`wire`] | the wire format between a caller, its workers and the service |
//! | [`replay`] | choice of the packets that another worker decodes again after the death of a worker |
//! | [`access_point`], [`access_unit`], [`parameter_sets`] | the parts of H.264, HEVC, VP8, VP9 and AV1 streams that a replay needs |
//! | [`service`] | limits and accounting of the service |
//! | [`shown`] | text of other programs, made safe for a terminal |
//!
//! # Examples
//!
//! The memory of a picture:
//!
//! ```
//! use framepath_model::format::{Layout, PixelFormat};
//!
//! let layout = Layout::packed(PixelFormat::Nv12, 1920, 1080)?;
//! assert_eq!(layout.planes().len(), 2);
//! assert_eq!(layout.size, 1920 * 1080 * 3 / 2);
//! # Ok::<(), framepath_model::format::LayoutError>(())
//! ```
//!
//! Two contenders, measured in six interleaved pairs:
//!
//! ```
//! use framepath_model::stats::{Verdict, paired_ratio};
//!
//! let ours = [4.1, 4.0, 4.3, 4.2, 4.1, 4.0];
//! let theirs = [8.1, 8.3, 8.2, 8.4, 8.0, 8.2];
//! let ratio = paired_ratio(&ours, &theirs, 1)?;
//! assert!((0.48..0.53).contains(&ratio.median));
//! assert_eq!(ratio.verdict, Verdict::ALess);
//! # Ok::<(), framepath_model::stats::StatsError>(())
//! ```
#![forbid(unsafe_code)]

pub mod access_point;
pub mod access_unit;
pub mod buffer_request;
pub mod changed_rows;
pub mod colors;
pub mod format;
pub mod frame_number;
mod framing;
pub mod ledger;
pub mod orientation;
pub mod parameter_sets;
pub mod path;
mod picture_start;
mod recovery_point;
pub mod replay;
pub mod service;
pub mod session_description;
pub mod shown;
pub mod shown_time;
pub mod stats;
pub mod stream;
pub mod summary;
pub mod wire;
