// SPDX-License-Identifier: MIT OR Apache-2.0
//! DTLS of an end that never sends the first chunk of its data channels, and all others.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion,
};
use str0m::crypto::{CryptoError, CryptoProvider};

use super::dtls_retransmission;

/// Returns the library of such an end.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { dtls_provider: &LosingDtls, ..(**plain()).clone() })
}

fn plain() -> &'static Arc<CryptoProvider> {
    static PLAIN: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PLAIN.get_or_init(dtls_retransmission::provider)
}

#[derive(Debug)]
struct LosingDtls;

impl DtlsProvider for LosingDtls {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        plain().dtls_provider.generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let inner = plain().dtls_provider.new_dtls(cert, now, version, mtu)?;
        Ok(Box::new(LosingInstance { inner, lost: None }))
    }
}

#[derive(Debug)]
struct LosingInstance {
    inner: Box<dyn DtlsInstance>,
    /// Number (TSN) of the first chunk with data.
    lost: Option<[u8; 4]>,
}

impl DtlsInstance for LosingInstance {
    fn send_application_data(&mut self, data: &[u8]) -> Result<(), DtlsImplError> {
        // The first chunk of the packet has data.
        if let [0, _, _, _, number @ ..] = data.get(12..).unwrap_or_default() {
            let number = number.first_chunk().copied();
            self.lost = self.lost.or(number);
            if self.lost == number {
                return Ok(());
            }
        }
        self.inner.send_application_data(data)
    }

    fn set_active(&mut self, active: bool) {
        self.inner.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.inner.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        self.inner.poll_output(buf)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.inner.handle_timeout(now)
    }

    fn is_active(&self) -> bool {
        self.inner.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.inner.protocol_version()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.inner.close()
    }
}
