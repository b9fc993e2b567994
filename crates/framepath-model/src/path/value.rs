// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of arguments: parsing, ranges and printing.

use super::nearest;

/// Type of an argument's value, with its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueKind {
    /// Whole number from `min` to `max`, or a word that stands for a special number.
    Count {
        /// Smallest accepted number.
        min: u64,
        /// Largest accepted number.
        max: u64,
        /// Accepted word and the number that it stands for, such as `auto` for
        /// [`AUTO`](super::AUTO); `None` if only numbers are accepted.
        word: Option<(&'static str, u64)>,
    },
    /// A grey level, 0 to 255.
    Level,
    /// A picture's size in pixels, each side 1 to 16,384: `1920x1080`.
    Size,
    /// Events per second, 0 to 1,000,000: `25`, `29.97` or `30000/1001`.
    Rate,
    /// Time with its unit (`ns`, `us`, `µs`, `ms` or `s`), 0 to one minute: `2ms`.
    Duration,
    /// Position in a stream: time from the stream's start with its unit, 0 to a thousand hours.
    StreamTime,
    /// Number of bytes from `min` to `max`, without a unit or in `B`, `KiB`, `MiB` or `GiB`.
    Bytes {
        /// Smallest accepted number of bytes.
        min: u64,
        /// Largest accepted number of bytes.
        max: u64,
    },
    /// Bits per second, 1,000 to 1,000,000,000, plain or in thousands (`k`) or millions (`M`): `4M`.
    BitRate,
    /// Region of a picture in pixels: `x,y,w,h`; x and y from 0, w and h from 1, each up to 16,384.
    Roi,
    /// One word of a list.
    Choice {
        /// Accepted words.
        now: &'static [&'static str],
    },
    /// `1`, `0`, `yes` or `no`.
    Flag,
    /// Any text that is not empty and has no zero byte, such as a file's name. The field describes
    /// the text for help.
    Text(&'static str),
    /// A plug-in, as `frei0r:NAME`; the name is not empty and contains no `/`, no `:` and no zero
    /// byte.
    Plugin,
}

/// Lowest [`ValueKind::BitRate`], bits per second.
const MIN_BIT_RATE: u64 = 1_000;
/// Highest [`ValueKind::BitRate`], bits per second: it fits the 32-bit numbers of encoders.
const MAX_BIT_RATE: u64 = 1_000_000_000;

/// Longest [`ValueKind::Duration`], nanoseconds: one minute.
const MAX_DURATION_NS: u64 = 60_000_000_000;
/// Longest [`ValueKind::StreamTime`], nanoseconds: a thousand hours.
const MAX_STREAM_NS: u64 = 3_600_000_000_000_000;

/// Largest width or height of a size, and largest number of a region, pixels.
const MAX_SIDE: u32 = 16_384;

/// Highest [`ValueKind::Rate`], Hz.
const MAX_RATE: f64 = 1_000_000.0;

/// Value of an argument, as the parser has read it from the text.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Number of a [`ValueKind::Count`] or [`ValueKind::Level`], or bits per second of a [`ValueKind::BitRate`].
    Count(u64),
    /// Width and height in pixels.
    Size(u32, u32),
    /// Rate in Hz.
    Rate(f64),
    /// Time in nanoseconds of a [`ValueKind::Duration`] or [`ValueKind::StreamTime`].
    Duration(u64),
    /// Number of bytes.
    Bytes(u64),
    /// Region: x, y, width and height in pixels.
    Roi(u32, u32, u32, u32),
    /// Selected word of the choice.
    Choice(&'static str),
    /// True for `1` and `yes`, false for `0` and `no`.
    Flag(bool),
    /// Text without its quoting; for [`ValueKind::Plugin`] the name after `frei0r:`.
    Text(String),
}

/// Reason for rejecting a value: the end of a sentence that starts with the argument's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidValue {
    /// End of a sentence that starts with the argument's text, such as `is out of range`.
    pub why: String,
    /// Value that the user probably meant; `None` if there is no guess.
    pub meant: Option<String>,
}

fn refused(why: &str) -> InvalidValue {
    InvalidValue { why: why.to_owned(), meant: None }
}

impl ValueKind {
    /// Creates the type of whole numbers from `min` to `max`.
    pub const fn count(min: u64, max: u64) -> ValueKind {
        ValueKind::Count { min, max, word: None }
    }

    /// Creates the type of whole numbers from `min` to `max`, or `word` for the number
    /// `stands_for`.
    pub const fn count_or(min: u64, max: u64, word: &'static str, stands_for: u64) -> ValueKind {
        ValueKind::Count { min, max, word: Some((word, stands_for)) }
    }

