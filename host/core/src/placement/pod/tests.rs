use super::*;
use crate::{allocation::inputs::PodUsage, model_nodes::names::node_label};
use serde_json::json;

fn pod(metadata: Value, spec: Value) -> Pod {
    let mut object = json!({});
    object["metadata"] = metadata;
    object["spec"] = spec;
    Pod::from_value(&object).unwrap()
}

#[test]
fn what_a_pod_says_is_read_until_it_has_ended() {
    let mut object = json!({
        "metadata": {"namespace": "ml", "name": "a", "uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z", "labels": {"x": "y"}},
        "spec": {
            "nodeName": "n", "priority": 7, "schedulerName": "pointsman",
            "containers": [{"image": "vllm/a:1", "ports": [{"hostPort": 80}, {"containerPort": 81}]}, {"image": "docker.io/vllm/a:1"}],
            "initContainers": [
                {"image": "b", "restartPolicy": "Always", "ports": [{"hostPort": 53, "protocol": "UDP"}]}, {"ports": [{"hostPort": 54}]},
            ],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let read = Pod::from_value(&object).unwrap();
    assert_eq!(read.key(), ("ml".to_owned(), "a".to_owned()));
    assert_eq!((read.uid.as_str(), read.node.as_str(), read.scheduler.as_str()), ("u", "n", "pointsman"));
    assert_eq!((read.priority, read.created, read.is_ready, read.is_leaving), (7, 60, true, false));
    assert_eq!(read.images, ["docker.io/library/b:latest", "docker.io/vllm/a:1"]);
    assert_eq!(read.host_ports, [("TCP".to_owned(), 80), ("UDP".to_owned(), 53)]);
    assert_eq!((read.owner, read.gang, read.gang_problem), (None, None, None));
    object["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:02:00Z");
    let leaving = Pod::from_value(&object).unwrap();
    assert!(leaving.is_leaving && !leaving.is_ready);
    object["status"]["phase"] = json!("Failed");
    assert_eq!(Pod::from_value(&object), None);
}

#[test]
fn a_pod_takes_what_an_allocation_counts() {
    let requests = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let limited = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"}});
    let two = json!([{"resources": requests("1", "2Gi")}, {"resources": limited}]);
    for spec in [
        json!({"containers": two}),
        json!({"containers": two, "overhead": {"memory": "1Gi"}, "initContainers": [
            {"resources": requests("100m", "1Gi"), "restartPolicy": "Always"}, {"resources": requests("1", "8Gi")},
        ]}),
        json!({"containers": two, "initContainers": [
            {"resources": requests("3", "1Gi")}, {"resources": requests("1", "4Gi"), "restartPolicy": "Always"}, {"resources": requests("1", "1Gi")},
        ]}),
        json!({"containers": two, "resources": requests("4", "16Gi"), "overhead": {"cpu": 1}}),
        json!({}),
    ] {
        let expected = PodUsage::from_object(&json!({"spec": spec}).to_string()).unwrap().amounts;
        let read = pod(json!({}), spec.clone()).requests;
        let amounts = (read.get("memory"), read.get("cpu"), read.get("nvidia.com/gpu"), read.get("pods"));
        assert_eq!(amounts, (expected.memory, expected.cpu, expected.gpus, expected.pods), "{spec}");
    }
}

#[test]
fn nobody_requests_less_than_nothing_and_a_request_of_nothing_is_one() {
    let resources = json!({"requests": {"memory": "-1Gi", "a": "0"}, "limits": {"a": "5", "b": "-5", "c": "6"}});
    let read = pod(json!({}), json!({"containers": [{"resources": resources}], "overhead": {"memory": "-1Gi"}})).requests;
    assert_eq!(read, Resources::from_iter([("c", 6), ("pods", 1)]));
}

#[test]
fn the_accelerator_is_the_one_of_which_most_is_requested() {
    let accelerator = |requests: Value| {
        let pod = pod(json!({}), json!({"containers": [{"resources": {"requests": requests}}]}));
        pod.accelerator().map(|(name, amount)| (name.to_owned(), amount))
    };
    assert_eq!(accelerator(json!({"cpu": 64})), None);
    assert_eq!(accelerator(json!({"nvidia.com/gpu": 1, "amd.com/gpu": 2})), Some(("amd.com/gpu".to_owned(), 2)));
    assert_eq!(accelerator(json!({"nvidia.com/gpu": 2, "amd.com/gpu": 2})), Some(("amd.com/gpu".to_owned(), 2)));
}

#[test]
fn a_pod_is_a_subject_s_by_the_labels_of_its_kind() {
    let owner = |labels: Value| {
        let read = pod(json!({"namespace": "ml", "labels": labels}), json!({}));
        (read.owner.map(|owner| (owner.kind, owner.name)), read.role)
    };
    let expected = |kind, name: &str, role: &str| (Some((kind, name.to_owned())), role.to_owned());
    let ome = json!({SUBJECT_KIND: "InferenceService", "serving.ome.io/inferenceservice": "chat", "serving.ome.io/component": "engine"});
    assert_eq!(owner(ome), expected("InferenceService", "chat", "engine"));
    let llm = json!({SUBJECT_KIND: "LLMInferenceService", "app.kubernetes.io/name": "chat", "app.kubernetes.io/component": "prefill"});
    assert_eq!(owner(llm), expected("LLMInferenceService", "chat", "prefill"));
    let training = json!({SUBJECT_KIND: "TrainingJob", "training.ome.io/job-name": "tune", "training.ome.io/replica-type": "worker"});
    assert_eq!(owner(training), expected("TrainingJob", "tune", "worker"));
    for other in
        [json!({SUBJECT_KIND: "Other", "app.kubernetes.io/name": "x"}), json!({SUBJECT_KIND: "InferenceService"}), json!({"app": "x"})]
    {
        assert_eq!(owner(other), (None, String::new()));
    }
}

#[test]
fn other_pods_belong_to_what_made_them_and_are_in_scope_only_if_selected() {
    let made = |kind: &str, name: &str, labels: Value| {
        let reference = json!([{"kind": "Other", "name": "o"}, {"kind": kind, "name": name, "controller": true}]);
        pod(json!({"namespace": "ml", "labels": labels, "ownerReferences": reference}), json!({}))
    };
    let name = |pod: Pod| pod.owner.unwrap().name;
    assert_eq!(name(made("ReplicaSet", "chat-7f", json!({TEMPLATE_HASH: "7f"}))), "Deployment/chat");
    assert_eq!(name(made("ReplicaSet", "chat", json!({}))), "ReplicaSet/chat");
    assert_eq!(name(made("StatefulSet", "chat-7f", json!({TEMPLATE_HASH: "7f"}))), "StatefulSet/chat-7f");
    assert_eq!(name(made("StatefulSet", "chat-0", json!({SET_NAME: "chat"}))), "LeaderWorkerSet/chat");
    let other = made("ReplicaSet", "chat-7f", json!({"team": "a"}));
    assert!(!other.is_in_scope(&Settings::default()));
    assert!(other.is_in_scope(&Settings::from_yaml("pods: {matchLabels: {team: a}}").unwrap()));
    let subject = made("ReplicaSet", "chat-7f", json!({SUBJECT_KIND: "InferenceModel", "app.kubernetes.io/name": "llama"}));
    assert!(subject.is_in_scope(&Settings::default()));
}

#[test]
fn models_are_those_whose_label_is_wanted_ready() {
    let (one, two, three) = (node_label("", "llama"), node_label("ml", "adapter"), node_label("", "draft"));
    let wanted =
        |key: &str, operator: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]});
    let spec = json!({
        "nodeSelector": {one.as_str(): "Ready", "disk": "Ready", node_label("", "other"): "Updating"},
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                wanted(&two, "In", "Ready"), wanted(&two, "In", "Ready"), wanted(&node_label("", "old"), "NotIn", "Ready"),
            ]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": wanted(&three, "In", "Ready")}],
        }},
    });
    let mut expected = [one, two, three];
    expected.sort();
    assert_eq!(pod(json!({}), spec).models, expected);
}

