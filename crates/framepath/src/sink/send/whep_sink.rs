// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sink `send`, with framepath-net: to viewers by WHEP, or to a server by WHIP.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use framepath_codec::{AnnexB, Codec};
use framepath_model::access_unit::{Coding, Sequences};
use framepath_model::frame_number::insert_frame_number;
use framepath_model::path::Hop;
use framepath_model::shown::shown;
use framepath_model::stream::StreamInfo;
use framepath_net::{PublishOptions, SenderOptions, SenderRequest, WhepSender};
use framepath_os::measure::meter;
use framepath_os::process::signal;
use framepath_os::process::stop;
use framepath_os::time::now_ns;

use super::control_lines::ControlLines;
use super::live_metrics;
use super::qr_code;
use super::remote_viewer::RemoteViewer;
use super::rtp_clock::RtpClock;
use crate::element::HopPlace;
use crate::error::StageError;
use crate::item::Item;
use crate::live_ledger::LiveLedger;
use crate::notes::Notes;
use crate::out::{HopFailure, Out};
use crate::request::Request;
use crate::source::recv::net_error;
use crate::stage::Stage;

/// Codec of the frames, and the encoder's lowest and highest bit rate.
type BitRates = (Coding, Option<RangeInclusive<u64>>);

/// Longest wait for the answer of a WHIP server, and for the session.
const SERVER: Duration = Duration::from_secs(10);
/// Longest sleep while the sink waits for viewers, nanoseconds.
const SLEEP_NS: u64 = 100_000_000;

/// Sink that sends packets to the viewers of a WHEP server.
pub(super) struct WhepSink {
    sender: WhepSender,
    /// Reader of standard input; `None` without `control=`.
    _control: Option<ControlLines>,
    /// URL of the WHIP server; `None` for viewers that connect.
    server: Option<String>,
    /// Number of viewers to wait for.
    wait: usize,
    coding: Coding,
    /// True if frames get their number as user data.
    numbers: bool,
    starts: AnnexB,
    sequences: Sequences,
    clock: Option<RtpClock>,
    /// True after the first packet, whose number is not 0 if a hop in front has dropped packets.
    has_begun: bool,
    /// Number of the first frame whose last packet is not known to have left.
    next_sent: u64,
    notes: Notes,
}

pub(super) fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<WhepSink, StageError> {
    let track = place.track.as_ref().ok_or(StageError::WrongInput {
        takes: "packets of h264, hevc, vp8, vp9 or av1",
        gets: "frames",
        advice: "put it behind `file`, without `decode`",
    })?;
    if matches!(track.codec, Codec::Other(_)) {
        let codec = track.codec.to_string();
        return Err(net_error(framepath_net::WebrtcError::Codec(codec)));
    }
    let coding = (track.coding(), track.bit_rates.clone());
    let server = hop.is_set("whip").then(|| hop.text("whip").to_owned());
    let sender = match &server {
        Some(url) => publish(hop, url, coding)?,
        None => listen(hop, coding)?,
    };
    // A path that receives the stream has its sender there already. The ledger has one other end.
    let live = LiveLedger::default();
    let remote = RemoteViewer { exchange: sender.ledger(), live: live.clone() };
    let _ = place.outcomes.remote.set(Arc::new(remote));
    let of_page = live.clone();
    sender.on_metrics(move || of_page.report().map(live_metrics::text).unwrap_or_default());
    if server.is_none() {
        print_addresses(hop, &sender);
    }
    let control = hop.flag("control").then(|| ControlLines::start(sender.control(), live));
    Ok(WhepSink {
        sender,
        _control: control.transpose().map_err(StageError::io("send"))?,
        wait: hop.count("wait") as usize,
        server,
        coding: track.coding(),
        numbers: hop.flag("numbers"),
        starts: AnnexB::new(track)?,
        sequences: Sequences::new(track.coding()),
        clock: None,
        has_begun: false,
        next_sent: 0,
        notes: place.outcomes.notes.clone(),
    })
}

