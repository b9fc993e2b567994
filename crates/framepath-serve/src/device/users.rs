// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limit on the streams of each user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts of the open streams of each user, and their limit. Clients without a limit are not counted.
pub(super) struct Users {
    /// Maximum number of streams of one user.
    limit: u32,
    /// Number of open streams by user id, without users that have none.
    streams: Mutex<HashMap<u32, u32>>,
}

/// One counted stream of a user. Dropping this value ends the count.
pub(super) struct UserStream {
    users: Arc<Users>,
    uid: u32,
}

impl Users {
    /// Makes the counts, which allow each user `limit` streams at a time.
    pub(super) fn new(limit: u32) -> Users {
        Users { limit, streams: Mutex::default() }
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u32, u32>> {
        // A panic leaves the counts consistent: each change is one assignment.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more stream of `uid`; returns `None` if the user has reached the limit.
    pub(super) fn begin(self: &Arc<Users>, uid: u32) -> Option<UserStream> {
        let mut streams = self.streams();
        let count = streams.get(&uid).copied().unwrap_or(0);
        if count >= self.limit {
            return None;
        }
        streams.insert(uid, count + 1);
        Some(UserStream { users: self.clone(), uid })
    }
}

impl Drop for UserStream {
    fn drop(&mut self) {
        let mut streams = self.users.streams();
        match streams.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                streams.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_no_more_streams_than_allowed() {
        let users = Arc::new(Users::new(2));
        let first = users.begin(7).unwrap();
        let _second = users.begin(7).unwrap();
        assert!(users.begin(7).is_none());
        assert!(users.begin(8).is_some(), "another user");
        drop(first);
        let _third = users.begin(7).unwrap();
        assert!(users.begin(7).is_none());
    }

    #[test]
    fn a_user_without_streams_is_forgotten() {
        let users = Arc::new(Users::new(2));
        let both = (users.begin(7), users.begin(7));
        assert_eq!(users.streams().get(&7), Some(&2));
        drop(both);
        assert!(users.streams().is_empty());
    }
}
