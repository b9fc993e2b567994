// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sender of RTP to one address, such as that of a media server: without a session, encrypted by a key that both ends know, or plain.
//! Nobody says whether the packets arrive; what a receiver may ask for is a keyframe.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use framepath_model::access_unit::Coding;
use framepath_model::session_description::SessionDescription;
use framepath_os::process::priority::HighPriority;
use framepath_os::time::{now_ns, thread_cpu_ns};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::datagram_batch::DatagramBatch;
use crate::error::WebrtcError;
use crate::lock::lock;
use crate::media_socket::{MediaSocket, ReceiveBuffer};
use crate::pacer::Pacer;
use crate::packetizer::{PacketizedFrame, Packetizer};
use crate::random::{random_bytes, random_id};
use crate::rtcp::{SenderReport, asks_for_keyframe, goodbye};
use crate::rtp_header::{HEADER, RtpHeader};
use crate::sent_frame::SentFrame;
use crate::srtp::{SrtpKey, SrtpSender};
use crate::wake_event::{WakeEvent, wait};

/// Payload type of the video, the first of the dynamic ones.
const PAYLOAD_TYPE: u8 = 96;
/// Pace of the packets, bits per second: that of viewers whose bandwidth is not estimated.
const PACE: f64 = 256_000_000.0;
/// Size of the queue, bytes, from which on the caller waits.
const MOST_QUEUED: usize = 4 << 20;
/// Time between two looks at a full queue.
const LOOK: Duration = Duration::from_millis(1);
/// Time between two reports.
const REPORT: Duration = Duration::from_secs(1);
/// Shortest time between two requests to the encoder for a keyframe.
const KEYFRAME_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time for the frames that wait at the end of the stream.
const END: Duration = Duration::from_secs(4);
/// Time from the last packet to the goodbye. Receivers such as libavformat look for reports first, and end the stream with packets that they
/// have not read.
const BEFORE_GOODBYE: Duration = Duration::from_millis(500);
/// Maximum number of datagrams that are received before frames are sent again.
const MOST_RECEIVED: usize = 256;
/// Maximum number of departures that are kept for the caller.
const MOST_SENT: usize = 4096;

/// Settings of a sender of RTP.
#[derive(Clone, Debug)]
pub struct RtpOptions {
    /// Address of the receiver. Reports go to the port behind it, which is no number above 65535.
    pub to: SocketAddr,
    /// Codec of the frames.
    pub coding: Coding,
    /// Key of SRTP; `None` sends plain RTP, which everyone on the way can read and change.
    pub key: Option<SrtpKey>,
}

/// Packets that the kernel has refused to send, such as those to an address without a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedPackets {
    /// Number of packets.
    pub packets: u64,
    /// True if none has left.
    pub all: bool,
    /// Last error of the kernel.
    pub error: Errno,
}

/// Command to the thread.
enum RtpCommand {
    Frame(PacketizedFrame, u64),
    End,
}

/// Function that asks the encoder for a keyframe.
type OnKeyframeRequest = Box<dyn Fn() + Send>;

/// State that the thread shares with the caller.
struct RtpShared {
    wake: WakeEvent,
    /// Frames that have left since the caller took them.
    sent: Mutex<VecDeque<SentFrame>>,
    /// Bytes that were sent by the caller and have not left.
    queued_bytes: AtomicUsize,
    /// True once the thread has ended.
    has_ended: AtomicBool,
    /// Number of packets that have left, and what the kernel has refused.
    left: AtomicU64,
    refused: Mutex<Option<RefusedPackets>>,
    on_keyframe_request: Mutex<Option<OnKeyframeRequest>>,
}

/// Sender of RTP with one stream. Its thread paces the packets.
pub struct RtpSender {
    packetizer: Packetizer,
    commands: mpsc::Sender<RtpCommand>,
    shared: Arc<RtpShared>,
    description: String,
    thread: Option<JoinHandle<()>>,
}

