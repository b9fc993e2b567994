// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder a run of the lab leaves behind.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;

/// Makes `given`, or a new folder under `runs/` named after the time.
pub(crate) fn create(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = given {
        fs::create_dir_all(folder).with_context(|| format!("making `{}`", folder.display()))?;
        return Ok(folder.to_owned());
    }
    let runs = Path::new("runs");
    fs::create_dir_all(runs).context("making `runs`")?;
    let name = timestamp(unix_seconds().unwrap_or(0));
    let mut folder = runs.join(&name);
    for second in 2.. {
        match fs::create_dir(&folder) {
            // Two runs began in the same second.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                folder = runs.join(format!("{name}-{second}"));
            }
            outcome => {
                outcome.with_context(|| format!("making `{}`", folder.display()))?;
                break;
            }
        }
    }
    Ok(folder)
}

/// Seconds since 1970-01-01 UTC; `None` where the clock says a time before.
pub(crate) fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}

/// `2026-03-01T12-00-00Z`: UTC, and sorted by name is sorted by time.
fn timestamp(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z")
}

/// The date `days` after 1970-01-01. Years are counted from March, so that a
/// leap day is the last of its year; 146,097 days are 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    let since_march_0 = days + 719_468;
    let (era, of_era) = (since_march_0 / 146_097, since_march_0 % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn seconds_become_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00-00-00Z"),
            (951_782_400, "2000-02-29T00-00-00Z"),
            (1_735_689_599, "2024-12-31T23-59-59Z"),
            (1_772_366_400, "2026-03-01T12-00-00Z"),
            (4_107_542_400, "2100-03-01T00-00-00Z"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
    }
}
