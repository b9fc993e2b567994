// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path syntax from outside: the accepted texts, and the errors for others.

use framepath::Registry;
use framepath::path::{AUTO, DefinitionKind, Definitions, Hop, INFINITE, join, parse, parse_stage};
use proptest::prelude::*;

fn definitions() -> &'static Definitions {
    Registry::built_in().definitions()
}

#[test]
fn arguments_are_read_with_their_types() {
    let path = parse(
        "file 'my clip.mp4' loop=inf ! decode format=nv12 threads=2 pool=12 \
         ! queue depth=4 leaky=downstream ! threshold level=200 roi=1,2,30,40 \
         ! burn time=1.5ms ! copy bytes=64KiB ! block time=20us ! encode raw copy=yes ! framemd5 -",
    )
    .unwrap();
    let names: Vec<&str> = path.hops.iter().map(|hop| hop.name()).collect();
    assert_eq!(
        names,
        ["file", "decode", "queue", "threshold", "burn", "copy", "block", "encode", "framemd5"]
    );
    let [file, decode, queue, threshold, burn, copy, block, encode, md5] = &path.hops[..] else {
        unreachable!()
    };
    assert_eq!(file.text("path"), "my clip.mp4");
    assert_eq!(file.count("loop"), INFINITE);
    assert_eq!(decode.choice("format"), "nv12");
    assert_eq!((decode.count("threads"), decode.count("pool")), (2, 12));
    assert_eq!(decode.choice("host"), "inline");
    assert_eq!(queue.def.kind, DefinitionKind::Link);
    assert_eq!((queue.count("depth"), queue.choice("leaky")), (4, "downstream"));
    assert_eq!(threshold.level("level"), 200);
    assert_eq!(threshold.roi("roi"), Some((1, 2, 30, 40)));
    assert_eq!(burn.duration_ns("time"), 1_500_000);
    assert_eq!(copy.bytes("bytes"), Some(65_536));
    assert_eq!(block.duration_ns("time"), 20_000);
    assert_eq!(encode.choice("codec"), "raw");
    assert!(encode.flag("copy"));
    assert_eq!(md5.text("file"), "-");
}

#[test]
fn omitted_arguments_have_their_defaults() {
    let path = parse("test ! decode ! threshold ! queue ! encode raw ! null").unwrap();
    let [test, decode, threshold, queue, encode, _] = &path.hops[..] else { unreachable!() };
    assert_eq!(test.size("size"), (1280, 720));
    assert_eq!(test.choice("format"), "nv12");
    assert_eq!(test.rate("rate"), 0.0);
    assert_eq!((test.count("frames"), test.count("pool")), (300, 8));
    assert_eq!(test.bytes("bytes"), None);
    assert!(!test.is_set("size"));
    assert_eq!((decode.count("threads"), decode.count("pool")), (AUTO, AUTO));
    assert_eq!(decode.choice("format"), "native");
    assert_eq!(threshold.level("level"), 128);
    assert_eq!(threshold.roi("roi"), None);
    assert_eq!((queue.count("depth"), queue.choice("leaky")), (16, "no"));
    assert!(!encode.flag("copy"));
}

#[test]
fn an_open_stage_takes_undeclared_names() {
    let path =
        parse("test ! plugin frei0r:plasma Keep_RED=yes 1_speed=0.5 'Delta R / A'='a=b c' empty= ! null")
            .unwrap();
    let plugin = &path.hops[1];
    assert_eq!(plugin.text("plugin"), "plasma");
    let open: Vec<_> = plugin.open().collect();
    assert_eq!(open, [("keep-red", "yes"), ("1-speed", "0.5"), ("delta-r-a", "a=b c"), ("empty", "")]);
    assert_eq!(plugin.span_of_open("keep-red"), Some(37..40));
    assert_eq!(plugin.span_of_open("blur"), None);
    assert_eq!(
        plugin.to_string(),
        "plugin frei0r:plasma keep-red=yes 1-speed=0.5 delta-r-a='a=b c' empty=''"
    );
    assert_eq!(parse(&path.to_string()).unwrap(), path);
    assert_ne!(parse("test ! plugin frei0r:glow ! null"), parse("test ! plugin frei0r:glow blur=1 ! null"));
}

