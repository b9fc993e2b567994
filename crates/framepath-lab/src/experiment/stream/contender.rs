// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that send a screen and show it elsewhere: the commands of each contender's two ends.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use framepath_os::process::children;

use super::RATE;
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::own_child::OwnChild;
use crate::process::{Program, ProgramOutput};

/// Name of framepath's contender.
pub(super) const OURS: &str = "native";
/// Bit rate of every encoder, kilobits per second.
const KILOBITS: u32 = 12_000;
/// Distance of keyframes, pictures.
const GOP: u32 = 120;
/// Time for a receiver to listen.
const RECEIVING: Duration = Duration::from_secs(1);
/// Longest wait for a sender that listens.
const LISTENING: Duration = Duration::from_secs(10);

/// A contender.
pub(super) struct Streamer {
    /// Name, which is stable, as in summaries and budgets.
    pub(super) name: &'static str,
    /// Elements of GStreamer that it needs.
    elements: &'static [GstElement],
    /// Commands of its sender and its receiver.
    commands: fn(&Ends<'_>) -> [Vec<String>; 2],
    /// True if the sender listens on TCP, and the receiver connects; false if the receiver listens.
    listens: bool,
}

/// Program, screen and port for the commands of a contender.
struct Ends<'a> {
    framepath: &'a str,
    /// X display that is sent.
    from: &'a str,
    port: u16,
}

/// All contenders.
pub(super) static STREAMERS: &[Streamer] = &[
    Streamer { name: OURS, elements: &[], commands: native, listens: true },
    Streamer { name: "gst-rtp0", elements: &GST_RTP, commands: gst_rtp_without_buffer, listens: false },
    Streamer { name: "gst-rtp", elements: &GST_RTP, commands: gst_rtp, listens: false },
    Streamer { name: "gst-srt", elements: &GST_SRT, commands: gst_srt, listens: false },
    Streamer { name: "ffplay", elements: &[], commands: ffplay, listens: false },
];

/// An element of GStreamer: its name, and Debian's package with it.
type GstElement = (&'static str, &'static str);

const GST_RTP: [GstElement; 6] = [
    ("x264enc", "gstreamer1.0-plugins-ugly"),
    ("ximagesrc", "gstreamer1.0-plugins-good"),
    ("rtph264pay", "gstreamer1.0-plugins-good"),
    ("rtpjitterbuffer", "gstreamer1.0-plugins-good"),
    ("avdec_h264", "gstreamer1.0-libav"),
    ("ximagesink", "gstreamer1.0-x"),
];
const GST_SRT: [GstElement; 7] = [
    ("x264enc", "gstreamer1.0-plugins-ugly"),
    ("ximagesrc", "gstreamer1.0-plugins-good"),
    ("h264parse", "gstreamer1.0-plugins-bad"),
    ("mpegtsmux", "gstreamer1.0-plugins-bad"),
    ("srtsink", "gstreamer1.0-plugins-bad"),
    ("avdec_h264", "gstreamer1.0-libav"),
    ("ximagesink", "gstreamer1.0-x"),
];
/// Programs of the contenders, and Debian's packages with them.
const PACKAGES: [(&str, &str); 4] = [
    ("gst-inspect-1.0", "gstreamer1.0-tools"),
    ("gst-launch-1.0", "gstreamer1.0-tools"),
    ("ffmpeg", "ffmpeg"),
    ("ffplay", "ffmpeg"),
];

fn native(ends: &Ends<'_>) -> [Vec<String>; 2] {
    let Ends { framepath, from, port } = ends;
    let send = format!(
        "x11 {from} rate={RATE} cursor=no ! convert format=yuv420p ! encode h264 bitrate={KILOBITS}k gop={GOP} \
         preset=ultrafast threads=1 ! send listen=127.0.0.1:{port} token=lab"
    );
    let recv = format!("recv http://127.0.0.1:{port}/whep token=lab ! decode threads=1 ! play");
    [send, recv]
        .map(|path| [framepath, "run", "--quiet", "--ledger", "off", &path].map(str::to_owned).to_vec())
}

