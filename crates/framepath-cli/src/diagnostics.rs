// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log messages of framepath's crates, as lines on standard error. The option `-v`, or the environment
//! variable FRAMEPATH_LOG, sets the level.

use std::env;

use framepath_model::shown::shown;
use log::{LevelFilter, Log, Metadata, Record};

use crate::exit_status::UsageError;
use crate::terminal;

/// Name of the environment variable with the log level; the option `-v` takes precedence.
const VARIABLE: &str = "FRAMEPATH_LOG";

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Only messages of framepath's crates are printed.
        metadata.target().starts_with("framepath") && metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            terminal::note(&line(record));
        }
    }

    fn flush(&self) {}
}

/// Formats one log line. Escapes control characters, because the message may contain file names or
/// text of another process.
fn line(record: &Record<'_>) -> String {
    let level = record.level().as_str().to_ascii_lowercase();
    format!("framepath: {level}: {}", shown(&record.args().to_string()))
}

/// Installs the logger. `verbose` is the number of `-v`: 1 is info, 2 debug, 3 or more trace; 0 takes
/// the level of FRAMEPATH_LOG, or `otherwise` if that variable is unset or empty. Installs no logger if
/// the level is `off`.
///
/// # Errors
/// `verbose` is 0, and FRAMEPATH_LOG is neither empty nor a level: off, error, warn, info, debug or trace.
pub(crate) fn install(verbose: u8, otherwise: LevelFilter) -> Result<(), UsageError> {
    let level = match verbose {
        0 => level_from_environment()?.unwrap_or(otherwise),
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    if level != LevelFilter::Off {
        // `set_logger` fails only if there is a logger already; this is the only installation.
        let _ = log::set_logger(&StandardError);
        log::set_max_level(level);
    }
    Ok(())
}

fn level_from_environment() -> Result<Option<LevelFilter>, UsageError> {
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let level = value.to_str().and_then(|value| value.parse().ok());
    let value = value.to_string_lossy();
    level.map(Some).ok_or_else(|| {
        UsageError(format!("{VARIABLE}={value}: expected off, error, warn, info, debug or trace"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    #[test]
    fn a_message_is_one_escaped_line() {
        let args = format_args!("file a\x1b[2J\nb: vp9");
        let record = Record::builder().level(Level::Info).target("framepath::x").args(args).build();
        assert_eq!(line(&record), "framepath: info: file a\\u{1b}[2J\\nb: vp9");
    }
}
