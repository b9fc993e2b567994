// SPDX-License-Identifier: MIT OR Apache-2.0
//! str0m's `Rtc` with the settings of both ends.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use str0m::bwe::Bitrate;
use str0m::change::{SdpAnswer, SdpOffer};
use str0m::crypto::Fingerprint;
use str0m::rtp::Extension;
use str0m::{Candidate, Rtc};

use super::{Identity, guarded};
use crate::error::WebrtcError;
use crate::frame_number::frame_number_extension;
use crate::pairing::FINGERPRINT;

/// Number of the RTP header extension for the playout delay, in offers.
const PLAYOUT_DELAY: u8 = 5;
/// Number of the RTP header extension for the frame's number, in offers.
const FRAME_NUMBER: u8 = 6;
/// Part of the highest bit rate that the estimation looks for in the network. Frames leave faster than the bit rate on average.
const SEARCHED: u64 = 2;
/// Interval of str0m's statistics.
const STATISTICS: Duration = Duration::from_millis(100);

/// Makes a session without media, with the candidate `local`. With `highest_rate`, bits per second, it estimates the bandwidth for a
/// video of at most this bit rate.
pub(super) fn new_rtc(
    codings: &[Coding],
    ice_lite: bool,
    identity: &Identity,
    local: SocketAddr,
    highest_rate: Option<u64>,
    now: Instant,
) -> Result<Rtc, WebrtcError> {
    let mut rtc = Rtc::builder()
        .set_dtls_cert(identity.certificate.clone())
        .set_crypto_provider(identity.crypto.clone())
        .set_rtp_mode(true)
        .set_stats_interval(Some(STATISTICS))
        .set_ice_lite(ice_lite)
        .set_extension(PLAYOUT_DELAY, Extension::PlayoutDelay)
        .set_extension(FRAME_NUMBER, frame_number_extension())
        .enable_bwe(highest_rate.map(Bitrate::bps))
        .clear_codecs()
        .enable_h264(codings.contains(&Coding::H264))
        .enable_vp8(codings.contains(&Coding::Vp8))
        .enable_h265(codings.contains(&Coding::Hevc))
        .enable_vp9(codings.contains(&Coding::Vp9))
        .enable_av1(codings.contains(&Coding::Av1))
        .build(now);
    rtc.add_local_candidate(host(local)?);
    if let Some(rate) = highest_rate {
        rtc.bwe().set_desired_bitrate(Bitrate::bps(SEARCHED * rate));
    }
    Ok(rtc)
}

/// Returns the candidate of a socket.
pub(super) fn host(local: SocketAddr) -> Result<Candidate, WebrtcError> {
    Candidate::host(local, "udp").map_err(description)
}

/// Makes DTLS accept only the certificate with this SHA-256, whatever the session description says.
pub(super) fn pin(rtc: &mut Rtc, fingerprint: [u8; FINGERPRINT]) {
    let bytes = fingerprint.to_vec();
    rtc.direct_api().set_remote_fingerprint(Fingerprint { hash_func: "sha-256".to_owned(), bytes });
}

/// Returns the error of a session description.
pub(super) fn description(error: impl std::fmt::Display) -> WebrtcError {
    WebrtcError::Description(error.to_string())
}

/// Reads the text of an answer.
pub(super) fn read_answer(answer: &str) -> Result<SdpAnswer, WebrtcError> {
    guarded(|| {
        SdpAnswer::from_sdp_string(answer).map_err(|error| {
            log::debug!("answer: {error}");
            description("the answer is not valid")
        })
    })
}

/// Reads the text of an offer. Takes long for large ones, so that a thread with sessions must not call it.
pub(crate) fn read_offer(offer: &str) -> Result<SdpOffer, WebrtcError> {
    guarded(|| {
        SdpOffer::from_sdp_string(offer).map_err(|error| {
            // Its text has addresses of this process, which are none of the viewer's business.
            log::debug!("offer: {error}");
            description("not a session description")
        })
    })
}
