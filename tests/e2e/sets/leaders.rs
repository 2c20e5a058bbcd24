//! All hosts use one set, and finally the newest: even if a leader is killed at any time, whatever its version, however fast updates
//! arrive, and even if their sources change or disappear.
//!
//! Only on an API server: objects, the hosts' metrics and pod templates show the effects of a promotion.

use super::{
    APPROVED, LABEL, LABELS, annotate, bring, by_itself, decides, digest, is, label, message, next, recorded, set_that, sets_are_seen,
    start, turns, waits,
};
use crate::services::{LastSeen, Space};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use pointsman::{
    keeper::record::{self, ActiveRecord},
    revision::Revisions,
};
use pointsman_core::{
    resource::{DEPLOYMENT, LLM_INFERENCE_SERVICE},
    settings::HOST_NAMESPACE,
};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use pointsman_sandbox::builtin;
use pointsman_tests::{Engine, Host, PolicyCluster, eventually, plugin_bytes, with_other_digest};
use serde_json::{Value, json};
use std::{
    pin::pin,
    sync::{Arc, Mutex},
};
use tokio::task::JoinHandle;

/// A version of the plugin `labels`.
struct Version {
    bytes: Vec<u8>,
    digest: String,
    /// The value of the pods' label with it.
    carried: &'static str,
}

/// Versions with different bytes. Consecutive versions change pods differently.
fn versions(number: usize) -> Vec<Version> {
    let kinds = [(plugin_bytes(LABELS), "4711"), (next(), "centre-4711")];
    let version = |number: usize| {
        let (bytes, carried) = &kinds[number % 2];
        let bytes = with_other_digest(bytes, number);
        Version { digest: digest(&bytes), bytes, carried }
    };
    (0..number).map(version).collect()
}

/// Whether a version is part of a set.
fn brings(set: &PolicySet, version: &Version) -> bool {
    set.spec.plugins.iter().any(|plugin| plugin.digest == version.digest)
}

/// A service whose pods get the plugin's label, once its Deployment exists.
async fn service(cluster: &PolicyCluster) -> Space<'_> {
    let space = Space::bare(cluster, "leaders").await;
    label(&space, json!({LABEL: "4711"})).await;
    space.create(&LLM_INFERENCE_SERVICE, "a", json!({"spec": {"model": {"uri": "hf://example/llama"}}})).await;
    space.becomes(&DEPLOYMENT, "a-kserve", "it is there", |_| true).await;
    space
}

/// The label in that service's pod template.
async fn carried(space: &Space<'_>) -> Option<String> {
    let deployment = space.get(&DEPLOYMENT, "a-kserve").await;
    deployment["spec"]["template"]["metadata"]["labels"][LABEL].as_str().map(str::to_owned)
}

/// A host that shares only the cluster with other hosts.
async fn host<'a>(cluster: &'a PolicyCluster, cache: &str) -> Host<'a> {
    let cache = cluster.folder(cache);
    let host = Host::start(cluster, &["--cache", cache.to_str().unwrap()]).await;
    host.ready().await;
    host
}

pub(crate) fn leads(host: &Host<'_>) -> bool {
    host.get("/metrics").is_ok_and(|(_, metrics)| metrics.contains("\npointsman_leader 1\n"))
}

/// The digest of the set that is active in a host, by the host's metrics.
fn decides_in(host: &Host<'_>) -> Option<String> {
    let (_, metrics) = host.get("/metrics").ok()?;
    let line = metrics.lines().find(|line| line.starts_with("pointsman_policy_set_info{"))?;
    line.split("digest=\"").nth(1)?.split('"').next().map(str::to_owned)
}

async fn all_sets(client: &Client) -> Vec<PolicySet> {
    Api::<PolicySet>::all(client.clone()).list(&ListParams::default()).await.unwrap().items
}

/// The active set, by everything that reports it.
#[derive(Debug)]
struct Told {
    record: ActiveRecord,
    /// The digests of the sets that are active, and of those that are candidates.
    active: Vec<String>,
    candidates: Vec<String>,
    /// The digest of the active set of each host.
    hosts: Vec<Option<String>>,
    /// The label in the pod template.
    carried: Option<String>,
    /// The number of sets, and of the plugin's revisions.
    sets: usize,
    revisions: usize,
}

