//! The scheduler with the extender: its pods, its version, and pods that wait for it if it isn't installed.

use super::{Checked, Finding, Installation, hosts::Deployed, unread};
use crate::{
    permissions::{EXTENDER_CONTAINER as EXTENDER, SCHEDULER_ACCOUNT, SCHEDULER_PODS, SCHEDULER_PROFILE as PROFILE},
    problem::is_forbidden,
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ContainerStatus, Pod},
    },
    jiff::Timestamp,
};
use kube::{Api, ResourceExt, api::ListParams};

/// The name of the Deployment, and the label of its pods.
const NAME: &str = SCHEDULER_ACCOUNT;

/// The container of the scheduler in its pods.
const SCHEDULER: &str = "scheduler";

/// The minimum age of a pod that a scheduler would have handled, in seconds.
const NEW_SECONDS: i64 = 10;

/// The maximum number of pods in a message.
const MAX_NAMES: usize = 3;

pub(super) async fn check(installation: &Installation, hosts: Option<&Deployed>) -> Checked {
    let (client, namespace) = (&installation.client, &installation.namespace);
    let Some(deployment) = Api::<Deployment>::namespaced(client.clone(), namespace).get_opt(NAME).await? else {
        return Ok(missing(installation, hosts).await);
    };
    let selected = ListParams::default().labels(SCHEDULER_PODS);
    let mut pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&selected).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut findings = vec![replicas(&deployment, &pods, namespace)];
    findings.extend(pods.iter().filter_map(|pod| extender(pod, namespace)));
    if let Some(image) = scheduler_image(&deployment) {
        findings.push(version(image, &client.apiserver_version().await?.minor));
    }
    Ok(findings)
}

/// Without the Deployment, reports whether pods wait for it. A scheduler of this name may run elsewhere, but it would have handled them.
async fn missing(installation: &Installation, hosts: Option<&Deployed>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if hosts.and_then(|hosts| hosts.flag("--pod-scheduler")).is_some_and(|name| name == PROFILE) {
        findings.push(Finding::note(
            format!("hosts run with --pod-scheduler={PROFILE}, and there is no Deployment {NAME}"),
            "if no other Deployment runs a scheduler of this name, apply deploy/scheduler or remove the flag",
        ));
    }
    let unplaced = ListParams::default().fields(&format!("spec.schedulerName={PROFILE},spec.nodeName=,status.phase=Pending"));
    match Api::<Pod>::all(installation.client.clone()).list(&unplaced).await {
        Ok(pods) => findings.extend(waiting(&pods.items)),
        Err(error) if is_forbidden(&error) => findings.push(Finding::note(
            format!("you may not list the pods of all namespaces, so pods that wait for the scheduler {PROFILE} aren't seen"),
            "if pods have this schedulerName, retry as a user with this right",
        )),
        Err(error) => findings.extend(unread(&error)),
    }
    findings
}

/// Pods without a node that no scheduler has handled: every scheduler sets the condition `PodScheduled`.
fn waiting(pods: &[Pod]) -> Option<Finding> {
    let is_seen = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "PodScheduled")
    };
    // A pod that was just created may be handled in a moment.
    let is_new = |pod: &Pod| {
        pod.metadata.creation_timestamp.as_ref().is_some_and(|created| Timestamp::now().duration_since(created.0).as_secs() < NEW_SECONDS)
    };
    let waits = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && !is_seen(pod) && !is_new(pod);
    let waiting: Vec<String> =
        pods.iter().filter(waits).map(|pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())).collect();
    let count = waiting.len();
    if count == 0 {
        return None;
    }
    let names = waiting.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if count > MAX_NAMES { ", ..." } else { "" };
    let (pods, wait) = if count == 1 { ("pod", "waits") } else { ("pods", "wait") };
    let message = format!(
        "{count} {pods} with schedulerName {PROFILE} {wait} forever, because no scheduler of this name is installed ({names}{more})"
    );
    Some(Finding::wrong(
        message,
        "apply deploy/scheduler (scheduler.enabled of the chart), or remove the schedulerName and create them again",
    ))
}

