// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairing code: one line of text that gives a viewer all it needs to find and trust one sender.
//!
//! The text is base32 (RFC 4648, section 6, without padding) behind `FP1-`, upper case, so that a QR code can hold it in
//! its alphanumeric mode. The bytes are: 1 byte kind of address (4 or 6), 4 or 16 bytes address, 2 bytes port, 32 bytes
//! SHA-256 of the sender's DTLS certificate, 16 bytes token, and the first 2 bytes of the SHA-256 of everything before
//! them, which find typing errors.
//!
//! A viewer that has the code does not send the token. It proves that it knows the token, by an HMAC over
//! both certificates' fingerprints and the request. So an observer of the network learns no token, and an attacker between both ends
//! cannot replace either certificate by one of its own: DTLS then accepts only the two certificates of the proof. A proof that was
//! overheard opens and ends no session: it is of use for the same request only, and that has been made. The sender proves its
//! answer in the same way, so that nobody on the network can change what both ends have agreed on.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sha::sha256;
use openssl::sign::Signer;

/// Bytes of a SHA-256.
pub(crate) const FINGERPRINT: usize = 32;
/// Bytes of a token: 128 random bits.
pub(crate) const TOKEN: usize = 16;
/// Scheme of the header `Authorization` with a proof: the viewer's fingerprint and the proof, both in hexadecimal digits,
/// with a space between them.
pub(crate) const SCHEME: &str = "Framepath-Pairing ";
/// Header of an answer with the sender's proof, in hexadecimal digits.
pub(crate) const ANSWER_PROOF: &str = "framepath-proof";
const PREFIX: &str = "FP1-";
const CHECK: usize = 2;
/// Texts in front of what an HMAC covers, so that it is of no use for anything else.
const OF_REQUEST: &[u8] = b"framepath pairing 1";
const OF_ANSWER: &[u8] = b"framepath answer 1";

/// Address of a sender, the fingerprint of the sender's certificate, and a secret that both peers know.
///
/// `Debug` does not show the token.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode {
    /// Address of the sender's HTTP endpoint.
    pub address: SocketAddr,
    /// SHA-256 of the sender's DTLS certificate in DER.
    pub fingerprint: [u8; FINGERPRINT],
    /// Secret of this pairing.
    pub token: [u8; TOKEN],
}

/// Reason why a text is no pairing code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingError {
    /// The text does not begin like a pairing code of this version.
    #[error("not a pairing code: a code begins with FP1-")]
    Prefix,
    /// A character that base32 does not have, or a length that is no whole code.
    #[error("the pairing code is incomplete or has a wrong character")]
    Text,
    /// The check bytes do not fit.
    #[error("the pairing code has a typing error")]
    Check,
}

/// The part of an HTTP request that a proof covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProvenRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a str,
}

/// Claim of a viewer to have a certificate, as the header `Authorization` has it.
pub(crate) struct PairingClaim {
    pub(crate) viewer: [u8; FINGERPRINT],
    pub(crate) proof: [u8; FINGERPRINT],
}

impl PairingClaim {
    /// Reads the value of a header; `None` if it is no claim.
    pub(crate) fn from_header(value: &[u8]) -> Option<PairingClaim> {
        let rest = value.strip_prefix(SCHEME.as_bytes())?;
        let (viewer, proof) = (rest.get(..FINGERPRINT * 2)?, rest.get(FINGERPRINT * 2 + 1..)?);
        let bytes = |hex: &[u8]| HEXLOWER.decode(hex).ok()?.try_into().ok();
        (rest[FINGERPRINT * 2] == b' ').then_some(())?;
        Some(PairingClaim { viewer: bytes(viewer)?, proof: bytes(proof)? })
    }
}

