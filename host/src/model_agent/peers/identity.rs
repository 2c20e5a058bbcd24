//! An agent's identity for other agents: a certificate that it generates at startup, whose fingerprint is in its ConfigMap. Only the node's
//! own agent can write that ConfigMap, so no CA is needed, and no token crosses the network.

use pointsman_sandbox::digest::Digest;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use std::sync::Arc;
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, DigitallySignedStruct, DistinguishedName as TlsName, Error as TlsError, ServerConfig, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, ring, verify_tls13_signature},
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
        server::danger::{ClientCertVerified, ClientCertVerifier},
        version::TLS13,
    },
};

/// The name in each certificate. An agent identifies another by the certificate's fingerprint.
pub(super) const NAME: &str = "pointsman-model-agent";

/// Why an agent has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It can't be generated.
    #[error("a certificate can't be generated: {0}")]
    Make(#[from] rcgen::Error),
    /// It can't be used.
    #[error("the certificate can't be used: {0}")]
    Use(#[from] TlsError),
}

/// A certificate and its key.
pub(super) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pub(super) fingerprint: String,
}

/// A certificate's fingerprint, as in the ConfigMap.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    Digest::hash(certificate).hex()
}

impl Identity {
    pub(super) fn make() -> Result<Self, IdentityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([NAME.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, NAME);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { fingerprint: fingerprint(&certificate), certificate, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() })
    }

    /// Accepts connections from other agents, each of which must present a certificate; it is identified later.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, IdentityError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13])?;
        let builder = builder.with_client_cert_verifier(Arc::new(AnyClient { provider }));
        let config = builder.with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Connects to the agent with this certificate.
    pub(super) fn connector(&self, fingerprint: &str) -> Result<TlsConnector, IdentityError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13])?;
        let verifier = Arc::new(OneServer { provider, fingerprint: fingerprint.to_owned() });
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = builder.with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// The methods that clients and servers share: with TLS 1.3, whoever presents a certificate proves that it has the key.
macro_rules! tls13_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, TlsError> {
            Err(TlsError::General("agents speak TLS 1.3".to_owned()))
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
    };
}

/// Accepts any client that has the key of its certificate.
#[derive(Debug)]
struct AnyClient {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[TlsName] {
        &[]
    }

    fn verify_client_cert(&self, _: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: UnixTime) -> Result<ClientCertVerified, TlsError> {
        Ok(ClientCertVerified::assertion())
    }

    tls13_signatures!();
}

/// Accepts only the server that has the key of this certificate.
#[derive(Debug)]
struct OneServer {
    provider: Arc<CryptoProvider>,
    fingerprint: String,
}

impl ServerCertVerifier for OneServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if fingerprint(certificate) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(TlsError::General("its certificate isn't the one in its ConfigMap".to_owned()))
        }
    }

    tls13_signatures!();
}
