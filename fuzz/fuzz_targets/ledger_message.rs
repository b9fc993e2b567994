// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of the messages by which the ends of a stream exchange their ledgers: all bytes are a message or are refused, and no row
//! makes the sums of a report overflow.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for row in framepath_net::ledger_rows(bytes).unwrap_or_default() {
        let causes = row.causes();
        assert!(causes.total().is_finite() && row.compute_ns + row.copy_ns < 1 << 48);
    }
});
