// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit for the rate at which tokens can be guessed: the answer to a wrong one comes a second late, and while [`MOST_WAITING`]
//! such answers to one address wait, no further token of that address is looked at. Other addresses are not affected.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::lock::lock;

/// Delay of the answer to a wrong token.
pub(crate) const DELAY: Duration = Duration::from_secs(1);
/// Maximum number of delayed answers to one address.
const MOST_WAITING: usize = 4;

/// Numbers of delayed answers, by address. Has an entry for each address with at least one.
#[derive(Debug, Default)]
pub(crate) struct WrongTokens(Mutex<HashMap<IpAddr, usize>>);

/// An answer that is delayed, until this value is dropped.
#[derive(Debug)]
pub(crate) struct DelayedAnswer<'a> {
    tokens: &'a WrongTokens,
    address: IpAddr,
}

impl WrongTokens {
    /// Returns true if no token of this address is looked at now.
    pub(crate) fn refuses(&self, address: IpAddr) -> bool {
        self.waiting().get(&address).is_some_and(|waiting| *waiting >= MOST_WAITING)
    }

    /// Counts a wrong token of this address.
    pub(crate) fn delay(&self, address: IpAddr) -> DelayedAnswer<'_> {
        *self.waiting().entry(address).or_default() += 1;
        DelayedAnswer { tokens: self, address }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        lock(&self.0)
    }
}

impl Drop for DelayedAnswer<'_> {
    fn drop(&mut self) {
        let mut waiting = self.tokens.waiting();
        if let Some(count) = waiting.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_many_wrong_tokens_is_refused_until_they_are_answered() {
        let tokens = WrongTokens::default();
        let [bad, good] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        let mut delayed: Vec<DelayedAnswer<'_>> = (0..MOST_WAITING).map(|_| tokens.delay(bad)).collect();
        assert!(tokens.refuses(bad) && !tokens.refuses(good));
        delayed.pop();
        assert!(!tokens.refuses(bad));
        delayed.clear();
        assert!(tokens.waiting().is_empty());
    }
}
