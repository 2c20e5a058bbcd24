//! Policy sets end to end: the effect of an update is reported before it becomes active, an update waits if it needs an approval, and the
//! prediction comes true.

mod back;
mod choices;
mod immediate;
mod independent;
pub(crate) mod leaders;
mod oracle;
mod pace;
mod waiting;

use crate::services::{LastSeen, Space};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use pointsman::keeper::record::{self, ActiveRecord};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_crds::policy::set::{BlastRadius, PolicySet, PolicySetPhase, PolicySetStatus};
use pointsman_sandbox::digest::Digest;
use pointsman_tests::{Host, PolicyCluster, TestCluster, eventually, example_plugin};
use serde_json::{Value, json};

/// The plugin that propagates a label of the namespace to pods.
const LABELS: &str = "pointsman-example-rust-labels";

/// The label that it propagates by default.
const LABEL: &str = "cost-centre";

/// The annotation that approves a set.
const APPROVED: &str = "policy.pointsman.dev/approved";

/// The next version of that plugin, which also propagates the label to objects, with another value.
fn next() -> Vec<u8> {
    std::fs::read(example_plugin(LABELS, "pointsman-example-rust-labels-next")).unwrap()
}

/// The digest of bytes, in the format of objects.
fn digest(bytes: &[u8]) -> String {
    Digest::hash(bytes).to_string()
}

/// A host whose set is active.
async fn start<'a>(cluster: &'a PolicyCluster, flags: &[&str]) -> Host<'a> {
    let host = Host::start(cluster, flags).await;
    host.ready().await;
    set_that(cluster, "a set decides", decides).await;
    host
}

/// A strategy with which an update becomes active without an approval, but only after the comparison.
fn by_itself() -> Value {
    json!({"strategy": {"type": "Guarded", "maxRestarting": "100%"}})
}

/// Applies a plugin: its bytes in a ConfigMap, and its PolicyPlugin with `more`.
async fn bring(cluster: &PolicyCluster, name: &str, bytes: &[u8], more: Value) {
    cluster.config_map(name, bytes).await;
    cluster.plugin_of_config_map(name, more).await;
}

/// Labels the namespace.
pub(crate) async fn label(space: &Space<'_>, labels: Value) {
    let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
    Api::<Namespace>::all(space.0.client.clone()).patch(&space.0.name, &PatchParams::default(), &change).await.unwrap();
}

/// Waits for a set that is as expected, and returns it.
pub(crate) async fn set_that(cluster: &PolicyCluster, what: &str, expected: impl Fn(&PolicySet) -> bool) -> PolicySet {
    let api = Api::<PolicySet>::all(cluster.client().await);
    let last = LastSeen::default();
    eventually(what, async || {
        let sets = api.list(&ListParams::default()).await.unwrap().items;
        let told: Vec<_> = sets.iter().map(|set| (set.name_any(), &set.status)).collect();
        last.note(format!("{told:#?}"));
        sets.into_iter().find(|set| expected(set))
    })
    .await
}

/// Approves the candidate that needs an approval, as soon as there is one.
pub(crate) async fn approve_waiting(cluster: &TestCluster) {
    eventually("a candidate waits for an approval", async || {
        let sets: Vec<PolicySet> = serde_json::from_str(&cluster.pointsman(&["policy", "history", "-o", "json"]).ok()).unwrap();
        let waiting = sets.iter().find(|set| waits(set))?;
        Some(cluster.pointsman(&["policy", "approve", &waiting.name_any()]).ok())
    })
    .await;
}

/// Waits until a set is in this phase.
async fn turns(cluster: &PolicyCluster, set: &PolicySet, phase: PolicySetPhase) -> PolicySet {
    let name = set.name_any();
    set_that(cluster, &format!("{name} is {phase:?}"), |set| set.name_any() == name && is(set, phase)).await
}

/// The cluster's record of the active set.
async fn recorded(client: &Client) -> ActiveRecord {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), HOST_NAMESPACE);
    ActiveRecord::from_config_map(&maps.get(record::NAME).await.unwrap()).unwrap()
}

/// Annotates a set with an approval, as a user without the command line would.
fn annotate(cluster: &PolicyCluster, set: &PolicySet, digest: &str) {
    cluster.kubectl(&["annotate", "policyset", &set.name_any(), &format!("{APPROVED}={digest}"), "--overwrite"]).ok();
}

/// Waits until the host has seen all previous writes to PolicySets: it recreates the active set's deleted object, whose events come from
/// the same watch. Returns the new object.
async fn sets_are_seen(cluster: &PolicyCluster) -> PolicySet {
    let active = set_that(cluster, "a set decides", decides).await;
    cluster.kubectl(&["delete", "policyset", &active.name_any()]).ok();
    let back = |set: &PolicySet| set.spec.digest == active.spec.digest && set.uid() != active.uid() && decides(set);
    set_that(cluster, "the object of the active set is back", back).await
}

fn status(set: &PolicySet) -> PolicySetStatus {
    set.status.clone().unwrap_or_default()
}

pub(crate) fn is(set: &PolicySet, phase: PolicySetPhase) -> bool {
    status(set).phase == Some(phase)
}

pub(crate) fn decides(set: &PolicySet) -> bool {
    is(set, PolicySetPhase::Active)
}

/// Whether a candidate was compared and needs an approval.
fn waits(set: &PolicySet) -> bool {
    is(set, PolicySetPhase::Candidate) && reason(set, "Shadowed") == "Compared" && reason(set, "Approved") == "Awaited"
}

/// Whether a plugin is part of a set.
fn has(set: &PolicySet, plugin: &str) -> bool {
    set.spec.plugins.iter().any(|member| member.name == plugin)
}

/// The reason of a condition.
fn reason(set: &PolicySet, type_: &str) -> String {
    let found = status(set).conditions.into_iter().find(|condition| condition.type_ == type_);
    found.map(|condition| condition.reason).unwrap_or_default()
}

fn message(set: &PolicySet) -> String {
    status(set).message.unwrap_or_default()
}

fn radius(set: &PolicySet) -> BlastRadius {
    status(set).blast_radius.unwrap()
}

/// The numbers of subjects: those whose pods restart, those that change otherwise, those with changed metadata only, and those that fail.
fn counts(set: &PolicySet) -> [i64; 4] {
    let BlastRadius { restarts, objects, metadata, failed, .. } = radius(set);
    [restarts, objects, metadata, failed]
}
