// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of the worker's messages: all bytes are a message or an error. An
//! accepted message has a single encoding. Zeros extend short input, because otherwise
//! almost no input would pass the check of the length.
#![no_main]

use framepath_model::wire::{MESSAGE_BYTES, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(bytes.len() == MESSAGE_BYTES || Message::decode(bytes).is_err());
    let mut whole = [0; MESSAGE_BYTES];
    let kept = bytes.len().min(MESSAGE_BYTES);
    whole[..kept].copy_from_slice(&bytes[..kept]);
    if let Ok(message) = Message::decode(&whole) {
        let mut again = [0xff; MESSAGE_BYTES];
        message.encode(&mut again);
        assert_eq!(again, whole);
    }
});
