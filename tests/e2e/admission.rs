//! The admission webhook, called by a real API server: a user whose object violates a rule gets the reason, and no write is blocked if the
//! webhook can't respond.

use crate::sets::approve_waiting;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{Namespace, Secret},
    },
};
use kube::{
    Api, Resource,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use pointsman::{permissions::WEBHOOK_SECRET, serve::admission::certificates::made};
use pointsman_crds::{KINDS, policy::rule::ValidationRule};
use pointsman_tests::{CommandOutput, Host, PolicyCluster, TestCluster, eventually, fixtures};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    fmt::Debug,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// The host's namespace.
const HOME: &str = pointsman_core::settings::HOST_NAMESPACE;

/// A host that serves the webhook, and the webhook's address.
async fn host<'a>(cluster: &'a TestCluster, flags: &[&str]) -> (Host<'a>, String) {
    let all = [&["--webhook", "127.0.0.1:0"][..], flags].concat();
    let host = Host::start(cluster, &all).await;
    let address = host.webhook().await;
    (host, address)
}

/// A host that is ready and issues its own certificates.
pub(crate) async fn ready(cluster: &TestCluster) -> (Host<'_>, String) {
    let (host, address) = host(cluster, &["--webhook-host", "127.0.0.1"]).await;
    host.ready().await;
    (host, address)
}

fn folder(cluster: &TestCluster, name: &str) -> PathBuf {
    let folder = cluster.dir.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Applies an object and becomes the owner of all its fields.
async fn apply<K>(cluster: &TestCluster, name: &str, object: Value)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let api = Api::<K>::all(cluster.client().await);
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
}

/// Configures the API server to call a webhook for our kinds.
pub(crate) async fn validating(cluster: &TestCluster, address: &str, failure_policy: &str) {
    let configuration = configuration("ValidatingWebhookConfiguration", "validate", address, failure_policy);
    apply::<ValidatingWebhookConfiguration>(cluster, "pointsman", configuration).await;
}

fn configuration(kind: &str, door: &str, address: &str, failure_policy: &str) -> Value {
    let groups = ["ome.io", "serving.kserve.io", "inference.eh-ops.io", "inference.networking.x-k8s.io", "policy.pointsman.dev"];
    let operations = if door == "validate" { json!(["CREATE", "UPDATE", "DELETE"]) } else { json!(["CREATE", "UPDATE"]) };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "pointsman"},
        "webhooks": [{
            "name": format!("{door}.pointsman.dev"), "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "failurePolicy": failure_policy, "clientConfig": {"url": format!("https://{address}/{door}")},
            "rules": [{"apiGroups": groups, "apiVersions": ["*"], "operations": operations, "resources": ["*"]}],
        }],
    })
}

/// Waits until the leader has written the `caBundle`.
pub(crate) async fn trusted(cluster: &TestCluster) -> ByteString {
    let api = Api::<ValidatingWebhookConfiguration>::all(cluster.client().await);
    eventually("the leader writes the caBundle", async || {
        let found = api.get("pointsman").await.unwrap();
        found.webhooks.unwrap_or_default().into_iter().next()?.client_config.ca_bundle
    })
    .await
}

/// Creates or changes a rule, and waits until it is active.
async fn rule(cluster: &TestCluster, name: &str, mut spec: Value) {
    spec["strategy"] = json!({"type": "Immediate"});
    spec["match"] = json!({"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]});
    let rule = json!({"apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "ValidationRule", "metadata": {"name": name}, "spec": spec});
    apply::<ValidationRule>(cluster, name, rule).await;
    let api = Api::<ValidationRule>::all(cluster.client().await);
    eventually(&format!("the rule {name} counts"), async || {
        let rule = api.get(name).await.unwrap();
        let status = rule.status.filter(|status| status.observed_generation == rule.metadata.generation)?;
        status.conditions.iter().any(|condition| condition.type_ == "Active" && condition.status == "True").then_some(())
    })
    .await;
}

/// A rule that limits the replicas of a service.
fn few(most: u32) -> Value {
    json!({"validations": [{"expression": format!("object.spec.replicas <= {most}"), "message": format!("{most} replicas are the most")}]})
}

fn service(namespace: &str, name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService", "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"uri": "hf://example/llama"}, "replicas": replicas},
    })
}

/// The output of kubectl for a dry run.
fn dry_run(cluster: &TestCluster, object: &Value) -> CommandOutput {
    let file = folder(cluster, "objects").join(format!("{}.json", object["metadata"]["name"].as_str().unwrap()));
    std::fs::write(&file, object.to_string()).unwrap();
    cluster.kubectl(&["apply", "--dry-run=server", "-f", file.to_str().unwrap()])
}

