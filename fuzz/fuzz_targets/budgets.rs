// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of the parser of budget files (`framepath gate`): every text is a budget
//! file or an error with a message. The evaluation of a valid file has one result per
//! budget.
#![no_main]

use framepath_lab::gate::{evaluate, parse};
use framepath_model::summary::{Machine, Summary, SummaryRow};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(budgets) => {
            let row = SummaryRow { case: "64B".into(), contender: "queue".into(), ..SummaryRow::default() };
            let summary = Summary {
                experiment: "queue".into(),
                machine: Machine::default(),
                started_unix_s: None,
                rows: vec![row],
                ratios: vec![],
                skipped: vec![],
                notes: vec![],
            };
            assert_eq!(evaluate(&budgets, &[summary]).len(), budgets.len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
