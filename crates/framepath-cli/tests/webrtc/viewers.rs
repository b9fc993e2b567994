// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewers that watch, join late, leave, and are left.

use framepath_testkit::{framepath, run, until, wait};
use rustix::process::Signal;

use crate::clip::{FRAMES, GROUP, h264, hashes, hashes_of, own_payloads, vp8};
use crate::refusals::request;
use crate::sender::{signal, start, start_controlled};

pub fn all_frames_of_a_clip_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let mut clips = vec![
        h264(folder.path(), "clip.h264", "0"),
        // Lengths in place of start codes, and parameter sets in the file's head only.
        h264(folder.path(), "clip.mp4", "0"),
        h264(folder.path(), "order.mp4", "2"),
        vp8(folder.path()),
    ];
    clips.extend(own_payloads(folder.path()));
    for clip in clips {
        let all = hashes_of(&clip);
        let sending = start(&clip, "rate=100", "wait=1");
        let viewer = sending.watch("latency=5s");
        let output = wait(viewer, "recv").ended(0);
        assert_eq!(hashes(&output.frames()), all, "{}", clip.display());
        assert_eq!(output.stderr, "");
        sending.end().ended(0);
    }
}

pub fn a_viewer_records_the_stream_where_the_container_needs_no_size() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    for (name, code) in [("copy.ts", 0), ("copy.mkv", 1)] {
        let sending = start(&clip, "rate=100", "wait=1");
        let copy = folder.path().join(name);
        let path =
            format!("recv {} token={} latency=5s ! mux {}", sending.url, sending.token, copy.display());
        let output = run(&["run", "--quiet", &path]).ended(code);
        if code == 0 {
            assert_eq!(hashes_of(&copy), hashes_of(&clip));
        } else {
            output.prints("mkv needs the size of the pictures, which this source does not know");
            assert!(!copy.exists());
        }
        sending.signal(Signal::INT);
        sending.end();
    }
}

pub fn two_viewers_get_all_frames() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    let sending = start(&clip, "rate=100", "wait=2");
    let viewers = [sending.watch("latency=5s"), sending.watch("latency=5s")];
    for viewer in viewers {
        assert_eq!(hashes(&wait(viewer, "recv").ended(0).frames()), all);
    }
    sending.end().ended(0);
}

pub fn a_late_viewer_starts_at_a_keyframe() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    // Without an end of its own, because a busy machine may need long for the second viewer.
    let sending = start(&clip, "rate=50 loop=1000", "wait=1");
    let first = sending.watch("latency=5s");
    sending.until_begun();
    let late = sending.watch("latency=5s");
    until("the late viewer has frames", || {
        let page = request(&sending, "GET /metrics HTTP/1.1", "");
        let sent = page
            .lines()
            .find_map(|line| line.strip_prefix("framepath_send_viewer_frames_total{viewer=\"2\","))
            .and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        sent.is_some_and(|frames| frames as usize > FRAMES)
    });
    sending.signal(Signal::INT);
    let (late, first) = (wait(late, "late recv").ended(0), wait(first, "first recv").ended(0));
    // A viewer that joins late has lost nothing, and the first viewer neither.
    assert_eq!((late.stderr.as_str(), first.stderr.as_str()), ("", ""));
    let [late, first] = [late, first].map(|output| hashes(&output.frames()));
    assert!(first.iter().eq(all.iter().cycle().take(first.len())), "{} frames", first.len());
    let start = all.iter().position(|hash| *hash == late[0]).unwrap();
    assert_eq!(start % GROUP, 0);
    assert!(late.iter().eq(all.iter().cycle().skip(start).take(late.len())), "{} frames", late.len());
    assert!(late.len() + GROUP <= first.len(), "{} of {} frames", late.len(), first.len());
    sending.end().ended(130);
}

pub fn a_killed_viewer_does_not_disturb_another() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    let sending = start(&clip, "rate=50", "wait=2");
    let (killed, other) = (sending.watch("latency=5s"), sending.watch("latency=5s"));
    sending.until_begun();
    signal(&killed, Signal::KILL);
    assert_eq!(wait(killed, "killed recv").code, None);
    assert_eq!(hashes(&wait(other, "other recv").ended(0).frames()), all);
    sending.end().ended(0);
}

pub fn a_sender_that_disappears_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=10", "wait=1");
    let viewer = sending.watch("timeout=2s");
    sending.until_begun();
    sending.signal(Signal::KILL);
    assert_eq!(sending.end().code, None);
    wait(viewer, "recv").ended(1).prints("no datagram from 127.0.0.1:").prints("the sender has disappeared");
}

pub fn a_sender_whose_run_fails_is_an_error_at_its_viewers() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    // The demuxer dies in the middle of the stream.
    let sending = start(&clip, "rate=50 host=process fault=crash@20", "wait=1");
    let viewer = sending.watch("latency=5s");
    sending.end().ended(1).prints("demuxer");
    let output =
        wait(viewer, "recv").ended(1).prints("the sender's stream has failed; frames may be missing");
    assert_eq!(hashes(&output.frames()), all[..20]);
}

