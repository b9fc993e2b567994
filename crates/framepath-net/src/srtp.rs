// SPDX-License-Identifier: MIT OR Apache-2.0
//! SRTP and SRTCP (RFC 3711) with the suite AES_CM_128_HMAC_SHA1_80 and a key that both ends know: encryption and authentication of
//! the packets of a sender. OpenSSL has the primitives. `docs/decisions/0032-rtp.md` says why no library does the rest.

use data_encoding::BASE64;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rand::rand_bytes;
use openssl::sign::Signer;

/// Sizes of the master key, of the salt and of an authentication tag, bytes.
const KEY: usize = 16;
const SALT: usize = 14;
const TAG: usize = 10;
/// Size of the head of an RTCP packet that is not encrypted, bytes.
const RTCP_HEAD: usize = 8;
/// Bit of an SRTCP index that says that the packet is encrypted.
const ENCRYPTED: u32 = 1 << 31;

/// Master key and salt, which both ends know.
#[derive(Clone, PartialEq, Eq)]
pub struct SrtpKey([u8; KEY + SALT]);

impl std::fmt::Debug for SrtpKey {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SrtpKey(..)")
    }
}

impl SrtpKey {
    /// Makes a random key.
    ///
    /// # Errors
    /// OpenSSL gets no random bits from the kernel.
    pub fn random() -> Result<SrtpKey, ErrorStack> {
        let mut bytes = [0; KEY + SALT];
        rand_bytes(&mut bytes)?;
        Ok(SrtpKey(bytes))
    }

    /// Reads a key from its 40 characters in Base64: 16 bytes of the key, and 14 of the salt. `None` if it is none.
    pub fn from_base64(text: &str) -> Option<SrtpKey> {
        let bytes = BASE64.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(SrtpKey)
    }

    /// Returns the key in Base64.
    pub fn to_base64(&self) -> String {
        BASE64.encode(&self.0)
    }

    /// Returns `size` bytes that the label selects (RFC 3711, 4.3).
    fn derive(&self, label: u8, size: usize) -> Result<Vec<u8>, ErrorStack> {
        let (key, salt) = self.0.split_at(KEY);
        let mut iv = [0; 16];
        iv[..SALT].copy_from_slice(salt);
        iv[7] ^= label;
        let mut bytes = vec![0; size];
        Keystream::new(key)?.apply(&iv, &mut bytes)?;
        Ok(bytes)
    }
}

/// AES in counter mode with one key.
struct Keystream(CipherCtx);

impl Keystream {
    fn new(key: &[u8]) -> Result<Keystream, ErrorStack> {
        let mut context = CipherCtx::new()?;
        context.encrypt_init(Some(Cipher::aes_128_ctr()), Some(key), None)?;
        Ok(Keystream(context))
    }

    /// Encrypts `bytes`.
    fn apply(&mut self, iv: &[u8; 16], bytes: &mut [u8]) -> Result<(), ErrorStack> {
        self.0.encrypt_init(None, None, Some(iv))?;
        // The output is as long as the input; an empty one is refused.
        if !bytes.is_empty() {
            let size = bytes.len();
            self.0.cipher_update_inplace(bytes, size)?;
        }
        Ok(())
    }
}

/// Keys of RTP or of RTCP, which are derived from the master key.
struct SessionKeys {
    keystream: Keystream,
    salt: Vec<u8>,
    authentication: PKey<Private>,
}

impl SessionKeys {
    /// Derives the keys; `first_label` is 0 for RTP and 3 for RTCP.
    fn new(key: &SrtpKey, first_label: u8) -> Result<SessionKeys, ErrorStack> {
        Ok(SessionKeys {
            keystream: Keystream::new(&key.derive(first_label, KEY)?)?,
            authentication: PKey::hmac(&key.derive(first_label + 1, 20)?)?,
            salt: key.derive(first_label + 2, SALT)?,
        })
    }

    /// Encrypts the part of a packet with this source and index, 48 bits.
    fn apply(&mut self, ssrc: u32, index: u64, bytes: &mut [u8]) -> Result<(), ErrorStack> {
        let mut iv = [0; 16];
        iv[..SALT].copy_from_slice(&self.salt);
        let mixed = u128::from(ssrc) << 64 | u128::from(index) << 16;
        for (byte, other) in iv.iter_mut().zip(mixed.to_be_bytes()) {
            *byte ^= other;
        }
        self.keystream.apply(&iv, bytes)
    }

    /// Returns the tag of a packet, behind which `end` is authenticated, too.
    fn tag(&self, packet: &[u8], end: &[u8]) -> Result<[u8; TAG], ErrorStack> {
        let mut signer = Signer::new(MessageDigest::sha1(), &self.authentication)?;
        signer.update(packet)?;
        signer.update(end)?;
        let mut whole = [0; 20];
        signer.sign(&mut whole)?;
        let mut tag = [0; TAG];
        tag.copy_from_slice(&whole[..TAG]);
        Ok(tag)
    }
}

