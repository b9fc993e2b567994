// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorder of the ledger: writes one row for each frame and hop.
//!
//! Each thread of a run has one recorder. The memory of all rows is reserved when the thread starts, and that of the
//! first [`TOUCHED`] rows is touched, before its first frame. A later row can cost a page fault, one in about 20
//! rows: touching all rows at the start would cost a short run more.

#[cfg(feature = "net")]
mod arrival;
#[cfg(feature = "net")]
mod late_end;
mod spans;
mod stretch;
mod tapped;

use std::collections::HashMap;
use std::sync::Arc;

use framepath_model::ledger::{Cause, Row, Span, SpanPlace, flag};
use framepath_model::stream::FrameMeta;
use framepath_model::wire::WorkerTime;
use framepath_os::measure::counters::Counts;
use framepath_os::measure::frame_threads::PictureWork;
use framepath_os::measure::meter::{self, Level};
use framepath_os::sync::queue::Idle;
use framepath_os::time::now_ns;

use crate::helper::{HelperInfo, HelperKind};
#[cfg(feature = "net")]
pub(crate) use arrival::FrameArrival;
use spans::SpanLog;
pub(crate) use stretch::Gap;
pub use stretch::Stretch;
use stretch::add;
pub(crate) use tapped::RowSink;

/// Number of frames inside stages above which the recorder forgets those whose number is more than half of this
/// number below that of the frame held last. Half of it exceeds the reorder delay of any decoder.
const MOST_INSIDE: usize = 1024;

/// Earlier time of a frame, before the stretch that ends with its hand-off.
#[derive(Clone, Copy, Debug)]
struct Before {
    stretch: Stretch,
    /// Cause of the time between `stretch` and the stretch that ends with the hand-off.
    gap: Gap,
    /// Part of the gap from the frame's arrival until the recorder's thread ran, nanoseconds.
    wakeup_ns: u64,
}

/// Rows and spans that a recorder has kept.
#[derive(Default)]
pub(crate) struct Recorded {
    /// Rows, oldest first.
    pub(crate) rows: Vec<Row>,
    /// Number of rows that were overwritten.
    pub(crate) overwritten: u64,
    /// Number of bytes copied by the thread, and, except at level `off`, by the worker whose frames it receives.
    pub(crate) copied_bytes: u64,
    /// Spans, oldest first.
    pub(crate) spans: Vec<Span>,
    /// Helpers in `spans`.
    pub(crate) helpers: Vec<HelperInfo>,
}

/// Number of rows whose memory is touched before the first frame: 0.8 MB.
const TOUCHED: usize = 4096;

/// One thread's ledger. All calls come from that thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    level: Level,
    thread: u16,
    rows: Vec<Row>,
    /// Maximum number of rows; 0 at level `off`.
    most: usize,
    /// Number of rows written, including those that were overwritten.
    written: u64,
    /// Index of the next row: `written` modulo the capacity, kept to avoid a division per row.
    next: usize,
    /// Time of the last boundary between two stretches, CLOCK_MONOTONIC nanoseconds.
    last_ns: u64,
    last_counts: Counts,
    /// Stretches of frames that wait inside a stage, by hop index and frame number.
    inside: HashMap<(u16, u64), Stretch>,
    /// Earlier time of the frame that leaves a stage or device with the next row; `None` for a frame that
    /// did not wait inside.
    resumed: Option<Before>,
    /// Times of the current frame as reported by a device, nanoseconds: in the device's queue, and in
    /// processing. (0, 0) if no device reported them.
    split: (u32, u32),
    /// CPU time on no frame in particular: hop index and nanoseconds, one entry for each record.
    without_frame: Vec<(u16, u64)>,
    spans: SpanLog,
    /// Number of bytes copied in the whole run: by the thread, and, except at level `off`, by the worker whose frames
    /// it receives.
    copied_bytes: u64,
    /// Collector that gets a copy of each row; `None` if no other machine needs them.
    tap: Option<Arc<dyn RowSink>>,
}

