// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparison of every structure, field, constant and ioctl number that the crate mirrors with
//! the C headers: the kernel module's and Linux's, as compiled by this machine's C compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use framepath_os::c_layout::Fact;
use framepath_os::mirrored::facts;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Paths and texts of the sources that mirror a header. Each of their structures and numbers must be a
/// [`Fact`].
const SOURCES: [(&str, &str); 5] = [
    ("v4l2/attach.rs", include_str!("../src/v4l2/attach.rs")),
    ("v4l2/abi.rs", include_str!("../src/v4l2/abi.rs")),
    ("v4l2/fourcc.rs", include_str!("../src/v4l2/fourcc.rs")),
    ("v4l2/heap.rs", include_str!("../src/v4l2/heap.rs")),
    ("v4l2/meta.rs", include_str!("../src/v4l2/meta.rs")),
];

/// Names of numbers in the sources that are not compared: no header has them, or they are only parts of
/// numbers that are compared.
const OWN_NUMBERS: [&str; 3] = ["BYTES", "CID_BASE", "MAGIC"];

/// Names in the kernel module's header that the Rust sources do not mirror, because no Rust code needs them.
const NOT_MIRRORED: [&str; 3] =
    ["FRAMEPATH_CID_BASE", "FRAMEPATH_DELIVERED_WINDOW", "FRAMEPATH_QUEUE_OUTPUT"];

const INCLUDES: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <linux/v4l2-controls.h>
#include <linux/videodev2.h>
#include "framepath.h"
#define IS_SIGNED(x) _Generic((x), signed char: 1, short: 1, int: 1, long: 1, long long: 1, default: 0)
"#;