/// Returns the token of the option `token=`; `None` without the option.
fn token(hop: &Hop) -> Result<Option<String>, StageError> {
    let token = hop.is_set("token").then(|| hop.text("token").to_owned());
    match token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
        true => {
            Err(StageError::Option("token=: expected printable ASCII characters without spaces".to_owned()))
        }
        false => Ok(token),
    }
}

/// Starts a server for viewers.
fn listen(hop: &Hop, (coding, bit_rates): BitRates) -> Result<WhepSender, StageError> {
    let listen = hop.text("listen");
    let listen: SocketAddr = listen.parse().map_err(|_| {
        StageError::Option(format!(
            "listen={}: expected an IP address and a port, such as 192.168.1.5:8443 or [::1]:8443",
            shown(listen)
        ))
    })?;
    WhepSender::new(SenderOptions { listen, token: token(hop)?, coding, bit_rates }).map_err(net_error)
}

/// Opens a session at the WHIP server of this URL.
fn publish(hop: &Hop, url: &str, (coding, bit_rates): BitRates) -> Result<WhepSender, StageError> {
    if let Some(option) = ["listen", "wait", "qr", "control"].into_iter().find(|option| hop.is_set(option)) {
        return Err(StageError::Option(format!(
            "{option}= is for viewers that connect to this program; remove it, or whip="
        )));
    }
    let token = token(hop)?;
    let options = PublishOptions { url: url.to_owned(), token, timeout: SERVER, coding, bit_rates };
    WhepSender::publish(&options, signal::interrupted).map_err(net_error)
}

/// Prints how viewers connect. Before the run, because they need it; a program that has no standard error passes token= and a port.
fn print_addresses(hop: &Hop, sender: &WhepSender) {
    let is_random = !hop.is_set("token");
    let token = if is_random { format!(" token={}", sender.token()) } else { String::new() };
    let _ = writeln!(
        std::io::stderr(),
        "framepath: send: waits for `recv http://{}/whep{token}`",
        sender.address()
    );
    // Browsers do not send what is behind `#` to the server.
    let page = match sender.pairing() {
        Some(code) => format!("http://{}/#{}", code.address, sender.token()),
        None => format!("http://{}/", sender.address()),
    };
    let _ = writeln!(std::io::stderr(), "framepath: send: or opens in a browser: {page}");
    if let Some(code) = sender.pairing() {
        let picture = if hop.flag("qr") { qr_code::text(&code.to_string()) } else { String::new() };
        let _ = writeln!(
            std::io::stderr(),
            "framepath: send: or, with both ends' certificates checked: framepath view {code}\n{picture}"
        );
    }
}

impl WhepSink {
    /// Waits until the session at the server is established.
    fn wait_for_server(&self, url: &str) -> Result<(), StageError> {
        let until_ns = now_ns() + SERVER.as_nanos() as u64;
        while self.sender.watching() == 0 && !signal::interrupted() {
            if now_ns() >= until_ns {
                return Err(StageError::Option(format!(
                    "{}: no encrypted session with the server within {} s; a firewall may drop its datagrams (UDP)",
                    shown(url),
                    SERVER.as_secs()
                )));
            }
            stop::sleep_unless(now_ns() + SLEEP_NS, || self.sender.watching() > 0);
        }
        Ok(())
    }

    /// Fails if the session at the server has ended.
    fn check_server(&self) -> Result<(), StageError> {
        match self.server.as_ref().filter(|_| self.sender.watching() == 0) {
            Some(url) => {
                let url = shown(url);
                Err(StageError::Option(format!(
                    "{url}: the server has ended the session, or does not answer"
                )))
            }
            None => Ok(()),
        }
    }

