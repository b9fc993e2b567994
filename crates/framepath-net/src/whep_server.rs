// SPDX-License-Identifier: MIT OR Apache-2.0
//! WHEP over HTTP/1.1, server side: `POST /whep` with an offer opens a session, `PATCH` of its resource changes its ICE part, `DELETE`
//! ends it, and `/` has the page for browsers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{
    ALLOW, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderName, HeaderValue, IF_MATCH, LOCATION, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use rustix::event::PollFlags;
use subtle::ConstantTimeEq;

use crate::http_io::{HttpChannel, drive, split, text_of};
use crate::ice_fragment::{IceFragment, SDP_FRAGMENT};
use crate::ice_patch::{IceRestart, IceRestartRefused, IceRestarted, PatchedSession, entity_tag};
use crate::lock::lock;
use crate::page::{self, PageFile, page_file};
use crate::pairing::{ANSWER_PROOF, FINGERPRINT, PairingClaim, ProvenRequest};
use crate::peer::read_offer;
use crate::sender_metrics;
use crate::sender_shared::{Commands, OfferRefused, REPLY, SenderCommand, SenderShared};
use crate::wake_event::wait;
use crate::whep_names::{ENDPOINT, METRICS, SDP};
use crate::wrong_tokens::DELAY;

/// Header that names the media type of changes (RFC 5789, section 3.1).
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
/// Largest offer, bytes. Those of browsers have a few KiB, and str0m takes long for large ones.
const MOST_OFFER: usize = 16 << 10;
/// Time limit for a connection, from its start to its end.
const CONNECTION: Duration = Duration::from_secs(10);
/// Maximum number of connections at once.
const MOST_CONNECTIONS: usize = 16;
/// Answer on a connection that ends because there are too many. Without it, a viewer could take the end for that of the sender.
/// A viewer then tries again.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// Pause after a failed accept(2), such as without free descriptors, and between two looks at a delayed answer's time.
const PAUSE: Duration = Duration::from_millis(20);

/// Connections that are open, in the order of their begin.
#[derive(Default)]
struct OpenConnections {
    /// Each with its number.
    open: Mutex<VecDeque<(u64, TcpStream)>>,
    next: AtomicU64,
}

/// Place among the open connections, until it is dropped.
struct ConnectionPlace<'a> {
    connections: &'a OpenConnections,
    number: u64,
}

impl OpenConnections {
    /// Adds a connection. If there are too many, the oldest ends: an honest one takes milliseconds, so that connections which send
    /// nothing cannot keep others out.
    ///
    /// # Errors
    /// From fcntl(2).
    fn enter(&self, stream: &TcpStream) -> io::Result<ConnectionPlace<'_>> {
        let stream = stream.try_clone()?;
        let mut open = lock(&self.open);
        if open.len() >= MOST_CONNECTIONS {
            if let Some((_, mut oldest)) = open.pop_front() {
                // Its thread sees the end; it may have ended by itself. The answer has room, because there was none before.
                let _ = oldest.write(TOO_MANY);
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.push_back((number, stream));
        Ok(ConnectionPlace { connections: self, number })
    }
}

impl Drop for ConnectionPlace<'_> {
    fn drop(&mut self) {
        let mut open = lock(&self.connections.open);
        open.retain(|(number, _)| *number != self.number);
    }
}

/// HTTP server of a sender.
pub(crate) struct WhepServer {
    listener: TcpListener,
    commands: Commands,
}

impl WhepServer {
    pub(crate) fn new(listener: TcpListener, commands: Commands) -> WhepServer {
        WhepServer { listener, commands }
    }

    /// Serves until the sender stops. Returns when all connections have ended.
    pub(crate) fn run(self) {
        let (shared, open) = (&self.commands.shared, &OpenConnections::default());
        thread::scope(|scope| {
            while !shared.stopped.load(Ordering::Acquire) {
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if wait(&shared.stop, &self.listener, PollFlags::IN, None).is_err() {
                            return;
                        }
                        continue;
                    }
                    Err(_) => {
                        thread::sleep(PAUSE);
                        continue;
                    }
                };
                let Ok(place) = open.enter(&stream) else { continue };
                let commands = self.commands.clone();
                let serve = move || {
                    serve(stream, &commands);
                    drop(place);
                };
                if let Err(error) = thread::Builder::new().name("whep".to_owned()).spawn_scoped(scope, serve)
                {
                    log::warn!("whep: start a thread: {error}");
                }
            }
        });
    }
}

