// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources `x11` and `screen` with the test's own X server. Frames are compared with what another client reads.

mod changed_rows;
mod drawing_client;
mod proxy;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use drawing_client::{BLUE, DrawingClient, GREEN, RED, bgr, of_bytes};
use framepath::{Frame, Frames, Pipeline};
use framepath_os::process::children;
use framepath_testkit::display::Xvfb;
use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::{framepath, run, until, within_deadline};
use proxy::{Break, Proxy};

framepath_testkit::tests! {
    a_frame_has_the_pixels_of_the_screen_and_copies_none,
    a_server_without_shared_memory_is_captured_by_counted_copies,
    a_sandboxed_stage_reads_the_frames,
    an_idle_screen_has_one_frame,
    each_change_after_a_pause_has_one_frame,
    changed_rows::a_frame_of_few_changes_has_all_pixels,
    changed_rows::only_changed_rows_are_converted,
    the_last_frame_of_many_changes_has_the_last_pixels,
    a_slow_path_gets_the_newest_pixels,
    the_pointer_is_drawn_where_it_is,
    a_moved_pointer_has_a_frame_only_if_it_is_shown,
    only_changes_in_the_region_have_frames,
    a_region_outside_of_the_screen_is_an_error,
    a_covered_window_is_captured_whole,
    a_window_is_chosen_by_its_number_or_a_part_of_its_name,
    a_closed_window_ends_the_stream,
    a_window_that_is_hidden_and_shown_or_resized_goes_on,
    a_resized_screen_has_frames_of_its_new_size,
    later_hops_take_the_new_size_or_name_it,
    a_sink_that_ends_in_another_thread_ends_an_idle_source,
    a_server_that_ends_is_an_error,
    a_signal_ends_the_wait_for_a_change,
    a_server_that_cannot_be_reached_is_named,
    a_server_that_does_not_answer_is_an_error,
    a_signal_ends_the_wait_for_the_setup,
    a_request_without_an_answer_is_an_error,
    a_picture_of_another_depth_is_refused,
    the_screen_of_the_session_is_found,
}

const SIZE: (u32, u32) = (320, 180);
const ALL: (i16, i16, u16, u16) = (0, 0, 320, 180);
const SIGINT: i32 = 2;

/// Frames of the `x11` source with these options.
fn frames(server: &Xvfb, options: &str) -> Frames {
    Pipeline::parse(&format!("x11 {} {options}", server.name())).unwrap().frames().unwrap()
}

/// Returns the next frame. A run that hangs fails the test.
fn next(frames: &mut Frames) -> Frame {
    frames.next().expect("a frame").unwrap()
}

fn pixels(frame: &Frame) -> Vec<[u8; 3]> {
    assert!(frame.layout().planes()[0].stride == frame.layout().width as usize * 4);
    of_bytes(&frame.plane(0).to_vec())
}

/// Starts a server and a client, and runs `test` with a time limit.
fn with_server(test: impl FnOnce(Xvfb, DrawingClient) + Send + 'static) -> Tested {
    let server = Xvfb::start(SIZE)?;
    let client = DrawingClient::connect(&server);
    within_deadline(move || test(server, client));
    Ok(())
}

fn xdotool(server: &Xvfb, words: &[&str]) {
    let status = Command::new("xdotool").args(words).env("DISPLAY", server.name()).status().unwrap();
    assert!(status.success(), "{words:?}");
}

/// Returns the number of files in a folder; 0 if there is no such folder.
fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Runs the command and returns the first row of its JSON summary.
fn summary(path: &str) -> serde_json::Value {
    let ran = run(&["run", "--quiet", "--json", "-", path]).ended(0);
    let summary: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    summary["rows"][0].clone()
}

fn a_frame_has_the_pixels_of_the_screen_and_copies_none() -> Tested {
    with_server(|server, client| {
        client.paint(320, 180);
        let frame = next(&mut frames(&server, "cursor=no"));
        assert_eq!(pixels(&frame), client.pixels(client.root, ALL));
        assert_eq!((frame.meta().seq, frame.meta().pts, frame.layout().format.name()), (0, Some(0), "BGR0"));
        let row = summary(&format!("x11 {} cursor=no frames=1 ! null", server.name()));
        assert_eq!((&row["frames"], &row["copied_bytes_per_frame"]), (&1.into(), &0.0.into()), "{row}");
    })
}

