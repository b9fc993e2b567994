// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the workers of one stream are to run.

use std::sync::Arc;

use framepath_codec::TrackInfo;
use framepath_model::path;
use framepath_model::stream::StreamInfo;

use super::WorkerOptions;
use super::borrow::Lends;
use super::seat::Seat;

/// What a worker is to run.
pub(crate) struct Spec {
    /// The hop, to be run inline by the worker.
    pub(crate) hop: path::Hop,
    pub(crate) track: Option<TrackInfo>,
    pub(crate) frames_behind: u32,
    pub(crate) options: WorkerOptions,
    /// Where the workers come from the service, the stream's place there.
    pub(crate) seat: Option<Arc<Seat>>,
    /// Who lends the workers the memory for their frames.
    pub(crate) lends: Option<Arc<dyn Lends>>,
}

impl Spec {
    /// The hop without what is the caller's business.
    pub(super) fn stage_text(&self, single_threaded: bool) -> String {
        let mut hop = self.hop.without(&path::HOSTING);
        if single_threaded && hop.def.arg("threads").is_some() {
            hop = hop.without(&["threads"]);
            return format!("{hop} threads=1");
        }
        hop.to_string()
    }
}

/// What is known only when the path starts.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// The stream in front of the stage.
    pub(super) stream: StreamInfo,
    /// The ledger's level, as the wire has it.
    pub(super) level: u8,
}

/// Which of a stream's workers is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Again,
    /// On one thread, so that the packet that kills it can be told.
    Careful,
}
