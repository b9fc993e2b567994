// SPDX-License-Identifier: MIT OR Apache-2.0
//! The experiment type, and the list of experiments.

mod aa;
mod decode;
mod encode;
mod faults;
mod gstreamer;
mod handoff;
mod inject;
mod load;
mod loopback;
mod m2m;
mod players;
mod python;
mod queue;
mod repeated_clip;
mod rpc;
#[cfg(feature = "play")]
mod stream;
mod trace;

use std::path::PathBuf;

use framepath_model::summary::Summary;

use crate::error::LabError;
use crate::kept::KeptLedger;
use crate::progress::ProgressView;
use framepath::export::machine::machine;

/// Amount of work of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Small input and few rounds: the default, which `make demo` uses.
    Quick,
    /// Input and rounds of the published figures: option `--full`.
    Full,
}

/// Settings of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentSettings {
    /// Amount of work: selects input, contenders and the default number of rounds.
    pub size: Size,
    /// Number of rounds, in each of which every contender runs once; in lab `faults` the number of
    /// kills in its two kill cases together. `None` for the experiment's own number. Lab `inject`
    /// ignores it.
    pub pairs: Option<usize>,
    /// Names of the cases to run, whatever the size; empty for all cases of `size`. An experiment that runs with
    /// `files` ignores this field. [`with_cases`] selects the experiments that have one of these cases.
    pub cases: Vec<String>,
    /// Files that the experiments with `takes_files` use instead of the committed clips; empty for the
    /// committed clips. The other experiments ignore this field.
    pub files: Vec<PathBuf>,
    /// Path of the `framepath` binary, for contenders that are separate processes.
    pub framepath: PathBuf,
    /// Folder of the committed clips.
    pub clips: PathBuf,
    /// Folder of the built peers: small programs that are contenders, most of which drive other people's
    /// software.
    pub peers: PathBuf,
}

impl ExperimentSettings {
    /// Returns the number of rounds: `pairs` if set, otherwise `quick` or `full`, depending on
    /// `size`; at least 1.
    pub fn rounds(&self, quick: usize, full: usize) -> usize {
        self.pairs.unwrap_or(if self.size == Size::Quick { quick } else { full }).max(1)
    }

    /// Returns the path of the committed clip with the file name `name`.
    ///
    /// # Errors
    /// [`LabError::Unknown`] if the folder `clips` has no such file.
    pub fn clip(&self, name: &str) -> Result<PathBuf, LabError> {
        let file = self.clips.join(name);
        match file.exists() {
            true => Ok(file),
            false => {
                let file = file.display();
                Err(LabError::Unknown(format!("no clip {file}; give the folder of the clips with --clips")))
            }
        }
    }

    /// Returns true if `cases` contains `case` or is empty.
    pub fn wants(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|c| c == case)
    }
}

/// Results of an experiment.
pub struct ExperimentResult {
    /// Figures, ratios, skipped contenders and notes, as `run.json` has them.
    pub summary: Summary,
    /// Ledgers of selected runs, for the run folder; may be empty.
    pub ledgers: Vec<KeptLedger>,
}

/// One experiment of the lab.
pub struct Experiment {
    /// Name of the experiment, as in `framepath lab NAME`.
    pub name: &'static str,
    /// Subject of the experiment in one line, for `lab --list` and as heading.
    pub question: &'static str,
    /// True if the experiment belongs to the quick set, which `make demo` and `framepath lab`
    /// without names run; `--full` runs all.
    pub quick: bool,
    /// True if the experiment accepts files on the command line, instead of the committed clips.
    pub takes_files: bool,
    /// Function that returns the names of all cases with the committed clips, those that run only with
    /// `--full` included.
    pub cases: fn() -> Vec<String>,
    run: fn(&ExperimentSettings, &dyn ProgressView, &mut ExperimentResult) -> Result<(), LabError>,
}