#[test]
fn an_old_spelling_is_read_as_the_new_one() {
    let (old, new) = ("decode host=device:/dev/video7", "decode api=v4l2m2m device=/dev/video7");
    let hop = parse_stage(old).unwrap();
    assert_eq!(hop, parse_stage(new).unwrap());
    assert_eq!(hop.to_string(), new);
    assert_eq!((hop.renamed().len(), hop.is_hosted()), (1, false));
    assert!(hop.renamed()[0].contains("api=v4l2m2m device=/dev/video7"));
    let hop = parse_stage("threshold level=9 host=device:'/dev/my node' algo=none").unwrap();
    assert_eq!(hop.to_string(), "threshold level=9 device='/dev/my node' algo=none");
    assert_eq!(parse_stage(new).unwrap().renamed(), [""; 0]);
}

#[test]
fn help_names_everything_on_one_screen() {
    let listing = definitions().listing();
    for def in definitions().iter() {
        assert!(listing.contains(&format!("\n  {}", def.name)), "{}", def.name);
        assert!(listing.contains(def.help), "{}", def.name);
        let text = def.description();
        assert!(text.starts_with(&def.usage()), "{text}");
        assert!(def.all_args().all(|arg| text.contains(arg.help)), "{text}");
        assert!(def.open.is_none_or(|open| text.contains(open)), "{text}");
    }
    assert!(listing.lines().count() <= 50 && listing.lines().all(|line| line.len() <= 120), "{listing}");
    assert!(listing.contains("file PATH "));
    assert!(
        definitions()
            .find("file")
            .unwrap()
            .description()
            .contains("file PATH [start=TIME] [track=N] [loop=N|inf] [rate=HZ]")
    );
}

#[test]
fn branches_are_read_and_written() {
    let text = "test ! tee ( queue depth=4 ! threshold ! null ) ( queue ! tee ( queue ! y4m a.y4m ) ( null ) ) ( play )";
    let path = parse(text).unwrap();
    let [test, tee] = &path.hops[..] else { panic!("{path}") };
    assert!(test.branches.is_empty());
    let names = |hops: &[Hop]| hops.iter().map(Hop::name).collect::<Vec<_>>().join(" ");
    let branches: Vec<String> = tee.branches.iter().map(|branch| names(branch)).collect();
    assert_eq!(branches, ["queue threshold null", "queue tee", "play"]);
    assert_eq!(names(&tee.branches[1][1].branches[0]), "queue y4m");
    assert_eq!(path.to_string(), text);
    assert_eq!(&text[tee.span.clone()], &text[7..]);
    assert_eq!(
        path.all_hops().map(Hop::name).collect::<Vec<_>>().join(" "),
        "test tee queue threshold null queue tee queue y4m null play"
    );
    // The program takes the output of the last branch.
    assert!(definitions().parse_open("test ! tee ( queue ! null ) ( threshold )").is_ok());
    assert!(parse("test ! tee ( queue ! null ) ( threshold )").is_err());
    // Quoted, and inside of words, parentheses are ordinary letters.
    assert_eq!(parse("file 'a (1).mp4' ! y4m '('").unwrap().hops[1].text("file"), "(");
    assert_eq!(parse("file a(1).mp4 ! null").unwrap().to_string(), "file a(1).mp4 ! null");
}

