// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a WebRTC session: str0m's `Rtc`, with our clock and socket.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use openssl::sha::sha256;
use str0m::change::{SdpAnswer, SdpOffer};
use str0m::crypto::dtls::DtlsCert;
use str0m::crypto::{Fingerprint, from_feature_flags};
use str0m::format::Codec;
use str0m::media::{Direction, KeyframeRequestKind, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Output, Rtc, RtcError};

use crate::dtls_record::{are_whole, is_other_protocol};
use crate::error::WebrtcError;
use crate::media_socket::{Datagram, MediaSocket};
use crate::pairing::FINGERPRINT;

/// Number of sent packets that are kept to be sent again, and their maximum age.
const RESENDS: (usize, Duration) = (4096, Duration::from_secs(2));

/// Interval of str0m's statistics.
const STATISTICS: Duration = Duration::from_secs(1);

/// Event of a session.
pub(crate) enum PeerEvent {
    /// Both ends have authenticated each other by DTLS.
    Connected,
    /// The other end has left.
    Closed,
    /// The viewer asks for a keyframe.
    KeyframeRequest,
    /// Number of requests of the viewer so far for packets that it has missed.
    Missed(u64),
    /// An RTP packet of the video arrived.
    Packet {
        /// Sequence number, extended so that it never wraps.
        seq: u64,
        /// RTP timestamp, 90 kHz, extended so that it never wraps.
        time: u64,
        marker: bool,
        payload: Arc<[u8]>,
    },
}

/// Certificate and key of one end, and the SHA-256 of the certificate.
#[derive(Clone)]
pub(crate) struct Identity {
    certificate: DtlsCert,
    pub(crate) fingerprint: [u8; FINGERPRINT],
}

impl Identity {
    /// Makes a new certificate, which signs itself.
    ///
    /// # Errors
    /// OpenSSL fails.
    pub(crate) fn new() -> Result<Identity, WebrtcError> {
        let certificate = from_feature_flags().dtls_provider.generate_certificate();
        let certificate = certificate.ok_or(WebrtcError::Certificate)?;
        let fingerprint = sha256(&certificate.certificate);
        Ok(Identity { certificate, fingerprint })
    }
}

/// Makes DTLS accept only the certificate with this SHA-256, whatever the session description says.
fn pin(rtc: &mut Rtc, fingerprint: [u8; FINGERPRINT]) {
    let bytes = fingerprint.to_vec();
    rtc.direct_api().set_remote_fingerprint(Fingerprint { hash_func: "sha-256".to_owned(), bytes });
}

/// Calls str0m. On some bytes that no honest peer sends, such as DTLS records in the middle of others, it panics; then this session
/// has failed, and the others go on.
fn guarded<T>(call: impl FnOnce() -> Result<T, WebrtcError>) -> Result<T, WebrtcError> {
    // The session is dropped after an error, so that nobody sees the state that the panic has left.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(WebrtcError::Panicked))
}

/// One end of a session with a single video.
pub(crate) struct WebrtcPeer {
    rtc: Rtc,
    /// Address of the socket, as the other end knows it.
    local: SocketAddr,
    mid: Mid,
    pt: Pt,
    coding: Coding,
    /// Time at which the session wants to be driven without an input.
    deadline: Instant,
}

fn description(error: impl std::fmt::Display) -> WebrtcError {
    WebrtcError::Description(error.to_string())
}

fn coding_of(codec: Codec) -> Option<Coding> {
    match codec {
        Codec::H264 => Some(Coding::H264),
        Codec::Vp8 => Some(Coding::Vp8),
        _ => None,
    }
}

/// Makes a session without media, with the candidate `local`.
fn new_rtc(
    codings: &[Coding],
    ice_lite: bool,
    identity: &Identity,
    local: SocketAddr,
    now: Instant,
) -> Result<Rtc, WebrtcError> {
    let mut rtc = Rtc::builder()
        .set_dtls_cert(identity.certificate.clone())
        .set_crypto_provider(Arc::new(from_feature_flags()))
        .set_rtp_mode(true)
        .set_stats_interval(Some(STATISTICS))
        .set_ice_lite(ice_lite)
        .clear_codecs()
        .enable_h264(codings.contains(&Coding::H264))
        .enable_vp8(codings.contains(&Coding::Vp8))
        .build(now);
    let candidate = Candidate::host(local, "udp").map_err(description)?;
    rtc.add_local_candidate(candidate);
    Ok(rtc)
}

