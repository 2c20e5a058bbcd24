use super::*;
use crate::{
    resource::{DEPLOYMENT, INFERENCE_SERVICE, KNATIVE_SERVICE, LEADER_WORKER_SET},
    world::{ObjectKey, World},
};

/// The labels that their controllers add to pods.
const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const KNATIVE_NAME: &str = "serving.knative.dev/service";

const SERVICE_NAME: &str = "serving.ome.io/inferenceservice";

fn key(resource: &'static Resource, name: &str) -> ObjectKey {
    ObjectKey { resource, namespace: "chat".to_owned(), name: name.to_owned() }
}

fn template(labels: &Value, image: &str) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": image}]}})
}

fn ours() -> Value {
    json!({SERVICE_NAME: "a", crate::world::child::SUBJECT_KIND: "InferenceService"})
}

/// An adopted workload as it exists in the cluster.
fn live(name: &str, revision: Option<&str>, spec: &Value) -> Value {
    let mut annotations = json!({ADOPTED: "manager"});
    if let Some(revision) = revision {
        annotations[REVISION] = revision.into();
    }
    json!({
        "metadata": {
            "name": name, "namespace": "chat", "uid": name, "labels": {"component": "engine", crate::world::child::SUBJECT_KIND: "InferenceService"},
            "annotations": annotations, "ownerReferences": [{"uid": "u", "controller": true}],
        },
        "spec": spec,
    })
}

