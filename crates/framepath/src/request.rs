// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that travel upstream in a run: seek, flush, keyframe, bit rate, stop.

use std::time::Duration;

use framepath_model::stream::SeekTo;

/// A request to the hops in front, or to the source.
///
/// The request travels hop by hop from its sender to the source, until a hop [answers](Answered::Done).
/// A request that no hop answers is dropped. A seek or flush reaches all these hops and the source, whatever
/// the hops answer. Stages that run in a worker get no requests, except the built-in encoder, and a [`Request::Stop`] reaches no hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Continue at another time, counted from the stream's start. The items inside the run are discarded.
    Seek {
        /// Requested time.
        to: Duration,
        /// Precision: exactly the requested time, or the random access point at or before that time.
        mode: SeekTo,
    },
    /// Discard the items inside the run, and continue with the next item of the source; in a compressed stream,
    /// with its next random access point.
    Flush,
    /// Make the next packet a random access point, for example because a packet was lost.
    Keyframe,
    /// Encode at this bit rate, bits per second.
    BitRate(u64),
    /// Encode at no more than this bit rate, bits per second: the network carries no more. A higher one ends the limit. An encoder has
    /// a lowest bit rate of its own.
    Bandwidth(u64),
    /// True: drop frames before they are encoded, because encoded ones wait for the network; false: no longer.
    Congested(bool),
    /// End the run, like [`Stop`](crate::Stop). No hop sees this request.
    Stop,
}

impl Request {
    /// True if the items inside the run are discarded for this request.
    pub(crate) fn flushes(&self) -> bool {
        matches!(self, Request::Seek { .. } | Request::Flush)
    }

    /// True if `later` makes this request obsolete while it waits.
    pub(crate) fn is_replaced_by(&self, later: &Request) -> bool {
        use Request::{Bandwidth, BitRate, Congested, Keyframe};
        let pair = (self, later);
        matches!(pair, (Keyframe, Keyframe) | (BitRate(_), BitRate(_)) | (Bandwidth(_), Bandwidth(_)))
            || matches!(pair, (Congested(_), Congested(_)))
    }
}

/// Answer of a hop or source to a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The hop has not fulfilled the request, or hops in front have to help; the request goes to the hop in front. From the
    /// source it goes no further.
    PassOn,
    /// The hop has performed the request. Hops in front do not get it, unless it is a seek or flush.
    Done,
}

/// Reason why a request cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The source cannot seek. The run goes on as without the request.
    #[error("{source_hop}: cannot seek: {reason}")]
    CannotSeek {
        /// Text of the source in the path; for a source of the caller's own, its name
        /// ([`Source::name`](crate::Source::name) or [`Pipeline::named`](crate::Pipeline::named)).
        source_hop: String,
        /// Reason why the source cannot seek.
        reason: String,
    },
    /// The run has ended; for a seek or flush also: the source has ended and the stream is not held open.
    #[error("the run or its source has ended")]
    Ended,
    /// A stage in a worker may not make this request. Its process may be under an attacker's control,
    /// and must not stop the run or seek.
    #[error("a stage in a worker can only request a keyframe, or a bit rate of 1 to 2^40 bits per second")]
    InWorker,
}
