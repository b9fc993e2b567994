// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to an encoder in a worker, as the process that runs the path keeps them.

use framepath_model::stream::FrameMeta;
use framepath_model::wire::EncoderRequests;

use crate::congestion::Congestion;
use crate::out::Out;
use crate::request::{Answered, Request};

/// Requests to an encoder in a worker. They travel with the frames, so that a frame that is sent again, to the next
/// worker, carries them, too.
pub(crate) struct EncoderControl {
    /// Requests for the next frame.
    requests: EncoderRequests,
    congestion: Congestion,
    /// True if no frame was sent since the start or the last flush.
    is_first: bool,
}

impl EncoderControl {
    pub(crate) fn new(congestion: Congestion) -> EncoderControl {
        EncoderControl { requests: EncoderRequests::default(), congestion, is_first: true }
    }

    /// Returns the requests that travel with the next frame, whose metadata is `meta`; `None` if the frame is dropped because of
    /// congestion.
    pub(super) fn next(&mut self, meta: &FrameMeta, out: &mut Out<'_>) -> Option<EncoderRequests> {
        if self.congestion.drops(meta, self.is_first, out) {
            return None;
        }
        self.is_first = false;
        let requests = self.requests;
        self.requests.key = false;
        Some(requests)
    }

    /// Forgets that frames were sent, because the encoder begins anew.
    pub(super) fn flush(&mut self) {
        self.is_first = true;
    }

    /// Reports the frames that were dropped.
    pub(super) fn report(&mut self) {
        self.congestion.report();
    }

    /// Answers a request as the encoder in this process would.
    pub(super) fn request(&mut self, request: &Request) -> Answered {
        match request {
            Request::Keyframe => self.requests.key = true,
            Request::BitRate(bits) => {
                self.requests.bit_rate = Some((*bits).max(1));
                return Answered::Done;
            }
            Request::Bandwidth(bits) => {
                self.requests.bandwidth = Some((*bits).max(1));
                return Answered::Done;
            }
            Request::Congested(is_congested) => return self.congestion.request(*is_congested),
            _ => {}
        }
        Answered::PassOn
    }
}