impl WebrtcPeer {
    /// Accepts a viewer's offer for a video of this codec. The viewer reaches the socket at `local`, and has the certificate with
    /// the SHA-256 `viewer`; without it, the one that the offer names. Returns the session, and the answer's text.
    ///
    /// # Errors
    /// The offer is not valid, or the viewer cannot receive the codec.
    pub(crate) fn accept(
        offer: &str,
        viewer: Option<[u8; FINGERPRINT]>,
        coding: Coding,
        identity: &Identity,
        local: SocketAddr,
    ) -> Result<(WebrtcPeer, String), WebrtcError> {
        let offer = SdpOffer::from_sdp_string(offer).map_err(|error| {
            // Its text has addresses of this process, which are none of the viewer's business.
            log::debug!("offer: {error}");
            description("not a session description")
        })?;
        let now = Instant::now();
        let mut rtc = new_rtc(&[coding], true, identity, local, now)?;
        let answer = rtc.sdp_api().accept_offer(offer)?;
        if let Some(viewer) = viewer {
            pin(&mut rtc, viewer);
        }
        let answer = answer.to_sdp_string();
        // str0m lists its media only by their identifiers, which are in its answer.
        let mut mids = answer.lines().filter_map(|line| line.strip_prefix("a=mid:")).map(Mid::from);
        let is_video = |mid: &Mid| {
            let media = rtc.media(*mid);
            media.is_some_and(|media| media.kind().is_video() && media.direction().is_sending())
        };
        let mid =
            mids.find(is_video).ok_or_else(|| description("the offer has no video to receive (recvonly)"))?;
        let pt = payload_type(&rtc, mid, &[coding])
            .map(|(pt, _)| pt)
            .ok_or_else(|| description(format!("the viewer cannot receive {coding:?}")))?;
        if let Some(stream) = rtc.direct_api().stream_tx_by_mid(mid, None) {
            stream.set_rtx_cache(RESENDS.0, RESENDS.1, None);
        }
        Ok((WebrtcPeer { rtc, local, mid, pt, coding, deadline: now }, answer))
    }

    /// Makes a viewer's session: calls `exchange` with the offer's text, and accepts the answer's text that it
    /// returns. The sender has the certificate with the SHA-256 `sender`; without it, the one that the answer names.
    ///
    /// # Errors
    /// The error of `exchange`; the answer is not valid, or has no video that can be received.
    pub(crate) fn offer(
        sender: Option<[u8; FINGERPRINT]>,
        identity: &Identity,
        local: SocketAddr,
        exchange: impl FnOnce(String) -> Result<String, WebrtcError>,
    ) -> Result<WebrtcPeer, WebrtcError> {
        let codings = [Coding::H264, Coding::Vp8];
        let now = Instant::now();
        let mut rtc = new_rtc(&codings, false, identity, local, now)?;
        let mut changes = rtc.sdp_api();
        let mid = changes.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        let (offer, pending) = changes.apply().ok_or_else(|| description("the offer is empty"))?;
        let answer = exchange(offer.to_sdp_string())?;
        let answer = SdpAnswer::from_sdp_string(&answer).map_err(description)?;
        rtc.sdp_api().accept_answer(pending, answer)?;
        if let Some(sender) = sender {
            pin(&mut rtc, sender);
        }
        let (pt, coding) = payload_type(&rtc, mid, &codings).ok_or_else(|| {
            description("the answer has no video that can be received; supported: h264, vp8")
        })?;
        Ok(WebrtcPeer { rtc, local, mid, pt, coding, deadline: now })
    }

    /// Returns the codec of the video.
    pub(crate) fn coding(&self) -> Coding {
        self.coding
    }

    /// Returns the time at which [`drive`](WebrtcPeer::drive) has to be called if nothing else happens.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns false once the session is closed and has sent its last datagram.
    pub(crate) fn is_alive(&self) -> bool {
        self.rtc.is_alive()
    }

    /// Passes on a datagram. Returns false if it belongs to another session, or to none.
    ///
    /// # Errors
    /// The session failed.
    pub(crate) fn recv(&mut self, arrival: &Datagram<'_>, now: Instant) -> Result<bool, WebrtcError> {
        let received = Receive::new(Protocol::Udp, arrival.source, self.local, arrival.bytes);
        // Anyone can send bytes that belong to none of the protocols.
        let Ok(received) = received else { return Ok(false) };
        // A datagram with a forged source address must not end a session.
        let is_sound =
            arrival.bytes.first().is_some_and(|first| is_other_protocol(*first)) || are_whole(arrival.bytes);
        if !is_sound {
            return Ok(false);
        }
        let input = Input::Receive(now, received);
        guarded(|| {
            let is_own = self.rtc.accepts(&input);
            if is_own {
                self.rtc.handle_input(input)?;
            }
            Ok(is_own)
        })
    }

