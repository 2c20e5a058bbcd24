//! The host's namespace, its pods, and the leader.

use super::{Checked, Finding, Installation};
use crate::{
    leader::{holder, seconds_since_renewal},
    permissions::{ACCOUNT, WEBHOOK_SECRET},
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{ConfigMap, Container, Namespace, Pod, Secret, ServiceAccount},
    },
    jiff::Timestamp,
};
use kube::{Api, ResourceExt, api::ListParams};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the Deployment and of the Lease.
const NAME: &str = ACCOUNT;

pub(super) async fn namespace(installation: &Installation) -> Checked {
    let name = &installation.namespace;
    Ok(vec![match Api::<Namespace>::all(installation.client.clone()).get_metadata_opt(name).await? {
        Some(_) => Finding::ok(format!("{name} is there")),
        None => Finding::wrong(
            format!("the host's namespace {name} doesn't exist"),
            "apply deploy/host/namespace.yaml, or specify another with --host-namespace",
        ),
    }])
}

/// The Deployment of hosts, with its pods.
pub(super) struct Deployed {
    deployment: Option<Deployment>,
    pods: Vec<Pod>,
    /// The missing objects that its pods mount, as kind and name.
    absent: Vec<String>,
}

impl Deployed {
    pub(super) async fn read(installation: &Installation) -> kube::Result<Self> {
        let (client, namespace) = (&installation.client, &installation.namespace);
        let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get_opt(NAME).await?;
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let pods = pods.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={NAME}"))).await?.items;
        let mut absent = Vec::new();
        let spec = deployment.as_ref().and_then(|deployment| deployment.spec.as_ref()).and_then(|spec| spec.template.spec.as_ref());
        for volume in spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten() {
            if let Some(name) = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_ref())
                && Api::<Secret>::namespaced(client.clone(), namespace).get_metadata_opt(name).await?.is_none()
            {
                absent.push(format!("Secret {name}"));
            }
            if let Some(name) = volume.config_map.as_ref().map(|map| &map.name)
                && Api::<ConfigMap>::namespaced(client.clone(), namespace).get_metadata_opt(name).await?.is_none()
            {
                absent.push(format!("ConfigMap {name}"));
            }
        }
        Ok(Self { deployment, pods, absent })
    }

    /// The arguments of each pod.
    fn arguments(&self) -> BTreeSet<Vec<String>> {
        let containers = self.pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers.first());
        containers.map(|container| container.args.clone().unwrap_or_default()).collect()
    }

    /// The settings of each pod: its arguments, and the variables with a value in its manifest.
    fn settings(&self) -> BTreeSet<(Vec<String>, BTreeMap<String, String>)> {
        let containers = self.pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers.first());
        let variables = |container: &Container| {
            let given = container.env.iter().flatten().filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)));
            given.collect()
        };
        containers.map(|container| (container.args.clone().unwrap_or_default(), variables(container))).collect()
    }

    /// Whether a host runs with a flag. Hosts outside of the cluster aren't known.
    pub(super) fn has_flag(&self, flag: &str) -> Option<bool> {
        self.deployment.as_ref()?;
        let is_flag = |argument: &String| argument == flag || argument.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='));
        Some(self.arguments().iter().flatten().any(is_flag))
    }

    /// The value of a flag of the form --FLAG=VALUE.
    pub(super) fn flag(&self, flag: &str) -> Option<String> {
        self.arguments().iter().flatten().find_map(|argument| Some(argument.strip_prefix(flag)?.strip_prefix('=')?.to_owned()))
    }

    /// The Secret with the webhook's certificate: a mounted one, or the host's own.
    pub(super) fn webhook_secret(&self) -> &str {
        let spec = self.deployment.as_ref().and_then(|deployment| deployment.spec.as_ref()?.template.spec.as_ref());
        let mut secrets = spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten().filter_map(|volume| volume.secret.as_ref());
        secrets.find_map(|secret| secret.secret_name.as_deref()).unwrap_or(WEBHOOK_SECRET)
    }

    /// The names of the pods.
    pub(super) fn pods(&self) -> Vec<String> {
        self.pods.iter().map(ResourceExt::name_any).collect()
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        let Some(deployment) = &self.deployment else {
            let remedy = "if hosts are to run in the cluster, apply deploy/install";
            return vec![Finding::note(format!("there is no Deployment {NAME}; hosts that run elsewhere aren't seen"), remedy)];
        };
        let mut findings: Vec<Finding> = Vec::new();
        for absent in &self.absent {
            let message = format!("the Deployment {NAME} mounts the {absent}, which doesn't exist, so its pods don't start");
            let remedy = if absent.starts_with("Secret ") && self.flag("--webhook-certs").is_some() {
                "create it; if cert-manager should, `kubectl describe certificate` reports why it doesn't"
            } else {
                "create it"
            };
            findings.push(Finding::wrong(message, remedy));
        }
        let status = deployment.status.clone().unwrap_or_default();
        let (ready, wanted) =
            (status.ready_replicas.unwrap_or_default(), deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1));
        findings.push(if ready >= wanted {
            Finding::ok(format!("{ready} of {wanted} replicas are ready"))
        } else {
            let why: BTreeSet<String> = self.pods.iter().filter_map(waits_for).collect();
            let why = if why.is_empty() { String::new() } else { format!(" ({})", why.into_iter().collect::<Vec<_>>().join("; ")) };
            Finding::wrong(
                format!("{ready} of {wanted} replicas are ready{why}"),
                "`kubectl describe pods` and /readyz on port 8080 of each have the reason",
            )
        });
        if self.settings().len() > 1 {
            findings.push(Finding::wrong(
                "the pods run with different arguments or variables, so the outcome depends on the leader",
                "wait until the rollout has ended, and delete pods that don't belong to it",
            ));
        }
        findings
    }
}

