// SPDX-License-Identifier: MIT OR Apache-2.0
//! ICE part of a session description, as WHIP and WHEP exchange it while a session runs (RFC 8840, section 9; RFC 9725, section 4.3):
//! further candidates, or the credentials of a restart. Without I/O.

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

/// Media type of a fragment.
pub(crate) const SDP_FRAGMENT: &str = "application/trickle-ice-sdpfrag";
/// Maximum number of candidates in a fragment. str0m keeps all of them.
const MOST_CANDIDATES: usize = 32;
/// Lengths of a name and of a password, bytes (RFC 8839, section 5.4).
const UFRAG: std::ops::RangeInclusive<usize> = 4..=256;
const PASSWORD: std::ops::RangeInclusive<usize> = 22..=256;

/// Name and password by which an end of a session knows the checks of the other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IceCredentials {
    pub(crate) ufrag: String,
    pub(crate) password: String,
}

/// ICE part of a session description with one transport, that of the first media.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IceFragment {
    pub(crate) credentials: Option<IceCredentials>,
    /// Candidates, each as the value of its attribute.
    pub(crate) candidates: Vec<String>,
    /// Lines `m=` and `a=mid:` of the media to which the candidates belong, without the end of the line.
    media: Vec<String>,
    /// True if no further candidates follow.
    is_last: bool,
}

impl IceFragment {
    /// Reads the ICE part of a fragment, or of a whole description. `None` if its credentials are not valid, or there are too many
    /// candidates. Candidates of further media are those of the first one, because all share its transport.
    pub(crate) fn read(text: &str) -> Option<IceFragment> {
        let (mut fragment, mut media) = (IceFragment::default(), 0);
        let (mut ufrag, mut password) = (None, None);
        for line in text.lines() {
            let attribute = |name: &str| line.strip_prefix(name).map(str::to_owned);
            media += usize::from(line.starts_with("m="));
            if media > 1 {
                break;
            }
            if line.starts_with("m=") || line.starts_with("a=mid:") {
                fragment.media.push(line.to_owned());
            }
            ufrag = attribute("a=ice-ufrag:").or(ufrag);
            password = attribute("a=ice-pwd:").or(password);
            fragment.candidates.extend(attribute("a=candidate:"));
            fragment.is_last |= line == "a=end-of-candidates";
        }
        fragment.credentials = match (ufrag, password) {
            (None, None) => None,
            (Some(ufrag), Some(password)) if is_word(&ufrag, UFRAG) && is_word(&password, PASSWORD) => {
                Some(IceCredentials { ufrag, password })
            }
            _ => return None,
        };
        (fragment.candidates.len() <= MOST_CANDIDATES).then_some(fragment)
    }

    /// Returns this fragment without candidates.
    pub(crate) fn without_candidates(self) -> IceFragment {
        IceFragment { candidates: Vec::new(), ..self }
    }

    /// Returns the IP addresses of the candidates, without those that are names.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        // As in `1 1 udp 2130706431 192.0.2.1 9 typ host` (RFC 8839, section 5.1).
        self.candidates.iter().filter_map(|candidate| candidate.split(' ').nth(4)?.parse().ok())
    }

    /// Returns true if the fragment restarts ICE for an end whose description so far is `description`: its credentials are others.
    pub(crate) fn restarts(&self, description: &str) -> bool {
        let known = IceFragment::read(description).and_then(|known| known.credentials);
        self.credentials.is_some() && self.credentials != known
    }

    /// Returns this fragment with one candidate, which is the only one.
    pub(crate) fn with_candidate(self, candidate: String) -> IceFragment {
        IceFragment { candidates: vec![candidate], is_last: true, ..self }
    }

    /// Returns the description with this fragment in the place of its ICE part.
    pub(crate) fn merge_into(&self, description: &str) -> String {
        let (mut merged, mut has_candidates) = (String::with_capacity(description.len()), false);
        for line in description.lines() {
            let replaced = match (&self.credentials, line) {
                (Some(IceCredentials { ufrag, .. }), line) if line.starts_with("a=ice-ufrag:") => {
                    format!("a=ice-ufrag:{ufrag}")
                }
                (Some(IceCredentials { password, .. }), line) if line.starts_with("a=ice-pwd:") => {
                    format!("a=ice-pwd:{password}")
                }
                (_, line) if line.starts_with("a=candidate:") || line == "a=end-of-candidates" => continue,
                (_, line) => line.to_owned(),
            };
            merged.extend([replaced.as_str(), "\r\n"]);
            if line.starts_with("a=mid:") && !std::mem::replace(&mut has_candidates, true) {
                for candidate in &self.candidates {
                    merged.extend(["a=candidate:", candidate, "\r\n"]);
                }
            }
        }
        merged
    }
}