impl Recorder {
    /// Makes the recorder of the calling thread, which is thread number `thread` of the run, with room for
    /// `rows` rows, at least 1; for none at level `off`. When they are full, new rows overwrite the oldest.
    /// Sets the level of this thread's meter.
    pub(crate) fn new(level: Level, thread: u16, rows: usize) -> Recorder {
        let most = if level == Level::Off { 0 } else { rows.max(1) };
        let mut rows = Vec::with_capacity(most);
        // Written and removed again, so that no page fault occurs during the first frames.
        rows.resize(most.min(TOUCHED), Row::default());
        rows.clear();
        meter::set_level(level);
        Recorder {
            level,
            thread,
            rows,
            most,
            written: 0,
            next: 0,
            last_ns: now_ns(),
            last_counts: meter::counts(),
            inside: HashMap::new(),
            resumed: None,
            split: (0, 0),
            without_frame: Vec::new(),
            spans: SpanLog::new(most),
            copied_bytes: 0,
            tap: None,
        }
    }

    /// Returns the ledger's level of this run.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Ends the current stretch. Returns the present time as the birth of a frame, CLOCK_MONOTONIC nanoseconds; 0 at level `off`.
    #[inline]
    pub fn birth(&mut self) -> u64 {
        if self.level == Level::Off {
            return 0;
        }
        self.mark();
        self.last_ns
    }

    /// Returns the time when the previous frame was done as the birth of a frame, CLOCK_MONOTONIC nanoseconds; 0 at level `off`.
    #[inline]
    pub fn birth_at_last(&self) -> u64 {
        if self.level == Level::Off { 0 } else { self.last_ns }
    }

    /// Ends the current stretch, because the thread's next work belongs to another frame.
    #[inline]
    pub fn mark(&mut self) {
        if self.level != Level::Off {
            self.stretch();
        }
    }

    /// Records that frame `seq` stays inside hop `hop` for now. Ends the current stretch, and keeps it for
    /// [`Recorder::resume`], joined with earlier stretches of the frame in this hop. If more than
    /// [`MOST_INSIDE`] frames are inside, forgets those whose number is more than half of that below `seq`.
    pub fn hold(&mut self, hop: u16, seq: u64) {
        if self.level != Level::Off {
            let stretch = self.stretch();
            self.spans.push((hop, seq), SpanPlace::Thread(self.thread), stretch.start_ns, stretch.end_ns);
            self.inside.entry((hop, seq)).and_modify(|s| s.join(&stretch)).or_insert(stretch);
            if self.inside.len() > MOST_INSIDE {
                // Packets of hidden pictures never become a frame and would stay in the map.
                let oldest = seq.saturating_sub(MOST_INSIDE as u64 / 2);
                self.inside.retain(|(_, seq), _| *seq >= oldest);
            }
        }
    }

    /// Assigns the thread's work since the last mark to frame `seq`, which hop `hop` held.
    /// `gap` is the cause of the time since [`Recorder::hold`]. If `hold` was not called for the frame, or the
    /// recorder has forgotten the frame, the next row has no earlier time.
    pub fn resume(&mut self, hop: u16, seq: u64, gap: Gap) {
        if self.level != Level::Off {
            let stretch = self.inside.remove(&(hop, seq));
            self.resumed = stretch.map(|stretch| Before { stretch, gap, wakeup_ns: 0 });
        }
    }

    /// Records that a device has delivered a frame that was born at `birth_ns`, after this thread had
    /// waited since `waited_since_ns` (both CLOCK_MONOTONIC). The time since the birth is wake-up time if
    /// the thread was waiting then, else queue time. Returns the frame's birth, which is at most the present
    /// time; 0 at level `off`.
    pub fn captured(&mut self, birth_ns: u64, waited_since_ns: u64) -> u64 {
        if self.level == Level::Off {
            return 0;
        }
        self.mark();
        let birth_ns = birth_ns.min(self.last_ns);
        let was_idle = waited_since_ns <= birth_ns;
        let stretch = Stretch { start_ns: birth_ns, end_ns: birth_ns, ..Stretch::default() };
        let wakeup_ns = if was_idle { self.last_ns - birth_ns } else { 0 };
        self.resumed = Some(Before { stretch, gap: Gap::Queue, wakeup_ns });
        birth_ns
    }

    /// Splits the current frame's time in a device into time in the device's queue and processing time,
    /// nanoseconds; limits each to `u32::MAX` (4.3 s).
    pub fn split_device(&mut self, queue_ns: u64, run_ns: u64) {
        if self.level != Level::Off {
            let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
            self.split = (short(queue_ns), short(run_ns));
        }
    }

