// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

/// Time of an encoder's outputs before those of its inputs.
const MOVED: i64 = 1_000_000;

/// Calls of a pipeline whose pads have the addresses of their elements, times ten.
#[derive(Default)]
struct Pipeline {
    spans: Vec<CallSpan>,
    copies: Vec<BufferCopy>,
    names: ObjectNames,
}

impl Pipeline {
    /// Adds the pad number `pad` of the element `from`, linked to the element `to`.
    fn pad(mut self, pad: u64, from: u64, to: u64, name: &str) -> Pipeline {
        let (name, next_name) = (name.to_owned(), format!("to-{to}"));
        self.names.add_pad(1, pad, Pad { parent: from, name, peer: 1000 + pad, next: to, next_name });
        self
    }

    fn call(&mut self, call: Call, thread: i32, object: u64, [data, enter_ns, leave_ns]: [u64; 3], pts: i64) {
        let (process, result) = (1, 0);
        self.spans.push(CallSpan { call, process, thread, enter_ns, leave_ns, object, data, pts, result });
    }

    /// Adds a push of a buffer with this time by a pad.
    fn push(&mut self, thread: i32, pad: u64, buffer: u64, pts: i64, [enter_ns, leave_ns]: [u64; 2]) {
        self.call(Call::PadPush, thread, pad, [buffer, enter_ns, leave_ns], pts);
    }

    fn copy(&mut self, thread: i32, from: u64, to: u64, at_ns: u64) {
        self.copies.push(BufferCopy { at_ns, thread, from, to });
    }

    /// Returns, for each push of `pad` that is followed, its time and those of its parents.
    fn origins(&mut self, pad: u64) -> Vec<(i64, Vec<i64>)> {
        self.spans.sort_by_key(|span| span.enter_ns);
        let lineage = PadLineage::of(&self.spans, &self.copies, &self.names);
        let time = |passage: usize| lineage.passages[passage].calls.first.pts;
        let of_pad = lineage
            .passages
            .iter()
            .enumerate()
            .filter(|(_, passage)| passage.calls.first.object == pad && !passage.is_extra);
        of_pad.map(|(at, passage)| (time(at), passage.parents.iter().map(|at| time(*at)).collect())).collect()
    }
}

#[test]
fn a_codec_says_which_frame_it_has_finished() {
    let mut pipeline = Pipeline::default().pad(10, 1, 2, "source").pad(20, 2, 3, "encoder");
    // The second input is finished first.
    pipeline.push(1, 10, 100, 0, [10, 15]);
    pipeline.push(1, 10, 101, 40, [20, 60]);
    pipeline.call(Call::FinishFrame, 1, 2, [101, 30, 40], 0);
    pipeline.push(1, 20, 200, MOVED + 40, [31, 35]);
    pipeline.call(Call::FinishFrame, 1, 2, [100, 45, 55], 0);
    pipeline.push(1, 20, 101, MOVED, [46, 50]);
    assert_eq!(pipeline.origins(20), [(MOVED + 40, vec![40]), (MOVED, vec![0])]);
}

#[test]
fn a_copy_counts_in_the_call_in_which_it_was_made() {
    let mut pipeline = Pipeline::default().pad(10, 1, 2, "source").pad(20, 2, 3, "rate");
    pipeline.push(1, 10, 100, 0, [10, 15]);
    pipeline.push(1, 10, 101, 40, [20, 60]);
    pipeline.copy(1, 100, 200, 25);
    pipeline.push(1, 20, 200, 20, [26, 28]);
    pipeline.copy(1, 101, 201, 30);
    pipeline.push(1, 20, 201, 40, [31, 33]);
    // A buffer at the address of an old copy, of which nothing is known: the call and the time decide.
    pipeline.push(1, 10, 102, 80, [70, 90]);
    pipeline.push(1, 20, 200, 60, [71, 75]);
    assert_eq!(pipeline.origins(20), [(20, vec![0]), (40, vec![40]), (60, vec![40])]);
}

