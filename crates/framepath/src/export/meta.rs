// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measuring node's records as CSV: one line per record, stable column
//! names. Times are CLOCK_MONOTONIC, nanoseconds. `crc32` is hexadecimal. `crc32` and the time
//! `checksum_ns` are empty without a checksum.

use std::io::{self, Write};

use framepath_os::v4l2::{MetaRecord, measuring};

const HEADER: &str = "number,source_sequence,queued_ns,ready_ns,start_ns,end_ns,done_ns,context,algo,status,\
                      in_place,roi_left,roi_top,roi_width,roi_height,level,pixels_set,copied_bytes,crc32,\
                      checksum_ns";

/// Writes one line with the column names.
///
/// # Errors
/// Errors of `to`.
pub fn header(to: &mut dyn Write) -> io::Result<()> {
    writeln!(to, "{HEADER}")
}

/// Writes one line for each record, without the line of column names.
///
/// # Errors
/// Errors of `to`.
pub fn write(records: &[MetaRecord], to: &mut dyn Write) -> io::Result<()> {
    for r in records {
        let [left, top, width, height] = r.roi;
        let [level, set] = r.value;
        let times = [r.number, r.source_sequence, r.queued_ns, r.ready_ns, r.start_ns, r.end_ns, r.done_ns];
        for number in times {
            write!(to, "{number},")?;
        }
        for number in [
            r.context,
            r.algo,
            r.status,
            r.flags & measuring::META_IN_PLACE,
            left,
            top,
            width,
            height,
            level,
            set,
        ] {
            write!(to, "{number},")?;
        }
        match r.checksum() {
            Some(crc32) => writeln!(to, "{},{crc32:08x},{}", r.copied, r.checksum_ns)?,
            None => writeln!(to, "{},,", r.copied)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_its_number() {
        let record = MetaRecord {
            number: 1,
            source_sequence: 2,
            queued_ns: 3,
            ready_ns: 4,
            start_ns: 5,
            end_ns: 6,
            done_ns: 7,
            context: 8,
            algo: 1,
            status: 2,
            flags: 3,
            roi: [11, 12, 13, 14],
            value: [15, 16],
            copied: 17,
            checksum_ns: 18,
            crc32: 0xabc,
            reserved: 0,
        };
        let mut text = Vec::new();
        header(&mut text).unwrap();
        write(&[record, MetaRecord::default()], &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "1,2,3,4,5,6,7,8,1,2,1,11,12,13,14,15,16,17,00000abc,18");
        assert!(lines[2].ends_with(",0,,"), "no checksum, not 0");
        assert!(lines.len() == 3 && lines.iter().all(|line| line.split(',').count() == 20));
    }
}
