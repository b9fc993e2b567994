// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources `wayland` and `screen` with a compositor without a screen (sway), which runs as an ordinary user.

mod compositor;
mod wlroots;

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use compositor::{HEIGHT, Sway, WIDTH};
use framepath_os::process::children;
use framepath_testkit::harness::Tested;
use framepath_testkit::{CommandOutput, framepath, wait, within_deadline};
use wlroots::Wlroots;

framepath_testkit::tests! {
    frames_have_the_pixels_of_the_output_and_copy_none,
    each_change_has_a_frame_and_an_idle_output_none,
    a_region_is_a_part_of_the_output,
    a_converted_region_shows_every_change,
    an_idle_output_has_one_frame,
    outputs_are_chosen_by_name,
    the_end_of_the_compositor_is_an_error,
    signals_end_every_wait,
    a_compositor_that_cannot_be_used_is_an_error,
    the_screen_of_the_session_is_found,
    a_compositor_with_the_newer_protocol_is_captured,
    an_output_that_is_switched_off_is_waited_for,
}

const SIGINT: i32 = 2;
/// Colours of the output: red, green, blue.
const BLUE: [u8; 3] = [0, 0, 255];
const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 255, 0];

/// Runs a test with a compositor, and with a time limit.
fn with_sway(test: impl FnOnce(Sway) + Send + 'static) -> Tested {
    let sway = Sway::start(BLUE)?;
    within_deadline(move || test(sway));
    Ok(())
}

/// Running path whose frames are read as raw pixels.
struct Captured(Child);

impl Captured {
    fn start(sway: &Sway, source: &str) -> Captured {
        Captured::offered(source, |command| sway.offer(command))
    }