impl Told {
    async fn by(space: &Space<'_>, hosts: &[Host<'_>]) -> Self {
        let client = &space.0.client;
        let sets = all_sets(client).await;
        let in_phase = |phase: PolicySetPhase| -> Vec<String> {
            sets.iter().filter(|set| is(set, phase)).map(|set| set.spec.digest.clone()).collect()
        };
        Self {
            record: recorded(client).await,
            active: in_phase(PolicySetPhase::Active),
            candidates: in_phase(PolicySetPhase::Candidate),
            hosts: hosts.iter().map(decides_in).collect(),
            carried: carried(space).await,
            sets: sets.len(),
            revisions: Revisions::new(client.clone(), HOST_NAMESPACE).list("labels").await.unwrap().len(),
        }
    }

    /// Whether all report the same set.
    fn of_one(&self) -> bool {
        let decides = &self.record.digest;
        self.active == [decides.as_str()] && self.hosts.iter().all(|told| told.as_ref() == Some(decides))
    }

    /// Whether a version is active and its effect is applied.
    fn decides(&self, version: &Version) -> bool {
        self.record.plugins.get("labels").is_some_and(|plugin| plugin.active.digest == version.digest)
            && self.carried.as_deref() == Some(version.carried)
    }

    /// Whether only the objects in use and those for a rollback exist: ten sets, and five revisions.
    fn is_tidy(&self) -> bool {
        let formers = self.record.formers.len();
        let (sets_in_use, revisions_in_use) = (1 + formers + self.candidates.len(), 2 + formers + self.candidates.len());
        self.sets <= 10 + sets_in_use && self.revisions <= 5 + revisions_in_use
    }
}

/// Waits until all report the same set, and it is as expected.
async fn agree(space: &Space<'_>, hosts: &[Host<'_>], what: &str, expected: impl Fn(&Told) -> bool) {
    let last = LastSeen::default();
    eventually(what, async || {
        let told = Told::by(space, hosts).await;
        last.note(format!("{told:#?}"));
        (told.of_one() && expected(&told)).then_some(())
    })
    .await;
}

/// The writes of a promotion in their order: each with its name and a CEL expression that detects it. NEW is the digest of the newest
/// bytes.
const WRITES: [(&str, &str); 8] = [
    ("revision", "variables.name.startsWith('pointsman-revision-')"),
    ("set", "variables.does == 'CREATE policysets' && variables.brings"),
    ("status of a tried plugin", "variables.does == 'UPDATE policyplugins' && object.status.?candidate.?digest.orValue('') == 'NEW'"),
    ("status of a candidate", "variables.does == 'UPDATE policysets' && variables.brings && object.status.phase == 'Candidate'"),
    ("report", "variables.name.startsWith('pointsman-report-')"),
    ("record", "variables.name == 'pointsman-active' && object.data['set.json'].contains('NEW')"),
    ("status of an active plugin", "variables.does == 'UPDATE policyplugins' && object.status.?active.?digest.orValue('') == 'NEW'"),
    ("status of the active set", "variables.does == 'UPDATE policysets' && variables.brings && object.status.phase == 'Active'"),
];

/// The name of the policy that rejects writes, and of the object that probes it.
const NO_FURTHER: &str = "no-further";

/// The message of a rejected write.
fn refusal(step: usize) -> String {
    format!("the test refuses write {step}, the {}", WRITES[step].0)
}

