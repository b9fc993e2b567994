// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a WebRTC session: str0m's `Rtc`, with our clock and socket.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use framepath_os::time::{now_ns, thread_cpu_ns};
use str0m::bwe::{Bitrate, BweKind};
use str0m::channel::ChannelId;
use str0m::media::{Direction, KeyframeRequestKind, MediaKind, MediaTime, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{ExtensionValues, RtpWrite};
use str0m::{Event, Input, Output, PacerReason, Reason, Rtc, RtcError};

use crate::bandwidth::NetworkSample;
use crate::datagram_batch::DatagramBatch;
use crate::dtls_record::{are_whole, is_other_protocol};
use crate::error::WebrtcError;
use crate::frame_number::FrameNumber;
use crate::ledger_channel::{LedgerStream, add_ledger_attribute, exchanges_ledger};
use crate::media_socket::{Datagram, MediaSocket};
use crate::pairing::FINGERPRINT;
use crate::payload::{CODINGS, SUPPORTED};
use crate::rtp_time::RtpTimes;
use crate::sent_frame::SentPacket;

mod dtls_retransmission;
mod event;
mod ice_restart;
mod identity;
mod ledger_channels;
mod missing_chunk;
mod payload_type;
mod remote_address;
mod rtc_settings;

pub(crate) use event::PeerEvent;
pub(crate) use identity::Identity;
use payload_type::payload_type;
use remote_address::RemoteAddress;
pub(crate) use rtc_settings::read_offer;
use rtc_settings::{description, new_rtc, pin, read_answer};

/// Number of sent packets that are kept to be sent again, and their maximum age.
const RESENDS: (usize, Duration) = (4096, Duration::from_secs(2));
/// Maximum part of the bytes of a second that are sent again. Otherwise a viewer could have the same packets sent thousands of times.
const MOST_RESENT: f32 = 0.75;
/// Maximum number of packets that wait to be sent again. One datagram can ask for thousands, and str0m looks at all of them for each
/// packet that leaves.
const MOST_ASKED: usize = 1024;
/// Maximum number of data channels of the other end, besides those for the ledger. str0m looks at all of them for each datagram.
const MOST_CHANNELS: usize = 16;

/// Least time between two packets by str0m's clock. A session is ahead of the present by this time for each packet of a burst.
const PACKET_STEP: Duration = Duration::from_micros(1);
/// Shortest time to the next call of [`WebrtcPeer::drive`] that changes nothing but the time.
const LEAST_WAIT: Duration = Duration::from_micros(250);
/// Shortest time to the next padding packet, and to the next tick for requests of an end that misses no packet. str0m pads
/// an idle stream to 50 kbit/s, 200 packets a second, which wake both ends. A packet now and then keeps the network's path and
/// its estimate alive, too.
const LEAST_IDLE_WAIT: Duration = Duration::from_millis(200);
/// Time between two requests of str0m for missing packets (its `NACK_MIN_INTERVAL`).
const NACK_INTERVAL: Duration = Duration::from_millis(33);
/// Longest time by which a session's time may be ahead of the present when missing packets are requested early. So there are
/// at most eight early requests in a row, and then one per tick.
const MOST_AHEAD: Duration = Duration::from_millis(240);
/// Maximum number of such steps at once. A search for more bandwidth pads with some dozens of packets; by the other end's reports, str0m
/// may hold the network for so fast that padding never ends.
const MOST_STEPS: u32 = 256;
/// Longest time for which a session that is to be closed waits for its data channels.
const CLOSING: Duration = Duration::from_secs(1);
/// Calls str0m. On some bytes that no honest peer sends, such as DTLS records in the middle of others, it panics; then this session
/// has failed, and the others go on.
fn guarded<T>(call: impl FnOnce() -> Result<T, WebrtcError>) -> Result<T, WebrtcError> {
    // The session is dropped after an error, so that nobody sees the state that the panic has left.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(WebrtcError::Panicked))
}

/// Returns true if the data channels have failed, as those that are still being opened do at the end.
fn is_of_channels<T>(result: &Result<T, WebrtcError>) -> bool {
    matches!(result, Err(WebrtcError::Session(RtcError::Sctp(_))))
}

/// One end of a session with a single video.
pub(crate) struct WebrtcPeer {
    rtc: Rtc,
    /// Description of the other end, with its present ICE part.
    description: Arc<str>,
    /// Address of the socket, as the other end knows it.
    local: SocketAddr,
    remote: RemoteAddress,
    mid: Mid,
    pt: Pt,
    coding: Coding,
    /// Data channels for the ledger.
    ledger: Vec<(ChannelId, LedgerStream)>,
    /// Time at which the session wants to be driven without an input.
    deadline: Instant,
    batch: DatagramBatch,
    /// RTP packets of the video in the batch.
    batched: Vec<SentPacket>,
    /// True at the sender, which measures the encryption.
    is_sender: bool,
    /// True if this end estimates the bandwidth for its video.
    pub(crate) follows_network: bool,
    /// Times of the packets that have arrived.
    times: RtpTimes,
    /// Time up to which the session has worked. It is ahead of the present after [`WebrtcPeer::request_missing`].
    worked_to: Instant,
    /// Number of RTP packets that were queued and have not left.
    unsent: usize,
    /// Number of data channels that the other end has opened, besides those for the ledger.
    foreign_channels: usize,
    /// True if the viewer reports arrivals.
    has_feedback: bool,
    /// Time at which a session that cannot be closed in order is dropped; `None` unless it is to be closed.
    closes_until: Option<Instant>,
    /// True once the other end has left.
    has_left: bool,
}

impl WebrtcPeer {
    /// Accepts a viewer's offer for a video of this codec. The viewer reaches the socket at `local`, and has the certificate with
    /// the SHA-256 `viewer`; without it, the one that the offer names. `highest_rate` is the highest bit rate of a video that follows
    /// the network. Returns the session, and the answer's text.
    ///
    /// # Errors
    /// The offer is not valid, or the viewer cannot receive the codec.
    pub(crate) fn accept(
        offer: &str,
        viewer: Option<[u8; FINGERPRINT]>,
        (coding, highest_rate): (Coding, Option<u64>),
        identity: &Identity,
        local: SocketAddr,
    ) -> Result<(WebrtcPeer, String), WebrtcError> {
        let (text, has_ledger) = (offer, exchanges_ledger(offer));
        let offer = read_offer(offer)?;
        let now = Instant::now();
        let mut rtc = new_rtc(&[coding], true, identity, local, highest_rate, now)?;
        let answer = rtc.sdp_api().accept_offer(offer)?;
        if let Some(viewer) = viewer {
            pin(&mut rtc, viewer);
        }
        let mut answer = answer.to_sdp_string();
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
            .ok_or_else(|| description(format!("the viewer cannot receive {coding}")))?;
        let mut peer = WebrtcPeer::new(rtc, text, local, (mid, pt, coding), now);
        peer.is_sender = true;
        peer.follows_network = highest_rate.is_some();
        peer.keep_no_resends();
        if has_ledger {
            peer.start_ledger(false);
            add_ledger_attribute(&mut answer);
        }
        Ok((peer, answer))
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
        let now = Instant::now();
        let mut rtc = new_rtc(&CODINGS, false, identity, local, None, now)?;
        let mut changes = rtc.sdp_api();
        let mid = changes.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        let (offer, pending) = changes.apply().ok_or_else(|| description("the offer is empty"))?;
        let mut offer = offer.to_sdp_string();
        add_ledger_attribute(&mut offer);
        let answer = exchange(offer)?;
        let has_ledger = exchanges_ledger(&answer);
        rtc.sdp_api().accept_answer(pending, read_answer(&answer)?)?;
        if let Some(sender) = sender {
            pin(&mut rtc, sender);
        }
        let (pt, coding) = payload_type(&rtc, mid, &CODINGS).ok_or_else(|| {
            description(format!("the answer has no video that can be received; supported: {SUPPORTED}"))
        })?;
        let mut peer = WebrtcPeer::new(rtc, &answer, local, (mid, pt, coding), now);
        if has_ledger {
            peer.start_ledger(true);
        }
        Ok(peer)
    }

    /// Makes the session of a sender that publishes to a server: calls `exchange` with the offer's text, and accepts the answer's text
    /// that it returns. `highest_rate` is the highest bit rate of a video that follows the network.
    ///
    /// # Errors
    /// The error of `exchange`; the answer is not valid, or the server does not take the codec.
    pub(crate) fn publish(
        (coding, highest_rate): (Coding, Option<u64>),
        identity: &Identity,
        local: SocketAddr,
        exchange: impl FnOnce(String) -> Result<String, WebrtcError>,
    ) -> Result<WebrtcPeer, WebrtcError> {
        let now = Instant::now();
        let mut rtc = new_rtc(&[coding], false, identity, local, highest_rate, now)?;
        let mut changes = rtc.sdp_api();
        let mid = changes.add_media(MediaKind::Video, Direction::SendOnly, None, None, None);
        let (offer, pending) = changes.apply().ok_or_else(|| description("the offer is empty"))?;
        let answer = exchange(offer.to_sdp_string())?;
        rtc.sdp_api().accept_answer(pending, read_answer(&answer)?)?;
        let takes = rtc.media(mid).is_some_and(|media| media.direction().is_sending() && !media.disabled());
        let (pt, _) = payload_type(&rtc, mid, &[coding])
            .filter(|_| takes)
            .ok_or_else(|| description(format!("the server does not take {coding}")))?;
        let mut peer = WebrtcPeer::new(rtc, &answer, local, (mid, pt, coding), now);
        peer.is_sender = true;
        peer.follows_network = highest_rate.is_some();
        peer.keep_no_resends();
        Ok(peer)
    }

    /// Makes either end's session, without data channels, from one whose descriptions are exchanged; that of the other end is
    /// `description`.
    fn new(
        rtc: Rtc,
        description: &str,
        local: SocketAddr,
        (mid, pt, coding): (Mid, Pt, Coding),
        now: Instant,
    ) -> WebrtcPeer {
        WebrtcPeer {
            rtc,
            description: description.into(),
            local,
            remote: RemoteAddress::default(),
            mid,
            pt,
            coding,
            ledger: Vec::new(),
            deadline: now,
            batch: DatagramBatch::default(),
            batched: Vec::new(),
            is_sender: false,
            follows_network: false,
            times: RtpTimes::default(),
            worked_to: now,
            unsent: 0,
            foreign_channels: 0,
            has_feedback: false,
            closes_until: None,
            has_left: false,
        }
    }

    /// Forgets the sent packets, so that those that were asked for are not sent again, and keeps those of from now on.
    fn keep_no_resends(&mut self) {
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(self.mid, None) {
            stream.set_rtx_cache(RESENDS.0, RESENDS.1, Some(MOST_RESENT));
        }
    }

    /// Lets the session work up to [`WebrtcPeer::worked_to`].
    ///
    /// # Errors
    /// The session failed.
    fn work(&mut self) -> Result<(), WebrtcError> {
        guarded(|| Ok(self.rtc.handle_input(Input::Timeout(self.worked_to))?))?;
        let mut direct = self.rtc.direct_api();
        let stream = direct.stream_tx_by_mid(self.mid, None);
        let waiting = stream.and_then(|stream| Some(stream.queue_info()?.packet_count()));
        if waiting.is_some_and(|waiting| waiting > self.unsent + MOST_ASKED) {
            log::debug!("the viewer asks for too many packets again: {waiting:?}");
            self.keep_no_resends();
        }
        Ok(())
    }

    /// Returns the codec of the video.
    pub(crate) fn coding(&self) -> Coding {
        self.coding
    }

    /// Returns the time at which [`drive`](WebrtcPeer::drive) has to be called if nothing else happens.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// As [`deadline`](WebrtcPeer::deadline), for an end that misses no packet: str0m's tick for requests may be late.
    pub(crate) fn deadline_without_losses(&self, now: Instant) -> Instant {
        let is_tick = self.rtc.last_timeout_reason() == Reason::Nack && self.closes_until.is_none();
        if is_tick { self.deadline.max(now + LEAST_IDLE_WAIT) } else { self.deadline }
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
        if !is_sound || !self.remote.may_send(arrival.source) {
            return Ok(false);
        }
        let input = Input::Receive(now, received);
        guarded(|| {
            let is_own = self.rtc.accepts(&input);
            if is_own {
                self.remote.heard(arrival.source);
                self.rtc.handle_input(input)?;
            }
            Ok(is_own)
        })
    }

    /// Queues an RTP packet, which [`drive`](WebrtcPeer::drive) sends. The first packet of a frame has the frame's number.
    pub(crate) fn write(
        &mut self,
        seq: u64,
        (number, time): (Option<u64>, u32),
        marker: bool,
        payload: Arc<[u8]>,
        now: Instant,
    ) {
        // Browsers would otherwise keep frames to smooth their times.
        let at_once = Some(MediaTime::ZERO);
        let mut values = ExtensionValues {
            play_delay_min: at_once,
            play_delay_max: at_once,
            ..ExtensionValues::default()
        };
        if let Some(number) = number {
            values.user_values.set(FrameNumber(number));
        }
        // str0m pads the stream with packets that it keeps to send them again, and with an empty one it would never be done.
        let is_kept = !payload.is_empty();
        let write = RtpWrite::new(self.pt, seq.into(), time, now, payload).marker(marker).nackable(is_kept);
        let write = write.ext_vals(values);
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(self.mid, None) {
            stream.write_rtp(write);
            self.unsent += 1;
        }
    }

    /// Asks the sender for a keyframe.
    pub(crate) fn request_keyframe(&mut self) {
        if let Some(stream) = self.rtc.direct_api().stream_rx_by_mid(self.mid, None) {
            stream.request_keyframe(KeyframeRequestKind::Pli);
        }
    }

    /// Asks the sender for the packets that are missing, without waiting for str0m's next tick. Does nothing if str0m was asked
    /// so often that its time would be far ahead; then the next tick asks.
    ///
    /// str0m has no call for it. A tick is due [`NACK_INTERVAL`] after the last one, so the session works up to that
    /// time now. Times of arrival are the real ones, so the sender's estimate of the bandwidth is not affected. What is due
    /// meanwhile, such as reports, happens early.
    ///
    /// # Errors
    /// The session failed.
    pub(crate) fn request_missing(&mut self, now: Instant) -> Result<(), WebrtcError> {
        let ahead = self.worked_to.saturating_duration_since(now);
        if ahead > MOST_AHEAD {
            return Ok(());
        }
        self.worked_to = self.worked_to.max(now) + NACK_INTERVAL;
        self.work()
    }

    /// Begins the estimation of the bandwidth anew, for a network that carries about this many bits per second.
    ///
    /// str0m first tries three and six times the rate that it begins with. Six times the bandwidth would fill the network's queue.
    pub(crate) fn restart_estimation(&mut self, bits: u64) {
        self.rtc.bwe().reset(Bitrate::bps(bits / 3));
    }

    /// Begins the end of the session: the other end is told by RTCP BYE and by DTLS, once the data channels are open.
    pub(crate) fn close(&mut self) {
        let now = Instant::now();
        self.closes_until.get_or_insert(now + CLOSING);
        self.try_close(now);
    }

    /// Closes the session if it is to be closed. str0m cannot do it while the data channels are being opened.
    fn try_close(&mut self, now: Instant) {
        let Some(until) = self.closes_until else { return };
        let closed = guarded(|| self.rtc.close().map_err(WebrtcError::from));
        if is_of_channels(&closed) && now < until {
            return;
        }
        self.closes_until = None;
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
        self.worked_to = self.worked_to.max(now);
        self.remote.work(now);
        self.try_close(now);
        self.work()?;
        let (mut is_idle, mut steps) = (true, 0);
        loop {
            // str0m encrypts a packet when it gives it out.
            let (begin_ns, begin_cpu_ns) = if self.is_sender { (now_ns(), thread_cpu_ns()) } else { (0, 0) };
            let output = guarded(|| {
                self.rtc.poll_output().map_err(|error| match error {
                    // The only use of this error while a session runs.
                    RtcError::RemoteSdp(_) => WebrtcError::ForeignCertificate,
                    error => error.into(),
                })
            });
            // The other end has left while the data channels were being opened, and str0m cannot answer; or it has left, and
            // takes no message of the data channels any more.
            if is_of_channels(&output) || self.has_left && output.is_err() {
                self.rtc.disconnect();
                take(PeerEvent::Closed);
                return Ok(());
            }
            match output? {
                Output::Timeout(at) => {
                    // str0m's pacer lets one packet pass, and the next one a microsecond later.
                    let is_next =
                        at <= self.worked_to + PACKET_STEP && !std::mem::replace(&mut is_idle, true);
                    if is_next && steps < MOST_STEPS {
                        steps += 1;
                        self.worked_to = self.worked_to.max(at);
                        self.work()?;
                        continue;
                    }
                    // Padding is due only if nothing else is to be sent, and a packet to be sent ends the wait.
                    let is_padding = self.rtc.last_timeout_reason() == Reason::Pacer(PacerReason::Padding);
                    self.deadline = at.max(now + if is_padding { LEAST_IDLE_WAIT } else { LEAST_WAIT });
                    if self.closes_until.is_some() {
                        self.deadline = self.deadline.min(now + CLOSING / 100);
                    }
                    self.batch.flush(socket);
                    self.batched.drain(..).for_each(|packet| take(PeerEvent::Sent(packet)));
                    return Ok(());
                }
                Output::Transmit(transmit) => {
                    is_idle = false;
                    let is_to_other_end = self.remote.may_receive(transmit.destination, &transmit.contents);
                    if let Some(seq) = self.seq_of(&transmit.contents).filter(|_| self.is_sender) {
                        let (handed_ns, cpu_ns) = (now_ns(), thread_cpu_ns());
                        let (encrypt_ns, encrypt_cpu_ns) = (handed_ns - begin_ns, cpu_ns - begin_cpu_ns);
                        self.batched.push(SentPacket { seq, handed_ns, encrypt_ns, encrypt_cpu_ns });
                        self.unsent = self.unsent.saturating_sub(1);
                    }
                    if is_to_other_end {
                        self.batch.push(socket, transmit.destination, transmit.contents.into());
                    }
                }
                Output::Event(Event::Connected) => {
                    self.remote.settle();
                    take(PeerEvent::Connected);
                }
                Output::Event(Event::Closed) => {
                    self.has_left = true;
                    take(PeerEvent::Closed);
                }
                Output::Event(Event::KeyframeRequest(_)) => take(PeerEvent::KeyframeRequest),
                Output::Event(Event::ChannelOpen(id, label)) => {
                    // A browser opens the channels by their labels.
                    let by_label = LedgerStream::ALL.into_iter().find(|stream| stream.label() == label);
                    let known = self.ledger.iter().find(|(known, _)| *known == id).map(|(_, stream)| *stream);
                    let is_new = |stream: &LedgerStream| self.ledger.iter().all(|(_, known)| known != stream);
                    if let Some(stream) = by_label.filter(is_new) {
                        self.ledger.push((id, stream));
                    }
                    if let Some(stream) = known.or(by_label) {
                        take(PeerEvent::LedgerOpen(stream));
                    } else {
                        self.foreign_channels += 1;
                        if self.foreign_channels > MOST_CHANNELS {
                            return Err(WebrtcError::Channels);
                        }
                    }
                }
                Output::Event(Event::ChannelData(message)) => {
                    if self.ledger.iter().any(|(id, _)| *id == message.id) {
                        take(PeerEvent::LedgerMessage(message.data));
                    }
                }
                Output::Event(Event::MediaEgressStats(stats)) => take(PeerEvent::Missed(stats.nacks)),
                Output::Event(Event::RtpPacket(packet)) => {
                    // Empty packets are padding.
                    if packet.header.payload_type == self.pt && !packet.payload.is_empty() {
                        let (seq, time) = (*packet.seq_no, self.times.extend(packet.header.timestamp));
                        let (marker, payload) = (packet.header.marker, packet.payload);
                        let number = packet.header.ext_vals.user_values.get::<FrameNumber>();
                        let number = number.map(|FrameNumber(number)| *number);
                        take(PeerEvent::Packet { seq, time, marker, number, payload });
                    }
                }
                // Its estimate is a mean of three seconds, so that of the statistics counts.
                Output::Event(Event::EgressBitrateEstimate(BweKind::Twcc { can_probe, .. })) => {
                    self.has_feedback = can_probe;
                    if !can_probe {
                        take(PeerEvent::Network(None));
                    }
                }
                Output::Event(Event::PeerStats(stats)) => {
                    if let Some(estimate) = stats.bwe_tx.filter(|_| self.has_feedback) {
                        let loss = stats.egress_loss_fraction.unwrap_or(0.0);
                        let (round_trip, sent_bytes) = (stats.rtt, stats.peer_bytes_tx);
                        let sample =
                            NetworkSample { estimate: estimate.as_u64(), loss, round_trip, sent_bytes };
                        take(PeerEvent::Network(Some(sample)));
                    }
                }
                Output::Event(_) => {}
            }
        }
    }

    /// Returns the sequence number of a datagram to be sent if it is an RTP packet of the video. Packets that are sent again
    /// have another payload type. The header is not encrypted.
    fn seq_of(&self, datagram: &[u8]) -> Option<u16> {
        let [first, second, high, low, ..] = *datagram else { return None };
        let is_video = first >> 6 == 2 && second & 0x7f == *self.pt;
        is_video.then(|| u16::from_be_bytes([high, low]))
    }
}

#[cfg(test)]
mod losing_dtls;
#[cfg(test)]
mod slow_cipher;
#[cfg(test)]
mod tests;
