//! The pods of a TrainingJob.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask};
use pointsman_plugin::Role;
use serde_json::{Value, json};

/// The host's frame with these layers.
fn training<const N: usize>(layers: [(&str, Value); N]) -> TestRequest {
    let mut asked = ask(layers).role(Role::Trainer);
    asked.request.subject.kind = "TrainingJob".into();
    let container = json!({
        "name": "trainer", "env": [{"name": "MASTER_ADDR", "value": "tune-worker-0.tune"}, {"name": "MASTER_PORT", "value": "29500"}],
    });
    asked.template(&json!({"metadata": {}, "spec": {"restartPolicy": "Never", "subdomain": "tune", "containers": [container]}}))
}

fn user(main: Value) -> Value {
    let mut container = json!({"name": "trainer", "image": "train:1"});
    container.as_object_mut().unwrap().extend(main.as_object().unwrap().clone());
    json!({"pod": {"containers": [container]}})
}

#[test]
fn the_template_wins_and_nothing_but_the_host_s_is_added() {
    let spec =
        training([("user", user(json!({"env": [{"name": "MASTER_PORT", "value": "1"}, {"name": "MINE", "value": "$(MASTER_ADDR)"}]})))])
            .spec();
    let env = json!([
        {"name": "MASTER_ADDR", "value": "tune-worker-0.tune"}, {"name": "MASTER_PORT", "value": "1"}, {"name": "MINE", "value": "$(MASTER_ADDR)"},
    ]);
    assert_eq!(spec["containers"], json!([{"name": "trainer", "image": "train:1", "env": env}]), "no probe, no placeholder");
    assert_eq!((&spec["subdomain"], &spec["restartPolicy"]), (&json!("tune"), &json!("Never")));
}

#[test]
fn the_annotations_of_the_page_act() {
    let settings = json!({
        "training.ome.io/distributed-backend": "nccl", "training.ome.io/checkpoint-strategy": "epoch", "training.ome.io/resume-from": "/c/3",
        "oci.ome.io/region": "r", "security.ome.io/secret-ref": "s", "security.ome.io/pod-security-policy": "restricted",
    });
    let asked = training([("user", user(json!({}))), ("storage", json!({"claim": "tune", "readOnly": false})), ("settings", settings)]);
    let spec = asked.spec();
    let container = &spec["containers"][0];
    let value = |name: &str| {
        let variables = container["env"].as_array().unwrap().iter();
        variables
            .filter(|variable| variable["name"] == name)
            .map(|variable| variable["value"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for (name, expected) in [
        ("TRAINING_DISTRIBUTED_BACKEND", "nccl"),
        ("TRAINING_CHECKPOINT_STRATEGY", "epoch"),
        ("TRAINING_RESUME_FROM", "/c/3"),
        ("OCI_REGION", "r"),
        ("STORAGE_PATH", "/mnt/storage"),
    ] {
        assert_eq!(value(name), [expected], "{name}");
    }
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "s"}}]));
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(spec["volumes"][0]["persistentVolumeClaim"]["claimName"], "tune");
}

#[test]
fn a_container_without_an_image_is_named_with_its_place() {
    let asked = training([("user", json!({"pod": {"containers": [{"name": "trainer"}]}}))]);
    assert!(asked.failure().contains("set it in spec.worker.template.spec.containers"), "{}", asked.failure());
}
