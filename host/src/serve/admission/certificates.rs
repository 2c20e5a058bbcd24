//! What a server shows for a certificate, and whom that makes its clients trust: of a directory, as cert-manager fills it, or self-made and
//! kept in a Secret.

pub mod directory;
pub mod made;
pub mod secret;

use super::tls::CurrentCertificate;
use crate::{
    leader::Leadership,
    permissions::{EXTERNAL_METRICS, EXTERNAL_METRICS_SECRET, WEBHOOK, WEBHOOK_SECRET},
};
use kube::Client;
use std::{io, path::PathBuf, sync::Arc};
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
    #[error("tls.crt and tls.key don't match: {0}")]
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

/// What hosts serve to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedApi {
    /// The admission webhook.
    Webhook,
    /// The external metrics API.
    ExternalMetrics,
}

impl ServedApi {
    /// As messages name it.
    pub const fn called(self) -> &'static str {
        match self {
            Self::Webhook => "the webhook",
            Self::ExternalMetrics => "the external metrics API",
        }
    }

    /// The Secret with the certificates that hosts make for it, which is called as its Service.
    pub const fn secret(self) -> &'static str {
        match self {
            Self::Webhook => WEBHOOK_SECRET,
            Self::ExternalMetrics => EXTERNAL_METRICS_SECRET,
        }
    }

    /// The folder of its rights in `deploy/roles`.
    const fn feature(self) -> &'static str {
        match self {
            Self::Webhook => WEBHOOK,
            Self::ExternalMetrics => EXTERNAL_METRICS,
        }
    }
}

/// Where certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// From a folder with tls.crt, tls.key and perhaps ca.crt.
    Directory(PathBuf),
    /// From ourselves, for these names of the server.
    Made(Vec<String>),
}

impl Certificates {
    /// From the folder if there is one, else for these names, or for that of the Service.
    pub fn new(served: ServedApi, namespace: &str, folder: Option<PathBuf>, hosts: Vec<String>) -> Self {
        match folder {
            Some(folder) => Self::Directory(folder),
            None if hosts.is_empty() => Self::Made(vec![format!("{}.{namespace}.svc", served.secret())]),
            None => Self::Made(hosts),
        }
    }

    /// Shows them. It ends by itself only if the folder can't be watched.
    pub async fn keep(
        self,
        served: ServedApi,
        (client, namespace): (Client, &str),
        leadership: Leadership,
        outlet: CertificateSink,
    ) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory::keep(directory, outlet)?.await,
            Self::Made(names) => secret::keep(served, client, namespace, names, leadership, outlet).await,
        }
        Ok(())
    }
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
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the file", pem)? {
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