/// Configures the API server to reject one of these writes and all later ones: a host that promotes the version gets up to this write and
/// no further, even if it continues after the rejection.
async fn refuse_from(cluster: &PolicyCluster, step: usize, version: &Version) {
    let of_version = |expression: &str| expression.replace("NEW", &version.digest);
    let refused = |(step, (_, write)): (usize, &(&str, &str))| {
        let expression = of_version(&format!("!({write})"));
        json!({"expression": expression, "message": refusal(step)})
    };
    let probe = json!({"expression": format!("variables.name != '{NO_FURTHER}'"), "message": "the test refuses what it asks for"});
    let validations: Vec<Value> = WRITES.iter().enumerate().skip(step).map(refused).chain([probe]).collect();
    let rule = |group: &str, resources: &[&str], operations: &[&str]| {
        let any = ["*"];
        json!({"apiGroups": [group], "apiVersions": any, "resources": resources, "operations": operations})
    };
    let ours = "policy.pointsman.dev";
    let rules = [
        rule("", &["configmaps"], &["CREATE", "UPDATE"]),
        rule(ours, &["policysets"], &["CREATE"]),
        rule(ours, &["policysets/status", "policyplugins/status"], &["UPDATE"]),
    ];
    let policy = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "variables": [
            {"name": "does", "expression": "request.operation + ' ' + request.resource.resource"},
            {"name": "name", "expression": "object.metadata.name"},
            {"name": "brings", "expression": of_version("object.spec.plugins.exists(plugin, plugin.digest == 'NEW')")},
        ],
        "validations": validations,
    });
    let binding = json!({"policyName": NO_FURTHER, "validationActions": ["Deny"]});
    for (kind, spec) in [("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)] {
        let api_version = "admissionregistration.k8s.io/v1";
        cluster.apply(&json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": NO_FURTHER}, "spec": spec})).ok();
    }
    goes_by_it(cluster, true).await;
}

/// Accepts all writes again.
async fn refuse_nothing(cluster: &PolicyCluster) {
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        cluster.kubectl(&["delete", kind, NO_FURTHER]).ok();
    }
    goes_by_it(cluster, false).await;
}