fn snapshot(objects: &[(&'static Resource, Value)]) -> Snapshot {
    let mut world = World::default();
    world.put(&INFERENCE_SERVICE, &json!({"metadata": {"name": "a", "namespace": "chat", "uid": "u"}, "spec": {}}));
    for (resource, object) in objects {
        world.put(resource, object);
    }
    world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap()
}

fn deployment(revision: Option<&str>) -> Value {
    let labels = json!({"app": "isvc.a"});
    live(
        "a-engine",
        revision,
        &json!({"replicas": 2, "selector": {"matchLabels": labels}, "paused": false, "template": template(&labels, "old")}),
    )
}

/// The planned objects without an adoption: a Deployment and the objects that select its pods.
fn planned(hash: &str) -> Vec<Object> {
    let found = json!({SERVICE_NAME: "a"});
    let metadata = json!({"annotations": {REVISION: format!("00001-{hash}")}});
    let spec = json!({"selector": {"matchLabels": found}, "template": template(&ours(), "new"), "strategy": {"type": "Recreate"}});
    vec![
        Object::new(key(&DEPLOYMENT, "a-engine"), json!({"metadata": metadata, "spec": spec})),
        Object::new(key(&SERVICE, "a"), json!({"spec": {"selector": found}})),
        Object::new(key(&POD_DISRUPTION_BUDGET, "a"), json!({"spec": {"selector": {"matchLabels": found}}})),
        Object::new(key(&SERVICE, "other"), json!({"spec": {"selector": {SERVICE_NAME: "b"}}})),
    ]
}

fn kept(live: Value, hash: &str) -> Vec<Object> {
    let mut objects = planned(hash);
    keep(&snapshot(&[(&DEPLOYMENT, live)]), Some(&mut objects));
    objects
}

#[test]
fn pods_stay_until_others_are_asked_for_than_at_the_first_plan() {
    for revision in [None, Some("00001-x")] {
        let objects = kept(deployment(revision), "x");
        let body = &objects[0].body;
        assert_eq!(body["spec"]["template"], template(&json!({"app": "isvc.a"}), "old"));
        assert_eq!((&body["spec"]["strategy"]["type"], body["spec"].get("paused")), (&json!("Recreate"), None));
        assert_eq!(
            (&body["metadata"]["annotations"][ADOPTED], &body["metadata"]["annotations"][REVISION]),
            (&json!("manager"), &json!("00001-x"))
        );
    }
    let objects = kept(deployment(Some("00001-x")), "y");
    let mut labels = ours();
    labels["app"] = "isvc.a".into();
    assert_eq!(objects[0].body["spec"]["template"], template(&labels, "new"));
    assert_eq!(objects[0].body["spec"]["selector"]["matchLabels"], json!({"app": "isvc.a"}), "it can't change");
}

#[test]
fn pods_that_are_ours_already_are_planned_like_all_others() {
    let mut live = deployment(Some("00002-x"));
    live["spec"]["template"] = template(&ours(), "new");
    let objects = kept(live, "x");
    assert_eq!(objects[0].body["spec"]["template"]["spec"]["containers"][0]["image"], "new");
    assert_eq!(objects[0].body["metadata"]["annotations"][ADOPTED], "manager", "who it was of is needed for the way back");
}

#[test]
fn what_finds_the_pods_finds_the_old_ones_and_the_new_ones() {
    for hash in ["x", "y"] {
        let objects = kept(deployment(Some("00001-x")), hash);
        assert_eq!(objects[1].body["spec"]["selector"], json!({"app": "isvc.a"}));
        assert_eq!(objects[2].body["spec"]["selector"]["matchLabels"], json!({"app": "isvc.a"}));
        assert_eq!(objects[3].body["spec"]["selector"], json!({SERVICE_NAME: "b"}), "it finds others");
        assert_eq!(objects[1].fingerprint, Object::new(objects[1].key.clone(), objects[1].body.clone()).fingerprint);
    }
    let mut live = deployment(None);
    live["spec"]["selector"]["matchLabels"][SERVICE_NAME] = "a".into();
    assert_eq!(kept(live, "x")[1].body["spec"]["selector"], json!({SERVICE_NAME: "a"}), "they carry it already");
}

#[test]
fn groups_keep_their_name_and_are_found_and_scaled_by_it() {
    let group = json!({"size": 2, "leaderTemplate": template(&json!({"x": "y"}), "old"), "workerTemplate": template(&json!({}), "old")});
    let live = live("lws-a-engine", None, &json!({"replicas": 1, "networkConfig": {"a": "b"}, "leaderWorkerTemplate": group}));
    let mut snapshot = snapshot(&[(&LEADER_WORKER_SET, live)]);
    snapshot.stand_ins = BTreeMap::from([(key(&LEADER_WORKER_SET, "a-engine-mn"), key(&LEADER_WORKER_SET, "lws-a-engine"))]);
    let new = json!({"size": 2, "leaderTemplate": template(&ours(), "new"), "workerTemplate": template(&ours(), "new")});
    let target = json!({"kind": "LeaderWorkerSet", "name": "a-engine-mn"});
    let leaders = json!({SERVICE_NAME: "a", WORKER_INDEX: "0"});
    let mut objects = vec![
        Object::new(key(&LEADER_WORKER_SET, "a-engine-mn"), json!({"metadata": {}, "spec": {"leaderWorkerTemplate": new}})),
        Object::new(key(&HORIZONTAL_POD_AUTOSCALER, "a-engine"), json!({"spec": {"scaleTargetRef": target}})),
        Object::new(key(&SERVICE, "a"), json!({"spec": {"selector": leaders}})),
        Object::new(key(&POD_DISRUPTION_BUDGET, "a"), json!({"spec": {"selector": {"matchLabels": {SERVICE_NAME: "a"}}}})),
    ];
    keep(&snapshot, Some(&mut objects));
    assert_eq!((objects[0].key.name.as_str(), &objects[0].body["spec"]["leaderWorkerTemplate"]), ("lws-a-engine", &group));
    assert_eq!(objects[0].body["spec"]["networkConfig"], json!({"a": "b"}));
    assert!(objects[0].body["metadata"]["annotations"][REVISION].as_str().unwrap().starts_with("00001-"), "nobody else counts");
    assert_eq!(objects[1].body["spec"]["scaleTargetRef"]["name"], "lws-a-engine");
    assert_eq!(objects[2].body["spec"]["selector"], json!({SET_NAME: "lws-a-engine", WORKER_INDEX: "0"}));
    assert_eq!(objects[3].body["spec"]["selector"]["matchLabels"], json!({SET_NAME: "lws-a-engine"}));
}

#[test]
fn whom_the_old_pods_are_stays_as_long_as_there_are_any() {
    let account = || (&SERVICE_ACCOUNT, live("a-mn", None, &Value::Null));
    let stays = |live: Value| {
        let all = retained_objects(&snapshot(&[(&DEPLOYMENT, live), account(), (&SERVICE, self::live("a", None, &json!({})))]));
        all.into_iter().map(|key| key.name).collect::<Vec<_>>()
    };
    let mut live = deployment(None);
    assert_eq!(stays(live.clone()), ["a-mn"]);
    live["spec"]["template"] = template(&ours(), "new");
    live["metadata"]["generation"] = 2.into();
    live["status"] = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
    assert_eq!(stays(live.clone()), ["a-mn"], "the new template isn't seen yet");
    live["status"] = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 3});
    assert_eq!(stays(live.clone()), ["a-mn"], "it rolls");
    live["status"] = json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1});
    assert_eq!(stays(live.clone()), ["a-mn"], "one is being replaced");
    live["status"] = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1});
    assert_eq!(stays(live.clone()), ["a-mn"], "the last of the new pods isn't Ready yet");
    live["status"] = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
    assert_eq!(stays(live), [""; 0]);
}

