// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command-line arguments.

use crate::frame::HEADER;

pub const USAGE: &str = "\
usage: iceoryx2-handoff wait|poll --bytes N --frames N [--rate HZ]
  wait        the consumer sleeps on iceoryx2's event service
  poll        the consumer polls and never sleeps
  --bytes N   size of a frame, 16 bytes to 64 MiB
  --frames N  number of measured frames, 1 to 10 million
  --rate HZ   frames per second; 0 (default): full speed
";

/// Waiting of the consumer for a frame: asleep or polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Wait,
    Poll,
}

impl Mode {
    pub fn word(self) -> &'static str {
        if self == Mode::Wait { "wait" } else { "poll" }
    }
}

/// Role of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The started process; it starts the consumer.
    Produce,
    /// The consumer: `--consume SERVICE`.
    Consume { service: String },
}

/// Arguments of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub role: Role,
    pub mode: Mode,
    pub bytes: usize,
    pub frames: u64,
    /// Frames per second; 0 is full speed.
    pub rate: u64,
}

impl Options {
    /// Parses the arguments; `None` for `--help`. An invalid argument is an error with
    /// a text for users.
    pub fn read(words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let (mut role, mut mode) = (Role::Produce, None);
        let (mut bytes, mut frames, mut rate) = (0, 0, 0);
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word}: missing value"));
            match word.as_str() {
                "-h" | "--help" => return Ok(None),
                "wait" => mode = Some(Mode::Wait),
                "poll" => mode = Some(Mode::Poll),
                "--bytes" => bytes = number(&word, &value()?, HEADER as u64, 64 << 20)?,
                "--frames" => frames = number(&word, &value()?, 1, 10_000_000)?,
                "--rate" => rate = number(&word, &value()?, 0, 100_000)?,
                "--consume" => role = Role::Consume { service: value()? },
                _ => return Err(format!("unknown argument: {word}")),
            }
        }
        let mode = mode.ok_or("missing argument: wait or poll")?;
        if bytes == 0 || frames == 0 {
            return Err("missing options: --bytes and --frames".to_owned());
        }
        Ok(Some(Options { role, mode, bytes: bytes as usize, frames, rate }))
    }
}

fn number(name: &str, word: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = word.parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or(format!("{name}: expected a number from {least} to {most}, not {word}"))
}
