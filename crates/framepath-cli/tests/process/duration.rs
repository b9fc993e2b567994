// SPDX-License-Identifier: MIT OR Apache-2.0
//! The duration that a container declares is known before the first frame, with and without a sandbox.

use std::time::Duration;

use framepath::Pipeline;
use framepath_testkit::in_checkout;

#[test]
fn a_container_declares_the_duration_and_an_elementary_stream_has_none() {
    framepath::host::set_worker_program(env!("CARGO_BIN_EXE_framepath"));
    for (clip, options, expected) in [
        ("h264-180p8-container.mp4", "", Some(1)),
        ("av1-180p8-container.mp4", "start=500ms", Some(1)),
        ("hevc-180p8-container.mkv", "", Some(1)),
        ("vp8-180p8-container.webm", "", Some(1)),
        ("vp9-1080p8.ivf", "", Some(5)),
        ("vp9-180p8.ivf", "loop=2", None),
        ("h264-180p8-high.h264", "", None),
    ] {
        for host in ["inline", "process"] {
            let clip = in_checkout("clips").join(clip);
            let path = format!("file {} {options} ! decode host={host}", clip.display());
            let frames = Pipeline::parse(&path).unwrap().frames().unwrap();
            assert_eq!(frames.duration(), expected.map(Duration::from_secs), "{path}");
        }
    }
}
