// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the measuring node about the frames that pass, joined by
//! the number of the frame at its source.

use std::path::Path;

use framepath_os::v4l2::{META_NODE, MetaReader, MetaRecord};

/// The records of our own frames.
pub(crate) struct FrameRecords {
    reader: MetaReader,
    unread: Vec<MetaRecord>,
}

impl FrameRecords {
    /// Opens the records; `None` if there are none, or they may not be read.
    pub(crate) fn open() -> Option<FrameRecords> {
        let reader = MetaReader::open(Path::new(META_NODE)).ok()?;
        Some(FrameRecords { reader, unread: Vec::new() })
    }

    /// Returns the record of frame `seq`, which was queued no earlier than `since_ns`.
    pub(crate) fn of(&mut self, seq: u64, since_ns: u64) -> Option<MetaRecord> {
        // Without the record the frame's time is known, but not split.
        self.reader.read(&mut self.unread).ok()?;
        let found = find(&self.unread, seq, since_ns);
        self.unread.clear();
        found
    }
}

/// Finds a frame's record. Records of other programs' frames are among them, under their numbers.
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