#[test]
fn new_leaders_do_not_inherit_the_account_of_the_old_ones() {
    let account = |live: Value, planned: Value| {
        let group = |account: Value, labels: &Value| {
            let mut leader = template(labels, "a");
            if !account.is_null() {
                leader["spec"]["serviceAccountName"] = account;
            }
            json!({"leaderWorkerTemplate": {"size": 2, "leaderTemplate": leader, "workerTemplate": template(labels, "a")}})
        };
        let live = self::live("a-mn", None, &group(live, &ours()));
        let planned = json!({"metadata": {}, "spec": group(planned, &ours())});
        let mut objects = vec![Object::new(key(&LEADER_WORKER_SET, "a-mn"), planned)];
        keep(&snapshot(&[(&LEADER_WORKER_SET, live)]), Some(&mut objects));
        objects.remove(0).body["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["serviceAccountName"].take()
    };
    assert_eq!(account(json!("a-mn"), Value::Null), "default");
    assert_eq!(account(json!("default"), Value::Null), "default", "it stays so");
    assert_eq!(account(json!("a-mn"), json!("mine")), "mine");
    assert_eq!(account(Value::Null, Value::Null), Value::Null);
}

#[test]
fn a_service_stays_reachable_from_without() {
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "x", "externalTrafficPolicy": "Local", "ports": ports, "other": 1});
    let snapshot = snapshot(&[(&SERVICE, live("a", None, &spec))]);
    let of = |spec: Value| {
        let mut objects = vec![Object::new(key(&SERVICE, "a"), json!({"spec": spec}))];
        keep(&snapshot, Some(&mut objects));
        objects.remove(0).body["spec"].take()
    };
    let kept = of(json!({"ports": [{"port": 80, "targetPort": 8000}, {"port": 81}], "selector": {}}));
    let ports = json!([{"port": 80, "targetPort": 8000, "nodePort": 30080}, {"port": 81}]);
    let all = json!({"type": "LoadBalancer", "loadBalancerClass": "x", "externalTrafficPolicy": "Local", "ports": ports, "selector": {}});
    assert_eq!(kept, all);
    assert!(of(json!({"clusterIP": "None", "ports": []})).get("type").is_none(), "it has no address");
}

/// The engine and decoder of a service, as groups.
fn two_groups() -> (Snapshot, Vec<Object>) {
    let group = json!({"size": 2, "leaderTemplate": template(&json!({}), "old"), "workerTemplate": template(&json!({}), "old")});
    let spec = json!({"replicas": 1, "leaderWorkerTemplate": group});
    let snapshot = snapshot(&["a-engine-mn", "a-decoder-mn"].map(|name| (&LEADER_WORKER_SET, live(name, None, &spec))));
    let new = json!({"size": 2, "leaderTemplate": template(&ours(), "new"), "workerTemplate": template(&ours(), "new")});
    let set = |name| Object::new(key(&LEADER_WORKER_SET, name), json!({"metadata": {}, "spec": {"leaderWorkerTemplate": new}}));
    (snapshot, ["a-engine-mn", "a-decoder-mn"].map(set).into())
}