#[test]
fn errors_in_branches_are_pointed_at() {
    for (text, pointed_at, message) in [
        ("test ! tee", "tee", "has no branches"),
        ("test ! tee ! null", "tee", "has no branches"),
        ("test ! tee ( queue ! null )", "tee ( queue ! null )", "only one branch"),
        ("test ! tee ( threshold ! null ) ( null )", "threshold", "begins with a link"),
        ("test ! tee ( null ) ( null )", "null", "begins with a link"),
        ("test ! tee ( queue ! threshold ) ( null )", "threshold", "ends in a sink"),
        ("test ! tee ( queue ! null ) ( threshold )", "threshold", "ends in a sink"),
        ("test ! tee ( queue ! null ) ( null ) ! null", "! null", "nothing can follow"),
        ("test ! tee ( queue ! null ) ( null ) null", "null", "nothing can follow"),
        ("test ! tee ( queue ! null ) ( )", "( )", "this branch is empty"),
        ("test ! tee ( queue ! null ( null )", "(", "never closed"),
        ("test ! tee ( queue ! null ) ( null ) )", ")", "closes nothing"),
        ("test ! null )", ")", "closes nothing"),
        ("test ! threshold ( null )", "(", "has no branches"),
        ("test ! ( queue ! null )", "(", "before this parenthesis"),
        ("test ! tee (queue ! null) ( null )", "(queue", "does not take the word"),
        ("test ! tee ( (queue ! null ) ( null )", "(queue", "is not a stage"),
        ("tee ( queue ! null ) ( null )", "tee", "starts with a source"),
        ("test ! tee depth=4 ( queue ! null ) ( null )", "depth", "has no option"),
        ("test ! tee ( queue ! tess ) ( null )", "tess", "is not a stage"),
    ] {
        let error = parse(text).expect_err(text);
        let found = (text.get(error.span.clone()), error.to_string().contains(message));
        assert_eq!(found, (Some(pointed_at), true), "{text}: {}", error.render(text));
    }
    // Deep nesting gives an error and does not overflow the stack.
    let deep = format!("test ! {}", "tee ( ".repeat(9000));
    assert!(parse(&deep).is_err());
    let nested = |depth: usize| {
        format!("test ! {}null{}", "tee ( queue ! null ) ( ".repeat(depth), " )".repeat(depth))
    };
    assert!(parse(&nested(8)).is_ok());
    assert!(parse(&nested(9)).unwrap_err().to_string().contains("nested more than"));
}

#[test]
fn an_incomplete_path_is_completed() {
    let words = |text: &str| definitions().complete(text).join(" ");
    assert_eq!(words(""), "file url rtp recv rawfile test v4l2 x11 wayland portal kms screen fixture");
    assert_eq!(words("te"), "test");
    let behind = definitions()
        .names(&[DefinitionKind::Stage, DefinitionKind::Link, DefinitionKind::Sink, DefinitionKind::Tee])
        .join(" ");
    assert_eq!(words("test ! "), behind);
    assert_eq!(words("test ! tee "), "(");
    assert_eq!(words("test ! tee ( "), behind);
    assert_eq!(words("test ! tee ( queue depth=4 "), "leaky= ! )");
    assert_eq!(words("test ! tee ( queue ! null "), ")");
    assert_eq!(words("test ! tee ( queue ! null ) "), "(");
    assert_eq!(words("test ! tee ( queue ! tee ( queue ! null ) ( null ) "), "( )");
    assert_eq!(words("test ! que"), "queue");
    assert_eq!(words("test ! queue "), "depth= leaky= !");
    assert_eq!(words("test ! queue depth=4 "), "leaky= !");
    assert_eq!(words("test ! queue leaky="), "leaky=no leaky=upstream leaky=downstream");
    assert_eq!(words("test ! queue leaky=u"), "leaky=upstream");
    assert_eq!(words("test ! queue depth="), "");
    assert_eq!(words("test ! encode "), "raw h264 hevc vp8 vp9 av1");
    assert_eq!(words("test ! encode raw co"), "copy=");
    assert_eq!(words("test ! decode ho"), "host=");
    assert_eq!(words("test ! decode threads="), "threads=auto");
    // The shell completes a file's name.
    assert_eq!(words("file "), "");
    assert!(words("file 'a b' ").starts_with("start= track= loop= "));
    assert_eq!(words("test ! null "), "");
    // An option that needs another option is offered only behind that option.
    assert!(!words("test ! threshold ").contains("io="));
    assert!(words("test ! threshold device=/dev/video0 ").contains("io="));
    assert!(!words("test ! threshold device=/dev/video0 ").contains("host="));
    for wrong in ["nothing ", "test ! nothing ", "test ! queue deep=", "'test ", "test ! ! "] {
        let _ = definitions().complete(wrong);
    }
    assert_eq!(words("test ! nothing "), "");
}

