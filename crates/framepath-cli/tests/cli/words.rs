// SPDX-License-Identifier: MIT OR Apache-2.0
//! Help, completions, and the lists of `doctor` and `stages`.

use serde_json::Value;

use framepath_testkit::{framepath, run};

const COMMANDS: [&str; 9] =
    ["run", "lab", "compare", "gate", "report", "doctor", "stages", "plugins", "completions"];

#[test]
fn every_command_has_help_with_examples() {
    let top = run(&["--help"]).ended(0).shows("Examples:");
    for command in COMMANDS {
        assert!(top.stdout.contains(command), "{command}");
        let help = run(&[command, "--help"]).ended(0).shows("Examples:");
        assert!(help.stdout.contains(&format!("framepath {command} ")), "{help:#?}");
    }
    run(&[]).ended(2).prints("Examples:");
    run(&["--version"]).ended(0).shows(env!("CARGO_PKG_VERSION"));
}

#[test]
fn an_unknown_command_suggests_the_nearest() {
    run(&["rn", "test ! null"]).ended(2).prints("no command `rn`; did you mean `framepath run`?");
    run(&["laab"]).ended(2).prints("did you mean `framepath lab`?");
    run(&["x264"]).ended(2).prints("the commands are run, ").prints(", lab, compare, ");
}

#[test]
fn every_stage_has_a_description() {
    let all = run(&["stages"]).ended(0);
    // The help has line breaks.
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let help = flat(&run(&["help", "path"]).ended(0).stdout);
    for def in framepath::Registry::built_in().definitions().iter() {
        assert!(all.stdout.contains(def.help), "{}", def.name);
        assert!(help.contains(&flat(def.help)), "{}", def.name);
        run(&["stages", def.name]).ended(0).shows(&def.usage());
    }
}

#[test]
fn completions_include_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).ended(0).stdout;
        for command in COMMANDS {
            assert!(script.contains(command), "{command} in {shell}");
        }
    }
    run(&["completions", "tcsh"]).ended(2).prints("bash");
}

/// Runs the completion script in a separate bash, with the variables that readline sets.
#[test]
fn bash_completes_paths() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("completions.bash");
    std::fs::write(&script, run(&["completions", "bash"]).ended(0).stdout).unwrap();
    let program = framepath(&[]).get_program().to_owned();
    let program = std::path::Path::new(&program).parent().unwrap().to_owned();
    let completed = |line: &str, words: &[&str]| {
        const ASK: &str = "source \"$1\"; COMP_LINE=$2 COMP_POINT=${#2}; shift 2; COMP_WORDS=(\"$@\"); \
                           COMP_CWORD=$(($# - 1)); _framepath_words framepath \"${!#}\" '' 2>/dev/null; \
                           printf '%s|' \"${COMPREPLY[@]}\"";
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", ASK, "bash"]).arg(&script).arg(line).args(words).env("PATH", path);
        String::from_utf8(bash.output().unwrap().stdout).unwrap()
    };
    let quoted = "'test ! queue lea";
    assert_eq!(
        completed(&format!("framepath run {quoted}"), &["framepath", "run", quoted]),
        "test ! queue leaky=|"
    );
    // Readline ends a word at `=`.
    let words = ["framepath", "run", "test", "!", "queue", "leaky", "=", "u"];
    assert_eq!(completed("framepath run test ! queue leaky=u", &words), "upstream|");
    assert_eq!(completed("framepath stages thr", &["framepath", "stages", "thr"]), "threshold|");
    assert_eq!(completed("framepath ga", &["framepath", "ga"]), "gate|");
}

#[test]
fn the_doctor_lists_missing_capabilities_with_remedies() {
    let ran = run(&["doctor"]).ended(0);
    let ran = ran
        .shows("PMU")
        .shows("V4L2 nodes")
        .shows("V4L2 fence flags")
        .shows("dav1d")
        .shows("committed clips");
    let json = run(&["doctor", "--json", "-"]).ended(0);
    let findings: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(findings["machine"]["kernel"].is_string());
    for probe in findings["probes"].as_array().unwrap() {
        assert!(ran.stdout.contains(probe["name"].as_str().unwrap()), "{probe}");
        match probe["state"].as_str().unwrap() {
            "ok" => assert!(probe["remedy"].is_null(), "{probe}"),
            "missing" | "not-permitted" => assert!(probe["remedy"].is_string(), "{probe}"),
            other => panic!("state {other}"),
        }
    }
}
