//! The effects of the annotations and labels on OME's labels page.

use super::{
    DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, INFERENCE_SERVICE, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, SERVING_RUNTIME, Space, condition,
    fixed, simple_runtime, with_model,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pointsman_tests::eventually;
use serde_json::{Value, json};

/// A vLLM runtime next to the simple one, for services that name it.
pub(super) async fn vllm(space: &Space<'_>) {
    let mut runtime = simple_runtime();
    runtime["supportedModelFormats"][0]["autoSelect"] = false.into();
    let runner = &mut runtime["engineConfig"]["runner"];
    runner["image"] = "vllm/vllm-openai:v0.9.1".into();
    runner["command"] = json!(["vllm", "serve"]);
    runner["args"] = json!(["$(MODEL_PATH)", "--max-num-seqs", "99"]);
    space.create(&SERVING_RUNTIME, "vllm", json!({"spec": runtime})).await;
}

fn pod_spec(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]
}

/// The value of a container's environment variable.
fn variable<'c>(container: &'c Value, name: &str) -> Option<&'c str> {
    let all = container["env"].as_array().into_iter().flatten();
    all.into_iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

#[tokio::test]
async fn what_a_model_and_its_speed_are_said_to_be_are_flags_of_known_engines_and_variables_of_others() {
    let space = Space::shared("flags").await;
    vllm(&space).await;
    let settings = json!({
        "model.ome.io/max-tokens": "8192", "model.ome.io/context-length": "4096", "model.ome.io/quantization": "fp8",
        "performance.ome.io/gpu-memory-fraction": "0.8", "performance.ome.io/batch-size": "8", "performance.ome.io/max-batch-delay": "10ms",
    });
    let named = json!({"runtime": {"name": "vllm", "kind": "ServingRuntime"}, "engine": fixed(1)});
    space.annotated("known", settings.clone(), with_model(named)).await;
    space.annotated("other", settings, with_model(json!({"engine": fixed(1)}))).await;
    space.ready("known").await;
    space.ready("other").await;
    let known = space.get(&DEPLOYMENT, "known-engine").await;
    let args: Vec<_> = pod_spec(&known)["containers"][0]["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let line = args.join(" ");
    for flag in ["--max-model-len 4096", "--quantization fp8", "--gpu-memory-utilization 0.8", "--max-num-seqs 99"] {
        assert!(line.contains(flag), "{flag} isn't in {line}");
    }
    assert_eq!(line.matches("--max-num-seqs").count(), 1, "what the runtime gives stays: {line}");

    let other = space.get(&DEPLOYMENT, "other-engine").await;
    let container = &pod_spec(&other)["containers"][0];
    let expected = [
        ("MODEL_MAX_TOKENS", "8192"),
        ("MODEL_CONTEXT_LENGTH", "4096"),
        ("MODEL_QUANTIZATION", "fp8"),
        ("GPU_MEMORY_FRACTION", "0.8"),
        ("BATCH_SIZE", "8"),
        ("MAX_BATCH_DELAY", "10ms"),
    ];
    for (name, value) in expected {
        assert_eq!(variable(container, name), Some(value), "{container:#}");
    }
    // The message names an unreadable annotation, and the existing pods stay.
    let pods = space.pod_uids("other").await;
    space.annotate("other", json!({"performance.ome.io/batch-size": "many"})).await;
    let why = space.says("other", "Accepted", "False", "InvalidValue").await;
    assert!(why.contains("performance.ome.io/batch-size") && why.contains("many"), "{why}");
    assert_eq!(space.pod_uids("other").await, pods);
}

#[tokio::test]
async fn security_settings_reach_pods_and_a_network_policy_lets_requests_in_alone() {
    let space = Space::shared("security").await;
    let settings = json!({
        "security.ome.io/pod-security-policy": "restricted", "security.ome.io/network-policy": "allow-inference-only",
        "security.ome.io/secret-ref": "credentials", "monitoring.ome.io/scrape": "true", "monitoring.ome.io/port": "9400",
        "monitoring.ome.io/path": "/stats", "oci.ome.io/region": "us-phoenix-1", "oci.ome.io/compartment-id": "ocid1.compartment.oc1..",
        "oci.ome.io/availability-domain": "PHX-AD-1",
    });
    let mut router = fixed(1);
    router["runner"] = json!({"name": "router", "image": "example.com/router:1", "ports": [{"containerPort": 9000}]});
    space.annotated("chat", settings, with_model(json!({"engine": fixed(1), "router": router}))).await;
    space.ready("chat").await;
    for (component, port) in [("engine", 8000), ("router", 9000)] {
        let name = format!("chat-{component}");
        let deployment = space.get(&DEPLOYMENT, &name).await;
        let spec = pod_spec(&deployment);
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = &spec["containers"][0];
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "credentials"}}]));
        assert_eq!(variable(container, "OCI_REGION"), Some("us-phoenix-1"));
        let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
        let told = ["prometheus.io/scrape", "prometheus.io/port", "prometheus.io/path", "oci.ome.io/availability-domain"]
            .map(|key| annotations[key].clone());
        assert_eq!(told, ["true", "9400", "/stats", "PHX-AD-1"].map(Value::from), "{annotations:#}");
        assert!(annotations["security.ome.io/secret-ref"].is_null() && annotations["monitoring.ome.io/scrape"].is_null());

        let policy = space.get(&NETWORK_POLICY, &name).await;
        assert_eq!(policy["spec"]["podSelector"]["matchLabels"], deployment["spec"]["selector"]["matchLabels"]);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
        let ingress = &policy["spec"]["ingress"];
        assert_eq!(ingress[0], json!({"ports": [{"port": port, "protocol": "TCP"}, {"port": 9400, "protocol": "TCP"}]}));
        assert_eq!(ingress[1]["from"][0]["podSelector"]["matchLabels"], json!({"serving.ome.io/inferenceservice": "chat"}));
    }

    // A service that itself contradicts the annotation is rejected with the field, and the existing pods stay.
    let pods = space.pod_uids("chat").await;
    space.change("chat", json!({"engine": {"runner": {"name": "ome-container", "securityContext": {"privileged": true}}}})).await;
    let why = space.says("chat", "Decided", "False", "PolicyFailed").await;
    assert!(why.contains("privileged") && why.contains("ome-container"), "{why}");
    assert_eq!(space.pod_uids("chat").await, pods);
    space.change("chat", json!({"engine": {"runner": null}})).await;
    space.annotate("chat", json!({"security.ome.io/network-policy": null})).await;
    space.goes(&NETWORK_POLICY, "chat-engine").await;
}

