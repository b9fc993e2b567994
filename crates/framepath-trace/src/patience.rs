// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit of the time for work of which a hostile program can make any amount.

use std::time::{Duration, Instant};

/// Time that such work may take in any case, and one part of so many of the time since the begin.
const AT_LEAST: Duration = Duration::from_secs(5);
const PART: u32 = 10;

/// Time that the work has taken since the begin of a recording.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Instant,
    spent: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::new()
    }
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { begun: Instant::now(), spent: Duration::ZERO }
    }

    /// Returns the time that the work may still take now.
    pub(crate) fn left(&self) -> Duration {
        (AT_LEAST + self.begun.elapsed() / PART).saturating_sub(self.spent)
    }

    /// Notes that the work has gone on since `since`.
    pub(crate) fn spend(&mut self, since: Instant) {
        self.spent += since.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_and_comes_back_slowly() {
        let mut patience = Patience::new();
        assert!(patience.left() >= AT_LEAST);
        patience.begun -= 10 * AT_LEAST;
        patience.spend(Instant::now() - 2 * AT_LEAST - Duration::from_secs(1));
        assert_eq!(patience.left(), Duration::ZERO);
        patience.begun -= Duration::from_secs(100);
        assert!(patience.left() > Duration::from_secs(8));
    }
}