fn main() -> ExitCode {
    let has_compiler = Command::new("cc").arg("--version").output().is_ok_and(|done| done.status.success());
    let compiled = |name: &str, test: fn()| {
        Trial::ignorable_test(name, move || -> Result<Completion, Failed> {
            if !has_compiler {
                return Ok(Completion::ignored_with("no C compiler (cc): apt install gcc libc6-dev"));
            }
            test();
            Ok(Completion::Completed)
        })
    };
    let plain = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let tests = vec![
        compiled("both_sides_agree", both_sides_agree),
        compiled("a_header_that_changes_is_noticed", a_header_that_changes_is_noticed),
        plain("everything_that_is_mirrored_is_compared", everything_that_is_mirrored_is_compared),
        plain("the_modules_header_is_mirrored_whole", the_modules_header_is_mirrored_whole),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

fn both_sides_agree() {
    let differences = compare(&facts(), &module_header()).expect("the headers have every name");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Checks that [`compare`] detects each of several changes of the module's header.
fn a_header_that_changes_is_noticed() {
    let header = module_header();
    let changes = [
        ("fields that change places", "__u32 index;\n\t__u32 failed;", "__u32 failed;\n\t__u32 index;"),
        ("another type", "__s32 stash;", "__u32 stash;"),
        ("another size", "__u8 timecode[16];", "__u8 timecode[24];"),
        ("one more field", "__u32 copied;", "__u32 copied;\n\t__u32 more[2];"),
        ("a field in two", "__u32 why;", "__u16 why, more;"),
        ("another name", "__u32 min_buffers;", "__u32 least_buffers;"),
        ("another enum value", "FRAMEPATH_CAPTURE_OFF = 2", "FRAMEPATH_CAPTURE_OFF = 5"),
        ("another constant", "#define FRAMEPATH_VERSION 2", "#define FRAMEPATH_VERSION 3"),
        ("another ioctl", "0xFB, 0x18", "0xFB, 0x1a"),
        ("another direction", "_IOW(0xFB, 0x15", "_IOWR(0xFB, 0x15"),
    ];
    // There are comments between the fields.
    let header = without_comments(&header);
    for (what, from, to) in changes {
        assert!(header.contains(from), "{what}: the header has no {from:?} any more");
        let changed = header.replacen(from, to, 1);
        match compare(&facts(), &changed) {
            Ok(differences) => assert!(!differences.is_empty(), "{what}: no difference was found"),
            Err(text) => assert!(text.contains("no member named"), "{what}: {text}"),
        }
    }
    assert_eq!(compare(&facts(), &header), Ok(Vec::new()), "the header without comments");
}

/// Checks that the list of facts has all structures and constants of the sources; the compiler
/// checks the fields.
fn everything_that_is_mirrored_is_compared() {
    let known: BTreeSet<_> = facts().into_iter().map(|fact| fact.rust).collect();
    let is_known = |name: &str| {
        let of_type = format!("Fourcc::{name}.0");
        OWN_NUMBERS.contains(&name) || known.contains(name) || known.contains(&of_type)
    };
    let mut declared = 0;
    for (file, source) in SOURCES {
        let source = source.split("#[cfg(test)]").next().expect("text");
        let mut layout_is_c = false;
        for line in source.lines().map(str::trim) {
            layout_is_c |= line.starts_with("#[repr(C");
            let words: Vec<_> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            let after = |word: &str| words.iter().position(|w| *w == word).map(|at| words[at + 1]);
            let name = match (after("struct").or(after("union")), after("const")) {
                (Some(name), _) if layout_is_c && !line.starts_with("//") => name,
                (_, Some(name)) if line.contains(": ") && is_number(line) => name,
                _ => continue,
            };
            layout_is_c = false;
            declared += 1;
            assert!(is_known(name), "{file}: {name} is not compared with its header: {line}");
        }
    }
    // There are 38 structures and unions alone, so the scan has found the declarations.
    assert!(declared > 150, "{declared}");
}

/// Returns true if the type after the first `: ` of a line is a number: the line declares such a constant.
fn is_number(line: &str) -> bool {
    let of = line.split(": ").nth(1).unwrap_or_default();
    ["u8 ", "u32 ", "u64 ", "usize ", "Opcode ", "Fourcc "].iter().any(|kind| of.starts_with(kind))
}

/// Checks that the list of facts has everything that the module's header declares, too.
fn the_modules_header_is_mirrored_whole() {
    let known: BTreeSet<_> = facts().into_iter().map(|fact| fact.c).collect();
    let header = without_comments(&module_header());
    let mut declared = 0;
    for line in header.lines().map(str::trim) {
        let words: Vec<_> = line.split_whitespace().collect();
        let c = match words[..] {
            ["#define", name, ..] if name.starts_with("FRAMEPATH_") => name.to_owned(),
            [name, "=", ..] if name.starts_with("FRAMEPATH_") => name.to_owned(),
            ["struct", name, "{"] => format!("sizeof(struct {name})"),
            _ => continue,
        };
        declared += 1;
        assert!(known.contains(&c) || NOT_MIRRORED.contains(&c.as_str()), "{c} is not mirrored: {line}");
    }
    assert!(declared > 50, "{declared}");
}

/// Returns the differences between the facts and the headers (the module's `header` and the
/// system's), or the compiler's messages if a name is missing.
fn compare(facts: &[Fact], header: &str) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let file = |name: &str| folder.path().join(name);
    fs::write(file("framepath.h"), header).expect("write");
    fs::write(file("facts.c"), program(facts)).expect("write");
    // Found before the system's header, because the compiler searches the folder of the program
    // first.
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-o"]).args([file("facts"), file("facts.c")]);
    let done = compiler.output().expect("cc runs");
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    let printed = Command::new(file("facts")).output().expect("the program runs");
    let printed = String::from_utf8(printed.stdout).expect("numbers");
    let theirs: Vec<_> = printed.lines().collect();
    assert_eq!(theirs.len(), facts.len(), "one line for each fact");
    let differs = |(fact, theirs): (&Fact, &str)| {
        let Fact { rust, c, value, .. } = fact;
        let same = theirs == "-" || theirs.parse() == Ok(*value);
        (!same).then(|| format!("{rust} is {value}, but {c} is {theirs}"))
    };
    Ok(facts.iter().zip(theirs).filter_map(differs).collect())
}

/// Returns a C program that prints the value of each fact, or `-` if the header lacks it.
fn program(facts: &[Fact]) -> String {
    let mut lines = String::new();
    for Fact { c, may_lack, .. } in facts {
        let print = format!("printf(\"%llu\\n\", (unsigned long long)({c}));\n");
        lines += &match may_lack {
            true => format!("#ifdef {c}\n{print}#else\nputs(\"-\");\n#endif\n"),
            false => print,
        };
    }
    format!("{INCLUDES}int main(void)\n{{\n{lines}return 0;\n}}\n")
}

fn module_header() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path: PathBuf = root.join("kernel/uapi/framepath.h");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the text of `header` without its `/* */` comments and the blanks in front of them.
fn without_comments(header: &str) -> String {
    let mut rest = header;
    let mut text = String::new();
    while let Some((before, behind)) = rest.split_once("/*") {
        text += before.trim_end_matches([' ', '\t']);
        rest = behind.split_once("*/").expect("comments end").1;
    }
    text + rest
}
