// SPDX-License-Identifier: MIT OR Apache-2.0
//! `play` without a display: times, late frames, and messages without
//! SDL. Windows are tested in `tests/play`.

use framepath_testkit::run;

/// Returns the number `key` of the first row of a JSON summary.
fn number(json: &str, key: &str) -> f64 {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    value["rows"][0][key].as_f64().unwrap_or_else(|| panic!("no {key} in {json}"))
}

#[test]
fn late_frames_are_dropped_and_counted() {
    // Every frame takes two intervals, so the delay grows.
    let path = "test size=64x48 frames=40 ! block time=70ms ! play driver=null";
    let ran = run(&["run", "--quiet", "--json", "-", path]).ended(0);
    let [shown, late, dropped] = ["shown", "late", "dropped"].map(|key| number(&ran.stdout, key));
    assert_eq!((shown + late, late), (40.0, dropped));
    // `play` shows about one late frame per second, so that the picture still changes.
    assert!(late > 20.0 && shown > 1.0, "{late} of 40 late");
}

#[test]
fn sync_off_shows_every_frame() {
    let path = "test size=64x48 frames=40 ! block time=70ms ! play driver=null sync=0";
    run(&["run", path]).ended(0).shows("play: 40 shown, 0 dropped because they were late");
}

#[test]
fn the_error_without_a_window_names_the_remedy() {
    let mut command = framepath_testkit::framepath(&["run", "test size=64x48 frames=3 ! play"]);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("SDL_VIDEODRIVER");
    let ran = framepath_testkit::finish(command)
        .ended(1)
        .prints("play: cannot open or use the window: ")
        .prints("driver=null");
    let remedy = if cfg!(feature = "play") { "DISPLAY" } else { "--features play" };
    ran.prints(remedy);
}
