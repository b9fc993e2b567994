// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payload type of a session's video.

use framepath_model::access_unit::Coding;
use str0m::Rtc;
use str0m::format::Codec;
use str0m::media::{Mid, Pt};

/// Returns the first payload type of the video that both ends know, and its codec. H.264 has packetisation mode 1.
pub(super) fn payload_type(rtc: &Rtc, mid: Mid, codings: &[Coding]) -> Option<(Pt, Coding)> {
    let known = rtc.codec_config().params();
    let remote = rtc.media(mid)?.remote_pts();
    remote.iter().find_map(|pt| {
        let spec = known.iter().find(|params| params.pt() == *pt)?.spec();
        let coding = coding_of(spec.codec).filter(|coding| codings.contains(coding))?;
        let is_usable = coding != Coding::H264 || spec.format.packetization_mode == Some(1);
        is_usable.then_some((*pt, coding))
    })
}

fn coding_of(codec: Codec) -> Option<Coding> {
    match codec {
        Codec::H264 => Some(Coding::H264),
        Codec::H265 => Some(Coding::Hevc),
        Codec::Vp8 => Some(Coding::Vp8),
        Codec::Vp9 => Some(Coding::Vp9),
        Codec::Av1 => Some(Coding::Av1),
        _ => None,
    }
}
