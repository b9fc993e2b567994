// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of a stream's frames in a stage: for what, with the object and the thread that ended them.

use std::collections::{BTreeMap, HashMap};

use framepath_model::ledger::Cause;
use framepath_model::shown::shown;
use serde::Serialize;

use crate::frame_ledger::StreamLedger;
use crate::thread_times::ThreadRow;
use crate::timeline::ThreadWait;
use crate::wait_object::WaitObjects;
use crate::wait_reason::WaitReason;

/// Waits that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitKey {
    /// `blocked`, or `paced`.
    pub(crate) cause: Cause,
    pub(crate) wait: ThreadWait,
    /// Thread that ended them; 0 if that is not known or says nothing.
    pub(crate) by: i32,
}

/// Waits of a stream's frames in one stage for one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageWait {
    /// Index of the stage.
    #[serde(skip)]
    pub hop: u16,
    /// Name of the cause to which the time belongs: `blocked` or `paced`.
    pub cause: &'static str,
    /// Kind of what was waited for: `lock`, `socket`, `pipe`, `file`, `page fault` and others (docs/trace.md).
    pub reason: &'static str,
    /// True if the thread waited until it could write.
    pub is_write: bool,
    /// Object behind the descriptor of the wait: `tcp 192.0.2.1:80`, `/dev/video0`; `None` if it has no name or is not known.
    pub object: Option<String>,
    /// Name of the thread that ended the wait; `None` if that was no traced thread, or says nothing.
    pub ended_by: Option<String>,
    /// Stage in which that thread works most.
    pub ended_in: Option<String>,
    /// Mean time for each frame, microseconds.
    pub us: f64,
}

impl StageWait {
    /// Returns the thing as text: `write to pipe`, `socket tcp 192.0.2.1:80`, `lock, ended by decoder (decode h264)`.
    pub(crate) fn text(&self) -> String {
        // Making room in memory is no writing, whatever the call was.
        let mut text = match self.is_write && self.reason != WaitReason::Reclaim.name() {
            true => format!("write to {}", self.reason),
            false => self.reason.to_owned(),
        };
        if let Some(object) = &self.object {
            text += &format!(" {}", shown(object));
        }
        if let Some(thread) = &self.ended_by {
            text += &format!(", ended by {}", shown(thread));
        }
        if let Some(stage) = &self.ended_in {
            text += &format!(" ({})", shown(stage));
        }
        text
    }
}

impl StreamLedger {
    /// Names what the frames waited for.
    pub(crate) fn name_waits(&mut self, objects: &WaitObjects, threads: &[ThreadRow]) {
        let threads: HashMap<i32, &ThreadRow> = threads.iter().map(|row| (row.thread, row)).collect();
        let stages = self.stages_of_threads();
        let named = self.waits.iter().map(|((hop, key), ns)| {
            let thread = threads.get(&key.by).filter(|_| key.by != 0);
            StageWait {
                hop: *hop,
                cause: key.cause.name(),
                reason: key.wait.reason.name(),
                is_write: key.wait.is_write,
                object: key.wait.object.and_then(|number| objects.get(number)?.name.clone()),
                ended_by: thread.map(|row| row.name.clone()),
                ended_in: thread.and_then(|row| stages.get(&row.thread).cloned()),
                us: ns / 1e3,
            }
        });
        // Threads may have the same name.
        let mut merged: Vec<StageWait> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for wait in named {
            let place =
                *places.entry(format!("{} {} {}", wait.hop, wait.cause, wait.text())).or_insert(merged.len());
            match merged.get_mut(place) {
                Some(other) => other.us += wait.us,
                None => merged.push(wait),
            }
        }
        merged.sort_by(|a, b| b.us.total_cmp(&a.us));
        self.stage_waits = merged;
    }

    /// Returns the stage with the most rows of each thread.
    fn stages_of_threads(&self) -> HashMap<i32, String> {
        let mut rows: BTreeMap<(u16, u16), u64> = BTreeMap::new();
        for row in &self.rows {
            *rows.entry((row.thread, row.hop)).or_default() += 1;
        }
        let mut most: HashMap<u16, (u64, u16)> = HashMap::new();
        for ((thread, hop), count) in rows {
            let known = most.entry(thread).or_default();
            *known = (*known).max((count, hop));
        }
        let named = most.into_iter().filter_map(|(thread, (_, hop))| {
            let stage = self.stages.get(usize::from(hop))?;
            Some((*self.threads.get(usize::from(thread))?, stage.clone()))
        });
        named.collect()
    }
}
