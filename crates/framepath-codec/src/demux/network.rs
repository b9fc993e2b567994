// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demuxing of a stream from the network by libavformat's RTSP and SDP demuxers. libavformat makes the sockets.

use std::ffi::{CStr, CString, c_int};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use ffmpeg_sys_next as ff;
use framepath_os::process::signal;

use super::Demuxer;
use super::context::Context;
use super::origin::DemuxerInput;
use crate::container::Formats;
use crate::error::libav_message;
use crate::input::INTERRUPT;
use crate::network_input::{
    MOST_REDIRECTS, NetworkInput, has_goodbye, has_too_many_redirects, take_lost, watch_messages,
};
use crate::shortage::Shortage;
use crate::{CodecError, Packet};

/// Maximum number of datagrams that libavformat keeps while it waits for an earlier one:
/// libavformat's own default.
const REORDERED: &CStr = c"500";

/// Description of a stream to receive from the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkStream {
    /// Way in which the stream is received.
    pub protocol: NetworkProtocol,
    /// URL with the address of the server as numbers; the text of a session description for
    /// [`NetworkProtocol::Sdp`].
    pub text: Vec<u8>,
    /// Maximum time to wait for a late datagram; a time beyond about 35 minutes (2^31 - 1
    /// microseconds) counts as this. Without effect for [`NetworkProtocol::RtspTcp`].
    pub latency: Duration,
    /// Maximum time of one wait for the server; a time beyond about 35 minutes (2^31 - 1
    /// microseconds) counts as this. For [`NetworkProtocol::Sdp`], which has no server, of one wait
    /// for a packet.
    pub timeout: Duration,
    /// Number of the video track, from 0; `None` chooses the best by libavformat's rating.
    pub track: Option<usize>,
}

/// Way in which a stream from the network is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkProtocol {
    /// RTSP; the server sends the media packets in the TCP connection of RTSP.
    RtspTcp,
    /// RTSP over TCP; the server sends the media packets in UDP datagrams.
    RtspUdp,
    /// RTP in UDP datagrams, without a server: a session description (SDP) has the addresses and
    /// the codecs.
    Sdp,
}

impl NetworkProtocol {
    /// Returns libavformat's name of the demuxer.
    fn demuxer(self) -> &'static CStr {
        match self {
            NetworkProtocol::RtspTcp | NetworkProtocol::RtspUdp => c"rtsp",
            NetworkProtocol::Sdp => c"sdp",
        }
    }

    /// Returns the names of the protocols that libavformat may open, separated by commas.
    fn allowed(self) -> &'static CStr {
        match self {
            NetworkProtocol::RtspTcp => c"tcp",
            NetworkProtocol::RtspUdp => c"tcp,rtp,udp",
            NetworkProtocol::Sdp => c"rtp,udp",
        }
    }
}

impl NetworkStream {
    /// Returns the stream's name in errors: `connection` for RTSP, `session` for a session
    /// description.
    fn name(&self) -> String {
        match self.protocol {
            NetworkProtocol::RtspTcp | NetworkProtocol::RtspUdp => "connection".to_owned(),
            NetworkProtocol::Sdp => "session".to_owned(),
        }
    }

    /// Returns libavformat's options, by name and value.
    fn options(&self) -> Vec<(&'static CStr, CString)> {
        let microseconds = |time: Duration| {
            CString::new(time.as_micros().min(i32::MAX as u128).to_string()).unwrap_or_default()
        };
        let mut options = vec![
            (c"protocol_whitelist", self.protocol.allowed().to_owned()),
            // Only video streams are requested. A stream that is not requested delays nothing.
            (c"allowed_media_types", c"video".to_owned()),
            (c"max_delay", microseconds(self.latency)),
        ];
        match self.protocol {
            NetworkProtocol::RtspTcp => options.push((c"rtsp_transport", c"tcp".to_owned())),
            NetworkProtocol::RtspUdp => options.push((c"rtsp_transport", c"udp".to_owned())),
            NetworkProtocol::Sdp => {}
        }
        if self.protocol != NetworkProtocol::Sdp {
            options.push((c"timeout", microseconds(self.timeout)));
        }
        if self.protocol != NetworkProtocol::RtspTcp {
            // Set explicitly, because libavformat counts no lost packets without this queue.
            options.push((c"reorder_queue_size", REORDERED.to_owned()));
        }
        options
    }
}

impl Demuxer {
    /// Connects to the sender of `stream`, and reads the stream's first packets, up to the first
    /// random access point that is not damaged. Only for a process in a sandbox, because
    /// libavformat and libavcodec may use all of their demuxers and decoders. From the first call
    /// on, this crate counts the log messages of FFmpeg's libraries about lost packets and goodbyes
    /// in the whole process, and none of their messages is printed any more.
    ///
    /// # Errors
    /// The server cannot be reached or refuses the stream, sends nothing for too long, or the
    /// stream has no video that libavcodec decodes, or not the requested track; there is not enough
    /// memory; or an error of [`read`](Demuxer::read).
    pub fn open_network(stream: &NetworkStream) -> Result<Demuxer, CodecError> {
        watch_messages();
        let name = stream.name();
        let no_memory = || CodecError::Memory { file: stream.name(), operation: "open" };
        let (input, url) = match stream.protocol {
            NetworkProtocol::Sdp => (NetworkInput::of_text(&stream.text).ok_or_else(no_memory)?, c"".into()),
            _ => (NetworkInput::of_url(), CString::new(stream.text.clone()).unwrap_or_default()),
        };
        let shortage = Shortage::watch();
        let before = open_descriptors();
        let context = Context::open_network(stream, &input, &url)?;
        if stream.protocol == NetworkProtocol::Sdp {
            let sockets: Vec<c_int> =
                open_descriptors().into_iter().filter(|number| !before.contains(number)).collect();
            wait_for_datagram(&sockets, stream)?;
        }
        let patience = match stream.protocol {
            NetworkProtocol::RtspTcp => Duration::ZERO,
            NetworkProtocol::RtspUdp | NetworkProtocol::Sdp => stream.timeout,
        };
        let mut input = DemuxerInput::Network { _memory: input, patience };
        let (context, track) = context.select(&name, &mut input, stream.track, &shortage)?;
        let mut demuxer = Demuxer::from_parts(name, input, context, track, (stream.track, Formats::All))?;
        // Only counts the loss and marks no packet as damaged: libavformat has read many packets,
        // and the loss may be before any of them.
        demuxer.lost = take_lost();
        demuxer.skip_to_start()?;
        Ok(demuxer)
    }