    /// Writes the frame's row: hop `hop` passes the frame on, or ends it. `flags` are bits of [`flag`]. Does
    /// nothing at level `off`.
    #[inline]
    pub(crate) fn close(&mut self, hop: u16, meta: &FrameMeta, flags: u32) {
        match self.level {
            Level::Off => {}
            Level::Times => self.close_timed(hop, meta, flags),
            Level::Full => self.close_counted(hop, meta, flags),
        }
    }

    /// Fast version of [`Recorder::close_counted`] for level `times`: writes the row in place, without the
    /// counters. Calls `close_counted` for a frame that was inside a stage before, or that a device reported on.
    #[inline]
    fn close_timed(&mut self, hop: u16, meta: &FrameMeta, flags: u32) {
        if self.resumed.is_some() || self.split != (0, 0) {
            return self.close_counted(hop, meta, flags);
        }
        let metered = meter::take();
        self.copied_bytes += metered.copied_bytes;
        let enter_ns = self.last_ns;
        self.last_ns = now_ns();
        let (leave_ns, thread) = (self.last_ns, self.thread);
        let row = self.next_row();
        row.seq = meta.seq;
        row.birth_ns = meta.birth_ns;
        row.enter_ns = enter_ns;
        row.leave_ns = leave_ns;
        row.copied_bytes = metered.copied_bytes;
        row.copy_ns = metered.copy_ns;
        row.blocked_ns = metered.blocked_ns;
        row.paced_ns = metered.paced_ns;
        row.device_ns = metered.device_ns;
        (row.device_queue_ns, row.device_run_ns) = (0, 0);
        row.queue_ns = 0;
        row.wakeup_ns = 0;
        row.flags = flags;
        row.hop = hop;
        row.thread = thread;
        self.tap_newest();
    }

    #[inline(never)]
    fn close_counted(&mut self, hop: u16, meta: &FrameMeta, flags: u32) {
        let now = self.stretch();
        let before = self.resumed.take();
        let counted = if self.level == Level::Full { flag::COUNTED } else { 0 };
        let mut row = Row {
            seq: meta.seq,
            birth_ns: meta.birth_ns,
            enter_ns: now.start_ns,
            leave_ns: now.end_ns,
            flags: flags | counted,
            hop,
            thread: self.thread,
            ..Row::default()
        };
        if let Some(Before { stretch, gap, wakeup_ns }) = before {
            let gap_ns = now.start_ns.saturating_sub(stretch.end_ns) + stretch.apart_ns;
            row.enter_ns = stretch.start_ns;
            row.wakeup_ns = wakeup_ns.min(gap_ns);
            let (rest_ns, woken_ns) = (gap_ns - row.wakeup_ns, stretch.end_ns + row.wakeup_ns);
            add(&mut row, &stretch);
            row.flags |= flag::SPLIT;
            let of = (hop, meta.seq);
            self.spans.push(of, SpanPlace::Inside(Cause::Wakeup), stretch.end_ns, woken_ns);
            self.spans.push(of, SpanPlace::Thread(self.thread), now.start_ns, now.end_ns);
            if let Some(cause) = gap.cause() {
                self.spans.push(of, SpanPlace::Inside(cause), woken_ns, now.start_ns);
            }
            match gap {
                Gap::Queue => row.queue_ns = rest_ns,
                Gap::Held => row.held_ns = rest_ns,
                Gap::Device => row.device_ns += rest_ns,
                Gap::Pool => return self.close_pooled(row, &stretch, &now),
                Gap::FrameThread { work, depth_since_ns } => {
                    return self.close_threaded(row, &stretch, &now, work.as_ref(), depth_since_ns);
                }
            }
        }
        (row.device_queue_ns, row.device_run_ns) = std::mem::take(&mut self.split);
        add(&mut row, &now);
        self.write(row);
    }

    /// Writes the row of a frame that was inside a decoder whose threads share the frames. While this
    /// thread waits for them, before the gap or behind it, the frame is inside as well.
    fn close_pooled(&mut self, mut row: Row, before: &Stretch, now: &Stretch) {
        add(&mut row, now);
        let waited_ns = before.blocked_ns + now.blocked_ns;
        row.blocked_ns -= waited_ns;
        row.pool_ns = now.start_ns.saturating_sub(before.end_ns) + waited_ns;
        self.write(row);
    }

