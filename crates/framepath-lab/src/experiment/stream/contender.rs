// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that send a screen and show it elsewhere: the commands of each contender's two ends.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::desktop::RATE;
use super::end_ledger::LedgerFiles;
use super::sender_totals::SenderTotals;
use super::stream_end::StreamEnd;
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::process::Program;
use crate::temporary_folder::temporary_folder;
use crate::test_link::{ADDRESSES, TestLink};

/// Name of framepath's contender.
pub(super) const OURS: &str = "native";
/// Name of the contender that shows framepath's stream in a browser.
pub(super) const BROWSER: &str = "browser";
/// Name of the contender that shows it in a browser behind Janus.
const JANUS: &str = "janus-browser";
/// Name of the contender that shows it behind a WHIP server, Pion's example; and the port of that server, which cannot be chosen.
const WHIP: &str = "whip";
const WHIP_PORT: u16 = 8080;
/// Address of that server without a link, in a network namespace: it offers no address of the loopback interface.
const WHIP_ADDRESS: &str = "10.213.0.1";
/// Bit rate of every encoder, kilobits per second.
pub(super) const KILOBITS: u32 = 12_000;
/// Best quality of every encoder, a number of x264: below the bit rate, it limits the bits.
pub(super) const CRF: u32 = 22;
/// Threads of every encoder and decoder: each has its slice of a picture, so that none delays a picture.
pub(super) const THREADS: u32 = 2;
/// Distance of keyframes, pictures: ten seconds. All contenders have a keyframe at the start, and nothing is lost.
pub(super) const GOP: u32 = 600;
/// Distance of keyframes on a link, and for ffplay, pictures: two seconds. The link may lose packets, and most contenders cannot ask
/// for a keyframe.
const GOP_ON_LINK: u32 = 120;
/// Longest wait until an end listens.
const LISTENING: Duration = Duration::from_secs(10);
/// State of a TCP socket that listens, and of a UDP socket without a peer, in /proc/net/tcp and /proc/net/udp.
const TCP_LISTENS: &str = "0A";
const UDP_BOUND: &str = "07";

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

/// Program, screen, addresses and port for the commands of a contender.
struct Ends<'a> {
    framepath: &'a str,
    /// X display that is sent.
    from: &'a str,
    /// IP addresses of the sender and of the receiver.
    sender: &'a str,
    receiver: &'a str,
    /// Port of the end that listens.
    port: u16,
    /// Distance of keyframes, pictures.
    gop: u32,
    /// Empty folder, which is removed when the contender has ended.
    folder: &'a str,
    /// The program `contrib/janus/fanout`, and Pion's WHIP server.
    fanout: &'a str,
    whip: &'a str,
    /// True if the ends are at the ends of a link.
    has_link: bool,
    /// Ledgers that framepath records; `None` for none.
    files: Option<&'a LedgerFiles>,
}

/// All contenders.
pub(super) static STREAMERS: &[Streamer] = &[
    Streamer { name: OURS, elements: &[], commands: native, listens: true },
    Streamer { name: BROWSER, elements: &[], commands: browser, listens: true },
    Streamer { name: JANUS, elements: &[], commands: janus_browser, listens: true },
    Streamer { name: WHIP, elements: &[], commands: by_whip, listens: true },
    Streamer { name: "gst-rtp0", elements: &GST_RTP, commands: gst_rtp_without_buffer, listens: false },
    Streamer { name: "gst-rtp", elements: &GST_RTP, commands: gst_rtp, listens: false },
    Streamer { name: "gst-srt", elements: &GST_SRT, commands: gst_srt, listens: false },
    Streamer { name: "ffplay", elements: &[], commands: ffplay, listens: false },
];

/// An element of GStreamer: its name, and Debian's package with it.
pub(super) type GstElement = (&'static str, &'static str);