    /// Returns the number of packets of the network that were lost since the last call, or before
    /// the first call since the stream was opened. 0 for a file.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Counts the packets of the network that were lost before libavformat returned `packet`, and marks it as
    /// damaged if there are any.
    pub(super) fn count_lost(&mut self, packet: &mut Packet) {
        let lost = take_lost();
        self.lost += lost;
        if lost > 0 {
            packet.set_damaged();
        }
    }

    /// Returns an error if `code` is the end of the stream and no sender has said goodbye (RTCP
    /// BYE) in this process: the connection was lost.
    pub(super) fn check_end(&self, code: c_int) -> Result<(), CodecError> {
        if code != ff::AVERROR_EOF || has_goodbye() {
            return Ok(());
        }
        let message = "the server closed the connection without an end of the stream (RTCP BYE)".to_owned();
        Err(CodecError::Demux { file: self.name(), operation: "read", message })
    }
}

/// Highest number, plus one, of a descriptor that [`open_descriptors`] looks for: more than a worker may have.
const MOST_DESCRIPTORS: c_int = 256;

/// Interval of the checks for a signal or a stop request in [`wait_for_datagram`], milliseconds.
const INTERVAL_MS: c_int = 100;

/// Returns the numbers of this process's open descriptors below [`MOST_DESCRIPTORS`].
fn open_descriptors() -> Vec<c_int> {
    // SAFETY: F_GETFD has no effect, also on a number that is not open.
    (0..MOST_DESCRIPTORS).filter(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0).collect()
}

/// Waits until one of `sockets` has a datagram. libavformat's own waits for the first packet would add up to 20 s,
/// whatever the timeout. Returns at once without sockets, and after a signal or a stop request.
///
/// # Errors
/// No datagram came within the timeout of `stream`.
fn wait_for_datagram(sockets: &[c_int], stream: &NetworkStream) -> Result<(), CodecError> {
    let since = Instant::now();
    let mut waits: Vec<libc::pollfd> =
        sockets.iter().map(|socket| libc::pollfd { fd: *socket, events: libc::POLLIN, revents: 0 }).collect();
    while !waits.is_empty() && !signal::interrupted() {
        // SAFETY: as many entries as the vector has.
        if unsafe { libc::poll(waits.as_mut_ptr(), waits.len() as libc::nfds_t, INTERVAL_MS) } > 0 {
            break;
        }
        if since.elapsed() > stream.timeout {
            let message = format!(
                "no packet from the network for {} ms; is the sender running, and does it send to the address and \
                 port of the session description? raise timeout= for a slow sender",
                since.elapsed().as_millis()
            );
            return Err(CodecError::Demux { file: stream.name(), operation: "open", message });
        }
    }
    Ok(())
}

impl Context {
    /// Opens `stream`: reads its session description from `input`, or connects to `url` if `input`
    /// is that of a URL. Fails with libavformat's error.
    fn open_network(stream: &NetworkStream, input: &NetworkInput, url: &CStr) -> Result<Context, CodecError> {
        let failed = |code| {
            let message = libav_message(code);
            let message = match (stream.protocol, code) {
                (NetworkProtocol::Sdp, _) => message,
                _ if has_too_many_redirects() => {
                    format!("the server redirects more than {MOST_REDIRECTS} times")
                }
                // libavformat returns this error also if the server sends no answer in time.
                (_, ff::AVERROR_INVALIDDATA) => format!("no valid answer of the server in time ({message})"),
                _ => message,
            };
            CodecError::Demux { file: stream.name(), operation: "open", message }
        };
        // SAFETY: the name is a C string; the result is a static description or null. The context is new, and
        // reads through `input`, which the caller keeps longer, or makes its own sockets.
        // avformat_open_input frees it on failure. The options dictionary is freed in any case.
        unsafe {
            let format = ff::av_find_input_format(stream.protocol.demuxer().as_ptr());
            if format.is_null() {
                return Err(failed(ff::AVERROR_DEMUXER_NOT_FOUND));
            }
            let mut raw = ff::avformat_alloc_context();
            if raw.is_null() {
                return Err(failed(ff::AVERROR(libc::ENOMEM)));
            }
            (*raw).pb = input.as_ptr();
            (*raw).interrupt_callback = INTERRUPT;
            let mut options = ptr::null_mut();
            for (key, value) in Formats::All.limits() {
                ff::av_dict_set(&mut options, key.as_ptr(), value.as_ptr(), 0);
            }
            for (key, value) in stream.options() {
                ff::av_dict_set(&mut options, key.as_ptr(), value.as_ptr(), 0);
            }
            let code = ff::avformat_open_input(&mut raw, url.as_ptr(), format, &mut options);
            ff::av_dict_free(&mut options);
            match NonNull::new(raw) {
                Some(raw) if code >= 0 => Ok(Context(raw)),
                _ => Err(failed(code)),
            }
        }
    }
}
