// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeks in streams with demuxer and decoder in workers. The frames after a seek equal those
//! of a decode in this process. No frame is lost if a worker dies at a seek.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use framepath::{Frame, Frames, Pipeline, Request, RequestError, SeekTo};
use framepath_testkit::service::ServiceProcess;

/// Presentation time of a frame in the stream's time base, `None` if unknown, and hash of the pixels.
type Shown = (Option<i64>, u64);

/// Number of frames of each clip, at 25 frames per second.
const FRAMES: usize = 60;

/// Ten targets in milliseconds, each with the number of the first frame at or after it, from 0: the
/// start, frames, between frames, backwards, after the end (60, because no frame follows).
const TARGETS: [(u64, usize); 10] = [
    (1000, 25),
    (0, 0),
    (1320, 33),
    (1341, 34),
    (2360, 59),
    (90_000, 60),
    (40, 1),
    (19, 1),
    (1999, 50),
    (720, 18),
];

const X264: &str = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -bf 3 -g 12 -sc_threshold 0 \
                    -x264-params open-gop=1";
const X265: &str = "-c:v libx265 -preset ultrafast -pix_fmt yuv420p -x265-params \
                    log-level=none:bframes=3:b-adapt=0:open-gop=1:scenecut=0:keyint=12";
const ALL: [(&str, &str); 7] = [
    ("a.mp4", X264),
    ("a.h264", X264),
    ("b.mkv", X265),
    ("c.webm", "-c:v libvpx -b:v 300k -g 12 -auto-alt-ref 1 -lag-in-frames 9 -cpu-used 8"),
    ("d.ivf", "-c:v libvpx-vp9 -b:v 300k -g 12 -auto-alt-ref 1 -lag-in-frames 9 -cpu-used 8"),
    ("e.mp4", "-c:v libsvtav1 -preset 12 -g 12 -pix_fmt yuv420p"),
    ("e.ivf", "-c:v libsvtav1 -preset 12 -g 12 -pix_fmt yuv420p"),
];

/// Runs `test` with the command as its worker program; fails if the test does not end in time.
fn ends(test: impl FnOnce() + Send + 'static) {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    framepath_testkit::within_deadline(test);
}

fn ffmpeg(words: &[&str]) {
    let output = Command::new("ffmpeg").args(["-nostdin", "-v", "error", "-y"]).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("this test needs the `ffmpeg` tool: {error}"));
    assert!(output.status.success(), "ffmpeg {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn clip(folder: &Path, name: &str, encoder: &str) -> String {
    let path = folder.join(name).to_str().unwrap().to_owned();
    let frames = FRAMES.to_string();
    let mut words = vec!["-f", "lavfi", "-i", "testsrc2=size=128x96:rate=25,noise=alls=6:allf=t"];
    words.extend(["-frames:v", &frames]);
    words.extend(encoder.split_whitespace());
    words.push(&path);
    ffmpeg(&words);
    path
}

fn shown(frame: &Frame) -> Shown {
    let mut hasher = DefaultHasher::new();
    for plane in 0..frame.layout().planes().len() {
        frame.plane(plane).to_vec().hash(&mut hasher);
    }
    (frame.meta().pts, hasher.finish())
}

fn frames(text: &str) -> Frames {
    Pipeline::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).frames().unwrap()
}

/// Receives `count` frames, or fewer if the stream ends before. Returns their times and hashes.
fn take(frames: &mut Frames, count: usize) -> Vec<Shown> {
    frames.by_ref().take(count).map(|frame| shown(&frame.unwrap())).collect()
}

fn all(text: &str) -> Vec<Shown> {
    take(&mut frames(text), usize::MAX)
}

#[track_caller]
fn assert_tail(text: &str, to: u64, rest: &[Shown], expected: &[Shown]) {
    assert!(
        rest == expected,
        "{text} to {to} ms: {} frames from {:?}, expected {} from {:?}",
        rest.len(),
        rest.first(),
        expected.len(),
        expected.first()
    );
}