#[test]
fn values_are_exact() {
    let ns =
        |text: &str| parse(&format!("test ! burn time={text} ! null")).unwrap().hops[1].duration_ns("time");
    for (text, expected) in [
        ("0ms", 0),
        ("7ns", 7),
        ("2us", 2_000),
        ("2µs", 2_000),
        ("0.001us", 1),
        ("1.25ms", 1_250_000),
        ("60s", 60_000_000_000),
    ] {
        assert_eq!(ns(text), expected, "{text}");
    }
    let rate = |text: &str| parse(&format!("test rate={text} ! null")).unwrap().hops[0].rate("rate");
    assert_eq!(rate("29.97"), 29.97);
    assert_eq!(rate("30000/1001"), 30000.0 / 1001.0);
    let bytes = |text: &str| parse(&format!("test bytes={text} ! null")).unwrap().hops[0].bytes("bytes");
    assert_eq!(bytes("64"), Some(64));
    assert_eq!(bytes("64B"), Some(64));
    assert_eq!(bytes("1MiB"), Some(1 << 20));
}

/// Wrong paths: the text, the part that the error marks (`^`: the end of the text), a part of the error's
/// message, and a part of its help.
const WRONG: &[(&str, &str, &str, &str)] = &[
    (
        "",
        "^",
        "the path is empty",
        "`file`, `url`, `rtp`, `recv`, `rawfile`, `test`, `v4l2`, `x11`, `wayland`, `portal`, `kms`, `screen` or `fixture`",
    ),
    ("   ", "^", "the path is empty", "`test ! null`"),
    ("!", "!", "nothing stands before", "expected here: a source"),
    ("test ! ! null", "! null", "nothing stands between", "a link, `queue`"),
    ("test !", "^", "nothing stands after", "expected here: a sink, `null`, `framemd5`"),
    ("test", "test", "a path ends in a sink; `test` is a source", "`! null`"),
    (
        "null",
        "null",
        "a path starts with a source; `null` is a sink",
        "`file`, `url`, `rtp`, `recv`, `rawfile`, `test`, `v4l2`, `x11`, `wayland`, `portal`, `kms`, `screen` or `fixture`",
    ),
    ("decode ! null", "decode", "`decode` is a stage", "a source, `file`"),
    ("queue ! null", "queue", "`queue` is a link", "a source"),
    ("test ! decode", "decode", "a path ends in a sink; `decode` is a stage", "`! null`"),
    ("test ! queue", "queue", "a path ends in a sink; `queue` is a link", "`! null`"),
    ("test ! test ! null", "test ! null", "only the first hop can be one", "a stage, `decode`"),
    ("test ! null ! null", "null ! null", "only the last hop can be one", "a stage, `decode`"),
    ("test ! queue ! queue depth=2 ! null", "queue depth", "two links", "there must be a stage"),
    ("test ! treshold ! null", "treshold", "`treshold` is not a stage", "did you mean `threshold`?"),
    ("filesrc a.mp4 ! null", "filesrc", "not a stage", "did you mean `file`?"),
    ("test ! fakesink", "fakesink", "not a stage", "did you mean `null`?"),
    ("test ! x264enc ! null", "x264enc", "not a stage", "expected here: a stage, `decode`, `threshold`"),
    ("test!null", "test!null", "`test!null` is not a stage", "needs a blank on either side"),
    ("test ! depth=4 ! null", "depth=4", "is an option without a stage", "expected here"),
    (
        "test ! queue dept=4 ! null",
        "dept",
        "`queue` has no option `dept`",
        "did you mean `depth`? expected here: `depth=N` or `leaky=no|upstream|downstream`",
    ),
    ("test ! queue max-size-buffers=4 ! null", "max-size-buffers", "no option", "did you mean `depth`?"),
    ("test ! null sync=0", "sync", "no option `sync`", "`null` has no options"),
    ("file a=b.mp4 ! null", "a", "`file` has no option `a`", "quote the word if it is the path itself"),
    ("file path=a.mp4 ! null", "path", "`file` has no option `path`", "without a name: `file PATH"),
    ("file location=a.mp4 ! null", "location", "no option", "without a name: `file PATH"),
    (
        "test ! queue depth=0 ! null",
        "0",
        "`depth=0` is out of range",
        "`depth` is a count from 1 to 65536; default 16",
    ),
    (
        "test ! queue depth=99999999999999999999999 ! null",
        "99999999999999999999999",
        "is out of range",
        "from 1 to 65536",
    ),
    ("test ! queue depth=-1 ! null", "-1", "`depth=-1` is not a whole number", "a count"),
    ("test ! queue depth= ! null", "depth=", "the value of `depth` is not a whole number", "a count"),
    (
        "test ! queue leaky=upsteam ! null",
        "upsteam",
        "`leaky=upsteam` is not known",
        "did you mean `leaky=upstream`? `leaky` is one of `no`, `upstream` or `downstream`; default no",
    ),
    ("test ! queue depth=4 depth=5 ! null", "depth=5", "`depth` is given twice", "once"),
    ("test ! queue 4 ! null", "4", "`queue` does not take the word `4`", "`depth=N`"),
    (
        "test ! queue depth ! null",
        "depth",
        "does not take the word `depth`",
        "an option has a value: `depth=N`",
    ),
    ("test decode ! null", "decode", "`test` does not take the word `decode`", "put a `!` before `decode`"),
    ("file ! null", "file", "`file` needs `PATH`", "the path of a media file"),
    (
        "file a b ! null",
        "b",
        "`file` does not take the word `b`",
        "`file PATH [start=TIME] [track=N] [loop=N|inf] [rate=HZ] [host=",
    ),
    ("file '' ! null", "''", "the value of `path` is empty", "the path of a media file"),
    ("file 'abc ! null", "'", "is never closed", "close it"),
    ("test ! null \\", "\\", "a backslash with nothing after it", "`\\\\`"),
    ("file a loop=0 ! null", "0", "`loop=0` is out of range", "from 1 to 1000000000, or `inf`; default 1"),
    ("file a loop=inv ! null", "inv", "not a whole number", "did you mean `loop=inf`?"),
    ("test ! decode host=device: ! null", "device:", "is not known", "`inline`"),
    (
        "test ! decode host=device:/dev/video2 device=/dev/video3 ! null",
        "device=/dev/video3",
        "given twice",
        "once",
    ),
    ("test ! threshold io=mmap ! null", "mmap", "`io` requires `device`", "the path of a V4L2 node"),
    (
        "test ! threshold device=/dev/video2 host=process ! null",
        "/dev/video2",
        "`device` and `host` exclude each other",
        "leave one out",
    ),
    (
        "test ! convert format=grey host=device:/dev/video2 ! null",
        "device:/dev/video2",
        "not known",
        "`inline`",
    ),
    ("v4l2 ! null", "v4l2", "`v4l2` needs `DEVICE`", "the path of a V4L2 node"),
    ("v4l2 /dev/video0 io=map ! null", "map", "is not known", "did you mean `io=mmap`?"),
    ("test ! decode host=prozess ! null", "prozess", "is not known", "`inline`"),
    ("test size=1920 ! null", "1920", "`size=1920` is not a size", "such as `1920x1080`; default 1280x720"),
    ("test size=0x5 ! null", "0x5", "is out of range", "each 1 to 16384"),
    ("test rate=fast ! null", "fast", "is not a rate", "in Hz"),
    ("test rate=1/0 ! null", "1/0", "is out of range", "in Hz"),
    ("test rate=0/0 ! null", "0/0", "is out of range", "in Hz"),
    ("test bytes=64KB ! null", "64KB", "has an unknown unit", "did you mean `bytes=64KiB`?"),
    ("test bytes=0 ! null", "0", "is out of range", "from 1 to 1GiB"),
    ("test size=1x1 bytes=64 ! null", "64", "`bytes` and `size` exclude each other", "leave one out"),
    ("test ! burn ! null", "burn", "`burn` needs `time=TIME`", "ns, us, ms, s"),
    ("test ! burn 2ms ! null", "2ms", "does not take the word", "`time=2ms`"),
    ("test ! burn cpu=2ms ! null", "cpu", "no option `cpu`", "did you mean `time`?"),
    ("test ! burn time=2 ! null", "2", "has no unit", "did you mean `time=2ms`?"),
    ("test ! burn time=2min ! null", "2min", "has an unknown unit", "ns, us, ms, s"),
    ("test ! burn time=61s ! null", "61s", "is out of range", "from 0 to 60s"),
    ("test ! threshold level=256 ! null", "256", "is out of range", "0 to 255; default 128"),
    ("test ! threshold roi=0,0,320 ! null", "0,0,320", "is not a region", "X,Y,WIDTH,HEIGHT"),
    ("test ! threshold roi=0,0,0,1 ! null", "0,0,0,1", "is out of range", "default the whole frame"),
    ("test ! encode h263 ! null", "h263", "`h263` is not known", "did you mean `h264`?"),
    ("test ! encode h264 bitrate=4m ! null", "4m", "has an unknown unit", "did you mean `bitrate=4M`?"),
    ("test ! encode h264 bitrate=4 ! null", "4", "is out of range", "from 1k to 1000M"),
    ("test ! encode h264 bitrate=fast ! null", "fast", "is not a bit rate", "such as `4M` or `800k`"),
    ("test ! encode raw copy=true ! null", "true", "is not known", "did you mean `copy=yes`?"),
    ("test ! framemd5", "framemd5", "`framemd5` needs `FILE`", "the path of a file, or `-`"),
    ("test ! plugin ! null", "plugin", "`plugin` needs `PLUGIN`", "such as `frei0r:invert0r`"),
    ("test ! plugin glow ! null", "glow", "`glow` is not a plug-in", "did you mean `frei0r:glow`?"),
    ("test ! plugin frei0r: ! null", "frei0r:", "has no plug-in name", "such as `frei0r:invert0r`"),
    ("test ! plugin frei0r:../x ! null", "frei0r:../x", "has no plug-in name", "a plug-in"),
    ("test ! plugin frei0r:glow Blur=1 blur=2 ! null", "blur=2", "`blur` is given twice", "once"),
    ("test ! plugin frei0r:glow ''=2 ! null", "''=2", "has no name before its `=`", "`name=value`"),
    ("test ! plugin frei0r:glow blur ! null", "blur", "does not take the word `blur`", "[PARAM=VALUE...]"),
    ("test ! convert ! null", "convert", "`convert` needs `format=grey|", "`format` is one of `grey`"),
    ("test ! convert format=nv21 ! null", "nv21", "is not known", "did you mean `format=nv12`?"),
    ("test ! videoconvert ! null", "videoconvert", "not a stage", "did you mean `convert`?"),
    ("test ! dröhnen ! null", "dröhnen", "`dröhnen` is not a stage", "expected here"),
];

