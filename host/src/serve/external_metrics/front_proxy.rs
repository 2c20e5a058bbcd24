//! Verifies the clients of an API that the API server aggregates: only the API server, by the certificate of its front proxy. The API
//! server publishes the CA and the names of this certificate in a ConfigMap.

use crate::{
    problem::sentence,
    serve::admission::{certificates::client_roots, tls::signed_by},
};
use arc_swap::ArcSwapOption;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use std::{collections::BTreeSet, pin::pin, sync::Arc};
use tokio_rustls::rustls::{
    self, CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The ConfigMap and its namespace.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Its entries: the CAs as PEM, and the common names as a list in JSON.
const CAS: &str = "requestheader-client-ca-file";
const NAMES: &str = "requestheader-allowed-names";

/// The accepted clients: none until the ConfigMap has been read.
#[derive(Debug, Default)]
pub struct FrontProxy {
    accepted: ArcSwapOption<Accepted>,
    /// Why there are none, and the remedy.
    absent: ArcSwapOption<String>,
}

#[derive(Debug)]
struct Accepted {
    signed: Arc<dyn ClientCertVerifier>,
    /// The common names; any name if empty.
    names: BTreeSet<String>,
}

impl Accepted {
    fn from_config_map(map: &ConfigMap) -> Result<Self, String> {
        let entry = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let cas = entry(CAS).filter(|cas| !cas.trim().is_empty());
        let cas = cas.ok_or_else(|| format!("it has no {CAS}: start the API server with --requestheader-client-ca-file"))?;
        let roots = client_roots(cas.as_bytes()).map_err(|error| format!("{CAS} has no CA that can be used: {}", sentence(&error)))?;
        let signed = signed_by(roots).map_err(|error| format!("{CAS} has no CA that can be used: {}", sentence(&error)))?;
        let names = entry(NAMES).filter(|names| !names.trim().is_empty());
        let names = names.map_or(Ok(BTreeSet::new()), serde_json::from_str);
        Ok(Self { signed, names: names.map_err(|error| format!("{NAMES} isn't a list of names as JSON: {error}"))? })
    }

    fn has_name_of(&self, certificate: &CertificateDer<'_>) -> bool {
        let is_named = |certificate: &X509Certificate<'_>| {
            let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
            names.any(|name| self.names.contains(name))
        };
        self.names.is_empty() || X509Certificate::from_der(certificate).is_ok_and(|(_, certificate)| is_named(&certificate))
    }
}

impl FrontProxy {
    /// The reason why the server of this name, such as "the webhook", doesn't know its clients, or none.
    pub fn obstacle(&self, served: &str) -> Option<String> {
        let why = || self.absent.load_full().map_or_else(|| "hasn't been read yet".to_owned(), |why| (*why).clone());
        let is_known = self.accepted.load().is_some();
        (!is_known).then(|| format!("{served} can't authenticate clients: the ConfigMap {NAMESPACE}/{NAME} {}", why()))
    }

    /// Accepts the clients in the ConfigMap, now and after each change. Never ends by itself. While the ConfigMap can't be read, the last
    /// clients stay accepted.
    pub async fn follow(&self, client: Client) {
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let mut events = pin!(watcher::watcher(api, only).default_backoff());
        let mut listed = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed = None,
                Ok(watcher::Event::InitApply(map)) => listed = Some(map),
                Ok(watcher::Event::InitDone) => self.accept(listed.take().as_ref()),
                Ok(watcher::Event::Apply(map)) => self.accept(Some(&map)),
                Ok(watcher::Event::Delete(_)) => self.accept(None),
                Err(error) => {
                    let remedy = "bind the Role extension-apiserver-authentication-reader, as deploy/roles/external-metrics does";
                    self.complain(&format!("can't be read: {}: {remedy}", sentence(&error)));
                }
            }
        }
    }

    fn accept(&self, map: Option<&ConfigMap>) {
        let accepted = map.map_or_else(|| Err("it doesn't exist: the API server creates it".to_owned()), Accepted::from_config_map);
        match accepted {
            Ok(accepted) => {
                tracing::info!(names = ?accepted.names, "accepting the API server's front proxy as a client of the external metrics API");
                self.accepted.store(Some(Arc::new(accepted)));
                self.absent.store(None);
            }
            Err(why) => self.complain(&format!("can't be used: {why}")),
        }
    }

    fn complain(&self, why: &str) {
        let before = self.absent.swap(Some(Arc::new(why.to_owned())));
        if before.is_none_or(|before| *before != *why) {
            tracing::warn!(config_map = %format_args!("{NAMESPACE}/{NAME}"), error = why, "clients of the external metrics API can't be verified");
        }
    }

    fn algorithms() -> WebPkiSupportedAlgorithms {
        ring::default_provider().signature_verification_algorithms
    }
}