/// Checks the frames after a seek to each of [`TARGETS`], with frames in flight and then at the end,
/// and after a seek to a keyframe. `whole` has the frames of a decode in this process.
fn check(text: &str, whole: &[Shown]) {
    let mut stream = frames(text);
    for leave_at in [5, usize::MAX] {
        for (to, first) in TARGETS {
            stream.seek(Duration::from_millis(to), SeekTo::Exact).unwrap();
            let rest = take(&mut stream, leave_at);
            let expected: Vec<_> = whole[first..].iter().take(leave_at).cloned().collect();
            assert_tail(text, to, &rest, &expected);
        }
    }
    stream.seek(Duration::from_millis(1390), SeekTo::KeyframeBefore).unwrap();
    let rest = take(&mut stream, usize::MAX);
    assert!(whole.ends_with(&rest) && (FRAMES - 34..=FRAMES).contains(&rest.len()), "{text}: {}", rest.len());
    let report = stream.report().unwrap();
    assert!(report.error.is_none() && report.losses().is_empty(), "{text}: {report:?}");
    assert!(report.workers.iter().all(|worker| worker.deaths == 0), "{text}: {:?}", report.workers);
    assert!(report.flushed > 0, "{text}");
}

#[test]
fn ten_seeks_in_each_codec_in_a_process() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        for (name, encoder) in ALL {
            let file = clip(folder.path(), name, encoder);
            let whole = all(&format!("file {file} ! decode"));
            assert_eq!(whole.len(), FRAMES, "{name}");
            for path in [
                format!("file {file} ! decode host=process threads=1"),
                format!(
                    "file {file} host=inline ! queue depth=2 ! decode host=process threads=3 ! queue depth=3"
                ),
                format!("file {file} host=process ! decode"),
            ] {
                check(&path, &whole);
            }
        }
    });
}

/// A seek into gradual refresh starts one refresh before a complete one, at an IDR picture or at the first
/// packet. The frame numbers of the refreshes are 0 with `keyint=16`, so libavcodec decodes no refresh from
/// its begin.
#[test]
fn seeks_into_gradual_refresh_deliver_right_frames() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        for (name, options) in [
            ("a.mkv", "keyint=16:bframes=0"),
            ("b.mp4", "keyint=16:bframes=2:b-adapt=0"),
            ("c.ts", "keyint=10:bframes=0:ref=3"),
            ("d.mkv", "keyint=48:bframes=0"),
        ] {
            let encoder = format!("-c:v libx264 -pix_fmt yuv420p -x264-params intra-refresh=1:{options}");
            let file = clip(folder.path(), name, &encoder);
            let whole = all(&format!("file {file} ! decode"));
            assert_eq!(whole.len(), FRAMES, "{name}");
            for path in
                [format!("file {file} ! decode"), format!("file {file} ! decode host=process threads=2")]
            {
                let mut stream = frames(&path);
                for first in (1..FRAMES).step_by(3) {
                    let to = first as u64 * 40;
                    stream.seek(Duration::from_millis(to), SeekTo::Exact).unwrap();
                    let rest = take(&mut stream, usize::MAX);
                    assert_tail(&path, to, &rest, &whole[first..]);
                    stream.seek(Duration::from_millis(to), SeekTo::KeyframeBefore).unwrap();
                    let rest = take(&mut stream, usize::MAX);
                    let is_tail = whole.ends_with(&rest) && rest.len() >= FRAMES - first;
                    assert!(is_tail, "{path} to the keyframe before {to} ms: {} frames", rest.len());
                }
                assert!(stream.report().unwrap().losses().is_empty(), "{path}");
            }
        }
    });
}

#[test]
fn ten_seeks_in_each_codec_in_the_service() {
    ends(|| {
        let service = ServiceProcess::start(&[]);
        let socket = service.socket();
        let folder = tempfile::tempdir().unwrap();
        for (name, encoder) in ALL {
            let file = clip(folder.path(), name, encoder);
            let whole = all(&format!("file {file} ! decode"));
            check(&format!("file {file} ! decode host=service socket={}", socket.display()), &whole);
        }
    });
}

#[test]
fn a_frame_stage_follows_a_packet_stage_in_worker_processes() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = clip(folder.path(), "a.mp4", X264);
        let whole = all(&format!("file {file} ! decode ! threshold"));
        check(&format!("file {file} ! decode host=process ! threshold host=process"), &whole);
    });
}

