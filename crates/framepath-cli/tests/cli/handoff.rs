// SPDX-License-Identifier: MIT OR Apache-2.0
//! `handoff`: every frame once and in order, reported in the peers' format.

use serde_json::Value;

use framepath_testkit::run;

/// Keys with numbers that lab `handoff` reads from a contender, by `peers/README.md`.
const COUNTS: [&str; 10] = [
    "bytes",
    "frames",
    "rate",
    "received",
    "lost",
    "duplicated",
    "out_of_order",
    "copied_bytes",
    "producer_switches",
    "consumer_switches",
];

#[test]
fn every_frame_arrives_once_without_a_copy() {
    // At full speed there are more frames than slots; 4097 bytes fit no picture.
    for (bytes, frames, rate) in [(16, 50, 0), (4097, 1000, 0), (3_110_400, 50, 500)] {
        let words = [bytes, frames, rate].map(|n: u64| n.to_string());
        let args = ["handoff", "--bytes", &words[0], "--frames", &words[1], "--rate", &words[2]];
        let ran = run(&args).ended(0);
        assert_eq!(ran.stdout.lines().count(), 1, "{ran:#?}");
        let figures: Value = serde_json::from_str(&ran.stdout).unwrap();
        let count = |key: &str| figures[key].as_u64().unwrap_or_else(|| panic!("{key}: {figures}"));
        let of: Vec<u64> = COUNTS[..8].iter().map(|key| count(key)).collect();
        assert_eq!(of, [bytes, frames, rate, frames, 0, 0, 0, 0], "{figures}");
        assert!(COUNTS[8..].iter().all(|key| figures[key].is_u64()), "{figures}");
        assert_eq!(figures["contender"], "process");
        for key in ["wall_ns", "producer_cpu_ns", "consumer_cpu_ns"] {
            assert!(count(key) > 0, "{key}: {figures}");
        }
        let latency = ["p50", "p95", "p99", "max"].map(|key| figures["latency_ns"][key].as_u64().unwrap());
        assert!(latency.is_sorted() && latency[0] > 0 && latency[3] < count("wall_ns"), "{figures}");
    }
}

#[test]
fn invalid_arguments_are_usage_errors() {
    for words in ["--bytes 64", "--frames 2", "--bytes 8 --frames 2", "--bytes 64 --frames 0"] {
        let args: Vec<&str> = std::iter::once("handoff").chain(words.split(' ')).collect();
        run(&args).ended(2);
    }
}
