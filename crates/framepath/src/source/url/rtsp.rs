// SPDX-License-Identifier: MIT OR Apache-2.0
//! `url rtsp://...`: video of an RTSP server.
//!
//! A worker demuxes the stream. It cannot read /etc/hosts or /etc/resolv.conf, so this process looks the server's
//! name up, and the worker gets a URL with an address.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use framepath_model::path::Hop;
use framepath_model::wire::{NETWORK_TEXT_BYTES, NetworkTransport};
use framepath_os::process::signal;

use super::live::Live;
use crate::element::HopPlace;
use crate::error::StageError;

/// Port of RTSP if the URL has none.
const PORT: u16 = 554;
/// Maximum number of addresses of a server's name that are tried.
const MOST_ADDRESSES: usize = 4;
/// Interval of checks for a signal or a stop request while a name is looked up.
const INTERVAL: Duration = Duration::from_millis(100);

/// Parts of an RTSP URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RtspUrl {
    /// `user:password@`, or empty.
    user: String,
    /// Name or address of the server, without brackets.
    host: String,
    port: u16,
    /// `/stream?query`, or empty.
    path: String,
}

impl RtspUrl {
    /// Parses `url`.
    ///
    /// # Errors
    /// A text that says what is wrong.
    fn parse(url: &str) -> Result<RtspUrl, String> {
        let rest = url.split_once("://").map(|(_, rest)| rest).unwrap_or_default();
        if url.len() > NETWORK_TEXT_BYTES as usize / 2 {
            return Err(format!(
                "the URL has {} bytes, at most {} are supported",
                url.len(),
                NETWORK_TEXT_BYTES / 2
            ));
        }
        if let Some(wrong) = rest.chars().find(|c| c.is_control() || c.is_whitespace()) {
            return Err(format!(
                "the URL contains the character {wrong:?}; write it in its %-form, as in %20"
            ));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // A password may contain `@`; a host cannot.
        let (user, server) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (host, port) = match server.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => server.rsplit_once(':').map_or((server, None), |(host, port)| (host, Some(port))),
        };
        let wrong_port = |port: &str| format!("the port `{port}` is not a number from 1 to 65535");
        let port = match port {
            None | Some("") => PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong_port(port))?,
        };
        if host.is_empty() {
            return Err("the URL has no server; expected `rtsp://SERVER[:PORT]/PATH`".to_owned());
        }
        let [user, host, path] = [user, host, path].map(str::to_owned);
        Ok(RtspUrl { user, host, port, path })
    }

    /// Returns the URL with `address` in place of the server's name.
    fn at(&self, address: SocketAddr) -> String {
        format!("rtsp://{}{address}{}", self.user, self.path)
    }

    /// Returns the addresses of the server, at most [`MOST_ADDRESSES`]; none after a signal or a stop
    /// request.
    ///
    /// # Errors
    /// The name is unknown, or cannot be looked up.
    fn addresses(&self) -> Result<Vec<SocketAddr>, StageError> {
        let (answer, looked_up) = sync_channel(1);
        let server = (self.host.clone(), self.port);
        let look_up = move || {
            let addresses = server.to_socket_addrs().map(|all| all.take(MOST_ADDRESSES).collect());
            // The other end is gone after a signal or a stop request.
            let _ = answer.send(addresses);
        };
        let failed = || StageError::io(format!("look up the server {}", self.host));
        // A thread of its own, because the C library's call cannot be canceled.
        std::thread::Builder::new().name("fp-look-up".to_owned()).spawn(look_up).map_err(failed())?;
        loop {
            match looked_up.recv_timeout(INTERVAL) {
                Ok(addresses) => return addresses.map_err(failed()),
                Err(RecvTimeoutError::Timeout) if !signal::interrupted() => {}
                Err(_) => return Ok(Vec::new()),
            }
        }
    }
}

/// Makes the source of an RTSP URL.
///
/// # Errors
/// The URL or an option is invalid; the server cannot be found or reached, refuses the stream or has no video;
/// or a signal or a stop request has ended the wait.
pub(super) fn make(hop: &Hop, place: &HopPlace<'_>) -> Result<Live, StageError> {
    let url = RtspUrl::parse(hop.text("url")).map_err(StageError::Option)?;
    let transport = match hop.choice("transport") {
        "udp" => NetworkTransport::RtspUdp,
        _ => NetworkTransport::RtspTcp,
    };
    let port = url.port;
    let texts =
        move || Ok(url.addresses()?.into_iter().map(|address| url.at(address).into_bytes()).collect());
    Live::new(hop, hop, place, transport, Some(port), Box::new(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_put_together_with_an_address() {
        let address = "[::1]:8554".parse().unwrap();
        for (url, user, host, port, put) in [
            ("rtsp://camera/a?b=1", "", "camera", 554, "rtsp://[::1]:8554/a?b=1"),
            ("rtsp://camera:8554", "", "camera", 8554, "rtsp://[::1]:8554"),
            ("rtsp://u:p@ss@[2001:db8::7]:9/", "u:p@ss@", "2001:db8::7", 9, "rtsp://u:p@ss@[::1]:8554/"),
            ("RTSP://[::1]/x@y:z", "", "::1", 554, "rtsp://[::1]:8554/x@y:z"),
        ] {
            let parsed = RtspUrl::parse(url).unwrap();
            let RtspUrl { user: u, host: h, port: p, .. } = &parsed;
            assert_eq!((u.as_str(), h.as_str(), *p), (user, host, port), "{url}");
            assert_eq!(parsed.at(address), put);
        }
    }

    #[test]
    fn a_wrong_url_is_an_error_that_names_the_part() {
        let long = format!("rtsp://a/{}", "x".repeat(NETWORK_TEXT_BYTES as usize));
        for (url, part) in [
            ("rtsp://", "no server"),
            ("rtsp://user@/x", "no server"),
            ("rtsp://a:0/", "port `0`"),
            ("rtsp://a:70000/", "port `70000`"),
            ("rtsp://a/b c", "' '"),
            ("rtsp://a/\r\nSETUP", "'\\r'"),
            (long.as_str(), "bytes"),
        ] {
            let error = RtspUrl::parse(url).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
