//! Pod Security Standards.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask, runner};
use pointsman_plugin::Role;
use serde_json::{Value, json};

fn standard(name: &str) -> (&'static str, Value) {
    ("settings", json!({"security.ome.io/pod-security-policy": name}))
}

/// A service with these fields in its pod.
fn with(name: &str, pod: Value) -> TestRequest {
    ask([("runtime", runner(json!({}))), ("user", json!({"pod": pod})), standard(name)])
}

/// A runtime with this security context in the main container.
fn of_main(name: &str, context: Value) -> TestRequest {
    ask([("runtime", runner(json!({"securityContext": context}))), standard(name)])
}

fn place(said: &str) -> &str {
    let rest = said.split_once("forbids ").unwrap().1;
    rest.split_once(": ").unwrap().0
}

#[test]
fn the_baseline_forbids_what_reaches_the_node() {
    for (pod, at) in [
        (json!({"hostNetwork": true}), "spec.hostNetwork"),
        (json!({"hostPID": true}), "spec.hostPID"),
        (json!({"hostIPC": true}), "spec.hostIPC"),
        (json!({"volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}]}), "spec.volumes[name=dev].hostPath"),
        (json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}), "spec.securityContext.sysctls.name"),
        (json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}), "spec.securityContext.seccompProfile.type"),
        (json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}), "spec.securityContext.appArmorProfile.type"),
        (json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}), "spec.securityContext.seLinuxOptions.type"),
        (json!({"securityContext": {"seLinuxOptions": {"role": "r"}}}), "spec.securityContext.seLinuxOptions.role"),
        (json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}), "spec.securityContext.windowsOptions.hostProcess"),
        (
            json!({"initContainers": [{"name": "a", "image": "a", "securityContext": {"privileged": true}}]}),
            "spec.initContainers[name=a].securityContext.privileged",
        ),
        (
            json!({"containers": [{"name": "b", "image": "b", "ports": [{"containerPort": 1, "hostPort": 80}]}]}),
            "spec.containers[name=b].ports.hostPort",
        ),
        (
            json!({"containers": [{"name": "b", "image": "b", "livenessProbe": {"httpGet": {"port": 1, "host": "h"}}}]}),
            "spec.containers[name=b].livenessProbe.httpGet.host",
        ),
    ] {
        for name in ["baseline", "restricted"] {
            assert_eq!(place(&with(name, pod.clone()).failure()), at, "{name}");
        }
        assert!(with("privileged", pod).answer().is_ok());
    }
    for (context, field) in [
        (json!({"privileged": true}), "privileged"),
        (json!({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}), "capabilities.add"),
        (json!({"procMount": "Unmasked"}), "procMount"),
        (json!({"seccompProfile": {"type": "Unconfined"}}), "seccompProfile.type"),
        (json!({"seLinuxOptions": {"user": "u"}}), "seLinuxOptions.user"),
    ] {
        let said = of_main("baseline", context).failure();
        assert_eq!(place(&said), format!("spec.containers[name=ome-container].securityContext.{field}"));
    }
}

#[test]
fn restricted_forbids_more() {
    let limits = [
        (json!({"runAsNonRoot": false}), "runAsNonRoot"),
        (json!({"runAsUser": 0}), "runAsUser"),
        (json!({"allowPrivilegeEscalation": true}), "allowPrivilegeEscalation"),
        (json!({"capabilities": {"add": ["CHOWN"]}}), "capabilities.add"),
    ];
    for (context, field) in limits {
        let said = of_main("restricted", context.clone()).failure();
        assert_eq!(place(&said), format!("spec.containers[name=ome-container].securityContext.{field}"));
        assert!(of_main("baseline", context).answer().is_ok());
    }
    for (pod, at) in [
        (json!({"securityContext": {"runAsNonRoot": false}}), "spec.securityContext.runAsNonRoot"),
        (json!({"securityContext": {"runAsUser": 0}}), "spec.securityContext.runAsUser"),
        (json!({"volumes": [{"name": "a", "nfs": {"server": "s"}}]}), "spec.volumes[name=a].nfs"),
    ] {
        assert_eq!(place(&with("restricted", pod.clone()).failure()), at);
        assert!(with("baseline", pod).answer().is_ok());
    }
}

