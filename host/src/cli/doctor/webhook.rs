//! The admission webhook: its configurations, its ready pods, and the CAs that the API server trusts.

use super::{Checked, Finding, Installation, hosts::Deployed, unread};
use crate::{
    permissions::WEBHOOK_SECRET,
    serve::admission::certificates::{certificates, expires, made::accepted},
};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig},
        core::v1::Secret,
        discovery::v1::EndpointSlice,
    },
    jiff::Timestamp,
};
use kube::{Api, Client, api::ListParams};
use std::collections::BTreeSet;

/// The name of both configurations.
const NAME: &str = "pointsman";

pub(super) async fn check(installation: &Installation, deployed: Option<&Deployed>) -> Checked {
    let client = &installation.client;
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).get_opt(NAME).await?;
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).get_opt(NAME).await?;
    let runs = deployed.and_then(|deployed| deployed.has_flag("--webhook"));
    if validating.is_none() && mutating.is_none() {
        let remedy = "to report rejections by rules in kubectl, add deploy/components/webhook";
        return Ok(vec![match runs {
            Some(true) => Finding::wrong(
                "hosts serve the webhook, but no webhook configuration exists, so the API server doesn't call them",
                "apply deploy/components/webhook/webhook.yaml",
            ),
            _ => Finding::note("there is none", remedy),
        }]);
    }
    let mut findings = Vec::new();
    if runs == Some(false) {
        let message = "the API server is configured to call the webhook, but no host runs with --webhook";
        findings.push(Finding::wrong(message, "add deploy/components/webhook, or delete the configurations"));
    }
    let validating = validating.and_then(|configuration| configuration.webhooks).into_iter().flatten();
    let mutating = mutating.and_then(|configuration| configuration.webhooks).into_iter().flatten();
    let clients: Vec<(String, WebhookClientConfig)> = validating
        .map(|webhook| (webhook.name, webhook.client_config))
        .chain(mutating.map(|webhook| (webhook.name, webhook.client_config)))
        .collect();
    for (name, client_config) in &clients {
        if client_config.ca_bundle.as_ref().is_none_or(|bundle| bundle.0.is_empty()) {
            findings.push(Finding::wrong(
                format!("{name} has no caBundle, so the API server trusts no response"),
                "the leader writes it, if it runs with --webhook and has the rights of deploy/roles/webhook; with cert-manager its injector does",
            ));
        }
    }
    findings.extend(certificate(installation, deployed.map_or(WEBHOOK_SECRET, Deployed::webhook_secret), &clients).await);
    let services: BTreeSet<(String, String)> = clients
        .iter()
        .filter_map(|(_, client)| client.service.as_ref())
        .map(|service| (service.namespace.clone(), service.name.clone()))
        .collect();
    for (namespace, name) in services {
        findings.push(match ready_endpoints(client, &namespace, &name).await? {
            0 => Finding::wrong(
                format!("no ready pod is behind the Service {namespace}/{name}, so the API server skips the webhook"),
                "check that the hosts are ready, and that the Service's selector matches them",
            ),
            ready => Finding::ok(format!("{ready} pods are ready behind the Service {namespace}/{name}")),
        });
    }
    Ok(findings)
}

/// The number of ready pods behind a Service.
pub(super) async fn ready_endpoints(client: &Client, namespace: &str, name: &str) -> kube::Result<usize> {
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), namespace);
    let slices = slices.list(&ListParams::default().labels(&format!("kubernetes.io/service-name={name}"))).await?.items;
    let is_ready = |slice: &EndpointSlice| {
        let endpoints = slice.endpoints.iter().flatten();
        endpoints.filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)).count()
    };
    Ok(slices.iter().map(is_ready).sum())
}

/// Checks the validity of the certificate, and whether the API server trusts it.
async fn certificate(installation: &Installation, name: &str, clients: &[(String, WebhookClientConfig)]) -> Vec<Finding> {
    const RENEWAL: &str = "the leader renews its own certificate 30 days before its end, and its log has the reason if it can't; with cert-manager, check the Certificate";
    let secret = match Api::<Secret>::namespaced(installation.client.clone(), &installation.namespace).get_opt(name).await {
        Ok(secret) => secret,
        Err(error) => return unread(&error),
    };
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    let chain = data.get("tls.crt").map(|chain| String::from_utf8_lossy(&chain.0).into_owned()).unwrap_or_default();
    let leaf = certificates("tls.crt", chain.as_bytes()).ok().and_then(|chain| chain.into_iter().next());
    let Some(ends) = leaf.as_ref().and_then(expires) else {
        const CREATION: &str = "a host creates it, if it runs with --webhook and has the rights of deploy/roles/webhook, and its log has the \
                                reason if it can't; with cert-manager, check the Certificate";
        return vec![Finding::wrong(format!("the Secret {name} has no certificate of the webhook in tls.crt"), CREATION)];
    };
    let now = Timestamp::now().as_second();
    let days = (ends - now).div_euclid(24 * 60 * 60);
    let mut findings = vec![match days {
        ..0 => {
            Finding::wrong(format!("the webhook's certificate expired {} days ago, so the API server skips the webhook", -days), RENEWAL)
        }
        0..7 => Finding::wrong(format!("the webhook's certificate expires in {days} days"), RENEWAL),
        _ => Finding::ok(format!("the webhook's certificate expires in {days} days")),
    }];
    for (webhook, client) in clients {
        let (Some(bundle), Some(service)) = (&client.ca_bundle, &client.service) else { continue };
        let Ok(roots) = certificates("caBundle", &bundle.0) else { continue };
        let host = format!("{}.{}.svc", service.name, service.namespace);
        if days >= 0 && !accepted(&chain, &roots, &host, now.unsigned_abs()) {
            findings.push(Finding::wrong(
                format!("the caBundle of {webhook} doesn't trust the certificate of the Secret {name} for {host}"),
                "the leader writes the caBundle if it has the rights of deploy/roles/webhook; with cert-manager, its injector writes it",
            ));
        }
    }
    findings
}
