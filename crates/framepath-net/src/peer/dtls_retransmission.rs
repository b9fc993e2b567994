// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retransmission of lost DTLS handshake messages, which str0m's OpenSSL backend leaves out.
//!
//! OpenSSL sends a flight again when it is called after its timer has run out: after one second, and then each time after
//! twice the time. str0m-openssl 0.6 calls it only for a datagram that arrives. An end whose peer waits as well, or is
//! already connected, would never be called again.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion,
};
use str0m::crypto::{CryptoError, CryptoProvider, from_feature_flags};

use super::missing_chunk::keeps_too_many;

/// Time between two calls of OpenSSL during a handshake.
const INTERVAL: Duration = Duration::from_millis(100);

/// Returns str0m's cryptography with retransmission in DTLS handshakes.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { dtls_provider: &RetransmittingDtls, ..from_feature_flags() })
}

#[derive(Debug)]
struct RetransmittingDtls;

fn plain() -> &'static dyn DtlsProvider {
    static PLAIN: OnceLock<CryptoProvider> = OnceLock::new();
    PLAIN.get_or_init(from_feature_flags).dtls_provider
}

impl DtlsProvider for RetransmittingDtls {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        plain().generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let inner = plain().new_dtls(cert, now, version, mtu)?;
        Ok(Box::new(RetransmittingInstance { inner, due: Some(now + INTERVAL) }))
    }
}

/// DTLS association that is called while its handshake lasts.
#[derive(Debug)]
struct RetransmittingInstance {
    inner: Box<dyn DtlsInstance>,
    /// Time of the next call; `None` after the handshake.
    due: Option<Instant>,
}

impl DtlsInstance for RetransmittingInstance {
    fn set_active(&mut self, active: bool) {
        self.inner.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.inner.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        match self.inner.poll_output(buf) {
            // The times of the backend are not those of OpenSSL's timer.
            DtlsOutput::Timeout(at) => DtlsOutput::Timeout(self.due.map_or(at, |due| due.min(at))),
            output => {
                if matches!(output, DtlsOutput::Connected) {
                    self.due = None;
                }
                output
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.inner.handle_timeout(now)?;
        if self.due.is_none_or(|due| due > now) {
            return Ok(());
        }
        self.due = Some(now + INTERVAL);
        // Without bytes, the handshake goes on as far as it can: OpenSSL looks at its timer.
        self.inner.handle_packet(&[])
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<(), DtlsImplError> {
        if keeps_too_many(data) {
            return Err(DtlsImplError::ReceiveQueueFull);
        }
        self.inner.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.inner.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.inner.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.inner.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.inner.close()
    }
}