/// All experiments, in the order in which `framepath lab` lists them and runs them if none is named.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "queue",
        question: "cost of a push, direct and through a queue, by buffer size (Contreras)",
        quick: true,
        takes_files: false,
        cases: queue::cases,
        run: queue::run,
    },
    Experiment {
        name: "decode",
        question: "cost of decoding a clip to NV12 or P010, compared with the ffmpeg tool (daedalus-v4l2)",
        quick: true,
        takes_files: true,
        cases: decode::cases,
        run: decode::run,
    },
    Experiment {
        name: "encode",
        question: "cost of a raw encoder that does not copy (RootStream)",
        quick: true,
        takes_files: false,
        cases: encode::cases,
        run: encode::run,
    },
    Experiment {
        name: "python",
        question: "decoding into arrays of numpy, compared with PyAV, OpenCV and decord",
        quick: false,
        takes_files: false,
        cases: python::cases,
        run: python::run,
    },
    Experiment {
        name: "gstreamer",
        question: "cost of the sandbox in a pipeline of GStreamer, compared with its own decoders",
        quick: false,
        takes_files: false,
        cases: gstreamer::cases,
        run: gstreamer::run,
    },
    Experiment {
        name: "loopback",
        question: "throughput and first chunk over the loopback network (RootStream)",
        quick: true,
        takes_files: false,
        cases: loopback::cases,
        run: loopback::run,
    },
    Experiment {
        name: "handoff",
        question: "cost of a frame from process to process, compared with iceoryx2, GStreamer and a socket",
        quick: false,
        takes_files: false,
        cases: handoff::cases,
        run: handoff::run,
    },
    Experiment {
        name: "faults",
        question: "effect on readers of workers that are killed, hang or exhaust their memory (nspluginwrapper)",
        quick: false,
        takes_files: false,
        cases: faults::cases,
        run: faults::run,
    },
    Experiment {
        name: "rpc",
        question: "cost of crossing to a worker, with constant information cached and queried for every frame \
                   (nspluginwrapper)",
        quick: false,
        takes_files: false,
        cases: rpc::cases,
        run: rpc::run,
    },
    Experiment {
        name: "m2m",
        question: "cost of a frame through a memory-to-memory device: captured, lent, copied, in place (vpipe)",
        quick: false,
        takes_files: false,
        cases: m2m::cases,
        run: m2m::run,
    },
    Experiment {
        name: "inject",
        question: "accuracy of the ledger for known, injected costs",
        quick: true,
        takes_files: false,
        cases: inject::cases,
        run: inject::run,
    },
    Experiment {
        name: "trace",
        question: "accuracy of the ledger of a foreign program: injected costs, other observers",
        quick: false,
        takes_files: false,
        cases: trace::cases,
        run: trace::run,
    },
    Experiment {
        name: "players",
        question: "players that can play a clip at its own rate, and their CPU share (Beauchesne)",
        quick: false,
        takes_files: true,
        cases: players::cases,
        run: players::run,
    },
    #[cfg(feature = "play")]
    Experiment {
        name: "stream",
        question: "latency from one screen to another, over the network, as an observer of both sees it (RootStream)",
        quick: false,
        takes_files: false,
        cases: stream::cases,
        run: stream::run,
    },
    Experiment {
        name: "aa",
        question: "rate of false differences: the lab compares a contender with itself",
        quick: false,
        takes_files: false,
        cases: aa::cases,
        run: aa::run,
    },
];

/// Finds the experiment with the name `name`.
///
/// # Errors
/// [`LabError::Unknown`] if there is none, with the nearest name, if any, and all names.
pub fn find(name: &str) -> Result<&'static Experiment, LabError> {
    let names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
    EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(|| {
        let near = framepath_model::path::nearest(name, names.iter().copied());
        let hint = near.map_or_else(String::new, |n| format!(" did you mean `{n}`?"));
        LabError::Unknown(format!("no experiment `{name}`;{hint} the experiments are {}", names.join(", ")))
    })
}

