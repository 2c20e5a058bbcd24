//! Checks that a component's bytes are the intended ones and have a trusted signature.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use pointsman_crds::policy::plugin::PluginSignature;
use pointsman_sandbox::{builtin, digest::Digest, text::printable_line};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// The extension of key files.
const EXTENSION: &str = "pub";

/// The maximum size of a key file; no form of a key is longer.
const MAX_KEY_FILE_BYTES: usize = 4 << 10;

/// The bytes before the 32 bytes of an Ed25519 key in DER (RFC 8410). They are the same for all keys.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

/// The trusted keys, and whether a signature is required.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The keys, by their name in a PolicyPlugin.
    pub keys: BTreeMap<String, VerifyingKey>,
    /// Whether components without a signature are refused.
    pub required: bool,
}

/// Why bytes aren't trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// Only other bytes are accepted.
    #[error(
        "the component's digest is {found}, and spec.digest accepts {pinned} alone: if the new bytes are meant, set spec.digest to theirs, and otherwise restore the old ones"
    )]
    DigestMismatch {
        /// The digest in spec.digest.
        pinned: String,
        /// The bytes' digest.
        found: Box<Digest>,
    },
    /// A signature is required, and there is none.
    #[error("the host accepts signed components alone, and spec.signature is missing: {0}")]
    SignatureRequired(String),
    /// There is a signature but no trusted key.
    #[error(
        "spec.signature can't be checked, because the host trusts no key: put the public key into its directory of trusted keys as \
         <name>.pub, or remove spec.signature"
    )]
    NoTrustedKeys,
    /// The key isn't trusted.
    #[error("spec.signature is by the key {name:?}, which the host doesn't trust; it trusts {known}")]
    UnknownKey {
        /// The key's name in the PolicyPlugin.
        name: String,
        /// The trusted keys, as text.
        known: String,
    },
    /// The signature is malformed.
    #[error("spec.signature.ed25519 is not a signature: {0}; write the base64 of 64 bytes")]
    Malformed(String),
    /// The signature is for other bytes or by another key.
    #[error(
        "spec.signature isn't a signature over the component's bytes ({digest}) by {keys}: sign the component itself, uncompressed, with the private key to it"
    )]
    WrongSignature {
        /// The digest of the bytes.
        digest: Box<Digest>,
        /// The keys that were tried, as text.
        keys: String,
    },
}

impl Untrusted {
    /// A CamelCase reason for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::DigestMismatch { .. } => "DigestMismatch",
            Self::SignatureRequired(_) => "SignatureRequired",
            Self::NoTrustedKeys => "NoTrustedKeys",
            Self::UnknownKey { .. } => "UnknownKey",
            Self::Malformed(_) => "MalformedSignature",
            Self::WrongSignature { .. } => "WrongSignature",
        }
    }
}

/// Why the keys can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Something can't be read.
    #[error("{} can't be read: {error}", path.display())]
    Unreadable {
        /// The directory or file.
        path: PathBuf,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// A file has a name that no PolicyPlugin can refer to.
    #[error("{} can't be named by a PolicyPlugin: a key's name has at most 63 letters, digits, '-', '_' and '.', and begins and ends with \
             a letter or digit; rename the file", .0.display())]
    Name(PathBuf),
    /// A file holds no key.
    #[error("{} holds no Ed25519 public key: {why}; write it with openssl pkey -pubout, or as the base64 of its 32 bytes", file.display())]
    NoKey {
        /// The file.
        file: PathBuf,
        /// The problem.
        why: &'static str,
    },
}

