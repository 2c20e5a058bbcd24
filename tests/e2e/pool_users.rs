//! The status of InferenceObjectives and InferenceModelRewrites of both groups: whether their pool exists.

use crate::services::{Space, condition, home};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use pointsman_core::resource::{
    INFERENCE_MODEL_REWRITE, INFERENCE_OBJECTIVE, INFERENCE_POOL, LLM_D_INFERENCE_MODEL_REWRITE, LLM_D_INFERENCE_OBJECTIVE,
    LLM_INFERENCE_SERVICE, Resource, X_INFERENCE_POOL,
};
use pointsman_tests::{Host, PolicyCluster};
use serde_json::{Value, json};

/// The group to which upstream has moved these kinds. Their schemas are unchanged.
const LLM_D: &str = "llm-d.ai";

/// The objective of a service.
const CODE: &str = "code-inference-objective";

/// Installs a kind's CRD under the other group.
async fn install_in_llm_d(cluster: &PolicyCluster, resource: &Resource) {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    let mut crd = crds.get(&resource.crd_name()).await.unwrap();
    crd.metadata = ObjectMeta { name: Some(format!("{}.{LLM_D}", resource.plural)), ..Default::default() };
    LLM_D.clone_into(&mut crd.spec.group);
    crd.spec.names.short_names = None;
    crd.status = None;
    crds.create(&PostParams::default(), &crd).await.unwrap();
    cluster.kubectl(&["wait", "--for=condition=Established", &format!("crd/{}", crd.name_any())]).ok();
}

/// Waits until `Accepted` has this status and reason. Returns its message.
async fn is(space: &Space<'_>, resource: &Resource, name: &str, status: &str, reason: &str) -> String {
    let accepted = |object: &Value| {
        let [accepted, ready] = ["Accepted", "Ready"].map(|type_| condition(object, type_));
        let same = |field: &str| accepted[field] == ready[field];
        (accepted["status"] == status && accepted["reason"] == reason && accepted["observedGeneration"] == object["metadata"]["generation"])
            .then(|| assert!(same("status") && same("reason") && same("message"), "{object:#}"))
            .is_some()
    };
    let object = space.becomes(resource, name, &format!("it is {status} for {reason}"), accepted).await;
    condition(&object, "Accepted")["message"].as_str().unwrap().to_owned()
}

fn pool(selector: &str) -> Value {
    json!({"spec": {
        "selector": {"matchLabels": {"app": selector}}, "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
    }})
}

fn objective(pool_ref: &Value) -> Value {
    json!({"spec": {"priority": 10, "poolRef": pool_ref}})
}