    /// Writes the row of a frame that a frame thread has decoded. `before` ends when the packet is sent, and
    /// `now` is this thread's stretch that ends with the hand-off of the frame. The frame thread works at the
    /// same time as this thread, which mostly waits for it. So the whole time from `before` to the hand-off
    /// is divided by the stamps of the frame thread, and this thread's own work counts only after the end of
    /// the picture. If `work` has no stamps, the time is the frame thread's CPU time and else `pool`; without
    /// `work`, it is unexplained.
    fn close_threaded(
        &mut self,
        mut row: Row,
        before: &Stretch,
        now: &Stretch,
        work: Option<&PictureWork>,
        depth_since_ns: u64,
    ) {
        row.voluntary_switches += now.counts.voluntary_switches as u32;
        row.involuntary_switches += now.counts.involuntary_switches as u32;
        row.minor_faults += now.counts.minor_faults as u32;
        row.copied_bytes += now.copied_bytes;
        row.copy_ns += now.copy_ns;
        let inside_ns = now.end_ns.saturating_sub(before.end_ns);
        let of = (row.hop, row.seq);
        match work {
            Some(PictureWork { thread, cpu_ns, waits: Some(waits) }) => {
                // The packet may have waited for a thread that still worked on another picture.
                let idle_ns = waits.idle_since_ns.clamp(before.end_ns, now.end_ns);
                let begin_ns = waits.begin_ns.clamp(idle_ns, now.end_ns);
                let end_ns = waits.end_ns.clamp(begin_ns, now.end_ns);
                let helper = self.spans.helper(row.hop, HelperKind::DecoderThread, *thread);
                self.spans.push(of, SpanPlace::Inside(Cause::Blocked), before.end_ns, idle_ns);
                self.spans.push(of, SpanPlace::Inside(Cause::Wakeup), idle_ns, begin_ns);
                self.spans.push(of, helper, begin_ns, end_ns);
                self.spans.push(of, SpanPlace::Inside(Cause::Held), end_ns, now.end_ns);
                row.flags |= flag::FRAME_THREAD;
                row.blocked_ns += idle_ns - before.end_ns;
                row.wakeup_ns += begin_ns - idle_ns;
                row.compute_ns += cpu_ns;
                row.blocked_ns += waits.slept_ns;
                row.preempted_ns += waits.preempted_ns;
                row.voluntary_switches += waits.sleeps;
                row.involuntary_switches += waits.preemptions;
                let after_ns = now.end_ns - end_ns;
                let own_ns = now.compute_ns.min(after_ns.saturating_sub(now.copy_ns));
                row.compute_ns += own_ns;
                row.held_ns = after_ns.saturating_sub(own_ns + now.copy_ns);
                row.held_depth_ns = row.held_ns.min(now.end_ns.saturating_sub(depth_since_ns.max(end_ns)));
            }
            // Without switch records, the end of the picture is not known, and so not the cause of the rest.
            Some(PictureWork { cpu_ns, waits: None, .. }) => {
                self.spans.push(of, SpanPlace::Inside(Cause::Pool), before.end_ns, now.end_ns);
                let cpu_ns = (*cpu_ns).min(inside_ns);
                row.compute_ns += cpu_ns;
                row.pool_ns = inside_ns.saturating_sub(cpu_ns + now.copy_ns);
            }
            // The first picture of each thread: nothing is known of its work. It stays unexplained.
            None => {
                self.spans.push(of, SpanPlace::Inside(Cause::Unexplained), before.end_ns, now.end_ns);
            }
        }
        self.write(row);
    }

    /// Records that a frame came out of the queue that is hop `hop`: the wait of the frame ends now.
    #[inline]
    pub(crate) fn dequeued(&mut self, hop: u16, meta: &FrameMeta, enqueued_ns: u64, idle: Idle) {
        if self.level == Level::Off {
            return;
        }
        self.mark();
        // If the consumer was idle when the frame arrived, the time until the consumer ran is a wake-up.
        let was_idle = (idle.since_ns..=idle.until_ns).contains(&enqueued_ns);
        let ran_ns = if was_idle { idle.until_ns.min(self.last_ns) } else { enqueued_ns };
        self.write(Row {
            seq: meta.seq,
            birth_ns: meta.birth_ns,
            enter_ns: enqueued_ns,
            leave_ns: self.last_ns,
            wakeup_ns: ran_ns - enqueued_ns,
            queue_ns: self.last_ns.saturating_sub(ran_ns),
            flags: flag::LINK,
            hop,
            thread: self.thread,
            ..Row::default()
        });
    }

