//! The operations: the source of each, and their effect on a template that isn't empty.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{ask, runner};
use serde_json::{Value, json};

#[test]
fn every_part_says_who_asked_for_it() {
    let runtime = json!({
        "pod": {"schedulerName": "s", "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}], "tolerations": [{"key": "a"}, {"key": "b"}]},
        "runner": {
            "image": "engine:1", "command": ["run", "it"], "args": ["--a"], "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}},
        },
    });
    let user = json!({
        "pod": {"volumes": [{"name": "shm", "hostPath": {"path": "/shm"}}], "nodeSelector": {"zone": "a"}},
        "runner": {
            "image": "engine:2", "args": ["--b", "x y"], "env": [{"name": "B", "value": "3"}], "ports": [{"containerPort": 80, "name": "http"}],
            "resources": {"limits": {"cpu": "2"}}, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm", "readOnly": true}],
        },
    });
    let model =
        json!({"kind": "BaseModel", "namespace": "prod", "name": "m", "path": "/m", "storageUri": "hf://m", "nodeLabel": "ome.io/m"});
    let asked = ask([("runtime", runtime), ("user", user), ("model", model)]);
    let expected = [
        "runtime + /spec/containers []",
        r#"runtime + /spec/containers/- {"name":"ome-container"}"#,
        r#"user + /spec/containers/0/args ["--b","x y"]"#,
        r#"runtime + /spec/containers/0/command ["run","it"]"#,
        r#"model + /spec/containers/0/env [{"name":"MODEL_PATH","value":"/m"}]"#,
        r#"runtime + /spec/containers/0/env/- {"name":"A","value":"1"}"#,
        r#"user + /spec/containers/0/env/- {"name":"B","value":"3"}"#,
        r#"user + /spec/containers/0/image "engine:2""#,
        "runtime + /spec/containers/0/ports []",
        r#"user + /spec/containers/0/ports/- {"containerPort":80,"name":"http"}"#,
        r#"plugin + /spec/containers/0/readinessProbe {"tcpSocket":{"port":80}}"#,
        r#"runtime + /spec/containers/0/resources {"requests":{"cpu":"1"}}"#,
        r#"runtime + /spec/containers/0/resources/limits {"memory":"1Gi"}"#,
        r#"user + /spec/containers/0/resources/limits/cpu "2""#,
        "runtime + /spec/containers/0/volumeMounts []",
        r#"user + /spec/containers/0/volumeMounts/- {"mountPath":"/dev/shm","name":"shm","readOnly":true}"#,
        r#"model + /spec/containers/0/volumeMounts/- {"mountPath":"/m","name":"model","readOnly":true}"#,
        r#"user + /spec/nodeSelector {"zone":"a"}"#,
        r#"model + /spec/nodeSelector/ome.io~1m "Ready""#,
        r#"runtime + /spec/schedulerName "s""#,
        r#"runtime + /spec/tolerations [{"key":"a"},{"key":"b"}]"#,
        "runtime + /spec/volumes []",
        r#"user + /spec/volumes/- {"hostPath":{"path":"/shm"},"name":"shm"}"#,
        r#"model + /spec/volumes/- {"hostPath":{"path":"/m"},"name":"model"}"#,
    ];
    let steps = asked.steps();
    for (step, expected) in steps.iter().zip(expected) {
        assert_eq!(step, expected);
    }
    assert_eq!(steps.len(), expected.len());
}

#[test]
fn an_item_that_several_made_is_taken_apart() {
    let port = |fields: Value| json!({"runner": {"image": "i", "ports": [fields]}});
    let runtime = port(json!({"containerPort": 80, "hostPort": 8}));
    let steps = ask([("runtime", runtime), ("user", port(json!({"containerPort": 80, "name": "http"})))]).steps();
    assert!(steps.contains(&r#"runtime + /spec/containers/0/ports/- {"containerPort":80,"hostPort":8}"#.to_owned()), "{steps:#?}");
    assert!(steps.contains(&r#"user + /spec/containers/0/ports/0/name "http""#.to_owned()), "{steps:#?}");
}

#[test]
fn what_the_frame_says_needs_no_step() {
    let frame =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"serviceAccountName": "s", "priority": null, "nodeSelector": {"a": "b"}}});
    let mut runtime = runner(json!({"readinessProbe": {"exec": {}}}));
    runtime["pod"] = json!({"serviceAccountName": "other", "nodeSelector": {"c": "d"}});
    let user = json!({"pod": {"nodeSelector": {"a": "e"}}});
    let asked = ask([("runtime", runtime), ("user", user)]).template(&frame);
    let steps = asked.steps();
    assert_eq!(steps[4..], [r#"user ~ /spec/nodeSelector/a "e""#, r#"runtime + /spec/nodeSelector/c "d""#], "{steps:#?}");
    assert_eq!(asked.finished()["metadata"], frame["metadata"]);
    assert_eq!(asked.spec()["serviceAccountName"], "s");
}

#[test]
fn a_list_of_the_frame_is_written_anew() {
    let frame = json!({"spec": {"containers": [{"name": "ome-container", "image": "frame"}], "volumes": [{"name": "a", "emptyDir": {}}]}});
    let mut runtime = runner(json!({"readinessProbe": {"exec": {}}, "args": ["x"]}));
    runtime["pod"] = json!({"volumes": [{"name": "a", "hostPath": {"path": "/a"}}]});
    let asked = ask([("runtime", runtime)]).template(&frame);
    let expected = [
        "runtime ~ /spec/containers []",
        r#"runtime + /spec/containers/- {"name":"ome-container"}"#,
        r#"runtime + /spec/containers/0/args ["x"]"#,
        r#"plugin + /spec/containers/0/image "frame""#,
        r#"runtime + /spec/containers/0/readinessProbe {"exec":{}}"#,
    ];
    assert_eq!(asked.steps(), expected, "and what it says already stays");
}

#[test]
fn a_source_that_replaces_another_leaves_nothing_of_it_in_the_frame() {
    let frame = json!({"spec": {"securityContext": {"runAsUser": 1, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}}});
    let user = json!({"pod": {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}, "runner": {"image": "i"}});
    let asked = ask([("user", user)]).template(&frame);
    assert_eq!(asked.spec()["securityContext"], json!({"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}));
}

#[test]
fn a_template_without_a_spec_gets_one() {
    for frame in [json!({}), json!({"spec": null})] {
        let asked = ask([("runtime", runner(json!({})))]).template(&frame);
        assert_eq!(asked.steps()[0], "plugin + /spec {}");
        assert_eq!(asked.container()["image"], "engine:1");
    }
}