    /// Creates the type of a choice among these words.
    pub const fn choice(now: &'static [&'static str]) -> ValueKind {
        ValueKind::Choice { now }
    }

    /// Describes the accepted values: type, unit and range.
    pub fn wants(&self) -> String {
        match *self {
            ValueKind::Count { min, max, word } => {
                let word = word.map_or(String::new(), |(w, _)| format!(", or `{w}`"));
                format!("a count from {min} to {max}{word}")
            }
            ValueKind::Level => "a grey level from 0 to 255".to_owned(),
            ValueKind::Size => {
                format!("a size in pixels, WIDTHxHEIGHT, each 1 to {MAX_SIDE}, such as `1920x1080`")
            }
            ValueKind::Rate => {
                format!("a rate in Hz from 0 to {MAX_RATE}, such as `60`, `29.97` or `30000/1001`")
            }
            ValueKind::StreamTime => {
                "a time from the stream's start, 0 to 3600000s, with its unit (ns, us, ms, s), such as `90s`"
                    .to_owned()
            }
            ValueKind::Duration => {
                "a time from 0 to 60s with its unit (ns, us, ms, s), such as `2ms`".to_owned()
            }
            ValueKind::Bytes { min, max } => format!(
                "a number of bytes from {} to {}, plain or in KiB, MiB or GiB, such as `{}`",
                print_bytes(min),
                print_bytes(max),
                print_bytes(min.max(64 << 10))
            ),
            ValueKind::BitRate => {
                "bits per second from 1k to 1000M, plain or in k or M, such as `4M` or `800k`".to_owned()
            }
            ValueKind::Roi => "a region in pixels, X,Y,WIDTH,HEIGHT, such as `0,0,320,240`".to_owned(),
            ValueKind::Choice { now } => match now {
                [only] => format!("`{only}`"),
                _ => format!("one of {}", listed(now)),
            },
            ValueKind::Flag => "`1` or `yes`, `0` or `no`".to_owned(),
            ValueKind::Text(what) => what.to_owned(),
            ValueKind::Plugin => "a plug-in, such as `frei0r:invert0r`".to_owned(),
        }
    }

    /// Returns a short form for help: `N|auto`, `WxH`, `no|upstream|downstream`.
    pub fn shape(&self) -> String {
        match *self {
            ValueKind::Count { word: Some((word, _)), .. } => format!("N|{word}"),
            ValueKind::Count { word: None, .. } => "N".to_owned(),
            ValueKind::Level => "0..255".to_owned(),
            ValueKind::Size => "WxH".to_owned(),
            ValueKind::Rate => "HZ".to_owned(),
            ValueKind::Duration | ValueKind::StreamTime => "TIME".to_owned(),
            ValueKind::Bytes { .. } => "BYTES".to_owned(),
            ValueKind::BitRate => "BITS".to_owned(),
            ValueKind::Roi => "X,Y,W,H".to_owned(),
            ValueKind::Choice { now } => now.join("|"),
            ValueKind::Flag => "0|1".to_owned(),
            ValueKind::Text(_) => "TEXT".to_owned(),
            ValueKind::Plugin => "frei0r:NAME".to_owned(),
        }
    }

    /// Reads `text` as a value of this type. Fails if the text is not such a value, or is out of
    /// range.
    pub(super) fn read(&self, text: &str) -> Result<Value, InvalidValue> {
        match *self {
            ValueKind::Count { min, max, word } => {
                if let Some((_, stands_for)) = word.filter(|(w, _)| *w == text) {
                    return Ok(Value::Count(stands_for));
                }
                read_count(text, min, max).map(Value::Count).map_err(|mut r| {
                    r.meant = word.and_then(|(w, _)| nearest(text, [w])).map(str::to_owned);
                    r
                })
            }
            ValueKind::Level => read_count(text, 0, 255).map(Value::Count),
            ValueKind::Size => read_size(text),
            ValueKind::Rate => read_rate(text),
            ValueKind::Duration => read_duration(text, MAX_DURATION_NS).map(Value::Duration),
            ValueKind::StreamTime => read_duration(text, MAX_STREAM_NS).map(Value::Duration),
            ValueKind::Bytes { min, max } => read_bytes(text, min, max).map(Value::Bytes),
            ValueKind::BitRate => read_bit_rate(text).map(Value::Count),
            ValueKind::Roi => read_roi(text),
            ValueKind::Choice { now } => match now.iter().find(|w| **w == text) {
                Some(word) => Ok(Value::Choice(word)),
                None => Err(InvalidValue {
                    why: "is not known".to_owned(),
                    meant: nearest(text, now.iter().copied()).map(str::to_owned),
                }),
            },
            ValueKind::Flag => match text {
                "1" | "yes" => Ok(Value::Flag(true)),
                "0" | "no" => Ok(Value::Flag(false)),
                "true" | "on" => {
                    Err(InvalidValue { why: "is not known".to_owned(), meant: Some("yes".to_owned()) })
                }
                "false" | "off" => {
                    Err(InvalidValue { why: "is not known".to_owned(), meant: Some("no".to_owned()) })
                }
                _ => Err(refused("is neither yes nor no")),
            },
            ValueKind::Text(_) if text.is_empty() => Err(refused("is empty")),
            ValueKind::Text(_) if text.contains('\0') => Err(refused("contains a zero byte")),
            ValueKind::Text(_) => Ok(Value::Text(text.to_owned())),
            ValueKind::Plugin => read_plugin(text),
        }
    }

    /// Prints `value`, a value of this type, so that [`ValueKind::read`] reads the same value back.
    pub(super) fn print(&self, value: &Value) -> String {
        match (self, value) {
            (ValueKind::Count { word: Some((word, stands_for)), .. }, Value::Count(n)) if n == stands_for => {
                (*word).to_owned()
            }
            (ValueKind::BitRate, Value::Count(n)) => print_bit_rate(*n),
            (_, Value::Count(n)) => n.to_string(),
            (_, Value::Size(w, h)) => format!("{w}x{h}"),
            (_, Value::Rate(hz)) => hz.to_string(),
            (_, Value::Duration(ns)) => print_duration(*ns),
            (_, Value::Bytes(bytes)) => print_bytes(*bytes),
            (_, Value::Roi(x, y, w, h)) => format!("{x},{y},{w},{h}"),
            (_, Value::Choice(word)) => (*word).to_owned(),
            (_, Value::Flag(yes)) => if *yes { "yes" } else { "no" }.to_owned(),
            (ValueKind::Plugin, Value::Text(name)) => format!("{PLUGIN_PREFIX}{name}"),
            (_, Value::Text(text)) => text.clone(),
        }
    }
}