#[test]
fn errors_are_pointed_at_and_explained() {
    for (text, pointed, message, help) in WRONG {
        let error = parse(text).expect_err(text);
        let expected = if *pointed == "^" { text.len() } else { error.span.start };
        assert_eq!(error.span.start, expected, "{text}: {error:?}");
        if *pointed != "^" {
            let tail = &text[error.span.start..];
            assert!(
                tail.starts_with(pointed) && pointed.starts_with(&text[error.span.clone()]),
                "{text}: {error:?}"
            );
        }
        assert!(error.message.contains(message), "{text}: {error:?}");
        assert!(error.help.contains(help), "{text}: {error:?}");
    }
}

#[test]
fn an_error_is_printed_under_its_word() {
    let text = "file clip.ivf ! queue dept=4 ! null";
    assert_eq!(
        parse(text).unwrap_err().render(text),
        "  file clip.ivf ! queue dept=4 ! null\n\
         \x20                       ^^^^\n\
         `queue` has no option `dept`\n\
         did you mean `depth`? expected here: `depth=N` or `leaky=no|upstream|downstream`"
    );
    // Columns are characters, not bytes; blanks stay one column wide.
    let text = "file ä\tö\n ! null";
    let shown = parse(text).unwrap_err().render(text);
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("  file ä ö  ! null"));
    assert_eq!(lines.next(), Some("         ^"));
    // The mark is at the end of the text.
    let shown = parse("test !").unwrap_err().render("test !");
    assert_eq!(shown.lines().nth(1), Some("        ^"));
}

