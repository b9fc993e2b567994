// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that are lost on the way.

use framepath_testkit::wait;

use crate::clip::{FRAMES, GROUP, h264, hashes, hashes_of, hevc, large, own_payloads};
use crate::proxy::{Dropped, Proxy};
use crate::sender::start;

pub fn a_lost_packet_is_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    // One of them is the first of all.
    for lost in [0, 30] {
        let sending = start(&clip, "rate=50", "wait=1");
        let proxy = Proxy::start(sending.port, Dropped::FirstOf(lost));
        let output = wait(sending.watch_at(&proxy.url, "latency=5s"), "recv").ended(0);
        assert_eq!(proxy.end(), 1, "{lost}");
        assert_eq!(hashes(&output.frames()), hashes_of(&clip), "{lost}");
        assert_eq!(output.stderr, "", "{lost}");
        sending.end().ended(0);
    }
}

pub fn without_latency_a_lost_packet_costs_the_frames_up_to_the_next_keyframe() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let all = hashes_of(&clip);
    // A frame inside a group, and a keyframe.
    for lost in [30, 2 * GROUP] {
        let sending = start(&clip, "rate=50", "wait=1");
        let proxy = Proxy::start(sending.port, Dropped::FirstOf(lost));
        let output = wait(sending.watch_at(&proxy.url, "latency=0s"), "recv").ended(3);
        assert_eq!(proxy.end(), 1);
        let next = (lost / GROUP + 1) * GROUP;
        let expected = [&all[..lost], &all[next..]].concat();
        assert_eq!(hashes(&output.frames()), expected);
        let count = FRAMES - expected.len();
        let output = output.prints(&format!(": lost {count} frames: 1 RTP packet did not arrive in time"));
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        sending.end().ended(0);
    }
}

pub fn a_loss_in_hevc_vp9_and_av1_costs_the_frames_up_to_the_next_keyframe() {
    let folder = tempfile::tempdir().unwrap();
    for clip in own_payloads(folder.path()) {
        let all = hashes_of(&clip);
        // A frame inside a group, and a keyframe. In HEVC, the order of decoding is another one, so only the groups' bounds are known.
        for lost in [30, 2 * GROUP] {
            let sending = start(&clip, "rate=50", "wait=1");
            let proxy = Proxy::start(sending.port, Dropped::FirstOf(lost));
            let output = wait(sending.watch_at(&proxy.url, "latency=0s"), "recv").ended(3);
            assert_eq!(proxy.end(), 1);
            let got = hashes(&output.frames());
            let (group, next) = (lost / GROUP * GROUP, (lost / GROUP + 1) * GROUP);
            let before = got.len() + next - FRAMES;
            assert!((group..=lost).contains(&before), "{}: {before} of {lost}", clip.display());
            assert_eq!((&got[..group], &got[before..]), (&all[..group], &all[next..]), "{}", clip.display());
            assert!(
                got[group..before].iter().all(|hash| all[group..next].contains(hash)),
                "{}",
                clip.display()
            );
            output.prints(": 1 RTP packet did not arrive in time");
            sending.end().ended(0);
        }
    }
}

pub fn a_loss_in_front_of_an_open_group_shows_no_damaged_picture() {
    let folder = tempfile::tempdir().unwrap();
    let clip = hevc(folder.path(), "open.mkv", true);
    let all = hashes_of(&clip);
    let sending = start(&clip, "rate=50", "wait=1");
    let proxy = Proxy::start(sending.port, Dropped::FirstOf(30));
    let output = wait(sending.watch_at(&proxy.url, "latency=0s"), "recv").ended(3);
    assert_eq!(proxy.end(), 1);
    let numbers: Vec<_> =
        hashes(&output.frames()).iter().map(|hash| all.iter().position(|other| other == hash)).collect();
    assert!(numbers.iter().all(Option::is_some) && numbers.is_sorted(), "{numbers:?}");
    // Behind the loss, the two pictures of the group that are shown before its keyframe are missing, too.
    let behind: Vec<usize> =
        numbers.iter().flatten().copied().filter(|number| *number >= 2 * GROUP - 2).collect();
    assert_eq!(behind, (2 * GROUP..FRAMES).collect::<Vec<_>>(), "{numbers:?}");
    sending.end().ended(0);
}

pub fn the_loss_of_the_last_frames_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    for kept in [30, FRAMES - 1] {
        let sending = start(&clip, "rate=50", "wait=1");
        let proxy = Proxy::start(sending.port, Dropped::AllFrom(kept));
        let output = wait(sending.watch_at(&proxy.url, ""), "recv").ended(3);
        assert!(proxy.end() > 0);
        assert_eq!(hashes(&output.frames()), hashes_of(&clip)[..kept]);
        let (count, s) = (FRAMES - kept, if FRAMES - kept == 1 { "" } else { "s" });
        output.prints(&format!(": lost {count} frame{s}: 1 RTP packet did not arrive in time"));
        sending.end().ended(0);
    }
}

pub fn the_loss_of_the_first_frames_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=50", "wait=1");
    let proxy = Proxy::start(sending.port, Dropped::AllBefore(GROUP + 5));
    let output = wait(sending.watch_at(&proxy.url, ""), "recv").ended(3);
    assert!(proxy.end() > 0);
    assert_eq!(hashes(&output.frames()), hashes_of(&clip)[2 * GROUP..]);
    output.prints(&format!(": lost {} frames: ", 2 * GROUP));
    sending.end().ended(0);
}

pub fn frames_that_the_sender_drops_are_lost_for_the_viewer() {
    let folder = tempfile::tempdir().unwrap();
    // 40 MB at once, of which 16 MiB may wait.
    let (clip, rounds) = (large(folder.path()), 20);
    let sending = start(&clip, &format!("loop={rounds}"), "wait=1");
    let output = wait(sending.watch(""), "recv").ended(3);
    let lost = 12 * rounds - output.frames().len();
    output.prints(&format!(": lost {lost} frames: {lost} frames were dropped by the sender, "));
    sending.end().ended(0).prints(&format!("send: dropped {lost} of {} frames ", 12 * rounds));
}

pub fn three_percent_of_loss_cost_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let sending = start(&clip, "rate=50", "wait=1");
    // Nothing asks for a packet without a later one.
    let proxy = Proxy::start(sending.port, Dropped::OneOf(33, FRAMES - 2));
    let output = wait(sending.watch_at(&proxy.url, "latency=5s"), "recv").ended(0);
    let dropped = proxy.end();
    assert!(dropped >= 3, "{dropped}");
    assert_eq!(hashes(&output.frames()), hashes_of(&clip));
    assert_eq!(output.stderr, "");
    sending.end().ended(0);
}