/// Why a container of a pod doesn't run.
fn waits_for(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.iter().find_map(|status| status.state.as_ref()?.waiting.as_ref())?;
    let message = waiting.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("{} is waiting, {}{message}", pod.name_any(), waiting.reason.clone().unwrap_or_default()))
}

/// The Lease of the leader; none before the first host has led.
async fn lease(installation: &Installation) -> kube::Result<Option<LeaseSpec>> {
    let lease = Api::<Lease>::namespaced(installation.client.clone(), &installation.namespace).get_opt(NAME).await?;
    Ok(lease.and_then(|lease| lease.spec))
}

/// The seconds since the leader renewed its Lease, and whether it has expired.
fn age(lease: &LeaseSpec) -> (i64, bool) {
    let seconds = seconds_since_renewal(lease, Timestamp::now());
    (seconds, seconds > i64::from(lease.lease_duration_seconds.unwrap_or_default()))
}

/// The leader, if it runs outside of the cluster with its user's rights: it is no pod, and the ServiceAccount of hosts doesn't exist.
pub(super) async fn outside(installation: &Installation) -> kube::Result<Option<String>> {
    let (client, namespace) = (&installation.client, &installation.namespace);
    let current = lease(installation).await?.filter(|lease| !age(lease).1);
    let Some(holder) = current.as_ref().and_then(holder) else { return Ok(None) };
    let pod = Api::<Pod>::namespaced(client.clone(), namespace).get_metadata_opt(holder).await?;
    let account = Api::<ServiceAccount>::namespaced(client.clone(), namespace).get_metadata_opt(ACCOUNT).await?;
    Ok((pod.is_none() && account.is_none()).then(|| holder.to_owned()))
}

pub(super) async fn leader(installation: &Installation) -> Checked {
    const NOBODY: &str = "a ready host becomes the leader within seconds; otherwise its log has the reason";
    let Some(lease) = lease(installation).await? else {
        return Ok(vec![Finding::wrong("no host has led yet", NOBODY)]);
    };
    let (seconds, expired) = age(&lease);
    let Some(holder) = holder(&lease) else {
        return Ok(vec![Finding::wrong("no host is the leader, so no plan is applied", NOBODY)]);
    };
    Ok(vec![if expired {
        Finding::wrong(format!("the leader {holder} renewed its Lease for the last time {seconds} s ago"), NOBODY)
    } else {
        Finding::ok(format!("{holder} leads"))
    }])
}
