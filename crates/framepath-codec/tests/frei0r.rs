// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of frei0r plug-ins: runs every installed plug-in in its own process, and checks the errors
//! for other files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use framepath_codec::frei0r::{self, Frei0rError, Plugin, PluginKind};
use framepath_model::format::{Layout, PixelFormat};
use framepath_os::memory::pool::{FrameMut, Pool};

const NEEDS_PLUGINS: &str = "these tests need Debian's plug-ins (apt install frei0r-plugins)";

/// Minimum number of plug-ins that every version of Debian's package has.
const LEAST: usize = 120;

const SIZE: (u32, u32) = (64, 48);

/// Plug-ins that do not run with their defaults, with a working setting and the reason.
const NEED_A_SETTING: &[(&str, &str, &str)] = &[
    (
        "3dflippo",
        "x-axis-rotation=0.5",
        "its table is written when a parameter is first set; before that it is memory from malloc, used as \
         indices: a crash, or any picture",
    ),
    (
        "curves",
        "point-1-input-value=0",
        "its table is made when a parameter is first set; before that it draws a curve of no values without end",
    ),
];

/// Plug-ins that write to their input: cairo requires colours multiplied by alpha, and they
/// multiply in place.
const WRITE_THEIR_INPUT: &[&str] = &["cairoaffineblend", "cairoblend", "cairogradient"];

/// Plug-ins of frei0r 2 (Debian 13) whose own `f0r_init` fails.
const REFUSE: &[&str] = &["pixs0r"];

/// Environment variable with the path of the plug-in for [`one_plugin`].
const FILE: &str = "FRAMEPATH_TEST_PLUGIN";
/// Environment variable with a setting of the plug-in for [`one_plugin`], `NAME=VALUE` or empty.
const SETTING: &str = "FRAMEPATH_TEST_SETTING";

fn plugin(name: &str) -> Plugin {
    let found = frei0r::find(name).unwrap_or_else(|error| panic!("{NEEDS_PLUGINS}: {error}"));
    Plugin::load(&found.path).unwrap()
}

/// Runs [`one_plugin`] in a child process, for at most 60 s; returns the reason of a failure.
fn in_a_child(file: &Path, setting: &str) -> Result<(), String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "one_plugin", "--test-threads=1"])
        .env(FILE, file)
        .env(SETTING, setting)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match child.try_wait().unwrap() {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Err("does not end".to_owned());
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

#[test]
fn every_plugin_there_is_runs_to_the_end() {
    let all = frei0r::list();
    assert!(all.len() >= LEAST, "{} plug-ins: {NEEDS_PLUGINS}", all.len());
    let mut failed = Vec::new();
    for found in &all {
        let setting = NEED_A_SETTING.iter().find(|(name, ..)| *name == found.name);
        if let Err(why) = in_a_child(&found.path, setting.map_or("", |(_, setting, _)| setting)) {
            failed.push(format!("{}: {why}", found.name));
        }
    }
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), all.len(), failed.join("\n"));
}

#[test]
#[ignore = "run for each plug-in, in a process of its own, by every_plugin_there_is_runs_to_the_end"]
fn one_plugin() {
    let file = std::env::var_os(FILE).expect("the test that starts this one names a plug-in");
    let file = Path::new(&file);
    let plugin = match Plugin::load(file) {
        Err(Frei0rError::Init { .. })
            if REFUSE.iter().any(|name| file.file_stem() == Some(name.as_ref())) =>
        {
            return;
        }
        plugin => plugin.unwrap(),
    };
    let mut instance = plugin.instance(SIZE.0, SIZE.1).unwrap();
    for place in 0..plugin.info().params.len() {
        instance.get(place);
    }
    let setting = std::env::var(SETTING).unwrap();
    if let Some((name, value)) = setting.split_once('=') {
        let (place, value) = plugin.check(name, value).unwrap();
        instance.set(place, &value);
    }
    for number in 0..3 {
        let mut inputs: Vec<FrameMut> = (0..plugin.info().kind.inputs()).map(|_| picture(number)).collect();
        let before: Vec<Vec<u8>> = inputs.iter_mut().map(|input| input.plane_mut(0).to_vec()).collect();
        let mut output = picture(0);
        let mut pictures: Vec<&mut [u8]> = inputs.iter_mut().map(|input| input.plane_mut(0)).collect();
        instance.update(f64::from(number) / 25.0, &mut pictures, output.plane_mut(0));
        if !WRITE_THEIR_INPUT.contains(&plugin.name()) {
            assert!(pictures == before, "it wrote its input");
        }
    }
}