#[test]
fn a_refusal_says_what_where_whose_and_what_to_do() {
    assert_eq!(
        of_main("restricted", json!({"allowPrivilegeEscalation": true})).failure(),
        "the Pod Security Standard restricted forbids spec.containers[name=ome-container].securityContext.allowPrivilegeEscalation: true, \
         set by the layer runtime: remove it there, or set a weaker standard in the annotation security.ome.io/pod-security-policy"
    );
    assert_eq!(
        with("strict", json!({})).failure(),
        "the annotation security.ome.io/pod-security-policy is \"strict\": write privileged, baseline or restricted"
    );
}

#[test]
fn restricted_fills_in_what_it_asks_for() {
    let mut runtime = runner(json!({}));
    runtime["pod"] = json!({"containers": [{"name": "ome-container"}, {"name": "proxy", "image": "p"}], "initContainers": [{"name": "i", "image": "i"}]});
    for role in [Role::Engine, Role::Router, Role::Leader, Role::Worker] {
        let asked = ask([("runtime", runtime.clone()), standard("restricted")]).role(role);
        let spec = asked.spec();
        assert_eq!(spec["securityContext"], json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}));
        let filled = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
        for container in ["containers", "initContainers"].iter().flat_map(|field| spec[field].as_array().unwrap()) {
            assert_eq!(container["securityContext"], filled);
        }
        assert!(asked.steps().iter().any(|step| step.starts_with("settings + /spec/securityContext")), "{:#?}", asked.steps());
    }
    for name in ["baseline", "privileged"] {
        assert_eq!(ask([("runtime", runtime.clone()), standard(name)]).spec(), ask([("runtime", runtime.clone())]).spec());
    }
}

#[test]
fn restricted_keeps_what_is_good_enough() {
    let context = json!({
        "allowPrivilegeEscalation": false, "runAsUser": 1000, "runAsNonRoot": true, "procMount": "Default",
        "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["NET_RAW", "ALL"]}, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"},
        "seLinuxOptions": {"type": "container_t", "level": "s0"},
    });
    assert_eq!(of_main("restricted", context.clone()).container()["securityContext"], context);
    let some = of_main("restricted", json!({"capabilities": {"drop": ["NET_RAW"]}})).container()["securityContext"].take();
    assert_eq!(some["capabilities"], json!({"drop": ["NET_RAW", "ALL"]}));
    let pod = json!({
        "hostNetwork": false, "securityContext": {"runAsUser": 1, "sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}], "fsGroup": 5},
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}, {"name": "d", "persistentVolumeClaim": {"claimName": "e"}}],
        "containers": [{"name": "ome-container", "ports": [{"containerPort": 1, "hostPort": 0}], "livenessProbe": {"httpGet": {"port": 1, "host": ""}}}],
    });
    assert_eq!(with("restricted", pod).spec()["securityContext"]["fsGroup"], 5);
}

#[test]
fn in_a_user_namespace_of_its_own_a_pod_may_be_root() {
    let pod = |users: bool| json!({"hostUsers": users, "securityContext": {"runAsUser": 0}});
    let context = with("restricted", pod(false)).spec()["securityContext"].take();
    assert_eq!(context, json!({"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}), "runAsNonRoot would keep it from starting");
    assert_eq!(place(&with("restricted", pod(true)).failure()), "spec.securityContext.runAsUser");
    let unmasked = json!({"hostUsers": false, "containers": [{"name": "ome-container", "securityContext": {"procMount": "Unmasked"}}]});
    assert!(with("baseline", unmasked.clone()).answer().is_ok());
    assert!(with("restricted", unmasked).failure().contains("procMount"));
}

#[test]
fn the_models_own_folder_stays_and_is_told() {
    let asked = |name: &str, model: Value| ask([("runtime", runner(json!({}))), ("model", model), standard(name)]);
    for model in [json!({"name": "llama"}), json!({"name": "llama", "download": true, "storageUri": "local:///raid"})] {
        for name in ["baseline", "restricted"] {
            let asked = asked(name, model.clone());
            assert!(asked.spec()["volumes"][0]["hostPath"].is_object());
            assert!(asked.said("ModelVolumeStays").contains(&format!("enforces {name}")));
        }
    }
    for uri in ["pvc://claim", "s3://b/m"] {
        let model = json!({"name": "llama", "download": true, "storageUri": uri});
        assert!(!asked("restricted", model).codes().contains(&"ModelVolumeStays".to_owned()));
    }
    assert!(!asked("privileged", json!({"name": "llama"})).codes().contains(&"ModelVolumeStays".to_owned()));
}
