// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decoder workers that break the protocol at a flush, or claim to wait for a buffer while the
//! program holds almost none. Another worker continues their stream without a loss: immediately
//! after a protocol error, else after the watchdog's timeout.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use framepath::{Frames, Pipeline, SeekTo};
use framepath_model::wire::{Completion, Submission};
use framepath_os::crossing::Socket;

use super::Test;
use super::act::{Act, Part, Then, endlessly};
use super::peer::{Peer, Word, opened_quietly, stay};

/// First argument with which this binary acts as the program with the hostile worker.
pub const DRIVE: &str = "drive";

/// Interval between two false messages: far below the watchdog's timeout.
const NOW_AND_THEN: Duration = Duration::from_millis(20);

const fn act(name: &'static str, play: fn(Socket)) -> Act {
    // Only this test plays these acts, because its program seeks and keeps frames.
    Act { name, part: Part::Packets, then: Then::Anything, play }
}

pub const ACTS: &[Act] = &[
    act("ends-again-and-again-at-a-flush", |socket| {
        at_a_flush(socket, |peer, _, _| endlessly(|| now_and_then(peer, &Completion::End)));
    }),
    act("ends-for-ever-at-a-flush", |socket| {
        at_a_flush(socket, |peer, _, _| endlessly(|| peer.complete(&Completion::End)));
    }),
    act("answers-an-older-flush-again-and-again", |socket| {
        at_a_flush(socket, |peer, _, _| {
            endlessly(|| now_and_then(peer, &Completion::Flushed { number: 0 }));
        });
    }),
    act("answers-an-older-flush-for-ever", |socket| {
        at_a_flush(socket, |peer, _, _| endlessly(|| peer.complete(&Completion::Flushed { number: 0 })));
    }),
    act("answers-a-flush-twice", |socket| {
        at_a_flush(socket, |peer, flush, _| {
            peer.complete(&Completion::Flushed { number: flush });
            peer.complete(&Completion::Flushed { number: flush });
        });
    }),
    act("gives-what-it-has-forgotten", |socket| {
        at_a_flush(socket, |peer, flush, last| {
            peer.complete(&Completion::Flushed { number: flush });
            peer.frame(last, 0);
        });
    }),
    act("gives-what-comes-behind-a-flush-before-it-answers", |socket| at_a_flush(socket, |_, _, _| ())),
    act("gives-20000-frames-at-a-flush", |socket| {
        at_a_flush(socket, |peer, flush, last| {
            (0..20_000).for_each(|_| peer.frame(last, 0));
            peer.complete(&Completion::Flushed { number: flush });
        });
    }),
    act("gives-frames-now-and-then-at-a-flush", |socket| {
        at_a_flush(socket, |peer, _, last| {
            endlessly(|| {
                peer.frame(last, 0);
                sleep(NOW_AND_THEN);
            });
        });
    }),
    act(WAITS, |socket| {
        let mut peer = opened_quietly(socket, true);
        peer.names();
        for slot in 0..2 {
            let Submission::Packet { seq, .. } = peer.next() else { stay() };
            peer.frame(seq, slot);
        }
        endlessly(|| {
            peer.set(Word::SlotBell, 1);
            sleep(Duration::from_millis(1));
        })
    }),
];

const WAITS: &str = "says-that-it-waits-for-a-slot";

fn now_and_then(peer: &mut Peer, completion: &Completion) {
    peer.complete(completion);
    sleep(NOW_AND_THEN);
}

/// Answers each packet with a frame. At a flush calls `cheat` with the number of the flush and
/// the number of the last packet before it.
fn at_a_flush(socket: Socket, cheat: fn(&mut Peer, u64, u64)) {
    let mut peer = opened_quietly(socket, true);
    peer.names();
    let (mut last, mut slot) = (0, 0);
    loop {
        match peer.next() {
            Submission::Packet { seq, .. } => {
                peer.frame(seq, slot % 4);
                (last, slot) = (seq, slot + 1);
            }
            Submission::Drain => peer.complete(&Completion::End),
            Submission::Flush { seq } => cheat(&mut peer, seq, last),
            _ => {}
        }
    }
}

pub fn tests() -> impl Iterator<Item = (String, Test)> {
    ACTS.iter().map(|act| {
        let name = format!("a-program-with-a-worker-that-{}", act.name);
        (name, Box::new(move || play(act)) as Test)
    })
}

/// Starts the program with one hostile worker, whose successors are honest. Checks that the program
/// succeeds.
fn play(act: &Act) {
    let folder = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    let worker = folder.path().join(act.name);
    symlink(&own, &worker).unwrap();
    symlink(env!("CARGO_BIN_EXE_framepath"), folder.path().join("honest")).unwrap();
    let mut program = Command::new(own);
    program.args([DRIVE, act.name]).env("FRAMEPATH_WORKER", &worker);
    framepath_testkit::finish(program).ended(0);
}

fn frames(options: &str) -> Frames {
    let clip = framepath_testkit::in_checkout("clips/h264-180p8-container.mp4");
    let path = format!("file {} host=inline ! decode threads=1 {options}", clip.display());
    Pipeline::parse(&path).unwrap().frames().unwrap()
}

/// Returns the hashes of all remaining frames.
fn hashes(frames: &mut Frames) -> Vec<u64> {
    let hash = |frame: framepath::Frame| {
        let mut hasher = DefaultHasher::new();
        (0..frame.layout().planes().len()).for_each(|plane| frame.plane(plane).to_vec().hash(&mut hasher));
        hasher.finish()
    };
    frames.map(|frame| hash(frame.unwrap())).collect()
}

/// Runs the program, whose first worker plays the act `name`. Checks that the program receives all
/// frames up to the end of its stream, after the death of one worker.
pub fn drive(name: &str) {
    // The timeout is long, because an honest worker on a busy machine must not exceed it.
    let mut stream = frames("host=process watchdog=5s");
    let mut inline = frames("");
    if name == WAITS {
        let count = hashes(&mut inline).len();
        let mut kept = stream.next().map(Result::unwrap);
        let mut came = 1;
        for frame in stream.by_ref() {
            kept.replace(frame.unwrap());
            came += 1;
        }
        assert_eq!(came, count);
    } else {
        let to = Duration::from_millis(500);
        stream.by_ref().take(2).for_each(|frame| drop(frame.unwrap()));
        stream.seek(to, SeekTo::Exact).unwrap();
        inline.seek(to, SeekTo::Exact).unwrap();
        let (behind, expected) = (hashes(&mut stream), hashes(&mut inline));
        assert!(!expected.is_empty());
        assert_eq!(behind, expected);
    }
    let report = stream.report().unwrap();
    assert!(report.error.is_none() && report.losses().is_empty(), "{:?} {:?}", report.error, report.workers);
    assert_eq!(report.workers[0].deaths, 1, "{:?}", report.workers);
}
