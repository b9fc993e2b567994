// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of the cells of the shared rings: every cell is a submission, a
//! completion or an error. An accepted cell has a single encoding.
#![no_main]

use framepath_model::wire::{Cell, Completion, Submission};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: [u8; 64]| {
    let mut cell: Cell = [0; 8];
    for (word, bytes) in cell.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    if let Ok(submission) = Submission::decode(&cell) {
        assert_eq!(submission.encode(), cell);
        assert!(Completion::decode(&cell).is_err());
    }
    if let Ok(completion) = Completion::decode(&cell) {
        assert_eq!(completion.encode(), cell);
    }
});