/// Serves the requests of one connection.
fn serve(stream: TcpStream, commands: &Commands) {
    let (Ok(local), Ok(remote)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let Ok((stream, http)) = split(HttpChannel::Plain(stream)) else { return };
    let service = service_fn(|request| async move {
        // An IPv4 address also where the listener has all addresses of both kinds, `[::]`.
        let [local, remote] = [local, remote].map(|address| address.ip().to_canonical());
        let answered = answer(request, local, remote, commands).await;
        Ok::<_, Infallible>(answered.unwrap_or_else(RequestRefused::into_response))
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(stream, service);
    let stopped = || commands.shared.stopped.load(Ordering::Acquire);
    let deadline = Instant::now() + CONNECTION;
    match drive(connection, &http, deadline, &commands.shared.stop, stopped) {
        Ok(Some(Ok(()))) => {}
        Ok(Some(Err(error))) => log::debug!("whep: {error}"),
        Ok(None) => log::debug!("whep: connection ended by the time limit"),
        Err(error) => log::warn!("whep: {error}"),
    }
}

/// Answer to a request that is refused.
struct RequestRefused {
    status: StatusCode,
    text: String,
    /// Header that explains the status.
    header: Option<(HeaderName, &'static str)>,
}

impl RequestRefused {
    fn new(status: StatusCode, text: impl Into<String>) -> RequestRefused {
        RequestRefused { status, text: text.into(), header: None }
    }

    /// Returns the refusal of a request that may be sent again in a second.
    fn for_now(text: &str) -> RequestRefused {
        let refused = RequestRefused::new(StatusCode::SERVICE_UNAVAILABLE, text);
        RequestRefused { header: Some((RETRY_AFTER, "1")), ..refused }
    }

    fn unavailable() -> RequestRefused {
        RequestRefused::new(StatusCode::SERVICE_UNAVAILABLE, "the stream has ended")
    }

    /// Returns the refusal of a request to which the sessions' thread gave no reply.
    fn no_reply(error: RecvTimeoutError) -> RequestRefused {
        match error {
            RecvTimeoutError::Timeout => RequestRefused::for_now("the sender is busy"),
            RecvTimeoutError::Disconnected => RequestRefused::unavailable(),
        }
    }

    fn into_response(self) -> Response<String> {
        let mut response = text_response(self.status, &self.text);
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn text_response(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(format!("{text}\n"));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns a file of the page for browsers.
fn page_response(file: &PageFile) -> Response<String> {
    let mut response = Response::new(file.text.to_owned());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.media_type));
    headers.extend(
        page::HEADERS.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))),
    );
    response
}

/// Returns true if the header `Host` is missing, or has an address or `localhost`. A web page whose domain was resolved to an address of
/// this computer (DNS rebinding) makes the user's browser send the domain.
fn names_no_domain(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Some(authority) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let name = authority.host();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Answers a request of the address `remote` to this computer's address `local`.
async fn answer(
    request: Request<Incoming>,
    local: IpAddr,
    remote: IpAddr,
    commands: &Commands,
) -> Result<Response<String>, RequestRefused> {
    let path = request.uri().path();
    // For programs of this computer, as the service's figures.
    let is_of_here = (remote == local || remote.is_loopback()) && names_no_domain(request.headers());
    if path == METRICS && is_of_here && request.method() == Method::GET {
        let (counts, viewers) = (commands.shared.counts(), lock(&commands.shared.figures).clone());
        let mut text = sender_metrics::text(counts, &viewers, Instant::now());
        if let Some(more) = &*lock(&commands.shared.on_metrics) {
            text.push_str(&more());
        }
        let mut page = Response::new(text);
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        page.headers_mut().insert(CONTENT_TYPE, kind);
        return Ok(page);
    }
    let is_get = request.method() == Method::GET;
    if let Some(file) = page_file(path).filter(|_| is_get) {
        return Ok(page_response(file));
    }
    let resource = path.strip_prefix(ENDPOINT).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned);
    if path != ENDPOINT && resource.is_none() {
        return Err(RequestRefused::new(
            StatusCode::NOT_FOUND,
            "not found; the endpoint is /whep, the page for browsers is /",
        ));
    }
    let allowed = if resource.is_some() { "DELETE, PATCH" } else { "POST" };
    if !allowed.split(", ").any(|method| method == request.method().as_str()) {
        let refused = RequestRefused::new(StatusCode::METHOD_NOT_ALLOWED, format!("allowed: {allowed}"));
        return Err(RequestRefused { header: Some((ALLOW, allowed)), ..refused });
    }
    let (head, body) = request.into_parts();
    let body = text_of(body, MOST_OFFER).await;
    let body = body.map_err(|error| RequestRefused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let body = body.ok_or_else(|| {
        RequestRefused::new(StatusCode::PAYLOAD_TOO_LARGE, "expected at most 16 KiB of UTF-8")
    })?;
    let proven = ProvenRequest { method: head.method.as_str(), path: head.uri.path(), body: &body };
    let claim = authorize(&head.headers, proven, remote, &commands.shared)?;
    match resource {
        Some(id) if head.method == Method::PATCH => {
            patch(id, &head.headers, &body, claim, [local, remote], commands)
        }
        Some(id) => delete(id, claim.map(|claim| claim.viewer), commands),
        None => open(&head.headers, &body, claim, [local, remote], commands),
    }
}

/// Checks a request's token, or its proof of knowing the token. Returns the claim if it is proved for this request.
/// Waits before it refuses a wrong one.
fn authorize(
    headers: &HeaderMap,
    request: ProvenRequest<'_>,
    remote: IpAddr,
    shared: &SenderShared,
) -> Result<Option<PairingClaim>, RequestRefused> {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    // A proof cannot be guessed, so those who have the code need not wait for others at the same address.
    if let (Some(pairing), Some(claim)) = (&shared.pairing, given.and_then(PairingClaim::from_header)) {
        if pairing.proves(&claim, request).unwrap_or(false) {
            return Ok(Some(claim));
        }
    }
    if shared.wrong_tokens.refuses(remote) {
        return Err(RequestRefused::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong tokens; try again later",
        ));
    }
    let refused = || {
        let refused = RequestRefused::new(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
        RequestRefused { header: Some((WWW_AUTHENTICATE, "Bearer")), ..refused }
    };
    let given = given.ok_or_else(refused)?;
    // In constant time, so that the time tells nothing about the token.
    let token = given.strip_prefix(b"Bearer ");
    if token.is_some_and(|token| bool::from(token.ct_eq(shared.token.as_bytes()))) {
        return Ok(None);
    }
    let _delayed = shared.wrong_tokens.delay(remote);
    let until = Instant::now() + DELAY;
    while Instant::now() < until && !shared.stopped.load(Ordering::Acquire) {
        thread::sleep(PAUSE);
    }
    Err(refused())
}

/// Opens the session of a viewer.
fn open(
    headers: &HeaderMap,
    offer: &str,
    claim: Option<PairingClaim>,
    addresses: [IpAddr; 2],
    commands: &Commands,
) -> Result<Response<String>, RequestRefused> {
    let refuse = |status, text: &str| RequestRefused::new(status, text);
    if !has_type(headers, SDP) {
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected an offer of type application/sdp"));
    }
    // A proof that was overheard and sent again opens no second session. A viewer that tries again has a new offer.
    if claim.as_ref().is_some_and(|claim| !commands.shared.use_proof(claim.proof)) {
        return Err(refuse(StatusCode::CONFLICT, "this offer has a session, or had one"));
    }
    let accepted = commands.accept(offer, claim.as_ref().map(|claim| claim.viewer), addresses);
    let (id, answer) = accepted.map_err(|refused| match refused {
        OfferRefused::Full => {
            // There is no session, and the viewer sends its offer again.
            claim.iter().for_each(|claim| commands.shared.forget_proof(&claim.proof));
            RequestRefused::for_now("there are too many viewers")
        }
        OfferRefused::Unavailable => RequestRefused::unavailable(),
        OfferRefused::Busy => RequestRefused::for_now("the sender is busy"),
        OfferRefused::Invalid(text) => RequestRefused::new(StatusCode::BAD_REQUEST, text),
    })?;
    let mut created = proven_response(answer, claim.as_ref(), &commands.shared)?;
    *created.status_mut() = StatusCode::CREATED;
    created.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(SDP));
    created.headers_mut().insert(ACCEPT_PATCH, HeaderValue::from_static(SDP_FRAGMENT));
    set_tag(&mut created, &entity_tag(0));
    if let Ok(location) = HeaderValue::from_str(&format!("{ENDPOINT}/{id}")) {
        created.headers_mut().insert(LOCATION, location);
    }
    Ok(created)
}

/// Returns true if a request has a body of this media type.
fn has_type(headers: &HeaderMap, expected: &str) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media_type.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(expected))
}