/// Returns those of `experiments` that have at least one of the cases in `settings`; all of `experiments`
/// if `settings` names no case. With files in `settings`, the cases of an experiment that accepts files are
/// the files' names without extension.
///
/// # Errors
/// [`LabError::Unknown`] if a case in `settings` belongs to none of the experiments. The error has the case,
/// near names, if any, and all cases of the experiments.
pub fn with_cases(
    experiments: &[&'static Experiment],
    settings: &ExperimentSettings,
) -> Result<Vec<&'static Experiment>, LabError> {
    let cases_of = |experiment: &Experiment| -> Vec<String> {
        // With files, an experiment has a case for each of them.
        if experiment.takes_files && !settings.files.is_empty() {
            let stem = |file: &PathBuf| file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            return settings.files.iter().filter_map(stem).collect();
        }
        (experiment.cases)()
    };
    let known: Vec<String> = experiments.iter().flat_map(|experiment| cases_of(experiment)).collect();
    if let Some(case) = settings.cases.iter().find(|case| !known.contains(case)) {
        let near = framepath_model::path::nearest_few(case, known.iter().map(String::as_str), 3);
        let hint = if near.is_empty() { String::new() } else { format!(" near: {};", near.join(", ")) };
        let lists: Vec<String> = experiments
            .iter()
            .map(|experiment| format!("{}: {}", experiment.name, cases_of(experiment).join(", ")))
            .collect();
        return Err(LabError::Unknown(format!("no case `{case}`;{hint} the cases are {}", lists.join("; "))));
    }
    let is_wanted = |experiment: &&&'static Experiment| {
        settings.cases.is_empty() || cases_of(experiment).iter().any(|case| settings.cases.contains(case))
    };
    Ok(experiments.iter().filter(is_wanted).copied().collect())
}

impl Experiment {
    /// Runs the experiment, and reports progress to `watch`. After SIGINT or SIGTERM returns the
    /// finished part as `Ok`, with a note in the summary.
    ///
    /// # Errors
    /// The first failure that does not merely skip a contender, such as a program that fails, a
    /// path that loses frames, or a missing clip. The finished part is lost.
    pub fn run(
        &self,
        settings: &ExperimentSettings,
        watch: &dyn ProgressView,
    ) -> Result<ExperimentResult, LabError> {
        let summary = Summary {
            experiment: self.name.to_owned(),
            machine: machine(),
            started_unix_s: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .ok()
                .map(|t| t.as_secs()),
            rows: Vec::new(),
            ratios: Vec::new(),
            skipped: Vec::new(),
            notes: Vec::new(),
        };
        let mut findings = ExperimentResult { summary, ledgers: Vec::new() };
        let outcome = (self.run)(settings, watch, &mut findings);
        watch.end();
        match outcome {
            Err(LabError::Interrupted) => {
                findings.summary.notes.push("interrupted: the remaining runs are missing".to_owned());
                Ok(findings)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(findings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(cases: &[&str], files: &[&str]) -> ExperimentSettings {
        ExperimentSettings {
            size: Size::Quick,
            pairs: None,
            cases: cases.iter().map(|case| (*case).to_owned()).collect(),
            files: files.iter().map(PathBuf::from).collect(),
            framepath: PathBuf::from("framepath"),
            clips: PathBuf::from("clips"),
            peers: PathBuf::from("peers"),
        }
    }

    fn chosen(cases: &[&str], files: &[&str]) -> Result<Vec<&'static str>, String> {
        let all: Vec<&'static Experiment> = EXPERIMENTS.iter().collect();
        let chosen = with_cases(&all, &settings(cases, files)).map_err(|error| error.to_string())?;
        Ok(chosen.iter().map(|experiment| experiment.name).collect())
    }

    #[test]
    fn a_case_selects_the_experiments_that_have_it() {
        assert_eq!(chosen(&[], &[]).unwrap().len(), EXPERIMENTS.len());
        assert_eq!(chosen(&["64B"], &[]).unwrap(), ["queue"]);
        assert_eq!(chosen(&["paced-30"], &[]).unwrap(), ["decode", "rpc"]);
        assert_eq!(chosen(&["film"], &["a/film.mkv"]).unwrap(), ["decode", "players"]);
    }

    #[test]
    fn an_unknown_case_is_an_error_with_the_cases() {
        let error = chosen(&["64B", "vp9-1080p"], &[]).unwrap_err();
        assert!(error.starts_with("no case `vp9-1080p`; near: vp9-1080p8"), "{error}");
        assert!(error.contains("; encode: 720p-nv12; "), "{error}");
    }

    #[test]
    fn every_experiment_lists_its_cases_once() {
        for experiment in EXPERIMENTS {
            let mut cases = (experiment.cases)();
            let all = cases.len();
            cases.sort();
            cases.dedup();
            assert!(all > 0 && cases.len() == all, "{}: {cases:?}", experiment.name);
        }
    }
}
