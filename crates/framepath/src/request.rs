// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests that travel upstream in a run.

use std::time::Duration;

use framepath_model::stream::SeekTo;

/// A request to the hops in front, or to the source.
///
/// It travels from the hop that makes it to the source, hop by hop, until one
/// [answers](Answered::Done). A request that nobody answers is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Go on at another time, counted from the stream's start. What is inside the run is
    /// discarded.
    Seek {
        /// The time.
        to: Duration,
        /// Exactly there, or where decoding can begin.
        mode: SeekTo,
    },
    /// Discard what is inside the run, and go on with what comes next.
    Flush,
    /// The next packet is to be a random access point: something was lost.
    Keyframe,
    /// Encode with so many bits a second from now on.
    BitRate(u64),
    /// End the run: [`Stop`](crate::Stop). No hop sees it.
    Stop,
}

impl Request {
    /// True if the items inside the run are discarded for this request.
    pub(crate) fn flushes(&self) -> bool {
        matches!(self, Request::Seek { .. } | Request::Flush)
    }

    /// True if `later` makes this request needless while nobody has looked at it.
    pub(crate) fn gives_way_to(&self, later: &Request) -> bool {
        use Request::{BitRate, Keyframe};
        matches!((self, later), (Keyframe, Keyframe) | (BitRate(_), BitRate(_)))
    }
}

/// Answer of a hop to a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The hop did nothing: the request is for a hop in front.
    PassOn,
    /// It is done. Hops in front do not see it; the hops behind are flushed where the request is
    /// a seek or a flush.
    Done,
}

/// Why a request cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The source has no other times to go to. The run goes on as if nothing had been asked.
    #[error("{source_hop}: cannot seek: {reason}")]
    CannotSeek {
        /// The source as it stands in the path.
        source_hop: String,
        /// Why not.
        reason: String,
    },
    /// The run has ended.
    #[error("the run has ended")]
    Ended,
    /// A stage in a worker may not make this request: its process may be in a stranger's
    /// hands, and the run is not to be stopped or moved by that.
    #[error("a stage in a worker can request a keyframe, or a bit rate of 1 to 2^40, and nothing else")]
    InWorker,
}