/// Returns the words of a GStreamer pipeline's command.
fn gst(pipeline: &str) -> Vec<String> {
    ["gst-launch-1.0", "-q"].into_iter().chain(pipeline.split_whitespace()).map(str::to_owned).collect()
}

fn gst_encoded(from: &str) -> String {
    format!(
        "ximagesrc display-name={from} use-damage=false show-pointer=false ! video/x-raw,framerate={RATE}/1 ! videoconvert ! \
         video/x-raw,format=I420 ! x264enc tune=zerolatency speed-preset=ultrafast bitrate={KILOBITS} vbv-buf-capacity=83 \
         key-int-max={GOP} threads=1"
    )
}

fn gst_over_rtp(ends: &Ends<'_>, buffer: &str, sink: &str) -> [Vec<String>; 2] {
    let Ends { from, port, .. } = ends;
    let encoded = gst_encoded(from);
    [
        gst(&format!(
            "{encoded} ! rtph264pay config-interval=-1 mtu=1200 ! udpsink host=127.0.0.1 port={port} sync=false"
        )),
        gst(&format!(
            "udpsrc address=127.0.0.1 port={port} caps=application/x-rtp,media=video,clock-rate=90000,encoding-name=H264 ! \
             {buffer} ! rtph264depay ! avdec_h264 max-threads=1 ! videoconvert ! {sink}"
        )),
    ]
}

fn gst_rtp_without_buffer(ends: &Ends<'_>) -> [Vec<String>; 2] {
    gst_over_rtp(ends, "rtpjitterbuffer latency=0", "ximagesink sync=false")
}

fn gst_rtp(ends: &Ends<'_>) -> [Vec<String>; 2] {
    gst_over_rtp(ends, "rtpjitterbuffer", "ximagesink")
}

fn gst_srt(ends: &Ends<'_>) -> [Vec<String>; 2] {
    let Ends { from, port, .. } = ends;
    let encoded = gst_encoded(from);
    [
        gst(&format!(
            "{encoded} ! h264parse ! mpegtsmux alignment=7 ! queue ! srtsink uri=srt://127.0.0.1:{port}?mode=caller"
        )),
        gst(&format!(
            "srtsrc uri=srt://127.0.0.1:{port}?mode=listener ! video/mpegts,systemstream=true,packetsize=188 ! tsdemux ! \
             queue ! h264parse ! avdec_h264 max-threads=1 ! videoconvert ! \
             ximagesink"
        )),
    ]
}

fn ffplay(ends: &Ends<'_>) -> [Vec<String>; 2] {
    let Ends { from, port, .. } = ends;
    let send = format!(
        "ffmpeg -nostdin -v error -f x11grab -draw_mouse 0 -framerate {RATE} -video_size 1920x1080 -i {from} -pix_fmt yuv420p \
         -c:v libx264 -preset ultrafast -tune zerolatency -threads 1 -b:v {KILOBITS}k -maxrate {KILOBITS}k -bufsize 1000k \
         -g {GOP} -f mpegts udp://127.0.0.1:{port}?pkt_size=1316"
    );
    let show = format!(
        "ffplay -v error -noborder -left 0 -top 0 -an -fflags nobuffer -flags low_delay -framedrop udp://127.0.0.1:{port}"
    );
    [send, show].map(|command| command.split_whitespace().map(str::to_owned).collect())
}

impl Streamer {
    /// Starts both ends: the sender of the screen `from`, and the receiver on the screen `to`.
    ///
    /// # Errors
    /// [`LabError::Missing`] if a program or an element is not installed; [`LabError::Unknown`] if an end fails at once.
    pub(super) fn start(
        &self,
        settings: &ExperimentSettings,
        from: &Display,
        to: &Display,
    ) -> Result<Streaming, LabError> {
        self.elements.iter().try_for_each(|element| check_element(*element))?;
        let framepath = settings.framepath.to_string_lossy();
        let port = free_port()?;
        let [send, receive] = (self.commands)(&Ends { framepath: &framepath, from: from.x_name()?, port });
        if !self.listens {
            let receiver = End::start(&receive, to)?;
            // Until it listens: nothing tells that from outside.
            sleep(RECEIVING);
            return Ok(Streaming { name: self.name, ends: [End::start(&send, from)?, receiver] });
        }
        let mut sender = End::start(&send, from)?;
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if since.elapsed() > LISTENING {
                return Err(LabError::Unknown(format!(
                    "the sender does not listen within 10 s{}",
                    sender.said()
                )));
            }
            sleep(Duration::from_millis(10));
        }
        let receiver = End::start(&receive, to)?;
        Ok(Streaming { name: self.name, ends: [sender, receiver] })
    }
}

