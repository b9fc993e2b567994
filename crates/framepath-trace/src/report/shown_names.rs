// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names from the traced program, made safe for terminals where they enter the report.
//!
//! All outputs of a recording come from the report: tables, JSON, CSV, the trace for Perfetto and the page. JSON escapes
//! only the C0 control characters, so a terminal would act on the others.

use std::borrow::Cow;

use framepath_model::shown::shown;

use super::TraceReport;

impl TraceReport {
    /// Escapes the control characters in all names that the traced program or its files chose.
    pub(super) fn escape_names(&mut self) {
        escape(&mut self.program);
        for row in &mut self.threads {
            escape(&mut row.name);
            row.codec.as_mut().map(escape);
        }
        for stream in &mut self.streams {
            escape(&mut stream.from);
            stream.stages.iter_mut().for_each(escape);
            for wait in &mut stream.stage_waits {
                let names = [&mut wait.object, &mut wait.ended_by, &mut wait.ended_in];
                names.into_iter().flatten().for_each(escape);
            }
        }
        self.late_probes.iter_mut().for_each(|late| escape(&mut late.file));
        self.unprobed.iter_mut().for_each(escape);
        self.unmatched.iter_mut().for_each(escape);
    }
}

fn escape(name: &mut String) {
    if let Cow::Owned(escaped) = shown(name) {
        *name = escaped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_findings::{CallFindings, LateProbes};
    use crate::frame_ledger::StreamLedger;
    use crate::report::Usage;
    use crate::stage_wait::StageWait;
    use crate::thread_times::ThreadRow;
    use crate::trace_level::TraceLevel;

    #[test]
    fn no_name_in_a_report_has_a_control_character() {
        const NAME: &str = "a\u{9b}31m\u{1b}]0;\u{202e}\n";
        const SHOWN: &str = "a\\u{9b}31m\\u{1b}]0;\\u{202e}\\n";
        let name = || NAME.to_owned();
        let wait = StageWait {
            hop: 0,
            cause: "blocked",
            reason: "file",
            is_write: false,
            object: Some(name()),
            ended_by: Some(name()),
            ended_in: Some(name()),
            us: 1.0,
        };
        let stream = StreamLedger { from: name(), stages: vec![name()], ..StreamLedger::default() };
        let findings = CallFindings {
            level: Some(TraceLevel::Bpf),
            streams: vec![stream],
            codecs: [(8, name())].into(),
            unprobed: vec![name()],
            late: vec![LateProbes { file: name(), process: 7, late_ns: 1 }],
            ..CallFindings::default()
        };
        let row = ThreadRow { thread: 8, name: name(), ..ThreadRow::default() };
        let mut report = TraceReport::new(name(), 1, Usage::default(), vec![row], 0, Some(findings));
        report.streams[0].stage_waits.push(wait);
        report.escape_names();
        let (row, stream) = (&report.threads[0], &report.streams[0]);
        let wait = &stream.stage_waits[0];
        for named in [&row.codec, &wait.object, &wait.ended_by, &wait.ended_in] {
            assert_eq!(named.as_deref(), Some(SHOWN));
        }
        let late = &report.late_probes[0].file;
        for named in [&report.program, &row.name, &stream.from, &stream.stages[0], late, &report.unprobed[0]]
        {
            assert_eq!(named, SHOWN);
        }
    }
}
