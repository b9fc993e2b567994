// SPDX-License-Identifier: MIT OR Apache-2.0
//! The known stages and links: the one list that parsing, errors and help read.
// over 600 lines because it is one table.

use std::fmt::Write;

use super::value::{ValueKind, listed};
use super::{AUTO, INFINITE};

/// What a hop may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only gives: the first hop of every path.
    Source,
    /// Takes and gives.
    Stage,
    /// Only takes: the last hop of every path.
    Sink,
    /// How a frame passes on; `!` alone is a direct call.
    Link,
}

impl Kind {
    /// The kind as a noun with its article.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Source => "a source",
            Kind::Stage => "a stage",
            Kind::Sink => "a sink",
            Kind::Link => "a link",
        }
    }
}

/// What an argument is when it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// It must be given.
    Required,
    /// This text, read as if it had been given.
    Is(&'static str),
    /// No value; in words, what that means.
    Unset(&'static str),
}

/// One argument of a stage: an option `name=value`, or a word by its place.
#[derive(Debug)]
pub struct Arg {
    /// Its name, lower case.
    pub name: &'static str,
    /// Given by its place and not by its name.
    pub positional: bool,
    /// Type and range.
    pub kind: ValueKind,
    /// When it is not given.
    pub default: Default,
    /// Names of options that cannot be given together with this one.
    pub excludes: &'static [&'static str],
    /// One line.
    pub help: &'static str,
}

impl Arg {
    /// The argument as help writes it: `depth=N`, or `PATH` for a positional.
    pub fn usage(&self) -> String {
        match self.positional {
            true => match self.kind {
                ValueKind::Choice { now } => now.join("|"),
                _ => self.name.to_uppercase(),
            },
            false => format!("{}={}", self.name, self.kind.shape()),
        }
    }

    /// Type, range and default in words, for help and errors.
    pub fn wants(&self) -> String {
        let default = match self.default {
            Default::Required => String::new(),
            Default::Is(text) => format!("; default {text}"),
            Default::Unset(meaning) => format!("; default {meaning}"),
        };
        format!("{}{default}", self.kind.wants())
    }
}

/// One known stage, source, sink or link.
#[derive(Debug)]
pub struct StageDef {
    /// The word that names it.
    pub name: &'static str,
    /// Where it may stand.
    pub kind: Kind,
    /// One line.
    pub help: &'static str,
    /// Options that are not in `args` are taken too, as text: in words, what
    /// they are. Who runs the stage knows them, this list does not.
    pub open: Option<&'static str>,
    /// Positional arguments first, in their order; then options.
    pub args: &'static [Arg],
}

impl StageDef {
    /// The argument of that name, with its place in [`StageDef::args`].
    pub fn arg(&self, name: &str) -> Option<(usize, &'static Arg)> {
        self.args.iter().enumerate().find(|(_, arg)| arg.name == name)
    }

    /// The stage as help writes it: `file PATH [loop=N|inf]`.
    pub fn usage(&self) -> String {
        let mut usage = self.name.to_owned();
        for arg in self.args {
            let _ = match arg.default {
                Default::Required => write!(usage, " {}", arg.usage()),
                _ => write!(usage, " [{}]", arg.usage()),
            };
        }
        if self.open.is_some() {
            usage.push_str(" [PARAM=VALUE...]");
        }
        usage
    }
}

const fn arg(name: &'static str, kind: ValueKind, default: Default, help: &'static str) -> Arg {
    Arg { name, positional: false, kind, default, excludes: &[], help }
}

const fn word(name: &'static str, kind: ValueKind, help: &'static str) -> Arg {
    Arg { name, positional: true, kind, default: Default::Required, excludes: &[], help }
}

const fn count(min: u64, max: u64) -> ValueKind {
    ValueKind::Count { min, max, word: None }
}

const fn count_or(min: u64, max: u64, word: &'static str, stands_for: u64) -> ValueKind {
    ValueKind::Count { min, max, word: Some((word, stands_for)) }
}

/// Of a source that could go on for ever.
const fn frames(default: &'static str) -> Arg {
    arg("frames", count(0, 1_000_000_000_000), Default::Is(default), "how many frames; 0 is without end")
}

const fn choice(now: &'static [&'static str]) -> ValueKind {
    ValueKind::Choice { now }
}

