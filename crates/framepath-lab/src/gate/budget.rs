// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets of the gate, and the parser of budget files.

use framepath_model::path::nearest;
use toml::{Table, Value};

/// Budget: limits on one figure, in every experiment and case that fit the patterns.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// Name of the budget in the gate's output.
    pub name: String,
    /// Name of the experiment; `*` stands for any number of characters.
    pub experiment: String,
    /// Name of the case; `*` stands for any number of characters.
    pub case: String,
    /// The limited figure and its limit.
    pub limit: Limit,
    /// True if a missing figure, or a ratio without an interval, gives the budget the result
    /// [`Skipped`](super::BudgetOutcome::Skipped) in place of [`Missing`](super::BudgetOutcome::Missing).
    pub optional: bool,
}

/// Limited figure of a budget, and its limits: a ratio of two contenders, or a single figure of a contender.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// The ratio a/b of a metric over paired runs.
    Ratio {
        /// Name of the compared metric, as in `ratios` of the JSON (`cpu_ms`) or as the path of the figure
        /// in a row (`cpu_ms.median`).
        metric: String,
        /// Name of the contender in the numerator.
        a: String,
        /// Name of the contender in the denominator.
        b: String,
        /// Limits of the ratio: the budget fails if the ratio's whole 95 % interval lies beyond one of them.
        limits: FigureLimits,
    },
    /// A figure of one contender, or of every contender that fits a pattern.
    Count {
        /// Name of the figure, in a form that [`find`](super::find) accepts: its path in a row of the JSON, such
        /// as `latency_us.p99`, with or without the name of a hop's stage (`hops[decode].cpu_us`), or one of the
        /// names of [`SummaryRow::figure`](framepath_model::summary::SummaryRow::figure).
        metric: String,
        /// Name of the contender; `*` stands for any number of characters. With `*`, rows without
        /// the figure are ignored; otherwise a row without it counts as missing.
        contender: String,
        /// Limits of the figure: a figure beyond one fails; a figure with an interval only if its whole
        /// interval lies beyond.
        limits: FigureLimits,
    },
}

/// Limits of a figure, at least one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FigureLimits {
    /// Least figure that passes; `None` for no lower limit.
    pub min: Option<f64>,
    /// Greatest figure that passes; `None` for no upper limit.
    pub max: Option<f64>,
}

/// Reason why a budget file is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BudgetError {
    /// The file is not TOML; the parser's error, with line and column.
    #[error("{0}")]
    Syntax(String),
    /// An unknown key.
    #[error("{place}: unknown key `{key}`{guess}; known keys: {known}")]
    UnknownKey {
        /// Number of the budget, and its name if the budget has one; or `the file`.
        place: String,
        /// The unknown key, cut after 60 characters.
        key: String,
        /// Text `, did you mean ...?`; empty without a similar key.
        guess: String,
        /// The keys that are known at that place, separated by commas.
        known: String,
    },
    /// A required key is missing.
    #[error("{place}: `{key}` is missing: {what}")]
    MissingKey {
        /// Number of the budget, and its name if the budget has one.
        place: String,
        /// The missing key.
        key: &'static str,
        /// Description of the key's value.
        what: &'static str,
    },
    /// A pair of keys that exclude each other.
    #[error("{place}: `{key}` and `{other}` exclude each other: {why}")]
    Conflict {
        /// Number and name of the budget.
        place: String,
        /// The key of a ratio: `a`, `b`, `min` or `max`.
        key: &'static str,
        /// The key of a count: `min_count`, `max_count` or `contender`.
        other: &'static str,
        /// Reason why the keys exclude each other.
        why: &'static str,
    },
    /// A value of the wrong type or out of range.
    #[error("{place}: `{key}` must be {must}, not {found}")]
    WrongValue {
        /// Number of the budget, and its name if the budget has one; or `the file`.
        place: String,
        /// The key with the value.
        key: &'static str,
        /// Description of valid values.
        must: &'static str,
        /// The invalid text (cut after 60 characters), number or boolean; of another value only its TOML type.
        found: String,
    },
    /// The least value that passes is above the greatest, so no figure would pass.
    #[error("{place}: `{least}` is above `{greatest}`, so no figure would pass")]
    Crossed {
        /// Number and name of the budget.
        place: String,
        /// Key of the lower limit.
        least: &'static str,
        /// Key of the upper limit.
        greatest: &'static str,
    },
    /// The file has no budget, so it would always pass.
    #[error("the file has no [[budget]], so it would always pass; add at least one")]
    Empty,
}

const KEYS: [&str; 12] = [
    "name",
    "experiment",
    "case",
    "metric",
    "a",
    "b",
    "min",
    "max",
    "contender",
    "min_count",
    "max_count",
    "optional",
];