#[tokio::test]
async fn storage_is_a_claim_that_holds_what_is_downloaded_and_goes_with_the_annotations() {
    let space = Space::shared("storage").await;
    let settings = json!({
        "storage.ome.io/class": "fast-ssd", "storage.ome.io/size": "100Gi", "storage.ome.io/access-mode": "ReadWriteMany",
        "model.ome.io/storage-uri": "hf://some/model",
    });
    space.annotated("chat", settings, with_model(json!({"engine": fixed(1)}))).await;
    let claim = space.becomes(&PERSISTENT_VOLUME_CLAIM, "chat-engine", "it is there", |_| true).await;
    let spec = &claim["spec"];
    assert_eq!(
        (&spec["storageClassName"], &spec["accessModes"], &spec["resources"]["requests"]["storage"]),
        (&json!("fast-ssd"), &json!(["ReadWriteMany"]), &json!("100Gi"))
    );
    let deployment = space.becomes(&DEPLOYMENT, "chat-engine", "it is there", |_| true).await;
    let pod = pod_spec(&deployment);
    assert!(pod["nodeSelector"].is_null(), "{pod:#}");
    let init = &pod["initContainers"][0];
    assert_eq!((&init["name"], &init["args"][0]), (&json!("model-initializer"), &json!("hf://some/model")));
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == "chat-engine"), "{volumes:#?}");
    space.says("chat", "ModelReady", "True", "StorageUri").await;

    // A volume for only one node is reported if there may be several pods.
    let one = json!({"storage.ome.io/size": "1Gi"});
    space.annotated("many", one, with_model(json!({"engine": fixed(2)}))).await;
    let told = space.says("many", "Accepted", "True", "OneNode").await;
    assert!(told.contains("many-engine") && told.contains("ReadWriteMany"), "{told}");
    let mounted = space.becomes(&DEPLOYMENT, "many-engine", "it is there", |_| true).await;
    assert_eq!(variable(&pod_spec(&mounted)["containers"][0], "STORAGE_PATH"), Some("/mnt/storage"));

    space.annotate("many", json!({"storage.ome.io/size": null})).await;
    // The claim's protection releases it once no pod uses it.
    let gone = async || {
        space
            .find(&PERSISTENT_VOLUME_CLAIM, "many-engine")
            .await
            .is_none_or(|claim| !claim["metadata"]["deletionTimestamp"].is_null())
            .then_some(())
    };
    eventually("the claim goes", gone).await;
}

