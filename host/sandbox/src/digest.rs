//! Digests of plugins' bytes and of the inputs of decisions.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeMap, fmt, io, ops::Deref, str::FromStr, sync::Arc};

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of bytes.
    pub fn hash(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a value's JSON.
    pub fn of_value(value: &impl Serialize) -> serde_json::Result<Self> {
        let mut hashed = Hashed(Sha256::new());
        serde_json::to_writer(&mut hashed, value)?;
        Ok(Self(hashed.0.finalize().into()))
    }

    /// The digest of other digests, in their order.
    pub fn of_all<'a>(digests: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut hasher = Sha256::new();
        for digest in digests {
            hasher.update(digest.0);
        }
        Self(hasher.finalize().into())
    }

    /// The hexadecimal digits without a prefix.
    pub fn hex(&self) -> String {
        self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
    }

    /// The first 12 digits: enough to distinguish a few objects with the same name.
    pub fn short(&self) -> String {
        self.hex().chars().take(12).collect()
    }
}

/// The same value with sorted keys in all objects, so that equal values have equal digests.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            fields.into_iter().map(|(key, value)| (key.clone(), value)).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

struct Hashed(Sha256);

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that isn't a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest: write sha256: and 64 hexadecimal digits")]
pub struct NoDigest(String);

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let wrong = || NoDigest(text.to_owned());
        let hex = text
            .strip_prefix("sha256:")
            .filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .ok_or_else(wrong)?;
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// A value that many decisions share, with its digest, which is computed once.
#[derive(Clone, Debug)]
pub struct Digested<T> {
    value: Arc<T>,
    digest: Digest,
}

impl<T: Serialize> Digested<T> {
    /// Computes the digest.
    pub fn new(value: T) -> serde_json::Result<Self> {
        Ok(Self { digest: Digest::of_value(&value)?, value: Arc::new(value) })
    }
}

impl<T: Default + Serialize> Default for Digested<T> {
    fn default() -> Self {
        let value = T::default();
        // A value that can't be serialised gets the digest zero.
        Self { digest: Digest::of_value(&value).unwrap_or(Digest([0; 32])), value: Arc::new(value) }
    }
}

impl<T> Digested<T> {
    /// The digest of the value.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl<T> Deref for Digested<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> PartialEq for Digested<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<T: Serialize> Serialize for Digested<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(to)
    }
}

impl<'de, T: Serialize + Deserialize<'de>> Deserialize<'de> for Digested<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(T::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = Digest::hash(b"abc");
        assert_eq!(digest.to_string(), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        let long = format!("sha256:{}", "é".repeat(32));
        for wrong in ["", "sha256:", "ba78", "sha256:+a7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", &long] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_is_the_same_whatever_the_order_of_its_keys() {
        let of = |text: &str| sorted(&serde_json::from_str(text).unwrap()).to_string();
        assert_eq!(of(r#"{"b": [{"d": 1, "c": 2}], "a": null}"#), r#"{"a":null,"b":[{"c":2,"d":1}]}"#);
    }

    #[test]
    fn equal_values_have_equal_digests() {
        let digested = |value: &str| Digested::new(value.to_owned()).unwrap();
        assert_eq!(digested("a"), digested("a"));
        assert_ne!(digested("a"), digested("b"));
        assert_eq!(serde_json::from_str::<Digested<String>>("\"a\"").unwrap(), digested("a"));
    }
}
