// SPDX-License-Identifier: MIT OR Apache-2.0
//! Video from the network: a real RTSP server, lost datagrams, and servers that break every rule. All addresses
//! are on the loopback interface.

mod hostile;
mod relay;
mod rtp;
mod rtsp;
mod server;

use std::path::{Path, PathBuf};

framepath_testkit::tests!(
    rtsp::all_frames_of_a_server_arrive_over_tcp,
    rtsp::frames_of_a_server_arrive_over_udp,
    rtsp::a_stream_goes_on_behind_a_restart_of_its_server,
    rtsp::a_stream_that_ends_is_played_again_until_the_server_is_gone,
    rtsp::a_lost_connection_without_reconnect_is_an_error,
    rtsp::an_unknown_path_is_an_error_of_the_server,
    rtsp::wrong_urls_are_errors_that_say_what_is_right,
    rtsp::an_option_of_another_scheme_is_refused_by_name,
    rtp::lost_datagrams_are_counted_and_the_run_goes_on,
    rtp::a_wrong_description_is_an_error,
    rtp::a_sender_that_never_begins_is_an_error,
    hostile::no_server_makes_a_run_hang_or_crash,
    hostile::a_server_redirects_ten_times_at_most,
    hostile::a_server_cannot_send_the_worker_to_another_port,
);

/// Number of frames of [`clip`].
const FRAMES: usize = 100;

/// Bytes of one frame of [`clip`].
const FRAME_BYTES: usize = 320 * 180 * 3 / 2;

/// Makes an MP4 file with four seconds of H.264 with B frames, a keyframe each second, in `folder`.
fn clip(folder: &Path) -> PathBuf {
    let clip = folder.join("clip.mp4");
    let source = format!("testsrc2=size=320x180:rate=25:duration={}", FRAMES / 25);
    let coding = ["-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "25", "-bf", "2"];
    let file = ["-b:v", "2M", clip.to_str().unwrap()];
    framepath_testkit::ffmpeg(&[&["-f", "lavfi", "-i", &source][..], &coding, &file].concat());
    clip
}

/// Returns the hashes of the frames in framemd5 lines.
fn hashes(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.rsplit(',').next().unwrap().trim().to_owned()).collect()
}

/// Returns the hashes of all frames of the file `clip`.
fn hashes_of(clip: &Path) -> Vec<String> {
    let path = format!("file {} ! decode ! framemd5 -", clip.display());
    let all = hashes(&framepath_testkit::run(&["run", "--quiet", &path]).ended(0).frames());
    assert_eq!(all.len(), FRAMES);
    all
}
