// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service ends after a signal, and leaves no process or file behind.

use framepath_testkit::service::{RawClient, ServiceProcess, lives};
use framepath_testkit::until;
use framepath_testkit::{finish, framepath, wait};

#[test]
fn a_stopping_service_finishes_streams_and_opens_no_new_stream() {
    let service = ServiceProcess::start(&["--grace", "3600"]);
    let talker = RawClient::connect(&service.socket());
    talker.hello();
    let (_, _worker) = talker.granted();
    let client = service.client("vp9-180p8.ivf", "loop=30 ! decode", "framemd5 -").spawn().unwrap();
    let worker = service.stream_of(client.id()).worker_pid;
    let workers = service.workers();
    service.terminate();
    until("its door is closed", || !service.socket().exists());
    talker.hello();
    assert!(talker.denied().contains("stopping"));
    let frames = wait(client, "the client").ended(0).stdout.lines().filter(|l| !l.starts_with('#')).count();
    assert_eq!(frames, 900);
    until("the worker is gone", || !lives(worker));
    drop(talker);
    assert_eq!(service.ended(), Some(0));
    assert!(workers.iter().all(|pid| !lives(*pid)));
}

#[test]
fn the_end_of_the_grace_period_ends_running_paths() {
    let service = ServiceProcess::start(&["--grace", "0"]);
    let client = service.client("vp9-180p8.ivf", "loop=inf ! decode", "null").spawn().unwrap();
    let worker = service.stream_of(client.id()).worker_pid;
    let socket = service.socket();
    service.terminate();
    assert_eq!(service.ended(), Some(0));
    assert!(!lives(worker));
    let ran = wait(client, "the client").ended(1);
    // The error depends on the order in which the two workers of the path end.
    let missed = [format!("no service at {}", socket.display()), "the demuxer's worker ended".to_owned()];
    assert!(missed.iter().any(|missed| ran.stderr.contains(missed)), "{ran:#?}");
}

#[test]
fn a_second_signal_ends_the_service_at_once() {
    let service = ServiceProcess::start(&["--grace", "3600"]);
    let talker = RawClient::connect(&service.socket());
    talker.hello();
    let (_, _worker) = talker.granted();
    let workers = service.workers();
    service.terminate();
    until("its door is closed", || !service.socket().exists());
    service.terminate();
    assert_eq!(service.ended(), Some(0));
    assert!(workers.iter().all(|pid| !lives(*pid)));
    assert!(talker.recv().is_none());
}

/// Workers cannot outlive the service.
#[test]
fn a_killed_service_takes_its_workers_along() {
    let service = ServiceProcess::start(&[]);
    let mut client = service.client("vp9-180p8.ivf", "loop=inf ! decode", "null").spawn().unwrap();
    service.stream_of(client.id());
    let workers = service.workers();
    let socket = service.socket();
    // A second service cannot take the socket of a running service.
    finish(framepath(&["serve", "--socket", socket.to_str().unwrap()])).ended(1).prints("listening at");
    drop(service);
    until("all workers are gone", || workers.iter().all(|pid| !lives(*pid)));
    client.kill().unwrap();
    client.wait().unwrap();
}