/// Waits until the API server enforces that policy, or no longer does: both take a moment.
async fn goes_by_it(cluster: &PolicyCluster, expected: bool) {
    let maps = Api::<ConfigMap>::namespaced(cluster.client().await, HOST_NAMESPACE);
    let metadata = ObjectMeta { name: Some(NO_FURTHER.to_owned()), ..ObjectMeta::default() };
    let probe = ConfigMap { metadata, ..ConfigMap::default() };
    let only_asked = PostParams { dry_run: true, ..PostParams::default() };
    let so = async || (maps.create(&only_asked, &probe).await.is_err() == expected).then_some(());
    eventually(&format!("whether writes are refused is {expected}"), so).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn wherever_the_leader_is_killed_the_next_one_brings_the_newest_to_an_end() {
    let cluster = PolicyCluster::start().await;
    let mut hosts = vec![host(&cluster, "first").await, host(&cluster, "second").await];
    let space = service(&cluster).await;
    let versions = versions(WRITES.len() + 1);
    bring(&cluster, "labels", &versions[0].bytes, by_itself()).await;
    agree(&space, &hosts, "the first version decides", |told| told.decides(&versions[0])).await;

    let at = LastSeen::default();
    for (step, (what, _)) in WRITES.iter().enumerate() {
        at.note(format!("the leader is killed before write {step}, the {what}"));
        let version = &versions[step + 1];
        let leader = eventually("one leads", async || hosts.iter().position(leads)).await;
        refuse_from(&cluster, step, version).await;
        cluster.config_map("labels", &version.bytes).await;
        // Search the text: to parse all of it repeatedly would take CPU time that the hosts need.
        let refused = async || cluster.audit_lines().contains(&refusal(step)).then_some(());
        eventually("the leader comes to that write", refused).await;
        cluster.kill_part(&hosts.remove(leader).part).unwrap();
        refuse_nothing(&cluster).await;
        // Otherwise it takes 15 s to expire, which services/quiet.rs tests.
        cluster.kubectl(&["delete", "lease", "-n", HOST_NAMESPACE, "pointsman"]).ok();
        eventually("the other one leads", async || leads(&hosts[0]).then_some(())).await;

        let ended = |told: &Told| told.decides(version) && told.candidates.is_empty();
        agree(&space, &hosts, "the newest version decides", ended).await;
        cluster.active("labels", &version.digest).await;
        hosts.push(host(&cluster, &format!("after-{step}")).await);
        agree(&space, &hosts, "it does so in a host that comes later", ended).await;
    }
    for host in hosts {
        host.stop();
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn an_older_host_does_not_undo_what_a_newer_one_brought() {
    const NAME: &str = "pod-templating";
    const NEWER: &str = "9.9.9";
    let cluster = PolicyCluster::start().await;
    let client = cluster.client().await;
    let own = builtin::find(NAME).unwrap().bytes;
    let (own, other) = (digest(own), with_other_digest(own, 1));
    let bound = |more: Value| {
        let mut spec = json!({"source": {"builtin": {"name": NAME}}, "order": 0});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let decides = |engine: &Engine| engine.policies.active().member(NAME).map(|member| member.bound.digest.clone());

    // The newer host only differs in its version and has the same built-ins. So pin another revision, as if the host had shipped it.
    let newer = Engine::start_version(&cluster, "newer", &cluster.folder("newer"), NEWER).await;
    bring(&cluster, "other", &other, json!({})).await;
    let other = digest(&other);
    cluster.active("other", &other).await;
    cluster.plugin(NAME, bound(json!({"digest": other}))).await;
    cluster.active(NAME, &other).await;
    newer.stop().await;
    cluster.plugin(NAME, bound(json!({}))).await;

    // The older host has read the PolicyPlugin, and activates later changes.
    let older = Engine::start(&cluster, "older", &cluster.folder("older")).await;
    cluster.active(NAME, &other).await;
    let cost = plugin_bytes("pointsman-example-rust-cost");
    bring(&cluster, "cost", &cost, json!({"strategy": {"type": "Immediate"}})).await;
    cluster.active("cost", &digest(&cost)).await;
    assert_eq!(decides(&older).as_ref(), Some(&other));
    let record = recorded(&client).await;
    assert_eq!((record.plugins[NAME].active.digest.as_str(), record.host.as_str()), (other.as_str(), NEWER));
    assert!(all_sets(&client).await.iter().all(|set| !is(set, PolicySetPhase::Candidate)), "it would undo it with somebody's word");
    older.stop().await;

    // For a host that isn't older, its own built-in is an ordinary update.
    let newer = Engine::start_version(&cluster, "newer-again", &cluster.folder("newer"), NEWER).await;
    cluster.active(NAME, &own).await;
    assert_eq!(decides(&newer).as_ref(), Some(&own));
    assert_eq!(recorded(&client).await.host, NEWER);
    newer.stop().await;
}

/// The number of updates in a burst.
const UPDATES: usize = 50;

/// Pushes versions as fast as the API server accepts them.
async fn push<'a>(cluster: &PolicyCluster, versions: impl Iterator<Item = &'a Version>) {
    for version in versions {
        cluster.config_map("labels", &version.bytes).await;
    }
}

/// Records the plugin's active bytes in their order, by the cluster's record.
fn watch_record(client: Client) -> (Arc<Mutex<Vec<String>>>, JoinHandle<()>) {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        let api = Api::<ConfigMap>::namespaced(client, HOST_NAMESPACE);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", record::NAME));
        let mut maps = pin!(watcher::watcher(api, only).default_backoff().applied_objects());
        while let Some(map) = maps.next().await {
            let told = map.ok().and_then(|map| ActiveRecord::from_config_map(&map).ok()?.plugins.remove("labels"));
            noted.lock().unwrap().extend(told.map(|plugin| plugin.active.digest));
        }
    });
    (seen, task)
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn of_50_updates_in_ten_seconds_the_newest_decides_everywhere_and_the_others_leave_nothing() {
    let cluster = PolicyCluster::start().await;
    let hosts = [host(&cluster, "first").await, host(&cluster, "second").await];
    let space = service(&cluster).await;
    let versions = versions(3 * UPDATES);
    let (seen, watching) = watch_record(space.0.client.clone());

    // Each of them restarts pods, within the limit.
    bring(&cluster, "labels", &versions[0].bytes, by_itself()).await;
    agree(&space, &hosts, "the first version decides", |told| told.decides(&versions[0])).await;
    let fiftieth = &versions[UPDATES];
    push(&cluster, versions[1..=UPDATES].iter()).await;
    let ended = |told: &Told| told.decides(fiftieth) && told.candidates.is_empty() && told.is_tidy();
    agree(&space, &hosts, "the newest decides, and little is left", ended).await;

    // Each of them restarts pods, and needs an approval.
    cluster.plugin_of_config_map("labels", json!({})).await;
    cluster.active("labels", &fiftieth.digest).await;
    let others: Vec<&Version> = versions[UPDATES + 1..].iter().filter(|version| version.carried != fiftieth.carried).collect();
    assert_eq!(others.len(), UPDATES);
    let newest = others[UPDATES - 1];
    push(&cluster, others.iter().copied()).await;
    let waiting = set_that(&cluster, "the newest waits", |set| waits(set) && brings(set, newest)).await;
    let waits_alone = |told: &Told| told.decides(fiftieth) && told.candidates == [waiting.spec.digest.as_str()] && told.is_tidy();
    agree(&space, &hosts, "it waits alone, and little is left", waits_alone).await;
    cluster.pointsman(&["policy", "approve", &waiting.name_any()]).ok();
    let ended = |told: &Told| told.decides(newest) && told.candidates.is_empty();
    agree(&space, &hosts, "it decides once it is approved", ended).await;

    // No older version has become active after a newer one.
    let decided = eventually("the end is seen", async || {
        let seen = seen.lock().unwrap().clone();
        (seen.last() == Some(&newest.digest)).then_some(seen)
    })
    .await;
    let place = |digest: &String| versions.iter().position(|version| version.digest == *digest).unwrap();
    let places: Vec<usize> = decided.iter().map(place).collect();
    assert!(places.is_sorted(), "{places:?}");
    // Of those that needed an approval, only the newest became active.
    assert!(places.iter().all(|place| *place <= UPDATES || versions[*place].digest == newest.digest), "{places:?}");
    watching.abort();
    for host in hosts {
        host.stop();
    }
}

/// Waits until the set with a version needs an approval.
async fn waits_with(cluster: &PolicyCluster, version: &Version) -> PolicySet {
    set_that(cluster, "the set with the version waits", |set| waits(set) && brings(set, version)).await
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_source_that_changes_or_goes_while_its_version_is_compared_or_waits_never_becomes_active() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = service(&cluster).await;
    let former = set_that(&cluster, "a set decides", decides).await;
    let versions = versions(3);

    // It has just been nominated, so its comparison has begun or begins soon.
    bring(&cluster, "labels", &versions[0].bytes, json!({})).await;
    let first = set_that(&cluster, "the first version is nominated", |set| brings(set, &versions[0])).await;
    cluster.config_map("labels", &versions[1].bytes).await;
    let second = waits_with(&cluster, &versions[1]).await;
    turns(&cluster, &first, PolicySetPhase::Abandoned).await;
    // This one needs an approval.
    cluster.config_map("labels", &versions[2].bytes).await;
    let third = waits_with(&cluster, &versions[2]).await;
    let gone = turns(&cluster, &second, PolicySetPhase::Abandoned).await;
    assert!(message(&gone).contains(&third.name_any()), "{}", message(&gone));
    cluster.kubectl(&["delete", "configmap", "-n", HOST_NAMESPACE, "labels"]).ok();
    let gone = turns(&cluster, &third, PolicySetPhase::Abandoned).await;
    assert!(message(&gone).contains("reverted"), "{}", message(&gone));
    assert_eq!(cluster.refused("labels").await.0, "ConfigMapNotFound");

    // An abandoned set can't be approved, even if it becomes a candidate again.
    for set in [&first, &second, &third] {
        annotate(&cluster, set, &set.spec.digest);
    }
    assert_eq!(sets_are_seen(&cluster).await.spec.digest, former.spec.digest);
    for set in [&first, &second, &third] {
        turns(&cluster, set, PolicySetPhase::Abandoned).await;
    }
    cluster.config_map("labels", &versions[2].bytes).await;
    let back = waits_with(&cluster, &versions[2]).await;
    assert_eq!((back.name_any(), back.annotations().get(APPROVED)), (third.name_any(), None));
    assert_eq!(sets_are_seen(&cluster).await.spec.digest, former.spec.digest);
    turns(&cluster, &back, PolicySetPhase::Candidate).await;
    assert!(!recorded(&space.0.client).await.plugins.contains_key("labels"));
    assert_eq!(carried(&space).await, None);
    host.stop();
}