fn replicas(deployment: &Deployment, pods: &[Pod], namespace: &str) -> Finding {
    let consequence = format!("so pods with schedulerName {PROFILE} get no node");
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    if wanted == 0 {
        return Finding::wrong(format!("the Deployment {NAME} has no replicas, {consequence}"), "scale it to 2");
    }
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    if ready >= wanted {
        return Finding::ok(format!("{ready} of {wanted} replicas are ready"));
    }
    let schedules = pods.iter().filter_map(|pod| container(pod, SCHEDULER)).any(|status| status.ready);
    let consequence = if schedules { String::new() } else { format!(", {consequence}") };
    Finding::wrong(
        format!("{ready} of {wanted} replicas are ready{consequence}"),
        format!("`kubectl describe pods --namespace {namespace} --selector {SCHEDULER_PODS}` reports why"),
    )
}

/// The problem with a pod's extender. The scheduler in the same pod doesn't wait for it.
fn extender(pod: &Pod, namespace: &str) -> Option<Finding> {
    let status = container(pod, EXTENDER)?;
    let name = pod.name_any();
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()?.reason.as_deref());
    if !status.ready {
        let waits = status.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref());
        let why = waits.or(last).map(|reason| format!(" ({reason})")).unwrap_or_default();
        let message =
            format!("the extender of {name} isn't Ready{why}: while the scheduler of this pod leads, it places pods without policies");
        let remedy = format!("`kubectl logs {name} --container {EXTENDER} --namespace {namespace}` and /readyz on port 8080 report why");
        return Some(Finding::wrong(message, remedy));
    }
    if status.restart_count == 0 {
        return None;
    }
    let why = last.map(|reason| format!(", last because of {reason}")).unwrap_or_default();
    let message = format!(
        "the extender of {name} was restarted (restarts: {}{why}), and the scheduler placed pods without policies meanwhile",
        status.restart_count
    );
    let remedy = if last == Some("OOMKilled") {
        "raise the memory limit of the container (scheduler.resources of the chart)".to_owned()
    } else {
        format!("`kubectl logs {name} --container {EXTENDER} --namespace {namespace} --previous` reports why")
    };
    Some(Finding::note(message, remedy))
}

fn container<'p>(pod: &'p Pod, name: &str) -> Option<&'p ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|status| status.name == name)
}

fn scheduler_image(deployment: &Deployment) -> Option<&str> {
    let containers = &deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == SCHEDULER)?.image.as_deref()
}

/// Compares the minor version of the kube-scheduler with the cluster's.
fn version(image: &str, cluster: &str) -> Finding {
    let (Some(own), Some(cluster)) = (minor_version(image), leading_number(cluster)) else {
        let message = format!("the version of the kube-scheduler can't be compared with the cluster's (its image is {image})");
        return Finding::note(message, "use an image whose tag is its version, or check it yourself");
    };
    let message = format!("the kube-scheduler is of the version 1.{own}, and the cluster of 1.{cluster}");
    let remedy = format!("set its image to the one of 1.{cluster} (scheduler.image of the chart, images of a kustomization)");
    match own.abs_diff(cluster) {
        0 => Finding::ok(format!("the kube-scheduler is of the cluster's minor version, 1.{cluster}")),
        // As during an upgrade of the cluster.
        1 => Finding::note(message, remedy),
        _ => Finding::wrong(message, remedy),
    }
}

/// The minor version in the tag of an image, such as 36 of `registry.k8s.io/kube-scheduler:v1.36.3`.
fn minor_version(image: &str) -> Option<u32> {
    let (name, _) = image.split_once('@').unwrap_or((image, ""));
    let (_, tag) = name.rsplit('/').next()?.split_once(':')?;
    leading_number(tag.strip_prefix('v').unwrap_or(tag).strip_prefix("1.")?)
}