/// Other controllers' conditions stay, even one of the type that the host writes. If the maximum number of conditions is used up, the host
/// adds none.
async fn conditions_of_others_stay(here: &Space<'_>) {
    here.create(&INFERENCE_OBJECTIVE, "theirs", objective(&json!({"name": "llama"}))).await;
    let by_others = json!({
        "apiVersion": INFERENCE_OBJECTIVE.api_version(), "kind": INFERENCE_OBJECTIVE.kind, "metadata": {"name": "theirs"},
        "status": {"conditions": [
            {"type": "Accepted", "status": "False", "reason": "Theirs", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    });
    let params = PatchParams::apply("others").force();
    here.api(&INFERENCE_OBJECTIVE).patch_status("theirs", &params, &Patch::Apply(by_others)).await.unwrap();
    let others: Vec<Value> = (0..8)
        .map(|number| {
            json!({"type": format!("Other{number}"), "status": "True", "reason": "Any", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        })
        .collect();
    here.create(&INFERENCE_OBJECTIVE, "full", objective(&json!({"name": "llama"}))).await;
    here.patch_status(&INFERENCE_OBJECTIVE, "full", json!({"conditions": others})).await;
    here.create(&INFERENCE_OBJECTIVE, "later", objective(&json!({"name": "llama"}))).await;
    is(here, &INFERENCE_OBJECTIVE, "later", "True", "Accepted").await;
    assert_eq!(condition(&here.get(&INFERENCE_OBJECTIVE, "theirs").await, "Accepted")["reason"], "Theirs");
    assert_eq!(here.get(&INFERENCE_OBJECTIVE, "full").await["status"]["conditions"], json!(others));
}

#[tokio::test]
async fn what_refers_to_a_pool_is_accepted_as_pools_and_kinds_come_and_go() {
    let cluster = PolicyCluster::start().await;
    home(&cluster).await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let (here, there) = (Space::bare(&cluster, "here").await, Space::bare(&cluster, "there").await);

    // The CRD's default condition is replaced even though the pool's kind isn't installed.
    here.create(&INFERENCE_OBJECTIVE, "chat", objective(&json!({"name": "llama"}))).await;
    let message = is(&here, &INFERENCE_OBJECTIVE, "chat", "False", "PoolNotFound").await;
    assert!(message.contains("install the CRDs of the Gateway API Inference Extension"), "{message}");
    cluster.install("inference-pool").unwrap();
    let says = |part: &'static str| {
        move |object: &Value| condition(object, "Accepted")["message"].as_str().is_some_and(|message| message.contains(part))
    };
    here.becomes(&INFERENCE_OBJECTIVE, "chat", "it names the pool", says("There is no InferencePool llama")).await;

    // Create pools, first in another namespace.
    there.create(&INFERENCE_POOL, "llama", pool("other")).await;
    let message = is(&here, &INFERENCE_OBJECTIVE, "chat", "False", "PoolInOtherNamespace").await;
    assert!(!message.contains(&there.0.name), "{message}");
    here.create(&INFERENCE_POOL, "llama", pool("llama")).await;
    is(&here, &INFERENCE_OBJECTIVE, "chat", "True", "Accepted").await;
    here.kubectl(&["wait", "--for=condition=Ready", "infobj/chat"]).ok();
    let shown = here.kubectl(&["get", "infobj", "chat"]).ok();
    assert!(shown.contains("llama   10         True"), "{shown}");

    // The host checks a new generation. It reports a wrong kind, which the API server accepts.
    here.patch(&INFERENCE_OBJECTIVE, "chat", json!({"spec": {"priority": -10}})).await;
    is(&here, &INFERENCE_OBJECTIVE, "chat", "True", "Accepted").await;
    here.create(&INFERENCE_OBJECTIVE, "wrong", objective(&json!({"name": "llama", "kind": "Service", "group": ""}))).await;
    let message = is(&here, &INFERENCE_OBJECTIVE, "wrong", "False", "InvalidKind").await;
    assert!(message.contains("set kind to InferencePool"), "{message}");
    here.create(&INFERENCE_OBJECTIVE, "old", objective(&json!({"name": "llama", "group": X_INFERENCE_POOL.group}))).await;
    is(&here, &INFERENCE_OBJECTIVE, "old", "False", "PoolNotFound").await;
    let old = json!({"spec": {
        "selector": {"app": "llama"}, "targetPortNumber": 8000, "extensionRef": {"name": "picker"},
    }});
    here.create(&X_INFERENCE_POOL, "llama", old).await;
    is(&here, &INFERENCE_OBJECTIVE, "old", "True", "Accepted").await;

    // The criticality of a service creates an objective, also in the second group once that exists.
    let service = |criticality: Value| json!({"spec": {"model": {"uri": "hf://example/llama", "criticality": criticality}, "router": {"scheduler": {}}}});
    here.create(&LLM_INFERENCE_SERVICE, "code", service(json!("Critical"))).await;
    let expected = |priority: i64| {
        move |object: &Value| object["spec"]["priority"] == priority && object["spec"]["poolRef"]["name"] == "code-inference-pool"
    };
    here.becomes(&INFERENCE_OBJECTIVE, CODE, "it has its priority", expected(10)).await;
    is(&here, &INFERENCE_OBJECTIVE, CODE, "True", "Accepted").await;
    here.says_of(&LLM_INFERENCE_SERVICE, "code", "PresetsCombined", "True", "Combined").await;
    here.patch(&LLM_INFERENCE_SERVICE, "code", service(json!("Sheddable"))).await;
    here.becomes(&INFERENCE_OBJECTIVE, CODE, "it has its priority", expected(-10)).await;

    // Rewrites, and both kinds in the group to which upstream has moved them.
    let rewrite = |weight: Value| {
        let targets = json!([{"modelRewrite": "llama-a", "weight": 1}, {"modelRewrite": "llama-b", "weight": weight}]);
        json!({"spec": {"poolRef": {"name": "llama"}, "rules": [{"targets": targets}]}})
    };
    here.create(&INFERENCE_MODEL_REWRITE, "canary", rewrite(Value::Null)).await;
    let message = is(&here, &INFERENCE_MODEL_REWRITE, "canary", "False", "InvalidRules").await;
    assert!(message.starts_with("spec.rules[0].targets: 1 of 2"), "{message}");
    here.patch(&INFERENCE_MODEL_REWRITE, "canary", rewrite(json!(9))).await;
    is(&here, &INFERENCE_MODEL_REWRITE, "canary", "True", "Accepted").await;
    for kind in [&INFERENCE_OBJECTIVE, &INFERENCE_MODEL_REWRITE] {
        install_in_llm_d(&cluster, kind).await;
    }
    here.create(&LLM_D_INFERENCE_OBJECTIVE, "chat", objective(&json!({"name": "llama"}))).await;
    is(&here, &LLM_D_INFERENCE_OBJECTIVE, "chat", "True", "Accepted").await;
    here.create(&LLM_D_INFERENCE_MODEL_REWRITE, "canary", rewrite(json!(9))).await;
    is(&here, &LLM_D_INFERENCE_MODEL_REWRITE, "canary", "True", "Accepted").await;

    here.becomes(&LLM_D_INFERENCE_OBJECTIVE, CODE, "it is in the other group too", expected(-10)).await;
    let superseded = |object: &Value| says("ignore this object: create it in that group")(object);
    here.becomes(&INFERENCE_OBJECTIVE, CODE, "it says which group counts", superseded).await;
    here.patch(&LLM_INFERENCE_SERVICE, "code", service(Value::Null)).await;
    here.goes(&LLM_D_INFERENCE_OBJECTIVE, CODE).await;
    here.goes(&INFERENCE_OBJECTIVE, CODE).await;

    conditions_of_others_stay(&here).await;

    // A new leader has nothing to write.
    host.stop();
    let kinds = [&INFERENCE_OBJECTIVE, &LLM_D_INFERENCE_OBJECTIVE];
    let versions = async || {
        let mut versions = Vec::new();
        for kind in kinds {
            versions.push(here.get(kind, "chat").await["metadata"]["resourceVersion"].clone());
        }
        versions
    };
    let before = versions().await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    there.create(&INFERENCE_OBJECTIVE, "chat", objective(&json!({"name": "llama"}))).await;
    is(&there, &INFERENCE_OBJECTIVE, "chat", "True", "Accepted").await;
    assert_eq!(versions().await, before);
    here.delete(&INFERENCE_POOL, "llama").await;
    for kind in kinds {
        is(&here, kind, "chat", "False", "PoolInOtherNamespace").await;
    }
    let logged = host.logged();
    assert!(!logged.iter().any(|line| line["target"] == "pointsman::pool_user_status"), "{logged:#?}");
}