/// Where a stage runs.
const HOST: Arg = arg(
    "host",
    choice(&["inline", "process", "service"]),
    Default::Is("inline"),
    "where it runs: in the path's own thread, in a sandboxed process, or in one of `framepath serve`",
);
/// Where a file is demuxed.
const FILE_HOST: Arg = arg(
    "host",
    choice(&["inline", "process", "service"]),
    Default::Unset("the host of the decoder, where that is a worker; else inline"),
    "where the file is demuxed: in the path's own thread, in a sandboxed process, or in one of `framepath serve`",
);
/// Where a stage runs that a V4L2 device can do.
const HOST_OR_DEVICE: Arg = arg(
    "host",
    ValueKind::Host { now: &["inline", "process", "service"] },
    Default::Is("inline"),
    "where it runs: in the path's own thread, in a sandboxed process, in one of `framepath serve`, or in a V4L2 node",
);
const HEAP: Arg = arg(
    "heap",
    ValueKind::Text("the name of a dma-heap, `udmabuf` or `pages`"),
    Default::Unset("the system's dma-heap, or udmabuf where there is none"),
    "where memory comes from that devices share; `pages` is ordinary memory",
);
/// Where a plug-in runs: a service opens no file for its clients.
const PLUGIN_HOST: Arg = arg("host", choice(&["inline", "process"]), Default::Is("inline"), HOST.help);
const SOCKET: Arg = arg(
    "socket",
    ValueKind::Text("the name of a socket"),
    Default::Unset("where `framepath serve` listens by default"),
    "host=service: the service's socket",
);
const SERVICE_UID: Arg = arg(
    "service_uid",
    count(0, u32::MAX as u64),
    Default::Unset("root, or the user of this program"),
    "host=service: also accept a service that runs as this user",
);
const CACHE: Arg = arg(
    "cache",
    choice(&["on", "off"]),
    Default::Is("on"),
    "host=process: `off` asks the worker again for what is constant with every frame, to see what that costs",
);
const WATCHDOG: Arg = arg(
    "watchdog",
    ValueKind::Duration,
    Default::Is("2s"),
    "not inline: a worker that stands still for so long is replaced",
);
const MEMORY: Arg = arg(
    "memory",
    ValueKind::Bytes { min: 64 << 20, max: 1 << 40 },
    Default::Is("4GiB"),
    "host=process: address space a worker may take beyond its program; a service has its own --memory",
);
const SANDBOX: Arg = arg(
    "sandbox",
    choice(&["default", "require", "allow"]),
    Default::Is("default"),
    "not inline: `require` refuses a worker whose sandbox lacks any layer, `allow` accepts one without \
     seccomp too; by default seccomp is required, and what else is missing is said",
);
const FAULT: Arg = arg(
    "fault",
    ValueKind::Text("crash@N, hang@N, bomb@N or poison@N"),
    Default::Unset("none"),
    "not inline: lets the worker fail at packet N, to see what becomes of the path",
);

/// Names of the options that say how a stage is hosted: its caller's business,
/// and not that of the worker that runs it.
pub const HOSTING: [&str; 8] = [
    HOST.name,
    WATCHDOG.name,
    MEMORY.name,
    SANDBOX.name,
    FAULT.name,
    CACHE.name,
    SOCKET.name,
    SERVICE_UID.name,
];

/// The arguments of a stage that any host may run: its own, then the hosting.
macro_rules! hosted {
    ($($own:expr),* $(,)?) => {
        &[$($own,)* HOST, WATCHDOG, MEMORY, SANDBOX, FAULT, SOCKET, SERVICE_UID]
    };
}

