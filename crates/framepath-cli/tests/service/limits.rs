// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of a service hold, and a denial names the option that sets the limit.

use framepath_model::wire::Message;

use framepath_testkit::finish;
use framepath_testkit::service::{RawClient, ServiceProcess};

#[test]
fn the_number_of_streams_of_a_user_is_limited() {
    let service = ServiceProcess::start(&["--streams", "2"]);
    let before = service.quiet();
    let (one, other) = (RawClient::connect(&service.socket()), RawClient::connect(&service.socket()));
    one.hello();
    let (first, _worker) = one.granted();
    other.hello();
    let (second, _worker) = other.granted();
    assert_ne!(first, second);
    // The limit applies to the user, whatever the connection.
    other.hello();
    let text = other.denied();
    assert!(text.contains("2 streams already") && text.contains("--streams"), "{text}");
    let ran = finish(service.client("vp9-180p8.ivf", "! decode", "null")).ended(1);
    ran.prints("--streams");
    // A path takes two streams: its demuxer's, and its decoder's.
    one.send(&Message::Release { stream: first });
    other.send(&Message::Release { stream: second });
    finish(service.client("vp9-180p8.ivf", "! decode", "null")).ended(0);
    drop((one, other));
    assert_eq!(service.quiet(), before);
}

#[test]
fn replacements_of_workers_per_minute_are_limited() {
    let service = ServiceProcess::start(&["--replacements-per-minute", "1"]);
    let before = service.quiet();
    let options = "! decode fault=crash@3";
    finish(service.client("vp9-180p8.ivf", options, "null")).ended(0);
    let ran = finish(service.client("vp9-180p8.ivf", options, "null")).ended(1);
    ran.prints("--replacements-per-minute");
    assert_eq!(service.quiet(), before);
}

#[test]
fn new_streams_per_minute_are_limited() {
    // A path opens two streams: its demuxer's, and its decoder's.
    let service = ServiceProcess::start(&["--opens-per-minute", "4"]);
    for _ in 0..2 {
        finish(service.client("vp9-180p8.ivf", "! decode", "null")).ended(0);
    }
    let ran = finish(service.client("vp9-180p8.ivf", "! decode", "null")).ended(1);
    ran.prints("--opens-per-minute");
    assert_eq!(service.snapshot().totals.denied, 1);
}

#[test]
fn the_memory_of_a_worker_is_limited() {
    let service = ServiceProcess::start(&["--memory", "700"]);
    let before = service.quiet();
    // The fault exhausts the worker's memory limit, long before the machine's memory.
    let ran = finish(service.client("vp9-180p8.ivf", "! decode fault=bomb@3", "null")).ended(0);
    ran.shows("replaced a worker once");
    assert_eq!(service.quiet(), before);
}
