// SPDX-License-Identifier: MIT OR Apache-2.0
//! A demuxer's worker, or a decoder's, ends before the file does.

use crate::frames_of;
use crate::harness::{in_checkout, run};

/// Frames in the order of packets: no reordering, one thread.
const CLIP: &str = "clips/vp9-180p8.ivf";

#[test]
fn frames_before_a_demuxers_end_are_delivered_and_the_run_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
    let clip = in_checkout(CLIP);
    let path = |options: &str, listing: &std::path::Path| {
        let (clip, listing) = (clip.display(), listing.display());
        format!("file {clip} {options} ! decode host=process threads=1 ! framemd5 {listing}")
    };
    run(&["run", &path("", &whole)]).ended(0);
    let whole = frames_of(&whole);
    for (fault, packets) in [("crash@0", 0), ("crash@1", 1), ("crash@17", 17), ("hang@9", 9), ("bomb@5", 5)] {
        let options = format!("fault={fault} watchdog=200ms memory=1GiB");
        let ran = run(&["run", &path(&options, &part)]).ended(1).says("demuxer");
        assert_eq!(frames_of(&part), whole[..packets], "{fault}: {ran:#?}");
    }
}

#[test]
fn a_decoders_end_does_not_lose_the_place_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let listing = folder.path().join("listing");
    let clip = in_checkout(CLIP);
    let mut listings = Vec::new();
    for fault in ["", "fault=crash@3,crash@20", "fault=hang@11 watchdog=200ms"] {
        let (clip, listing) = (clip.display(), listing.display());
        let path = format!("file {clip} loop=2 ! decode host=process {fault} ! framemd5 {listing}");
        run(&["run", &path]).ended(0);
        listings.push(frames_of(listing.to_string().as_ref()));
    }
    assert!(listings[0].len() > 40);
    assert!(listings.iter().all(|listing| *listing == listings[0]));
}

#[test]
fn a_demuxer_may_have_a_worker_where_its_decoder_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let listing = folder.path().join("listing");
    let clip = in_checkout(CLIP);
    let mut listings = Vec::new();
    for (source, decoder) in [("inline", "inline"), ("process", "inline"), ("inline", "process")] {
        let (clip, listing) = (clip.display(), listing.display());
        let path = format!("file {clip} host={source} ! decode host={decoder} ! framemd5 {listing}");
        run(&["run", &path]).ended(0);
        listings.push(frames_of(listing.to_string().as_ref()));
    }
    assert!(listings[0].len() > 20);
    assert!(listings.iter().all(|listing| *listing == listings[0]));
}