    /// Queues an RTP packet, which [`drive`](WebrtcPeer::drive) sends.
    pub(crate) fn write(&mut self, seq: u64, time: u32, marker: bool, payload: Arc<[u8]>, now: Instant) {
        let write = RtpWrite::new(self.pt, seq.into(), time, now, payload).marker(marker).nackable(true);
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(self.mid, None) {
            stream.write_rtp(write);
        }
    }

    /// Asks the sender for a keyframe.
    pub(crate) fn request_keyframe(&mut self) {
        if let Some(stream) = self.rtc.direct_api().stream_rx_by_mid(self.mid, None) {
            stream.request_keyframe(KeyframeRequestKind::Pli);
        }
    }

    /// Begins the end of the session: the other end is told by RTCP BYE and by DTLS.
    pub(crate) fn close(&mut self) {
        let closed = guarded(|| self.rtc.close().map_err(WebrtcError::from));
        if closed.is_err() {
            self.rtc.disconnect();
        }
    }

    /// Lets the session work up to `now`, sends its datagrams, and calls `take` for each event.
    ///
    /// # Errors
    /// The session failed.
    pub(crate) fn drive(
        &mut self,
        now: Instant,
        socket: &MediaSocket,
        mut take: impl FnMut(PeerEvent),
    ) -> Result<(), WebrtcError> {
        guarded(|| Ok(self.rtc.handle_input(Input::Timeout(now))?))?;
        loop {
            let output = guarded(|| {
                self.rtc.poll_output().map_err(|error| match error {
                    // The only use of this error while a session runs.
                    RtcError::RemoteSdp(_) => WebrtcError::ForeignCertificate,
                    error => error.into(),
                })
            });
            match output? {
                Output::Timeout(at) => {
                    self.deadline = at;
                    return Ok(());
                }
                Output::Transmit(transmit) => socket.send(transmit.destination, &transmit.contents),
                Output::Event(Event::Connected) => take(PeerEvent::Connected),
                Output::Event(Event::Closed) => take(PeerEvent::Closed),
                Output::Event(Event::KeyframeRequest(_)) => take(PeerEvent::KeyframeRequest),
                Output::Event(Event::MediaEgressStats(stats)) => take(PeerEvent::Missed(stats.nacks)),
                Output::Event(Event::RtpPacket(packet)) => {
                    // Empty packets are padding.
                    if packet.header.payload_type == self.pt && !packet.payload.is_empty() {
                        let (seq, time) = (*packet.seq_no, packet.time.numer());
                        let (marker, payload) = (packet.header.marker, packet.payload);
                        take(PeerEvent::Packet { seq, time, marker, payload });
                    }
                }
                Output::Event(_) => {}
            }
        }
    }
}