fn a_server_without_shared_memory_is_captured_by_counted_copies() -> Tested {
    let server = Xvfb::without(SIZE, "MIT-SHM")?;
    let client = DrawingClient::connect(&server);
    within_deadline(move || {
        client.paint(320, 180);
        let mut frames = frames(&server, "cursor=no");
        assert_eq!(pixels(&next(&mut frames)), client.pixels(client.root, ALL));
        client.fill(client.root, (3, 4, 50, 60), RED);
        assert_eq!(pixels(&next(&mut frames)), client.pixels(client.root, ALL));
        let path = format!("x11 {} cursor=no frames=1 ! null", server.name());
        assert_eq!(summary(&path)["copied_bytes_per_frame"], f64::from(320 * 180 * 4));
        run(&["run", &path]).ended(0).prints("does not share memory (MIT-SHM 1.2): each frame is copied");
    });
    Ok(())
}

fn a_sandboxed_stage_reads_the_frames() -> Tested {
    with_server(|server, client| {
        client.paint(320, 180);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bgr");
        let stages = "convert format=bgr24 host=process ! raw";
        run(&["run", &format!("x11 {} cursor=no frames=1 ! {stages} {}", server.name(), file.display())])
            .ended(0);
        let bytes = std::fs::read(file).unwrap();
        assert_eq!(bytes, client.pixels(client.root, ALL).concat());
    })
}

fn an_idle_screen_has_one_frame() -> Tested {
    with_server(|server, client| {
        let mut frames = frames(&server, "rate=100");
        next(&mut frames);
        // Time for a hundred frames.
        std::thread::sleep(std::time::Duration::from_secs(1));
        client.fill(client.root, (0, 0, 9, 9), RED);
        let second = next(&mut frames);
        assert_eq!((second.meta().seq, pixels(&second)[0]), (1, bgr(RED)));
    })
}

fn each_change_after_a_pause_has_one_frame() -> Tested {
    with_server(|server, client| {
        let mut frames = frames(&server, "rate=0 cursor=no");
        next(&mut frames);
        for (number, colour) in [RED, GREEN, BLUE, RED, GREEN].into_iter().enumerate() {
            client.fill(client.root, (number as i16 * 20, 7, 30, 40), colour);
            let frame = next(&mut frames);
            assert_eq!(
                (frame.meta().seq, pixels(&frame)),
                (number as u64 + 1, client.pixels(client.root, ALL))
            );
        }
    })
}

fn the_last_frame_of_many_changes_has_the_last_pixels() -> Tested {
    with_server(|server, client| {
        let mut frames = frames(&server, "rate=20 cursor=no");
        let mut times = vec![next(&mut frames).meta().pts.unwrap()];
        for number in 0..1000 {
            client.fill(client.root, (0, 0, 300, 100), number);
        }
        client.fill(client.root, (0, 0, 300, 100), RED);
        loop {
            let frame = next(&mut frames);
            times.push(frame.meta().pts.unwrap());
            if pixels(&frame)[0] == bgr(RED) {
                break;
            }
        }
        assert!(times.len() < 500, "{} frames of 1001 changes", times.len());
        assert!(times.is_sorted(), "{times:?}");
    })
}

fn a_slow_path_gets_the_newest_pixels() -> Tested {
    with_server(|server, client| {
        let mut frames = frames(&server, "rate=0 cursor=no pool=1");
        // While this frame is kept, the only slot is in use.
        let kept = next(&mut frames);
        for colour in [RED, GREEN, BLUE] {
            client.fill(client.root, ALL, colour);
        }
        drop(kept);
        let second = next(&mut frames);
        assert_eq!((second.meta().seq, pixels(&second)[0]), (1, bgr(BLUE)));
    })
}

