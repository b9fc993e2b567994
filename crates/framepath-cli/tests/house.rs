// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of the project that the compiler does not check: dependencies between the
//! crates, places of `unsafe`, licences, and the length of files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use framepath_testkit::harness::{Missing, Tested};
use serde_json::Value;

framepath_testkit::tests! {
    dependencies_point_in_one_direction,
    only_one_crate_uses_the_codec_libraries,
    the_number_of_dependencies_is_bounded,
    the_command_is_built_without_the_lab_and_the_window,
    unsafe_is_forbidden_except_in_os_and_codec,
    every_crate_uses_the_lints_of_the_workspace,
    every_source_file_names_its_licence,
    files_are_short_or_give_a_reason,
    every_file_is_a_module_of_one_crate,
    conditions_compile_with_the_oldest_supported_rust,
    doc_comments_begin_with_a_noun_or_a_verb,
}

/// Every crate of the workspace, lowest first, with the workspace crates that it may depend on, in
/// any of its dependency tables. A new crate needs a line here and a page in docs/decisions/.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("framepath-model", &[]),
    ("framepath-os", &["framepath-model"]),
    ("framepath-codec", &["framepath-model", "framepath-os"]),
    ("framepath-net", &["framepath-model", "framepath-os"]),
    ("framepath", &["framepath-model", "framepath-os", "framepath-codec", "framepath-net"]),
    ("framepath-serve", &["framepath-model", "framepath-os", "framepath-codec", "framepath"]),
    ("framepath-trace", &["framepath-model", "framepath-os"]),
    (
        "framepath-lab",
        &[
            "framepath-model",
            "framepath-os",
            "framepath-codec",
            "framepath",
            "framepath-serve",
            "framepath-trace",
        ],
    ),
    (
        "framepath-cli",
        &[
            "framepath-model",
            "framepath-os",
            "framepath-codec",
            "framepath",
            "framepath-serve",
            "framepath-trace",
            "framepath-lab",
        ],
    ),
    (TESTKIT, &["framepath-model", "framepath-os", "framepath", "framepath-serve"]),
];

/// Crate of test helpers: a dev-dependency of any crate, and no other dependency.
const TESTKIT: &str = "framepath-testkit";

/// Crate that only the feature `net` brings into the command.
const OPTIONAL: &str = "framepath-net";

/// Only crate that may depend on the crates of [`CODEC_NAMES`].
const CODEC_CRATE: &str = "framepath-codec";
/// Beginnings of the names of crates that bind FFmpeg, dav1d or other C libraries.
const CODEC_NAMES: &[&str] = &["ffmpeg", "libav", "dav1d", "bindgen"];

/// Crate roots in which `unsafe` is forbidden.
const FORBIDS_UNSAFE: &[&str] = &[
    "crates/framepath-model/src/lib.rs",
    "crates/framepath-net/src/lib.rs",
    "crates/framepath/src/lib.rs",
    "crates/framepath-lab/src/lib.rs",
    "crates/framepath-serve/src/lib.rs",
    "crates/framepath-trace/src/lib.rs",
    "crates/framepath-cli/src/main.rs",
    "crates/framepath-testkit/src/lib.rs",
];

/// Maximum number of third-party packages of the command with its default features. Optional
/// features and tests may add others.
const MOST_DEPENDENCIES: usize = 96;

const MOST_LINES: usize = 600;
const LONGER_BECAUSE: &str = "// over 600 lines because";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is two folders above the crate")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns for each crate the names of all its dependencies (normal, build and dev), except the
/// testkit as a dev-dependency.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = output(Command::new(cargo).args([
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
        "--locked",
    ]));
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().expect("a name is a string").to_owned();
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let names = package["dependencies"].as_array().expect("dependencies");
            let names = names.iter().filter(|one| one["kind"] != "dev" || one["name"] != TESTKIT);
            let names = names.map(|one| text(&one["name"])).collect();
            (text(&package["name"]), names)
        })
        .collect()
}