impl RtpSender {
    /// Starts the sender.
    ///
    /// # Errors
    /// RTP cannot carry the codec, the port has none behind it, or there is no socket, thread or randomness.
    pub fn new(options: &RtpOptions) -> Result<RtpSender, WebrtcError> {
        let packetizer = Packetizer::new(options.coding)?;
        let RtpOptions { to, key, .. } = options;
        let reports = to.port().checked_add(1).filter(|_| to.port() > 0).ok_or_else(|| {
            WebrtcError::Description(format!("{to}: no port for RTP; reports need the port behind it, too"))
        })?;
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let shared = Arc::new(RtpShared {
            wake: WakeEvent::new()?,
            sent: Mutex::default(),
            queued_bytes: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            left: AtomicU64::new(0),
            refused: Mutex::default(),
            on_keyframe_request: Mutex::default(),
        });
        let random = random_bytes()?;
        let now = Instant::now();
        let (commands, queue) = mpsc::channel();
        let stream = RtpStream {
            shared: shared.clone(),
            socket: MediaSocket::bind((any, 0).into())?,
            received: ReceiveBuffer::new(),
            to: *to,
            reports: (to.ip(), reports).into(),
            srtp: key.as_ref().map(SrtpSender::new).transpose()?,
            ssrc: u32::from_be_bytes([random[0], random[1], random[2], random[3]]),
            // In the lower half, so that nobody has to guess whether the first packets wrap (RFC 3711, 3.3.1).
            seq: u64::from(u16::from_be_bytes([random[4], random[5]]) >> 1),
            name: format!("framepath-{}", random_id()?),
            queue: VecDeque::new(),
            pacer: Pacer::new(now),
            next_burst: now,
            next_report: None,
            next_request: now,
            wants_keyframe: false,
            last_time: (now, 0),
            packets: 0,
            bytes: 0,
            goodbye: None,
            ends: None,
        };
        let thread = thread::Builder::new().name("send".to_owned()).spawn(move || stream.run(&queue));
        let thread = Some(thread.map_err(WebrtcError::io("start a thread"))?);
        Ok(RtpSender { packetizer, commands, shared, description: description(options), thread })
    }

    /// Returns the session description (SDP) for receivers. It has the key.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Sends the frame `bytes` with this number and the RTP timestamp `time`. Returns at once, unless more than 4 MiB wait: then it
    /// waits while `goes_on` returns true. H.264 and HEVC have start codes, and parameter sets in front of each keyframe.
    ///
    /// # Errors
    /// The packetiser rejects the bytes, the wait was canceled, or the thread has ended because of its socket.
    pub fn send(
        &mut self,
        bytes: &[u8],
        (number, time): (u64, u32),
        goes_on: impl Fn() -> bool,
    ) -> Result<(), WebrtcError> {
        let frame = self.packetizer.packetize(bytes, time)?;
        if frame.payloads.is_empty() {
            return Ok(());
        }
        while self.shared.queued_bytes.load(Ordering::Relaxed) > MOST_QUEUED {
            if !goes_on() {
                return Err(WebrtcError::Canceled);
            }
            thread::sleep(LOOK);
        }
        if self.shared.has_ended.load(Ordering::Relaxed) {
            return Err(WebrtcError::Stopped);
        }
        self.shared.queued_bytes.fetch_add(frame.bytes, Ordering::Relaxed);
        self.command(RtpCommand::Frame(frame, number));
        Ok(())
    }

    fn command(&self, command: RtpCommand) {
        // The thread ends only if its socket fails.
        let _ = self.commands.send(command);
        self.shared.wake.set();
    }

    /// Sets the function that is called, on another thread, at most twice a second, when the receiver asks for a keyframe.
    pub fn on_keyframe_request(&self, request: impl Fn() + Send + 'static) {
        *lock(&self.shared.on_keyframe_request) = Some(Box::new(request));
    }

    /// Returns the times of the frames that have left since the last call. At most 4096 are kept.
    pub fn take_sent(&self) -> Vec<SentFrame> {
        lock(&self.shared.sent).drain(..).collect()
    }

    /// Returns what the kernel has refused so far; `None` if nothing.
    pub fn refused(&self) -> Option<RefusedPackets> {
        let all = self.shared.left.load(Ordering::Relaxed) == 0;
        lock(&self.shared.refused).map(|refused| RefusedPackets { all, ..refused })
    }

    /// Sends the frames that wait and, half a second later, the goodbye. Waits for it while `goes_on` returns true, at most four seconds.
    pub fn end(&mut self, goes_on: impl Fn() -> bool) {
        self.command(RtpCommand::End);
        while goes_on() && self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            thread::sleep(LOOK);
        }
    }
}