/// GStreamer's capture of a screen.
pub(super) const XIMAGESRC: GstElement = ("ximagesrc", "gstreamer1.0-plugins-good");
const GST_RTP: [GstElement; 6] = [
    ("x264enc", "gstreamer1.0-plugins-ugly"),
    XIMAGESRC,
    ("rtph264pay", "gstreamer1.0-plugins-good"),
    ("rtpjitterbuffer", "gstreamer1.0-plugins-good"),
    ("avdec_h264", "gstreamer1.0-libav"),
    ("ximagesink", "gstreamer1.0-x"),
];
const GST_SRT: [GstElement; 7] = [
    ("x264enc", "gstreamer1.0-plugins-ugly"),
    XIMAGESRC,
    ("h264parse", "gstreamer1.0-plugins-bad"),
    ("mpegtsmux", "gstreamer1.0-plugins-bad"),
    ("srtsink", "gstreamer1.0-plugins-bad"),
    ("avdec_h264", "gstreamer1.0-libav"),
    ("ximagesink", "gstreamer1.0-x"),
];
/// Key of SRTP, for measurements only: 30 bytes in Base64.
const KEY: &str = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkw";
/// The browser.
const CHROMIUM: &str = "chromium";
/// Programs of the contenders, and Debian's packages with them.
const PACKAGES: [(&str, &str); 6] = [
    ("janus", "janus"),
    (CHROMIUM, "chromium"),
    ("gst-inspect-1.0", "gstreamer1.0-tools"),
    ("gst-launch-1.0", "gstreamer1.0-tools"),
    ("ffmpeg", "ffmpeg"),
    ("ffplay", "ffmpeg"),
];

fn native(ends: &Ends<'_>) -> [Vec<String>; 2] {
    let Ends { sender, port, .. } = ends;
    [native_sender(ends), receiver_of(ends, &format!("http://{sender}:{port}/whep token=lab"))]
}

/// Returns the words of framepath's receiver of a WHEP server.
fn receiver_of(ends: &Ends<'_>, server: &str) -> Vec<String> {
    // As `framepath view`, with a decoder in the same process as those of the others.
    let recv = format!(
        "recv {server} jitter=0 ! decode threads={THREADS} threading=slice ! queue depth=1 leaky=downstream ! play"
    );
    framepath_run(ends, 1, recv)
}

fn native_sender(ends: &Ends<'_>) -> Vec<String> {
    let Ends { sender, port, .. } = ends;
    sender_to(ends, &format!("send listen={sender}:{port} token=lab"))
}

/// Returns the words of framepath's sender with the sink `send`.
fn sender_to(ends: &Ends<'_>, send: &str) -> Vec<String> {
    let Ends { from, gop, .. } = ends;
    let path = format!(
        "x11 {from} rate={RATE} cursor=no ! convert format=yuv420p ! encode h264 bitrate={KILOBITS}k crf={CRF} \
         gop={gop} preset=ultrafast threads={THREADS} ! {send}"
    );
    framepath_run(ends, 0, path)
}

/// Returns the words of `framepath run` with a path, for the sender (0) or the receiver (1).
fn framepath_run(ends: &Ends<'_>, end: usize, path: String) -> Vec<String> {
    let off = || ["--ledger", "off"].map(str::to_owned).to_vec();
    let options = ends.files.map_or_else(off, |files| files.options(end));
    let words = [ends.framepath, "run", "--quiet"].map(str::to_owned);
    words.into_iter().chain(options).chain([path]).collect()
}

/// The sender's page in Chromium.
fn browser(ends: &Ends<'_>) -> [Vec<String>; 2] {
    [native_sender(ends), chromium(ends, "/?picture#lab")]
}

/// Janus beside the sender, and its page in Chromium. Janus ends with the sender.
fn janus_browser(ends: &Ends<'_>) -> [Vec<String>; 2] {
    let Ends { sender, port, fanout, .. } = ends;
    // The port is free, and so are probably those behind it: for RTP, and for Janus's own interface.
    let (rtp, api) = (port.wrapping_add(2), port.wrapping_add(4));
    let serve = format!(
        "setpriv --pdeathsig TERM {fanout} --listen {sender}:{port} --rtp {rtp} --api {api} --key {KEY} --token lab"
    );
    let script = format!("{serve} & exec \"$0\" \"$@\"");
    let run = sender_to(ends, &format!("send rtp=127.0.0.1:{rtp} srtp={KEY}"));
    let words = ["sh".to_owned(), "-c".to_owned(), script].into_iter().chain(run);
    [words.collect(), chromium(ends, "/#lab")]
}

