// SPDX-License-Identifier: MIT OR Apache-2.0
//! WHEP over HTTP/1.1, plain or encrypted by TLS, client side.

use std::future::poll_fn;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH, LOCATION, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};

use crate::error::WebrtcError;
use crate::http_io::{HttpChannel, drive, split, text_of};
use crate::https::secure;
use crate::ice_fragment::{IceFragment, SDP_FRAGMENT};
use crate::pairing::{ANSWER_PROOF, FINGERPRINT, PairingCode, ProvenRequest};
use crate::wake_event::WakeEvent;
use crate::whep_names::{METRICS, SDP};

/// Interval at which a wait for the server checks whether it is canceled.
const CHECK: Duration = Duration::from_millis(20);

/// Shortest pause before a request to a server that has no time now is sent again.
const SHORTEST_RETRY: Duration = Duration::from_millis(200);

/// Maximum number of times that a server may send the client elsewhere.
pub(crate) const MOST_REDIRECTS: u32 = 5;

/// Largest answer, bytes.
const MOST_SDP: usize = 64 << 10;

/// Time limit for the figures of a sender.
const FIGURES: Duration = Duration::from_secs(5);

/// Reads the figures of the sender at `address` on this computer, in the text format of Prometheus. The wait ends early if `canceled`
/// returns true.
///
/// # Errors
/// No sender answers within five seconds, or it refuses the request, or the wait was canceled.
pub fn read_sender_metrics(address: SocketAddr, canceled: impl Fn() -> bool) -> Result<String, WebrtcError> {
    let deadline = Instant::now() + FIGURES;
    let url = format!("http://{address}{METRICS}");
    let mut client = WhepClient::connect(&url, Credential::None, deadline)?;
    let HttpAnswer { status, text, .. } =
        client.request(&Method::GET, METRICS, String::new(), deadline, canceled)?;
    match status {
        StatusCode::OK => Ok(text),
        _ => Err(WebrtcError::Refused {
            status: status.as_u16(),
            advice: "; a sender shows its figures to programs of its own computer only",
        }),
    }
}

/// Right to use a server.
pub(crate) enum Credential {
    None,
    /// Token, which is sent.
    Token(String),
    /// Pairing code, which proves each request, and the SHA-256 of this viewer's certificate.
    Pairing(Box<PairingCode>, [u8; FINGERPRINT]),
}

impl Credential {
    /// Returns the value of the header `Authorization`.
    fn authorization(&self, request: ProvenRequest<'_>) -> Result<Option<String>, WebrtcError> {
        Ok(match self {
            Credential::None => None,
            Credential::Token(token) => Some(format!("Bearer {token}")),
            Credential::Pairing(code, viewer) => Some(code.to_header(viewer, request)?),
        })
    }

    /// Returns true if the server's answer to this request is the one that this viewer gets: that of the code's sender. The other
    /// credentials cannot tell.
    fn trusts(
        &self,
        answer: &str,
        headers: &HeaderMap,
        request: ProvenRequest<'_>,
    ) -> Result<bool, WebrtcError> {
        let Credential::Pairing(code, viewer) = self else { return Ok(true) };
        let Some(proof) = headers.get(ANSWER_PROOF) else { return Ok(false) };
        Ok(code.proves_answer(proof.as_bytes(), (viewer, request), answer)?)
    }

    /// Returns the advice after a refusal of this credential.
    fn advice(&self) -> &'static str {
        match self {
            Credential::None => "; pass the sender's token by token=",
            Credential::Token(_) => "; the token is wrong: pass the sender's token by token=",
            Credential::Pairing(..) => {
                "; the pairing code is not valid, or no longer: the sender shows a new one for each run"
            }
        }
    }
}

/// Answer to a request.
struct HttpAnswer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl HttpAnswer {
    /// Returns the pause after which the server wants the request again.
    fn retry_after(&self) -> Option<Duration> {
        let seconds =
            self.headers.get(RETRY_AFTER).filter(|_| self.status == StatusCode::SERVICE_UNAVAILABLE)?;
        let pause = Duration::from_secs(seconds.to_str().ok()?.parse().ok()?);
        Some(pause.max(SHORTEST_RETRY))
    }

