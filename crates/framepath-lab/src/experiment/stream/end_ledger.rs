// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ledgers of both ends of framepath's stream, read from their exports. Both ends run on this machine, so all times are of one
//! clock; those that an end has from the other were converted by the ends' own measurement of their clocks.

use std::fs;
use std::path::{Path, PathBuf};

use framepath_model::summary::SummaryRow;
use tempfile::TempDir;

use super::display_part::own_row;
use crate::csv_line::cells;
use crate::error::LabError;
use crate::temporary_folder::temporary_folder;

/// Names of the ends in file names: the sender, the receiver.
const ENDS: [&str; 2] = ["sender", "receiver"];
/// Level without rows.
const OFF: &str = "off";

/// Files that both ends write when they end.
pub(super) struct LedgerFiles {
    folder: TempDir,
    /// Detail of each end's ledger, as of `framepath run --ledger`.
    levels: [&'static str; 2],
    /// Most rows of a thread.
    rows: u64,
}

impl LedgerFiles {
    /// Creates the folder. `levels` are those of the sender and of the receiver; each keeps the newest `rows` rows of a thread.
    pub(super) fn new(levels: [&'static str; 2], rows: u64) -> Result<LedgerFiles, LabError> {
        Ok(LedgerFiles { folder: temporary_folder()?, levels, rows })
    }

    /// Returns the options of `framepath run` for an end: 0 is the sender, 1 the receiver.
    pub(super) fn options(&self, end: usize) -> Vec<String> {
        let file = |kind: &str| self.file(end, kind).to_string_lossy().into_owned();
        let (level, rows) = (self.levels[end], self.rows.to_string());
        let mut options = ["--ledger", level, "--json", &file("json")].map(str::to_owned).to_vec();
        if level != OFF {
            options.extend(["--rows", &rows, "--csv", &file("csv")].map(str::to_owned));
        }
        options
    }

    /// Reads the ledger of an end that has ended.
    ///
    /// # Errors
    /// A file is missing or is not that of a run.
    pub(super) fn read(&self, end: usize) -> Result<EndLedger, LabError> {
        let text = |kind: &str| read(&self.file(end, kind));
        let summary = own_row(&text("json")?)?;
        if self.levels[end] == OFF {
            return Ok(EndLedger { rows: Vec::new(), summary });
        }
        let no_ledger = || LabError::Unknown(format!("the ledger of the {} lacks a column", ENDS[end]));
        Ok(EndLedger { rows: rows(&text("csv")?).ok_or_else(no_ledger)?, summary })
    }

    fn file(&self, end: usize, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{}.{kind}", ENDS[end]))
    }
}

fn read(file: &Path) -> Result<String, LabError> {
    fs::read_to_string(file).map_err(LabError::io("reading framepath's own ledger"))
}

/// Ledger of an end.
pub(super) struct EndLedger {
    pub(super) rows: Vec<EndRow>,
    /// Figures of the run.
    pub(super) summary: SummaryRow,
}

/// One row of a ledger: a frame in a hop. Times are CLOCK_MONOTONIC, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EndRow {
    /// Number of the frame.
    pub(super) seq: u64,
    /// First word of the hop's text, without the machine that it ran on, such as `encode`; for hops of a browser the whole text.
    pub(super) hop: String,
    pub(super) birth_ns: u64,
    pub(super) enter_ns: u64,
    pub(super) leave_ns: u64,
    pub(super) wall_ns: u64,
    /// Time that no cause explains; negative if causes overlap.
    pub(super) unexplained_ns: i64,
    pub(super) is_dropped: bool,
}

/// Reads the rows of a ledger as CSV; `None` if it lacks a column.
fn rows(csv: &str) -> Option<Vec<EndRow>> {
    let mut lines = csv.lines();
    let head = cells(lines.next()?);
    let column = |name: &str| head.iter().position(|cell| cell == name);
    let [seq, hop, birth_ns, enter_ns, leave_ns, wall_ns] = [
        column("seq")?,
        column("stage")?,
        column("birth_ns")?,
        column("enter_ns")?,
        column("leave_ns")?,
        column("wall_ns")?,
    ];
    let (unexplained_ns, dropped) = (column("unexplained_ns")?, column("dropped")?);
    let row = |line: &str| {
        let cells = cells(line);
        let number = |at: usize| cells.get(at)?.parse().ok();
        Some(EndRow {
            seq: number(seq)?,
            hop: hop_name(cells.get(hop)?).to_owned(),
            birth_ns: number(birth_ns)?,
            enter_ns: number(enter_ns)?,
            leave_ns: number(leave_ns)?,
            wall_ns: number(wall_ns)?,
            // The level `times` has an empty cell.
            unexplained_ns: cells.get(unexplained_ns)?.parse().unwrap_or_default(),
            is_dropped: cells.get(dropped)? == "1",
        })
    };
    Some(lines.filter_map(row).collect())
}

/// Returns the first word of a hop's text, behind the machine's name: `sender: encode` is `encode`. A browser's hops begin with the
/// same word, and have no options: theirs is the whole text.
fn hop_name(text: &str) -> &str {
    let (first, behind) = text.split_once(' ').unwrap_or((text, ""));
    let hop = if first.ends_with(':') { behind } else { text };
    match hop.split_whitespace().next() {
        Some("browser") => hop,
        word => word.unwrap_or_default(),
    }
}

/// Returns the number of frames that the sender has encoded of those born from `from_ns` to `to_ns`.
pub(super) fn encoded(sender: &EndLedger, from_ns: u64, to_ns: u64) -> u64 {
    frames_of(sender, "encode", from_ns, to_ns)
}

/// Returns the number of frames that have passed a hop, of those born from `from_ns` to `to_ns`.
pub(super) fn frames_of(ledger: &EndLedger, hop: &str, from_ns: u64, to_ns: u64) -> u64 {
    let is_in = |row: &&EndRow| row.hop == hop && !row.is_dropped && (from_ns..to_ns).contains(&row.birth_ns);
    ledger.rows.iter().filter(is_in).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_their_columns_and_hops_by_their_first_word() {
        let csv = "path,seq,hop,stage,birth_ns,enter_ns,leave_ns,wall_ns,unexplained_ns,dropped\n\
                   \"a,b\",7,0,sender: encode h264,5,6,9,3,-1,0\nx,7,1,wire ±3 µs,5,9,11,2,,1\n";
        let rows = rows(csv).unwrap();
        let of_encode = EndRow {
            seq: 7,
            hop: "encode".to_owned(),
            birth_ns: 5,
            enter_ns: 6,
            leave_ns: 9,
            wall_ns: 3,
            unexplained_ns: -1,
            is_dropped: false,
        };
        assert_eq!(rows[0], of_encode);
        assert_eq!((rows[1].hop.as_str(), rows[1].unexplained_ns, rows[1].is_dropped), ("wire", 0, true));
        assert!(super::rows("path,seq").is_none());
        assert_eq!(hop_name("viewer: browser display"), "browser display");
        let ledger = EndLedger { rows, summary: SummaryRow::default() };
        assert_eq!([encoded(&ledger, 5, 6), encoded(&ledger, 6, 9)], [1, 0]);
    }
}
