// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that another program has split into RTP payloads: FFmpeg sends the clips over UDP, and the reassembly joins the same frames.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use framepath_model::access_unit::{Coding, nals};
use framepath_net::{Reassembly, ReassemblyCounts, RtpArrival};

fn clip(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../clips")).join(name)
}

/// Lets FFmpeg send the clip `name`, and joins its packets. Returns the frames.
fn received(name: &str, coding: Coding) -> Vec<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let port = socket.local_addr().unwrap().port();
    // RTCP goes to another port, which nobody reads.
    let url = format!(
        "rtp://127.0.0.1:{port}?rtcpport={}&pkt_size=1000",
        if port > 1024 { port - 1 } else { port + 1 }
    );
    let clip = clip(name);
    // In real time, because the socket's buffer is small.
    let mut sender = Command::new("ffmpeg")
        .args(["-v", "error", "-re", "-i", clip.to_str().unwrap(), "-c", "copy", "-strict", "experimental"])
        .args(["-f", "rtp", "-seq", "100", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut reassembly = Reassembly::new(coding, 1_000_000_000).unwrap();
    let (mut frames, mut bytes, mut is_over) = (Vec::new(), [0; 2000], false);
    while !is_over {
        is_over = sender.try_wait().unwrap().is_some();
        while let Ok(length) = socket.recv(&mut bytes) {
            // A header of 12 bytes without extensions.
            let [first, second, high, low, t0, t1, t2, t3, _, _, _, _, payload @ ..] = &bytes[..length]
            else {
                panic!("{length} bytes");
            };
            assert_eq!(*first, 0x80);
            reassembly.push(RtpArrival {
                // From 100 on, and the clip is short.
                seq: u64::from(u16::from_be_bytes([*high, *low])),
                time: u64::from(u32::from_be_bytes([*t0, *t1, *t2, *t3])),
                marker: second & 0x80 != 0,
                number: None,
                payload: payload.into(),
                arrived_ns: 0,
            });
            frames.extend(std::iter::from_fn(|| reassembly.poll(0)).map(|frame| frame.bytes));
        }
    }
    assert!(sender.wait().unwrap().success());
    frames.extend(std::iter::from_fn(|| reassembly.finish()).map(|frame| frame.bytes));
    assert_eq!(reassembly.counts(), ReassemblyCounts::default());
    frames
}

#[test]
fn hevc_of_ffmpeg_is_joined() {
    let frames = received("hevc-180p8.hevc", Coding::Hevc);
    assert!(frames.len() > 5, "{}", frames.len());
    let bytes = fs::read(clip("hevc-180p8.hevc")).unwrap();
    assert!(frames.iter().flat_map(|frame| nals(frame)).eq(nals(&bytes)));
}

#[test]
fn vp9_of_ffmpeg_is_joined() {
    let frames = received("vp9-180p8.ivf", Coding::Vp9);
    // A header of 32 bytes; in front of each frame its size and time.
    let bytes = fs::read(clip("vp9-180p8.ivf")).unwrap();
    let (mut rest, mut expected) = (&bytes[32..], Vec::new());
    while let Some((head, behind)) = rest.split_at_checked(12) {
        let size = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        expected.push(&behind[..size]);
        rest = &behind[size..];
    }
    assert!(expected.len() > 5 && frames == expected, "{} of {}", frames.len(), expected.len());
}
