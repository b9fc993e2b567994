// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sink `send rtp=`: RTP to one address, with framepath-net.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use framepath_model::path::Hop;
use framepath_model::shown::shown;
use framepath_model::stream::StreamInfo;
use framepath_net::{RefusedPackets, RtpOptions, RtpSender, SrtpKey};
use framepath_os::process::cancel::{self, StoppableWriter};
use framepath_os::process::signal;

use super::outgoing_frames::{OutgoingFrame, OutgoingFrames, track_of};
use crate::element::HopPlace;
use crate::error::StageError;
use crate::item::Item;
use crate::out::{HopFailure, Out};
use crate::request::Request;
use crate::source::recv::net_error;
use crate::stage::Stage;

/// Options of a sender that viewers connect to, or that publishes.
const OTHERS: [&str; 6] = ["listen", "whip", "token", "wait", "qr", "control"];

/// Sink that sends RTP.
pub(super) struct RtpSink {
    sender: RtpSender,
    frames: OutgoingFrames,
}

pub(super) fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<RtpSink, StageError> {
    let track = track_of(place)?;
    if let Some(other) = OTHERS.into_iter().find(|option| hop.is_set(option)) {
        return Err(StageError::Option(format!(
            "{other}= is for WebRTC, and rtp= has no sessions; remove one of them"
        )));
    }
    let to = hop.text("rtp");
    let to: SocketAddr = to.parse().map_err(|_| {
        StageError::Option(format!(
            "rtp={}: expected an IP address and a port, such as 192.168.1.5:5004 or [::1]:5004",
            shown(to)
        ))
    })?;
    let key = key(hop)?;
    let is_new = key.is_some() && !hop.is_set("srtp");
    let sender = RtpSender::new(&RtpOptions { to, coding: track.coding(), key }).map_err(net_error)?;
    match hop.is_set("sdp") {
        true => write_description(hop.text("sdp"), sender.description())?,
        // Nobody could receive it.
        false if is_new => {
            return Err(StageError::Option(
                "rtp=: a receiver needs the key; add sdp=FILE for a session description with a new key, srtp=KEY, or plain=yes for \
                 a stream that everyone on the way can read"
                    .to_owned(),
            ));
        }
        false => {}
    }
    log::info!("send: RTP to {to}");
    let frames = OutgoingFrames::new(hop, track)?;
    Ok(RtpSink { sender, frames })
}

/// Returns the key of the options; `None` for plain RTP.
fn key(hop: &Hop) -> Result<Option<SrtpKey>, StageError> {
    match (hop.flag("plain"), hop.is_set("srtp")) {
        (true, true) => {
            Err(StageError::Option("srtp= has a key, and plain= wants no encryption; remove one".to_owned()))
        }
        (true, false) => Ok(None),
        (false, true) => {
            let key = SrtpKey::from_base64(hop.text("srtp")).ok_or_else(|| {
                StageError::Option(
                    "srtp=: expected 40 characters of Base64, 30 bytes: key and salt".to_owned(),
                )
            })?;
            Ok(Some(key))
        }
        (false, false) => SrtpKey::random().map(Some).map_err(|error| net_error(error.into())),
    }
}

/// Writes the session description. A file is a new one, which only this user may read, because it has the key; it takes the place of an
/// older one. A device or pipe gets the text.
fn write_description(file: &str, text: &str) -> Result<(), StageError> {
    let path = Path::new(file);
    let written = match fs::metadata(path) {
        Ok(there) if !there.is_file() => cancel::create(path).and_then(|opened| {
            let mut writer = StoppableWriter::new(opened);
            writer.write_all(text.as_bytes())
        }),
        _ => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(format!(".{}.part", std::process::id()));
            let new = File::options().write(true).create_new(true).mode(0o600).open(&beside);
            let renamed = new
                .and_then(|mut opened| opened.write_all(text.as_bytes()))
                .and_then(|()| fs::rename(&beside, path));
            if renamed.is_err() {
                // It may not exist.
                let _ = fs::remove_file(&beside);
            }
            renamed
        }
    };
    written.map_err(StageError::io(file))
}

/// Makes the error of packets that have not left.
fn not_sent(refused: RefusedPackets) -> StageError {
    let packets = refused.packets;
    StageError::io(&format!("the kernel has refused to send {packets} packets"))(refused.error.into())
}

impl RtpSink {
    /// Moves the ends of frames in the ledger to the time at which their last packets left.
    fn end_sent(&mut self, out: &mut Out<'_>) {
        let hop = out.hop();
        for frame in self.sender.take_sent() {
            let work = (frame.encrypt_ns, frame.encrypt_cpu_ns);
            out.recorder().end_later(hop, frame.number, frame.sent_ns, work);
        }
    }
}

impl Stage for RtpSink {
    fn name(&self) -> &str {
        "send"
    }

    fn start(&mut self, info: &StreamInfo) -> Result<StreamInfo, StageError> {
        self.frames.start(info.time_base);
        Ok(*info)
    }

    fn push(&mut self, item: Item, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.end_sent(out);
        if let Some(refused) = self.sender.refused().filter(|refused| refused.all) {
            return Err(out.fail(not_sent(refused)));
        }
        let packet = item.into_packet().map_err(|error| out.fail(error))?;
        let is_first = !self.frames.has_begun;
        let OutgoingFrame { bytes, number, time } =
            self.frames.convert(packet).map_err(|error| out.fail(error))?;
        let sent = self.sender.send(&bytes, (number, time), || !signal::interrupted() && !out.has_request());
        sent.map_err(|error| out.fail(net_error(error)))?;
        if is_first {
            let upstream = out.upstream();
            // A file has its keyframes where they are.
            self.sender.on_keyframe_request(move || drop(upstream.send(Request::Keyframe)));
        }
        Ok(())
    }

    fn drain(&mut self, out: &mut Out<'_>) -> Result<(), HopFailure> {
        self.sender.end(|| !signal::overdue());
        self.end_sent(out);
        if let Some(refused) = self.sender.refused().filter(|_| !out.has_failed()) {
            return Err(out.fail(not_sent(refused)));
        }
        Ok(())
    }
}
