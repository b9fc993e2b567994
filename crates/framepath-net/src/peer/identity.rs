// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificate of one end of a session.

use std::sync::Arc;

use openssl::sha::sha256;
use str0m::crypto::CryptoProvider;
use str0m::crypto::dtls::DtlsCert;

use super::dtls_retransmission;
use crate::error::WebrtcError;
use crate::pairing::FINGERPRINT;

/// Certificate and key of one end, and the SHA-256 of the certificate.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(super) certificate: DtlsCert,
    /// Library that encrypts.
    pub(super) crypto: Arc<CryptoProvider>,
    pub(crate) fingerprint: [u8; FINGERPRINT],
}

impl Identity {
    /// Makes a new certificate, which signs itself.
    ///
    /// # Errors
    /// OpenSSL fails.
    pub(crate) fn new() -> Result<Identity, WebrtcError> {
        let crypto = dtls_retransmission::provider();
        let certificate = crypto.dtls_provider.generate_certificate();
        let certificate = certificate.ok_or(WebrtcError::Certificate)?;
        let fingerprint = sha256(&certificate.certificate);
        Ok(Identity { certificate, crypto, fingerprint })
    }
}
