// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the measuring node about the frames that pass, joined by
//! the number of the frame at its source.

use std::path::Path;

use framepath_os::v4l2::{META_NODE, MetaReader, MetaRecord};

/// Reader of the measuring node's records for the frames of one run.
pub(crate) struct FrameRecords {
    reader: MetaReader,
    /// Buffer for the records of one read; empty between calls.
    unread: Vec<MetaRecord>,
}

impl FrameRecords {
    /// Opens the node of the records; `None` if there is no such node, or this process may not read the node.
    pub(crate) fn open() -> Option<FrameRecords> {
        let reader = MetaReader::open(Path::new(META_NODE)).ok()?;
        Some(FrameRecords { reader, unread: Vec::new() })
    }

    /// Returns the record of frame `seq`, which was queued at `since_ns` (CLOCK_MONOTONIC) or later; `None`
    /// if there is no such record, or the records cannot be read. Discards all other records so far.
    pub(crate) fn of(&mut self, seq: u64, since_ns: u64) -> Option<MetaRecord> {
        // On an error, the ledger has the frame's device time without its parts.
        self.reader.read(&mut self.unread).ok()?;
        let record = find(&self.unread, seq, since_ns);
        self.unread.clear();
        record
    }
}

/// Returns the newest record of frame `seq` that was queued at `since_ns` or later. The time is needed,
/// because other programs' frames may have the same number.
fn find(records: &[MetaRecord], seq: u64, since_ns: u64) -> Option<MetaRecord> {
    records.iter().rev().find(|r| r.source_sequence == seq && r.queued_ns >= since_ns).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_number_and_time() {
        let record =
            |source_sequence, queued_ns| MetaRecord { source_sequence, queued_ns, ..Default::default() };
        let records = [record(7, 10), record(7, 50), record(8, 60)];
        assert_eq!(find(&records, 7, 20), Some(record(7, 50)));
        assert_eq!(find(&records, 7, 51), None);
        assert_eq!(find(&records, 9, 0), None);
    }
}
