// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of RTP streams for their receivers (SDP, RFC 8866).

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

use crate::access_unit::Coding;

/// Name of the cipher suite of encrypted streams (RFC 4568).
const SUITE: &str = "AES_CM_128_HMAC_SHA1_80";

/// Stream of one video in RTP at one address. [`Display`] writes its session description.
///
/// ```
/// use framepath_model::access_unit::Coding;
/// use framepath_model::session_description::SessionDescription;
///
/// let to = "192.168.1.5:5004".parse()?;
/// let stream = SessionDescription { to, coding: Coding::H264, payload_type: 96, key: None };
/// assert!(stream.to_string().contains("m=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n"));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy)]
pub struct SessionDescription<'a> {
    /// Address and port of the receiver.
    pub to: SocketAddr,
    /// Codec; one without a payload format here is described as H.264.
    pub coding: Coding,
    /// Payload type of the video's packets.
    pub payload_type: u8,
    /// Key of SRTP: 16 bytes of the master key and 14 of the salt, in Base64; `None` for plain RTP.
    pub key: Option<&'a str>,
}

impl Display for SessionDescription<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let SessionDescription { to, coding, payload_type, key } = self;
        let (kind, ip, port) = (if to.is_ipv4() { "IP4" } else { "IP6" }, to.ip(), to.port());
        let (name, has_modes) = match coding {
            Coding::Hevc => ("H265", false),
            Coding::Vp8 => ("VP8", false),
            Coding::Vp9 => ("VP9", false),
            Coding::Av1 => ("AV1", false),
            _ => ("H264", true),
        };
        let profile = if key.is_some() { "RTP/SAVP" } else { "RTP/AVP" };
        write!(f, "v=0\r\no=- 0 0 IN {kind} {ip}\r\ns=framepath\r\nc=IN {kind} {ip}\r\nt=0 0\r\n")?;
        write!(f, "m=video {port} {profile} {payload_type}\r\na=rtpmap:{payload_type} {name}/90000\r\n")?;
        if has_modes {
            write!(f, "a=fmtp:{payload_type} packetization-mode=1\r\n")?;
        }
        if let Some(key) = key {
            write!(f, "a=crypto:1 {SUITE} inline:{key}\r\n")?;
        }
        write!(f, "a=sendonly\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_stream_has_its_key_and_profile() {
        let stream = SessionDescription {
            to: "[::1]:5004".parse().unwrap(),
            coding: Coding::Vp9,
            payload_type: 100,
            key: Some("abc"),
        };
        let expected = "v=0\r\no=- 0 0 IN IP6 ::1\r\ns=framepath\r\nc=IN IP6 ::1\r\nt=0 0\r\nm=video 5004 RTP/SAVP 100\r\n\
                        a=rtpmap:100 VP9/90000\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:abc\r\na=sendonly\r\n";
        assert_eq!(stream.to_string(), expected);
    }
}