/// Lists the files that git tracks or would add, as paths below the root. Returns an error without a
/// git repository, as in an unpacked archive.
fn files() -> Result<Vec<String>, Missing> {
    if !root().join(".git").exists() {
        return Err(Missing::new("no git repository to list files from; run the test in a clone"));
    }
    // A clone of another user is safe, because git only lists names.
    let listed = output(Command::new("git").args([
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]));
    let mut files: Vec<String> =
        listed.split_terminator('\0').filter(|path| root().join(path).is_file()).map(str::to_owned).collect();
    files.sort();
    assert!(files.len() > 20, "git lists only {} files: {files:?}", files.len());
    Ok(files)
}

fn dependencies_point_in_one_direction() {
    let found = dependencies();
    let known: BTreeMap<&str, &[&str]> = MAY_KNOW.iter().copied().collect();
    for (name, dependencies) in &found {
        let allowed = known
            .get(name.as_str())
            .unwrap_or_else(|| panic!("{name} is a new crate; add its allowed dependencies to MAY_KNOW"));
        for dependency in dependencies {
            if found.contains_key(dependency) {
                assert!(
                    allowed.contains(&dependency.as_str()),
                    "{name} may not depend on {dependency}: allowed are {allowed:?}"
                );
            }
        }
    }
    for (name, _) in MAY_KNOW {
        assert!(found.contains_key(*name), "{name} is gone");
    }
}

fn only_one_crate_uses_the_codec_libraries() {
    for (name, dependencies) in dependencies() {
        if name == CODEC_CRATE {
            continue;
        }
        for dependency in dependencies {
            assert!(
                !CODEC_NAMES.iter().any(|word| dependency.starts_with(word)),
                "{name} depends on {dependency}: that belongs in {CODEC_CRATE}"
            );
        }
    }
}

/// Lists the packages that the command is built of with these options of `cargo tree`, each as NAME
/// VERSION.
fn packages(options: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    let tree = output(command.arg("tree").args(options).args([
        "--package",
        "framepath-cli",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--offline",
        "--locked",
    ]));
    // NAME VERSION, then words in parentheses: a path, "proc-macro", or "*" for a repetition.
    tree.lines()
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .filter(|package| !package.is_empty())
        .collect()
}

fn the_command_is_built_without_the_lab_and_the_window() {
    let has_lab =
        |options: &[&str]| packages(options).iter().any(|package| package.starts_with("framepath-lab "));
    assert!(has_lab(&[]) && !has_lab(&["--no-default-features"]));
    let has_window = |options: &[&str]| packages(options).iter().any(|package| package.starts_with("sdl2 "));
    assert!(has_window(&[]) && !has_window(&["--no-default-features", "--features", "lab"]));
}

fn the_number_of_dependencies_is_bounded() {
    let packages = packages(&[]);
    let own = packages.iter().filter(|package| package.starts_with("framepath")).count();
    let expected = MAY_KNOW.len() - [TESTKIT, OPTIONAL].len();
    assert_eq!(
        own, expected,
        "the command is built of all of our crates but {TESTKIT} and {OPTIONAL}: {packages:?}"
    );
    let outside = packages.len() - own;
    assert!(
        outside <= MOST_DEPENDENCIES,
        "{outside} packages in the command's default features, {MOST_DEPENDENCIES} allowed: {packages:?}"
    );
}

fn unsafe_is_forbidden_except_in_os_and_codec() {
    for path in FORBIDS_UNSAFE {
        assert!(
            read(path).lines().any(|line| line == "#![forbid(unsafe_code)]"),
            "{path} has no #![forbid(unsafe_code)]"
        );
    }
}

fn every_crate_uses_the_lints_of_the_workspace() {
    for (name, _) in MAY_KNOW {
        let path = format!("crates/{name}/Cargo.toml");
        assert!(
            read(&path).contains("[lints]\nworkspace = true\n"),
            "{path} does not take the workspace's lints"
        );
    }
}

/// Returns true if a file is source by its name, or begins with `#!`.
fn is_source(path: &str, text: &str) -> bool {
    const ENDINGS: &[&str] = &[".rs", ".c", ".h", ".sh", ".py", ".toml", ".mk"];
    const NAMES: &[&str] = &["Makefile", "Kbuild", "Kconfig"];
    let name = path.rsplit('/').next().unwrap_or(path);
    NAMES.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending)) || text.starts_with("#!")
}