/// Writes the fragment as the body of a request or of an answer.
impl Display for IceFragment {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        if let Some(IceCredentials { ufrag, password }) = &self.credentials {
            write!(to, "a=ice-ufrag:{ufrag}\r\na=ice-pwd:{password}\r\n")?;
        }
        self.media.iter().try_for_each(|line| write!(to, "{line}\r\n"))?;
        self.candidates.iter().try_for_each(|candidate| write!(to, "a=candidate:{candidate}\r\n"))?;
        if self.is_last { write!(to, "a=end-of-candidates\r\n") } else { Ok(()) }
    }
}

/// Returns true if the text has only characters of ICE's names and passwords, and one of these lengths.
fn is_word(text: &str, lengths: std::ops::RangeInclusive<usize>) -> bool {
    let is_of_ice = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    lengths.contains(&text.len()) && text.bytes().all(is_of_ice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\na=group:BUNDLE 0 1\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\n\
                         a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=mid:0\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n\
                         a=end-of-candidates\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=ice-ufrag:abcd\r\n\
                         a=ice-pwd:0123456789012345678901\r\na=mid:1\r\n";

    #[test]
    fn a_restart_replaces_the_ice_part_of_each_media() {
        let restart = IceFragment::read(OFFER).unwrap();
        assert_eq!(restart.candidates, ["1 1 udp 1 192.0.2.1 9 typ host"]);
        assert_eq!(restart.addresses().collect::<Vec<_>>(), [IpAddr::from([192, 0, 2, 1])]);
        assert!(!restart.restarts(OFFER));
        let credentials = IceCredentials { ufrag: "wxyz".to_owned(), password: "x".repeat(22) };
        let restart = IceFragment { credentials: Some(credentials), ..restart };
        let restart = restart.with_candidate("2 1 udp 1 192.0.2.2 9 typ host".to_owned());
        assert!(restart.restarts(OFFER));
        let text = restart.to_string();
        assert_eq!(
            text,
            format!(
                "a=ice-ufrag:wxyz\r\na=ice-pwd:{}\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\n\
                 a=candidate:2 1 udp 1 192.0.2.2 9 typ host\r\na=end-of-candidates\r\n",
                "x".repeat(22)
            )
        );
        assert_eq!(IceFragment::read(&text), Some(restart.clone()));
        let merged = restart.merge_into(OFFER);
        let expected = OFFER
            .replace("abcd", "wxyz")
            .replace("0123456789012345678901", &"x".repeat(22))
            .replace("1 1 udp 1 192.0.2.1", "2 1 udp 1 192.0.2.2")
            .replace("a=end-of-candidates\r\n", "");
        assert_eq!(merged, expected);
    }

    #[test]
    fn a_fragment_without_credentials_has_only_candidates() {
        let text = "m=video 9 RTP/AVP 0\r\na=mid:0\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n";
        let fragment = IceFragment::read(text).unwrap();
        assert_eq!((fragment.credentials.as_ref(), fragment.to_string().as_str()), (None, text));
        assert_eq!(IceFragment::read("garbage"), Some(IceFragment::default()));
    }

    #[test]
    fn invalid_credentials_and_too_many_candidates_are_refused() {
        let of = |ufrag: &str, password: &str| {
            IceFragment::read(&format!("a=ice-ufrag:{ufrag}\r\na=ice-pwd:{password}\r\n"))
        };
        let password = "x".repeat(22);
        assert!(of("abcd", &password).is_some());
        for (ufrag, password) in
            [("abc", password.as_str()), ("abcd", "short"), ("ab d", &password), ("abc\u{e4}", &password)]
        {
            assert_eq!(of(ufrag, password), None, "{ufrag}, {password}");
        }
        assert_eq!(IceFragment::read("a=ice-ufrag:abcd\r\n"), None);
        assert_eq!(of(&"x".repeat(257), &password), None);
        let candidates = |count| IceFragment::read(&"a=candidate:1\r\n".repeat(count));
        assert!(candidates(MOST_CANDIDATES).is_some() && candidates(MOST_CANDIDATES + 1).is_none());
    }
}