#[test]
fn a_queue_keeps_its_buffers_and_what_a_codec_has_freed_is_another_one() {
    let mut pipeline = Pipeline::default().pad(10, 1, 2, "source").pad(20, 2, 3, "jitter");
    pipeline.push(1, 10, 100, 0, [10, 15]);
    pipeline.push(1, 10, 101, 3, [20, 25]);
    // Another thread pushes them with other times.
    pipeline.push(2, 20, 100, 500, [30, 35]);
    pipeline.push(2, 20, 101, 540, [40, 45]);
    pipeline.push(2, 20, 100, 900, [50, 55]);
    assert_eq!(pipeline.origins(20), [(500, vec![0]), (540, vec![3]), (900, vec![])]);
}

#[test]
fn a_muxer_passes_on_what_it_has_taken_and_a_mixer_joins() {
    let muxer = |name: &str| {
        let names = [("video", 1, 10), ("sound", 2, 20)];
        let pads =
            names.iter().fold(Pipeline::default(), |all, (name, from, pad)| all.pad(*pad, *from, 3, name));
        pads.pad(30, 3, 4, name)
    };
    let mut pipeline = muxer("mux");
    pipeline.push(1, 10, 100, 0, [10, 11]);
    pipeline.push(2, 20, 200, 0, [12, 13]);
    pipeline.call(Call::PopBuffer, 3, 71, [100, 20, 21], 0);
    // A header, and the frame in another buffer with no time.
    pipeline.push(3, 30, 300, NO_TIME, [22, 23]);
    pipeline.push(3, 30, 301, NO_TIME, [24, 25]);
    pipeline.call(Call::PopBuffer, 3, 72, [200, 30, 31], 0);
    pipeline.push(3, 30, 302, 7, [32, 33]);
    assert_eq!(pipeline.origins(30), [(NO_TIME, vec![0]), (7, vec![0])]);
    // A muxer that keeps what it has taken writes something of its own before.
    let mut pipeline = muxer("mux");
    pipeline.push(1, 10, 100, 0, [10, 11]);
    pipeline.push(1, 10, 101, 40, [12, 13]);
    pipeline.call(Call::PopBuffer, 3, 71, [100, 20, 21], 0);
    pipeline.call(Call::PopBuffer, 3, 71, [101, 22, 23], 0);
    pipeline.push(3, 30, 300, NO_TIME, [24, 25]);
    pipeline.push(3, 30, 100, 1000, [26, 27]);
    pipeline.push(3, 30, 101, 1040, [28, 29]);
    assert_eq!(pipeline.origins(30), [(1000, vec![0]), (1040, vec![40])]);
    // The second input of a mixer has nothing new.
    let mut pipeline = muxer("compositor");
    pipeline.push(1, 10, 100, 0, [10, 11]);
    pipeline.push(2, 20, 200, 5, [12, 13]);
    pipeline.call(Call::PopBuffer, 3, 71, [100, 20, 21], 0);
    pipeline.call(Call::PopBuffer, 3, 72, [200, 22, 23], 0);
    pipeline.push(3, 30, 300, 0, [24, 25]);
    pipeline.push(1, 10, 101, 40, [26, 27]);
    pipeline.call(Call::PopBuffer, 3, 71, [101, 30, 31], 0);
    pipeline.push(3, 30, 301, 40, [32, 33]);
    let mut origins = pipeline.origins(30);
    origins.iter_mut().for_each(|(_, parents)| parents.sort_unstable());
    assert_eq!(origins, [(0, vec![0, 5]), (40, vec![5, 40])]);
}

#[test]
fn a_source_that_gets_nearly_all_buffers_of_a_sink_goes_on_with_them() {
    let handed_over = |shift: i64| {
        let mut pipeline = Pipeline::default().pad(10, 1, 2, "first").pad(30, 3, 4, "second");
        for number in 0..5u64 {
            let (pts, at_ns) = (40 * number as i64, 100 * number);
            pipeline.push(1, 10, 100 + number, pts, [at_ns + 10, at_ns + 20]);
            pipeline.push(2, 30, 100 + number, pts + shift, [at_ns + 30, at_ns + 40]);
        }
        pipeline.origins(30).iter().filter(|(time, parents)| parents[..] == [*time]).count()
    };
    assert_eq!((handed_over(0), handed_over(1)), (5, 0));
}