fn the_pointer_is_drawn_where_it_is() -> Tested {
    needs_program("xdotool", "xdotool")?;
    with_server(|server, client| {
        client.fill(client.root, ALL, BLUE);
        client.set_pointer(GREEN);
        xdotool(&server, &["mousemove", "100", "50"]);
        let without = next(&mut frames(&server, "cursor=no"));
        assert!(pixels(&without).iter().all(|pixel| *pixel == bgr(BLUE)));
        let places = |options: &str| {
            let frame = next(&mut frames(&server, options));
            let width = frame.layout().width as usize;
            let pixels = pixels(&frame);
            assert!(pixels.iter().all(|pixel| [bgr(BLUE), bgr(GREEN)].contains(pixel)));
            let green = (0..pixels.len()).filter(|at| pixels[*at] == bgr(GREEN));
            green.map(|at| (at % width, at / width)).collect::<Vec<_>>()
        };
        let all = places("");
        assert_eq!((all.len(), all[0], all[63]), (64, (100, 50), (107, 57)));
        // In a window's own coordinates.
        let window = client.window("editor", (96, 30, 40, 60), BLUE);
        let part = places(&format!("window={window:#x}"));
        assert_eq!((part.len(), part[0], part[63]), (64, (4, 20), (11, 27)));
        // Cut at the edge of a region.
        let part = places("region=50x20+104+40");
        assert_eq!((part.len(), part[0]), (32, (0, 10)));
    })
}

fn a_moved_pointer_has_a_frame_only_if_it_is_shown() -> Tested {
    needs_program("xdotool", "xdotool")?;
    with_server(|server, client| {
        client.fill(client.root, ALL, BLUE);
        client.set_pointer(GREEN);
        xdotool(&server, &["mousemove", "100", "50"]);
        let (mut with, mut without) = (frames(&server, ""), frames(&server, "cursor=no"));
        next(&mut with);
        next(&mut without);
        xdotool(&server, &["mousemove", "10", "0"]);
        let moved = next(&mut with);
        assert_eq!((moved.meta().seq, pixels(&moved)[10]), (1, bgr(GREEN)));
        // As a mouse moves it; the line above sets it without an event.
        xdotool(&server, &["mousemove_relative", "30", "0"]);
        let moved = next(&mut with);
        assert_eq!((moved.meta().seq, pixels(&moved)[10], pixels(&moved)[40]), (2, bgr(BLUE), bgr(GREEN)));
        client.fill(client.root, (0, 0, 5, 5), RED);
        let changed = next(&mut without);
        assert_eq!((changed.meta().seq, pixels(&changed)[10]), (1, bgr(BLUE)));
    })
}

fn only_changes_in_the_region_have_frames() -> Tested {
    with_server(|server, client| {
        client.paint(320, 180);
        let mut frames = frames(&server, "region=100x50+200+120 cursor=no rate=0");
        let region = (200, 120, 100, 50);
        assert_eq!(pixels(&next(&mut frames)), client.pixels(client.root, region));
        for outside in [(0, 0, 200, 180), (300, 0, 20, 180), (200, 0, 100, 120), (200, 170, 100, 10)] {
            client.fill(client.root, outside, RED);
        }
        client.fill(client.root, (299, 169, 1, 1), GREEN);
        let second = next(&mut frames);
        assert_eq!((second.meta().seq, pixels(&second)), (1, client.pixels(client.root, region)));
        assert_eq!(pixels(&second)[100 * 50 - 1], bgr(GREEN));
    })
}

fn a_region_outside_of_the_screen_is_an_error() -> Tested {
    with_server(|server, _| {
        let refused = |region: &str, reason: &str| {
            run(&["run", &format!("x11 {} region={region} ! null", server.name())]).ended(1).prints(reason);
        };
        refused("321x180+0+0", "region=321x180+0+0 is outside of the screen, which has 320x180 pixels");
        refused("10x10+315+0", "is outside of the screen");
        refused("10x10", "region=10x10: not a rectangle; expected WIDTHxHEIGHT+X+Y in pixels");
    })
}

fn a_covered_window_is_captured_whole() -> Tested {
    with_server(|server, client| {
        let below = client.window("below", (20, 30, 64, 48), RED);
        client.window("above", (0, 0, 320, 180), BLUE);
        let mut frames = frames(&server, "window=below cursor=no rate=0");
        let first = next(&mut frames);
        assert_eq!((first.layout().width, first.layout().height), (64, 48));
        assert!(pixels(&first).iter().all(|pixel| *pixel == bgr(RED)));
        client.fill(client.root, ALL, GREEN);
        client.fill(below, (1, 0, 1, 1), GREEN);
        let second = next(&mut frames);
        assert_eq!(second.meta().seq, 1, "a change outside of the window has no frame");
        assert_eq!(pixels(&second)[..3], [bgr(RED), bgr(GREEN), bgr(RED)]);
    })
}

