// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a worker, for programs that watch the service. The worker writes the counters into a
//! page shared with the service; the service sends them to these programs in `status` messages.

use std::ops::AddAssign;

use super::WireError;
use super::record::{RecordReader, RecordWriter};

/// Number of buckets of a [`Histogram`].
pub const BUCKETS: usize = 80;
/// Maximum length of [`Figures::stage`], bytes; a longer text is cut.
pub const LABEL_BYTES: usize = 64;
/// Number of 64-bit words of [`Figures`] in a worker's page.
pub const FIGURE_WORDS: usize = LATENCY + BUCKETS;

/// Number of buckets per octave, as an exponent of two: 2^2, four buckets.
const PER_OCTAVE: u32 = 2;
/// Upper end of the first bucket, as an exponent of two: 2^12 ns, 4.1 µs.
const FIRST: u32 = 12;

/// Index of the page's word with the number of frames that the stage output; 0 for a demuxer.
pub const FRAMES: usize = 0;
/// Index of the page's word with the number of packets or frames that the stage took, or of packets
/// that the demuxer read.
pub const INPUTS: usize = 1;
/// Index of the page's word with the sum of the latencies in the buckets, nanoseconds.
pub const LATENCY_SUM: usize = 2;
/// Index of the first of the page's words with the sums by cause, nanoseconds, in the order of
/// [`KNOWN_CAUSES`].
pub const CAUSE: usize = 3;
/// Index of the page's word with the last frame's width in the lower and height in the upper half,
/// pixels; 0 before the first frame.
pub const SIZE: usize = CAUSE + KNOWN_CAUSES.len();
/// Index of the first of the page's words with the stage's text, padded with zero bytes.
pub const LABEL: usize = SIZE + 1;
/// Index of the first of the page's words with the buckets of the latencies.
pub const LATENCY: usize = LABEL + LABEL_BYTES / 8;

/// Names of the causes whose sums a worker writes into its page, in the order of their words.
pub const KNOWN_CAUSES: [&str; 6] = ["compute", "copy", "held", "preempted", "blocked", "pool"];

/// Number of durations in each bucket. Each octave from 4.1 µs to 3.2 s has four buckets; shorter
/// durations are in the first bucket, longer ones in the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([0; BUCKETS])
    }
}

impl Histogram {
    /// Returns the index of the bucket for a duration of `ns` nanoseconds.
    pub fn bucket(ns: u64) -> usize {
        let octave = ns.max(1).ilog2();
        if octave < FIRST {
            return 0;
        }
        let part = (ns >> (octave - PER_OCTAVE)) & ((1 << PER_OCTAVE) - 1);
        let bucket = (u64::from(octave - FIRST) << PER_OCTAVE) + part;
        (bucket as usize + 1).min(BUCKETS - 1)
    }

    /// Returns the upper end of the bucket with index `bucket`, nanoseconds. Durations in the
    /// bucket are shorter, except in the last bucket, which has no upper limit.
    pub fn end_ns(bucket: usize) -> u64 {
        let (octave, part) = (bucket as u32 >> PER_OCTAVE, bucket as u64 & ((1 << PER_OCTAVE) - 1));
        ((1 << PER_OCTAVE) + part) << (FIRST + octave - PER_OCTAVE)
    }

    /// Returns the number of all durations. Saturates, because a hostile worker may report any
    /// counts.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns a duration, nanoseconds, that a share `q` (0 to 1) of all durations does not exceed.
    /// The value is the upper end of a bucket, so it is at most a quarter too long for durations of
    /// 4.1 µs to 3.2 s; shorter durations count as 4.1 µs, longer ones as 3.8 s. Returns `None` if there
    /// are no durations.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * q).ceil() as u64).clamp(1, count.max(1));
        let mut seen: u64 = 0;
        for (bucket, n) in self.0.iter().enumerate() {
            seen = seen.saturating_add(*n);
            if seen >= rank {
                return Some(Histogram::end_ns(bucket));
            }
        }
        None
    }

    /// Returns the durations counted here and not yet in `before`, an earlier state of this
    /// histogram.
    #[must_use]
    pub fn since(&self, before: &Histogram) -> Histogram {
        Histogram(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }
}

