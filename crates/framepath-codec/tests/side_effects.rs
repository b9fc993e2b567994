// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test that the crate does not change FFmpeg's log level, unless requested.

use std::path::PathBuf;

use ffmpeg_sys_next as ff;
use framepath_codec::{Decoder, DecoderOptions, Demuxer, silence_ffmpeg};

/// Single test of this file, because the log level is global to the process.
#[test]
fn the_log_level_is_the_callers() {
    // SAFETY: reads and writes one integer of libavutil.
    let level = || unsafe { ff::av_log_get_level() };
    // SAFETY: as above.
    unsafe { ff::av_log_set_level(ff::AV_LOG_FATAL) };
    let clip = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clips/h264-180p8-container.mp4");
    let mut demuxer = Demuxer::open(&clip).unwrap();
    let mut decoder = Decoder::open(demuxer.info(), &DecoderOptions::default()).unwrap();
    let packet = demuxer.read().unwrap().unwrap();
    decoder.send(packet).unwrap();
    assert_eq!(level(), ff::AV_LOG_FATAL);
    silence_ffmpeg();
    assert_eq!(level(), ff::AV_LOG_QUIET);
}
