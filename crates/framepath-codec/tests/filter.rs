// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the threads that a graph of filters starts.

use std::fs;

use framepath_codec::filter::{FilterGraph, InputMemory};
use framepath_model::format::{Layout, PixelFormat};
use framepath_model::stream::{Rational, StreamInfo};

/// Returns the number of threads that a graph with `threads=` starts. New threads inherit the name of the
/// thread that makes the graph, so the threads of other tests do not count.
fn started(threads: u32) -> usize {
    let name = format!("graph-{threads}");
    let count = move || {
        let layout = Layout::packed(PixelFormat::Yuv420p, 64, 48).unwrap();
        let info = StreamInfo::from_layout(&layout, Rational::new(25, 1));
        let _graph =
            FilterGraph::new("scale=32:-2,eq", &layout, &info, InputMemory::InPlace, threads).unwrap();
        let own = fs::read_to_string("/proc/thread-self/comm").unwrap();
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| *name == own).count() - 1
    };
    std::thread::Builder::new().name(name).spawn(count).unwrap().join().unwrap()
}

#[test]
fn a_graph_with_one_thread_starts_none() {
    assert_eq!(started(1), 0);
}

#[test]
fn a_graph_with_several_threads_starts_them() {
    assert!(started(3) >= 2);
}