/// Lists words in a sentence: `` `a`, `b` or `c` ``.
pub(super) fn listed(words: &[&str]) -> String {
    let mut list = String::new();
    for (i, word) in words.iter().enumerate() {
        list.push_str(match i {
            0 => "",
            _ if i + 1 == words.len() => " or ",
            _ => ", ",
        });
        list.push('`');
        list.push_str(word);
        list.push('`');
    }
    list
}

/// Returns true if `text` consists of ASCII digits, at least one: no sign, no blank, nothing else
/// that `str::parse` accepts.
fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn read_count(text: &str, min: u64, max: u64) -> Result<u64, InvalidValue> {
    if !digits(text) {
        return Err(refused("is not a whole number"));
    }
    match text.parse::<u64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(refused("is out of range")),
    }
}

fn read_side(text: &str) -> Result<u32, InvalidValue> {
    read_count(text, 1, MAX_SIDE.into()).map(|n| u32::try_from(n).unwrap_or(MAX_SIDE))
}

fn read_size(text: &str) -> Result<Value, InvalidValue> {
    let (w, h) = text.split_once('x').ok_or_else(|| refused("is not a size"))?;
    if !digits(w) || !digits(h) {
        return Err(refused("is not a size"));
    }
    Ok(Value::Size(read_side(w)?, read_side(h)?))
}

fn read_rate(text: &str) -> Result<Value, InvalidValue> {
    let number = |part: &str| {
        let plain = part.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        part.parse::<f64>().ok().filter(|n| plain && n.is_finite())
    };
    let hz = match text.split_once('/') {
        Some((over, under)) => number(over).zip(number(under)).map(|(o, u)| o / u),
        None => number(text),
    };
    match hz {
        Some(hz) if (0.0..=MAX_RATE).contains(&hz) => Ok(Value::Rate(hz)),
        Some(_) => Err(refused("is out of range")),
        None => Err(refused("is not a rate")),
    }
}

/// Start of a plug-in's text: the only kind of plug-in is frei0r.
const PLUGIN_PREFIX: &str = "frei0r:";

fn read_plugin(text: &str) -> Result<Value, InvalidValue> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '\0', ':']);
    match text.strip_prefix(PLUGIN_PREFIX) {
        Some(name) if is_name(name) => Ok(Value::Text(name.to_owned())),
        Some(_) => Err(refused("has no plug-in name after the colon (a name contains no `/` and no `:`)")),
        None => Err(InvalidValue {
            why: "is not a plug-in".to_owned(),
            meant: is_name(text).then(|| format!("{PLUGIN_PREFIX}{text}")),
        }),
    }
}

const DURATION_UNITS: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