impl Drop for RtpSender {
    /// Ends the stream at once, without the frames that wait.
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel();
        self.commands = closed;
        self.shared.wake.set();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

/// Returns the session description.
fn description(options: &RtpOptions) -> String {
    let key = options.key.as_ref().map(SrtpKey::to_base64);
    let RtpOptions { to, coding, .. } = *options;
    SessionDescription { to, coding, payload_type: PAYLOAD_TYPE, key: key.as_deref() }.to_string()
}

/// Frame of which not all packets have left.
struct QueuedFrame {
    frame: PacketizedFrame,
    /// Index of the next packet.
    next: usize,
    departure: SentFrame,
}

/// Thread that has the socket.
struct RtpStream {
    shared: Arc<RtpShared>,
    socket: MediaSocket,
    received: ReceiveBuffer,
    to: SocketAddr,
    /// Address for reports.
    reports: SocketAddr,
    srtp: Option<SrtpSender>,
    ssrc: u32,
    /// Number of the next packet; it never wraps.
    seq: u64,
    /// Name of the source in reports.
    name: String,
    queue: VecDeque<QueuedFrame>,
    pacer: Pacer,
    /// Time at which the next packets may leave.
    next_burst: Instant,
    /// Time of the next report; `None` before the first frame.
    next_report: Option<Instant>,
    next_request: Instant,
    /// True if the receiver has asked for a keyframe, and the encoder was not asked.
    wants_keyframe: bool,
    /// RTP timestamp of the last frame, and the time at which it was queued.
    last_time: (Instant, u32),
    /// Numbers of packets and of payload bytes that have left.
    packets: u32,
    bytes: u32,
    /// Time of the goodbye; `None` before the last packet has left.
    goodbye: Option<Instant>,
    /// Time at which the stream ends even if frames wait; `None` before its end.
    ends: Option<Instant>,
}

impl RtpStream {
    fn run(mut self, commands: &mpsc::Receiver<RtpCommand>) {
        let _priority = HighPriority::begin();
        if let Err(error) = self.work(commands) {
            log::error!("send: {error}");
        }
        self.shared.has_ended.store(true, Ordering::Relaxed);
        self.shared.queued_bytes.store(0, Ordering::Relaxed);
    }

    /// Sends until the stream has ended.
    fn work(&mut self, commands: &mpsc::Receiver<RtpCommand>) -> Result<(), WebrtcError> {
        loop {
            self.shared.wake.reset();
            let is_closed = self.take_commands(commands);
            self.take_datagrams();
            let now = Instant::now();
            if now >= self.next_burst {
                self.write_burst(now)?;
            }
            self.report(now)?;
            self.request_keyframe(now);
            if self.ends.is_some() && self.queue.is_empty() {
                self.goodbye.get_or_insert(now + BEFORE_GOODBYE);
            }
            if is_closed || [self.goodbye, self.ends].into_iter().flatten().any(|at| now >= at) {
                let goodbye = [self.report_of(now), goodbye(self.ssrc)].concat();
                return self.send_report(goodbye);
            }
            let burst = (!self.queue.is_empty()).then_some(self.next_burst);
            let request = self.wants_keyframe.then_some(self.next_request);
            let times = [burst, request, self.next_report, self.goodbye, self.ends];
            let deadline = times.into_iter().flatten().min();
            wait(&self.shared.wake, &self.socket, PollFlags::IN, deadline)?;
        }
    }