/// Pion's WHIP server beside the sender, and framepath's receiver. The server ends with the sender.
fn by_whip(ends: &Ends<'_>) -> [Vec<String>; 2] {
    let Ends { sender, whip, folder, has_link, .. } = ends;
    let address = if *has_link { sender } else { WHIP_ADDRESS };
    let server = format!("http://{address}:{WHIP_PORT}");
    let serve = format!(
        "cd {folder}; echo lab >index.html; setpriv --pdeathsig TERM {whip} >/dev/null & exec \"$0\" \"$@\""
    );
    let enter = format!("exec nsenter --net --target \"$(cat {folder}/pid)\" \"$0\" \"$@\"");
    let (serve, before) = match has_link {
        true => (serve, Vec::new()),
        false => (
            format!(
                "ip link set lo up; ip link add lab0 type veth peer name lab1; ip link set lab0 up; ip link set lab1 up; \
                 ip address add {WHIP_ADDRESS}/24 dev lab0; echo $$ >{folder}/pid; {serve}"
            ),
            vec!["unshare", "--net"],
        ),
    };
    let script = |before: Vec<&str>, script: &str| {
        before.into_iter().chain(["sh", "-c", script]).map(str::to_owned).collect::<Vec<String>>()
    };
    let sender = [script(before, &serve), sender_to(ends, &format!("send whip={server}/whip"))].concat();
    let receiver = receiver_of(ends, &format!("{server}/whep"));
    [sender, if *has_link { receiver } else { [script(Vec::new(), &enter), receiver].concat() }]
}

/// Returns the words of Chromium with a page of the sender's computer. Its window fills the screen.
fn chromium(ends: &Ends<'_>, page: &str) -> Vec<String> {
    let Ends { sender, port, folder, .. } = ends;
    let options = [
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-dev-shm-usage",
        "--kiosk",
        "--window-position=0,0",
        "--window-size=1920,1080",
    ];
    let page = [format!("--user-data-dir={folder}"), format!("http://{sender}:{port}{page}")];
    [CHROMIUM].into_iter().chain(options).map(str::to_owned).chain(page).collect()
}

/// Returns the words of a GStreamer pipeline's command.
pub(super) fn gst(pipeline: &str) -> Vec<String> {
    ["gst-launch-1.0", "-q"].into_iter().chain(pipeline.split_whitespace()).map(str::to_owned).collect()
}

fn gst_encoded(ends: &Ends<'_>) -> String {
    let Ends { from, gop, .. } = ends;
    format!(
        "ximagesrc display-name={from} use-damage=false show-pointer=false ! video/x-raw,framerate={RATE}/1 ! videoconvert ! \
         video/x-raw,format=I420 ! x264enc tune=zerolatency speed-preset=ultrafast bitrate={KILOBITS} vbv-buf-capacity=83 \
         pass=qual quantizer={CRF} option-string=scenecut=0 key-int-max={gop} threads={THREADS} sliced-threads=true"
    )
}

