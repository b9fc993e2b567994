// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encryption of SRTP that waits before each packet, to find the time in the ledger.

use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use str0m::crypto::{
    AeadAes128GcmCipher, AeadAes256GcmCipher, Aes128CmSha1_80Cipher, CryptoError, CryptoProvider,
    SrtpProvider, SupportedAeadAes128Gcm, SupportedAeadAes256Gcm, SupportedAes128CmSha1_80,
    from_feature_flags,
};

/// Time that the encryption of one packet waits.
pub(super) const WAIT: Duration = Duration::from_millis(2);

/// Returns a library whose encryption of SRTP waits for [`WAIT`].
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { srtp_provider: &SlowSrtp, ..from_feature_flags() })
}

fn plain() -> &'static dyn SrtpProvider {
    static PLAIN: OnceLock<CryptoProvider> = OnceLock::new();
    PLAIN.get_or_init(from_feature_flags).srtp_provider
}

#[derive(Debug)]
struct SlowSrtp;

impl SrtpProvider for SlowSrtp {
    fn aes_128_cm_sha1_80(&self) -> &'static dyn SupportedAes128CmSha1_80 {
        &SlowSrtp
    }

    fn aead_aes_128_gcm(&self) -> &'static dyn SupportedAeadAes128Gcm {
        &SlowSrtp
    }

    fn aead_aes_256_gcm(&self) -> &'static dyn SupportedAeadAes256Gcm {
        &SlowSrtp
    }

    fn srtp_aes_128_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        plain().srtp_aes_128_ecb_round(key, input, output);
    }

    fn srtp_aes_256_ecb_round(&self, key: &[u8], input: &[u8], output: &mut [u8]) {
        plain().srtp_aes_256_ecb_round(key, input, output);
    }
}

/// Cipher that waits before it encrypts.
#[derive(Debug)]
struct SlowCipher<T: ?Sized>(Box<T>);

impl SupportedAes128CmSha1_80 for SlowSrtp {
    fn create_cipher(&self, key: [u8; 16], encrypt: bool) -> Box<dyn Aes128CmSha1_80Cipher> {
        Box::new(SlowCipher(plain().aes_128_cm_sha1_80().create_cipher(key, encrypt)))
    }
}

impl SupportedAeadAes128Gcm for SlowSrtp {
    fn create_cipher(&self, key: [u8; 16], encrypt: bool) -> Box<dyn AeadAes128GcmCipher> {
        Box::new(SlowCipher(plain().aead_aes_128_gcm().create_cipher(key, encrypt)))
    }
}

impl SupportedAeadAes256Gcm for SlowSrtp {
    fn create_cipher(&self, key: [u8; 32], encrypt: bool) -> Box<dyn AeadAes256GcmCipher> {
        Box::new(SlowCipher(plain().aead_aes_256_gcm().create_cipher(key, encrypt)))
    }
}

impl Aes128CmSha1_80Cipher for SlowCipher<dyn Aes128CmSha1_80Cipher> {
    fn encrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        sleep(WAIT);
        self.0.encrypt(iv, input, output)
    }

    fn decrypt(&mut self, iv: &[u8; 16], input: &[u8], output: &mut [u8]) -> Result<(), CryptoError> {
        self.0.decrypt(iv, input, output)
    }
}

/// Implements one of str0m's two traits of AES-GCM, which differ in the length of the key only.
macro_rules! slow_aes_gcm {
    ($cipher:ident) => {
        impl $cipher for SlowCipher<dyn $cipher> {
            fn encrypt(
                &mut self,
                iv: &[u8; 12],
                aad: &[u8],
                input: &[u8],
                output: &mut [u8],
            ) -> Result<(), CryptoError> {
                sleep(WAIT);
                self.0.encrypt(iv, aad, input, output)
            }

            fn decrypt(
                &mut self,
                iv: &[u8; 12],
                aads: &[&[u8]],
                input: &[u8],
                output: &mut [u8],
            ) -> Result<usize, CryptoError> {
                self.0.decrypt(iv, aads, input, output)
            }
        }
    };
}

slow_aes_gcm!(AeadAes128GcmCipher);
slow_aes_gcm!(AeadAes256GcmCipher);