impl Trust {
    /// Loads the keys from the files `<name>.pub` of a directory; other files are ignored.
    pub fn load(directory: &Path, required: bool) -> Result<Self, KeyError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            |error| KeyError::Unreadable { path, error }
        };
        let mut keys = BTreeMap::new();
        for entry in fs::read_dir(directory).map_err(unreadable(directory))? {
            let file = entry.map_err(unreadable(directory))?.path();
            // A mounted Secret also has files of the kubelet; their names begin with a dot and don't have this extension.
            if file.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let name = file.file_stem().and_then(|name| name.to_str()).filter(|name| is_name(name));
            let name = name.ok_or_else(|| KeyError::Name(file.clone()))?.to_owned();
            let bytes = fs::read(&file).map_err(unreadable(&file))?;
            let key = key(&bytes).map_err(|why| KeyError::NoKey { file, why })?;
            keys.insert(name, key);
        }
        Ok(Self { keys, required })
    }

    /// Checks a component's unpacked bytes and their digest against the PolicyPlugin and the host's requirements.
    pub fn check(&self, bytes: &[u8], digest: &Digest, pinned: Option<&str>, signature: Option<&PluginSignature>) -> Result<(), Untrusted> {
        if let Some(pinned) = pinned
            && pinned.parse() != Ok(*digest)
        {
            return Err(Untrusted::DigestMismatch { pinned: printable_line(pinned), found: Box::new(*digest) });
        }
        let Some(PluginSignature { key_name, ed25519 }) = signature else {
            // Built-in components of previous releases are as trusted as those of this one, and continue to work until their update is
            // active.
            let free = !self.required || builtin::is_released(digest);
            return if free { Ok(()) } else { Err(Untrusted::SignatureRequired(self.remedy())) };
        };
        // A signature is checked even if none is required: whoever sets one relies on it.
        if self.keys.is_empty() {
            return Err(Untrusted::NoTrustedKeys);
        }
        let tried: Vec<_> = match key_name {
            Some(name) => self.keys.get_key_value(name).into_iter().collect(),
            None => self.keys.iter().collect(),
        };
        if tried.is_empty() {
            return Err(Untrusted::UnknownKey { name: key_name.as_deref().map(printable_line).unwrap_or_default(), known: self.known() });
        }
        let signature = STANDARD.decode(ed25519).map_err(|error| Untrusted::Malformed(error.to_string()))?;
        let signature = Signature::from_slice(&signature).map_err(|_| Untrusted::Malformed(format!("it has {} bytes", signature.len())))?;
        // Strict: reject malleable signatures and weak keys.
        if tried.iter().any(|(_, key)| key.verify_strict(bytes, &signature).is_ok()) {
            return Ok(());
        }
        let keys = match (key_name, tried.len()) {
            (None, 2..) => format!("any of the trusted keys {}", self.known()),
            _ => format!("the key {}", tried.iter().map(|(name, _)| name.as_str()).collect::<String>()),
        };
        Err(Untrusted::WrongSignature { digest: Box::new(*digest), keys })
    }

    /// Whether stored bytes, which were accepted once, may be loaded again. If signatures are required, they are checked again.
    pub fn check_kept(&self, bytes: &[u8], digest: &Digest, signature: Option<&PluginSignature>) -> Result<(), Untrusted> {
        if self.required { self.check(bytes, digest, None, signature) } else { Ok(()) }
    }

    fn known(&self) -> String {
        self.keys.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    fn remedy(&self) -> String {
        if self.keys.is_empty() {
            "put a public key into the host's directory of trusted keys as <name>.pub, sign the component with the private key, and set spec.signature"
                .to_owned()
        } else {
            format!("sign the component with the private key of one of {}, and set spec.signature", self.known())
        }
    }
}

/// The CRD has the same rule.
fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = [name.bytes().next(), name.bytes().last()];
    name.len() <= 63 && name.bytes().all(inner) && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

fn key(file: &[u8]) -> Result<VerifyingKey, &'static str> {
    if file.len() > MAX_KEY_FILE_BYTES {
        return Err("it is far too long");
    }
    let text = std::str::from_utf8(file).map_err(|_| "it is not text")?.trim();
    if text.is_empty() {
        return Err("it is empty");
    }
    let bytes = if text.starts_with("-----BEGIN ") { of_pem(text)? } else { of_base64(text, "it is neither PEM nor base64")? };
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| "it is base64 of another length than 32 bytes")?;
    let key = VerifyingKey::from_bytes(&bytes).map_err(|_| "its bytes are not a point of the curve")?;
    // Under such a key, some signatures are valid for any bytes.
    if key.is_weak() { Err("it is a weak key, which proves nothing") } else { Ok(key) }
}