#[test]
fn a_long_path_is_shown_around_its_word() {
    let text = format!("test ! {}treshold ! null", "threshold ! ".repeat(1000));
    let shown = parse(&text).unwrap_err().render(&text);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].chars().count() < 200, "{shown}");
    let column = lines[1].chars().take_while(|c| *c == ' ').count();
    let under: String = lines[0].chars().skip(column).take(8).collect();
    assert_eq!(under, "treshold");

    let long_word = format!("file {} ! null", "x y".repeat(20_000).replace(' ', "\\ ") + "' '\"");
    assert!(parse(&long_word).unwrap_err().render(&long_word).len() < 2000);
}

#[test]
fn a_path_has_a_greatest_length() {
    let error = parse(&"x".repeat(64 * 1024 + 1)).unwrap_err();
    assert_eq!(error.message, "the path is 65537 bytes long");
    assert!(parse(&format!("file {} ! null", "x".repeat(64 * 1024 - 12))).is_ok());
}

#[test]
fn a_shells_words_make_a_path() {
    let path = parse(&join(&["file", "my clip.mp4", "loop=2", "!", "null"])).unwrap();
    assert_eq!(path.hops[0].text("path"), "my clip.mp4");
    assert_eq!(path.hops[0].count("loop"), 2);
}

#[test]
fn the_canonical_form_has_one_order() {
    let path = parse("test frames=5 size=16x8 rate=50/2 ! queue leaky='no' depth=4 ! pgm 'a b=c'").unwrap();
    assert_eq!(path.to_string(), "test size=16x8 rate=25 frames=5 ! queue depth=4 leaky=no ! pgm 'a b=c'");
}