    /// Ends the current stretch, which belongs to frame `seq` in hop `hop`, and returns it for the row, which
    /// another thread will write. Returns an empty stretch at level `off`.
    pub(crate) fn cut(&mut self, hop: u16, seq: u64) -> Stretch {
        if self.level == Level::Off {
            return Stretch::default();
        }
        let stretch = self.stretch();
        self.spans.push((hop, seq), SpanPlace::Thread(self.thread), stretch.start_ns, stretch.end_ns);
        stretch
    }

    /// Returns an empty stretch that begins and ends at the last boundary. Sets no boundary.
    pub(crate) fn current(&self) -> Stretch {
        Stretch { start_ns: self.last_ns, end_ns: self.last_ns, ..Stretch::default() }
    }

    /// Returns the row that was written last; `None` if none was written.
    pub(crate) fn last_row(&self) -> Option<&Row> {
        let last = self.next.checked_sub(1).unwrap_or(self.rows.len().checked_sub(1)?);
        (self.written > 0).then(|| &self.rows[last])
    }

    /// Writes the row of hop `hop`, which a worker runs, for a frame that has arrived from this worker.
    /// `before` is the stretch of the thread that submitted the input, `work` the times that the worker
    /// reports, `pid` the worker's process (0 if unknown), `idle` the time in which this thread last waited
    /// for the worker; `by_device` is true if a device did the work, so that [`WorkerTime::inside_ns`] is
    /// device time.
    pub(crate) fn arrived(
        &mut self,
        hop: u16,
        meta: &FrameMeta,
        before: &Stretch,
        (pid, work): (u32, &WorkerTime),
        by_device: bool,
        idle: Idle,
    ) {
        if self.level == Level::Off {
            return;
        }
        self.mark();
        self.copied_bytes += u64::from(work.copied_bytes);
        // Two waits: from the submission until the worker took the frame, and from the completion until
        // this thread took it. Each is a wake-up if the receiver was idle, else queue time. The worker
        // may report false times, so they are clamped between this process's own two stamps.
        let sent = before.end_ns.min(self.last_ns);
        let enter = work.enter_ns.clamp(sent, self.last_ns);
        let worker_was_idle = u64::from(work.idle_ns) >= enter - sent;
        let leave = work.leave_ns.clamp(enter, self.last_ns);
        let was_idle = (idle.since_ns..=idle.until_ns).contains(&leave);
        let ran = if was_idle { idle.until_ns.min(self.last_ns) } else { leave };
        let helper = self.spans.helper(hop, HelperKind::Worker, pid);
        let of = (hop, meta.seq);
        let sent_to = if worker_was_idle { Cause::Wakeup } else { Cause::Queue };
        self.spans.push(of, SpanPlace::Inside(sent_to), sent, enter);
        let inside_ns = u64::from(work.inside_ns).min(leave - enter);
        // It is not known when threads that share the frames, or a device, worked on this one. So the worker's
        // time is divided among its frames where they leave it.
        let (inside, begin, done) = match (by_device, work.is_pool) {
            (true, _) => (Cause::Device, self.spans.last_end(helper).clamp(enter, leave), leave),
            (false, true) => (Cause::Pool, self.spans.last_end(helper).clamp(enter, leave), leave),
            (false, false) => (Cause::Held, enter, leave - inside_ns),
        };
        self.spans.push(of, SpanPlace::Inside(inside), enter, begin);
        self.spans.push(of, helper, begin, done);
        self.spans.push(of, SpanPlace::Inside(inside), done, leave);
        self.spans.push(of, SpanPlace::Inside(Cause::Wakeup), leave, ran);
        self.spans.push(of, SpanPlace::Inside(Cause::Queue), ran, self.last_ns);
        let mut row = Row {
            seq: meta.seq,
            birth_ns: meta.birth_ns,
            enter_ns: before.start_ns,
            leave_ns: self.last_ns,
            queue_ns: self.last_ns - ran,
            wakeup_ns: ran - leave + u64::from(work.wakeup_ns),
            blocked_ns: work.blocked_ns.into(),
            compute_ns: work.compute_ns.into(),
            preempted_ns: work.preempted_ns.into(),
            copy_ns: work.copy_ns.into(),
            copied_bytes: work.copied_bytes.into(),
            voluntary_switches: work.voluntary_switches.into(),
            involuntary_switches: work.involuntary_switches.into(),
            flags: flag::SPLIT | if self.level == Level::Full { flag::COUNTED } else { 0 },
            hop,
            thread: self.thread,
            ..Row::default()
        };
        *(match (by_device, work.is_pool) {
            (true, _) => &mut row.device_ns,
            (false, true) => &mut row.pool_ns,
            (false, false) => &mut row.held_ns,
        }) = work.inside_ns.into();
        row.held_depth_ns = row.held_ns.min(work.held_depth_ns.into());
        *(if worker_was_idle { &mut row.wakeup_ns } else { &mut row.queue_ns }) += enter - sent;
        add(&mut row, before);
        self.write(row);
    }

