//! The admission webhook: its configurations, who answers, and the CAs that the API server trusts.

use super::{Checked, Finding, Installation, hosts::Deployed};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig},
    discovery::v1::EndpointSlice,
};
use kube::{Api, api::ListParams};
use std::collections::BTreeSet;

/// The name of both configurations.
const NAME: &str = "pointsman";

pub(super) async fn check(installation: &Installation, deployed: Option<&Deployed>) -> Checked {
    let client = &installation.client;
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).get_opt(NAME).await?;
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).get_opt(NAME).await?;
    let runs = deployed.and_then(|deployed| deployed.has_flag("--webhook"));
    if validating.is_none() && mutating.is_none() {
        let remedy = "if kubectl is to report what rules refuse, add deploy/components/webhook";
        return Ok(vec![match runs {
            Some(true) => Finding::wrong(
                "hosts answer the webhook, and no configuration has the API server ask them",
                "apply deploy/components/webhook/webhook.yaml",
            ),
            _ => Finding::note("there is none", remedy),
        }]);
    }
    let mut findings = Vec::new();
    if runs == Some(false) {
        let message = "the API server is to ask the webhook, and no host runs with --webhook";
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
                format!("{name} has no caBundle, so the API server trusts no answer"),
                "the leader writes it, if it runs with --webhook and has the rights of deploy/roles/webhook; with cert-manager its injector does",
            ));
        }
    }
    let services: BTreeSet<(String, String)> = clients
        .iter()
        .filter_map(|(_, client)| client.service.as_ref())
        .map(|service| (service.namespace.clone(), service.name.clone()))
        .collect();
    for (namespace, name) in services {
        let slices = Api::<EndpointSlice>::namespaced(client.clone(), &namespace);
        let slices = slices.list(&ListParams::default().labels(&format!("kubernetes.io/service-name={name}"))).await?.items;
        let is_ready = |slice: &EndpointSlice| {
            let endpoints = slice.endpoints.iter().flatten();
            endpoints.filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)).count()
        };
        findings.push(match slices.iter().map(is_ready).sum::<usize>() {
            0 => Finding::wrong(
                format!("no ready pod is behind the Service {namespace}/{name}, so the API server goes on without the webhook"),
                "see that the hosts are ready, and that the Service's selector matches them",
            ),
            ready => Finding::ok(format!("{ready} pods answer behind the Service {namespace}/{name}")),
        });
    }
    Ok(findings)
}