/// Waits until a dry run of an object is rejected with this text of the webhook.
async fn refused(cluster: &TestCluster, object: &Value, says: &str) -> String {
    eventually(&format!("it is refused with {says:?}"), async || {
        let said = dry_run(cluster, object);
        (!said.success && said.stderr.contains(says)).then_some(said.stderr)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_writes_what_a_rule_refuses_is_told_and_a_changed_rule_counts_for_the_next_request() {
    let cluster = PolicyCluster::start().await;
    let (host, address) = ready(&cluster).await;
    let space = cluster.namespace("admission").await.name;
    rule(&cluster, "few", few(8)).await;
    let hint = json!({"actions": ["Warn"], "validations": [{"expression": "object.spec.replicas < 5", "message": "that is a lot"}]});
    rule(&cluster, "hint", hint).await;
    validating(&cluster, &address, "Ignore").await;
    trusted(&cluster).await;

    let said = refused(&cluster, &service(&space, "large", 9), "denied the request").await;
    assert!(said.contains("admission webhook \"validate.pointsman.dev\" denied the request: few: 8 replicas are the most"), "{said}");
    let said = cluster.apply(&service(&space, "large", 9)).refused();
    assert!(said.contains("few: 8 replicas are the most") && said.contains("Warning: hint: that is a lot"), "{said}");
    let made = cluster.apply(&service(&space, "middle", 6));
    assert!(made.success && made.stderr.contains("Warning: hint: that is a lot"), "{}", made.stderr);
    let tried = dry_run(&cluster, &service(&space, "tried", 2));
    assert!(tried.success && !tried.stderr.contains("Warning"), "{}", tried.stderr);
    let there = cluster.kubectl(&["get", "llmisvc", "-n", &space, "-o", "name"]).ok();
    assert_eq!(there.trim(), "llminferenceservice.serving.kserve.io/middle");

    rule(&cluster, "few", few(20)).await;
    cluster.apply(&service(&space, "large", 9)).ok();
    let (_, metrics) = host.get("/metrics").unwrap();
    let denied = "pointsman_admission_requests_total{operation=\"CREATE\",allowed=\"false\"}";
    assert!(
        metrics.contains(denied) && metrics.contains("controller_runtime_webhook_latency_seconds_count{webhook=\"/validate\"}"),
        "{metrics}"
    );
    // It is renewed when a third of its 90 days is left.
    let ends = host.metric("pointsman_webhook_certificate_expiry_timestamp_seconds").unwrap();
    let days = (ends - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()) / 86_400.0;
    assert!((30.0..=90.0).contains(&days), "{days}");
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_deletes_a_model_in_use_or_uses_a_deprecated_one_is_warned() {
    let cluster = PolicyCluster::start().await;
    let (host, address) = ready(&cluster).await;
    let space = cluster.namespace("in-use").await.name;
    validating(&cluster, &address, "Ignore").await;
    trusted(&cluster).await;
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": name, "namespace": space}, "spec": spec});
    let uses = |name: &str| object("InferenceService", name, json!({"model": {"name": "phi", "kind": "BaseModel"}}));
    cluster.apply(&object("BaseModel", "phi", json!({"storage": {"storageUri": "hf://example/phi", "path": "/models/phi"}}))).ok();
    cluster.apply(&uses("chat")).ok();
    let delete = ["delete", "basemodel", "phi", "-n", &space, "--dry-run=server"];
    let in_use = "Warning: the BaseModel phi is used by InferenceService";
    eventually("who deletes the model is warned", async || cluster.kubectl(&delete).stderr.contains(in_use).then_some(())).await;
    let status = r#"{"status":{"lifecycle":"Deprecated"}}"#;
    cluster.kubectl(&["patch", "basemodel", "phi", "-n", &space, "--subresource=status", "--type=merge", "-p", status]).ok();
    let deprecated = "Warning: the BaseModel phi is deprecated: plan to serve another";
    eventually("who uses it is warned", async || dry_run(&cluster, &uses("other")).stderr.contains(deprecated).then_some(())).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_rule_refuses_can_still_be_finalized_and_deleted() {
    let cluster = PolicyCluster::start().await;
    let (host, address) = ready(&cluster).await;
    let space = cluster.namespace("newer").await.name;
    cluster.apply(&service(&space, "large", 9)).ok();
    // The rule stops the plan of an existing service, so it needs an approval.
    tokio::join!(rule(&cluster, "few", few(8)), approve_waiting(&cluster));
    validating(&cluster, &address, "Ignore").await;
    trusted(&cluster).await;
    refused(&cluster, &service(&space, "other", 9), "few: 8 replicas").await;

    let patch = |patch: Value| cluster.kubectl(&["patch", "llmisvc", "large", "-n", &space, "--type=merge", "-p", &patch.to_string()]);
    patch(json!({"metadata": {"finalizers": ["example.com/keep"]}})).ok();
    let said = patch(json!({"spec": {"replicas": 10}})).refused();
    assert!(said.contains("few: 8 replicas are the most"), "{said}");
    cluster.kubectl(&["delete", "llmisvc", "large", "-n", &space, "--wait=false"]).ok();
    patch(json!({"metadata": {"finalizers": null}})).ok();
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_read_the_request_and_what_was_before_are_evaluated_here() {
    let cluster = PolicyCluster::start().await;
    let (host, address) = ready(&cluster).await;
    let space = cluster.namespace("before").await.name;
    let grows = "oldObject == null || object.spec.replicas >= oldObject.spec.replicas || request.userInfo.username == 'boss'";
    rule(&cluster, "grows", json!({"validations": [{"expression": grows, "message": "it only grows", "reason": "Forbidden"}]})).await;
    cluster.apply(&service(&space, "one", 4)).ok();
    validating(&cluster, &address, "Ignore").await;
    trusted(&cluster).await;
    let said = refused(&cluster, &service(&space, "one", 3), "grows: it only grows").await;
    assert!(said.contains("Forbidden"), "{said}");
    cluster.apply(&service(&space, "one", 5)).ok();
    cluster.apply(&service(&space, "two", 1)).ok();
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_rule_with_a_typo_is_refused_with_every_flaw() {
    let cluster = PolicyCluster::start().await;
    let (host, address) = ready(&cluster).await;
    validating(&cluster, &address, "Ignore").await;
    trusted(&cluster).await;
    let validations = json!([{"expression": "object.spec.replica <= 8"}, {"expression": "object.spec.replicas <="}]);
    let rule = |validations: &Value| {
        let selection = json!({"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]});
        let spec = json!({"match": selection, "validations": validations});
        json!({"apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "ValidationRule", "metadata": {"name": "typo"}, "spec": spec})
    };
    refused(&cluster, &rule(&validations), "spec.validations[1].expression").await;
    let said = refused(&cluster, &rule(&json!([validations[0]])), "spec.validations[0].expression").await;
    assert!(said.contains("replicas"), "{said}");
    assert!(dry_run(&cluster, &rule(&json!([{"expression": "object.spec.replicas <= 8"}]))).success);
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_know_the_rules_yet_gives_no_answer_and_shows_the_certificate_of_its_folder() {
    // Without the host's namespace, the host can't know the rules yet.
    let cluster = TestCluster::bare(&[]);
    cluster.pointsman(&["crds", "install"]).ok();
    let folder = folder(&cluster, "certificates");
    let kept = made::renewed(None, &["127.0.0.1".to_owned()], made::now()).unwrap().unwrap();
    for (name, content) in [("tls.crt", &kept.leaf), ("tls.key", &kept.leaf_key), ("ca.crt", &kept.bundle)] {
        std::fs::write(folder.join(name), content).unwrap();
    }
    // The host's ServiceAccount would be in the missing namespace.
    let host =
        Host::start_as(&cluster, &cluster.kubeconfig, &["--webhook", "127.0.0.1:0", "--webhook-certs", folder.to_str().unwrap()]).await;
    let address = host.webhook().await;
    let mut configuration = configuration("ValidatingWebhookConfiguration", "validate", &address, "Fail");
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(ByteString(kept.bundle.clone().into_bytes()));
    apply::<ValidatingWebhookConfiguration>(&cluster, "pointsman", configuration).await;

    // Without the host's namespace, the host can't read the record.
    let said = refused(&cluster, &service("default", "early", 1), "failed calling webhook").await;
    assert!(!said.contains("certificate"), "{said}");
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(HOME.to_owned());
    Api::all(cluster.client().await).create(&PostParams::default(), &namespace).await.unwrap();
    host.ready().await;
    eventually("it answers", async || dry_run(&cluster, &service("default", "early", 1)).success.then_some(())).await;

    // With a new CA, the leader updates the `caBundle`.
    let other = made::renewed(None, &["127.0.0.1".to_owned()], made::now()).unwrap().unwrap();
    for (name, content) in [("tls.crt", &other.leaf), ("tls.key", &other.leaf_key), ("ca.crt", &other.bundle)] {
        std::fs::write(folder.join(name), content).unwrap();
    }
    let bundle = ByteString(other.bundle.into_bytes());
    eventually("the API server trusts the other CA", async || (trusted(&cluster).await == bundle).then_some(())).await;
    eventually("it answers again", async || dry_run(&cluster, &service("default", "early", 1)).success.then_some(())).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn replicas_share_one_ca_take_up_another_leaf_and_one_that_is_gone_stops_nobody() {
    let cluster = PolicyCluster::start().await;
    let (one, address) = ready(&cluster).await;
    let space = cluster.namespace("replicas").await.name;
    rule(&cluster, "few", few(8)).await;
    // With `Fail`, a failed handshake would be visible.
    validating(&cluster, &address, "Fail").await;
    let bundle = trusted(&cluster).await;
    let large = service(&space, "large", 9);
    refused(&cluster, &large, "few: 8 replicas are the most").await;

    let secrets = Api::<Secret>::namespaced(cluster.client().await, HOME);
    let leaf = async || secrets.get(WEBHOOK_SECRET).await.unwrap().data.unwrap_or_default().remove("tls.crt");
    let before = leaf().await.unwrap();
    let (other, other_address) = ready(&cluster).await;
    assert_eq!(leaf().await.as_ref(), Some(&before));
    // How often a host has logged that it serves a certificate of the Secret: once for the first one, and once for each new leaf.
    let shown = |host: &Host<'_>| {
        let shows =
            |line: &&Value| line["message"].as_str().is_some_and(|message| message.starts_with("serving the certificate of the Secret"));
        host.logged().iter().filter(shows).count()
    };
    for host in [&one, &other] {
        eventually("the host shows the leaf that is there", async || (shown(host) >= 1).then_some(())).await;
    }

    let without = json!({"data": {"tls.crt": null}});
    secrets.patch(WEBHOOK_SECRET, &PatchParams::default(), &Patch::Merge(&without)).await.unwrap();
    let after = eventually("the leader makes another leaf", async || {
        let said = dry_run(&cluster, &large).stderr;
        assert!(said.contains("few: 8 replicas are the most"), "{said}");
        leaf().await.filter(|leaf| *leaf != before)
    })
    .await;
    for host in [&one, &other] {
        eventually("the host shows the new leaf", async || (shown(host) >= 2).then_some(())).await;
    }
    validating(&cluster, &other_address, "Fail").await;
    refused(&cluster, &large, "few: 8 replicas are the most").await;
    assert_eq!((trusted(&cluster).await, leaf().await), (bundle, Some(after)));

    other.stop();
    refused(&cluster, &large, "failed calling webhook").await;
    validating(&cluster, &other_address, "Ignore").await;
    eventually("it is let through", async || cluster.apply(&large).success.then_some(())).await;
    one.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_are_filled_in_where_the_installed_crd_has_none() {
    let cluster = PolicyCluster::start().await;
    let (host, address) = ready(&cluster).await;
    let space = cluster.namespace("defaults").await.name;
    let model = KINDS.iter().find(|served| (served.resource)().kind == "InferenceModel").unwrap();
    let mut crd = serde_json::to_value((model.crd)()).unwrap();
    without_defaults(&mut crd);
    cluster.apply(&crd).ok();
    let webhook = configuration("MutatingWebhookConfiguration", "default", &address, "Ignore");
    apply::<MutatingWebhookConfiguration>(&cluster, "pointsman", webhook).await;
    let most = async |name: &str| {
        let mut object = fixtures::base("InferenceModel");
        object["metadata"] = json!(ObjectMeta { name: Some(name.to_owned()), namespace: Some(space.clone()), ..ObjectMeta::default() });
        let said = cluster.kubectl(&["create", "--dry-run=server", "-o", "json", "-f", write(&cluster, &object).to_str().unwrap()]);
        serde_json::from_str::<Value>(&said.ok()).unwrap()["spec"]["maxReplicas"].as_i64()
    };
    let filled = eventually("a default is filled in", async || most("filled").await).await;
    assert_eq!(filled, 1);
    host.stop();
}

fn write(cluster: &TestCluster, object: &Value) -> PathBuf {
    let file = folder(cluster, "objects").join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    file
}

/// Removes the defaults from a schema. A property that is called `default` stays.
fn without_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("default");
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::Object(properties) if name == "properties" => properties.values_mut().for_each(without_defaults),
                    field => without_defaults(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_defaults),
        _ => {}
    }
}
