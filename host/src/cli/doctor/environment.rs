//! The objects in the cluster that the hosts' flags name: the Gateway that exposes services, and Prometheus.

use super::{Checked, Finding, Installation, hosts::Deployed, webhook::ready_endpoints};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use pointsman_core::resource::GATEWAY;

/// The kind with which Prometheus' operator finds hosts.
const SERVICE_MONITOR: (&str, &str) = ("monitoring.coreos.com", "servicemonitors");

pub(super) async fn gateway(installation: &Installation, deployed: Option<&Deployed>) -> Checked {
    let Some(deployed) = deployed else { return Ok(Vec::new()) };
    let served = installation.served.serves(GATEWAY.group, GATEWAY.version, GATEWAY.plural);
    let Some(place) = deployed.flag("--gateway") else {
        let remedy = "if they are to be reached from outside, run hosts with --gateway=NAMESPACE/NAME and --ingress-domain=DOMAIN";
        return Ok(if served {
            vec![Finding::note("the hosts have no --gateway, so services are reached within the cluster only", remedy)]
        } else {
            Vec::new()
        });
    };
    if !served {
        let message = format!("--gateway names the Gateway {place}, and the cluster lacks the Gateway API");
        return Ok(vec![Finding::wrong(message, "install its CRDs and a controller for it")]);
    }
    let (namespace, name) = place.split_once('/').unwrap_or_default();
    let gateways = Api::<DynamicObject>::namespaced_with(installation.client.clone(), namespace, &GATEWAY.api_resource());
    let Some(gateway) = gateways.get_opt(name).await? else {
        let message = format!("the Gateway {place} of --gateway doesn't exist, so no InferenceService is reached from outside");
        return Ok(vec![Finding::wrong(message, "create it, or change the flag")]);
    };
    let conditions = gateway.data.pointer("/status/conditions").and_then(|conditions| conditions.as_array()).cloned().unwrap_or_default();
    let programmed = conditions.iter().find(|condition| condition["type"] == "Programmed");
    Ok(vec![match programmed {
        Some(condition) if condition["status"] == "True" => Finding::ok(format!("the Gateway {place} is programmed")),
        told => {
            let why = told.and_then(|condition| condition["message"].as_str()).unwrap_or("no controller manages it");
            Finding::wrong(
                format!("the Gateway {place} isn't programmed ({})", why.trim_end_matches('.')),
                "check the controller of its GatewayClass",
            )
        }
    }])
}

pub(super) async fn prometheus(installation: &Installation, deployed: Option<&Deployed>) -> Checked {
    let mut findings = Vec::new();
    if installation.served.serves_any_version(SERVICE_MONITOR.0, SERVICE_MONITOR.1) {
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(SERVICE_MONITOR.0, "v1", "ServiceMonitor"), SERVICE_MONITOR.1);
        let monitors = Api::<DynamicObject>::namespaced_with(installation.client.clone(), &installation.namespace, &kind);
        findings.push(match monitors.get_opt("pointsman").await? {
            Some(_) => Finding::ok("the ServiceMonitor pointsman lets Prometheus' operator find the hosts"),
            None => Finding::note(
                "the cluster has Prometheus' operator, and no ServiceMonitor pointsman",
                "add deploy/components/service-monitor and deploy/components/alerts",
            ),
        });
    }
    let Some(url) = deployed.and_then(|deployed| deployed.flag("--prometheus")) else { return Ok(findings) };
    let host = url.parse::<http::Uri>().ok().and_then(|url| url.host().map(str::to_owned)).unwrap_or_default();
    let mut parts = host.split('.');
    // Other addresses are outside of the cluster, or can be resolved only there.
    if let (Some(name), Some(namespace), Some("svc")) = (parts.next(), parts.next(), parts.next()) {
        findings.push(match ready_endpoints(&installation.client, namespace, name).await? {
            0 => Finding::wrong(
                format!("no ready pod is behind the Service {namespace}/{name} of --prometheus, so KEDA can't scale by its metrics"),
                "start Prometheus there, or change the flag",
            ),
            _ => Finding::ok(format!("Prometheus is ready behind the Service {namespace}/{name}")),
        });
    }
    Ok(findings)
}