fn read_duration(text: &str, most: u64) -> Result<u64, InvalidValue> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !digits(whole) || !digits(fraction) {
        return Err(refused("is not a time"));
    }
    if unit.is_empty() {
        return Err(InvalidValue {
            why: "has no unit".to_owned(),
            meant: (number.len() <= 12).then(|| format!("{number}ms")),
        });
    }
    let unit_ns = DURATION_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, ns)| *ns)
        .ok_or_else(|| refused("has an unknown unit"))?;
    // Exact to the nanosecond: a second has 9 digits after the point.
    if whole.len() > 12 || fraction.len() > 9 {
        return Err(refused("is out of range"));
    }
    let scale = 10_u64.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let parse = |part: &str| part.parse::<u64>().unwrap_or(u64::MAX);
    let total = u128::from(parse(whole)) * u128::from(unit_ns)
        + u128::from(parse(fraction)) * u128::from(unit_ns) / u128::from(scale);
    u64::try_from(total).ok().filter(|ns| *ns <= most).ok_or_else(|| refused("is out of range"))
}

fn print_duration(ns: u64) -> String {
    let (unit, unit_ns) = match ns {
        0 => ("ns", 1),
        _ if ns % 1_000_000_000 == 0 => ("s", 1_000_000_000),
        _ if ns % 1_000_000 == 0 => ("ms", 1_000_000),
        _ if ns % 1_000 == 0 => ("us", 1_000),
        _ => ("ns", 1),
    };
    format!("{}{unit}", ns / unit_ns)
}

const BYTE_UNITS: [(&str, u64); 5] =
    [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

fn read_bytes(text: &str, min: u64, max: u64) -> Result<u64, InvalidValue> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if !digits(number) {
        return Err(refused("is not a number of bytes"));
    }
    let unit_bytes = BYTE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, n)| *n);
    let Some(unit_bytes) = unit_bytes else {
        let mut names = BYTE_UNITS.iter().map(|(name, _)| *name).filter(|name| name.len() > 1);
        let initial = unit.chars().next().map(|c| c.to_ascii_uppercase());
        return Err(InvalidValue {
            why: "has an unknown unit".to_owned(),
            meant: names
                .find(|name| name.chars().next() == initial && number.len() <= 12)
                .map(|name| format!("{number}{name}")),
        });
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit_bytes))
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| refused("is out of range"))
}

fn print_bytes(bytes: u64) -> String {
    let (unit, unit_bytes) =
        BYTE_UNITS[2..].iter().rev().find(|(_, n)| bytes != 0 && bytes % n == 0).unwrap_or(&BYTE_UNITS[0]);
    format!("{}{unit}", bytes / unit_bytes)
}

/// Units of a bit rate: decimal, as encoders and networks count.
const BIT_RATE_UNITS: [(&str, u64); 3] = [("", 1), ("k", 1_000), ("M", 1_000_000)];

fn read_bit_rate(text: &str) -> Result<u64, InvalidValue> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !digits(whole) || !digits(fraction) {
        return Err(refused("is not a bit rate"));
    }
    let Some((_, factor)) = BIT_RATE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let meant = BIT_RATE_UNITS.iter().skip(1).find(|(name, _)| {
            unit.chars().next().is_some_and(|initial| name.eq_ignore_ascii_case(&initial.to_string()))
        });
        return Err(InvalidValue {
            why: "has an unknown unit".to_owned(),
            meant: meant.filter(|_| number.len() <= 12).map(|(name, _)| format!("{number}{name}")),
        });
    };
    if whole.len() > 12 || fraction.len() > 6 {
        return Err(refused("is out of range"));
    }
    let parse = |part: &str| part.parse::<u64>().unwrap_or(u64::MAX);
    let scale = 10_u64.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let bits = parse(whole).saturating_mul(*factor).saturating_add(parse(fraction) * factor / scale);
    Some(bits)
        .filter(|bits| (MIN_BIT_RATE..=MAX_BIT_RATE).contains(bits))
        .ok_or_else(|| refused("is out of range"))
}

fn print_bit_rate(bits: u64) -> String {
    let (unit, factor) =
        BIT_RATE_UNITS.iter().rev().find(|(_, factor)| bits % factor == 0).unwrap_or(&BIT_RATE_UNITS[0]);
    format!("{}{unit}", bits / factor)
}

fn read_roi(text: &str) -> Result<Value, InvalidValue> {
    let parts: Vec<&str> = text.split(',').take(5).collect();
    let [x, y, w, h] = parts[..] else {
        return Err(refused("is not a region: it needs four numbers"));
    };
    let place = |part| read_count(part, 0, MAX_SIDE.into()).map(|n| n as u32);
    Ok(Value::Roi(place(x)?, place(y)?, read_side(w)?, read_side(h)?))
}
