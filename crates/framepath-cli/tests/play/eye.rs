// SPDX-License-Identifier: MIT OR Apache-2.0
//! Screenshots by xwd, which needs no extension of the X server.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

// Indices of words in a dump's header (X11/XWDFile.h). The words are big-endian.
const HEADER_BYTES: usize = 0;
const WIDTH: usize = 4;
const HEIGHT: usize = 5;
const LITTLE_ENDIAN: usize = 7;
const BITS_PER_PIXEL: usize = 11;
const BYTES_PER_LINE: usize = 12;
const COLOURS: usize = 19;

/// Size in bytes of a colour in the table before the pixels.
const COLOUR_BYTES: usize = 12;

/// Returns the screen of the X server `display` in RGB, shrunk to `width` pixels: each pixel is the
/// mean of a square. `width` must divide the screen's width.
pub fn screenshot(display: &str, width: usize) -> Vec<u8> {
    let dump = dump_of_screen(display);
    let word = |index| word_of(&dump, index);
    // 0: the least significant byte is first, which means blue, green, red, unused.
    assert_eq!((word(BITS_PER_PIXEL), word(LITTLE_ENDIAN)), (32, 0));
    let pixels = &dump[word(HEADER_BYTES) + word(COLOURS) * COLOUR_BYTES..];
    let times = word(WIDTH) / width;
    assert_eq!(word(WIDTH), width * times);
    let mean = |x: usize, y: usize, channel: usize| {
        let square = (0..times).flat_map(|row| (0..times).map(move |column| (row, column)));
        let of = |(row, column): (usize, usize)| {
            let at = (y * times + row) * word(BYTES_PER_LINE) + (x * times + column) * 4 + channel;
            usize::from(pixels[at])
        };
        (square.map(of).sum::<usize>() / (times * times)) as u8
    };
    let places = (0..word(HEIGHT) / times).flat_map(|y| (0..width).map(move |x| (x, y)));
    places.flat_map(|(x, y)| [2, 1, 0].map(|channel| mean(x, y, channel))).collect()
}

/// Returns number `index` of the head of `dump`.
fn word_of(dump: &[u8], index: usize) -> usize {
    let bytes = dump[index * 4..][..4].try_into().unwrap();
    u32::from_be_bytes(bytes) as usize
}

/// Returns the screen as xwd writes it. xwd lists all windows and then asks for each one's attributes; it fails when
/// one is closed in between (SDL replaces its window when it loads OpenGL), so this tries several times.
fn dump_of_screen(display: &str) -> Vec<u8> {
    let mut failure = String::new();
    for _ in 0..20 {
        let mut command = Command::new("xwd");
        let output = command.args(["-silent", "-root", "-display", display]).stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("xwd (x11-apps): {error}"));
        if output.status.success() {
            // While windows with several kinds of pixels exist, xwd puts the screen together from them.
            if word_of(&output.stdout, BITS_PER_PIXEL) == 32 {
                return output.stdout;
            }
            failure = "pixels of several kinds".to_owned();
            thread::sleep(Duration::from_millis(50));
            continue;
        }
        failure = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(failure.contains("BadWindow"), "{failure}");
    }
    panic!("a window is closed during each of 20 screenshots: {failure}");
}