fn a_window_is_chosen_by_its_number_or_a_part_of_its_name() -> Tested {
    with_server(|server, client| {
        let one = client.window("editor one", (0, 0, 40, 30), RED);
        let two = client.window("editor two", (60, 0, 50, 30), GREEN);
        let path = |window: &str| format!("x11 {} window={window} cursor=no frames=1 ! null", server.name());
        for (text, width) in [(format!("{one:#x}"), 40), ("two".to_owned(), 50)] {
            let frame = next(&mut frames(&server, &format!("window={text}")));
            assert_eq!(frame.layout().width, width);
        }
        run(&["run", &path("editor")])
            .ended(1)
            .prints(&format!("{one:#x} (editor one)"))
            .prints(&format!("{two:#x} (editor two)"));
        run(&["run", &path("clock")]).ended(1).prints("no visible window has this in its name");
        run(&["run", &path("0x1234567")]).ended(1).prints("window=0x1234567: there is no such window");
        client.hide(one);
        run(&["run", &path(&format!("{one:#x}"))]).ended(1).prints("is not visible; show it first");
    })
}

fn a_closed_window_ends_the_stream() -> Tested {
    with_server(|server, client| {
        let window = client.window("editor", (0, 0, 40, 30), RED);
        let folder = tempfile::tempdir().unwrap();
        let shots = folder.path().join("shots");
        let path = format!("x11 {} window=editor cursor=no ! png {}", server.name(), shots.display());
        let child = framepath(&["run", &path]).spawn().unwrap();
        until("the first frame is written", || count(&shots) == 1);
        client.close(window);
        let ended = framepath_testkit::wait(child, "the run").ended(0);
        ended.prints(&format!("x11: window {window:#x} (editor) was closed, so the stream has ended"));
    })
}

fn a_window_that_is_hidden_and_shown_or_resized_goes_on() -> Tested {
    with_server(|server, client| {
        let window = client.window("editor", (10, 10, 40, 30), RED);
        let mut frames = frames(&server, "window=editor cursor=no rate=0");
        next(&mut frames);
        client.hide(window);
        client.move_window(window, 60, 60);
        client.show(window);
        client.fill(window, (0, 0, 1, 1), GREEN);
        while pixels(&next(&mut frames))[0] != bgr(GREEN) {}
        client.resize_window(window, 101, 77);
        client.fill(window, (100, 76, 1, 1), BLUE);
        let last = loop {
            let frame = next(&mut frames);
            if pixels(&frame)[frame.layout().width as usize * frame.layout().height as usize - 1] == bgr(BLUE)
            {
                break frame;
            }
        };
        assert_eq!((last.layout().width, last.layout().height), (101, 77));
        assert_eq!(pixels(&last), client.pixels(window, (0, 0, 101, 77)));
    })
}

fn a_resized_screen_has_frames_of_its_new_size() -> Tested {
    let server = Xvfb::start((1024, 768))?;
    let client = DrawingClient::connect(&server);
    within_deadline(move || {
        let mut frames = frames(&server, "cursor=no rate=0");
        assert_eq!(next(&mut frames).layout().width, 1024);
        for (width, height) in [(640, 480), (800, 600), (1024, 768)] {
            client.resize_screen(width, height);
            client.fill(client.root, (width as i16 - 1, height as i16 - 1, 1, 1), RED);
            let size = (u32::from(width), u32::from(height));
            let last = loop {
                let frame = next(&mut frames);
                let is_new = (frame.layout().width, frame.layout().height) == size;
                if is_new && pixels(&frame).last() == Some(&bgr(RED)) {
                    break frame;
                }
            };
            assert_eq!(pixels(&last), client.pixels(client.root, (0, 0, width, height)));
        }
        // A region that is outside of the smaller screen.
        let path = format!("x11 {} region=1000x10+0+0 cursor=no", server.name());
        let mut region = Pipeline::parse(&path).unwrap().frames().unwrap();
        next(&mut region);
        client.resize_screen(640, 480);
        let error = region.find_map(Result::err).unwrap().to_string();
        assert!(error.contains("is outside of the screen, which has 640x480 pixels"), "{error}");
    });
    Ok(())
}