#[test]
fn demuxers_in_workers_honour_start_loop_and_edit_lists() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        for (name, encoder) in [("a.mp4", X264), ("a.h264", X264), ("e.mp4", ALL[5].1)] {
            let file = clip(folder.path(), name, encoder);
            let whole = all(&format!("file {file} ! decode"));
            for (start, first) in [("1s", 25), ("1341ms", 34), ("2.36s", 59)] {
                let tail = &whole[first..];
                let path = format!("file {file} start={start} loop=3 ! decode host=process");
                assert!(all(&path) == [tail, tail, tail].concat(), "{path}");
            }
            let frames = Pipeline::parse(&format!("file {file} start=9s loop=inf ! decode host=process"));
            let failed: Vec<_> = frames.unwrap().frames().unwrap().collect();
            assert!(matches!(failed[..], [Err(_)]), "{name}: {failed:?}");
            assert!(Pipeline::parse(&format!("file {file} track=1 ! decode host=process")).is_err());
            if name.ends_with("mp4") {
                // The cut begins between two random access points.
                let cut = folder.path().join(format!("cut-{name}")).to_str().unwrap().to_owned();
                ffmpeg(&["-ss", "0.3", "-i", &file, "-c", "copy", &cut]);
                let inline = all(&format!("file {cut} ! decode"));
                assert!(!inline.is_empty() && inline.len() < FRAMES, "{name}: {}", inline.len());
                assert!(all(&format!("file {cut} ! decode host=process")) == inline, "{name}");
            }
        }
    });
}

/// Checks the frames before and after a seek from the end to 1 s, and after a second seek, with a
/// fault at input `number` (from 0) that ends one worker. Inputs 0 to 59 are packets, 60 is the flush.
fn seek_with_fault(file: &str, fault: &str, number: u64, whole: &[Shown]) {
    for threads in [1, 3] {
        let path = format!(
            "file {file} ! decode host=process threads={threads} watchdog=300ms fault={fault}@{number}"
        );
        let mut stream = frames(&path);
        assert_tail(&path, 0, &take(&mut stream, usize::MAX), whole);
        stream.seek(Duration::from_secs(1), SeekTo::Exact).unwrap();
        assert_tail(&path, 1000, &take(&mut stream, usize::MAX), &whole[25..]);
        // Seeks once more, because the next worker must behave like the first.
        stream.seek(Duration::from_millis(1341), SeekTo::Exact).unwrap();
        assert_tail(&path, 1341, &take(&mut stream, usize::MAX), &whole[34..]);
        let report = stream.report().unwrap();
        assert!(report.error.is_none() && report.losses().is_empty(), "{path}: {report:?}");
        assert_eq!(report.workers[0].deaths, 1, "{path}: {:?}", report.workers);
    }
}

#[test]
fn a_worker_death_just_before_at_or_after_a_seek_loses_no_frame() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        for (name, encoder) in [("a.mp4", X264), ("d.ivf", ALL[4].1)] {
            let file = clip(folder.path(), name, encoder);
            let whole = all(&format!("file {file} ! decode"));
            for number in [58, 59, 60, 61, 62, 70] {
                seek_with_fault(&file, "crash", number, &whole);
            }
            seek_with_fault(&file, "hang", 60, &whole);
        }
    });
}

#[test]
fn a_worker_death_during_a_seek_loses_no_frame() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = clip(folder.path(), "a.mp4", X264);
        let whole = all(&format!("file {file} ! decode"));
        // The number of packets submitted before the seek is random, so the fault may be
        // before or after the seek.
        for number in 6..46 {
            let path = format!("file {file} ! decode host=process threads=2 fault=crash@{number}");
            let mut stream = frames(&path);
            assert_tail(&path, 0, &take(&mut stream, 3), &whole[..3]);
            for (to, first) in [(1000, 25), (40, 1), (2000, 50)] {
                stream.seek(Duration::from_millis(to), SeekTo::Exact).unwrap();
                let expected: Vec<_> = whole[first..].iter().take(6).cloned().collect();
                assert_tail(&path, to, &take(&mut stream, 6), &expected);
            }
            stream.seek(Duration::ZERO, SeekTo::Exact).unwrap();
            assert_tail(&path, 0, &take(&mut stream, usize::MAX), &whole);
            assert!(stream.report().unwrap().losses().is_empty(), "{path}");
        }
    });
}

