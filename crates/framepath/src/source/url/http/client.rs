// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP client: its settings, time limits, certificate authorities and errors.

use std::fs;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Error};

use crate::error::StageError;
use crate::source::url::address::shown;

/// Time limit for making a connection, TLS included, and time limit for looking up a name.
const CONNECTING: Duration = Duration::from_secs(10);
/// Time without a byte from the server after which the connection counts as broken.
const SILENCE: Duration = Duration::from_secs(30);
/// Largest number of redirects that a request follows.
const MOST_REDIRECTS: u32 = 10;
/// Number of requests at once before requests are spaced out.
const BURST: f64 = 32.0;
/// Requests per second after the burst. A hostile worker can cause no more.
const REQUESTS_PER_SECOND: f64 = 10.0;

/// HTTP client for the requests for one file.
pub(super) struct HttpClient {
    agent: Agent,
    canceler: Canceler,
    /// Number of requests that may be sent at once (negative after a wait), and the time of the last change.
    budget: (f64, Instant),
}

/// Handle that ends the client's waits, from any thread; clones belong to the same client.
#[derive(Clone)]
pub(super) struct Canceler {
    agent: Agent,
    /// True after [`Canceler::cancel`].
    canceled: Arc<(Mutex<bool>, Condvar)>,
}

impl Canceler {
    /// Ends the client's waits, except those for a name or a connection, which end by their time limit.
    pub(super) fn cancel(&self) {
        *self.canceled.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.canceled.1.notify_all();
        self.agent.clone().shutdown();
    }

    /// Sleeps for `time`. Returns false, at once, after [`Canceler::cancel`].
    fn sleep(&self, time: Duration) -> bool {
        let canceled = self.canceled.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.canceled.1.wait_timeout_while(canceled, time, |canceled| !*canceled);
        !*slept.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Failure of a request, or of reading an answer's body, with a text for the user.
#[derive(Debug)]
pub(super) enum FetchFailure {
    /// Another try may succeed.
    Passing(String),
    /// Another try would fail in the same way.
    Final(String),
}

impl FetchFailure {
    pub(super) fn into_text(self) -> String {
        match self {
            FetchFailure::Passing(text) | FetchFailure::Final(text) => text,
        }
    }
}

impl HttpClient {
    /// Makes the client for a file at `address`. `ca` is the path of a PEM file with the certificate
    /// authorities to trust; `None`: the system's.
    ///
    /// # Errors
    /// The PEM file cannot be read or has no certificate.
    pub(super) fn new(address: &str, ca: Option<&str>) -> Result<HttpClient, StageError> {
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots(ca)?)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let is_secure = address.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"));
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // No redirect leads from https to http.
            .https_only(is_secure)
            .max_redirects(MOST_REDIRECTS)
            .user_agent(concat!("framepath/", env!("CARGO_PKG_VERSION")))
            .accept("*/*")
            .accept_encoding("identity")
            .timeout_resolve(Some(CONNECTING))
            .timeout_connect(Some(CONNECTING))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .timeout_per_write(Some(SILENCE))
            .build()
            .new_agent();
        let canceler = Canceler { agent: agent.clone(), canceled: Arc::default() };
        Ok(HttpClient { agent, canceler, budget: (BURST, Instant::now()) })
    }

    pub(super) fn canceler(&self) -> Canceler {
        self.canceler.clone()
    }

    /// Requests the bytes of `address` from `offset` to the end; with `if_range`, only if the file has this
    /// version. Before the request, waits if there were too many requests. Fails if the client was canceled
    /// during this wait, or if no answer came; an answer with an error status is no failure.
    pub(super) fn get(
        &mut self,
        address: &str,
        offset: u64,
        if_range: Option<&str>,
    ) -> Result<Response<Body>, FetchFailure> {
        self.wait_for_budget()?;
        let mut request = self.agent.get(address).header("Range", format!("bytes={offset}-"));
        if let Some(version) = if_range {
            request = request.header("If-Range", version);
        }
        request.call().map_err(|error| failure_of(&error))
    }

    /// Sleeps for `time`.
    ///
    /// # Errors
    /// The client was canceled.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), FetchFailure> {
        match self.canceler.sleep(time) {
            true => Ok(()),
            false => Err(FetchFailure::Final("canceled".to_owned())),
        }
    }

    fn wait_for_budget(&mut self) -> Result<(), FetchFailure> {
        let (left, since) = self.budget;
        let now = Instant::now();
        let left = (left + now.duration_since(since).as_secs_f64() * REQUESTS_PER_SECOND).min(BURST);
        self.budget = (left - 1.0, now);
        match left < 1.0 {
            true => self.sleep(Duration::from_secs_f64((1.0 - left) / REQUESTS_PER_SECOND)),
            false => Ok(()),
        }
    }
}

