//! Self-signed certificates: a CA, and a leaf that it has signed, as stored. Their renewal is a pure function of the stored state and the
//! time.
//!
//! Every certificate except a CA's is judged as the API server judges it, by verification. For a CA, its creation time is stored, which is
//! also part of its name: so two CAs have different names, and the times needn't be read from the certificates.

use super::{CertificateError, certificates, certified};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio_rustls::rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::CertifiedKey,
};

const DAY: u64 = 24 * 60 * 60;

/// The validity of a leaf, in seconds. It is renewed when a third is left.
const LEAF_LIFE: u64 = 90 * DAY;

/// The validity of a CA, in seconds. Another one is added when a third is left.
const CA_LIFE: u64 = 3650 * DAY;

/// The maximum delay of an API server's clock, in seconds.
const SKEW: u64 = 60 * 60;

/// How long a new CA signs only urgent leaves, in seconds: by then, every API server trusts it.
const MIN_BUNDLE_AGE: u64 = DAY;

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum MadeError {
    /// They can't be generated.
    #[error("a certificate can't be generated: {0}")]
    Make(#[from] rcgen::Error),
    /// The generated certificate can't be used.
    #[error("the generated certificate can't be used: {0}")]
    Use(#[from] CertificateError),
    /// The generated certificate isn't valid for its names.
    #[error("no client would accept the certificate generated for {0}: correct these names, or this machine's clock")]
    Names(String),
}

/// The stored keys and certificates, as PEM; missing ones are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfSignedKeys {
    /// The trusted CAs. The first one signs.
    pub bundle: String,
    /// The key of the first CA.
    pub ca_key: String,
    /// When the first CA was created, in seconds since 1970.
    pub made: u64,
    /// The certificate that clients are shown.
    pub leaf: String,
    /// Its key.
    pub leaf_key: String,
}

impl SelfSignedKeys {
    /// The certificate that clients are shown, if it is valid.
    pub fn certified(&self) -> Result<CertifiedKey, CertificateError> {
        certified(self.leaf.as_bytes(), self.leaf_key.as_bytes())
    }

    /// Whether the CA can sign.
    fn signs(&self, now: u64) -> bool {
        let Ok(bundle) = certificates("ca.crt", self.bundle.as_bytes()) else { return false };
        let Ok(key) = PrivateKeyDer::from_pem_slice(self.ca_key.as_bytes()) else { return false };
        let key_fits = CertifiedKey::from_der(bundle.into_iter().take(1).collect(), key, &ring::default_provider()).is_ok();
        key_fits && now < self.made.saturating_add(CA_LIFE)
    }

    /// Whether clients that trust the bundle accept the leaf for each of the names, at this time.
    fn stands(&self, names: &[String], at: u64) -> bool {
        self.certified().is_ok()
            && certificates("ca.crt", self.bundle.as_bytes())
                .is_ok_and(|roots| names.iter().all(|name| accepted(&self.leaf, &roots, name, at)))
    }

    /// Signs another leaf. The bundle retains the CA that has signed it and the one of the previous leaf, which hosts may present for a
    /// moment longer.
    fn with_leaf(self, names: &[String], now: u64) -> Result<Self, MadeError> {
        let ca_key = KeyPair::from_pem(&self.ca_key)?;
        let issuer = Issuer::new(of_ca(self.made), ca_key);
        let leaf_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("pointsman-webhook".to_owned());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.is_ca = IsCa::ExplicitNoCa;
        (params.not_before, params.not_after) = (time(now.saturating_sub(SKEW)).into(), time(now + LEAF_LIFE).into());
        let leaf = params.signed_by(&leaf_key, &issuer)?.pem();

        let roots = certificates("ca.crt", self.bundle.as_bytes())?;
        let parts = pem_blocks(&self.bundle);
        let former = roots.iter().zip(&parts).enumerate().filter(|(number, (root, _))| {
            // Without the previous leaf, it isn't known which CA has signed it.
            *number == 0 || self.leaf.is_empty() || names.iter().any(|name| accepted(&self.leaf, &[(*root).clone()], name, now))
        });
        let bundle = former.map(|(_, (_, part))| part.as_str()).collect();
        let made = Self { bundle, leaf, leaf_key: leaf_key.serialize_pem(), ..self };
        // Otherwise it would be written, rejected, and generated again, without end.
        if made.stands(names, now) { Ok(made) } else { Err(MadeError::Names(names.join(", "))) }
    }

    /// Adds a new CA in front of the existing ones. The leaf stays: by its renewal, all clients trust the new CA.
    fn with_ca(self, now: u64) -> Result<Self, MadeError> {
        let key = KeyPair::generate()?;
        let bundle = of_ca(now).self_signed(&key)?.pem() + &self.bundle;
        Ok(Self { bundle, ca_key: key.serialize_pem(), made: now, ..self })
    }
}

/// The next stored state; none if it stays unchanged.
pub fn renewed(kept: Option<&SelfSignedKeys>, names: &[String], now: u64) -> Result<Option<SelfSignedKeys>, MadeError> {
    let Some(kept) = kept.filter(|kept| kept.signs(now)) else {
        return SelfSignedKeys::default().with_ca(now)?.with_leaf(names, now).map(Some);
    };
    let settled = now >= kept.made + MIN_BUNDLE_AGE || !kept.stands(names, now + MIN_BUNDLE_AGE);
    let leaf_is_due = settled && !kept.stands(names, now + LEAF_LIFE / 3);
    if now >= kept.made + CA_LIFE / 3 * 2 {
        let kept = kept.clone().with_ca(now)?;
        // A leaf that no client accepts is replaced at once.
        return if kept.stands(names, now) { Ok(Some(kept)) } else { kept.with_leaf(names, now).map(Some) };
    }
    if leaf_is_due { kept.clone().with_leaf(names, now).map(Some) } else { Ok(None) }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn common_name(name: String) -> DistinguishedName {
    let mut whole = DistinguishedName::new();
    whole.push(DnType::CommonName, name);
    whole
}

fn of_ca(made: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(format!("pointsman-webhook-ca-{made}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (params.not_before, params.not_after) = (time(made.saturating_sub(SKEW)).into(), time(made + CA_LIFE).into());
    params
}

/// Whether a client that trusts these CAs accepts a leaf for a name.
pub fn accepted(leaf: &str, roots: &[CertificateDer<'static>], name: &str, at: u64) -> bool {
    let Ok(chain) = certificates("tls.crt", leaf.as_bytes()) else { return false };
    let [leaf, intermediates @ ..] = &chain[..] else { return false };
    let Ok(name) = ServerName::try_from(name) else { return false };
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::new(ring::default_provider())).build();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
    verifier.is_ok_and(|verifier| verifier.verify_server_cert(leaf, intermediates, &name, &[], at).is_ok())
}

/// The certificates of a bundle, with their original text.
fn pem_blocks(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.split_inclusive(END).filter(|block| block.ends_with(END)).map(|block| format!("{}\n", block.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn names() -> Vec<String> {
        vec!["pointsman-webhook.pointsman-system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    fn renewed_at(kept: Option<&SelfSignedKeys>, now: u64) -> Option<SelfSignedKeys> {
        renewed(kept, &names(), now).unwrap()
    }

    fn stands(kept: &SelfSignedKeys, bundle: &str, at: u64) -> bool {
        SelfSignedKeys { bundle: bundle.to_owned(), ..kept.clone() }.stands(&names(), at)
    }

    #[test]
    fn what_is_made_is_taken_for_all_names_by_those_who_trust_its_ca_and_for_no_other() {
        let (made, other) = (renewed_at(None, NOW).unwrap(), renewed_at(None, NOW).unwrap());
        assert!(stands(&made, &made.bundle, NOW) && !stands(&made, &other.bundle, NOW));
        assert!(!made.stands(&["elsewhere.svc".to_owned()], NOW));
        assert!(!stands(&made, &made.bundle, NOW + LEAF_LIFE + 1));
        // A slow clock.
        assert!(stands(&made, &made.bundle, NOW - SKEW / 2));
    }

    #[test]
    fn for_names_that_no_certificate_can_have_nothing_is_made() {
        for name in ["pointsman-webhook.pointsman-system.svc.", "not a name", "https://webhook", ""] {
            let said = renewed(None, &[name.to_owned()], NOW).unwrap_err().to_string();
            assert!(said.contains("a certificate can't be generated") || said.contains(name), "{said}");
        }
    }

    #[test]
    fn a_leaf_is_renewed_when_a_third_of_its_life_is_left_and_not_before() {
        let made = renewed_at(None, NOW).unwrap();
        assert_eq!(renewed_at(Some(&made), NOW + LEAF_LIFE / 3 * 2 - DAY), None);
        let at = NOW + LEAF_LIFE / 3 * 2 + DAY;
        let renewed = renewed_at(Some(&made), at).unwrap();
        assert!(renewed.leaf != made.leaf && renewed.bundle == made.bundle && renewed.ca_key == made.ca_key);
        assert_eq!(renewed_at(Some(&renewed), at), None);
    }

    #[test]
    fn a_leaf_that_is_missing_broken_or_for_other_names_is_made_anew_by_the_same_ca() {
        let made = renewed_at(None, NOW).unwrap();
        let other = renewed_at(None, NOW).unwrap();
        let broken = [
            SelfSignedKeys { leaf: String::new(), leaf_key: String::new(), ..made.clone() },
            SelfSignedKeys { leaf: "broken".to_owned(), ..made.clone() },
            SelfSignedKeys { leaf_key: other.leaf_key, ..made.clone() },
            renewed(None, &["elsewhere.svc".to_owned()], NOW).unwrap().unwrap(),
        ];
        for kept in broken {
            let mended = renewed_at(Some(&kept), NOW).unwrap();
            assert_eq!((&mended.bundle, &mended.ca_key), (&kept.bundle, &kept.ca_key));
            assert!(stands(&mended, &mended.bundle, NOW));
        }
    }

    #[test]
    fn a_ca_that_cannot_sign_is_replaced_at_once() {
        let made = renewed_at(None, NOW).unwrap();
        let other = renewed_at(None, NOW).unwrap();
        for kept in [
            SelfSignedKeys { ca_key: String::new(), ..made.clone() },
            SelfSignedKeys { ca_key: other.ca_key, ..made.clone() },
            SelfSignedKeys { bundle: "broken".to_owned(), ..made.clone() },
            SelfSignedKeys { made: NOW - CA_LIFE, ..made.clone() },
        ] {
            let anew = renewed_at(Some(&kept), NOW).unwrap();
            assert!(anew.bundle != made.bundle && stands(&anew, &anew.bundle, NOW));
        }
    }

    #[test]
    fn a_new_ca_signs_nothing_that_can_wait_until_it_is_known() {
        let made = renewed_at(None, NOW).unwrap();
        let at = NOW + LEAF_LIFE / 3 * 2 + DAY;
        let both = made.with_ca(at).unwrap();
        assert_eq!(renewed_at(Some(&both), at + MIN_BUNDLE_AGE / 2), None);
        let signed = renewed_at(Some(&both), at + MIN_BUNDLE_AGE).unwrap();
        assert!(signed.leaf != both.leaf && stands(&signed, &both.bundle, at + MIN_BUNDLE_AGE));
        let lost = SelfSignedKeys { leaf: String::new(), ..both };
        assert!(renewed_at(Some(&lost), at).is_some_and(|mended| pem_blocks(&mended.bundle).len() == 2));
    }

    #[test]
    fn no_client_ever_meets_a_leaf_whose_ca_it_did_not_trust_before() {
        let mut kept = renewed_at(None, NOW).unwrap();
        let (mut at, mut most) = (NOW, 1);
        let mut cas = std::collections::BTreeSet::from([kept.made]);
        while at < NOW + 2 * CA_LIFE {
            at += 10 * DAY;
            if let Some(next) = renewed_at(Some(&kept), at) {
                // Clients with the old bundle accept the new leaf, and those with the new bundle the old leaf.
                assert!(stands(&next, &kept.bundle, at) && stands(&kept, &next.bundle, at), "at day {}", (at - NOW) / DAY);
                kept = next;
            }
            cas.insert(kept.made);
            most = most.max(pem_blocks(&kept.bundle).len());
        }
        assert!(cas.len() >= 3 && most == 2 && pem_blocks(&kept.bundle).len() == 1, "{cas:?}, {most}");
    }
}