/// End that encrypts packets of one source.
pub(crate) struct SrtpSender {
    rtp: SessionKeys,
    rtcp: SessionKeys,
    /// Index of the next RTCP packet.
    rtcp_index: u32,
}

impl SrtpSender {
    pub(crate) fn new(key: &SrtpKey) -> Result<SrtpSender, ErrorStack> {
        Ok(SrtpSender { rtp: SessionKeys::new(key, 0)?, rtcp: SessionKeys::new(key, 3)?, rtcp_index: 0 })
    }

    /// Encrypts an RTP packet with this sequence number, which never wraps, and a payload from the byte `payload` on.
    pub(crate) fn protect(
        &mut self,
        packet: &mut Vec<u8>,
        seq: u64,
        payload: usize,
    ) -> Result<(), ErrorStack> {
        let ssrc = word(packet, 8);
        self.rtp.apply(ssrc, seq, &mut packet[payload..])?;
        let tag = self.rtp.tag(packet, &((seq >> 16) as u32).to_be_bytes())?;
        packet.extend(tag);
        Ok(())
    }

    /// Encrypts an RTCP packet.
    pub(crate) fn protect_rtcp(&mut self, packet: &mut Vec<u8>) -> Result<(), ErrorStack> {
        let index = self.rtcp_index;
        self.rtcp_index = (index + 1) & !ENCRYPTED;
        let ssrc = word(packet, 4);
        self.rtcp.apply(ssrc, index.into(), &mut packet[RTCP_HEAD..])?;
        packet.extend((index | ENCRYPTED).to_be_bytes());
        let tag = self.rtcp.tag(packet, &[])?;
        packet.extend(tag);
        Ok(())
    }
}

fn word(packet: &[u8], at: usize) -> u32 {
    packet.get(at..at + 4).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXUPPER;

    use super::*;

    fn key(hexadecimal: &str) -> SrtpKey {
        SrtpKey(HEXUPPER.decode(hexadecimal.as_bytes()).unwrap().try_into().unwrap())
    }

    #[test]
    fn keys_are_those_of_the_rfc() {
        // RFC 3711, B.3.
        let key = key("E1F97A0D3E018BE0D64FA32C06DE41390EC675AD498AFEEBB6960B3AABE6");
        assert_eq!(HEXUPPER.encode(&key.derive(0, 16).unwrap()), "C61E7A93744F39EE10734AFE3FF7A087");
        assert_eq!(HEXUPPER.encode(&key.derive(2, 14).unwrap()), "30CBBC08863D8C85D49DB34A9AE1");
        assert_eq!(HEXUPPER.encode(&key.derive(1, 20).unwrap()), "CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4");
        assert_eq!(SrtpKey::from_base64(&key.to_base64()), Some(key));
    }

    #[test]
    fn a_keystream_is_that_of_the_rfc() {
        // RFC 3711, B.2.
        let mut keystream =
            Keystream::new(&HEXUPPER.decode(b"2B7E151628AED2A6ABF7158809CF4F3C").unwrap()).unwrap();
        let iv = HEXUPPER.decode(b"F0F1F2F3F4F5F6F7F8F9FAFBFCFD0000").unwrap().try_into().unwrap();
        let mut bytes = [0; 32];
        keystream.apply(&iv, &mut bytes).unwrap();
        assert_eq!(
            HEXUPPER.encode(&bytes),
            "E03EAD0935C95E80E166B16DD92B4EB4D23513162B02D0F72A43A2FE4A5F97AB"
        );
    }

    #[test]
    fn packets_differ_by_their_index_and_are_authenticated_with_the_wraps() {
        let mut sender = SrtpSender::new(&SrtpKey::random().unwrap()).unwrap();
        let plain: Vec<u8> = (0..40).collect();
        let mut protect = |seq: u64| {
            let mut packet = plain.clone();
            sender.protect(&mut packet, seq, 12).unwrap();
            assert_eq!((packet.len(), &packet[..12]), (40 + TAG, &plain[..12]));
            packet
        };
        let (first, again, next, wrapped) = (protect(7), protect(7), protect(8), protect(7 + (1 << 16)));
        assert_eq!(first, again);
        assert!(
            first[12..] != next[12..] && first[12..40] != wrapped[12..40] && first[40..] != wrapped[40..]
        );
    }

    #[test]
    fn reports_are_numbered() {
        let mut sender = SrtpSender::new(&SrtpKey::random().unwrap()).unwrap();
        let report = [0x80, 200, 0, 2, 1, 2, 3, 4, 9, 9, 9, 9];
        for index in [0_u32, 1] {
            let mut packet = report.to_vec();
            sender.protect_rtcp(&mut packet).unwrap();
            assert_eq!((packet.len(), &packet[..RTCP_HEAD]), (12 + 4 + TAG, &report[..RTCP_HEAD]));
            assert_eq!(word(&packet, 12), index | ENCRYPTED);
            assert_ne!(packet[RTCP_HEAD..12], report[RTCP_HEAD..]);
        }
    }
}
