//! The secret key of a store, which authenticates the claims and leases that it gives out.
//!
//! A claim names its job and its fence, and a lease names its reader and how far it was led. All of that is public or
//! easily guessed, so each text ends with a message authentication code that only holders of the key can compute. The
//! key is random, belongs to one store, and never leaves the nodes and the functions of that store.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// Length of the key in bytes.
pub const STORE_KEY_BYTES: usize = 32;
/// Length of a code in bytes: HMAC-SHA-256, truncated to 128 bits.
const CODE_BYTES: usize = 16;
/// Length of a code as text: hexadecimal digits in lower case.
pub const CODE_DIGITS: usize = 2 * CODE_BYTES;

/// The secret key of a store.
#[derive(Clone)]
pub struct StoreKey([u8; STORE_KEY_BYTES]);

impl StoreKey {
    /// The key with these bytes.
    pub fn new(bytes: [u8; STORE_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The key that a store keeps; none if its length is wrong.
    pub fn stored(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    fn hmac(&self, message: &str) -> Hmac<Sha256> {
        let mut hmac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        hmac.update(message.as_bytes());
        hmac
    }

    /// The code of a message.
    pub fn code(&self, message: &str) -> String {
        let digest: [u8; 32] = self.hmac(message).finalize().into_bytes().into();
        digest[..CODE_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether this is the code of the message. Takes the same time wherever the two differ.
    pub fn verifies(&self, message: &str, code: &str) -> bool {
        let Some(code) = bytes_of(code) else { return false };
        code.len() == CODE_BYTES && self.hmac(message).verify_truncated_left(&code).is_ok()
    }
}

/// The bytes of a text of lower-case hexadecimal digits; none if it is something else.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
        _ => None,
    });
    pairs.collect()
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HMAC pads a short key with zeros, so the key of the test case may be given in 32 bytes.
    #[test]
    fn code_is_hmac_sha_256() {
        let mut key = [0; STORE_KEY_BYTES];
        key[..4].copy_from_slice(b"Jefe");
        let code = StoreKey::new(key).code("what do ya want for nothing?");
        assert_eq!(code, "5bdcc146bf60754e6a042426089575c7", "test case 2 of RFC 4231, truncated");
    }

    #[test]
    fn only_the_code_of_the_message_under_the_key_verifies() {
        let (key, other) = (StoreKey::new([1; STORE_KEY_BYTES]), StoreKey::new([2; STORE_KEY_BYTES]));
        let code = key.code("claim-1-x");
        assert!(key.verifies("claim-1-x", &code));
        assert!(!key.verifies("claim-2-x", &code) && !other.verifies("claim-1-x", &code));
        for bad in ["", &code[2..], &code[1..], &code.to_uppercase(), &format!("{code}00"), &"g".repeat(CODE_DIGITS)] {
            assert!(!key.verifies("claim-1-x", bad), "{bad}");
        }
        assert!(!format!("{key:?}").contains('1'));
    }
}
