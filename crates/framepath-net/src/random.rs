// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random identifiers that nobody can guess.

use std::fs::File;
use std::io::Read;

use data_encoding::HEXLOWER;

use crate::error::WebrtcError;

/// Returns 128 random bits of the kernel.
///
/// # Errors
/// /dev/urandom cannot be read.
pub(crate) fn random_bytes() -> Result<[u8; 16], WebrtcError> {
    let path = "/dev/urandom";
    let mut bytes = [0; 16];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(WebrtcError::io(path))?;
    Ok(bytes)
}

/// Returns 128 random bits as 32 hexadecimal digits.
///
/// # Errors
/// As [`random_bytes`].
pub(crate) fn random_id() -> Result<String, WebrtcError> {
    random_bytes().map(|bytes| HEXLOWER.encode(&bytes))
}