#[test]
fn a_pool_of_two_groups_never_finds_the_leaders_of_others() {
    let (snapshot, mut objects) = two_groups();
    let leaders = json!({SERVICE_NAME: "a", WORKER_INDEX: "0"});
    objects.push(Object::new(key(&INFERENCE_POOL, "a"), json!({"spec": {"selector": {"matchLabels": leaders}}})));
    keep(&snapshot, Some(&mut objects));
    assert_eq!(objects[2].body["spec"]["selector"]["matchLabels"], leaders);
}

#[test]
fn what_may_talk_to_the_pods_is_told_a_workload_at_a_time() {
    let (snapshot, mut objects) = two_groups();
    let pods = |labels: Value| json!({"podSelector": {"matchLabels": labels}});
    let ingress = json!([{}, {"from": [pods(json!({SERVICE_NAME: "a"}))]}]);
    objects.push(Object::new(
        key(&NETWORK_POLICY, "a"),
        json!({"spec": {"podSelector": {"matchLabels": {SERVICE_NAME: "a"}}, "ingress": ingress}}),
    ));
    keep(&snapshot, Some(&mut objects));
    let from = &objects[2].body["spec"]["ingress"][1]["from"];
    assert_eq!(
        *from,
        json!([pods(json!({SERVICE_NAME: "a"})), pods(json!({SET_NAME: "a-decoder-mn"})), pods(json!({SET_NAME: "a-engine-mn"}))])
    );
}

#[test]
fn what_several_workloads_carry_finds_them_if_it_names_the_service() {
    let labels = |component: &str| json!({"app.kubernetes.io/name": "a", "app": component});
    let of = |name: &str| {
        let spec = json!({"replicas": 1, "selector": {"matchLabels": labels(name)}, "template": template(&labels(name), "old")});
        (&DEPLOYMENT, live(name, None, &spec))
    };
    let snapshot = snapshot(&[of("a-engine"), of("a-decoder")]);
    let spec = json!({"template": template(&ours(), "new")});
    let mut objects: Vec<Object> =
        ["a-engine", "a-decoder"].map(|name| Object::new(key(&DEPLOYMENT, name), json!({"metadata": {}, "spec": spec}))).into();
    objects.push(Object::new(key(&SERVICE, "a"), json!({"spec": {"selector": {SERVICE_NAME: "a"}}})));
    keep(&snapshot, Some(&mut objects));
    assert_eq!(objects[2].body["spec"]["selector"], json!({"app.kubernetes.io/name": "a"}));
}

#[test]
fn a_knative_service_keeps_its_template_and_is_found_by_its_name() {
    let spec = json!({"template": template(&json!({}), "old"), "traffic": [{"latestRevision": true, "percent": 100}]});
    let snapshot = snapshot(&[(&KNATIVE_SERVICE, live("a-engine", None, &spec))]);
    let new = json!({"metadata": {}, "spec": {"template": template(&ours(), "new")}});
    let mut objects = vec![
        Object::new(key(&KNATIVE_SERVICE, "a-engine"), new),
        Object::new(key(&NETWORK_POLICY, "a"), json!({"spec": {"podSelector": {"matchLabels": {SERVICE_NAME: "a"}}}})),
    ];
    keep(&snapshot, Some(&mut objects));
    assert_eq!(objects[0].body["spec"]["template"], template(&json!({}), "old"));
    assert!(objects[0].body["spec"].get("traffic").is_none(), "how requests go to its revisions is planned");
    assert_eq!(objects[1].body["spec"]["podSelector"]["matchLabels"], json!({KNATIVE_NAME: "a-engine"}));
}

#[test]
fn what_was_never_another_s_is_left_as_planned() {
    let mut objects = planned("x");
    keep(&snapshot(&[]), Some(&mut objects));
    let before: Vec<Value> = planned("x").into_iter().map(|object| object.body).collect();
    assert_eq!(objects.into_iter().map(|object| object.body).collect::<Vec<_>>(), before);
}