fn later_hops_take_the_new_size_or_name_it() -> Tested {
    with_server(|server, client| {
        let source = format!("x11 {} cursor=no rate=0", server.name());
        let mut converted =
            Pipeline::parse(&format!("{source} ! convert format=grey")).unwrap().frames().unwrap();
        assert_eq!(next(&mut converted).layout().width, 320);
        let folder = tempfile::tempdir().unwrap();
        let [sums, shots] = ["sums", "shots"].map(|name| folder.path().join(name).display().to_string());
        let path = format!("{source} ! tee ( queue ! framemd5 {sums} ) ( png {shots} )");
        let child = framepath(&["run", &path]).spawn().unwrap();
        let file = format!("{sums}.y4m");
        let path = format!("{source} ! convert format=yuv420p ! y4m {file}");
        let one_size = framepath(&["run", &path]).spawn().unwrap();
        let shots = Path::new(&shots);
        // The file lacks at most what a buffer of 64 KiB holds.
        let is_written = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0);
        until("the first frames are written", || count(shots) == 1 && is_written());
        client.resize_screen(200, 100);
        while next(&mut converted).layout().width != 200 {}
        framepath_testkit::wait(one_size, "the run")
            .ended(1)
            .prints("frames change from 320x180 YUV420P to 200x100");
        until("a later frame is written", || count(shots) > 1);
        children::signal(&child, SIGINT).unwrap();
        framepath_testkit::wait(child, "the run").ended(130);
        let sums = std::fs::read_to_string(sums).unwrap();
        let sizes: Vec<_> = framepath_testkit::md5_lines(&sums).iter().map(|line| bytes_of(line)).collect();
        assert_eq!((sizes[0], sizes.last()), (320 * 180 * 4, Some(&(200 * 100 * 4))), "{sums}");
    })
}

fn a_sink_that_ends_in_another_thread_ends_an_idle_source() -> Tested {
    with_server(|server, _| {
        // The screen does not change, so the source does not push a second frame.
        let source = format!("x11 {} cursor=no", server.name());
        run(&["run", &format!("{source} ! queue ! y4m /dev/null")])
            .ended(1)
            .prints("does not work on BGR0 frames");
        run(&["run", "--frames", "1", &format!("{source} ! queue ! null")]).ended(0);
        let both = format!("{source} ! tee ( queue ! null ) ( queue ! convert format=grey ! queue ! null )");
        run(&["run", "--frames", "1", &both]).ended(0);
    })
}

/// Returns the number of bytes of the frame in a line of framemd5.
fn bytes_of(line: &str) -> usize {
    line.split(',').nth(4).unwrap().trim().parse().unwrap()
}

fn a_server_that_ends_is_an_error() -> Tested {
    with_server(|server, client| {
        let mut frames = frames(&server, "cursor=no");
        next(&mut frames);
        let name = server.name();
        drop(server);
        drop(client);
        let error = frames.next().unwrap().unwrap_err().to_string();
        assert!(error.contains(&format!("X server {name}: the connection is lost")), "{error}");
    })
}

fn a_signal_ends_the_wait_for_a_change() -> Tested {
    with_server(|server, _| {
        let folder = tempfile::tempdir().unwrap();
        let shots = folder.path().join("shots");
        let path = format!("x11 {} ! png {}", server.name(), shots.display());
        let child = framepath(&["run", &path]).spawn().unwrap();
        until("the first frame is written", || count(&shots) == 1);
        children::signal(&child, SIGINT).unwrap();
        framepath_testkit::wait(child, "the run").ended(130);
        assert_eq!(count(&shots), 1);
    })
}

fn a_server_that_cannot_be_reached_is_named() -> Tested {
    let folder = tempfile::tempdir().unwrap();
    let ran = |display: &str, set: bool| {
        let path = format!("x11 {display} frames=1 ! null");
        let mut command = framepath(&["run", &path]);
        command.env("XAUTHORITY", folder.path().join("none"));
        if set {
            command.env("DISPLAY", ":32123")
        } else {
            command.env_remove("DISPLAY")
        };
        framepath_testkit::finish(command).ended(1)
    };
    ran(":32124", false).prints("cannot connect to the X server :32124: No such file or directory");
    ran("", true).prints("cannot connect to the X server :32123: ");
    ran("", false).prints("no X server is named; name it, such as `x11 :0`, or set DISPLAY");
    ran("screen", false).prints("screen is no name of an X server");
    // A server that lets in only clients with a cookie.
    let cookies = folder.path().join("cookies");
    std::fs::write(&cookies, cookie_file()).unwrap();
    let server = Xvfb::with_cookies(SIZE, &cookies)?;
    ran(&server.name(), false).prints("it denies the connection: Authorization required");
    let path = format!("x11 {} frames=1 ! null", server.name());
    let mut command = framepath(&["run", &path]);
    command.env("XAUTHORITY", &cookies);
    framepath_testkit::finish(command).ended(0);
    let mut command = framepath(&["run", &path]);
    // A file without an end.
    command.env("XAUTHORITY", "/dev/zero");
    framepath_testkit::finish(command)
        .ended(1)
        .prints("/dev/zero is no file of X cookies; correct XAUTHORITY");
    Ok(())
}