/// Every known stage, source, sink and link.
pub static STAGES: &[StageDef] = &[
    StageDef {
        name: "file",
        kind: Kind::Source,
        open: None,
        help: "packets of the first video track of a file",
        args: &[
            word("path", ValueKind::Text("the name of a media file"), "the file to read"),
            arg(
                "loop",
                count_or(1, 1_000_000_000, "inf", INFINITE),
                Default::Is("1"),
                "how often the file is played",
            ),
            arg("rate", ValueKind::Rate, Default::Is("0"), "packets per second; 0 is flat out"),
            FILE_HOST,
            WATCHDOG,
            MEMORY,
            SANDBOX,
            FAULT,
            SOCKET,
            SERVICE_UID,
        ],
    },
    StageDef {
        name: "test",
        kind: Kind::Source,
        open: None,
        help: "frames with a moving pattern",
        args: &[
            arg("size", ValueKind::Size, Default::Is("1280x720"), "size of the picture in pixels"),
            arg(
                "format",
                choice(&["grey", "yuv420p", "nv12", "yuv420p10", "p010", "rgba"]),
                Default::Is("nv12"),
                "pixel format",
            ),
            arg("rate", ValueKind::Rate, Default::Is("0"), "frames per second; 0 is flat out"),
            frames("300"),
            arg("pool", count(1, 4096), Default::Is("8"), "frames in the source's pool"),
            Arg {
                name: "bytes",
                positional: false,
                kind: ValueKind::Bytes { min: 1, max: 1 << 30 },
                default: Default::Unset("a picture of `size` and `format`"),
                excludes: &["size", "format"],
                help: "give buffers of so many bytes with no picture in them",
            },
        ],
    },
    StageDef {
        name: "v4l2",
        kind: Kind::Source,
        open: None,
        help: "frames of a camera or another V4L2 device",
        args: &[
            word("device", ValueKind::Text("the name of a V4L2 node"), "the node, such as /dev/video0"),
            arg(
                "io",
                choice(&["mmap", "dmabuf", "userptr", "read"]),
                Default::Is("mmap"),
                "whose memory frames come in: the driver's, a heap's, ordinary, or by a copy",
            ),
            arg(
                "size",
                ValueKind::Size,
                Default::Unset("as the device has it"),
                "size of the picture in pixels",
            ),
            arg(
                "format",
                choice(&["grey", "yuv420p", "nv12"]),
                Default::Unset("as the device has it, or the first of these that it offers"),
                "pixel format",
            ),
            arg("rate", ValueKind::Rate, Default::Unset("as the device has it"), "frames per second"),
            frames("300"),
            arg("buffers", count(2, 32), Default::Is("8"), "buffers of the device"),
            HEAP,
        ],
    },
    StageDef {
        name: "fixture",
        kind: Kind::Source,
        open: None,
        help: "the same GREY picture again and again, in memory that devices share",
        args: &[
            word("file", ValueKind::Text("the name of a PGM picture"), "binary PGM of 8 bits"),
            frames("1"),
            arg("pool", count(1, 64), Default::Is("4"), "frames in the source's pool"),
            HEAP,
        ],
    },
    StageDef {
        name: "decode",
        kind: Kind::Stage,
        open: None,
        help: "packets of H.264, HEVC, VP8, VP9 or AV1 into frames",
        args: &[
            arg(
                "format",
                choice(&["native", "nv12", "p010"]),
                Default::Is("native"),
                "pixel format given; native copies nothing",
            ),
            arg("threads", count_or(1, 256, "auto", AUTO), Default::Is("auto"), "threads of the decoder"),
            arg("pool", count_or(1, 4096, "auto", AUTO), Default::Is("auto"), "frames in the decoder's pool"),
            arg(
                "api",
                choice(&["software", "vaapi", "nvdec", "vulkan", "vdpau", "v4l2m2m", "auto"]),
                Default::Is("software"),
                "the machine's decoder to use; where it cannot, software does it and a line says why",
            ),
            HOST_OR_DEVICE,
            WATCHDOG,
            MEMORY,
            SANDBOX,
            FAULT,
            CACHE,
            SOCKET,
            SERVICE_UID,
        ],
    },
    StageDef {
        name: "threshold",
        kind: Kind::Stage,
        open: None,
        help: "makes luma at or above a level white, the rest black",
        args: &[
            arg("level", ValueKind::Level, Default::Is("128"), "the level"),
            arg(
                "roi",
                ValueKind::Roi,
                Default::Unset("the whole frame"),
                "the region it works on, clamped to the frame",
            ),
            HOST_OR_DEVICE,
            arg(
                "io",
                choice(&["mmap", "dmabuf", "userptr"]),
                Default::Unset("dmabuf for frames that are one, else mmap"),
                "host=device: how frames go in; mmap is a copy, the others none",
            ),
            arg(
                "algo",
                choice(&["threshold", "none"]),
                Default::Is("threshold"),
                "host=device: `none` leaves the pixels as they are, to see what the way costs",
            ),
            arg(
                "in_place",
                ValueKind::Flag,
                Default::Is("0"),
                "host=device: the device writes into the frame itself, which must be a dmabuf",
            ),
            WATCHDOG,
            MEMORY,
            SANDBOX,
            FAULT,
            SOCKET,
            SERVICE_UID,
        ],
    },
    StageDef {
        name: "convert",
        kind: Kind::Stage,
        open: None,
        help: "frames of another pixel format, by libswscale; a frame that has it already passes as it is",
        args: hosted![arg(
            "format",
            choice(&["grey", "yuv420p", "nv12", "yuv420p10", "p010", "rgba"]),
            Default::Required,
            "pixel format given",
        )],
    },
    StageDef {
        name: "plugin",
        kind: Kind::Stage,
        open: Some("a parameter that the plug-in declares, as `framepath plugins NAME` lists it"),
        help: "a frei0r filter or source: frames into RGBA frames",
        args: &[
            word("plugin", ValueKind::Plugin, "the plug-in, by its file's name without `.so`"),
            PLUGIN_HOST,
            WATCHDOG,
            MEMORY,
            SANDBOX,
            FAULT,
        ],
    },
    StageDef {
        name: "encode",
        kind: Kind::Stage,
        open: None,
        help: "frames into packets",
        args: hosted![
            word("codec", choice(&["raw"]), "raw: the pixels as they are"),
            arg("copy", ValueKind::Flag, Default::Is("0"), "copy the pixels, as a naive encoder does"),
        ],
    },
    StageDef {
        name: "burn",
        kind: Kind::Stage,
        open: None,
        help: "injects CPU time into every frame",
        args: hosted![arg("time", ValueKind::Duration, Default::Required, "CPU time per frame")],
    },
    StageDef {
        name: "copy",
        kind: Kind::Stage,
        open: None,
        help: "injects a copy into every frame",
        args: hosted![arg(
            "bytes",
            ValueKind::Bytes { min: 0, max: 1 << 30 },
            Default::Required,
            "bytes copied per frame",
        )],
    },
    StageDef {
        name: "block",
        kind: Kind::Stage,
        open: None,
        help: "injects a blocked wait into every frame",
        args: hosted![arg("time", ValueKind::Duration, Default::Required, "time waited per frame")],
    },
    StageDef {
        name: "fill",
        kind: Kind::Stage,
        open: None,
        help: "gives an own frame for every frame: its number and the time in 16 bytes, the rest untouched",
        args: hosted![arg(
            "bytes",
            ValueKind::Bytes { min: 16, max: 1 << 30 },
            Default::Required,
            "bytes of a frame given",
        )],
    },
    StageDef { name: "null", kind: Kind::Sink, open: None, help: "throws everything away", args: &[] },
    StageDef {
        name: "framemd5",
        kind: Kind::Sink,
        open: None,
        help: "writes the MD5 of every frame, as `ffmpeg -f framemd5` does",
        args: &[word("file", ValueKind::Text("a file's name, or `-`"), "`-` is standard output")],
    },
    StageDef {
        name: "y4m",
        kind: Kind::Sink,
        open: None,
        help: "writes a YUV4MPEG2 stream",
        args: &[word("file", ValueKind::Text("a file's name, or `-`"), "`-` is standard output")],
    },
    StageDef {
        name: "pgm",
        kind: Kind::Sink,
        open: None,
        help: "writes the luma of every frame as a PGM picture",
        args: &[word("dir", ValueKind::Text("a folder's name"), "made when it is missing")],
    },
    StageDef {
        name: "play",
        kind: Kind::Sink,
        open: None,
        help: "shows frames in a window at their times; q or Esc ends, space pauses, f is full screen",
        args: &[
            arg(
                "driver",
                choice(&["auto", "software", "opengl", "opengles2", "null"]),
                Default::Is("auto"),
                "who scales and draws: the CPU, or a GPU; `null` keeps the times and shows nothing",
            ),
            arg("fullscreen", ValueKind::Flag, Default::Is("0"), "begin with the whole screen"),
            arg(
                "sync",
                ValueKind::Flag,
                Default::Is("1"),
                "0 shows every frame as soon as it comes, and drops none",
            ),
            arg(
                "title",
                ValueKind::Text("a window's title"),
                Default::Unset("framepath"),
                "what the window's frame says",
            ),
        ],
    },
    StageDef {
        name: "queue",
        kind: Kind::Link,
        open: None,
        help: "a thread boundary: what follows runs in a thread of its own",
        args: &[
            arg("depth", count(1, 65_536), Default::Is("16"), "frames it holds"),
            arg(
                "leaky",
                choice(&["no", "upstream", "downstream"]),
                Default::Is("no"),
                "when full: wait, drop what comes, or drop the oldest",
            ),
        ],
    },
];

