// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of the traced program: its own measurements.

use crate::error::LabError;

/// Frame as the program saw it. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFrame {
    /// Presentation time.
    pub pts: i64,
    /// Number that the picture shows.
    pub number: u32,
    /// Time before the call that read the packet; 0 if the packet has no time.
    pub begin_ns: u64,
    /// Time after the call that wrote the frame; 0 if the frame was not found again.
    pub end_ns: u64,
    /// Time in the program's queue, nanoseconds.
    pub queued_ns: u64,
}

/// Injected cost of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Presentation time of the frame.
    pub pts: i64,
    /// Time of the injected cause, nanoseconds.
    pub ns: u64,
    /// CPU time of the thread in which the cost was injected, nanoseconds.
    pub cpu_ns: u64,
}

/// Report of the traced program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnReport {
    /// Presentation times of the packets, in the order in which they were sent to the decoder.
    pub packets: Vec<i64>,
    /// Frames in the order in which they left the decoder.
    pub frames: Vec<OwnFrame>,
    /// Injected costs.
    pub injected: Vec<Injected>,
    /// CPU time of the program, nanoseconds.
    pub cpu_ns: u64,
}

impl OwnReport {
    /// Reads the lines of the program's report.
    ///
    /// # Errors
    /// [`LabError::Unknown`] if a line is invalid.
    pub fn parse(text: &str) -> Result<OwnReport, LabError> {
        let mut report = OwnReport::default();
        for line in text.lines() {
            report.add(line).ok_or_else(|| LabError::Unknown(format!("traced: invalid line `{line}`")))?;
        }
        Ok(report)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let what = words.next()?;
        let numbers: Vec<i64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let unsigned = |number: i64| u64::try_from(number).ok();
        match (what, &numbers[..]) {
            ("packet", [_, pts]) => self.packets.push(*pts),
            ("frame", [pts, begin_ns, end_ns, number, queued_ns]) => self.frames.push(OwnFrame {
                pts: *pts,
                number: u32::try_from(*number).ok()?,
                begin_ns: unsigned(*begin_ns)?,
                end_ns: unsigned(*end_ns)?,
                queued_ns: unsigned(*queued_ns)?,
            }),
            ("inject", [pts, ns, cpu_ns]) => {
                // A cost that a late helper did not reach in time is none.
                self.injected.push(Injected {
                    pts: *pts,
                    ns: unsigned(*ns).unwrap_or(0),
                    cpu_ns: unsigned(*cpu_ns)?,
                });
            }
            ("cpu", [ns]) => self.cpu_ns = unsigned(*ns)?,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_other_lines_are_errors() {
        let report =
            OwnReport::parse("packet 0 512\nframe 512 100 300 7 20\ninject 512 50 10\ncpu 99\n").unwrap();
        let frame = OwnFrame { pts: 512, number: 7, begin_ns: 100, end_ns: 300, queued_ns: 20 };
        assert_eq!((report.packets, report.frames), (vec![512], vec![frame]));
        assert_eq!((report.injected, report.cpu_ns), (vec![Injected { pts: 512, ns: 50, cpu_ns: 10 }], 99));
        for line in ["packet 1", "frame 1 2 3 4", "other 1", "cpu x", "cpu -1"] {
            assert!(OwnReport::parse(line).is_err(), "{line}");
        }
    }
}
