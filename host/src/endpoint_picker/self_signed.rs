//! The certificate of a picker without a configured one: proxies don't verify it, like upstream's.

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::{crypto::ring::sign::any_supported_type, pki_types::PrivateKeyDer, sign::CertifiedKey};

/// Generates a certificate.
pub fn certificate() -> anyhow::Result<CertifiedKey> {
    let key = KeyPair::generate()?;
    let params = CertificateParams::new(vec!["localhost".to_owned()])?;
    let certificate = params.self_signed(&key)?.der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| anyhow::anyhow!(error))?;
    Ok(CertifiedKey::new(vec![certificate], any_supported_type(&key)?))
}