/// Makes a picture in which every byte differs from its neighbours.
fn picture(number: u8) -> FrameMut {
    let layout = Layout::packed(PixelFormat::Rgba, SIZE.0, SIZE.1).unwrap();
    // `partik0l` writes up to 16 rows after a low picture.
    let mut frame = Pool::new(layout.size + 16 * 4 * SIZE.0 as usize, 1).unwrap().acquire().unwrap();
    frame.set_layout(&layout).unwrap();
    for (place, byte) in frame.plane_mut(0).iter_mut().enumerate() {
        *byte = (place * 7) as u8 ^ number;
    }
    frame
}

#[test]
fn pixels_are_what_simple_filters_make_of_them() {
    let mut input = picture(5);
    let given = input.plane_mut(0).to_vec();
    let input = input.plane_mut(0);
    let mut made = picture(0);
    plugin("invert0r").instance(64, 48).unwrap().update(0.0, &mut [&mut *input], made.plane_mut(0));
    for (made, given) in made.plane_mut(0).chunks(4).zip(given.chunks(4)) {
        assert_eq!(made, [255 - given[0], 255 - given[1], 255 - given[2], given[3]]);
    }

    // A PACKED32 filter, mirrored along x.
    let flip = plugin("flippo");
    let mut instance = flip.instance(64, 48).unwrap();
    let (place, yes) = flip.check("X_axis", "yes").unwrap();
    instance.set(place, &yes);
    assert_eq!(instance.get(place), yes);
    instance.update(0.0, &mut [input], made.plane_mut(0));
    for (made, given) in made.plane_mut(0).chunks(64 * 4).zip(given.chunks(64 * 4)) {
        assert!(made.chunks(4).eq(given.chunks(4).rev()));
    }

    // A source of one colour, with its own byte order.
    let one = plugin("onecol0r");
    assert_eq!((one.info().kind, one.info().color_model.name()), (PluginKind::Source, "BGRA8888"));
    let mut instance = one.instance(64, 48).unwrap();
    let (place, color) = one.check("color", "#ff8000").unwrap();
    instance.set(place, &color);
    instance.update(0.0, &mut [], made.plane_mut(0));
    assert!(
        made.plane_mut(0)
            .chunks(4)
            .all(|pixel| pixel[0] == 0 && pixel[2] == 255 && pixel[1].abs_diff(128) <= 1)
    );
}

#[test]
fn parameters_are_checked_against_what_is_declared() {
    let glow = plugin("glow");
    let said = |name, value| glow.check(name, value).unwrap_err().to_string();
    assert_eq!(said("blurr", "1"), "glow: no parameter `blurr`, did you mean `blur`? it has blur");
    assert_eq!(said("size", "1"), "glow: no parameter `size`: it has blur");
    assert_eq!(said("BLUR", "2"), "glow: `blur=2`: blur is a number from 0 to 1");
    let none = plugin("invert0r").check("blur", "1").unwrap_err().to_string();
    assert_eq!(none, "invert0r: no parameter `blur`: it has none");
    assert_eq!(
        plugin("addition").refuse_mixer().unwrap_err().to_string(),
        "addition: a mixer2 takes 2 frames at a time, and a path carries one; only filters and sources run as a stage"
    );
    let missing = frei0r::find("invrt0r").unwrap_err().to_string();
    assert!(
        missing.starts_with("no frei0r plug-in `invrt0r`, did you mean `invert0r`? `framepath plugins`"),
        "{missing}"
    );
}

#[test]
fn sizes_are_multiples_of_eight() {
    let invert = plugin("invert0r");
    for (width, height) in [(0, 8), (8, 0), (12, 8), (8, 9)] {
        assert!(matches!(invert.instance(width, height), Err(Frei0rError::Construct { .. })));
    }
    assert_eq!(frei0r::padded(1, 1080), (8, 1080));
    assert_eq!(frei0r::padded(1921, 1081), (1928, 1088));
}

#[test]
fn a_file_that_is_no_plugin_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("noise.so");
    let missing = Plugin::load(&path).unwrap_err().to_string();
    assert!(missing.starts_with("noise: cannot load: "), "{missing}");
    fs::write(&path, "no shared object").unwrap();
    let refused = Plugin::load(&path).unwrap_err().to_string();
    assert!(refused.starts_with("noise: cannot load: "), "{refused}");
    // A shared object that is not a plug-in: the library next to libc.
    let lib = fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        lib.lines().find_map(|line| line.split_whitespace().last().filter(|path| path.contains("/libc.so")));
    let error = Plugin::load(Path::new(libc.expect("this test is linked with libc"))).unwrap_err();
    assert!(matches!(&error, Frei0rError::NoSymbol { symbol: "f0r_init", .. }), "{error}");
    assert_eq!(error.to_string(), "libc.so: not a frei0r plug-in: it has no `f0r_init`");
}
