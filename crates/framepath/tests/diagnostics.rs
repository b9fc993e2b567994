// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's messages through `log`. A program of its own, because a process has one logger.

use std::sync::Mutex;

use framepath::Level;
use framepath_testkit::clip;
use framepath_testkit::pipeline::{at, run};
use log::{LevelFilter, Log, Metadata, Record};

/// Levels and texts of the messages that the library has logged, in order.
static REPORTED: Mutex<Vec<(log::Level, String)>> = Mutex::new(Vec::new());

struct Collecting;

impl Log for Collecting {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        assert!(record.target().starts_with("framepath"), "{record:?}");
        REPORTED.lock().unwrap().push((record.level(), record.args().to_string()));
    }

    fn flush(&self) {}
}

fn reported(path: &str) -> Vec<(log::Level, String)> {
    REPORTED.lock().unwrap().clear();
    run(path, &at(Level::Times));
    std::mem::take(&mut REPORTED.lock().unwrap())
}

#[test]
fn a_run_reports_as_much_with_many_frames_as_with_few() {
    log::set_logger(&Collecting).unwrap();
    log::set_max_level(LevelFilter::Debug);
    let path = |frames: u64| format!("test size=64x48 frames={frames} ! threshold ! queue depth=2 ! null");
    let (few, many) = (reported(&path(3)).len(), reported(&path(3000)).len());
    assert!(few >= 3, "{few}");
    assert_eq!(many, few);
    let file = |loops: u64| format!("file {} loop={loops} ! decode threads=1 ! null", clip("vp9-180p8.ivf"));
    let (once, often) = (reported(&file(1)), reported(&file(20)));
    assert_eq!(often.len(), once.len(), "{once:#?} {often:#?}");
    let infos =
        |word: &str| once.iter().any(|(level, text)| *level == log::Level::Info && text.contains(word));
    assert!(infos("vp9") && infos("320x180") && infos("30"), "{once:#?}");
    // At level off there are no messages.
    log::set_max_level(LevelFilter::Off);
    assert_eq!(reported(&path(3)), []);
}