/// Checks that GStreamer has an element.
///
/// # Errors
/// [`LabError::Missing`] with the package that has it.
fn check_element((element, package): GstElement) -> Result<(), LabError> {
    const INSPECT: &str = "gst-inspect-1.0";
    match Program::new(INSPECT, ["--exists", element]).run(false) {
        Ok(_) => Ok(()),
        Err(LabError::Missing(_)) => Err(missing_program(INSPECT)),
        Err(LabError::Command { .. }) => {
            Err(LabError::Missing(format!("no GStreamer element `{element}`; apt install {package}")))
        }
        Err(error) => Err(error),
    }
}

/// Returns the error for a program that is not installed, with its package if that is known.
fn missing_program(program: &str) -> LabError {
    let package = PACKAGES.iter().find(|(name, _)| *name == program);
    let remedy = package.map_or(String::new(), |(_, package)| format!("; apt install {package}"));
    LabError::Missing(format!("{program} is not installed{remedy}"))
}

/// Returns a port of the loopback interface that neither TCP nor UDP uses now.
fn free_port() -> Result<u16, LabError> {
    let free = || {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        UdpSocket::bind(("127.0.0.1", port)).map(|_| port)
    };
    free().map_err(LabError::io("finding a free port"))
}

/// Both ends of a running contender.
pub(super) struct Streaming {
    name: &'static str,
    ends: [End; 2],
}

impl Streaming {
    /// Returns the error `what`, with what the ends have written. For other programs than framepath it is one that skips the
    /// contender.
    pub(super) fn failed(mut self, what: &str) -> LabError {
        let said: String = self.ends.iter_mut().map(End::said).collect();
        let text = format!("{}: {what}{said}", self.name);
        if self.name == OURS { LabError::Unknown(text) } else { LabError::Missing(text) }
    }

    /// Ends both programs as Ctrl-C does. Returns their CPU time, nanoseconds.
    ///
    /// # Errors
    /// As [`OwnChild::interrupt`]: an end has ended by itself.
    pub(super) fn end(self) -> Result<u64, LabError> {
        let [sender, receiver] = self.ends;
        Ok(receiver.child.interrupt()? + sender.child.interrupt()?)
    }
}

/// One of the two programs.
struct End {
    child: OwnChild,
    output: ProgramOutput,
}

impl End {
    fn start(words: &[String], screen: &Display) -> Result<End, LabError> {
        let [program, arguments @ ..] = words else {
            return Err(LabError::Unknown("a contender without a command".to_owned()));
        };
        let output = ProgramOutput::new()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output.to_stdio()?).stderr(output.to_stdio()?);
        screen.offer(&mut command);
        let child = children::on_a_lead(&mut command).spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing_program(program),
            _ => LabError::Io { what: format!("starting {program}"), error },
        })?;
        Ok(End { child: OwnChild::new(child), output })
    }

    /// Returns what the program has written, as the end of an error's text.
    fn said(&mut self) -> String {
        let text = self.output.text();
        let text = text.trim();
        if text.is_empty() { String::new() } else { format!("; {text}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_element_or_program_is_said_with_its_package() {
        let error = check_element(("nosuchelement", "gstreamer1.0-plugins-ugly")).unwrap_err();
        assert!(error.to_string().contains("apt install gstreamer1.0-"), "{error}");
        assert_eq!(
            missing_program("ffplay").to_string(),
            "ffplay is not installed; apt install ffmpeg"
        );
    }
}