/// Returns the contents of an authority file with one cookie for every local display.
fn cookie_file() -> Vec<u8> {
    let field = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let any_address = 0xffff_u16.to_be_bytes();
    let fields = [field(b""), field(b""), field(b"MIT-MAGIC-COOKIE-1"), field(&[7; 16])];
    [&any_address[..], &fields.concat()].concat()
}

fn a_server_that_does_not_answer_is_an_error() {
    within_deadline(|| {
        let (listener, number) = (0..100)
            .find_map(|number| Some((TcpListener::bind(("127.0.0.1", 6900 + number)).ok()?, 900 + number)))
            .unwrap();
        run(&["run", &format!("x11 127.0.0.1:{number} ! null")]).ended(1).prints(&format!(
            "cannot connect to the X server 127.0.0.1:{number}: it has not answered for 5 s"
        ));
        drop(listener);
    });
}

fn a_signal_ends_the_wait_for_the_setup() {
    within_deadline(|| {
        let (listener, number) = (0..100)
            .find_map(|number| Some((TcpListener::bind(("127.0.0.1", 7000 + number)).ok()?, 1000 + number)))
            .unwrap();
        let child = framepath(&["run", &format!("x11 127.0.0.1:{number} ! null")]).spawn().unwrap();
        let connection = listener.accept().unwrap();
        children::signal(&child, SIGINT).unwrap();
        framepath_testkit::wait(child, "the run").ended(130);
        drop(connection);
    });
}

/// Captures through a [`Proxy`], which breaks the answers after the first frame, and returns the error of the second.
fn broken(server: &Xvfb, client: &DrawingClient, way: Break) -> String {
    let proxy = Proxy::start(server);
    let path = format!("x11 127.0.0.1:{} cursor=no", proxy.display);
    let mut frames = Pipeline::parse(&path).unwrap().frames().unwrap();
    assert_eq!(pixels(&next(&mut frames)), client.pixels(client.root, ALL));
    // The source has read all answers when its next capture was reported.
    client.fill(client.root, (0, 0, 9, 9), RED);
    assert_eq!(pixels(&next(&mut frames)), client.pixels(client.root, ALL));
    proxy.set(way);
    client.fill(client.root, (0, 0, 9, 9), BLUE);
    frames.next().unwrap().unwrap_err().to_string()
}

fn a_request_without_an_answer_is_an_error() -> Tested {
    with_server(|server, client| {
        let error = broken(&server, &client, Break::Replies);
        assert!(error.ends_with("it has not answered for 5 s"), "{error}");
    })
}

fn a_picture_of_another_depth_is_refused() -> Tested {
    with_server(|server, client| {
        let error = broken(&server, &client, Break::Depth);
        assert!(
            error.contains("it sent 11520 bytes of depth 99; expected 11520 bytes of depth 24"),
            "{error}"
        );
    })
}

fn the_screen_of_the_session_is_found() -> Tested {
    with_server(|server, _| {
        let ran = |display: Option<&str>, wayland: Option<&str>| {
            let mut command = framepath(&["run", "screen frames=1 ! null"]);
            for name in ["DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"] {
                command.env_remove(name);
            }
            command.envs(display.map(|name| ("DISPLAY", name)));
            command.envs(wayland.map(|name| ("WAYLAND_DISPLAY", name)));
            framepath_testkit::finish(command)
        };
        ran(Some(&server.name()), None).ended(0);
        // The X server of a Wayland session shows only windows of X programs.
        let ended = ran(Some(&server.name()), Some("wayland-0")).ended(1);
        ended.prints(&format!("`x11 {} window=NAME` captures a window of an X program", server.name()));
        ran(None, None).ended(1).prints("found no screen: neither an X server (DISPLAY)");
    })
}
