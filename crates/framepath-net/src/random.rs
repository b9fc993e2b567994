// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random identifiers that nobody can guess.

use data_encoding::HEXLOWER;
use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;

/// Returns 128 random bits of OpenSSL.
///
/// # Errors
/// OpenSSL gets no random bits from the kernel.
pub(crate) fn random_bytes() -> Result<[u8; 16], ErrorStack> {
    let mut bytes = [0; 16];
    rand_bytes(&mut bytes)?;
    Ok(bytes)
}

/// Returns 128 random bits as 32 hexadecimal digits.
///
/// # Errors
/// As [`random_bytes`].
pub(crate) fn random_id() -> Result<String, ErrorStack> {
    random_bytes().map(|bytes| HEXLOWER.encode(&bytes))
}