/// The leading number of a text: clouds report minor versions such as 36+.
fn leading_number(text: &str) -> Option<u32> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::State;
    use serde_json::{Value, json};

    fn pod(name: &str, conditions: &Value, containers: &Value) -> Pod {
        let status = json!({"conditions": conditions, "containerStatuses": containers});
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "chat"}, "status": status})).unwrap()
    }

    fn status(name: &str, ready: bool, restarts: i32) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": ready, "restartCount": restarts})
    }

    fn deployment(replicas: i32, ready: i32) -> Deployment {
        let spec = json!({"replicas": replicas, "selector": {}, "template": {"spec": {"containers": [
            {"name": SCHEDULER, "image": "registry.k8s.io/kube-scheduler:v1.36.3"}, {"name": EXTENDER, "image": "pointsman"},
        ]}}});
        serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": spec, "status": {"readyReplicas": ready}})).unwrap()
    }

    #[test]
    fn versions_are_compared_by_the_tag_of_the_image() {
        let state = |image: &str, cluster: &str| version(image, cluster).state;
        let image = scheduler_image(&deployment(2, 2)).unwrap().to_owned();
        assert_eq!((state(&image, "36"), state(&image, "36+")), (State::Ok, State::Ok));
        assert_eq!((state(&image, "35"), state(&image, "37"), state(&image, "38")), (State::Note, State::Note, State::Wrong));
        assert_eq!(state("localhost:5000/k8s/kube-scheduler:1.30.1@sha256:abc", "36"), State::Wrong);
        for unknown in ["localhost:5000/kube-scheduler", "kube-scheduler@sha256:abc", "kube-scheduler:latest", "kube-scheduler:v2.1"] {
            assert_eq!((minor_version(unknown), state(unknown, "36")), (None, State::Note), "{unknown}");
        }
        let remedy = version(&image, "40").remedy.unwrap();
        assert!(remedy.starts_with("set its image to the one of 1.40 ("), "{remedy}");
    }

    #[test]
    fn replicas_that_are_not_ready_say_whether_pods_are_placed() {
        let found = |wanted, ready, schedules| {
            let pods = [pod("a", &json!([]), &json!([status(SCHEDULER, schedules, 0)]))];
            let Finding { state, message, .. } = replicas(&deployment(wanted, ready), &pods, "ns");
            (state, message)
        };
        assert_eq!(found(2, 2, true), (State::Ok, "2 of 2 replicas are ready".to_owned()));
        assert_eq!(found(2, 1, true), (State::Wrong, "1 of 2 replicas are ready".to_owned()));
        let (state, message) = found(2, 0, false);
        assert!(state == State::Wrong && message.ends_with("ready, so pods with schedulerName pointsman get no node"), "{message}");
        assert!(found(0, 0, false).1.starts_with("the Deployment pointsman-scheduler has no replicas"));
    }

    #[test]
    fn an_extender_that_is_away_or_was_says_that_pods_are_placed_without_policies() {
        let found = |status: &Value| extender(&pod("a", &json!([]), &json!([status])), "ns");
        assert!(found(&status(EXTENDER, true, 0)).is_none() && found(&status(SCHEDULER, false, 3)).is_none());
        let mut crashes = status(EXTENDER, false, 3);
        crashes["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let away = found(&crashes).unwrap();
        let expected =
            "the extender of a isn't Ready (CrashLoopBackOff): while the scheduler of this pod leads, it places pods without policies";
        assert_eq!((away.state, away.message.as_str()), (State::Wrong, expected));
        let mut restarted = status(EXTENDER, true, 2);
        assert!(found(&restarted).unwrap().remedy.unwrap().ends_with("--previous` reports why"));
        restarted["lastState"] = json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}});
        let was = found(&restarted).unwrap();
        assert!(was.state == State::Note && was.message.contains("(restarts: 2, last because of OOMKilled)"), "{}", was.message);
        assert!(was.remedy.unwrap().starts_with("raise the memory limit"));
    }

    #[test]
    fn only_pods_that_no_scheduler_has_looked_at_wait_forever() {
        let unseen = |name: &str| pod(name, &json!([]), &json!([]));
        let seen = pod("seen", &json!([{"type": "PodScheduled", "status": "False"}]), &json!([]));
        assert!(waiting(&[]).is_none() && waiting(std::slice::from_ref(&seen)).is_none());
        let one = waiting(&[seen, unseen("a")]).unwrap();
        let expected = "1 pod with schedulerName pointsman waits forever, because no scheduler of this name is installed (chat/a)";
        assert_eq!((one.state, one.message.as_str()), (State::Wrong, expected));
        let many = waiting(&["a", "b", "c", "d"].map(unseen)).unwrap().message;
        assert!(
            many.starts_with("4 pods with schedulerName pointsman wait forever") && many.ends_with("(chat/a, chat/b, chat/c, ...)"),
            "{many}"
        );
    }
}
