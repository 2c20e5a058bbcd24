//! TLS on both sides.

use super::{
    backend::Backend,
    rig::{Rig, Setup, bytes, chat, error, open, over_http2},
};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pointsman::gateway::resolve::Resolver;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};

/// A self-signed certificate for a name, and an acceptor that uses it.
fn certified(name: &str, protocols: &[&[u8]]) -> (TlsAcceptor, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let certificate = CertificateDer::from_pem_slice(cert.pem().as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(signing_key.serialize_pem().as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate.clone()], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), certificate)
}

#[tokio::test]
async fn clients_speak_both_protocols_over_tls() {
    let backend = Backend::start().await;
    let (tls, certificate) = certified("localhost", &[b"h2", b"http/1.1"]);
    let rig = Rig::start(Setup { tls: Some(tls), ..Setup::default() }).await;
    rig.set("a", open(&backend.url()));
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(rig.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TokioIo::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap());
        let response = if protocol == b"h2" {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(over_http2(chat("a", &[]))).await.unwrap()
        } else {
            let (mut sender, connection) = http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(chat("a", &[])).await.unwrap()
        };
        assert_eq!(response.status(), 200);
        bytes(response).await;
    }
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn a_backend_with_https_must_show_a_certificate_for_its_name_that_is_trusted() {
    let (tls, certificate) = certified("vllm.ml.svc.cluster.local", &[]);
    let backend = Backend::with(TcpListener::bind("127.0.0.1:0").await.unwrap(), Some(tls));
    let resolver = |host: &str| {
        let known = format!("{host}:443:{}", backend.address).parse().unwrap();
        Resolver { overrides: vec![known], allow_loopback: true }
    };
    for (host, trusted, expected) in [
        ("vllm.ml.svc.cluster.local", vec![certificate.clone()], 200),
        ("vllm.ml.svc.cluster.local", Vec::new(), 502),
        ("other.ml.svc.cluster.local", vec![certificate], 502),
    ] {
        let rig = Rig::start(Setup { resolver: resolver(host), backend_ca: trusted, ..Setup::default() }).await;
        rig.set("a", open(&format!("https://{host}")));
        let response = rig.chat("a", &[]).await;
        assert_eq!(response.status(), expected, "{host}");
        if expected == 502 {
            assert_eq!(error(response).await.1, "backend_unavailable");
        }
    }
    assert_eq!(backend.seen().len(), 1);
    assert_eq!(backend.seen()[0].headers["host"], "vllm.ml.svc.cluster.local");
}
