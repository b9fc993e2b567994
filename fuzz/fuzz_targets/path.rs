// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any text is a path or an error with a place; a path comes back the same
//! from its canonical form.
#![no_main]

use framepath::path::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(path) => {
            let canonical = path.to_string();
            // The canonical form may be longer than a path can be.
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
