//! The checksums that sources publish, and how they are computed in one pass over a file.

use crate::text::{hex, is_hex};
use base64::{Engine, prelude::BASE64_STANDARD};
use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest as Crc};
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// What a source publishes of a file's bytes, in lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    Sha256(String),
    /// Git's identity of a file: SHA-1 over `blob`, its length and its bytes.
    GitBlob(String),
    Md5(String),
    Crc32c(String),
}

impl Checksum {
    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "SHA-256",
            Self::GitBlob(_) => "Git digest",
            Self::Md5(_) => "MD5",
            Self::Crc32c(_) => "CRC-32C",
        }
    }

    pub(crate) fn value(&self) -> &str {
        match self {
            Self::Sha256(value) | Self::GitBlob(value) | Self::Md5(value) | Self::Crc32c(value) => value,
        }
    }

    pub(crate) fn sha256(text: &str) -> Option<Self> {
        let text = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
        is_hex(&text, 64).then_some(Self::Sha256(text))
    }

    /// An MD5 or CRC-32C as HTTP headers have it.
    pub(crate) fn from_base64(text: &str, new: fn(String) -> Self, bytes: usize) -> Option<Self> {
        BASE64_STANDARD.decode(text.trim()).ok().filter(|decoded| decoded.len() == bytes).map(|decoded| new(hex(decoded)))
    }
}

/// Computes the SHA-256, and what the source publishes besides.
pub(crate) struct Digests {
    sha256: Sha256,
    other: Other,
}

enum Other {
    None,
    Git(Sha1),
    Md5(Md5),
    Crc(Crc),
}

impl Digests {
    /// All that may be asked of a file of this size with this checksum.
    pub(crate) fn new(published: Option<&Checksum>, size: u64) -> Self {
        let other = match published {
            None | Some(Checksum::Sha256(_)) => Other::None,
            Some(Checksum::GitBlob(_)) => {
                let mut sha1 = Sha1::new();
                sha1.update(format!("blob {size}\0"));
                Other::Git(sha1)
            }
            Some(Checksum::Md5(_)) => Other::Md5(Md5::new()),
            Some(Checksum::Crc32c(_)) => Other::Crc(Crc::new(Crc32Iscsi)),
        };
        Self { sha256: Sha256::new(), other }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        match &mut self.other {
            Other::None => {}
            Other::Git(digest) => digest.update(bytes),
            Other::Md5(digest) => digest.update(bytes),
            Other::Crc(digest) => digest.update(bytes),
        }
    }

    /// The SHA-256, and the value to compare with what is published.
    pub(crate) fn finish(self) -> (String, String) {
        let sha256 = hex(self.sha256.finalize());
        let other = match self.other {
            Other::None => sha256.clone(),
            Other::Git(digest) => hex(digest.finalize()),
            Other::Md5(digest) => hex(digest.finalize()),
            Other::Crc(digest) => format!("{:08x}", digest.finalize()),
        };
        (sha256, other)
    }
}

/// The CRC-32C by which what is on disk is compared with the journal.
pub(crate) struct Extent(Crc);

impl Extent {
    pub(crate) fn new() -> Self {
        Self(Crc::new(Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u32 {
        u32::try_from(self.0.finalize()).unwrap_or(u32::MAX)
    }
}

/// The SHA-256 of a text.
pub(crate) fn sha256_hex(text: impl AsRef<[u8]>) -> String {
    hex(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_has_its_published_test_value() {
        let computed = |checksum: Checksum| {
            let mut digests = Digests::new(Some(&checksum), 9);
            digests.update(b"1234");
            digests.update(b"56789");
            digests.finish().1
        };
        assert_eq!(computed(Checksum::Crc32c(String::new())), "e3069283");
        assert_eq!(computed(Checksum::Md5(String::new())), "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(computed(Checksum::Sha256(String::new())), "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
        // What `printf 123456789 | git hash-object --stdin` prints.
        assert_eq!(computed(Checksum::GitBlob(String::new())), "e2e107ac61ac259b87c544f6e7a4eb03422c6c21");
    }

    #[test]
    fn headers_have_base64() {
        assert_eq!(Checksum::from_base64("4waSgw==", Checksum::Crc32c, 4), Some(Checksum::Crc32c("e3069283".into())));
        assert_eq!(Checksum::from_base64("4waSgw==", Checksum::Md5, 16), None);
    }
}