/// Returns the answer to the request that has proved `claim`, with its own proof.
fn proven_response(
    answer: String,
    claim: Option<&PairingClaim>,
    shared: &SenderShared,
) -> Result<Response<String>, RequestRefused> {
    let proof = shared.pairing.as_ref().zip(claim).map(|(pairing, claim)| {
        let header = pairing.answer_header(&claim.proof, &answer).ok()?;
        HeaderValue::from_str(&header).ok()
    });
    let mut response = Response::new(answer);
    if let Some(proof) = proof {
        let proof = proof.ok_or_else(RequestRefused::unavailable)?;
        response.headers_mut().insert(ANSWER_PROOF, proof);
    }
    Ok(response)
}

fn set_tag(response: &mut Response<String>, tag: &str) {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
}

/// Changes the ICE part of a viewer's session (RFC 9725, section 4.3): takes candidates, or restarts ICE. The caller's thread reads the
/// description, which may take long, so that the stream goes on.
fn patch(
    id: String,
    headers: &HeaderMap,
    fragment: &str,
    claim: Option<PairingClaim>,
    [local, remote]: [IpAddr; 2],
    commands: &Commands,
) -> Result<Response<String>, RequestRefused> {
    let refuse = |status, text: &str| Err(RequestRefused::new(status, text));
    if !has_type(headers, SDP_FRAGMENT) {
        return refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "expected a fragment of type application/trickle-ice-sdpfrag",
        );
    }
    let Some(expected) = headers.get(IF_MATCH).and_then(|tag| tag.to_str().ok()) else {
        return refuse(
            StatusCode::PRECONDITION_REQUIRED,
            "expected If-Match with the session's ETag, or * for a restart",
        );
    };
    let Some(fragment) = IceFragment::read(fragment) else {
        return refuse(StatusCode::BAD_REQUEST, "not the ICE part of a session description");
    };
    let viewer = claim.as_ref().map(|claim| claim.viewer);
    let session = ask(commands, |reply| SenderCommand::Session { id: id.clone(), viewer, reply })?;
    let Some(PatchedSession { description, tag }) = session else {
        return refuse(StatusCode::NOT_FOUND, "no such session");
    };
    if expected != "*" && expected != tag {
        return refuse(StatusCode::PRECONDITION_FAILED, "the session has another ETag");
    }
    if !fragment.restarts(&description) {
        // Further candidates change nothing: this end is ICE-lite, and answers the address that asks.
        let mut taken = Response::new(String::new());
        *taken.status_mut() = StatusCode::NO_CONTENT;
        return Ok(taken);
    }
    let description: Arc<str> = fragment.without_candidates().merge_into(&description).into();
    let offer = read_offer(&description)
        .map_err(|error| RequestRefused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    // A restart that was overheard and sent again would undo the one behind it.
    if claim.as_ref().is_some_and(|claim| !commands.shared.use_proof(claim.proof)) {
        return refuse(StatusCode::CONFLICT, "this restart was done");
    }
    let request = Box::new(IceRestart { tag, description, offer, local, remote });
    let restarted = ask(commands, |reply| SenderCommand::Restart { id, viewer, request, reply })?;
    if matches!(restarted, Err(IceRestartRefused::Busy | IceRestartRefused::OtherTag)) {
        // The session is unchanged, so that the viewer may send its request again.
        claim.iter().for_each(|claim| commands.shared.forget_proof(&claim.proof));
    }
    match restarted {
        Ok(IceRestarted { fragment, tag }) => {
            let mut restarted = proven_response(fragment.to_string(), claim.as_ref(), &commands.shared)?;
            restarted.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(SDP_FRAGMENT));
            set_tag(&mut restarted, &tag);
            Ok(restarted)
        }
        Err(IceRestartRefused::NoSession) => refuse(StatusCode::NOT_FOUND, "no such session"),
        Err(IceRestartRefused::OtherTag) => {
            refuse(StatusCode::PRECONDITION_FAILED, "the session has another ETag")
        }
        Err(IceRestartRefused::Busy) => {
            Err(RequestRefused::for_now("the session connects, or there was a restart a moment ago"))
        }
        Err(IceRestartRefused::Invalid(text)) => refuse(StatusCode::BAD_REQUEST, &text),
    }
}