/// Returns the SPDX licences that a file may carry, by its folder.
fn licences(path: &str) -> &'static [&'static str] {
    const OURS: &str = "MIT OR Apache-2.0";
    const KERNEL: &str = "GPL-2.0-only";
    if path.starts_with("kernel/uapi/") {
        // For use by programs of any licence.
        &["GPL-2.0-only WITH Linux-syscall-note"]
    } else if path.starts_with("kernel/") {
        &[KERNEL]
    } else if path.starts_with("bpf/") || path.starts_with("tests/vm/") {
        // The guests' programs include sources of the kernel module.
        &[KERNEL, OURS]
    } else {
        &[OURS]
    }
}

fn every_source_file_names_its_licence() -> Tested {
    let files = files()?;
    let mut wrong = Vec::new();
    for path in &files {
        // A clip or a picture is not text, and not source.
        let Ok(text) = fs::read_to_string(root().join(path)) else {
            continue;
        };
        if !is_source(path, &text) {
            continue;
        }
        let licence = text.lines().take(2).find_map(|line| {
            let line = line.trim_end_matches("*/").trim_end();
            line.split_once("SPDX-License-Identifier: ").map(|(_, licence)| licence.to_owned())
        });
        match licence {
            Some(licence) if licences(path).contains(&licence.as_str()) => {}
            licence => wrong.push(format!("{path}: {licence:?}, wanted {:?}", licences(path))),
        }
    }
    assert!(wrong.is_empty(), "no or another SPDX line on line 1 or 2:\n{}", wrong.join("\n"));
    Ok(())
}

fn files_are_short_or_give_a_reason() -> Tested {
    let files = files()?;
    let tests = |path: &str| path.split('/').any(|part| part == "tests" || part == "tests.rs");
    let mut long = Vec::new();
    for path in files.iter().filter(|path| path.ends_with(".rs") && !tests(path)) {
        let text = read(path);
        let lines = text.lines().count();
        if lines > MOST_LINES && !text.lines().any(|line| line.trim_start().starts_with(LONGER_BECAUSE)) {
            long.push(format!("{path}: {lines} lines"));
        }
    }
    assert!(
        long.is_empty(),
        "longer than {MOST_LINES} lines, without a line `{LONGER_BECAUSE} ...`:\n{}",
        long.join("\n")
    );
    Ok(())
}

/// Checks that no module is included by the attribute `path`, so that every file is a module of a
/// single crate. Shared code belongs in a crate that both depend on.
fn every_file_is_a_module_of_one_crate() -> Tested {
    let files = files()?;
    let attribute = ["#[", "path"].concat();
    let with = |path: &&String| read(path).lines().any(|line| line.trim_start().starts_with(&attribute));
    let wrong: Vec<&String> = files.iter().filter(|path| path.ends_with(".rs")).filter(with).collect();
    assert!(wrong.is_empty(), "modules included by their path: {wrong:?}");
    Ok(())
}

/// Checks that no condition has `let` after `&&`: Debian 13's Rust, 1.85, does not support it, and
/// clippy of a newer version does not report it.
fn conditions_compile_with_the_oldest_supported_rust() -> Tested {
    let files = files()?;
    let chained = ["&&", "let "].join(" ");
    let mut sources = 0;
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        sources += 1;
        assert!(!read(path).contains(&chained), "{path} has a chain of `let` conditions");
    }
    assert!(sources > 100, "only {sources} sources");
    Ok(())
}

/// Checks that no doc comment begins with one of the words `riddles`, such as `What` or `Not`.
fn doc_comments_begin_with_a_noun_or_a_verb() -> Tested {
    let files = files()?;
    let riddles = ["What", "Who", "Whose", "Whether", "Of", "Nothing", "Not"];
    let text_of = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("///").or(line.strip_prefix("//!")).map(|text| text.trim().to_owned())
    };
    let (mut wrong, mut comments) = (Vec::new(), 0);
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        let mut before = None;
        for (number, line) in read(path).lines().enumerate() {
            let text = text_of(line);
            if let (None, Some(text)) = (&before, &text) {
                comments += 1;
                if text.split(' ').next().is_some_and(|word| riddles.contains(&word)) {
                    wrong.push(format!("{path}:{}: {text}", number + 1));
                }
            }
            before = text;
        }
    }
    assert!(comments > 1000, "only {comments} doc comments");
    assert!(wrong.is_empty(), "begin with a noun phrase or a verb:\n{}", wrong.join("\n"));
    Ok(())
}
