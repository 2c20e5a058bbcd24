//! How the model is provided in the pod, and where the pod is placed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask, runner};
use pointsman_plugin::Role;
use serde_json::{Value, json};

fn model() -> Value {
    json!({"kind": "ClusterBaseModel", "namespace": "", "name": "llama", "path": "/data/llama", "storageUri": "hf://meta/llama",
        "nodeLabel": "models.ome.io/clusterbasemodel.llama"})
}

fn with(changes: Value, fields: Value) -> TestRequest {
    let mut model = model();
    model.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    ask([("runtime", runner(fields)), ("model", model)])
}

#[test]
fn a_model_comes_from_the_node() {
    let asked = with(json!({}), json!({}));
    let spec = asked.spec();
    assert_eq!(spec["volumes"], json!([{"name": "model", "hostPath": {"path": "/data/llama"}}]));
    let container = &spec["containers"][0];
    assert_eq!(container["volumeMounts"], json!([{"name": "model", "mountPath": "/data/llama", "readOnly": true}]));
    assert_eq!(container["env"], json!([{"name": "MODEL_PATH", "value": "/data/llama"}]));
    assert_eq!(spec["nodeSelector"], json!({"models.ome.io/clusterbasemodel.llama": "Ready"}));
    assert_eq!(asked.codes(), ["ModelFromNode", "Placement", "ReadinessProbe"]);
}

#[test]
fn a_model_that_says_no_path_is_below_the_root() {
    let asked = with(json!({"path": null}), json!({}));
    assert_eq!(asked.container()["env"][0]["value"], "/mnt/models/llama");
    assert_eq!(asked.config(json!({"modelRoot": "/raid/"})).container()["env"][0]["value"], "/raid/llama");
}

#[test]
fn what_is_there_already_stays() {
    let fields = json!({
        "env": [{"name": "MODEL_PATH", "value": "/mine"}],
        "volumeMounts": [{"name": "mine", "mountPath": "/data/llama/"}],
    });
    let asked = with(json!({}), fields.clone());
    let container = asked.container();
    assert_eq!((&container["env"], &container["volumeMounts"]), (&fields["env"], &fields["volumeMounts"]));
    assert_eq!(asked.spec().get("volumes"), None);
    assert_eq!(asked.codes()[0], "ModelMountKept");
}

#[test]
fn the_variable_comes_before_those_that_may_refer_to_it() {
    let env = with(json!({}), json!({"env": [{"name": "A", "value": "$(MODEL_PATH)/a"}]})).container()["env"].take();
    assert_eq!(env[0]["name"], "MODEL_PATH");
    assert_eq!(env[1]["value"], "$(MODEL_PATH)/a");
}

#[test]
fn a_volume_of_the_same_name_is_no_obstacle() {
    let volumes = |names: &[&str]| -> Value {
        let volumes: Vec<_> = names.iter().map(|name| json!({"name": name, "emptyDir": {}})).collect();
        let mut runtime = runner(json!({}));
        runtime["pod"] = json!({"volumes": volumes});
        ask([("runtime", runtime), ("model", model())]).container()["volumeMounts"][0]["name"].take()
    };
    assert_eq!(volumes(&["model"]), "model-files");
    assert_eq!(volumes(&["model", "model-files"]), "model-files-2");
    assert_eq!(volumes(&["model", "model-files", "model-files-2"]), "model-files-3");
}

#[test]
fn a_model_comes_from_a_claim() {
    for (uri, sub_path) in
        [("pvc://claim/a/b/", Some("a/b")), ("pvc://prod:claim/a", Some("a")), ("pvc://claim", None), ("pvc://claim/", None)]
    {
        let asked = with(json!({"storageUri": uri, "path": null}), json!({}));
        let spec = asked.spec();
        assert_eq!(spec["volumes"], json!([{"name": "model", "persistentVolumeClaim": {"claimName": "claim", "readOnly": true}}]));
        let mut mount = json!({"name": "model", "mountPath": "/mnt/models/llama", "readOnly": true});
        if let Some(sub_path) = sub_path {
            mount["subPath"] = json!(sub_path);
        }
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]), "{uri}");
        assert_eq!(spec.get("nodeSelector"), None, "the claim says where it can be mounted");
    }
    assert_eq!(with(json!({"storageUri": "pvc://claim"}), json!({})).container()["env"][0]["value"], "/data/llama");
}

#[test]
fn a_claim_that_cannot_be_mounted_is_told() {
    let said = with(json!({"storageUri": "pvc://other:claim/a"}), json!({})).failure();
    assert!(said.contains("the claim claim of the namespace other") && said.contains("serve it in other"), "{said}");
    assert!(with(json!({"storageUri": "pvc:///a"}), json!({})).failure().contains("has no claim"));
}

