// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases of `inject` with known costs inside a decoder of libavcodec: on its threads, or by the order and the
//! depth in which it keeps pictures.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use framepath::{Pipeline, path};
use framepath_codec::BufferHook;
use framepath_model::ledger::Row;
use framepath_os::process::affinity;

use super::made_clip::MadeClip;
use super::preempter::Preempter;
use super::probe::{Log, burn};
use super::{BURN_NS, Outcome, collect, two_cpus};
use crate::error::LabError;

/// Packets per second, few enough that the decoder finishes each picture before the next packet.
const RATE: u64 = 50;
/// Time between two packets, nanoseconds.
const PERIOD_NS: u64 = 1_000_000_000 / RATE;
/// Index of the decoder's hop.
const HOP: u16 = 1;
/// Number of B pictures between two others in case `decoder-order`.
const B_PICTURES: u64 = 3;

fn decoding(clip: &MadeClip, options: &str) -> Result<Pipeline, LabError> {
    let text = format!("file {} rate={RATE} ! decode {options} ! null", clip.quoted());
    Ok(Pipeline::from_path(&path::parse(&text)?)?)
}

/// Injects CPU time into each picture, on the frame thread that decodes the picture, after the ledger has
/// recorded that its decoding begins.
pub(super) fn compute(frames: u64) -> Result<Outcome, LabError> {
    computed(frames, "threads=2 threading=frame")
}

/// Injects CPU time into each picture, on the path's thread, which decodes with one thread.
pub(super) fn compute_on_caller(frames: u64) -> Result<Outcome, LabError> {
    computed(frames, "threads=1")
}

/// Decodes the clip twice, without and with the injected CPU time, with the options `options` of `decode`. A
/// picture's attributed cost is the compute time of its second row minus that of its first.
fn computed(frames: u64, options: &str) -> Result<Outcome, LabError> {
    let frames = frames.min(100);
    let clip = MadeClip::encode(frames, 0)?;
    let none = |_, _: &[Row]| None;
    let (_, plain) = collect(decoding(&clip, options)?, Vec::new(), HOP, none, |row| row.compute_ns)?;
    let of_hop = plain.rows.iter().filter(|row| row.hop == HOP);
    let own_ns: HashMap<u64, u64> = of_hop.map(|row| (row.seq, row.compute_ns)).collect();
    let log = Log::default();
    let of_hook = log.clone();
    let hook = BufferHook::install(move |seq| {
        of_hook.record(seq, || {
            burn(BURN_NS);
            None
        });
    });
    let attributed = |row: &Row| row.compute_ns.saturating_sub(own_ns.get(&row.seq).copied().unwrap_or(0));
    let injected = |seq, _: &[Row]| log.cpu_ns(seq);
    let outcome = collect(decoding(&clip, options)?, Vec::new(), HOP, injected, attributed)?.0;
    drop(hook);
    Ok(outcome)
}

/// Injects preemption: a real-time thread takes the CPU from the frame thread in the middle of a picture.
///
/// # Errors
/// [`LabError::Missing`] without two CPUs or the right to real-time priority.
pub(super) fn preempted(frames: u64) -> Result<Outcome, LabError> {
    thread_local! {
        static IS_PINNED: Cell<bool> = const { Cell::new(false) };
    }
    let frames = frames.min(100);
    let cpus = two_cpus()?;
    let clip = MadeClip::encode(frames, 0)?;
    let preempter = Arc::new(Preempter::start(cpus[1], BURN_NS)?);
    let log = Log::default();
    let (of_hook, cpu) = (log.clone(), cpus[1]);
    let hook = BufferHook::install(move |seq| {
        // A thread that cannot be pinned is not preempted, and the case shows it.
        if !IS_PINNED.replace(true) && affinity::pin_to(cpu).is_err() {
            return;
        }
        of_hook.record(seq, || {
            burn(BURN_NS / 4);
            preempter.ask();
            burn(BURN_NS / 4);
            Some(preempter.taken())
        });
    });
    let built = decoding(&clip, "threads=2 threading=frame")?;
    let injected = |seq, _: &[Row]| log.taken_ns(seq);
    let outcome = collect(built, vec![cpus[0]], HOP, injected, |row| row.preempted_ns)?.0;
    drop(hook);
    Ok(outcome)
}

/// Decodes, with one thread, a stream of known order at a known rate. The injected cost is the time that
/// each I or P picture waits in the decoder until its turn in presentation order.
pub(super) fn order(frames: u64) -> Result<Outcome, LabError> {
    let frames = frames.min(100) / (B_PICTURES + 1) * (B_PICTURES + 1) + 1;
    let clip = MadeClip::encode(frames, B_PICTURES)?;
    let injected = |seq, _: &[Row]| Some((order_periods(seq, frames)? * PERIOD_NS) as f64);
    let built = decoding(&clip, "threads=1")?;
    Ok(collect(built, Vec::new(), HOP, injected, |row| row.held_ns - row.held_depth_ns)?.0)
}

/// Returns how many packet periods the picture of packet `seq` waits for its turn, in a stream of `frames`
/// packets; `None` for a B picture, which does not wait, and for a picture that the end of the stream
/// releases.
///
/// The packets are I, and then P and its B pictures in turn: the P picture is shown after its B pictures.
/// The decoder always holds back one picture, the stream's reorder depth: I comes out with the packet after
/// it, a P picture with the packet after its last B picture, and a B picture with its own packet.
fn order_periods(seq: u64, frames: u64) -> Option<u64> {
    let group = B_PICTURES + 1;
    let periods = match seq {
        0 => 1,
        _ if (seq - 1) % group == 0 => group,
        _ => return None,
    };
    (seq + periods < frames).then_some(periods)
}

/// Decodes, with two frame threads, a stream without reordering at a known rate. The injected cost is one
/// packet period: each finished picture waits in the decoder for the next packet. The last picture is left
/// out.
pub(super) fn depth(frames: u64) -> Result<Outcome, LabError> {
    let frames = frames.min(100);
    let clip = MadeClip::encode(frames, 0)?;
    let injected = |seq, _: &[Row]| (seq + 1 < frames).then_some(PERIOD_NS as f64);
    let built = decoding(&clip, "threads=2 threading=frame")?;
    Ok(collect(built, Vec::new(), HOP, injected, |row| row.held_depth_ns)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_wait_for_presentation_order_is_the_reorder_depth() {
        // Packets I P B B B P B B B; shown as I B B B P B B B P.
        let waits: Vec<_> = (0..9).map(|seq| order_periods(seq, 9)).collect();
        assert_eq!(waits[..5], [Some(1), Some(4), None, None, None]);
        assert_eq!(waits[5..], [None; 4], "the end of the stream releases the last P picture");
        let frames = 401;
        let sum: u64 = (0..frames).filter_map(|seq| order_periods(seq, frames + 10)).sum();
        assert_eq!(sum, frames, "one period for each picture");
    }
}