/// Sends a command that has a reply to the sessions' thread, and waits for the reply.
fn ask<T>(
    commands: &Commands,
    command: impl FnOnce(SyncSender<T>) -> SenderCommand,
) -> Result<T, RequestRefused> {
    let (reply, replies) = sync_channel(1);
    if !commands.send(command(reply)) {
        return Err(RequestRefused::unavailable());
    }
    replies.recv_timeout(REPLY).map_err(RequestRefused::no_reply)
}

/// Ends the session of a viewer: of the one with the certificate `viewer`, if the request proves one.
fn delete(
    id: String,
    viewer: Option<[u8; FINGERPRINT]>,
    commands: &Commands,
) -> Result<Response<String>, RequestRefused> {
    let (reply, replies) = sync_channel(1);
    let ended = || Ok(text_response(StatusCode::OK, "ended"));
    if !commands.send(SenderCommand::Delete { id, viewer, reply }) {
        // The session has ended with the stream.
        return ended();
    }
    match replies.recv_timeout(REPLY) {
        Ok(true) | Err(RecvTimeoutError::Disconnected) => ended(),
        Ok(false) => Err(RequestRefused::new(StatusCode::NOT_FOUND, "no such session")),
        Err(error) => Err(RequestRefused::no_reply(error)),
    }
}