/// Names other programs have for what is known here.
pub(super) const FOREIGN: &[(&str, &str)] = &[
    ("filesrc", "file"),
    ("uridecodebin", "file"),
    ("videotestsrc", "test"),
    ("decodebin", "decode"),
    ("avdec_h264", "decode"),
    ("dav1ddec", "decode"),
    ("queue2", "queue"),
    ("videoconvert", "convert"),
    ("frei0r", "plugin"),
    ("fakesink", "null"),
    ("filesink", "y4m"),
    ("autovideosink", "play"),
    ("ximagesink", "play"),
    ("glimagesink", "play"),
    ("waylandsink", "play"),
    ("kmssink", "play"),
    ("max-size-buffers", "depth"),
    ("num-buffers", "frames"),
    ("location", "path"),
    ("cpu", "time"),
];

/// The definition of that name.
pub fn find(name: &str) -> Option<&'static StageDef> {
    STAGES.iter().find(|def| def.name == name)
}

/// The names of one or more kinds, in the table's order.
pub fn names(kinds: &[Kind]) -> Vec<&'static str> {
    STAGES.iter().filter(|def| kinds.contains(&def.kind)).map(|def| def.name).collect()
}

/// The names of some kinds as a list in a sentence.
pub(super) fn known(kinds: &[Kind]) -> String {
    listed(&names(kinds))
}

