// SPDX-License-Identifier: MIT OR Apache-2.0
//! The line of JSON that a contender of `handoff` prints.

use framepath_model::summary::LatencyUs;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::measure::Measured;
use crate::process::Program;

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Skipped { skipped: String },
    Ran(Box<RunFigures>),
}

/// Parameters and figures of a run, by the keys of `peers/README.md`. All figures
/// exclude the warm-up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunFigures {
    /// Name of the contender in the lab.
    pub(super) contender: String,
    /// Name and version of the measured software, such as `iceoryx2 0.9.3`.
    pub(crate) software: String,
    pub(super) bytes: u64,
    pub(super) frames: u64,
    /// Frames per second; 0 is full speed.
    pub(super) rate: u64,
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) out_of_order: u64,
    pub(super) wall_ns: u64,
    pub(super) producer_cpu_ns: u64,
    pub(super) consumer_cpu_ns: u64,
    pub(super) producer_switches: u64,
    pub(super) consumer_switches: u64,
    pub(super) copied_bytes: u64,
    pub(super) latency_ns: LatencyNs,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LatencyNs {
    pub(super) p50: u64,
    pub(super) p95: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

/// Parses the line `text`, which `program` printed.
///
/// # Errors
/// [`LabError::Missing`] if the program reports that this machine lacks something,
/// [`LabError::Command`] if the text has neither figures nor that report.
pub(crate) fn parse(program: &Program, text: &str) -> Result<RunFigures, LabError> {
    match serde_json::from_str(text) {
        Ok(Line::Ran(told)) => Ok(*told),
        Ok(Line::Skipped { skipped }) => Err(LabError::Missing(skipped)),
        Err(error) => Err(LabError::Command {
            exit_code: None,
            command: program.text(),
            outcome: "printed no valid line of JSON".to_owned(),
            stderr: error.to_string(),
        }),
    }
}

impl RunFigures {
    /// Converts the figures; `program` names the contender in the error.
    ///
    /// # Errors
    /// [`LabError::Command`] if a frame was lost, duplicated or out of order, or there was none,
    /// because the times of such a run are meaningless.
    pub(crate) fn measured(&self, program: &Program) -> Result<Measured, LabError> {
        let RunFigures { frames, received, lost, duplicated, out_of_order, .. } = *self;
        if received != frames || lost + duplicated + out_of_order > 0 || frames == 0 {
            return Err(LabError::Command {
                exit_code: None,
                command: program.text(),
                outcome: format!(
                    "transferred {received} of {frames} frames: {lost} lost, {duplicated} duplicated, \
                     {out_of_order} out of order"
                ),
                stderr: String::new(),
            });
        }
        let per_frame = |n: u64| n as f64 / frames as f64;
        let us = |ns: u64| ns as f64 / 1e3;
        let LatencyNs { p50, p95, p99, max } = self.latency_ns;
        let cpu_ns = self.producer_cpu_ns + self.consumer_cpu_ns;
        let mut measured = Measured {
            frames,
            wall_ns: self.wall_ns,
            cpu_ns,
            latency: Some(LatencyUs { p50: us(p50), p95: us(p95), p99: us(p99), max: us(max) }),
            copied_bytes_per_frame: Some(per_frame(self.copied_bytes)),
            switches_per_frame: Some(per_frame(self.producer_switches + self.consumer_switches)),
            ..Measured::default()
        };
        if self.rate == 0 {
            measured.extra.insert("wall_us_per_frame".to_owned(), per_frame(self.wall_ns) / 1e3);
        }
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"contender":"unix-socket","software":"Linux 6.1","bytes":4096,"frames":200,"rate":0,
        "received":200,"lost":0,"duplicated":0,"out_of_order":0,"wall_ns":1000000,"producer_cpu_ns":300000,
        "consumer_cpu_ns":100000,"producer_switches":10,"consumer_switches":30,"copied_bytes":1638400,
        "latency_ns":{"p50":1000,"p95":2000,"p99":3500,"max":4000}}"#;

    fn read(text: &str) -> Result<Measured, LabError> {
        let program = Program::new("unix-handoff", ["--frames", "200"]);
        parse(&program, text)?.measured(&program)
    }

    #[test]
    fn figures_are_per_frame_and_of_both_processes() {
        let measured = read(LINE).unwrap();
        assert_eq!((measured.frames, measured.wall_ns, measured.cpu_ns), (200, 1_000_000, 400_000));
        assert_eq!(measured.copied_bytes_per_frame, Some(8192.0));
        assert_eq!(measured.switches_per_frame, Some(0.2));
        assert_eq!(measured.metric("cpu_us_per_frame"), Some(2.0));
        assert_eq!(measured.metric("wall_us_per_frame"), Some(5.0));
        assert_eq!(measured.metric("latency_p50_us"), Some(1.0));
        assert_eq!(measured.metric("latency_p99_us"), Some(3.5));
        let paced = read(&LINE.replace("\"rate\":0", "\"rate\":60")).unwrap();
        assert_eq!(paced.metric("wall_us_per_frame"), None, "the pace determines the wall time");
    }

    #[test]
    fn lost_duplicated_and_reordered_frames_are_errors() {
        for (from, to, message) in [
            ("\"received\":200,\"lost\":0", "\"received\":198,\"lost\":2", "198 of 200 frames: 2 lost"),
            ("\"duplicated\":0", "\"duplicated\":1", "1 duplicated"),
            ("\"out_of_order\":0", "\"out_of_order\":3", "3 out of order"),
        ] {
            let error = read(&LINE.replace(from, to)).unwrap_err();
            assert!(
                matches!(error, LabError::Command { .. }) && error.to_string().contains(message),
                "{error}"
            );
        }
    }

    #[test]
    fn a_skip_and_a_failure_are_different_errors() {
        let error = read(r#"{"skipped":"GStreamer 1.22.0 has no unixfdsink"}"#).unwrap_err();
        assert!(matches!(&error, LabError::Missing(why) if why.contains("unixfdsink")), "{error}");
        for text in ["", "{}", "frames: 3", "{\"received\":200}"] {
            let error = read(text).unwrap_err();
            assert!(matches!(error, LabError::Command { .. }), "{text}: {error}");
        }
    }
}