    /// Takes all commands that wait. Returns true if the caller has dropped the sender.
    fn take_commands(&mut self, commands: &mpsc::Receiver<RtpCommand>) -> bool {
        loop {
            match commands.try_recv() {
                Ok(RtpCommand::Frame(frame, number)) => self.push(frame, number),
                Ok(RtpCommand::End) => self.ends = Some(Instant::now() + END),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn push(&mut self, frame: PacketizedFrame, number: u64) {
        let now = Instant::now();
        self.last_time = (now, frame.time);
        self.next_report.get_or_insert(now);
        let departure = SentFrame {
            number,
            time: frame.time,
            packetized_ns: frame.packetized_ns,
            bytes: frame.bytes,
            packets: frame.payloads.len(),
            ..SentFrame::default()
        };
        self.queue.push_back(QueuedFrame { frame, next: 0, departure });
    }

    /// Looks for requests. Anyone can forge those of a receiver of plain RTP; they cost a keyframe, twice a second at most.
    fn take_datagrams(&mut self) {
        // Those that were received with one system call are taken together, because the socket does not announce them again.
        let mut number = 0;
        while number < MOST_RECEIVED || !self.received.is_empty() {
            number += 1;
            match self.socket.recv(&mut self.received) {
                Ok(Some(datagram)) => {
                    let is_from_there = datagram.source.ip() == self.to.ip().to_canonical();
                    self.wants_keyframe |= is_from_there && asks_for_keyframe(datagram.bytes, self.ssrc);
                }
                Ok(None) => return,
                Err(error) => {
                    log::warn!("send: {error}");
                    return;
                }
            }
        }
    }

    /// Sends the packets that may leave now.
    fn write_burst(&mut self, now: Instant) -> Result<(), WebrtcError> {
        let mut allowance = self.pacer.refill(now, PACE);
        while let Some(queued) = self.queue.front_mut() {
            if allowance == 0 {
                self.next_burst = self.pacer.next_burst(PACE);
                return Ok(());
            }
            let (began_ns, began_cpu_ns) = (now_ns(), thread_cpu_ns());
            let mut batch = DatagramBatch::default();
            let (last, time) = (queued.frame.payloads.len() - 1, queued.frame.time);
            let mut datagrams = Vec::new();
            while allowance > 0 && queued.next <= last {
                let payload = &queued.frame.payloads[queued.next];
                let header = RtpHeader {
                    marker: queued.next == last,
                    payload_type: PAYLOAD_TYPE,
                    seq: self.seq as u16,
                    time,
                    ssrc: self.ssrc,
                };
                let mut datagram = [&header.to_bytes()[..], payload].concat();
                if let Some(srtp) = &mut self.srtp {
                    srtp.protect(&mut datagram, self.seq, HEADER)?;
                }
                self.pacer.spend(datagram.len());
                allowance = allowance.saturating_sub(datagram.len());
                (self.seq, queued.next) = (self.seq + 1, queued.next + 1);
                (self.packets, self.bytes) =
                    (self.packets.wrapping_add(1), self.bytes.wrapping_add(payload.len() as u32));
                datagrams.push(datagram);
            }
            let departure = &mut queued.departure;
            if departure.began_ns == 0 {
                departure.began_ns = began_ns;
            }
            departure.encrypt_ns += now_ns() - began_ns;
            departure.encrypt_cpu_ns += thread_cpu_ns().saturating_sub(began_cpu_ns);
            for datagram in datagrams {
                batch.push(&self.socket, self.to, datagram);
            }
            batch.flush(&self.socket);
            departure.sent_ns = now_ns();
            let (packets, error) = self.socket.refused();
            self.shared.left.store(u64::from(self.packets).saturating_sub(packets), Ordering::Relaxed);
            if let Some(error) = error {
                *lock(&self.shared.refused) = Some(RefusedPackets { packets, all: false, error });
            }
            if queued.next > last {
                let departure = *departure;
                self.shared.queued_bytes.fetch_sub(departure.bytes, Ordering::Relaxed);
                self.queue.pop_front();
                let mut sent = lock(&self.shared.sent);
                if sent.len() == MOST_SENT {
                    sent.pop_front();
                }
                sent.push_back(departure);
            }
        }
        Ok(())
    }

    /// Sends a report each second: receivers learn the times by it, and where to send requests.
    fn report(&mut self, now: Instant) -> Result<(), WebrtcError> {
        if self.next_report.is_none_or(|next| now < next) {
            return Ok(());
        }
        self.next_report = Some(now + REPORT);
        let report = self.report_of(now);
        self.send_report(report)
    }

    /// Returns a report of `now`.
    fn report_of(&self, now: Instant) -> Vec<u8> {
        let (queued, time) = self.last_time;
        let ticks = now.duration_since(queued).as_micros() * 9 / 100;
        let report = SenderReport {
            ssrc: self.ssrc,
            at: SystemTime::now(),
            time: time.wrapping_add(ticks as u32),
            packets: self.packets,
            bytes: self.bytes,
            name: &self.name,
        };
        report.to_bytes()
    }

    fn send_report(&mut self, mut report: Vec<u8>) -> Result<(), WebrtcError> {
        if let Some(srtp) = &mut self.srtp {
            srtp.protect_rtcp(&mut report)?;
        }
        let size = report.len();
        self.socket.send_run(self.reports, &[report], size);
        Ok(())
    }

    /// Asks for a keyframe if the receiver needs one and the last request is long enough ago.
    fn request_keyframe(&mut self, now: Instant) {
        if !self.wants_keyframe || now < self.next_request {
            return;
        }
        // A source that takes no requests has its keyframes where they are.
        self.wants_keyframe = false;
        if let Some(request) = &*lock(&self.shared.on_keyframe_request) {
            request();
            self.next_request = now + KEYFRAME_INTERVAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keyframe of H.264 whose unit has this size.
    fn keyframe(size: usize) -> Vec<u8> {
        let sets = [&[0, 0, 0, 1, 0x67, 0x42, 0, 0x1e][..], &[0, 0, 0, 1, 0x68, 0xce, 0x38, 0x80]].concat();
        [sets, vec![0, 0, 0, 1, 0x65, 0x88], vec![0x55; size]].concat()
    }

    /// Sends a frame and the end. Returns what arrives for RTP and for reports.
    fn sent(key: Option<SrtpKey>) -> [Vec<Vec<u8>>; 2] {
        // Two ports behind each other.
        let (media, reports) = (0..100)
            .find_map(|_| {
                let media = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).ok()?;
                let port = media.local_addr().ok()?.port().checked_add(1)?;
                Some((media, MediaSocket::bind((Ipv4Addr::LOCALHOST, port).into()).ok()?))
            })
            .unwrap();
        let to = media.local_addr().unwrap();
        let mut sender = RtpSender::new(&RtpOptions { to, coding: Coding::H264, key }).unwrap();
        sender.send(&keyframe(5000), (7, 90_000), || true).unwrap();
        sender.end(|| true);
        let departures = sender.take_sent();
        assert_eq!(departures.len(), 1);
        assert_eq!((departures[0].number, departures[0].time), (7, 90_000));
        assert!(departures[0].sent_ns >= departures[0].began_ns + departures[0].encrypt_ns);
        [media, reports].map(|socket| {
            let (mut buffer, mut all) = (ReceiveBuffer::new(), Vec::new());
            while let Some(datagram) = socket.recv(&mut buffer).unwrap() {
                all.push(datagram.bytes.to_vec());
            }
            all
        })
    }

    #[test]
    fn plain_packets_have_one_source_and_the_marker_last() {
        let [media, reports] = sent(None);
        assert!(media.len() > 4, "{}", media.len());
        let seq = |packet: &[u8]| u16::from_be_bytes([packet[2], packet[3]]);
        for (number, packet) in media.iter().enumerate() {
            assert_eq!(packet[0], 0x80);
            assert_eq!(packet[1], if number + 1 == media.len() { 0x80 | 96 } else { 96 });
            assert_eq!(
                (seq(packet), &packet[4..8]),
                (seq(&media[0]) + number as u16, &[0, 1, 0x5f, 0x90][..])
            );
            assert_eq!(packet[8..12], media[0][8..12]);
        }
        let kinds: Vec<u8> = reports.iter().map(|report| report[1]).collect();
        assert_eq!(kinds, [200, 200]);
        assert_eq!(reports[1][reports[1].len() - 8..][..2], [0x81, 203]);
        assert!(reports.iter().all(|report| report[4..8] == media[0][8..12]));
    }

    #[test]
    fn encrypted_packets_show_only_their_heads() {
        let [media, reports] = sent(Some(SrtpKey::random().unwrap()));
        let run = [0x55; 8];
        assert!(media.iter().all(|packet| !packet.windows(8).any(|bytes| bytes == run)));
        assert_eq!(reports.len(), 2);
        // The last twelve bytes of the report's packet would be the description's zeros.
        assert!(!reports[0].windows(9).any(|bytes| bytes == b"framepath"));
    }

    #[test]
    fn a_receiver_asks_for_keyframes() {
        let receiver = MediaSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let to = receiver.local_addr().unwrap();
        let mut sender = RtpSender::new(&RtpOptions { to, coding: Coding::H264, key: None }).unwrap();
        let (asked, requests) = mpsc::channel();
        sender.on_keyframe_request(move || asked.send(()).unwrap());
        sender.send(&keyframe(10), (0, 0), || true).unwrap();
        let mut buffer = ReceiveBuffer::new();
        let (source, ssrc) = loop {
            if let Some(datagram) = receiver.recv(&mut buffer).unwrap() {
                break (datagram.source, datagram.bytes[8..12].to_vec());
            }
        };
        let mut request = vec![0x81, 206, 0, 2, 0, 0, 0, 9];
        request.extend(ssrc);
        let from = (Ipv4Addr::LOCALHOST, source.port()).into();
        receiver.send_run(from, &[request], 12);
        requests.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