/// Counters of a worker, as the worker reports them. The worker is not trusted: numbers may have
/// any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of frames that the stage output; 0 for a demuxer.
    pub frames: u64,
    /// Number of packets or frames that the stage took, or of packets that the demuxer read.
    pub inputs: u64,
    /// Sum of the durations in `latency`, nanoseconds.
    pub latency_sum_ns: u64,
    /// Time of all frames by cause, nanoseconds, in the order of [`KNOWN_CAUSES`]; 0 for a cause
    /// that the level of the client's ledger does not measure. `held` is all time inside the stage
    /// in which no thread is known to have worked on the frame, also the time in a device; if a
    /// part of this time of a frame is pool time, all of it counts as `pool`.
    pub causes_ns: [u64; KNOWN_CAUSES.len()],
    /// Width of the last frame, pixels; 0 before the first frame and for a demuxer.
    pub width: u32,
    /// Height of the last frame, pixels; 0 before the first frame and for a demuxer.
    pub height: u32,
    /// Text of the stage with its arguments, such as `decode threads=1`, at most [`LABEL_BYTES`]
    /// bytes; `file` for a demuxer, empty before the worker has opened a stream. Printable ASCII if
    /// [`Figures::from_words`] made it.
    pub stage: String,
    /// Durations from the time when the stage took a packet or frame to the output of each of its
    /// frames. Not counted if the stage took 1,024 or more other inputs in between, or in a
    /// demuxer.
    pub latency: Histogram,
}

impl Figures {
    /// Decodes the words of a worker's page. The stage's text ends before its first zero byte;
    /// bytes of it that are not printable ASCII become `?`.
    pub fn from_words(words: &[u64; FIGURE_WORDS]) -> Figures {
        let bytes: Vec<u8> = words[LABEL..LATENCY].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text: String = bytes.iter().take_while(|byte| **byte != 0).map(|byte| printable(*byte)).collect();
        Figures {
            frames: words[FRAMES],
            inputs: words[INPUTS],
            latency_sum_ns: words[LATENCY_SUM],
            causes_ns: std::array::from_fn(|at| words[CAUSE + at]),
            width: words[SIZE] as u32,
            height: (words[SIZE] >> 32) as u32,
            stage: text,
            latency: Histogram(std::array::from_fn(|at| words[LATENCY + at])),
        }
    }

    /// Encodes the text `stage` as words of the page: cut to [`LABEL_BYTES`] bytes, possibly inside
    /// a character, and padded with zero bytes.
    pub fn label_words(stage: &str) -> [u64; LABEL_BYTES / 8] {
        let mut bytes = [0; LABEL_BYTES];
        for (to, from) in bytes.iter_mut().zip(stage.bytes()) {
            *to = from;
        }
        let mut words = [0; LABEL_BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        words
    }

    pub(super) fn encode(&self, w: &mut RecordWriter<'_>) {
        for number in [self.frames, self.inputs, self.latency_sum_ns] {
            w.u64(number);
        }
        self.causes_ns.iter().for_each(|ns| w.u64(*ns));
        w.u32(self.width);
        w.u32(self.height);
        w.text(&self.stage, LABEL_BYTES);
        self.latency.0.iter().for_each(|count| w.u64(*count));
    }

    pub(super) fn decode(r: &mut RecordReader<'_>) -> Result<Figures, WireError> {
        let mut figures =
            Figures { frames: r.u64()?, inputs: r.u64()?, latency_sum_ns: r.u64()?, ..Figures::default() };
        for ns in &mut figures.causes_ns {
            *ns = r.u64()?;
        }
        (figures.width, figures.height) = (r.u32()?, r.u32()?);
        figures.stage = r.text(LABEL_BYTES, "stage")?;
        for count in &mut figures.latency.0 {
            *count = r.u64()?;
        }
        Ok(figures)
    }
}

fn printable(byte: u8) -> char {
    if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '?' }
}

/// Adds the counters of another worker of the same stream. The stage of `other` replaces the
/// present one unless it is empty; the size of `other` does unless its width is 0.
impl AddAssign<&Figures> for Figures {
    fn add_assign(&mut self, other: &Figures) {
        let add = |to: &mut u64, from: u64| *to = to.saturating_add(from);
        add(&mut self.frames, other.frames);
        add(&mut self.inputs, other.inputs);
        add(&mut self.latency_sum_ns, other.latency_sum_ns);
        for (to, from) in self.causes_ns.iter_mut().zip(other.causes_ns) {
            add(to, from);
        }
        for (to, from) in self.latency.0.iter_mut().zip(other.latency.0) {
            add(to, from);
        }
        if other.width > 0 {
            (self.width, self.height) = (other.width, other.height);
        }
        if !other.stage.is_empty() {
            self.stage.clone_from(&other.stage);
        }
    }
}

/// State and counters of one stream of the service, as a `status` message reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatus {
    /// Number of the stream in the service.
    pub stream: u32,
    /// Process id of the client; 0 if the client is in a pid namespace that the service does not
    /// see.
    pub client_pid: u32,
    /// User id of the client.
    pub client_uid: u32,
    /// Process id of the worker; 0 if the stream has no worker at the moment.
    pub worker_pid: u32,
    /// Number of times that the client had the service replace the stream's worker.
    pub crashes: u64,
    /// CPU time of all workers that the stream has had, nanoseconds, as the kernel reports it.
    pub cpu_ns: u64,
    /// Sum of the counters of all workers that the stream has had; size and stage of the last one
    /// that reported them.
    pub figures: Figures,
}