#[test]
fn a_demuxer_death_after_a_seek_is_an_error() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = clip(folder.path(), "a.mp4", X264);
        let mut stream = frames(&format!("file {file} host=process fault=crash@60 ! decode"));
        assert_eq!(take(&mut stream, usize::MAX).len(), FRAMES);
        // Packet 60 is the first after the seek.
        stream.seek(Duration::ZERO, SeekTo::Exact).unwrap();
        let failed: Vec<_> = stream.by_ref().collect();
        assert!(matches!(failed[..], [Err(_)]), "{failed:?}");
        assert_eq!(stream.seek(Duration::ZERO, SeekTo::Exact), Err(RequestError::Ended));
    });
}

#[test]
fn decoding_resumes_at_the_next_random_access_point_after_a_flush() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = clip(folder.path(), "a.mp4", X264);
        let whole = all(&format!("file {file} ! decode"));
        for options in ["", "host=process"] {
            let path = format!("file {file} rate=100 ! decode threads=1 {options}");
            let mut stream = frames(&path);
            assert_tail(&path, 0, &take(&mut stream, 3), &whole[..3]);
            stream.flush().unwrap();
            let rest = take(&mut stream, usize::MAX);
            // Random access points are 12 frames apart.
            assert!(whole.ends_with(&rest) && rest.len() <= FRAMES - 3, "{path}: {}", rest.len());
            assert_eq!(rest.len() % 12, 0, "{path}: {}", rest.len());
        }
    });
}

#[test]
fn after_a_flush_in_a_gradual_refresh_frames_are_right() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        let encoder = "-c:v libx264 -pix_fmt yuv420p -x264-params intra-refresh=1:keyint=16:bframes=0";
        let file = clip(folder.path(), "a.mkv", encoder);
        let whole = all(&format!("file {file} ! decode"));
        for (source, decoder) in [("", ""), ("host=inline", "host=process"), ("host=process", "host=process")]
        {
            let path = format!("file {file} rate=50 {source} ! decode threads=1 {decoder}");
            let mut stream = frames(&path);
            assert_tail(&path, 0, &take(&mut stream, 3), &whole[..3]);
            stream.flush().unwrap();
            let rest = take(&mut stream, usize::MAX);
            assert!(whole.ends_with(&rest), "{path}: {}", rest.len());
            // Behind a worker, the flush may come too late for a complete refresh.
            assert!(!rest.is_empty() || decoder == "host=process", "{path}");
        }
    });
}

#[test]
fn a_seek_wakes_a_path_whose_worker_is_idle() {
    ends(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = clip(folder.path(), "a.mp4", X264);
        let whole = all(&format!("file {file} ! decode"));
        // The next packet is due in a thousand seconds; the decoder may need several packets first.
        let path = format!("file {file} rate=0.001 ! decode host=process threads=1");
        let stream = frames(&path);
        let requests = stream.requests();
        for to in [1000, 0, 2000, 720] {
            requests.seek(Duration::from_millis(to), SeekTo::Exact).unwrap();
        }
        requests.send(Request::Stop).unwrap();
        drop(stream);
        // The worker is idle at the end, after all packets.
        let path = format!("file {file} ! decode host=process threads=1 watchdog=500ms");
        let mut stream = frames(&path);
        assert_tail(&path, 0, &take(&mut stream, usize::MAX), &whole);
        // Longer than the watchdog's timeout, which must not apply to an idle worker.
        std::thread::sleep(Duration::from_millis(1500));
        stream.seek(Duration::from_secs(2), SeekTo::Exact).unwrap();
        assert_tail(&path, 2000, &take(&mut stream, usize::MAX), &whole[50..]);
        assert_eq!(stream.report().unwrap().workers[0].deaths, 0);
    });
}