    /// Records that a frame ended in the queue that is hop `hop`: the full queue dropped it, or it came out
    /// of the queue after a seek or flush had made it stale.
    pub(crate) fn dropped(&mut self, hop: u16, meta: &FrameMeta, enqueued_ns: u64) {
        if self.level == Level::Off {
            return;
        }
        self.mark();
        self.write(Row {
            seq: meta.seq,
            birth_ns: meta.birth_ns,
            enter_ns: enqueued_ns,
            leave_ns: self.last_ns,
            flags: flag::LINK | flag::DROPPED,
            hop,
            thread: self.thread,
            ..Row::default()
        });
    }

    /// Forgets the frames inside stages, because the stages were flushed, and ends the current stretch.
    pub(crate) fn flush(&mut self) {
        self.inside.clear();
        self.resumed = None;
        self.mark();
    }

    /// Records CPU time of hop `hop` on no frame in particular, nanoseconds. It is in no row. Does nothing below
    /// level `full`.
    pub(crate) fn cpu_without_frame(&mut self, hop: u16, cpu_ns: u64) {
        if self.level == Level::Full && cpu_ns > 0 {
            self.without_frame.push((hop, cpu_ns));
        }
    }

    /// Returns what [`Recorder::cpu_without_frame`] recorded since the last call.
    pub(crate) fn take_cpu_without_frame(&mut self) -> Vec<(u16, u64)> {
        std::mem::take(&mut self.without_frame)
    }

    /// Returns the time of the last boundary between two stretches, CLOCK_MONOTONIC nanoseconds: for a link,
    /// the time of the hand-off of the present frame.
    #[inline]
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Ends recording, and sets this thread's meter to level `off`.
    pub(crate) fn finish(mut self) -> Recorded {
        self.copied_bytes += meter::take().copied_bytes;
        meter::set_level(Level::Off);
        let mut rows = self.rows;
        if self.written > rows.len() as u64 {
            rows.rotate_left(self.next);
        }
        let (spans, helpers) = self.spans.finish();
        let overwritten = self.written - rows.len() as u64;
        Recorded { rows, overwritten, copied_bytes: self.copied_bytes, spans, helpers }
    }

    #[inline]
    fn write(&mut self, row: Row) {
        *self.next_row() = row;
        self.tap_newest();
    }

    /// Returns the next row, empty, for the caller to fill, and counts the row.
    #[inline]
    fn next_row(&mut self) -> &mut Row {
        let at = self.next;
        self.next = if at + 1 == self.most { 0 } else { at + 1 };
        self.written += 1;
        if at == self.rows.len() {
            // Within the capacity, so nothing is allocated.
            self.rows.push(Row::default());
        } else {
            self.rows[at] = Row::default();
        }
        &mut self.rows[at]
    }

    /// Returns the thread's costs since the last boundary, and sets a boundary now.
    #[inline]
    fn stretch(&mut self) -> Stretch {
        let metered = meter::take();
        self.copied_bytes += metered.copied_bytes;
        let mut stretch = Stretch {
            start_ns: self.last_ns,
            copied_bytes: metered.copied_bytes,
            copy_ns: metered.copy_ns,
            blocked_ns: metered.blocked_ns,
            paced_ns: metered.paced_ns,
            device_ns: metered.device_ns,
            ..Stretch::default()
        };
        if self.level == Level::Full {
            let counts = meter::counts();
            let passed = counts - self.last_counts;
            let outside = passed - meter::take_in_waits();
            stretch.compute_ns = outside.cpu_ns.saturating_sub(metered.copy_ns);
            stretch.preempted_ns = outside.preempted_ns;
            // Adds waits without a stamp, which the kernel's switch records show.
            stretch.blocked_ns += outside.slept_ns;
            stretch.counts = passed;
            self.last_counts = counts;
        }
        self.last_ns = now_ns();
        stretch.end_ns = self.last_ns;
        stretch
    }
}
