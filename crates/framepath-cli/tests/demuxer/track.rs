// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files with a long track description.

use std::fs;

use crate::frames_of;
use framepath_testkit::{in_checkout, run};

/// Maximum size of a track's description in bytes, including the [`WORDS`] before the codec's head.
const LONGEST: usize = 4 << 20;
/// Size in bytes of the sixteen words before the codec's own head.
const WORDS: usize = 64;

#[test]
fn a_track_description_is_limited_to_4_mib() {
    let folder = tempfile::tempdir().unwrap();
    let (file, listing) = (folder.path().join("long.mkv"), folder.path().join("listing"));
    let clip = fs::read(in_checkout("clips/vp8-99x57p8-odd.ivf")).unwrap();
    let packets = packets_of(&clip);
    let decode = |head: usize| {
        fs::write(&file, matroska(&vec![0; head], &packets)).unwrap();
        let (file, listing) = (file.display(), listing.display());
        run(&["run", "--quiet", &format!("file {file} ! decode host=process ! framemd5 {listing}")])
    };
    decode(16).ended(0);
    let frames = frames_of(&listing);
    assert!(!frames.is_empty());
    decode(LONGEST - WORDS).ended(0);
    assert_eq!(frames_of(&listing), frames);
    for head in [LONGEST - WORDS + 1, 6 << 20] {
        // A run that fails to open the file may leave the previous listing.
        let _ = fs::remove_file(&listing);
        // The error with the length is the demuxer's: a caller that rejects the received
        // message does not know the length.
        decode(head).ended(1).prints(&format!(" {} bytes", head + WORDS));
        assert!(frames_of(&listing).is_empty());
    }
}

/// Returns the packets of an IVF file.
fn packets_of(ivf: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    let mut rest = &ivf[32..];
    while !rest.is_empty() {
        let bytes = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
        packets.push(&rest[12..12 + bytes]);
        rest = &rest[12 + bytes..];
    }
    packets
}

/// Returns a Matroska file of one VP8 track with `head` as its CodecPrivate and a packet every 40 ms.
fn matroska(head: &[u8], packets: &[&[u8]]) -> Vec<u8> {
    let number = |id: u32, value: u16| element(id, &value.to_be_bytes());
    let video = [number(0xb0, 99), number(0xba, 57)].concat();
    let entry = [
        number(0xd7, 1),
        number(0x73c5, 1),
        number(0x83, 1),
        element(0x86, b"V_VP8"),
        element(0xe0, &video),
        element(0x63a2, head),
    ];
    let mut cluster = number(0xe7, 0);
    for (index, packet) in packets.iter().enumerate() {
        let time = (index as u16 * 40).to_be_bytes();
        // Track 1; only the first packet is flagged as keyframe.
        let block = [&[0x81, time[0], time[1], if index == 0 { 0x80 } else { 0 }], *packet].concat();
        cluster.extend(element(0xa3, &block));
    }
    let segment = [
        element(0x1549_a966, &element(0x2a_d7b1, &1_000_000u32.to_be_bytes())),
        element(0x1654_ae6b, &element(0xae, &entry.concat())),
        element(0x1f43_b675, &cluster),
    ];
    [element(0x1a45_dfa3, &element(0x4282, b"matroska")), element(0x1853_8067, &segment.concat())].concat()
}

/// Returns an EBML element: the id, the length in eight bytes, and the content.
fn element(id: u32, content: &[u8]) -> Vec<u8> {
    let id = id.to_be_bytes();
    let start = id.iter().position(|byte| *byte != 0).unwrap();
    let length = ((content.len() as u64) | (1 << 56)).to_be_bytes();
    [&id[start..], &length, content].concat()
}
