// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors and fallbacks of device options without a device, and the commands `fixture` and
//! `diff`. Real devices are tested in guests: tests/vm.

use std::path::Path;

use framepath_testkit::{in_checkout, run};

#[test]
fn an_invalid_device_is_named() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let paths = [
        ("v4l2 /dev/no-such-video ! null".to_owned(), "/dev/no-such-video: "),
        ("v4l2 /dev/null ! null".to_owned(), "/dev/null: not a V4L2 node"),
        (
            format!("file {} ! decode api=v4l2m2m device=/dev/null ! null", clip.display()),
            "decode api=v4l2m2m device=/dev/null: /dev/null: not a V4L2 node",
        ),
        (
            "test format=grey ! threshold device=/dev/null io=mmap ! null".to_owned(),
            "/dev/null: not a V4L2 node",
        ),
        (
            "test format=grey ! threshold in_place=1 io=mmap device=/dev/null ! null".to_owned(),
            "in_place=1 needs io=dmabuf",
        ),
        ("test ! decode api=v4l2m2m device=/dev/null ! null".to_owned(), "decode"),
    ];
    for (path, words) in paths {
        run(&["run", "--quiet", &path]).ended(1).prints(words);
    }
    run(&["run", "--quiet", "test format=grey ! threshold io=mmap ! null"]).ended(2).prints("`device`");
    run(&["meta", "--device", "/dev/null"]).ended(1).prints("/dev/null: not a V4L2 node");
    run(&["meta", "--device", "/dev/none"]).ended(1).prints("/dev/none: ");
}

/// Frames are decoded with or without a hardware decoder; a line on standard error gives the reason
/// for a fallback to software.
#[test]
fn a_missing_hardware_decoder_falls_back_to_software_with_a_note() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let decoded = |options: &str| {
        let path = format!("file {} ! decode format=nv12 {options} ! framemd5 -", clip.display());
        run(&["run", "--quiet", &path]).ended(0)
    };
    let software = decoded("");
    assert_eq!((software.frames().len(), &*software.stderr), (30, ""));
    for api in ["vaapi", "nvdec", "vulkan", "vdpau", "v4l2m2m", "auto"] {
        let ran = decoded(&format!("api={api}"));
        assert_eq!(ran.stdout, software.stdout, "{api}");
        match ran.stderr.lines().collect::<Vec<_>>()[..] {
            [] => println!("this machine decodes by {api}"),
            [line] => {
                let (head, why) = line.split_once(", because ").expect("a reason");
                assert_eq!(head, format!("framepath: decode api={api}: in software"));
                let named = if api == "auto" { "v4l2m2m: " } else { api };
                assert!(why.starts_with(named), "{line}");
            }
            _ => panic!("{api}: {}", ran.stderr),
        }
    }
    for (api, why) in [
        ("vaapi", "because a worker's sandbox has V4L2 devices only"),
        ("v4l2m2m", "because v4l2m2m: no device decodes "),
        ("auto", "because v4l2m2m: no device decodes "),
    ] {
        let ran = decoded(&format!("api={api} host=process"));
        assert_eq!(ran.stdout, software.stdout, "{api}");
        // A hardware decoder that works prints nothing.
        assert!(ran.stderr.contains(why) || api != "vaapi" && ran.stderr.is_empty(), "{api}: {}", ran.stderr);
    }
    let other = format!("file {} ! decode api=vaapi device=/dev/null ! null", clip.display());
    run(&["run", "--quiet", &other]).ended(1).prints("device= needs api=v4l2m2m");
    // A device named in the path has no fallback.
    for host in ["inline", "process"] {
        let named = format!("file {} ! decode device=/dev/null host={host} ! null", clip.display());
        run(&["run", "--quiet", &named]).ended(1).prints("/dev/null: not a V4L2 node");
    }
}

#[test]
fn the_old_spelling_of_a_device_works_with_a_note() {
    let clip = in_checkout("clips/vp9-180p8.ivf");
    let old = format!("file {} ! decode host=device:/dev/null ! null", clip.display());
    run(&["run", "--quiet", &old]).ended(1).prints("/dev/null: not a V4L2 node");
}

/// Writes a PGM picture of 7 by 5 pixels, a ramp, into `folder`. Returns the file's path.
fn ramp(folder: &Path) -> String {
    let file = folder.join("ramp.pgm");
    let pixels: Vec<u8> = (0..35).map(|n| n * 7).collect();
    std::fs::write(&file, [b"P5\n7 5\n255\n".as_slice(), &pixels].concat()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_reference_changes_only_the_region_of_a_fixture() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (ramp, out) = (ramp(folder.path()), name("out"));
    let words = ["fixture", &ramp, "--reference", "--level", "100", "--roi", "1,1,3,100", "--frames", "3"];
    // One copy into the frame, one by the stage, because it must not write into the input, and one
    // to the file.
    run(&[&words[..], &["--out", &out]].concat()).ended(0).shows("3 frames").shows("105");
    let results = ["frame-000000.pgm", "frame-000001.pgm", "frame-000002.pgm"].map(|f| format!("{out}/{f}"));
    run(&["diff", &results[0], &results[2]]).ended(0).shows("equal: 35 pixels");
    let difference = name("difference.pgm");
    // Three columns of four rows; no pixel of them was black or white.
    run(&["diff", &ramp, &results[1], &difference]).ended(1).shows("12 of 35 pixels differ, by ");
    let picture = std::fs::read(&difference).unwrap();
    let pixels = &picture[b"P5\n7 5\n255\n".len()..];
    assert_eq!(pixels.iter().filter(|pixel| **pixel != 0).count(), 12);
    // Row 1 from column 1 on: 56, 63 and 70 became black.
    assert_eq!(pixels[7..14], [0, 56, 63, 70, 0, 0, 0]);
}

#[test]
fn invalid_pictures_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ramp = ramp(folder.path());
    let other = folder.path().join("other.pgm");
    std::fs::write(&other, "P5 1 1 255 a").unwrap();
    let other = other.to_str().unwrap();
    run(&["diff", &ramp, other]).ended(2).prints("the pictures have 7x5 and 1x1 pixels");
    run(&["diff", &ramp, "/dev/none"]).ended(2).prints("/dev/none: ");
    std::fs::write(other, "P6 1 1 255 abc").unwrap();
    run(&["diff", &ramp, other]).ended(2).prints("P5");
    run(&["fixture", other, "--reference"]).ended(1).prints("P5");
    run(&["fixture", &ramp]).ended(2);
}
