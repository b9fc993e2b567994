// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of the parser of paths: every text is a path or an error with a
//! position. The canonical form of a path parses to the same path.
#![no_main]

use framepath::path::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(path) => {
            let canonical = path.to_string();
            // The canonical form may exceed the maximum length of a path.
            if canonical.len() <= framepath::path::MAX_TEXT {
                assert_eq!(parse(&canonical).as_ref(), Ok(&path), "{canonical}");
            }
        }
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some(), "{error:?}");
            assert_eq!(error.render(text).lines().count(), 4);
        }
    }
});