impl PairingCode {
    /// Reads a code; `None` for a text that does not begin like one.
    ///
    /// # Errors
    /// The text begins like a code, and is none.
    pub(crate) fn from_word(text: &str) -> Result<Option<PairingCode>, PairingError> {
        match text.parse() {
            Ok(code) => Ok(Some(code)),
            Err(PairingError::Prefix) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the value of the header `Authorization` for a request of a viewer with the certificate `viewer`.
    ///
    /// # Errors
    /// As [`proof`](PairingCode::proof).
    pub(crate) fn to_header(
        &self,
        viewer: &[u8; FINGERPRINT],
        request: ProvenRequest<'_>,
    ) -> Result<String, ErrorStack> {
        let proof = self.proof(viewer, request)?;
        Ok(format!("{SCHEME}{} {}", HEXLOWER.encode(viewer), HEXLOWER.encode(&proof)))
    }

    /// Returns true if the claim is proved for this request. Takes the same time for every wrong proof.
    ///
    /// # Errors
    /// As [`proof`](PairingCode::proof).
    pub(crate) fn proves(
        &self,
        claim: &PairingClaim,
        request: ProvenRequest<'_>,
    ) -> Result<bool, ErrorStack> {
        Ok(openssl::memcmp::eq(&claim.proof, &self.proof(&claim.viewer, request)?))
    }

    /// Returns the proof that a viewer with the certificate `viewer` knows the token: the HMAC-SHA256, keyed with the token, of
    /// the sender's and the viewer's fingerprints, and of the SHA-256 of each part of the request.
    ///
    /// # Errors
    /// OpenSSL reports a failure, such as a lack of memory.
    fn proof(
        &self,
        viewer: &[u8; FINGERPRINT],
        request: ProvenRequest<'_>,
    ) -> Result<[u8; FINGERPRINT], ErrorStack> {
        // Of equal length each, so that no two requests give the same bytes.
        let [method, path, body] =
            [request.method, request.path, request.body].map(|part| sha256(part.as_bytes()));
        self.hmac(&[OF_REQUEST, &self.fingerprint, viewer, &method, &path, &body])
    }

    /// Returns the value of the header [`ANSWER_PROOF`] for the answer to a request with this proof: the HMAC-SHA256, keyed with the
    /// token, of the request's proof and of the SHA-256 of the answer's text.
    ///
    /// # Errors
    /// As [`proof`](PairingCode::proof).
    pub(crate) fn answer_header(
        &self,
        request: &[u8; FINGERPRINT],
        answer: &str,
    ) -> Result<String, ErrorStack> {
        Ok(HEXLOWER.encode(&self.hmac(&[OF_ANSWER, request, &sha256(answer.as_bytes())])?))
    }

    /// Returns true if `header` proves that `answer` is the sender's to this request of the viewer with the certificate `viewer`.
    ///
    /// # Errors
    /// As [`proof`](PairingCode::proof).
    pub(crate) fn proves_answer(
        &self,
        header: &[u8],
        (viewer, request): (&[u8; FINGERPRINT], ProvenRequest<'_>),
        answer: &str,
    ) -> Result<bool, ErrorStack> {
        let expected = self.answer_header(&self.proof(viewer, request)?, answer)?;
        Ok(header.len() == expected.len() && openssl::memcmp::eq(header, expected.as_bytes()))
    }

    /// Returns the HMAC-SHA256, keyed with the token, of these parts.
    fn hmac(&self, parts: &[&[u8]]) -> Result<[u8; FINGERPRINT], ErrorStack> {
        let key = PKey::hmac(&self.token)?;
        let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
        for part in parts {
            signer.update(part)?;
        }
        let mut hmac = [0; FINGERPRINT];
        signer.sign(&mut hmac)?;
        Ok(hmac)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + 16 + 2 + FINGERPRINT + TOKEN + CHECK);
        match self.address.ip() {
            IpAddr::V4(ip) => {
                bytes.push(4);
                bytes.extend(ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes.push(6);
                bytes.extend(ip.octets());
            }
        }
        bytes.extend(self.address.port().to_be_bytes());
        bytes.extend(self.fingerprint);
        bytes.extend(self.token);
        let check = sha256(&bytes);
        bytes.extend(&check[..CHECK]);
        bytes
    }
}

impl fmt::Display for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE32_NOPAD.encode(&self.bytes()))
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairingCode").field("address", &self.address).finish_non_exhaustive()
    }
}

impl FromStr for PairingCode {
    type Err = PairingError;

    /// Reads a code. Spaces around it, lower case, and spaces or `-` between its characters are allowed, because people copy codes
    /// from chats and from paper.
    fn from_str(text: &str) -> Result<PairingCode, PairingError> {
        let text = text.trim().to_ascii_uppercase();
        let body = text.strip_prefix(PREFIX).ok_or(PairingError::Prefix)?;
        let body: String = body.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
        let bytes = BASE32_NOPAD.decode(body.as_bytes()).map_err(|_| PairingError::Text)?;
        let (content, check) = bytes.split_last_chunk::<CHECK>().ok_or(PairingError::Text)?;
        if sha256(content)[..CHECK] != check[..] {
            return Err(PairingError::Check);
        }
        code(content).ok_or(PairingError::Text)
    }
}