/// Returns the first payload type of the video that both ends know, and its codec. H.264 has packetisation mode 1.
fn payload_type(rtc: &Rtc, mid: Mid, codings: &[Coding]) -> Option<(Pt, Coding)> {
    let known = rtc.codec_config().params();
    let remote = rtc.media(mid)?.remote_pts();
    remote.iter().find_map(|pt| {
        let spec = known.iter().find(|params| params.pt() == *pt)?.spec();
        let coding = coding_of(spec.codec).filter(|coding| codings.contains(coding))?;
        let is_usable = coding != Coding::H264 || spec.format.packetization_mode == Some(1);
        is_usable.then_some((*pt, coding))
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread::sleep;

    use super::*;
    use crate::media_socket::LARGEST;

    /// Returns whether each end of a [`session`] was connected.
    fn connected(identities: [&Identity; 2], pinned: [Option<[u8; FINGERPRINT]>; 2]) -> [bool; 2] {
        session(identities, pinned).1
    }

    /// Runs a session on the loopback interface. The offer and the answer reach the other end unchanged; the ends accept only
    /// certificates with these SHA-256. Returns both ends, the viewer first, whether each was connected within two seconds, and the
    /// error that has ended the session.
    fn session(
        [viewer, sender]: [&Identity; 2],
        [pinned_sender, pinned_viewer]: [Option<[u8; FINGERPRINT]>; 2],
    ) -> ([(WebrtcPeer, MediaSocket); 2], [bool; 2], Option<WebrtcError>) {
        let sockets = [(); 2].map(|()| MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
        let mut accepted = None;
        let local = sockets[0].local_addr().unwrap();
        let viewer = WebrtcPeer::offer(pinned_sender, viewer, local, |offer| {
            let local = sockets[1].local_addr()?;
            let (peer, answer) = WebrtcPeer::accept(&offer, pinned_viewer, Coding::H264, sender, local)?;
            accepted = Some(peer);
            Ok(answer)
        });
        let [of_viewer, of_sender] = sockets;
        let mut ends = [(viewer.unwrap(), of_viewer), (accepted.unwrap(), of_sender)];
        let mut connected = [false; 2];
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && connected != [true; 2] {
            for (index, (peer, socket)) in ends.iter_mut().enumerate() {
                let mut buffer = [0; LARGEST];
                while let Some(datagram) = socket.recv(&mut buffer).unwrap() {
                    if let Err(error) = peer.recv(&datagram, Instant::now()) {
                        return (ends, connected, Some(error));
                    }
                }
                let driven = peer.drive(Instant::now(), socket, |event| {
                    connected[index] |= matches!(event, PeerEvent::Connected);
                });
                if let Err(error) = driven {
                    return (ends, connected, Some(error));
                }
            }
            sleep(Duration::from_millis(1));
        }
        (ends, connected, None)
    }

    #[test]
    fn a_session_needs_the_certificates_that_both_ends_expect() {
        let [viewer, sender, other] = [(); 3].map(|()| Identity::new().unwrap());
        let ends = [&viewer, &sender];
        let [of_viewer, of_sender] = ends.map(|identity| Some(identity.fingerprint));
        assert_eq!(connected(ends, [None, None]), [true; 2]);
        assert_eq!(connected(ends, [of_sender, of_viewer]), [true; 2]);
        // The end that expects another certificate is never connected, and says why.
        let (_, _, error) = session(ends, [Some(other.fingerprint), None]);
        assert!(matches!(error, Some(WebrtcError::ForeignCertificate)), "{error:?}");
        assert!(!connected(ends, [Some(other.fingerprint), None])[0]);
        assert!(!connected(ends, [None, Some(other.fingerprint)])[1]);
    }

    #[test]
    fn forged_datagrams_end_no_session() {
        let [viewer, sender] = [(); 2].map(|()| Identity::new().unwrap());
        // A record of DTLS 1.2 whose length is 10, and far more bytes: OpenSSL leaves them in its buffer, and str0m panics over 30,000.
        let head = [23, 254, 253, 0, 1, 0, 0, 0, 0, 1, 0, 0, 10];
        let mut forged = vec![[&head[..], &[0xaa; 800]].concat()];
        // Whole records of each type, without encryption and with a wrong code of authentication; a fatal alert, and its warning.
        for (kind, epoch) in (20..=23).flat_map(|kind| [(kind, 0), (kind, 1), (kind, 2)]) {
            let head = [kind, 254, 253, 0, epoch, 0, 0, 0, 0, 9, 9, 0];
            forged.push([&head[..], &[48], &[kind; 48]].concat());
            forged.push([&head[..], &[2, 2, 40]].concat());
            forged.push([&head[..], &[2, 1, 0]].concat());
            forged.push([&head[..], &[0]].concat());
        }
        // STUN without integrity, RTP and RTCP.
        for first in [&[0, 1][..], &[1, 1], &[128, 96], &[128, 200], &[144, 205], &[129, 203]] {
            forged.extend([20, 40, 200].map(|size| [first, &vec![0; size - first.len()]].concat()));
        }
        for attacked in [0, 1] {
            let (mut ends, connected, _) = session([&viewer, &sender], [None, None]);
            assert_eq!(connected, [true; 2]);
            let source = ends[1 - attacked].1.local_addr().unwrap();
            let (peer, socket) = &mut ends[attacked];
            for bytes in (0..100).flat_map(|_| &forged) {
                let now = Instant::now();
                let taken = peer.recv(&Datagram { source, bytes, arrived_ns: 0 }, now);
                taken.unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
                peer.drive(now, socket, |event| assert!(!matches!(event, PeerEvent::Closed), "{bytes:?}"))
                    .unwrap();
            }
            assert!(peer.is_alive());
        }
    }
}