    /// Returns the endpoint to which the server sends the client.
    fn redirection(&self) -> Option<&str> {
        let is_one = matches!(self.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        self.headers.get(LOCATION).filter(|_| is_one)?.to_str().ok()
    }
}

/// Sleeps for `pause`.
///
/// # Errors
/// `canceled` returns true.
fn pause_unless(pause: Duration, canceled: impl Fn() -> bool) -> Result<(), WebrtcError> {
    let begin = Instant::now();
    while begin.elapsed() < pause {
        if canceled() {
            return Err(WebrtcError::Canceled);
        }
        thread::sleep(CHECK);
    }
    Ok(())
}

/// Returns the host of a URL without the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Endpoint of a server, and the client's right to use it.
pub(crate) struct WhepClient {
    url: String,
    uri: Uri,
    credential: Credential,
    pub(crate) server: SocketAddr,
    /// Address of this computer by which the server is reached.
    pub(crate) local: SocketAddr,
    stream: Option<TcpStream>,
}

/// Answer of a server to an offer.
pub(crate) struct WhepAnswer {
    pub(crate) answer: String,
    /// Path of the session's resource; `None` if the server named none.
    pub(crate) resource: Option<String>,
    /// True if the server takes restarts of ICE: then it names the ICE session (RFC 9725, section 4.3.1).
    pub(crate) takes_restarts: bool,
}

impl WhepClient {
    /// Connects to the server of `url`.
    ///
    /// # Errors
    /// The URL is not valid, its host has no address, or no address answers before `deadline`.
    pub(crate) fn connect(
        url: &str,
        credential: Credential,
        deadline: Instant,
    ) -> Result<WhepClient, WebrtcError> {
        let wrong = |wrong| WebrtcError::Url { url: url.to_owned(), wrong };
        let uri: Uri = url.parse().map_err(|_| wrong("the URL is not valid"))?;
        let port = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            Some(_) => return Err(wrong("the scheme is not supported")),
            None => return Err(wrong("the URL has no scheme")),
        };
        let host = uri.host().ok_or_else(|| wrong("the URL has no host"))?;
        let addresses = (bare(host), uri.port_u16().unwrap_or(port)).to_socket_addrs();
        let addresses = addresses.map_err(WebrtcError::io(format!("look up {host}")))?;
        let mut last = wrong("the host has no address");
        for server in addresses {
            let left = deadline.saturating_duration_since(Instant::now()).max(CHECK);
            match TcpStream::connect_timeout(&server, left) {
                Ok(stream) => {
                    let local = stream.local_addr().map_err(WebrtcError::io("getsockname"))?;
                    let url = url.to_owned();
                    return Ok(WhepClient { url, uri, credential, server, local, stream: Some(stream) });
                }
                Err(error) => last = WebrtcError::io(format!("connect to {server}"))(error),
            }
        }
        Err(last)
    }

    /// Sends an offer, and again while the server asks for that (`Retry-After` in seconds, RFC 9110, section 10.2.3) or names another
    /// endpoint (RFC 9725, section 4.5).
    ///
    /// # Errors
    /// The server refuses the request, sends the client to another one, or does not answer before `deadline`; its answer is not that of
    /// the pairing code's sender; or `canceled` returns true.
    pub(crate) fn offer(
        &mut self,
        offer: String,
        deadline: Instant,
        canceled: impl Fn() -> bool,
    ) -> Result<WhepAnswer, WebrtcError> {
        let mut redirects = 0;
        let (path, HttpAnswer { status, headers, text: answer }) = loop {
            let path = self.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            let answer = self.request(&Method::POST, &path, offer.clone(), deadline, &canceled)?;
            if let Some(location) = answer.redirection().filter(|_| redirects < MOST_REDIRECTS) {
                redirects += 1;
                self.follow(location)?;
                continue;
            }
            match answer.retry_after() {
                Some(pause) if pause < deadline.saturating_duration_since(Instant::now()) => {
                    pause_unless(pause, &canceled)?;
                }
                _ => break (path, answer),
            }
        };
        if status != StatusCode::CREATED {
            let advice = match status.as_u16() {
                401 | 403 => self.credential.advice(),
                404 | 405 => "; is the path right? For framepath it is /whep",
                400 => "; the sender and this program have no codec in common, or disagree on the session",
                _ => "",
            };
            log::info!("{}: HTTP status {status}: {answer}", self.url);
            return Err(WebrtcError::Refused { status: status.as_u16(), advice });
        }
        let request = ProvenRequest { method: Method::POST.as_str(), path: &path, body: &offer };
        if !self.credential.trusts(&answer, &headers, request)? {
            return Err(WebrtcError::ForeignAnswer);
        }
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        // A session on another server gets no request, because the token is for this one.
        let resource = location.and_then(|location| self.resolve(location)).filter(|uri| self.is_here(uri));
        let resource = resource.and_then(|uri| uri.path_and_query().map(|path| path.as_str().to_owned()));
        Ok(WhepAnswer { answer, resource, takes_restarts: headers.contains_key(ETAG) })
    }