/// Makes a word or separator of the path language, or a piece of text that breaks it, so that random paths
/// get past the first word.
fn any_piece() -> impl Strategy<Value = String> {
    let known: Vec<String> = definitions()
        .iter()
        .flat_map(|def| {
            std::iter::once(def.name.to_owned()).chain(def.all_args().map(|arg| format!("{}=", arg.name)))
        })
        .collect();
    prop_oneof![
        4 => proptest::sample::select(vec![" ! ", " ! ", " ( ", " ) "]).prop_map(str::to_owned),
        4 => proptest::sample::select(known),
        2 => Just(" ".to_owned()),
        1 => proptest::sample::select(vec!["'", "\"", "\\", "=", "!", "ä", "0", "64KiB", "2ms", "1x1", ",", "/", ".", "\n", "inf", "auto"]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn check(text: &str) {
    match parse(text) {
        Ok(path) => {
            let canonical = path.to_string();
            let again = parse(&canonical).unwrap_or_else(|e| panic!("{}", e.render(&canonical)));
            assert_eq!(again, path);
            assert_eq!(again.to_string(), canonical);
        }
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some(), "{error:?}");
            let shown = error.render(text);
            assert_eq!(shown.lines().count(), 4, "{shown:?}");
            error.render("another text ä");
        }
    }
}

/// Makes any valid value of an argument, as text.
fn any_value(arg: &'static framepath::path::Arg) -> BoxedStrategy<String> {
    use framepath::path::ValueKind;
    match arg.kind {
        ValueKind::Count { min, max, word } => {
            let number = (min..=max).prop_map(|n| n.to_string()).boxed();
            match word {
                Some((word, _)) => prop_oneof![number, Just(word.to_owned())].boxed(),
                None => number,
            }
        }
        ValueKind::Level => (0..=255_u32).prop_map(|n| n.to_string()).boxed(),
        ValueKind::Size => (1..=16_384_u32, 1..=16_384_u32).prop_map(|(w, h)| format!("{w}x{h}")).boxed(),
        ValueKind::Rate => prop_oneof![
            (0.0..=1_000_000.0).prop_map(|hz: f64| hz.to_string()),
            (0..=100_000_u32, 1..=2000_u32).prop_map(|(a, b)| format!("{a}/{b}")),
        ]
        .boxed(),
        ValueKind::Duration | ValueKind::StreamTime => prop_oneof![
            (0..=60_000_000_000_u64).prop_map(|ns| format!("{ns}ns")),
            (0..60_u64, 0..1000_u64).prop_map(|(s, ms)| format!("{s}.{ms:03}s")),
        ]
        .boxed(),
        ValueKind::Bytes { min, max } => (min..=max).prop_map(|n| n.to_string()).boxed(),
        ValueKind::BitRate => prop_oneof![
            (1_000..=1_000_000_000_u64).prop_map(|n| n.to_string()),
            (1..=1_000_000_u64).prop_map(|n| format!("{n}k")),
            (1..1000_u64, 0..1000_u64).prop_map(|(whole, part)| format!("{whole}.{part:03}M")),
        ]
        .boxed(),
        ValueKind::Roi => (0..=16_384_u32, 0..=16_384_u32, 1..=16_384_u32, 1..=16_384_u32)
            .prop_map(|(x, y, w, h)| format!("{x},{y},{w},{h}"))
            .boxed(),
        ValueKind::Choice { now } => proptest::sample::select(now).prop_map(str::to_owned).boxed(),
        ValueKind::Flag => {
            proptest::sample::select(vec!["0", "1", "yes", "no"]).prop_map(str::to_owned).boxed()
        }
        ValueKind::Text(_) => "[^\0]{1,20}".boxed(),
        ValueKind::Plugin => "frei0r:[^\0/:]{1,20}".boxed(),
    }
}

/// Makes a valid hop of one of these kinds, without optional arguments that exclude or need others.
fn any_hop(kinds: &'static [DefinitionKind]) -> BoxedStrategy<String> {
    proptest::sample::select(definitions().names(kinds))
        .prop_flat_map(|name| {
            let def = definitions().find(name).unwrap();
            let args: Vec<BoxedStrategy<Option<String>>> = def
                .all_args()
                .map(|arg| {
                    let value = any_value(arg).prop_map(move |text| {
                        let text = framepath::path::quote(&text);
                        if arg.positional { text } else { format!("{}={text}", arg.name) }
                    });
                    // `bytes` excludes others; the stage `copy` covers it.
                    if arg.default == framepath::path::DefaultValue::Required {
                        value.prop_map(Some).boxed()
                    } else if arg.excludes.is_empty() && arg.needs.is_none() {
                        proptest::option::of(value).boxed()
                    } else {
                        Just(None).boxed()
                    }
                })
                .collect();
            let open = match def.open {
                Some(_) => proptest::option::of(("[^\0=]{0,9}x", "[^\0]{0,9}")).boxed(),
                None => Just(None).boxed(),
            };
            (args, open).prop_map(move |(args, open)| {
                let mut words = vec![name.to_owned()];
                words.extend(args.into_iter().flatten());
                let quote = framepath::path::quote;
                words.extend(open.map(|(name, value)| format!("{}={}", quote(&name), quote(&value))));
                words.join(" ")
            })
        })
        .boxed()
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in proptest::collection::vec(any_piece(), 0..40)) {
        check(&pieces.concat());
    }

    #[test]
    fn branches_round_trip(
        branches in proptest::collection::vec((any_hop(&[DefinitionKind::Link]), any_hop(&[DefinitionKind::Stage]), any_hop(&[DefinitionKind::Sink])), 2..5),
    ) {
        let branches: Vec<String> =
            branches.iter().map(|(link, stage, sink)| format!("( {link} ! {stage} ! {sink} )")).collect();
        let text = format!("test ! tee {}", branches.join(" "));
        let path = parse(&text).unwrap_or_else(|e| panic!("{}", e.render(&text)));
        prop_assert_eq!(path.hops[1].branches.len(), branches.len());
        let canonical = path.to_string();
        prop_assert_eq!(parse(&canonical).unwrap(), path);
    }

    #[test]
    fn valid_paths_round_trip(
        source in any_hop(&[DefinitionKind::Source]),
        stages in proptest::collection::vec((any_hop(&[DefinitionKind::Stage]), proptest::option::of(any_hop(&[DefinitionKind::Link]))), 0..4),
        sink in any_hop(&[DefinitionKind::Sink]),
    ) {
        let mut hops = vec![source];
        for (stage, link) in stages {
            hops.push(stage);
            hops.extend(link);
        }
        hops.push(sink);
        let text = hops.join(" ! ");
        let path = parse(&text).unwrap_or_else(|e| panic!("{}", e.render(&text)));
        prop_assert_eq!(path.hops.len(), hops.len());
        let canonical = path.to_string();
        prop_assert_eq!(parse(&canonical).unwrap(), path);
    }
}

/// Checks that a text option that was not set has its default, also in debug builds.
#[test]
fn a_text_has_a_default() {
    let hop = parse_stage("threshold host=process").unwrap();
    assert_eq!(hop.text("fault"), "");
    let hop = parse_stage("threshold host=process fault=crash@1").unwrap();
    assert_eq!(hop.text("fault"), "crash@1");
}