fn gst_over_rtp(ends: &Ends<'_>, buffer: &str, sink: &str) -> [Vec<String>; 2] {
    let Ends { receiver, port, .. } = ends;
    let encoded = gst_encoded(ends);
    [
        gst(&format!(
            "{encoded} ! rtph264pay config-interval=-1 mtu=1200 ! udpsink host={receiver} port={port} sync=false"
        )),
        gst(&format!(
            "udpsrc address={receiver} port={port} caps=application/x-rtp,media=video,clock-rate=90000,encoding-name=H264 ! \
             {buffer} ! rtph264depay ! avdec_h264 max-threads={THREADS} thread-type=slice ! videoconvert ! {sink}"
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
    let Ends { receiver, port, .. } = ends;
    let encoded = gst_encoded(ends);
    [
        gst(&format!(
            "{encoded} ! h264parse ! mpegtsmux alignment=7 ! queue ! srtsink uri=srt://{receiver}:{port}?mode=caller"
        )),
        gst(&format!(
            "srtsrc uri=srt://{receiver}:{port}?mode=listener ! video/mpegts,systemstream=true,packetsize=188 ! tsdemux ! \
             queue ! h264parse ! avdec_h264 max-threads={THREADS} thread-type=slice ! videoconvert ! \
             ximagesink"
        )),
    ]
}

fn ffplay(ends: &Ends<'_>) -> [Vec<String>; 2] {
    let Ends { from, receiver, port, .. } = ends;
    // ffplay takes longer to begin than for the first keyframe.
    let send = format!(
        "ffmpeg -nostdin -v error -f x11grab -draw_mouse 0 -framerate {RATE} -video_size 1920x1080 -i {from} -pix_fmt yuv420p \
         -c:v libx264 -preset ultrafast -tune zerolatency -threads {THREADS} -crf {CRF} -maxrate {KILOBITS}k -bufsize 1000k \
         -sc_threshold 0 -g {GOP_ON_LINK} -f mpegts udp://{receiver}:{port}?pkt_size=1316"
    );
    let show = format!(
        "ffplay -v error -noborder -left 0 -top 0 -an -fflags nobuffer -flags low_delay -framedrop udp://{receiver}:{port}"
    );
    [send, show].map(|command| command.split_whitespace().map(str::to_owned).collect())
}

impl Streamer {
    /// Starts both ends: the sender of the screen `from`, and the receiver on the screen `to`, at the ends of `link`, or without
    /// one on the loopback interface. framepath records ledgers in `files`, the others have none.
    ///
    /// # Errors
    /// [`LabError::Missing`] if a program or an element is not installed, or another program than framepath does not listen;
    /// [`LabError::Unknown`] if an end fails at once.
    pub(super) fn start(
        &self,
        settings: &ExperimentSettings,
        [from, to]: &[Display; 2],
        link: Option<&TestLink>,
        files: Option<&LedgerFiles>,
    ) -> Result<Streaming, LabError> {
        self.elements.iter().try_for_each(|element| check_element(*element))?;
        let fanout = fanout(settings);
        if self.name == JANUS {
            check_janus(&fanout)?;
        }
        let whip = settings.peers.join("whip-whep");
        if self.name == WHIP && !whip.is_file() {
            return Err(LabError::Missing(format!("no {}; make -C peers whip-whep", whip.display())));
        }
        let framepath = settings.framepath.to_string_lossy();
        let port = if self.name == WHIP { WHIP_PORT } else { free_port()? };
        let [sender, receiver] = if link.is_some() { ADDRESSES } else { ["127.0.0.1"; 2] };
        let from_name = from.x_name()?;
        let gop = if link.is_some() { GOP_ON_LINK } else { GOP };
        let folder = temporary_folder()?;
        let path = folder.path().to_string_lossy();
        let ends = Ends {
            framepath: &framepath,
            from: from_name,
            sender,
            receiver,
            port,
            gop,
            folder: &path,
            fanout: &fanout.to_string_lossy(),
            whip: &whip.to_string_lossy(),
            has_link: link.is_some(),
            files,
        };
        let commands = (self.commands)(&ends);
        let start = |end: usize| {
            let words = link.map_or(Vec::new(), |link| link.entering(end));
            StreamEnd::start(&[words, commands[end].clone()].concat(), [from, to][end])
        };
        let first = start(if self.listens { 0 } else { 1 })?;
        let first = listening(first, self.name, port, self.listens)?;
        let second = start(if self.listens { 1 } else { 0 })?;
        let ends = if self.listens { [first, second] } else { [second, first] };
        Ok(Streaming { name: self.name, address: format!("{sender}:{port}"), ends, _folder: folder })
    }
}

/// Returns where the checkout has `contrib/janus/fanout`: its folder `target` has the peers.
fn fanout(settings: &ExperimentSettings) -> PathBuf {
    settings.peers.join("../../contrib/janus/fanout")
}

/// Checks that Janus and the program in front of it are there.
fn check_janus(fanout: &Path) -> Result<(), LabError> {
    if !fanout.is_file() {
        return Err(LabError::Missing(format!("no {}; run it in a checkout", fanout.display())));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&folders).any(|folder| folder.join("janus").is_file()) {
        true => Ok(()),
        false => Err(missing_program("janus")),
    }
}

/// Waits until the end `end` of the contender `name` listens on `port`: on TCP, or else on UDP.
pub(super) fn listening(
    mut end: StreamEnd,
    name: &str,
    port: u16,
    is_tcp: bool,
) -> Result<StreamEnd, LabError> {
    let (files, state) = if is_tcp { (["tcp", "tcp6"], TCP_LISTENS) } else { (["udp", "udp6"], UDP_BOUND) };
    let since = Instant::now();
    loop {
        // The end's own view, which is that of its network namespace.
        let read = |file| fs::read_to_string(format!("/proc/{}/net/{file}", end.id())).unwrap_or_default();
        if files.into_iter().any(|file| has_socket(&read(file), port, state)) {
            return Ok(end);
        }
        if since.elapsed() > LISTENING {
            return Err(failed(name, &format!("it does not listen within 10 s{}", end.said())));
        }
        sleep(Duration::from_millis(10));
    }
}

/// Returns true if `sockets`, a file of /proc/net, has a socket with this port and state.
fn has_socket(sockets: &str, port: u16, state: &str) -> bool {
    let port = format!(":{port:04X}");
    sockets.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next();
        local.is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some(state)
    })
}

/// Returns the error `what` of a contender. For other programs than framepath it is one that skips the contender.
pub(super) fn failed(name: &str, what: &str) -> LabError {
    let text = format!("{name}: {what}");
    if name == OURS { LabError::Unknown(text) } else { LabError::Missing(text) }
}

/// Checks that GStreamer has an element.
///
/// # Errors
/// [`LabError::Missing`] with the package that has it.
pub(super) fn check_element((element, package): GstElement) -> Result<(), LabError> {
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
pub(super) fn missing_program(program: &str) -> LabError {
    let package = PACKAGES.iter().find(|(name, _)| *name == program);
    let remedy = package.map_or(String::new(), |(_, package)| format!("; apt install {package}"));
    LabError::Missing(format!("{program} is not installed{remedy}"))
}

/// Returns a port of the loopback interface that neither TCP nor UDP uses now.
pub(super) fn free_port() -> Result<u16, LabError> {
    let free = || {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        UdpSocket::bind(("127.0.0.1", port)).map(|_| port)
    };
    free().map_err(LabError::io("finding a free port"))
}

/// Both ends of a running contender.
pub(super) struct Streaming {
    name: &'static str,
    /// IP address of the sender, with the port of the end that listens.
    address: String,
    ends: [StreamEnd; 2],
    /// Folder of the contender; it is removed behind the end of both.
    _folder: TempDir,
}

impl Streaming {
    /// Returns the error `what`, with what the ends have written. For other programs than framepath it is one that skips the
    /// contender.
    pub(super) fn failed(mut self, what: &str) -> LabError {
        let said: String = self.ends.iter_mut().map(StreamEnd::said).collect();
        failed(self.name, &format!("{what}{said}"))
    }

    /// Returns the CPU time of the sender and of the receiver until now, nanoseconds.
    ///
    /// # Errors
    /// An end has ended; as [`failed`](Streaming::failed).
    pub(super) fn cpu_ns(&mut self) -> Result<[u64; 2], LabError> {
        let [sender, receiver] = &mut self.ends;
        Ok([sender.cpu_ns(self.name)?, receiver.cpu_ns(self.name)?])
    }

    /// Returns the resident memory of the sender and of the receiver, KiB.
    ///
    /// # Errors
    /// An end has ended; as [`failed`](Streaming::failed).
    pub(super) fn memory_kib(&mut self) -> Result<[u64; 2], LabError> {
        let [sender, receiver] = &mut self.ends;
        Ok([sender.memory_kib(self.name)?, receiver.memory_kib(self.name)?])
    }

    /// Reads the counts of framepath's sender.
    ///
    /// # Errors
    /// As [`SenderTotals::read`].
    pub(super) fn sender_totals(
        &self,
        settings: &ExperimentSettings,
        link: Option<&TestLink>,
    ) -> Result<SenderTotals, LabError> {
        let words = link.map_or(Vec::new(), |link| link.entering(0));
        SenderTotals::read(words, settings, &self.address)
    }

    /// Ends both programs as Ctrl-C does.
    ///
    /// # Errors
    /// As [`StreamEnd::end`].
    pub(super) fn end(self) -> Result<(), LabError> {
        let [sender, receiver] = self.ends;
        receiver.end()?;
        sender.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_element_or_program_is_said_with_its_package() {
        let error = check_element(("nosuchelement", "gstreamer1.0-plugins-ugly")).unwrap_err();
        assert!(error.to_string().contains("apt install gstreamer1.0-"), "{error}");
        assert_eq!(missing_program("ffplay").to_string(), "ffplay is not installed; apt install ffmpeg");
    }

    #[test]
    fn sockets_are_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000\n   \
                     1: 0200570A:1F91 0100570A:0016 01 00000000\n";
        assert!(has_socket(table, 0x1f90, TCP_LISTENS));
        assert!(!has_socket(table, 0x1f91, TCP_LISTENS) && !has_socket(table, 0x16, TCP_LISTENS));
    }
}
