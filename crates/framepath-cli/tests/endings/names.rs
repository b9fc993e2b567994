// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control characters in file names are escaped.

use std::fs;

use framepath_model::shown::acts_on_terminals;

use framepath_testkit::{in_checkout, run};

/// File name with control characters that would clear the screen, begin a line and reverse the text
/// after it.
const NAME: &str = "a\u{1b}[2Jb\nframepath: all is well\u{202e}\u{9b}31m.ivf";

#[track_caller]
fn assert_plain(text: &str) {
    let acting: Vec<char> = text.chars().filter(|c| acts_on_terminals(*c) && *c != '\n').collect();
    assert!(acting.is_empty(), "{acting:?} in {text:?}");
    assert!(!text.contains("\nframepath: all is well"), "{text:?}");
}

pub fn errors_and_summaries_escape_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(NAME);
    let path = |rest: &str| format!("file '{}' {rest}", file.display());
    let mut escaped = 0;
    let mut check = |args: &[&str], code: i32| {
        let ran = run(args).ended(code);
        for text in [&ran.stdout, &ran.stderr] {
            assert_plain(text);
            escaped += text.matches("\\u{1b}[2J").count();
        }
    };
    check(&["run", &path("! null")], 1);
    check(&["compare", "--pairs", "1", &path("! null"), "test ! null"], 1);
    fs::copy(in_checkout("clips/vp9-180p8.ivf"), &file).unwrap();
    check(&["run", &path("! decode ! null")], 0);
    check(&["run", &path("! decode host=process fault=crash@3 ! null")], 0);
    check(&["run", &path("! decode host=process fault=poison@0 ! null")], 1);
    check(&["compare", "--pairs", "1", &path("! null"), "test frames=1 size=64x48 ! null"], 0);
    check(&["report", file.to_str().unwrap()], 1);
    check(&["gate", file.to_str().unwrap(), file.to_str().unwrap()], 1);
    check(&["bare", file.with_extension("gone").to_str().unwrap()], 1);
    check(&["compare", "--", &format!("ls '{}'", folder.path().join("gone\u{1b}[2J").display()), "true"], 1);
    assert!(escaped >= 8, "the names are shown, escaped: {escaped}");
}

pub fn unknown_options_are_escaped_in_errors() {
    let ran = run(&["run", "--\u{1b}[2J\u{202e}", "test ! null"]).ended(2);
    assert_plain(&ran.stderr);
    let ran = run(&["run", "test ! nu\u{1b}[2Jll"]).ended(2);
    assert_plain(&ran.stderr);
}

/// JSON escapes only the C0 control characters.
pub fn json_escapes_the_names_of_a_traced_program() {
    let script = "printf 'a\\302\\2331m' > /proc/$$/comm; true";
    let ran =
        run(&["trace", "--level", "threads", "--quiet", "--json", "-", "--", "sh", "-c", script]).ended(0);
    assert_plain(&ran.stdout);
    ran.shows("\"name\": \"a\\\\u{9b}1m\"");
}