/// Reads the text of a budget file.
///
/// # Errors
///
/// The first error; one within a budget has the budget's number, and its name if the budget has one.
pub fn parse(text: &str) -> Result<Vec<Budget>, BudgetError> {
    let file: Table = text.parse().map_err(|e: toml::de::Error| BudgetError::Syntax(e.to_string()))?;
    for key in file.keys() {
        known_key("the file", key, &["budget"])?;
    }
    let budgets = match file.get("budget") {
        Some(Value::Array(budgets)) if !budgets.is_empty() => budgets,
        Some(Value::Array(_)) | None => return Err(BudgetError::Empty),
        Some(other) => {
            return Err(wrong("the file", "budget", "tables, each under [[budget]]", other));
        }
    };
    budgets
        .iter()
        .enumerate()
        .map(|(i, budget)| match budget {
            Value::Table(table) => read_budget(i + 1, table),
            other => Err(wrong("the file", "budget", "tables, each under [[budget]]", other)),
        })
        .collect()
}

fn read_budget(number: usize, table: &Table) -> Result<Budget, BudgetError> {
    let place = match table.get("name") {
        Some(Value::String(name)) => format!("budget {number} ({})", shortened(name)),
        _ => format!("budget {number}"),
    };
    for key in table.keys() {
        known_key(&place, key, &KEYS)?;
    }
    let reader = Reader { place: &place, table };
    let name = reader.text("name", "the budget's name in the gate's output")?;
    let experiment = reader.text("experiment", "the experiment's name, such as \"decode\"")?;
    let case = reader.text("case", "the case's name, or \"*\" for every case")?;
    let metric = reader.text("metric", "the figure's name, such as \"cpu_ms\"")?;
    let of_count = ["max_count", "min_count", "contender"].into_iter().find(|key| table.contains_key(*key));
    let limit = if let Some(other) = of_count {
        if let Some(key) = ["a", "b", "min", "max"].into_iter().find(|key| table.contains_key(*key)) {
            let why = "a ratio has a, b, min and max; a count has contender, min_count and max_count";
            return Err(BudgetError::Conflict { place, key, other, why });
        }
        Limit::Count {
            metric,
            contender: reader.text("contender", "the contender with the limited figure")?,
            limits: reader
                .limits(["min_count", "max_count"], "the greatest count that passes; or min_count")?,
        }
    } else {
        Limit::Ratio {
            metric,
            a: reader.text("a", "the contender above the line (or give contender and max_count)")?,
            b: reader.text("b", "the contender below the line")?,
            limits: reader.limits(["min", "max"], "the greatest ratio a/b that passes; or min")?,
        }
    };
    let optional = match table.get("optional") {
        None => false,
        Some(Value::Boolean(optional)) => *optional,
        Some(other) => return Err(wrong(&place, "optional", "true or false", other)),
    };
    Ok(Budget { name, experiment, case, limit, optional })
}

struct Reader<'a> {
    place: &'a str,
    table: &'a Table,
}

impl Reader<'_> {
    fn get(&self, key: &'static str, what: &'static str) -> Result<&Value, BudgetError> {
        self.table.get(key).ok_or_else(|| BudgetError::MissingKey { place: self.place.to_owned(), key, what })
    }

    fn text(&self, key: &'static str, what: &'static str) -> Result<String, BudgetError> {
        match self.get(key, what)? {
            Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
            other => Err(wrong(self.place, key, "a non-empty text", other)),
        }
    }

    /// Reads the two limits with the keys `least` and `greatest`. The error of two absent keys names
    /// `greatest`, described by `what`.
    fn limits(
        &self,
        [least, greatest]: [&'static str; 2],
        what: &'static str,
    ) -> Result<FigureLimits, BudgetError> {
        let limit = |key| self.table.contains_key(key).then(|| self.limit(key, what)).transpose();
        match (limit(least)?, limit(greatest)?) {
            (None, None) => {
                Err(BudgetError::MissingKey { place: self.place.to_owned(), key: greatest, what })
            }
            (Some(min), Some(max)) if min > max => {
                Err(BudgetError::Crossed { place: self.place.to_owned(), least, greatest })
            }
            (min, max) => Ok(FigureLimits { min, max }),
        }
    }

    fn limit(&self, key: &'static str, what: &'static str) -> Result<f64, BudgetError> {
        let value = self.get(key, what)?;
        let number = match value {
            Value::Integer(number) => *number as f64,
            Value::Float(number) => *number,
            _ => f64::NAN,
        };
        if number.is_finite() && number >= 0.0 {
            Ok(number)
        } else {
            Err(wrong(self.place, key, "a number of 0 or more", value))
        }
    }
}

fn known_key(place: &str, key: &str, known: &[&str]) -> Result<(), BudgetError> {
    if known.contains(&key) {
        return Ok(());
    }
    let guess = nearest(key, known.iter().copied());
    Err(BudgetError::UnknownKey {
        place: place.to_owned(),
        key: shortened(key),
        guess: guess.map_or(String::new(), |guess| format!(", did you mean `{guess}`?")),
        known: known.join(", "),
    })
}

fn wrong(place: &str, key: &'static str, must: &'static str, found: &Value) -> BudgetError {
    let found = match found {
        Value::String(text) => format!("{:?}", shortened(text)),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(yes) => yes.to_string(),
        other => format!("a TOML {}", other.type_str()),
    };
    BudgetError::WrongValue { place: place.to_owned(), key, must, found }
}

/// Returns the first 60 characters of a text of the file, for an error message, followed by `…` if the
/// text is longer.
fn shortened(text: &str) -> String {
    const WIDEST: usize = 60;
    let mut short: String = text.chars().take(WIDEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