/// Returns the certificate authorities of the PEM file `ca`, or of the system.
fn roots(ca: Option<&str>) -> Result<Vec<Certificate<'static>>, StageError> {
    let Some(path) = ca else {
        let found = rustls_native_certs::load_native_certs();
        found.errors.iter().for_each(|error| log::info!("certificate authorities of the system: {error}"));
        return Ok(found.certs.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect());
    };
    let pem = fs::read(path).map_err(StageError::io(format!("ca={path}: read")))?;
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match certificates.is_empty() {
        true => Err(StageError::Option(format!("ca={path}: the file has no certificate; expected PEM text"))),
        false => Ok(certificates),
    }
}

/// Describes an error of a request or of a body.
fn failure_of(error: &Error) -> FetchFailure {
    match error {
        Error::Io(error) => failure_of_io(error),
        Error::HostNotFound => FetchFailure::Passing("the name of the server has no address".to_owned()),
        Error::Timeout(ureq::Timeout::Resolve) => {
            FetchFailure::Passing(format!("no answer from the name server in {} s", CONNECTING.as_secs()))
        }
        Error::Timeout(ureq::Timeout::Connect) => {
            let seconds = CONNECTING.as_secs();
            FetchFailure::Passing(format!(
                "no connection to the server in {seconds} s, TLS included for https"
            ))
        }
        Error::Timeout(ureq::Timeout::RecvResponse) => {
            let seconds = SILENCE.as_secs();
            FetchFailure::Passing(format!("the head of the server's answer was not complete in {seconds} s"))
        }
        Error::Timeout(ureq::Timeout::PerWrite | ureq::Timeout::SendRequest) => FetchFailure::Passing(
            format!("the server took no byte of the request in {} s", SILENCE.as_secs()),
        ),
        Error::Timeout(_) => {
            FetchFailure::Passing(format!("no byte from the server in {} s", SILENCE.as_secs()))
        }
        Error::TooManyRedirects => {
            FetchFailure::Final(format!("the server redirects more than {MOST_REDIRECTS} times"))
        }
        Error::RequireHttpsOnly(to) => FetchFailure::Final(format!(
            "the server redirects from https to the unencrypted address {}; open that address to accept it",
            shown(to)
        )),
        Error::BadUri(_) | Error::Http(_) => {
            FetchFailure::Final(format!("the address is not valid: {error}; write %20 for a space"))
        }
        Error::Protocol(error) => {
            FetchFailure::Passing(format!("the server's answer is not valid HTTP: {error}"))
        }
        Error::Rustls(error) => failure_of_tls(error),
        Error::ConnectProxyFailed(reason) => {
            FetchFailure::Passing(format!("the proxy refuses the connection: {reason}"))
        }
        error => FetchFailure::Final(error.to_string()),
    }
}

/// Describes an error of a connection or of a body.
pub(super) fn failure_of_io(error: &io::Error) -> FetchFailure {
    let inner = error.get_ref();
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<Error>()) {
        return failure_of(error);
    }
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return failure_of_tls(error);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            FetchFailure::Passing(format!("connect: {error}; is the server running, and is the port right?"))
        }
        io::ErrorKind::UnexpectedEof => FetchFailure::Passing("the server closed the connection".to_owned()),
        _ => FetchFailure::Passing(error.to_string()),
    }
}

fn failure_of_tls(error: &rustls::Error) -> FetchFailure {
    use rustls::CertificateError::UnknownIssuer;
    let text = match error {
        rustls::Error::InvalidCertificate(UnknownIssuer) => {
            "TLS: no trusted authority has signed the server's certificate; trust it with ca=FILE, or install \
             ca-certificates"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(reason) if is_ca_as_server(reason) => {
            "TLS: the server's certificate is marked as an authority; make one with basicConstraints=CA:FALSE"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(reason) => format!("TLS: the server's certificate is not valid: {reason}"),
        rustls::Error::InvalidMessage(_) => {
            format!("TLS: {error}; does the server speak TLS on this port? Write http:// if it does not")
        }
        error => format!("TLS: {error}"),
    };
    return FetchFailure::Final(text);

    fn is_ca_as_server(reason: &rustls::CertificateError) -> bool {
        // rustls has no variant of its own for this error of its verifier.
        format!("{reason:?}").contains("CaUsedAsEndEntity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_limit_has_a_text_of_its_own() {
        for (limit, text) in [
            (ureq::Timeout::Connect, "no connection to the server in 10 s, TLS included for https"),
            (ureq::Timeout::RecvResponse, "the head of the server's answer was not complete in 30 s"),
            (ureq::Timeout::PerWrite, "the server took no byte of the request in 30 s"),
            (ureq::Timeout::PerRead, "no byte from the server in 30 s"),
        ] {
            assert_eq!(failure_of(&Error::Timeout(limit)).into_text(), text);
        }
    }
}
