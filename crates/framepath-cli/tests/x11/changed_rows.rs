// SPDX-License-Identifier: MIT OR Apache-2.0
//! Only the changed rows of the screen are captured and converted, and every frame is whole nevertheless.

use std::collections::VecDeque;

use framepath::{Frame, Pipeline};
use framepath_model::changed_rows::ChangedRows;
use framepath_testkit::harness::Tested;

use crate::drawing_client::{GREEN, RED};
use crate::{ALL, frames, next, pixels, summary, with_server};

/// Rectangles in arbitrary but fixed places, with colours.
fn rectangles(count: i16) -> impl Iterator<Item = ((i16, i16, u16, u16), u32)> {
    (0..count).map(|number| {
        let place = (number * 61 % 320, number * 37 % 180);
        (
            (place.0, place.1, 9 + number as u16, 1 + number as u16 % 4),
            (0x10_2030 * number as u32) & 0xff_ffff,
        )
    })
}

pub fn a_frame_of_few_changes_has_all_pixels() -> Tested {
    with_server(|server, client| {
        client.paint(320, 180);
        // Some frames are kept, so that the slots are as old as several changes.
        let mut kept = VecDeque::new();
        let mut frames = frames(&server, "rate=0 cursor=no pool=4");
        let first = next(&mut frames);
        assert!(first.changed_rows().is_some_and(|rows| rows.count() == 180));
        for (number, (rectangle, colour)) in rectangles(60).enumerate() {
            client.fill(client.root, rectangle, colour);
            let frame = next(&mut frames);
            assert_eq!(pixels(&frame), client.pixels(client.root, ALL), "{number}");
            let bottom = 180.min(rectangle.1 + rectangle.3 as i16) as u32;
            let mut expected = ChangedRows::default();
            expected.add(rectangle.1 as u32..bottom);
            assert_eq!(frame.changed_rows(), Some(&expected), "{number}");
            kept.push_back(frame);
            if number % 7 == 6 || kept.len() == 3 {
                kept.pop_front();
            }
        }
    })
}

pub fn only_changed_rows_are_converted() -> Tested {
    with_server(|server, client| {
        client.paint(320, 180);
        let converted = |options: &str| {
            let path = format!("x11 {} cursor=no {options} ! convert format=yuv420p", server.name());
            Pipeline::parse(&path).unwrap().frames().unwrap()
        };
        let yuv = |frame: &Frame| (0..3).map(|plane| frame.plane(plane).to_vec()).collect::<Vec<_>>();
        let mut frames = converted("rate=0");
        let mut kept = VecDeque::from([next(&mut frames)]);
        for (number, (rectangle, colour)) in rectangles(40).enumerate() {
            client.fill(client.root, rectangle, colour);
            let frame = next(&mut frames);
            assert!(yuv(&frame) == yuv(&next(&mut converted("frames=1"))), "picture {number}");
            kept.push_back(frame);
            if kept.len() > number % 5 {
                kept.pop_front();
            }
        }
        drop((frames, kept));
        // A frame of a few rows has few copied bytes: 180 rows at first, then 10.
        let painter = std::thread::spawn(move || {
            for _ in 0..4 {
                std::thread::sleep(std::time::Duration::from_millis(100));
                client.fill(client.root, (0, 20, 9, 10), RED);
                client.fill(client.root, (0, 20, 9, 10), GREEN);
            }
        });
        let path =
            format!("x11 {} cursor=no rate=30 frames=3 ! convert format=yuv420p ! null", server.name());
        let row = summary(&path);
        painter.join().unwrap();
        let whole = 320.0 * 180.0 * 1.5;
        let bytes = row["copied_bytes_per_frame"].as_f64().unwrap() * 3.0;
        assert!(bytes >= whole && bytes < 1.5 * whole, "{bytes} of {whole}");
    })
}
