//! TLS to endpoints with metrics over https.

use pointsman_picker::config::ScrapeSettings;
use std::sync::Arc;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

/// The TLS settings for endpoints.
pub(super) fn tls_settings(settings: &ScrapeSettings) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| format!("TLS can't be used: {error}"))?;
    let builder = if settings.verify {
        builder.with_root_certificates(roots(settings.ca_file.as_deref())?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer { provider }))
    };
    let Some((certificate_file, key_file)) = &settings.client_files else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate_file)?;
    let key = PrivateKeyDer::from_pem_slice(&file(key_file)?).map_err(|error| format!("{key_file} has no private key: {error}"))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| format!("{certificate_file} can't be used with {key_file}: {error}"))
}

/// The CAs of a file, or those of the system.
fn roots(ca_file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca_file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{path} has a CA that can't be used: {error}"))?;
    }
    Ok(roots)
}

/// The certificates of a file, at least one.
fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = file(path)?;
    let certificates: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(format!("{path} has no certificate: write at least one as PEM")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("{path} isn't PEM: {error}")),
    }
}

fn file(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{path} can't be read: {error}"))
}

/// Accepts any certificate, like llm-d's picker by default: model servers have self-signed certificates that no CA knows, and only a few
/// numbers are read from them. No secret is sent.
#[derive(Debug)]
struct AnyServer {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