/// Reads the content in front of the check bytes.
fn code(content: &[u8]) -> Option<PairingCode> {
    let (kind, rest) = content.split_first()?;
    let (ip, rest) = match kind {
        4 => rest.split_first_chunk::<4>().map(|(ip, rest)| (IpAddr::from(*ip), rest))?,
        6 => rest.split_first_chunk::<16>().map(|(ip, rest)| (IpAddr::from(*ip), rest))?,
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let (fingerprint, rest) = rest.split_first_chunk()?;
    let token = rest.try_into().ok()?;
    let address = SocketAddr::new(ip, u16::from_be_bytes(*port));
    Some(PairingCode { address, fingerprint: *fingerprint, token })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POST: ProvenRequest<'_> = ProvenRequest { method: "POST", path: "/whep", body: "an offer" };

    fn sample() -> PairingCode {
        PairingCode {
            address: SocketAddr::from(([192, 168, 1, 5], 8443)),
            fingerprint: std::array::from_fn(|index| index as u8),
            token: [7; TOKEN],
        }
    }

    #[test]
    fn codes_survive_chats_and_paper() {
        let text = sample().to_string();
        assert!(text.starts_with("FP1-ATAKQ"), "{text}");
        let spaced = text.to_lowercase().replace("fp1-", "fp1-\n ") + "\n";
        let grouped: Vec<&str> =
            text.as_bytes()[4..].chunks(5).map(|group| std::str::from_utf8(group).unwrap()).collect();
        for text in [text.clone(), spaced, format!("FP1-{}", grouped.join("-"))] {
            assert_eq!(text.parse(), Ok(sample()), "{text}");
        }
    }

    #[test]
    fn wrong_codes_say_why() {
        let text = sample().to_string();
        assert_eq!("http://localhost/".parse::<PairingCode>(), Err(PairingError::Prefix));
        assert_eq!("FP1-".parse::<PairingCode>(), Err(PairingError::Text));
        assert_eq!(format!("{text}1").parse::<PairingCode>(), Err(PairingError::Text));
        let wrong = if &text[20..21] == "A" { 'B' } else { 'A' };
        let typed = format!("{}{wrong}{}", &text[..20], &text[21..]);
        assert_eq!(typed.parse::<PairingCode>(), Err(PairingError::Check));
        let mut bytes = sample().bytes();
        bytes.truncate(bytes.len() - CHECK);
        bytes[0] = 5;
        let check = sha256(&bytes);
        bytes.extend(&check[..CHECK]);
        assert_eq!(
            format!("FP1-{}", BASE32_NOPAD.encode(&bytes)).parse::<PairingCode>(),
            Err(PairingError::Text)
        );
    }

    #[test]
    fn a_proof_is_of_one_viewer_one_sender_and_one_token() {
        let (code, viewer) = (sample(), [1; FINGERPRINT]);
        let header = code.to_header(&viewer, POST).unwrap();
        let claim = PairingClaim::from_header(header.as_bytes()).unwrap();
        assert_eq!(claim.viewer, viewer);
        assert!(code.proves(&claim, POST).unwrap());
        assert!(!code.proves(&PairingClaim { viewer: [2; FINGERPRINT], ..claim }, POST).unwrap());
        for other in [
            ProvenRequest { method: "DELETE", ..POST },
            ProvenRequest { path: "/whep/", ..POST },
            ProvenRequest { body: "another offer", ..POST },
        ] {
            assert!(!code.proves(&claim, other).unwrap(), "{other:?}");
        }
        for other in [
            PairingCode { fingerprint: [9; FINGERPRINT], ..sample() },
            PairingCode { token: [8; TOKEN], ..sample() },
        ] {
            assert!(!other.proves(&claim, POST).unwrap());
        }
    }

    #[test]
    fn other_headers_are_no_claims() {
        let header = sample().to_header(&[1; FINGERPRINT], POST).unwrap();
        for wrong in [
            &header[1..],
            &header[..header.len() - 1],
            &format!("{header}0"),
            &header.replace(" 01", "_01"),
            "Bearer x",
            "",
        ] {
            assert!(PairingClaim::from_header(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_token_is_not_in_debug_output() {
        assert_eq!(format!("{:?}", sample()), "PairingCode { address: 192.168.1.5:8443, .. }");
    }

    proptest! {
        #[test]
        fn every_code_is_read_back(ip: IpAddr, port: u16, fingerprint: [u8; FINGERPRINT], token: [u8; TOKEN]) {
            let code = PairingCode { address: SocketAddr::new(ip, port), fingerprint, token };
            prop_assert_eq!(code.to_string().parse(), Ok(code));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "FP1-[A-Z2-7]{0,140}") {
            if let Ok(code) = text.parse::<PairingCode>() {
                prop_assert_eq!(code.to_string(), text);
            }
        }
    }
}