fn of_base64(text: &str, otherwise: &'static str) -> Result<Vec<u8>, &'static str> {
    STANDARD.decode(text).map_err(|_| otherwise)
}

fn of_pem(text: &str) -> Result<Vec<u8>, &'static str> {
    if text.contains("PRIVATE KEY") {
        return Err("it is a private key: remove it, and replace it if others could read it");
    }
    let body = text.strip_prefix(BEGIN).ok_or("its PEM is not a PUBLIC KEY")?;
    let body = body.strip_suffix(END).ok_or("its PEM doesn't end with the line END PUBLIC KEY, or has more after it")?;
    let der = of_base64(&body.split_ascii_whitespace().collect::<String>(), "its PEM is broken")?;
    match der.strip_prefix(&SPKI) {
        Some(key) if key.len() == 32 => Ok(key.to_vec()),
        _ => Err("it is a key of another algorithm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer, SigningKey};

    const COMPONENT: &[u8] = b"\0asm and so on";

    fn private(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn trusting(names: &[(&str, u8)]) -> Trust {
        let keys = names.iter().map(|&(name, seed)| (name.to_owned(), private(seed).verifying_key())).collect();
        Trust { keys, required: false }
    }

    fn signature(seed: u8, over: &[u8], key_name: Option<&str>) -> PluginSignature {
        PluginSignature { key_name: key_name.map(str::to_owned), ed25519: STANDARD.encode(private(seed).sign(over).to_bytes()) }
    }

    fn check(trust: &Trust, pinned: Option<&str>, signature: Option<&PluginSignature>) -> Result<(), (&'static str, String)> {
        let checked = trust.check(COMPONENT, &Digest::hash(COMPONENT), pinned, signature);
        checked.map_err(|error| (error.reason(), error.to_string()))
    }

    fn refused(trust: &Trust, signature: Option<&PluginSignature>) -> (&'static str, String) {
        check(trust, None, signature).unwrap_err()
    }

    #[test]
    fn without_demands_every_component_is_accepted() {
        assert_eq!(check(&Trust::default(), None, None), Ok(()));
        assert_eq!(check(&trusting(&[("a", 1)]), None, None), Ok(()));
    }

    #[test]
    fn a_pinned_digest_accepts_its_bytes_alone() {
        let trust = Trust::default();
        let digest = Digest::hash(COMPONENT).to_string();
        assert_eq!(check(&trust, Some(&digest), None), Ok(()));
        let other = Digest::hash(b"other").to_string();
        let (reason, sentence) = check(&trust, Some(&other), None).unwrap_err();
        assert_eq!(reason, "DigestMismatch");
        assert!(sentence.contains(&other) && sentence.contains(&digest) && sentence.contains("set spec.digest"), "{sentence}");
        assert_eq!(check(&trust, Some("nonsense"), None).unwrap_err().0, "DigestMismatch");
        // A valid signature doesn't make up for it.
        let signed = signature(1, COMPONENT, None);
        assert_eq!(check(&trusting(&[("a", 1)]), Some(&other), Some(&signed)).unwrap_err().0, "DigestMismatch");
    }

    #[test]
    fn a_signature_by_the_named_key_is_accepted_and_without_a_name_by_any() {
        let trust = Trust { required: true, ..trusting(&[("a", 1), ("b", 2)]) };
        for (seed, name) in [(1, Some("a")), (2, Some("b")), (1, None), (2, None)] {
            assert_eq!(check(&trust, None, Some(&signature(seed, COMPONENT, name))), Ok(()), "{seed} {name:?}");
        }
    }

    #[test]
    fn a_signature_by_another_key_or_over_other_bytes_is_refused() {
        let trust = trusting(&[("a", 1), ("b", 2)]);
        let (reason, sentence) = refused(&trust, Some(&signature(2, COMPONENT, Some("a"))));
        assert_eq!(reason, "WrongSignature");
        assert!(sentence.contains("by the key a:") && sentence.contains(&Digest::hash(COMPONENT).to_string()), "{sentence}");
        let (reason, sentence) = refused(&trust, Some(&signature(3, COMPONENT, None)));
        assert_eq!(reason, "WrongSignature");
        assert!(sentence.contains("by any of the trusted keys a, b:"), "{sentence}");
        assert_eq!(refused(&trust, Some(&signature(1, b"other", Some("a")))).0, "WrongSignature");
        assert_eq!(refused(&trust, Some(&signature(1, Digest::hash(COMPONENT).to_string().as_bytes(), None))).0, "WrongSignature");
    }

    #[test]
    fn a_key_that_isnt_trusted_is_told_with_those_that_are() {
        let expected = "spec.signature is by the key \"c\", which the host doesn't trust; it trusts a, b";
        let trust = trusting(&[("b", 2), ("a", 1)]);
        assert_eq!(refused(&trust, Some(&signature(1, COMPONENT, Some("c")))), ("UnknownKey", expected.to_owned()));
    }

    #[test]
    fn a_missing_signature_is_refused_where_one_is_required() {
        let (reason, sentence) = refused(&Trust { required: true, ..trusting(&[("a", 1), ("b", 2)]) }, None);
        assert_eq!(reason, "SignatureRequired");
        assert!(sentence.ends_with("sign the component with the private key of one of a, b, and set spec.signature"), "{sentence}");
        let (reason, sentence) = refused(&Trust { required: true, ..Trust::default() }, None);
        assert_eq!(reason, "SignatureRequired");
        assert!(sentence.contains("put a public key into the host's directory of trusted keys"), "{sentence}");
    }

    #[test]
    fn a_built_in_policy_of_a_former_release_needs_no_signature() {
        let trust = Trust { required: true, ..Trust::default() };
        let (former, what) = builtin::released().next().unwrap();
        assert_eq!(trust.check_kept(COMPONENT, former, None), Ok(()), "{what}");
        assert!(trust.check_kept(COMPONENT, &Digest::hash(COMPONENT), None).is_err());
        let signed = signature(1, COMPONENT, None);
        assert!(trust.check_kept(COMPONENT, former, Some(&signed)).is_err(), "a wrong signature is none");
    }

    #[test]
    fn a_signature_that_cant_be_checked_isnt_passed_over() {
        for required in [false, true] {
            let trust = Trust { required, ..Trust::default() };
            assert_eq!(refused(&trust, Some(&signature(1, COMPONENT, None))).0, "NoTrustedKeys");
            assert_eq!(refused(&trust, Some(&signature(1, COMPONENT, Some("a")))).0, "NoTrustedKeys");
        }
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        let trust = trusting(&[("a", 1)]);
        for wrong in ["", "!", "AAAA", &STANDARD.encode([0; 63]), &STANDARD.encode([0; 65])] {
            let wrong = PluginSignature { key_name: None, ed25519: wrong.to_owned() };
            assert_eq!(refused(&trust, Some(&wrong)).0, "MalformedSignature", "{wrong:?}");
        }
        for wrong in [[0; 64], [255; 64]] {
            let wrong = PluginSignature { key_name: None, ed25519: STANDARD.encode(wrong) };
            assert!(check(&trust, None, Some(&wrong)).is_err(), "{wrong:?}");
        }
    }

    /// The output of `openssl pkey -pubout` for the key of RFC 8032's first test.
    const PEM: &str =
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
    const BASE64: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

    #[test]
    fn a_key_is_read_from_pem_and_from_base64() {
        let expected = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        for text in [PEM, BASE64, &PEM.replace('\n', "\r\n"), &format!("\n{BASE64}\n")] {
            assert_eq!(Digest(*key(text.as_bytes()).unwrap().as_bytes()).hex(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_key_is_told_for_what_it_is() {
        let ec = format!("{BEGIN}\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n{END}");
        let weak = STANDARD.encode([0; 32]);
        let cases = [
            ("", "it is empty"),
            ("hello", "it is neither PEM nor base64"),
            ("aGVsbG8=", "it is base64 of another length than 32 bytes"),
            (&"A".repeat(9000), "it is far too long"),
            (&PEM.replace("PUBLIC", "PRIVATE"), "it is a private key: remove it, and replace it if others could read it"),
            (&PEM.replace("PUBLIC KEY", "CERTIFICATE"), "its PEM is not a PUBLIC KEY"),
            (&PEM.replace("END", "AND"), "its PEM doesn't end with the line END PUBLIC KEY, or has more after it"),
            (&format!("{PEM}{PEM}"), "its PEM is broken"),
            (&ec, "it is a key of another algorithm"),
            (&weak, "it is a weak key, which proves nothing"),
        ];
        for (text, expected) in cases {
            assert_eq!(key(text.as_bytes()).unwrap_err(), expected, "{text}");
        }
        assert_eq!(key(&[0xff, 0xfe]).unwrap_err(), "it is not text");
    }

    /// A folder that is deleted with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("pointsman-trust-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn the_keys_of_a_directory_are_called_as_their_files() {
        let folder = Folder::new("keys");
        fs::write(folder.0.join("release-2026.pub"), PEM).unwrap();
        fs::write(folder.0.join("ci.pub"), BASE64).unwrap();
        fs::write(folder.0.join("README"), "not a key").unwrap();
        fs::create_dir(folder.0.join("..2026_11_21")).unwrap();
        let trust = Trust::load(&folder.0, true).unwrap();
        assert!(trust.required);
        assert_eq!(trust.known(), "ci, release-2026");
    }

    #[test]
    fn a_file_that_is_no_key_is_named_and_none_is_loaded() {
        let folder = Folder::new("wrong");
        fs::write(folder.0.join("good.pub"), PEM).unwrap();
        fs::write(folder.0.join("bad.pub"), "hello").unwrap();
        let error = Trust::load(&folder.0, false).unwrap_err().to_string();
        assert!(error.contains("bad.pub holds no Ed25519 public key: it is neither PEM nor base64;"), "{error}");
        fs::rename(folder.0.join("bad.pub"), folder.0.join("-.pub")).unwrap();
        let error = Trust::load(&folder.0, false).unwrap_err().to_string();
        assert!(error.contains("-.pub can't be named"), "{error}");
        let gone = folder.0.join("gone");
        let error = Trust::load(&gone, false).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{} can't be read", gone.display())), "{error}");
    }
}