/// Everything that is known, a line each, as the text of a help page.
pub fn listing() -> String {
    let head = |def: &StageDef| {
        let required = def.args.iter().filter(|arg| arg.positional || arg.default == Default::Required);
        required.fold(def.name.to_owned(), |text, arg| match arg.positional {
            true => format!("{text} {}", arg.usage()),
            false => format!("{text} {}=...", arg.name),
        })
    };
    let width = STAGES.iter().map(|def| head(def).len()).max().unwrap_or(0);
    let mut text = String::new();
    for (kind, heading) in [
        (Kind::Source, "Sources, the first word of a path:"),
        (Kind::Stage, "Stages, between:"),
        (Kind::Link, "Links, between (a bare ! is a direct call):"),
        (Kind::Sink, "Sinks, at the end:"),
    ] {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{heading}");
        for def in STAGES.iter().filter(|def| def.kind == kind) {
            let _ = writeln!(text, "  {:width$}  {}", head(def), def.help);
        }
    }
    text
}

/// One of them with all its arguments, as the text of a help page. The arguments that
/// say where it runs are the same for all that have them, and come last.
pub fn description(def: &StageDef) -> String {
    let mut text = format!("{}\n    {}: {}\n", def.usage(), def.kind.noun(), def.help);
    let (hosting, own): (Vec<&Arg>, Vec<&Arg>) = def.args.iter().partition(|arg| HOSTING.contains(&arg.name));
    let line = |arg: &Arg| format!("    {}: {} ({})\n", arg.name, arg.help, arg.wants());
    text.extend(own.into_iter().map(line));
    if let Some(open) = def.open {
        let _ = writeln!(text, "    PARAM: {open}");
    }
    if !hosting.is_empty() {
        text.push_str("\n  in a worker, as every stage with host=:\n");
        text.extend(hosting.into_iter().map(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_read() {
        for (i, def) in STAGES.iter().enumerate() {
            assert!(STAGES[..i].iter().all(|other| other.name != def.name), "{}", def.name);
            let options = def.args.iter().skip_while(|arg| arg.positional);
            assert!(options.clone().all(|arg| !arg.positional), "{}", def.name);
            for (j, arg) in def.args.iter().enumerate() {
                assert!(def.args[..j].iter().all(|other| other.name != arg.name));
                assert!(arg.excludes.iter().all(|name| def.arg(name).is_some()));
                if let Default::Is(text) = arg.default {
                    assert!(arg.kind.read(text).is_ok(), "{} {}", def.name, arg.name);
                }
            }
        }
    }

    #[test]
    fn foreign_names_stand_for_known_ones() {
        for (_, ours) in FOREIGN {
            let is_arg = STAGES.iter().any(|def| def.arg(ours).is_some());
            assert!(find(ours).is_some() || is_arg, "{ours}");
        }
    }

    #[test]
    fn the_listing_names_everything_on_one_screen() {
        let listing = listing();
        for def in STAGES {
            assert!(listing.contains(&format!("\n  {}", def.name)), "{}", def.name);
            assert!(listing.contains(def.help), "{}", def.name);
        }
        assert!(listing.lines().count() <= 40 && listing.lines().all(|line| line.len() <= 120), "{listing}");
        assert!(listing.contains("file PATH "));
    }

    #[test]
    fn a_description_has_every_argument() {
        for def in STAGES {
            let text = description(def);
            assert!(text.starts_with(&def.usage()), "{text}");
            assert!(def.args.iter().all(|arg| text.contains(arg.help)), "{text}");
            assert!(def.open.is_none_or(|open| text.contains(open)), "{text}");
        }
        assert!(description(find("file").unwrap()).contains("file PATH [loop=N|inf] [rate=HZ]"));
        assert!(description(find("plugin").unwrap()).contains("[PARAM=VALUE...]"));
    }
}
