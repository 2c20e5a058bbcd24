//! What the webhook shows for a certificate, and whom that makes the API server trust: of a directory, as cert-manager fills it, or
//! self-made and kept in a Secret.

pub mod directory;
pub mod made;
pub mod secret;

use super::tls::CurrentCertificate;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_rustls::rustls::{
    self, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a certificate can't be shown.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It isn't there.
    #[error("{0} holds no certificate")]
    Missing(&'static str),
    /// It is no PEM.
    #[error("{0} can't be read: {1}")]
    Pem(&'static str, pem::Error),
    /// Its key isn't its own, or nothing that can sign.
    #[error("tls.crt and tls.key don't go together: {0}")]
    Key(rustls::Error),
    /// It can't be a CA.
    #[error("a certificate can't be used as a CA: {0}")]
    Root(rustls::Error),
}

/// Where what was found goes.
#[derive(Clone, Debug)]
pub struct CertificateSink {
    /// To clients.
    pub shown: Arc<CurrentCertificate>,
    /// To whom the API server trusts, as PEM; none where that is for others to say.
    pub bundle: watch::Sender<Option<String>>,
}

/// The certificates of a PEM file.
pub fn certificates(called: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| CertificateError::Pem(called, error))?;
    if found.is_empty() { Err(CertificateError::Missing(called)) } else { Ok(found) }
}

/// When a certificate ends, in seconds since 1970.
pub fn expires(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The CAs of a PEM file, for clients whose certificates one of them has signed.
pub fn client_roots(pem: &[u8]) -> Result<RootCertStore, CertificateError> {
    const CALLED: &str = "the file";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(CALLED, pem)? {
        roots.add(certificate).map_err(CertificateError::Root)?;
    }
    Ok(roots)
}

/// A certificate with its chain and its key, if they go together.
fn certified(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain = certificates("tls.crt", chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| CertificateError::Pem("tls.key", error))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(CertificateError::Key)
}
