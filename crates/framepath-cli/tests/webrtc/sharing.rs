// SPDX-License-Identifier: MIT OR Apache-2.0
//! `share` and `view`, from one X screen to another.

use std::process::{Child, Command};

use framepath_testkit::display::Xvfb;
use framepath_testkit::harness::Tested;
use framepath_testkit::{framepath, run, until, wait};
use rustix::process::Signal;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt as _, CreateGCAux, Rectangle};

use crate::sender::{Sending, signal, started};

const SIZE: (u32, u32) = (320, 180);

fn share(screen: &Xvfb) -> Sending {
    let mut command = framepath(&["share", "--listen", "127.0.0.1:0", "--quiet"]);
    started(command.env("DISPLAY", screen.name()))
}

fn view(screen: &Xvfb, code: &str) -> Child {
    framepath(&["view", "--quiet", code]).env("DISPLAY", screen.name()).spawn().unwrap()
}

/// Fills the screen with the colour: red, green and blue, a byte each.
fn paint(screen: &Xvfb, colour: u32) {
    let (connection, number) = x11rb::connect(Some(&screen.name())).unwrap();
    let root = connection.setup().roots[number].root;
    let gc = connection.generate_id().unwrap();
    connection.create_gc(gc, root, &CreateGCAux::new().foreground(colour)).unwrap();
    let all = Rectangle { x: 0, y: 0, width: SIZE.0 as u16, height: SIZE.1 as u16 };
    connection.poly_fill_rectangle(root, gc, &[all]).unwrap().check().unwrap();
}

/// Returns the shares of red, green and blue of the screen, 0 to 255, by the tool ffmpeg.
fn mean_colour(screen: &Xvfb) -> [u8; 3] {
    let words =
        ["-v", "error", "-f", "x11grab", "-draw_mouse", "0", "-video_size", "320x180", "-i", &screen.name()];
    let output =
        ["-frames:v", "1", "-vf", "scale=1:1:flags=area", "-pix_fmt", "rgb24", "-f", "rawvideo", "-"];
    let grabbed = Command::new("ffmpeg").args(words).args(output).output().unwrap();
    grabbed.stdout.try_into().unwrap_or_default()
}

fn is_red([red, green, blue]: [u8; 3]) -> bool {
    red > 150 && green < 80 && blue < 80
}

fn is_blue([red, green, blue]: [u8; 3]) -> bool {
    blue > 150 && green < 80 && red < 80
}

pub fn a_screen_is_shown_on_another() -> Tested {
    let [from, to, late] = [Xvfb::start(SIZE)?, Xvfb::start(SIZE)?, Xvfb::start(SIZE)?];
    paint(&from, 0x00ff_0000);
    let sending = share(&from);
    // The code alone pairs both ends; the viewer joins while the screen stands still.
    let viewer = view(&to, &sending.code());
    until("the viewer shows red", || is_red(mean_colour(&to)));
    paint(&from, 0xff);
    until("the viewer shows blue", || is_blue(mean_colour(&to)));
    // One that comes later gets the still picture, too.
    let late_viewer = view(&late, &sending.code());
    until("the late viewer shows blue", || is_blue(mean_colour(&late)));
    signal(&late_viewer, Signal::INT);
    wait(late_viewer, "late view").ended(130);
    sending.signal(Signal::INT);
    let output = sending.end().ended(130);
    assert_eq!(output.stderr.matches(": connected").count(), 2, "{}", output.stderr);
    wait(viewer, "view").ended(0);
    Ok(())
}

pub fn codes_that_are_wrong_show_nothing() -> Tested {
    let from = Xvfb::start(SIZE)?;
    let sending = share(&from);
    let code = sending.code();
    let other = if &code[30..31] == "A" { "B" } else { "A" };
    let mistyped = format!("{}{other}{}", &code[..30], &code[31..]);
    for (code, reason) in [
        (mistyped.as_str(), "the pairing code has a typing error"),
        ("FP1-ABC", "the pairing code is incomplete or has a wrong character"),
        (sending.url.as_str(), "HTTP status 401"),
    ] {
        run(&["view", code]).ended(1).prints(reason);
    }
    sending.signal(Signal::INT);
    let output = sending.end();
    assert_eq!(output.stderr.matches(": connected").count(), 0, "{}", output.stderr);
    Ok(())
}
