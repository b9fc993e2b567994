// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of the reassembly of RTP packets, as a hostile sender chooses them: payloads, numbers, times and
//! markers. No packets make it crash, and the first frame is always one where decoding can start.
#![no_main]

use framepath_model::access_unit::Coding;
use framepath_net::{Reassembly, RtpArrival};
use libfuzzer_sys::fuzz_target;

const CODINGS: [Coding; 5] = [Coding::H264, Coding::Hevc, Coding::Vp8, Coding::Vp9, Coding::Av1];

fuzz_target!(|input: (u8, u8, Vec<(u16, u8, bool, Vec<u8>)>)| {
    let (coding, latency, packets) = input;
    let coding = CODINGS[usize::from(coding) % CODINGS.len()];
    let mut reassembly = Reassembly::new(coding, latency.into()).expect("the codec is supported");
    let mut first = None;
    for (now, (seq, time, marker, payload)) in (0..).zip(packets) {
        let (seq, time, payload) = (seq.into(), time.into(), payload.into());
        reassembly.push(RtpArrival { seq, time, marker, number: None, payload, arrived_ns: now });
        while let Some(frame) = reassembly.poll(now) {
            assert!(*first.get_or_insert(frame.key));
        }
    }
    while reassembly.finish().is_some() {}
});