#[test]
fn a_gang_is_known_by_its_group_its_set_or_its_label() {
    let gang = |metadata: Value, spec: Value| pod(metadata, spec).gang;
    let named = |name: &str, size: usize, leads: bool, native: bool| Some(Gang { name: name.to_owned(), size, leads, native });
    let group = json!({"schedulingGroup": {"podGroupName": "g"}});
    let set = |worker: &str, size: &str| json!({"labels": {SET_NAME: "x", GROUP_INDEX: "0", WORKER_INDEX: worker}, "annotations": {GROUP_SIZE: size}});
    assert_eq!(gang(set("0", "8"), group), named("podgroup/g", 0, false, true));
    assert_eq!(gang(set("0", "8"), json!({})), named("lws/x/0", 8, true, false));
    assert_eq!(gang(set("3", "8"), json!({})), named("lws/x/0", 8, false, false));
    assert_eq!(gang(set("0", "1"), json!({})), None);
    let mut exclusive = set("0", "8");
    exclusive["annotations"][EXCLUSIVE_TOPOLOGY] = json!("zone");
    assert_eq!(gang(exclusive, json!({})), named("lws/x/0", 8, true, true));
    assert_eq!(gang(json!({"labels": {GANG: "g", GANG_SIZE: "2"}}), json!({})), named("g", 2, false, false));
    assert_eq!(
        gang(json!({"labels": {GANG: "g", GANG_SIZE: "2"}, "annotations": {GANG_SIZE: "1024"}}), json!({})),
        named("g", 1024, false, false)
    );
}

#[test]
fn a_size_that_cannot_be_used_is_a_problem() {
    let problem = |size: Value| {
        let read = pod(json!({"labels": {GANG: "g"}, "annotations": {GANG_SIZE: size}}), json!({}));
        assert_eq!(read.gang, None);
        read.gang_problem
    };
    assert_eq!((problem(json!("1")), problem(json!("0"))), (None, None));
    for size in ["1025", "-1", "many", "", "99999999999999999999999"] {
        assert!(problem(json!(size)).unwrap().contains("from 2 to 1024"), "{size}");
    }
    assert!(problem(json!(null)).unwrap().contains("missing"));
    assert!(problem(json!("9".repeat(100_000))).unwrap().len() < 1000);
}
