// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sink `send`, with framepath-net: to viewers by WHEP, or to a server by WHIP.

use std::io::Write;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use framepath_model::access_unit::Coding;
use framepath_model::path::Hop;
use framepath_model::shown::shown;
use framepath_model::stream::StreamInfo;
use framepath_net::{PublishOptions, SenderOptions, SenderRequest, WhepSender};
use framepath_os::process::signal;
use framepath_os::process::stop;
use framepath_os::time::now_ns;

use super::control_lines::ControlLines;
use super::live_metrics;
use super::outgoing_frames::{OutgoingFrame, OutgoingFrames, track_of};
use super::qr_code;
use super::remote_viewer::RemoteViewer;
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
    frames: OutgoingFrames,
    /// Number of the first frame whose last packet is not known to have left.
    next_sent: u64,
    notes: Notes,
}

pub(super) fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<WhepSink, StageError> {
    let track = track_of(place)?;
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
        frames: OutgoingFrames::new(hop, track)?,
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
        self.frames.start(info.time_base);
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
        let is_first = !self.frames.has_begun;
        let OutgoingFrame { bytes, number, time } =
            self.frames.convert(packet).map_err(|error| out.fail(error))?;
        self.sender.send(&bytes, number, time).map_err(|error| out.fail(net_error(error)))?;
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
        if self.frames.has_begun {
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