impl ClientCertVerifier for FrontProxy {
    /// None: clients send their certificates anyway.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let refused = || rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        let accepted = self.accepted.load_full().ok_or_else(refused)?;
        let verified = accepted.signed.verify_client_cert(certificate, intermediates, now)?;
        if accepted.has_name_of(certificate) { Ok(verified) } else { Err(refused()) }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &Self::algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &Self::algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::algorithms().supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use std::collections::BTreeMap;

    /// A CA as PEM, and a certificate signed by it for each of these names.
    fn ca(names: &[&str]) -> (String, Vec<CertificateDer<'static>>) {
        let key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = ca.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(ca, key);
        let leaf = |name: &&str| {
            let mut leaf = CertificateParams::default();
            leaf.distinguished_name.push(DnType::CommonName, *name);
            leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone()
        };
        (pem, names.iter().map(leaf).collect())
    }

    fn map(cas: &str, names: &str) -> ConfigMap {
        let data = [(CAS, cas), (NAMES, names)].map(|(key, text)| (key.to_owned(), text.to_owned()));
        ConfigMap { data: Some(BTreeMap::from(data)), ..ConfigMap::default() }
    }

    fn accepts(front_proxy: &FrontProxy, certificate: &CertificateDer<'_>) -> bool {
        front_proxy.verify_client_cert(certificate, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn only_certificates_of_the_published_ca_with_a_published_name_are_accepted_and_another_ca_counts_at_once() {
        let (one, of_one) = ca(&["front-proxy-client", "kubelet"]);
        let (other, of_other) = ca(&["front-proxy-client"]);
        let front_proxy = FrontProxy::default();
        assert!(front_proxy.client_auth_mandatory(), "nobody connects without a certificate");
        assert!(!accepts(&front_proxy, &of_one[0]), "nothing is published yet");
        front_proxy.accept(Some(&map(&one, r#"["front-proxy-client","aggregator"]"#)));
        assert!(accepts(&front_proxy, &of_one[0]) && !accepts(&front_proxy, &of_one[1]) && !accepts(&front_proxy, &of_other[0]));
        front_proxy.accept(Some(&map(&other, "[]")));
        assert!(!accepts(&front_proxy, &of_one[0]) && accepts(&front_proxy, &of_other[0]));
        front_proxy.accept(Some(&map(&(other + &one), "")));
        assert!([&of_one[0], &of_one[1], &of_other[0]].into_iter().all(|certificate| accepts(&front_proxy, certificate)));
    }

    #[test]
    fn why_nobody_is_accepted_is_said_with_a_remedy_and_what_can_not_be_used_changes_nothing() {
        let front_proxy = FrontProxy::default();
        let said = |front_proxy: &FrontProxy| front_proxy.obstacle("the external metrics API").unwrap();
        assert!(said(&front_proxy).ends_with("the ConfigMap kube-system/extension-apiserver-authentication hasn't been read yet"));
        front_proxy.accept(None);
        assert!(said(&front_proxy).contains("it doesn't exist"), "{}", said(&front_proxy));
        front_proxy.accept(Some(&map("", "[]")));
        assert!(said(&front_proxy).ends_with("start the API server with --requestheader-client-ca-file"), "{}", said(&front_proxy));
        let (pem, certificates) = ca(&["front-proxy-client"]);
        for broken in [map("broken", "[]"), map(&pem, "front-proxy-client")] {
            front_proxy.accept(Some(&broken));
            assert!(front_proxy.obstacle("it").is_some());
        }
        front_proxy.accept(Some(&map(&pem, "[]")));
        assert_eq!(front_proxy.obstacle("it"), None);
        front_proxy.accept(Some(&map("broken", "[]")));
        assert!(front_proxy.obstacle("it").is_none() && accepts(&front_proxy, &certificates[0]));
    }
}