#[tokio::test]
async fn the_share_that_is_aimed_at_and_the_clusters_hardware_come_from_where_they_are_said() {
    let space = Space::shared("hardware").await;
    let namespaces = Api::<Namespace>::all(space.0.client.clone());
    let label = async |labels: Value| {
        let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
        namespaces.patch(&space.0.name, &PatchParams::default(), &change).await.unwrap();
    };
    label(json!({"infrastructure.ome.io/cluster": "gpu-1", "infrastructure.ome.io/profile": "h100-profile"})).await;
    let metadata = json!({
        "annotations": {"ome.io/target-utilization": "70"}, "labels": {"infrastructure.ome.io/profile": "own"},
    });
    space.create(&super::INFERENCE_SERVICE, "chat", json!({"metadata": metadata, "spec": with_model(json!({}))})).await;
    space.ready("chat").await;
    let scaler = space.get(&HORIZONTAL_POD_AUTOSCALER, "chat-engine").await;
    assert_eq!(scaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
    let carries = |cluster: &'static str| {
        move |now: &Value| {
            let labels = &now["spec"]["template"]["metadata"]["labels"];
            labels["infrastructure.ome.io/cluster"] == cluster && labels["infrastructure.ome.io/profile"] == "own"
        }
    };
    space.becomes(&DEPLOYMENT, "chat-engine", "it carries the namespace's labels", carries("gpu-1")).await;
    label(json!({"infrastructure.ome.io/cluster": "gpu-2"})).await;
    space.becomes(&DEPLOYMENT, "chat-engine", "it carries the new one", carries("gpu-2")).await;
}

#[tokio::test]
async fn what_was_applied_last_is_on_the_workload_and_changes_without_a_pod() {
    let space = Space::shared("applied").await;
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    let pods = space.pod_uids("chat").await;
    let applied = |deployment: &Value| {
        let annotations = &deployment["metadata"]["annotations"];
        let spec: Value = serde_json::from_str(annotations["ome.io/last-applied-configuration"].as_str().unwrap()).unwrap();
        (annotations["ome.io/resource-version"].clone(), spec["engine"]["timeoutSeconds"].clone())
    };
    assert_eq!(applied(&space.get(&DEPLOYMENT, "chat-engine").await), (json!("1"), Value::Null));
    let before = space.writes().len();
    space.change("chat", json!({"engine": {"timeoutSeconds": 7}})).await;
    let changed = |now: &Value| applied(now) == (json!("2"), json!(7));
    let deployment = space.becomes(&DEPLOYMENT, "chat-engine", "it says the new one", changed).await;
    let service = space.ready("chat").await;
    assert_eq!(condition(&service, "Accepted")["reason"], "NotHonoured");
    assert!(deployment["spec"]["template"]["metadata"]["annotations"]["ome.io/resource-version"].is_null());
    assert_eq!(space.pod_uids("chat").await, pods);
    let writes = space.writes().split_off(before);
    let objects: Vec<_> = writes.iter().filter(|write| !write.ends_with("/status") && !write.contains("events")).collect();
    assert_eq!(objects, ["patch deployments/chat-engine"], "{writes:#?}");
}

#[tokio::test]
async fn services_are_selected_by_the_labels_of_omes_page() {
    let space = Space::shared("selected").await;
    let named = |selector: &str, kind: &str| {
        let output = space.kubectl(&["get", kind, "-l", selector, "-o", "name"]).ok();
        output.lines().map(str::to_owned).filter(|line| line.starts_with("inferenceservice")).collect::<Vec<_>>()
    };
    let chat = ["inferenceservice.ome.io/chat".to_owned()];
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    let model = "serving.ome.io/model=model";
    eventually("it is selected by its model", async || (named(model, "inferenceservice") == chat).then_some(())).await;
    assert_eq!(named("serving.ome.io/runtime=runtime,ome.io/managed-by=ome-controller", "isvc"), chat);
    assert_eq!(named("ome.io/managed-by=ome-controller", "all"), chat);
    let pods = space.pod_uids("chat").await;
    let generation = space.get(&INFERENCE_SERVICE, "chat").await["metadata"]["generation"].clone();

    // A label that a user sets stays the user's. If the user removes it, the host sets it again.
    space.kubectl(&["label", "--overwrite", "isvc", "chat", "serving.ome.io/model=mine", "model.ome.io/vendor=me"]).ok();
    assert_eq!(named("serving.ome.io/model=mine", "isvc"), chat);
    space.change("chat", json!({"engine": {"annotations": {"note": "another pod"}}})).await;
    eventually("it runs another pod", async || (space.pod_uids("chat").await != pods).then_some(())).await;
    space.ready("chat").await;
    let service = space.get(&INFERENCE_SERVICE, "chat").await;
    assert_ne!(service["metadata"]["generation"], generation);
    assert_eq!(service["metadata"]["labels"]["serving.ome.io/model"], "mine");
    let own = service["metadata"]["managedFields"].as_array().unwrap().iter().find(|managed| managed["manager"] == "pointsman/labels");
    let own = &own.unwrap()["fieldsV1"]["f:metadata"]["f:labels"];
    assert!(own.get("f:serving.ome.io/runtime").is_some() && own.get("f:serving.ome.io/model").is_none(), "{own}");
    space.kubectl(&["label", "isvc", "chat", "serving.ome.io/model-"]).ok();
    eventually("the label is ours again", async || (named(model, "isvc") == chat).then_some(())).await;
}