    /// Waits until as many viewers watch as `wait=` says, or a signal or a stop request ends the run.
    fn wait_for_viewers(&self) {
        if let Some(run) = stop::current() {
            self.sender.on_change(move || run.wake());
        }
        let is_complete = || self.sender.watching() >= self.wait;
        while !is_complete() && !signal::interrupted() {
            stop::sleep_unless(now_ns() + SLEEP_NS, is_complete);
        }
    }
}

impl WhepSink {
    /// Moves the ends of frames in the ledger to the time at which their last packets left for the first viewer that got them.
    fn end_sent(&mut self, out: &mut Out<'_>) {
        let hop = out.hop();
        for frame in self.sender.take_sent() {
            if frame.number >= self.next_sent {
                self.next_sent = frame.number + 1;
                let work = (frame.encrypt_ns, frame.encrypt_cpu_ns);
                out.recorder().end_later(hop, frame.number, frame.sent_ns, work);
            }
        }
    }
}

impl Stage for WhepSink {
    fn name(&self) -> &str {
        "send"
    }

    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.clock = Some(RtpClock::new(info.time_base));
        // Here and not at the first packet, so that the pace of the source begins behind the wait.
        match self.server.clone() {
            Some(url) => self.wait_for_server(&url)?,
            None => self.wait_for_viewers(),
        }
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.end_sent(out);
        self.check_server().map_err(|error| out.fail(error))?;
        let packet = item.into_packet().map_err(|error| out.fail(error))?;
        let no_memory = || StageError::Option("no memory for a packet".to_owned());
        let packet = packet.private().ok_or_else(|| out.fail(no_memory()))?;
        let meta = packet.meta();
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let bytes = packet.bytes().unwrap_or_default();
        let parts = self.starts.parts(bytes, is_first).map_err(|error| out.fail(error))?;
        let size = parts.iter().map(|part| part.len()).sum();
        let mut unit = meter::copy(size, || parts.concat());
        let mut before = self.sequences.inspect(&unit).before;
        if !before.is_empty() {
            // The sets are in front of an earlier keyframe, which a new viewer has not seen.
            before.append(&mut unit);
            unit = before;
        }
        if self.numbers {
            insert_frame_number(self.coding, &mut unit, meta.seq);
        }
        let birth_ns = if meta.birth_ns > 0 { meta.birth_ns } else { now_ns() };
        let clock =
            self.clock.get_or_insert_with(|| RtpClock::new(framepath_model::stream::Rational::new(0, 1)));
        let time = clock.timestamp(&meta, birth_ns);
        self.sender.send(&unit, meta.seq, time).map_err(|error| out.fail(net_error(error)))?;
        if is_first {
            let upstream = out.upstream();
            // Nobody needs it after the run's end, and a file has its keyframes where they are.
            self.sender.on_request(move |request| {
                let request = match request {
                    SenderRequest::Keyframe => Request::Keyframe,
                    SenderRequest::Bandwidth(bits) => Request::Bandwidth(bits),
                    SenderRequest::Congested(is_congested) => Request::Congested(is_congested),
                };
                drop(upstream.send(request));
            });
        }
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        if self.has_begun {
            self.check_server().map_err(|error| out.fail(error))?;
        }
        let goes_on = || !signal::overdue();
        if out.has_failed() {
            self.sender.fail(goes_on);
        } else {
            self.sender.end(goes_on);
        }
        self.end_sent(out);
        if let Some(url) = self.server.as_ref().filter(|_| self.sender.has_lost_server()) {
            let lost =
                format!("{}: the server cannot be reached any more; it may lack the last frames", shown(url));
            return Err(out.fail(StageError::Option(lost)));
        }
        let counts = self.sender.counts();
        if counts.dropped > 0 {
            let all = counts.sent + counts.dropped;
            self.notes.add(format!(
                "send: dropped {} of {all} frames for viewers whose network is slower than the stream; lower the bit \
                 rate, or pace the source (rate=)",
                counts.dropped
            ));
        }
        Ok(())
    }
}
