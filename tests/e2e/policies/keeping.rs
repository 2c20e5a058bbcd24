//! A plugin whose revision can't be stored: no other plugin waits for it, stored parts stay, and nothing is left once no plugin needs them.

use super::digest;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta, PostParams},
};
use pointsman::{
    problem::Problem,
    revision,
    source::{Source, SourceView, builtin::Builtin, config_map::ConfigMaps},
};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_crds::policy::plugin::PluginSource;
use pointsman_sandbox::{digest::Digest, limits::PART};
use pointsman_tests::{Engine, PolicyCluster, compiled, condition, eventually, plugin_bytes, with_section};
use serde_json::json;
use std::collections::BTreeMap;

const LABELS: &str = "pointsman-example-rust-labels";

/// The message for a rejected part.
const REFUSAL: &str = "the test refuses this part";

/// The maximum number of attempts for a plugin while another one waits.
const FEW: usize = 4;

/// Replaces the source `file`, and returns a plugin that needs four ConfigMaps.
#[derive(Debug)]
struct Large;

impl Source for Large {
    fn field(&self) -> &'static str {
        "file"
    }

    fn title(&self, source: &PluginSource) -> Option<String> {
        source.file.as_ref().map(|file| file.path.clone())
    }

    fn read(&self, _: PluginSource, _: SourceView) -> BoxFuture<'static, Result<Option<Vec<u8>>, Problem>> {
        async { Ok(Some(large())) }.boxed()
    }
}

static WITH_LARGE: [&dyn Source; 3] = [&Builtin, &Large, &ConfigMaps];

/// A plugin with a lot of data that can't be compressed.
fn large() -> Vec<u8> {
    let noise: Vec<u8> = (0_u64..).flat_map(|n| Digest::hash(&n.to_be_bytes()).0).take(3 * PART).collect();
    with_section(&plugin_bytes(LABELS), &noise)
}

/// Configures the API server to reject the second part of every revision, or to accept it again.
async fn refuse(cluster: &PolicyCluster, refuses: bool) {
    let name = "no-second-part";
    let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    if refuses {
        let second = "!(object.metadata.name.startsWith('pointsman-revision-') && object.metadata.name.endsWith('-2'))";
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
        let policy = json!({
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": second, "message": REFUSAL}],
        });
        let binding = json!({"policyName": name, "validationActions": ["Deny"]});
        for (kind, spec) in kinds.into_iter().zip([policy, binding]) {
            let api_version = "admissionregistration.k8s.io/v1";
            cluster.apply(&json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})).ok();
        }
    } else {
        for kind in kinds.into_iter().rev() {
            cluster.kubectl(&["delete", kind, name]).ok();
        }
    }
    let metadata = ObjectMeta { name: Some("pointsman-revision-probe-2".to_owned()), ..ObjectMeta::default() };
    let (probe, only_asked) = (ConfigMap { metadata, ..ConfigMap::default() }, PostParams { dry_run: true, ..PostParams::default() });
    let maps = Api::<ConfigMap>::namespaced(cluster.client().await, HOST_NAMESPACE);
    let so = async || (maps.create(&only_asked, &probe).await.is_err() == refuses).then_some(());
    eventually(&format!("whether the part is refused is {refuses}"), so).await;
}

/// The stored parts of a plugin: their names and uids.
async fn stored(cluster: &PolicyCluster, plugin: &str) -> BTreeMap<String, Option<String>> {
    let maps = Api::<ConfigMap>::namespaced(cluster.client().await, HOST_NAMESPACE);
    let all = maps.list(&ListParams::default().labels(revision::OF)).await.unwrap().items;
    let ours = all.into_iter().filter(|map| map.annotations().get(revision::PLUGIN).map(String::as_str) == Some(plugin));
    ours.map(|map| (map.name_any(), map.uid())).collect()
}

/// Waits until a plugin's revision can't be stored, and returns the message.
async fn not_kept(cluster: &PolicyCluster, plugin: &str) -> String {
    let refused = |status: &_| condition(status, "Loaded").is_some_and(|(_, reason, _)| reason == "RevisionNotKept");
    let status = cluster.status(plugin, "its revision can't be stored", refused).await;
    let (.., message) = condition(&status, "Loaded").unwrap();
    assert!(message.contains(REFUSAL), "{message}");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_revision_that_cant_be_stored_which_goes_on_where_it_was_and_leaves_nothing() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start_with_sources(&cluster, "one", &compiled(), &WITH_LARGE).await;
    refuse(&cluster, true).await;
    cluster.plugin("large", json!({"source": {"file": {"path": "large.wasm"}}})).await;
    let message = not_kept(&cluster, "large").await;
    assert!(message.contains("-2: "), "the part is named: {message}");

    // Another plugin's update becomes active between two attempts.
    let labels = plugin_bytes(LABELS);
    cluster.config_map("labels", &labels).await;
    cluster.plugin_of_config_map("labels", json!({})).await;
    cluster.active("labels", &digest(&labels)).await;
    let tried = |line: &&str| line.contains(REFUSAL) && line.contains(r#""verb":"create""#) && line.contains(r#""resource":"configmaps""#);
    let tries = cluster.audit_lines().lines().filter(tried).count();
    assert!(tries < FEW, "it was tried {tries} times before the other one's update became active");
    let before = stored(&cluster, "large").await;
    assert_eq!(before.len(), 2, "two parts are stored: {before:?}");

    // The parts of a plugin that was never active are deleted with its PolicyPlugin.
    cluster.plugin("never", json!({"source": {"file": {"path": "never.wasm"}}})).await;
    not_kept(&cluster, "never").await;
    assert_eq!(stored(&cluster, "never").await.len(), 2);
    cluster.delete_plugin("never").await;
    eventually("nothing is left of it", async || stored(&cluster, "never").await.is_empty().then_some(())).await;

    refuse(&cluster, false).await;
    cluster.active("large", &digest(&large())).await;
    let after = stored(&cluster, "large").await;
    assert_eq!(after.len(), 4, "{after:?}");
    assert!(before.iter().all(|(name, uid)| after.get(name) == Some(uid)), "they were not written again: {before:?} {after:?}");
    engine.stop().await;
}