    /// Connects to the server anew, from the address of this computer by which it is reached now.
    ///
    /// # Errors
    /// The server does not answer before `deadline`.
    pub(crate) fn connect_again(&mut self, deadline: Instant) -> Result<(), WebrtcError> {
        let left = deadline.saturating_duration_since(Instant::now()).max(CHECK);
        let stream = TcpStream::connect_timeout(&self.server, left).map_err(WebrtcError::io("connect"))?;
        self.local = stream.local_addr().map_err(WebrtcError::io("getsockname"))?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Restarts ICE in the session with this resource (RFC 9725, section 4.3.3). Returns the server's fragment.
    ///
    /// # Errors
    /// As [`offer`](WhepClient::offer), except that there are no redirections.
    pub(crate) fn restart(
        &mut self,
        resource: &str,
        fragment: &IceFragment,
        deadline: Instant,
        canceled: impl Fn() -> bool,
    ) -> Result<IceFragment, WebrtcError> {
        let body = fragment.to_string();
        let request = ProvenRequest { method: Method::PATCH.as_str(), path: resource, body: &body };
        let answer = self.request(&Method::PATCH, resource, body.clone(), deadline, canceled)?;
        let HttpAnswer { status, headers, text } = answer;
        if status != StatusCode::OK {
            return Err(WebrtcError::Refused { status: status.as_u16(), advice: "" });
        }
        if !self.credential.trusts(&text, &headers, request)? {
            return Err(WebrtcError::ForeignAnswer);
        }
        let read = IceFragment::read(&text);
        read.ok_or_else(|| WebrtcError::Description("not the ICE part of a session description".to_owned()))
    }

    /// Returns the URL that `location` means in an answer: a whole URL, or a path of this server.
    fn resolve(&self, location: &str) -> Option<Uri> {
        let location: Uri = location.parse().ok()?;
        if location.authority().is_some() {
            return matches!(location.scheme_str(), Some("http" | "https")).then_some(location);
        }
        let parts = location.into_parts();
        let (scheme, authority) = (self.uri.scheme()?.clone(), self.uri.authority()?.clone());
        let url = Uri::builder().scheme(scheme).authority(authority);
        url.path_and_query(parts.path_and_query?).build().ok()
    }

    /// Returns true if the URL is one of this server.
    fn is_here(&self, uri: &Uri) -> bool {
        uri.scheme() == self.uri.scheme() && uri.authority() == self.uri.authority()
    }

    /// Goes to the endpoint that the server names.
    ///
    /// # Errors
    /// The endpoint is one of another server, or cannot be used.
    fn follow(&mut self, location: &str) -> Result<(), WebrtcError> {
        let wrong = |wrong| WebrtcError::Url { url: location.to_owned(), wrong };
        let uri =
            self.resolve(location).ok_or_else(|| wrong("the server names no endpoint that can be used"))?;
        log::info!("{}: goes on at {uri}", self.url);
        if self.is_here(&uri) {
            self.uri = uri;
        } else if matches!(self.credential, Credential::Pairing(..)) {
            // A sender with a pairing code has one address, which is in the code.
            return Err(wrong("the server is not the pairing code's"));
        } else {
            return Err(WebrtcError::Moved { url: uri.to_string() });
        }
        Ok(())
    }

    /// Ends the session with this resource.
    ///
    /// # Errors
    /// The server does not answer before `deadline`, or closes the connection.
    pub(crate) fn delete(&mut self, resource: &str, deadline: Instant) -> Result<(), WebrtcError> {
        self.request(&Method::DELETE, resource, String::new(), deadline, || false).map(|_| ())
    }

    /// Sends a request, and returns the answer.
    fn request(
        &mut self,
        method: &Method,
        path: &str,
        body: String,
        deadline: Instant,
        canceled: impl Fn() -> bool,
    ) -> Result<HttpAnswer, WebrtcError> {
        let failed = |error: hyper::Error| WebrtcError::Http(format!("{}: {method}: {error}", self.url));
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let left = deadline.saturating_duration_since(Instant::now()).max(CHECK);
                TcpStream::connect_timeout(&self.server, left).map_err(WebrtcError::io("connect"))?
            }
        };
        let channel = match self.uri.scheme_str() {
            Some("https") => {
                stream.set_nonblocking(true).map_err(WebrtcError::io("set O_NONBLOCK"))?;
                let host = bare(self.uri.host().unwrap_or_default());
                HttpChannel::Tls(Box::new(secure(stream, host, deadline, &canceled)?))
            }
            _ => HttpChannel::Plain(stream),
        };
        let (stream, http) = split(channel).map_err(WebrtcError::io("set O_NONBLOCK"))?;
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let mut request = Request::builder().method(method).uri(path).header(HOST, host).header(ACCEPT, SDP);
        if method == Method::PATCH {
            request = request.header(CONTENT_TYPE, SDP_FRAGMENT).header(IF_MATCH, "*");
        } else if !body.is_empty() {
            request = request.header(CONTENT_TYPE, SDP);
        }
        let proven = ProvenRequest { method: method.as_str(), path, body: &body };
        if let Some(authorization) = self.credential.authorization(proven)? {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request =
            request.body(body).map_err(|error| WebrtcError::Http(format!("{}: {error}", self.url)))?;
        let exchange = async {
            let (mut sender, connection) = handshake::<_, String>(stream).await?;
            let response = async {
                let response = sender.send_request(request).await?;
                let (head, body) = response.into_parts();
                let text = text_of(body, MOST_SDP).await?;
                Ok::<_, hyper::Error>((head.status, head.headers, text))
            };
            let (mut connection, mut response) = (pin!(connection), pin!(response));
            let mut is_open = true;
            poll_fn(move |context| {
                loop {
                    // The connection passes its error on to the response.
                    if is_open {
                        is_open = connection.as_mut().poll(context).is_pending();
                    }
                    if let Poll::Ready(response) = response.as_mut().poll(context) {
                        return Poll::Ready(Some(response));
                    }
                    if !is_open {
                        return Poll::Ready(None);
                    }
                    // The response may have made room for the connection. If the server has closed it meanwhile, the
                    // response gets the rest.
                    if connection.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    is_open = false;
                }
            })
            .await
            .transpose()
        };
        let silent = || WebrtcError::Http(format!("{}: {method}: the server does not answer", self.url));
        let mut exchange = pin!(exchange);
        let stop = WakeEvent::new()?;
        loop {
            let check = deadline.min(Instant::now() + CHECK);
            match drive(exchange.as_mut(), &http, check, &stop, &canceled)? {
                Some(done) => {
                    let ended = || {
                        WebrtcError::Http(format!("{}: {method}: the server closed the connection", self.url))
                    };
                    let (status, headers, text) = done.map_err(failed)?.ok_or_else(ended)?;
                    let text = text.ok_or_else(|| {
                        WebrtcError::Http(format!("{}: the answer is not a text of at most 64 KiB", self.url))
                    })?;
                    return Ok(HttpAnswer { status, headers, text });
                }
                None if canceled() => return Err(WebrtcError::Canceled),
                None if Instant::now() >= deadline => return Err(silent()),
                None => {}
            }
        }
    }
}
