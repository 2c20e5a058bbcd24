//! A change that no policy may make by itself is rejected, even if the policy gives a reason for it.

use super::host;
use crate::services::{Space, with_model};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE};
use pointsman_tests::{PolicyCluster, plugin_bytes};
use serde_json::{Value, json};

/// The annotation with the steps for the plugin.
const STEPS: &str = "hostile.example.com/steps";

/// The name, the steps on the engine's pods, the guardrail that rejects them, and the field in the message.
fn tries() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let container = "/spec/containers/0";
    let at = |field: &str| format!("{container}/{field}");
    let step = |path: String, value: Value| json!([{"path": path, "value": value}]);
    let spec = |field: &str, value: Value| step(format!("/spec/{field}"), value);
    let volume = |source: Value| {
        let mut volume = json!({"name": "evil"});
        volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        json!([{"path": "/spec/volumes/-", "value": volume}])
    };
    vec![
        ("privileged", step(at("securityContext"), json!({"privileged": true})), "guard-privileged", "securityContext.privileged"),
        (
            "escalation",
            step(at("securityContext"), json!({"allowPrivilegeEscalation": true})),
            "guard-privileged",
            "allowPrivilegeEscalation",
        ),
        (
            "capability",
            step(at("securityContext"), json!({"capabilities": {"add": ["SYS_ADMIN"]}})),
            "guard-capabilities",
            "capabilities.add",
        ),
        ("user", step(at("securityContext"), json!({"runAsUser": 0})), "guard-users", "runAsUser"),
        ("pod-user", spec("securityContext", json!({"runAsUser": 0, "runAsNonRoot": false})), "guard-users", "runAsUser"),
        ("host-network", spec("hostNetwork", json!(true)), "guard-host-namespaces", "hostNetwork"),
        ("host-pid", spec("hostPID", json!(true)), "guard-host-namespaces", "hostPID"),
        ("host-ipc", spec("hostIPC", json!(true)), "guard-host-namespaces", "hostIPC"),
        ("host-port", step(at("ports"), json!([{"containerPort": 8080, "hostPort": 80}])), "guard-host-ports", "hostPort"),
        ("host-path", volume(json!({"hostPath": {"path": "/"}})), "guard-host-paths", "hostPath"),
        ("escape", volume(json!({"hostPath": {"path": "/mnt/models/../../etc"}})), "guard-host-paths", "hostPath"),
        ("image", step(at("image"), json!("evil:1")), "guard-images", "image"),
        (
            "sidecar",
            step("/spec/containers/-".to_owned(), json!({"name": "evil", "image": "evil:1"})),
            "guard-images",
            "containers[name=evil].image",
        ),
        ("init", spec("initContainers", json!([{"name": "evil", "image": "evil:1"}])), "guard-images", "initContainers[name=evil].image"),
        ("command", step(at("command"), json!(["sh", "-c", "evil"])), "guard-commands", "command"),
        ("hook", step(at("lifecycle"), json!({"postStart": {"exec": {"command": ["evil"]}}})), "guard-commands", "command"),
        ("account", spec("serviceAccountName", json!("admin")), "guard-service-accounts", "serviceAccountName"),
        ("token", spec("automountServiceAccountToken", json!(true)), "guard-service-accounts", "automountServiceAccountToken"),
        ("secret", volume(json!({"secret": {"secretName": "keys"}})), "guard-secrets", "secretName"),
        ("projected", volume(json!({"projected": {"sources": [{"secret": {"name": "keys"}}]}})), "guard-secrets", "secret"),
        ("env-from", step(at("envFrom"), json!([{"secretRef": {"name": "keys"}}])), "guard-secrets", "secretRef"),
        ("drive", volume(json!({"nfs": {"server": "evil.example.com", "path": "/"}})), "guard-volumes", "nfs.server"),
        ("driver", volume(json!({"csi": {"driver": "secrets-store.csi.k8s.io"}})), "guard-volumes", "csi.driver"),
        ("claim", volume(json!({"persistentVolumeClaim": {"claimName": "others"}})), "guard-volumes", "claimName"),
        (
            "unconfined",
            spec("securityContext", json!({"seccompProfile": {"type": "Unconfined"}})),
            "guard-isolation",
            "seccompProfile.type",
        ),
        ("node", spec("nodeName", json!("control-plane")), "guard-nodes", "nodeName"),
        ("alias", spec("hostAliases", json!([{"ip": "10.0.0.1", "hostnames": ["huggingface.co"]}])), "guard-names", "hostAliases"),
        ("preload", step(at("env/-"), json!({"name": "LD_PRELOAD", "value": "/evil.so"})), "guard-commands", "LD_PRELOAD"),
        (
            "role",
            step("/metadata/annotations".to_owned(), json!({"iam.gke.io/gcp-service-account": "admin"})),
            "guard-annotations",
            "iam.gke.io",
        ),
        (
            "env",
            step(at("env/-"), json!({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}})),
            "guard-secrets",
            "secretKeyRef",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hostile_plugin_adds_is_refused_and_nothing_is_applied() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &[]).await;
    cluster.config_map("hostile", &plugin_bytes("pointsman-hostile")).await;
    cluster.plugin_of_config_map("hostile", json!({"strategy": {"type": "Immediate"}})).await;
    let digest = pointsman_sandbox::digest::Digest::hash(&plugin_bytes("pointsman-hostile")).to_string();
    cluster.active("hostile", &digest).await;

    let space = Space::on(&cluster, "hostile").await;
    let service = async |name: &str, steps: Option<&Value>| {
        let annotations = steps.map(|steps| json!({STEPS: steps.to_string()}));
        space.create(&INFERENCE_SERVICE, name, json!({"metadata": {"annotations": annotations}, "spec": with_model(json!({}))})).await;
    };
    let tries = tries();
    for (name, steps, ..) in &tries {
        service(name, Some(steps)).await;
    }
    for (name, _, rule, field) in &tries {
        let message = space.says(name, "Allowed", "False", "GuardrailBroken").await;
        let object = format!("Deployment {name}-engine");
        for part in [*rule, &object, "the plugin hostile", *field] {
            assert!(message.contains(part), "{name}: {part:?} isn't in {message:?}");
        }
        assert!(message.starts_with("No object is created"), "{message}");
        assert_eq!(space.warned(name, "GuardrailBroken").await, message);
    }
    // A policy can't even set a namespace, an owner or a name.
    for (number, field) in ["namespace", "ownerReferences", "name"].into_iter().enumerate() {
        let name = format!("identity-{number}");
        service(&name, Some(&json!([{"path": format!("/metadata/{field}"), "value": "kube-system"}]))).await;
        let message = space.says(&name, "Decided", "False", "PolicyFailed").await;
        assert!(message.contains("hostile") && message.contains(&format!("a policy may not set /metadata/{field}")), "{message}");
    }
    assert!(space.made().await.is_empty(), "{:?}", space.made().await);

    // A service that the plugin doesn't change is served, and so is one that requests the field itself.
    service("good", None).await;
    space.becomes(&DEPLOYMENT, "good-engine", "it is there", |_| true).await;
    let steps = json!([{"path": "/spec/hostNetwork", "value": true}]);
    let spec = with_model(json!({"engine": {"hostNetwork": true}}));
    space.create(&INFERENCE_SERVICE, "asked", json!({"metadata": {"annotations": {STEPS: steps.to_string()}}, "spec": spec})).await;
    space
        .becomes(&DEPLOYMENT, "asked-engine", "it is there", |deployment| deployment["spec"]["template"]["spec"]["hostNetwork"] == true)
        .await;
    host.stop();
}