/// Counters of the whole service, as a `totals` message reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of open streams, including those that wait for a worker.
    pub streams: u32,
    /// Number of open connections, including those of programs that only watch.
    pub connections: u32,
    /// Number of ready workers without a stream.
    pub spares: u32,
    /// Number of streams that the service accepted since it started. A stream counts when it begins
    /// to wait for a worker, so also if it never gets one.
    pub granted: u64,
    /// Number of denials since the service started: of connections, of clients' requests, and of
    /// streams that waited for a worker when no worker could be started.
    pub denied: u64,
    /// Number of times since the service started that clients had it replace a stream's worker.
    pub crashes: u64,
    /// Number of frames output by the workers of all streams since the service started.
    pub frames: u64,
    /// CPU time of the workers of all streams since the service started, nanoseconds; without
    /// workers that have no stream.
    pub cpu_ns: u64,
}

impl StreamStatus {
    pub(super) fn encode(&self, w: &mut RecordWriter<'_>) {
        for number in [self.stream, self.client_pid, self.client_uid, self.worker_pid] {
            w.u32(number);
        }
        w.u64(self.crashes);
        w.u64(self.cpu_ns);
        self.figures.encode(w);
    }

    pub(super) fn decode(r: &mut RecordReader<'_>) -> Result<StreamStatus, WireError> {
        Ok(StreamStatus {
            stream: r.u32()?,
            client_pid: r.u32()?,
            client_uid: r.u32()?,
            worker_pid: r.u32()?,
            crashes: r.u64()?,
            cpu_ns: r.u64()?,
            figures: Figures::decode(r)?,
        })
    }
}

impl Totals {
    pub(super) fn encode(&self, w: &mut RecordWriter<'_>) {
        for number in [self.streams, self.connections, self.spares, 0] {
            w.u32(number);
        }
        for number in [self.granted, self.denied, self.crashes, self.frames, self.cpu_ns] {
            w.u64(number);
        }
    }

    pub(super) fn decode(r: &mut RecordReader<'_>) -> Result<Totals, WireError> {
        let (streams, connections, spares) = (r.u32()?, r.u32()?, r.u32()?);
        r.zeros(4)?;
        Ok(Totals {
            streams,
            connections,
            spares,
            granted: r.u64()?,
            denied: r.u64()?,
            crashes: r.u64()?,
            frames: r.u64()?,
            cpu_ns: r.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_in_the_bucket_that_ends_behind_it() {
        let mut durations: Vec<u64> =
            (0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, 3 << bit >> 1]).collect();
        durations.extend((0..1000).map(|n| n * 7919));
        for ns in durations {
            let bucket = Histogram::bucket(ns);
            let last = bucket == BUCKETS - 1;
            assert!(last || ns < Histogram::end_ns(bucket), "{ns} in {bucket}");
            assert!(bucket == 0 || ns >= Histogram::end_ns(bucket - 1), "{ns} in {bucket}");
        }
        assert_eq!(Histogram::end_ns(0), 1 << FIRST);
        assert!(Histogram::end_ns(BUCKETS - 2) > 3_000_000_000);
    }

    #[test]
    fn quantiles_are_ends_of_buckets() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        for ns in [10_000, 20_000, 1_000_000] {
            histogram.0[Histogram::bucket(ns)] += 1;
        }
        let p50 = histogram.quantile_ns(0.5).unwrap();
        assert!((20_000..25_000).contains(&p50), "{p50}");
        let p99 = histogram.quantile_ns(0.99).unwrap();
        assert!((1_000_000..1_250_000).contains(&p99), "{p99}");
        histogram.0 = [u64::MAX; BUCKETS];
        assert_eq!(histogram.count(), u64::MAX);
        assert!(histogram.quantile_ns(1.0).is_some());
    }

    #[test]
    fn words_of_a_page_are_read_whatever_they_are() {
        let figures = Figures::from_words(&[u64::MAX; FIGURE_WORDS]);
        assert_eq!(figures.stage, "?".repeat(LABEL_BYTES));
        let mut sum = figures.clone();
        sum += &figures;
        assert_eq!(sum, figures);
        let mut words = [0; FIGURE_WORDS];
        words[LABEL..LATENCY].copy_from_slice(&Figures::label_words("decode\x1b[2J\u{fc} threads=1"));
        words[SIZE] = 1080 << 32 | 1920;
        let figures = Figures::from_words(&words);
        assert_eq!(figures.stage, "decode?[2J?? threads=1");
        assert_eq!((figures.width, figures.height), (1920, 1080));
        assert_eq!(Figures::from_words(&[0; FIGURE_WORDS]), Figures::default());
    }
}