    fn offered(source: &str, offer: impl FnOnce(&mut Command)) -> Captured {
        let mut command = framepath(&["run", "--quiet", &format!("{source} ! raw -")]);
        offer(&mut command);
        Captured(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Returns the colours of the next frame's pixels, if they are all the same.
    fn next_colour(&mut self, (width, height): (u32, u32)) -> Option<[u8; 3]> {
        let mut pixels = vec![0; (width * height * 4) as usize];
        self.0.stdout.as_mut().unwrap().read_exact(&mut pixels).unwrap();
        let mut colours = pixels.chunks_exact(4).map(|pixel| [pixel[2], pixel[1], pixel[0]]);
        let first = colours.next()?;
        colours.all(|colour| colour == first).then_some(first)
    }

    /// Waits for the end with an exit code. Returns the output, and the number of bytes of frames that were not read.
    fn ended(mut self, code: i32) -> (CommandOutput, usize) {
        let mut rest = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
        (wait(self.0, "run").ended(code), rest.len())
    }

    /// Reads frames up to one of this colour. Between two backgrounds, the output may be black.
    fn until_colour(&mut self, colour: [u8; 3]) {
        while self.next_colour((WIDTH, HEIGHT)) != Some(colour) {}
    }
}

fn frames_have_the_pixels_of_the_output_and_copy_none() -> Tested {
    with_sway(|sway| {
        let mut captured = Captured::start(&sway, "wayland frames=1 cursor=no");
        assert_eq!(captured.next_colour((WIDTH, HEIGHT)), Some(BLUE));
        captured.ended(0);
        let mut command = framepath(&["run", "--quiet", "--json", "-", "wayland frames=1 cursor=no ! null"]);
        sway.offer(&mut command);
        let ran = framepath_testkit::finish(command).ended(0);
        let summary: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let hop = &summary["rows"][0]["hops"][0];
        assert_eq!(
            (hop["frames"].as_u64(), hop["copied_bytes_per_frame"].as_f64()),
            (Some(1), Some(0.0)),
            "{hop}"
        );
    })
}

fn each_change_has_a_frame_and_an_idle_output_none() -> Tested {
    with_sway(|sway| {
        let mut captured = Captured::start(&sway, "wayland cursor=no");
        captured.until_colour(BLUE);
        for colour in [RED, GREEN, RED] {
            sway.paint(colour);
            captured.until_colour(colour);
        }
        children::signal(&captured.0, SIGINT).unwrap();
        let (_, rest) = captured.ended(130);
        assert_eq!(rest, 0, "frames without a change");
    })
}

fn a_region_is_a_part_of_the_output() -> Tested {
    with_sway(|sway| {
        let mut captured = Captured::start(&sway, "wayland region=100x50+10+20 frames=1 cursor=no");
        assert_eq!(captured.next_colour((100, 50)), Some(BLUE));
        captured.ended(0);
        let mut command = framepath(&["run", "--quiet", "wayland region=100x50+300+0 ! null"]);
        sway.offer(&mut command);
        framepath_testkit::finish(command)
            .ended(1)
            .prints("region=100x50+300+0 is outside of the output, which has 320x180 pixels");
    })
}

fn a_converted_region_shows_every_change() -> Tested {
    with_sway(|sway| {
        // The conversion keeps the rows that have not changed.
        let path = "wayland region=100x50+10+120 cursor=no ! convert format=yuv420p ! raw -";
        let mut command = framepath(&["run", "--quiet", path]);
        sway.offer(&mut command);
        let mut captured = Captured(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut until_brightness = |is_wanted: &dyn Fn(u8) -> bool| {
            let mut planes = vec![0; 100 * 50 * 3 / 2];
            let is_shown = |planes: &[u8]| planes[..100 * 50].iter().all(|luma| is_wanted(*luma));
            while !is_shown(&planes) {
                captured.0.stdout.as_mut().unwrap().read_exact(&mut planes).unwrap();
            }
        };
        // The luma of blue and of green.
        until_brightness(&|luma| luma < 60);
        for _ in 0..2 {
            sway.paint(GREEN);
            until_brightness(&|luma| luma > 120);
            sway.paint(BLUE);
            until_brightness(&|luma| luma < 60);
        }
        children::signal(&captured.0, SIGINT).unwrap();
        captured.ended(130);
    })
}

fn an_idle_output_has_one_frame() -> Tested {
    with_sway(|sway| {
        let mut waiting = Captured::start(&sway, "wayland cursor=no");
        // The background may still be drawn; the last frame before the signal has its colour.
        waiting.until_colour(BLUE);
        let mut captured = Captured::start(&sway, "wayland cursor=no");
        assert_eq!(captured.next_colour((WIDTH, HEIGHT)), Some(BLUE));
        std::thread::sleep(std::time::Duration::from_millis(500));
        for run in [captured, waiting] {
            children::signal(&run.0, SIGINT).unwrap();
            assert_eq!(run.ended(130).1, 0, "frames without a change");
        }
    })
}

fn outputs_are_chosen_by_name() -> Tested {
    with_sway(|sway| {
        let ended = |source: &str, code: i32| {
            let mut command = framepath(&["run", "--quiet", &format!("{source} ! null")]);
            sway.offer(&mut command);
            framepath_testkit::finish(command).ended(code)
        };
        ended("wayland DP-9 frames=1", 1).prints("the compositor has no output DP-9; it has: HEADLESS-1");
        sway.message(&["create_output"]);
        ended("wayland HEADLESS-2 frames=1", 0);
        ended("wayland frames=1", 0).prints("wayland: captures HEADLESS-1 of HEADLESS-1, HEADLESS-2");
    })
}

fn the_end_of_the_compositor_is_an_error() -> Tested {
    with_sway(|sway| {
        let mut captured = Captured::start(&sway, "wayland cursor=no");
        captured.until_colour(BLUE);
        drop(sway);
        captured.ended(1).0.prints("the connection to the compositor is lost");
    })
}

fn signals_end_every_wait() -> Tested {
    with_sway(|sway| {
        let mut captured = Captured::start(&sway, "wayland cursor=no");
        captured.until_colour(BLUE);
        children::signal(&captured.0, SIGINT).unwrap();
        captured.ended(130);
        // A compositor that accepts connections, and says nothing.
        let listener = UnixListener::bind(sway.folder().join("silent")).unwrap();
        let mut command = framepath(&["run", "--quiet", "wayland ! null"]);
        sway.offer(&mut command);
        let child = command.env("WAYLAND_DISPLAY", "silent").spawn().unwrap();
        let _connection = listener.accept().unwrap();
        children::signal(&child, SIGINT).unwrap();
        wait(child, "run").ended(130);
        let mut command = framepath(&["run", "--quiet", "wayland ! null"]);
        sway.offer(&mut command);
        command.env("WAYLAND_DISPLAY", "silent");
        framepath_testkit::finish(command).ended(1).prints("the compositor has not answered for 5 s");
    })
}

fn a_compositor_that_cannot_be_used_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let mut command = framepath(&["run", "--quiet", "wayland ! null"]);
        command
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("WAYLAND_DISPLAY", name)
            .env_remove("WAYLAND_SOCKET");
        framepath_testkit::finish(command).ended(1)
    };
    run("none").prints("/none: No such file or directory (os error 2); set WAYLAND_DISPLAY");
    for socket in ["-1", "2", "1000000", "socket"] {
        let mut command = framepath(&["run", "--quiet", "wayland ! null"]);
        command.env("WAYLAND_SOCKET", socket);
        framepath_testkit::finish(command).ended(1).prints("WAYLAND_SOCKET is no open descriptor");
    }
    // Bytes that are no messages.
    let listener = UnixListener::bind(folder.path().join("noise")).unwrap();
    let noise = std::thread::spawn(move || {
        use std::io::Write;
        let (mut connection, _) = listener.accept().unwrap();
        // The program may have given up already.
        let _ = connection.write_all(&[0xff; 4096]);
        connection
    });
    let lost = run("noise").prints("the connection to the compositor is lost");
    // The library's own line would be a second one.
    assert_eq!(lost.stderr.lines().count(), 1, "{}", lost.stderr);
    drop(noise.join().unwrap());
}

fn the_screen_of_the_session_is_found() -> Tested {
    with_sway(|sway| {
        let mut captured = Captured::start(&sway, "screen frames=1 cursor=no");
        assert_eq!(captured.next_colour((WIDTH, HEIGHT)), Some(BLUE));
        captured.ended(0);
    })
}

fn a_compositor_with_the_newer_protocol_is_captured() -> Tested {
    let mut wlroots = Wlroots::start()?;
    within_deadline(move || {
        let whole = (WIDTH, HEIGHT);
        let mut captured = Captured::offered("wayland", |command| wlroots.offer(command));
        assert_eq!(captured.next_colour(whole), Some(BLUE));
        // Each change has its frame, and there are no others.
        for colour in [RED, GREEN, BLUE] {
            wlroots.paint(colour);
            assert_eq!(captured.next_colour(whole), Some(colour));
        }
        let region = "wayland region=10x20+30+40 cursor=no";
        let mut part = Captured::offered(region, |command| wlroots.offer(command));
        assert_eq!(part.next_colour((10, 20)), Some(BLUE));
        wlroots.paint(RED);
        assert_eq!(part.next_colour((10, 20)), Some(RED));
        assert_eq!(captured.next_colour(whole), Some(RED));
        for run in [part, captured] {
            children::signal(&run.0, SIGINT).unwrap();
            assert_eq!(run.ended(130).1, 0, "frames without a change");
        }
        // A new size: frames with it follow, and a file of one size ends.
        let mut sized = Captured::offered("wayland", |command| wlroots.offer(command));
        assert_eq!(sized.next_colour(whole), Some(RED));
        wlroots.resize((160, 90));
        sized.ended(1).0.prints("160x90");
        let mut small = Captured::offered("wayland frames=1", |command| wlroots.offer(command));
        assert_eq!(small.next_colour((160, 90)), Some(RED));
        small.ended(0);
        let mut captured = Captured::offered("wayland", |command| wlroots.offer(command));
        assert_eq!(captured.next_colour((160, 90)), Some(RED));
        drop(wlroots);
        captured.ended(1).0.prints("the connection to the compositor is lost");
    });
    Ok(())
}

fn an_output_that_is_switched_off_is_waited_for() -> Tested {
    let mut wlroots = Wlroots::start()?;
    within_deadline(move || {
        let mut captured = Captured::offered("wayland", |command| wlroots.offer(command));
        assert_eq!(captured.next_colour((WIDTH, HEIGHT)), Some(BLUE));
        wlroots.switch_off();
        wlroots.paint(RED);
        std::thread::sleep(std::time::Duration::from_millis(500));
        wlroots.resize((WIDTH, HEIGHT));
        // A frame that was asked for before may still have the older colour.
        captured.until_colour(RED);
        children::signal(&captured.0, SIGINT).unwrap();
        captured.ended(130);
    });
    Ok(())
}