pub fn an_interrupted_sender_ends_its_viewers() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    let sending = start(&clip, "rate=10", "wait=1");
    let viewer = sending.watch("latency=5s");
    sending.until_begun();
    sending.signal(Signal::INT);
    sending.end().ended(130);
    let output = wait(viewer, "recv");
    // Without a single frame, the viewer's run fails.
    let got = hashes(&output.frames());
    assert_eq!(output.code, Some(i32::from(got.is_empty())), "{output:?}");
    assert_eq!(got, all[..got.len()]);
}

pub fn the_user_sees_and_ends_viewers() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let mut sending = start_controlled(&clip, "rate=50 loop=1000", "wait=1");
    sending.enter("viewers");
    sending.until_printed("send: no viewers");
    let first = sending.watch("");
    sending.until_begun();
    let second = sending.watch("");
    until("both watch", || {
        let page = request(&sending, "GET /metrics HTTP/1.1", "");
        page.contains("\nframepath_send_viewers 2\n")
            && page.contains("framepath_send_viewer_frames_total{viewer=\"2\",address=\"127.0.0.1\"} ")
    });
    sending.enter("viewers");
    sending.until_printed("send: viewer 2: 127.0.0.1, for ");
    let address = format!("127.0.0.1:{}", sending.port);
    let table = run(&["top", "--once", "--sender", &address]).ended(0).stdout;
    assert!(table.starts_with("2 viewers, 2 connected so far, "), "{table}");
    assert!(table.lines().any(|line| line.trim_start().starts_with("2 127.0.0.1 ")), "{table}");
    for (line, answer) in [
        ("end 7", "there is no viewer 7"),
        ("end", "`viewers` lists the viewers, `end NUMBER`"),
        ("end x", "x: expected a viewer's number or `all`"),
    ] {
        sending.enter(line);
        sending.until_printed(answer);
    }
    const REASON: &str = "the sender has ended this viewer's session";
    sending.enter("end 1");
    wait(first, "the first viewer").ended(1).prints(REASON);
    let page = request(&sending, "GET /metrics HTTP/1.1", "");
    assert!(page.contains("\nframepath_send_viewers 1\n"), "{page}");
    sending.enter("end all");
    wait(second, "the second viewer").ended(1).prints(REASON);
    sending.signal(Signal::INT);
    sending.end().ended(130);
}

pub fn an_interrupted_viewer_ends() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=25", "wait=1");
    let viewer = sending.watch("");
    sending.until_begun();
    signal(&viewer, Signal::INT);
    wait(viewer, "recv").ended(130);
    let output = sending.end().ended(0);
    assert!(output.stderr.contains(": left"), "{}", output.stderr);
}

pub fn a_slow_display_shows_the_newest_frames() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=50", "wait=1");
    // Each frame takes as long as three do on the network.
    let path = format!(
        "recv {} token={} timeout=60s latency=5s ! decode ! queue depth=1 leaky=downstream ! block time=60ms ! \
         play driver=null",
        sending.url, sending.token
    );
    let output = wait(framepath(&["run", "--quiet", "--json", "-", &path]).spawn().unwrap(), "recv").ended(0);
    assert_eq!(output.stderr, "");
    let summary: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let [shown, late, dropped] =
        ["shown", "late", "dropped"].map(|key| summary["rows"][0][key].as_f64().unwrap() as usize);
    assert_eq!((shown + dropped, late), (FRAMES, 0), "{dropped} dropped");
    assert!(dropped > 0 && shown > 1, "{dropped} dropped");
    sending.end().ended(0);
}

pub fn a_slow_path_with_a_backlog_drops_up_to_a_keyframe() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    let sending = start(&clip, "rate=50", "wait=1");
    // Each frame takes as long as five do on the network.
    let path = format!(
        "recv {} token={} timeout=60s latency=5s backlog=300ms ! decode ! block time=100ms ! framemd5 -",
        sending.url, sending.token
    );
    let output = wait(framepath(&["run", "--quiet", &path]).spawn().unwrap(), "recv").ended(3);
    let got = hashes(&output.frames());
    let lost = FRAMES - got.len();
    assert!(lost > 0, "{}", got.len());
    let output = output.prints(&format!(": lost {lost} frames: the path is slower than the stream"));
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    // Nothing is damaged: a frame follows the one in front of it, or is a keyframe.
    let numbers: Vec<usize> =
        got.iter().map(|hash| all.iter().position(|other| other == hash).unwrap()).collect();
    for pair in numbers.windows(2) {
        assert!(pair[1] == pair[0] + 1 || pair[1] > pair[0] && pair[1] % GROUP == 0, "{numbers:?}");
    }
    sending.end().ended(0);
}
