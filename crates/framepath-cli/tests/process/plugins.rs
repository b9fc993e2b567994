// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every installed frei0r plug-in, each in a sandboxed worker. The test needs Debian's
//! plug-ins: apt install frei0r-plugins.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use framepath::plugins::list;

use framepath_testkit::run;

/// Minimum number of plug-ins that must deliver frames; every version of Debian's package has more
/// filters and sources.
const LEAST: usize = 90;

/// Number of plug-ins that run at the same time.
const AT_ONCE: usize = 2;

/// Plug-ins that fail with their defaults: the name, a setting that works, and the reason.
const NEED_A_SETTING: &[(&str, &str, &str)] = &[
    (
        "3dflippo",
        "x-axis-rotation=0.5",
        "its table is written when a parameter is first set; before that it is memory from malloc, used as \
         indices",
    ),
    (
        "curves",
        "point-1-input-value=0",
        "its table is made when a parameter is first set; before that it draws a curve of no values without end",
    ),
];

/// Result of a plug-in's run.
enum Became {
    /// Three frames from a single worker.
    Frames,
    /// An expected error: the plug-in needs several inputs, which no path supports, or fails to
    /// start.
    Mixer,
    Failed(String),
}

fn run_in_a_worker(name: &str) -> Became {
    let setting = NEED_A_SETTING.iter().find(|(needs, ..)| *needs == name);
    let setting = setting.map_or("", |(_, setting, _)| setting);
    let stage = format!("plugin frei0r:{name} {setting} host=process");
    let ran = run(&["run", &format!("test size=64x48 format=rgba frames=3 ! {stage} ! framemd5 -")]);
    let frames = ran.frames().len();
    match (ran.code, frames) {
        (Some(0), 3) if !ran.stderr.contains("replaced a worker") => Became::Frames,
        (Some(1), 0) if ran.stderr.contains("mixer") => Became::Mixer,
        // A plug-in of frei0r 2 (Debian 13), whose f0r_init fails.
        (Some(1), 0) if name == "pixs0r" && ran.stderr.contains("its f0r_init failed") => Became::Mixer,
        _ => Became::Failed(format!("{name}: {frames} frames: {ran:#?}")),
    }
}

#[test]
fn every_installed_plugin_runs_in_a_worker() {
    let all = list();
    let next = AtomicUsize::new(0);
    let became = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(found) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = run_in_a_worker(&found.name);
                    became.lock().unwrap().push(one);
                }
            });
        }
    });
    let became = became.into_inner().unwrap();
    let failed: Vec<&str> = became
        .iter()
        .filter_map(|one| match one {
            Became::Failed(why) => Some(why.as_str()),
            _ => None,
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), all.len(), failed.join("\n"));
    let count = became.iter().filter(|one| matches!(one, Became::Frames)).count();
    assert!(count >= LEAST, "{count} plug-ins gave frames: apt install frei0r-plugins");
}
