// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of framepath's sender with one of its receivers, from one screen to the other, with the ledgers of framepath's ends.

use std::time::Duration;

use framepath_os::time::now_ns;

use super::condition::StreamCondition;
use super::contender::{STREAMERS, Streaming};
use super::desktop::RATE;
use super::end_ledger::{EndLedger, LedgerFiles};
use super::screen_clock::ScreenClock;
use super::screen_observer::{ScreenObserver, WatchedScreen};
use super::sender_totals::SenderTotals;
use super::{START, since};
use crate::display::Display;
use crate::error::LabError;
use crate::experiment::ExperimentSettings;
use crate::test_link::TestLink;

/// A running stream, whose pictures are seen. The fields end in their order.
pub(super) struct NativeRun<'a> {
    settings: &'a ExperimentSettings,
    clock: ScreenClock,
    pub(super) running: Streaming,
    pub(super) observer: ScreenObserver,
    pub(super) link: Option<TestLink>,
    files: LedgerFiles,
    /// Time at which both ends had been started; CLOCK_MONOTONIC, nanoseconds.
    pub(super) started_ns: u64,
}

impl<'a> NativeRun<'a> {
    /// Starts the clock and both ends of the contender `name`, and waits for the first picture.
    ///
    /// # Errors
    /// As those of [`Streamer::start`](super::contender::Streamer::start); no picture appears.
    pub(super) fn start(
        name: &str,
        settings: &'a ExperimentSettings,
        screens: &[Display; 2],
        condition: &StreamCondition,
        files: LedgerFiles,
    ) -> Result<NativeRun<'a>, LabError> {
        let streamer = STREAMERS.iter().find(|streamer| streamer.name == name);
        let streamer = streamer.ok_or_else(|| LabError::Unknown(format!("no contender {name}")))?;
        let limits = condition.link.as_ref();
        let link = limits.map(|limits| TestLink::start(&settings.framepath, limits)).transpose()?;
        let clock = ScreenClock::start(screens[0].x_name()?, RATE, condition.scroll)?;
        let running = streamer.start(settings, screens, link.as_ref(), Some(&files))?;
        let started_ns = now_ns();
        let mut observer = ScreenObserver::new(screens[1].x_name()?)?;
        if !observer.find(START)? {
            return Err(running.failed("no picture within 20 s"));
        }
        Ok(NativeRun { settings, clock, running, observer, link, files, started_ns })
    }

    /// Watches the second screen. Returns also the CPU time of the sender and of the receiver in this time, nanoseconds.
    ///
    /// # Errors
    /// As [`ScreenObserver::watch`]; an end has ended.
    pub(super) fn watch(&mut self, duration: Duration) -> Result<(WatchedScreen, [u64; 2]), LabError> {
        let before = self.running.cpu_ns()?;
        let watched = self.observer.watch(duration)?;
        Ok((watched, since(before, self.running.cpu_ns()?)))
    }

    /// Reads the counts of the sender. Takes a second.
    ///
    /// # Errors
    /// As [`SenderTotals::read`].
    pub(super) fn sender_totals(&self) -> Result<SenderTotals, LabError> {
        self.running.sender_totals(self.settings, self.link.as_ref())
    }

    /// Stops the clock and both ends. Returns the time of each picture drawn, by its number, and the ledger of an end: 0 is the
    /// sender, 1 the receiver.
    ///
    /// # Errors
    /// An end has ended by itself, or this one has written no ledger.
    pub(super) fn finish(self, end: usize) -> Result<(Vec<u64>, EndLedger), LabError> {
        let drawn = self.clock.stop()?;
        self.running.end()?;
        Ok((drawn, self.files.read(end)?))
    }
}