#[test]
fn placement_can_be_switched_off_and_what_is_chosen_stays() {
    assert_eq!(with(json!({}), json!({})).config(json!({"placement": false})).spec().get("nodeSelector"), None);
    assert_eq!(with(json!({"nodeLabel": null}), json!({})).spec().get("nodeSelector"), None);
    let user = json!({"pod": {"nodeSelector": {"models.ome.io/clusterbasemodel.llama": "Updating", "a": "b"}}});
    let asked = ask([("runtime", runner(json!({}))), ("user", user.clone()), ("model", model())]);
    assert_eq!(asked.spec()["nodeSelector"], user["pod"]["nodeSelector"]);
}

#[test]
fn a_router_gets_no_model_and_neither_does_a_service_without_one() {
    for asked in [
        with(json!({}), json!({})).role(Role::Router),
        ask([("runtime", runner(json!({})))]),
        ask([("runtime", runner(json!({}))), ("model", Value::Null)]),
    ] {
        let spec = asked.spec();
        assert_eq!((spec.get("volumes"), spec.get("nodeSelector"), spec["containers"][0].get("env")), (None, None, None));
    }
}

#[test]
fn the_kubelets_placeholders_stay_where_it_knows_them() {
    let mut runtime = runner(json!({"args": ["--model=$(MODEL_PATH)"]}));
    runtime["pod"] = json!({"containers": [
        {"name": "ome-container"},
        {"name": "sidecar", "image": "s", "args": ["$(MODEL_PATH)/a", "$$(MODEL_PATH)", "$(OTHER)", "$"], "env": [{"name": "A", "value": "$(MODEL_PATH)"}]},
    ]});
    let asked = ask([("runtime", runtime), ("model", model())]);
    let spec = asked.spec();
    assert_eq!(spec["containers"][0]["args"], json!(["--model=$(MODEL_PATH)"]));
    assert_eq!(spec["containers"][1]["args"], json!(["/data/llama/a", "$$(MODEL_PATH)", "$(OTHER)", "$"]));
    assert_eq!(spec["containers"][1]["env"][0]["value"], "/data/llama");
}

#[test]
fn templates_over_the_metadata_are_put_in_verbatim() {
    let args = |words: &[&str]| ask([("runtime", runner(json!({"args": words})))]).container()["args"].take();
    assert_eq!(args(&["http://{{.Name}}.{{ .Namespace }}.svc/{{.ObjectMeta.Name}}"]), json!(["http://chat.prod.svc/chat"]));
    assert_eq!(args(&["{{.Labels.team}}", "{{ index .Labels \"example.com/tier\" }}"]), json!(["a&b", "gold"]));
    assert_eq!(args(&["{{.Annotations.note}}", "{{index .ObjectMeta.Annotations \"note\"}}"]), json!(["\"hi\"", "\"hi\""]));
    let mut runtime = runner(json!({"command": ["{{.Name}}"], "env": [{"name": "A", "value": "{{.Name}}"}]}));
    runtime["pod"] = json!({"initContainers": [{"name": "init", "image": "i", "args": ["{{.Name}}"]}]});
    let spec = ask([("runtime", runtime)]).spec();
    assert_eq!(spec["containers"][0]["command"], json!(["chat"]));
    assert_eq!(spec["containers"][0]["env"][0]["value"], "chat");
    assert_eq!(spec["initContainers"][0]["args"], json!(["chat"]));
}

#[test]
fn a_missing_label_is_empty_and_told_once() {
    let asked = ask([("runtime", runner(json!({"args": ["a{{.Labels.none}}b", "{{index .Labels \"none\"}}"]})))]);
    assert_eq!(asked.container()["args"], json!(["ab", ""]));
    assert_eq!(asked.codes(), ["ReadinessProbe", "PlaceholderEmpty"]);
    assert_eq!(
        asked.said("PlaceholderEmpty"),
        "The service has no label none, so its placeholder in the container ome-container is empty."
    );
}

#[test]
fn braces_that_are_no_placeholder_stay_as_they_are() {
    let words = json!([
        "{% for m in messages %}{{ m.content }}{{ bos_token }}{% endfor %}",
        "{{",
        "}}",
        "{{}}",
        "{{.Spec.Replicas}}",
        "{{.Name | upper}}",
        "{{.Labels.a-b}}",
        "{{index .Labels team}}",
        "{{-.Name-}}",
        "{\"a\": {\"b\": 1}}",
        "é{é{{é}}",
    ]);
    assert_eq!(ask([("runtime", runner(json!({"args": words})))]).container()["args"], words);
}
