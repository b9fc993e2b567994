// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of the lab's contenders, for readers who see their names for the first time.

/// Known contenders: experiment, name, description as a noun phrase. `*` is any experiment.
const KNOWN: &[(&str, &str, &str)] = &[
    ("compare", "a", "first path or command of the comparison"),
    ("compare", "b", "second path or command of the comparison"),
    ("aa", "a", "`decode threads=1`, compared with itself; every difference is a false one"),
    ("aa", "b", "the same as `a`"),
    ("rpc", "inline", "path in one process, without a worker"),
    ("rpc", "process", "path with one stage in a sandboxed worker; constant information is cached"),
    ("rpc", "process-uncached", "the same, and one query to another process for every frame"),
    ("handoff", "process", "framepath: frames from a sandboxed worker, in shared memory"),
    ("faults", "process", "`decode host=process`, whose workers or clients the experiment makes fail"),
    ("faults", "process-undisturbed", "the same without kills"),
    ("inject", "ledger", "path with a known cost in one cause, and the ledger's figure for this cause"),
    ("queue", "direct", "framepath: the next stage is called directly (`!`), without a ledger"),
    ("queue", "direct-times", "the same with the ledger at `times`"),
    ("queue", "queue", "framepath: a thread boundary (`queue`), without a ledger"),
    ("queue", "queue-times", "the same with the ledger at `times`"),
    ("queue", "gst-direct", "GStreamer: a direct push between two elements"),
    ("queue", "gst-queue", "GStreamer: a push through the element `queue`"),
    ("queue", "gst-queue2", "GStreamer: a push through the element `queue2`"),
    (
        "queue",
        "gst-direct-reuse",
        "GStreamer's direct push of buffers that were made before the clock starts",
    ),
    ("queue", "gst-queue-reuse", "GStreamer's `queue` with buffers that were made before the clock starts"),
    ("encode", "raw", "framepath's raw encoder, which references the frame's memory"),
    ("encode", "raw-copy", "framepath's raw encoder with `copy=1`, which copies the frame"),
    ("encode", "memcpy", "one memcpy of the frame: the lower bound of a copy"),
    ("loopback", "tcp", "a TCP connection over the loopback network"),
    ("loopback", "udp", "UDP with one system call for each datagram"),
    ("loopback", "udp-gso", "UDP with many datagrams in one system call (segmentation in the kernel)"),
    ("m2m", "read", "the device's frames by read(2), which copies"),
    ("m2m", "mmap", "the device's own memory, mapped"),
    ("m2m", "dmabuf", "dmabufs of a heap, lent to the device"),
    ("m2m", "userptr", "ordinary memory, lent to the device"),
    ("m2m", "inline-threshold", "the same stage in this process, without the device"),
    ("m2m", "device-mmap", "the measuring node with its own memory; frames are copied into it"),
    ("m2m", "device-userptr", "the measuring node with the frame's ordinary memory"),
    ("m2m", "device-dmabuf", "the measuring node with the frame's dmabuf"),
    ("m2m", "device-dmabuf-in-place", "the measuring node, which changes the frame's dmabuf in place"),
    ("m2m", "vim2m", "the kernel's test driver vim2m, for comparison"),
    ("stream", "janus-browser", "framepath's sender, and Janus, whose page shows the stream in Chromium"),
    ("stream", "browser", "framepath's sender, whose page shows the stream in Chromium"),
    ("python", "framepath", "framepath's package for Python, decoder in the same process"),
    (
        "python",
        "framepath-process",
        "the same with `host=\"process\"`: demuxer and decoder in sandboxed processes",
    ),
    ("python", "bare", "framepath's package without a look at the frames"),
    ("python", "pyav", "PyAV's wheel (with an FFmpeg of its own), `to_ndarray`"),
    ("python", "pyav-same-ffmpeg", "the same package built on the FFmpeg that framepath uses"),
    ("python", "opencv", "OpenCV's `VideoCapture` (FFmpeg's libraries)"),
    ("python", "decord", "decord's `VideoReader` (FFmpeg's libraries)"),
    ("*", "ffmpeg", "the ffmpeg tool with its default options"),
    ("*", "ffmpeg-t1", "the ffmpeg tool with one decoder thread"),
    ("*", "ffmpeg-v4l2m2m", "the ffmpeg tool with framepath's V4L2 device"),
    ("*", "inline", "framepath's `decode` in the caller's process, with `threads=auto`"),
    ("*", "inline-t1", "framepath's `decode threads=1` in the caller's process"),
    ("*", "inline-native", "framepath's `decode threads=1 format=native`: pixels as the decoder leaves them"),
    ("*", "process", "framepath's `decode host=process`: the decoder in a sandboxed worker"),
    ("*", "process-t1", "the same with one decoder thread"),
    ("*", "service", "framepath's `decode host=service`: a worker of a running `framepath serve`"),
    ("*", "device", "framepath's `decode api=v4l2m2m`: a worker behind the kernel module's V4L2 device"),
    ("*", "bare", "libavcodec alone, without framepath: the lower bound"),
    ("*", "bare-t1", "libavcodec alone with one thread: the lower bound for one thread"),
    ("*", "iceoryx2-wait", "iceoryx2, whose consumer sleeps until a frame arrives"),
    ("*", "iceoryx2-poll", "iceoryx2, whose consumer polls and keeps a core busy"),
    ("*", "gst-unixfd", "GStreamer's `unixfdsink` and `unixfdsrc`: descriptors over a socket"),
    ("*", "gst-shm", "GStreamer's `shmsink` and `shmsrc`: shared memory"),
    ("*", "unix-socket", "a plain Unix socket, through which each frame is copied"),
    ("*", "path", "the path that `framepath run` was given"),
];

/// Returns the description of a contender of an experiment, a noun phrase with names in back quotes; of
/// lab `players` the player, its decode API and its output. `None` for an unknown name.
pub fn contender_description(experiment: &str, contender: &str) -> Option<String> {
    if experiment == "players" {
        let again = contender.strip_suffix("-again");
        let (rest, output) = again.unwrap_or(contender).rsplit_once('-')?;
        let (player, api) = rest.rsplit_once('-')?;
        let once_more = if again.is_some() { ", measured a second time" } else { "" };
        return Some(format!("{player}, decode API {api}, output {output}{once_more}"));
    }
    let of = |experiment: &str| {
        KNOWN.iter().find(|(of, name, _)| *of == experiment && *name == contender).map(|(.., words)| *words)
    };
    of(experiment).or_else(|| of("*")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_may_depend_on_the_experiment() {
        let of = |experiment, contender| contender_description(experiment, contender).unwrap_or_default();
        assert!(of("decode", "process").contains("decoder in a sandboxed worker"));
        assert!(of("rpc", "process").contains("cache"));
        assert_eq!(of("players", "gst-play-vaapi-x11"), "gst-play, decode API vaapi, output x11");
        assert!(of("players", "mpv-software-null-again").ends_with("measured a second time"));
        assert_eq!(contender_description("decode", "no such"), None);
    }
}
