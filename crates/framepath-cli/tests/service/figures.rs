// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of the service for `top` and for Prometheus.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use framepath_testkit::service::ServiceProcess;
use framepath_testkit::until;
use framepath_testkit::{finish, run};

fn address(service: &ServiceProcess) -> String {
    let log = service.stderr();
    let (_, rest) = log.split_once("http://").unwrap_or_else(|| panic!("{log}"));
    rest.split_once('/').unwrap().0.to_owned()
}

fn get(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Parses a page for Prometheus into a map from series to value; panics at a malformed line.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let mut kinds = BTreeMap::new();
    let mut values = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line} twice");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let name = series.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(kinds.contains_key(family.unwrap_or(name)) || kinds.contains_key(name), "{line}");
            if let Some((_, labels)) = series.split_once('{') {
                assert!(labels.ends_with("\"}") && labels.starts_with("stream=\""), "{line}");
            }
            let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
            assert!(values.insert(series.to_owned(), value).is_none(), "{line} twice");
        }
    }
    values
}

#[test]
fn the_page_for_prometheus_parses_and_adds_up() {
    let service = ServiceProcess::start(&["--metrics", "127.0.0.1:0"]);
    let before = service.quiet();
    let address = address(&service);
    finish(service.client("vp9-180p8.ivf", "! decode", "null")).ended(0);
    let mut client = service.client("vp9-180p8.ivf", "loop=inf ! decode", "null").spawn().unwrap();
    let stream = service.stream_of(client.id());
    let answer = get(&address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", page.len())), "{head}");
    let values = parse(page);
    let of = |name: &str, label: &str| {
        let found: Vec<f64> = values
            .iter()
            .filter(|(series, _)| series.split('{').next() == Some(name) && series.contains(label))
            .map(|(_, value)| *value)
            .collect();
        assert!(!found.is_empty(), "{name} {label}: {page}");
        found
    };
    // Two streams each: the demuxer's, and the decoder's.
    assert_eq!(of("framepath_streams", ""), [2.0]);
    assert_eq!(of("framepath_granted_total", ""), [4.0]);
    let decoder = format!("stream=\"{}\"", stream.stream);
    let frames = of("framepath_stream_frames_total", &decoder)[0];
    assert!(frames >= stream.figures.frames as f64);
    assert!(of("framepath_frames_total", "")[0] >= frames + 30.0);
    let label = format!("stream=\"{}\",pid=\"{}\"", stream.stream, client.id());
    assert!(of("framepath_stream_cpu_seconds_total", &label)[0] > 0.0);
    assert!(of("framepath_stream_cause_seconds_total", "cause=\"compute\"").iter().any(|s| *s > 0.0));
    let count = of("framepath_stream_latency_seconds_count", &label)[0];
    assert!(of("framepath_stream_latency_seconds_bucket", "le=\"+Inf\"").contains(&count));
    assert!(of("framepath_stream_latency_seconds_bucket", "").iter().all(|n| *n <= count));
    assert!(of("framepath_stream_latency_seconds_sum", &label)[0] > 0.0);

    let refused = get(&address, "POST / HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.0 405"), "{refused}");
    client.kill().unwrap();
    client.wait().unwrap();
    // Readers that connect and disconnect without a request.
    let idle: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(&address).unwrap()).collect();
    drop(idle);
    assert!(get(&address, "GET / HTTP/1.0\r\n\r\n").contains("\nframepath_streams 0\n"));
    assert_eq!(service.quiet(), before);
}

/// The service closes the oldest idle connections, so that they delay no other reader.
#[test]
fn a_hundred_idle_readers_delay_no_other() {
    let service = ServiceProcess::start(&["--metrics", "127.0.0.1:0"]);
    let before = service.quiet();
    let address = address(&service);
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert!(get(&address, "GET / HTTP/1.0\r\n\r\n").contains("\nframepath_streams 0\n"));
    // The answer did not wait for the newest connections.
    let is_open = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(idle[85..].iter().all(is_open));
    assert!(idle[..60].iter().all(|stream| !is_open(stream)));
    drop(idle);
    assert_eq!(service.quiet(), before);
}

/// Without free descriptors the service cannot accept a reader, whose socket stays
/// readable. The service must sleep nevertheless.
#[test]
fn a_service_without_free_descriptors_sleeps() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let service = ServiceProcess::start(&["--metrics", "127.0.0.1:0"]);
    let before = service.quiet();
    let address = address(&service);
    let pid = Pid::from_raw(service.pid() as i32);
    let limit = |files: u64| {
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum: Some(1024) }).unwrap()
    };
    // A new descriptor gets the lowest free number.
    let fds = format!("/proc/{}/fd", service.pid());
    limit((0..).find(|number| !std::path::Path::new(&format!("{fds}/{number}")).exists()).unwrap());
    let mut reader = TcpStream::connect(&address).unwrap();
    reader.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let slept = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let start = slept();
    until("it sleeps again and again", || slept() > start + 5);
    limit(1024);
    let mut answer = String::new();
    reader.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\nframepath_streams 0\n"), "{answer}");
    assert_eq!(service.quiet(), before);
}

#[test]
fn metrics_are_served_only_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let socket = socket.to_str().unwrap();
    let ran = run(&["serve", "--socket", socket, "--metrics", "0.0.0.0:0"]).ended(1);
    ran.prints("0.0.0.0:0");
    run(&["serve", "--socket", socket, "--metrics", "everywhere"]).ended(2).prints("everywhere");
}

#[test]
fn top_shows_a_stream_once() {
    let service = ServiceProcess::start(&[]);
    let socket = service.socket();
    let top = || run(&["top", "--once", "--socket", socket.to_str().unwrap()]).ended(0).stdout;
    assert!(top().contains("no streams"));
    let mut client = service.client("vp9-180p8.ivf", "loop=inf ! decode threads=1", "null").spawn().unwrap();
    let stream = service.stream_of(client.id());
    let text = top();
    let pid = client.id().to_string();
    // The demuxer of the same client has a line of its own.
    let of_client = |line: &&str| line.split_whitespace().nth(1) == Some(&pid);
    let line = text.lines().filter(of_client).find(|line| line.contains("decode"));
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect();
    assert_eq!(words[0], stream.stream.to_string());
    assert_eq!(words[3], stream.worker_pid.to_string());
    assert!(words[4].parse::<f64>().unwrap() > 0.0 && words[5].parse::<f64>().unwrap() > 0.0, "{text}");
    assert!(text.contains("320x180") && text.contains("decode threads=1"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    client.kill().unwrap();
    client.wait().unwrap();
}
