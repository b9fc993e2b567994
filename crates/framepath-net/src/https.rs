// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS of a client of HTTP, by OpenSSL, which the datagrams' encryption (DTLS) uses, too.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use openssl::ssl::{HandshakeError, MidHandshakeSslStream, SslConnector, SslMethod, SslStream};
use openssl::x509::X509VerifyResult;
use rustix::event::PollFlags;

use crate::error::WebrtcError;
use crate::wake_event::{WakeEvent, wait};

/// Interval at which the handshake checks whether it is canceled.
const CHECK: Duration = Duration::from_millis(20);

/// Agrees on TLS with the server `host` at the other end of `stream`, which must not block, and checks its certificate by the system's authorities, or
/// those in `SSL_CERT_FILE`.
///
/// # Errors
/// The server does not speak TLS, or its certificate is not valid for `host`; or it does not answer before `deadline`, or `canceled` returns
/// true.
pub(crate) fn secure(
    stream: TcpStream,
    host: &str,
    deadline: Instant,
    canceled: impl Fn() -> bool,
) -> Result<SslStream<TcpStream>, WebrtcError> {
    let stop = WakeEvent::new()?;
    let connector = SslConnector::builder(SslMethod::tls_client()).map_err(|error| failed(host, &error))?;
    let mut handshake = connector.build().connect(host, stream);
    loop {
        let halfway = match handshake {
            Ok(stream) => return Ok(stream),
            Err(HandshakeError::WouldBlock(halfway)) => halfway,
            Err(HandshakeError::Failure(halfway)) => return Err(refused(host, &halfway)),
            Err(HandshakeError::SetupFailure(error)) => return Err(failed(host, &error)),
        };
        if canceled() {
            return Err(WebrtcError::Canceled);
        }
        if Instant::now() >= deadline {
            return Err(failed(host, &"the server does not answer"));
        }
        let check = deadline.min(Instant::now() + CHECK);
        wait(&stop, halfway.get_ref(), PollFlags::IN, Some(check))?;
        handshake = halfway.handshake();
    }
}

fn failed(host: &str, error: &dyn std::fmt::Display) -> WebrtcError {
    WebrtcError::Http(format!("TLS with {host}: {error}"))
}

/// Returns the error of a handshake: the reason why the certificate is not valid, if that is the reason.
fn refused(host: &str, halfway: &MidHandshakeSslStream<TcpStream>) -> WebrtcError {
    match halfway.ssl().verify_result() {
        X509VerifyResult::OK => failed(host, halfway.error()),
        reason => {
            let advice = "SSL_CERT_FILE names a file with further authorities";
            failed(host, &format!("the certificate is not valid: {reason}; {advice}"))
        }
    }
}
