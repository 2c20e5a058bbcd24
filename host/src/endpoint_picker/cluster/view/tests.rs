use super::{
    super::{Known, Listed, PoolGroup, PoolName},
    *,
};
use serde_json::json;

/// A change of an object.
type Change = fn(&mut Value);

const POOL: (&str, &str) = ("inference.networking.k8s.io", "llama");
const X_GROUP: &str = "inference.networking.x-k8s.io";

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// A Ready pod with this change.
fn pod_object(change: impl FnOnce(&mut Value)) -> DynamicObject {
    let mut pod = json!({
        "metadata": {"uid": "uid-0", "name": "llama-0", "labels": {"app": "llama"}},
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        },
    });
    change(&mut pod);
    object(pod)
}

fn pool(ports: &[u16]) -> PoolSpec {
    PoolSpec { selector: "app=llama".to_owned(), ports: ports.to_vec(), ..PoolSpec::default() }
}

/// The addresses of a pod's endpoints.
fn addresses(ports: &[u16], pod: &DynamicObject) -> Vec<String> {
    let endpoints = endpoints(&pool(ports), &PoolPod::from_object(pod));
    endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect()
}

fn annotated(key: &str, value: &str) -> DynamicObject {
    pod_object(|pod| pod["metadata"]["annotations"] = json!({key: value}))
}

/// The objects by name, as watches store them.
fn by_name<T>(objects: Vec<Value>, read: fn(&DynamicObject) -> Option<ForPool<T>>) -> BTreeMap<String, ForPool<T>> {
    let objects = objects.into_iter().map(object);
    objects.filter_map(|object| Some((object.name_any(), read(&object)?))).collect()
}

fn objective(name: &str, pool_ref: &Value, priority: Option<i64>) -> Value {
    json!({"metadata": {"name": name}, "spec": {"poolRef": pool_ref, "priority": priority}})
}

fn rewrite(name: &str, pool: &str, created: &str, rules: &Value) -> Value {
    let metadata = json!({"namespace": "prod", "name": name, "creationTimestamp": created});
    json!({"metadata": metadata, "spec": {"poolRef": {"name": pool}, "rules": rules}})
}

#[test]
fn pools_of_both_groups_are_read() {
    let stable = json!({"spec": {
        "selector": {"matchLabels": {"role": "decode", "app": "llama"}},
        "targetPorts": [{"number": 8000}, {"number": 8001}, {"number": 8000}, {"number": 0}, {"number": 70000}],
        "appProtocol": "kubernetes.io/h2c",
    }});
    let protocol = Some("kubernetes.io/h2c".to_owned());
    let expected =
        PoolSpec { selector: "app=llama,role=decode".to_owned(), ports: vec![8000, 8001], app_protocol: protocol, ..PoolSpec::default() };
    assert_eq!(PoolSpec::from_object(&stable), expected);

    let experimental = json!({"spec": {"selector": {"app": "llama"}, "targetPortNumber": 8000}});
    assert_eq!(PoolSpec::from_object(&experimental), pool(&[8000]));

    let ports: Vec<Value> = (1..=9).map(|number| json!({"number": number})).collect();
    assert_eq!(PoolSpec::from_object(&json!({"spec": {"targetPorts": ports}})).ports, [1, 2, 3, 4, 5, 6, 7, 8]);
    for nothing in [json!({}), json!({"spec": {"selector": {"matchLabels": {}}}}), json!({"spec": "nonsense"})] {
        assert_eq!(PoolSpec::from_object(&nothing), PoolSpec::default(), "{nothing}");
    }
}

#[test]
fn each_port_of_a_pod_that_is_ready_is_an_endpoint() {
    let pod = pod_object(|_| ());
    let found = endpoints(&pool(&[8000, 8001]), &PoolPod::from_object(&pod));
    let labels = Arc::new(BTreeMap::from([("app".to_owned(), "llama".to_owned())]));
    let expected = [8000, 8001].map(|port| EndpointSpec {
        uid: "uid-0".into(),
        pod: "llama-0".into(),
        address: ([10, 0, 0, 1], port).into(),
        labels: Arc::clone(&labels),
    });
    assert_eq!(found, expected);
    let ipv6 = pod_object(|pod| pod["status"]["podIP"] = json!("fd00::1"));
    assert_eq!(addresses(&[8000], &ipv6), ["[fd00::1]:8000"]);
}

#[test]
fn a_pod_that_takes_no_requests_has_no_endpoints() {
    let changes: [(&str, Change); 6] = [
        ("not Ready", |pod| pod["status"]["conditions"][1]["status"] = json!("False")),
        ("unknown", |pod| pod["status"]["conditions"][1]["status"] = json!("Unknown")),
        ("without conditions", |pod| pod["status"]["conditions"] = json!(null)),
        ("being deleted", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        ("without an address", |pod| pod["status"]["podIP"] = json!(null)),
        ("with nonsense for an address", |pod| pod["status"]["podIP"] = json!("10.0.0")),
    ];
    for (what, change) in changes {
        assert_eq!(PoolPod::from_object(&pod_object(change)), None, "{what}");
    }
}

#[test]
fn an_annotation_narrows_the_ports_of_a_pod() {
    let old = "inference.networking.k8s.io/active-ports";
    let new = "llm-d.ai/active-ports";
    for (pod, ports) in [
        (annotated(new, "8001"), &["10.0.0.1:8001"][..]),
        (annotated(new, " 8001 ,8000"), &["10.0.0.1:8000", "10.0.0.1:8001"]),
        (annotated(new, "9000,8000"), &["10.0.0.1:8000"]),
        (annotated(new, "x,,-1,70000,8001"), &["10.0.0.1:8001"]),
        (annotated(new, "nonsense"), &[]),
        (annotated(new, ""), &[]),
        (annotated(old, "8000"), &["10.0.0.1:8000"]),
        (annotated("another", "8000"), &["10.0.0.1:8000", "10.0.0.1:8001"]),
        (pod_object(|pod| pod["metadata"]["annotations"] = json!({old: "8000", new: "8001"})), &["10.0.0.1:8001"]),
    ] {
        assert_eq!(addresses(&[8000, 8001], &pod), ports, "{:?}", pod.metadata.annotations);
    }
}

#[test]
fn objectives_are_those_of_the_pool_and_the_newer_group_counts() {
    let ours = json!({"name": "llama"});
    let in_full = json!({"group": POOL.0, "kind": "InferencePool", "name": "llama"});
    let older = by_name(
        vec![
            objective("both", &ours, Some(1)),
            objective("older", &in_full, Some(-3)),
            objective("unset", &ours, None),
            objective("of-another-pool", &json!({"name": "qwen"}), Some(4)),
            objective("of-another-group", &json!({"name": "llama", "group": X_GROUP}), Some(5)),
            objective("of-another-kind", &json!({"name": "llama", "kind": "Service"}), Some(6)),
            json!({"metadata": {"name": "deleted", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"poolRef": ours, "priority": 7}}),
            json!({"metadata": {"name": "empty"}}),
        ],
        read_objective,
    );
    // It takes precedence only for the pool that it refers to.
    let newer = by_name(vec![objective("both", &ours, Some(2)), objective("older", &json!({"name": "qwen"}), Some(8))], read_objective);
    let found = objectives(POOL, [&older, &newer]);
    let expected = [("both", 2), ("older", -3), ("unset", 0)].map(|(name, priority)| (name.to_owned(), priority));
    assert_eq!(found, BTreeMap::from(expected));
    let experimental = objectives((X_GROUP, "llama"), [&older, &newer]);
    assert_eq!(experimental, BTreeMap::from([("of-another-group".to_owned(), 5)]));
}

#[test]
fn of_rewrites_for_one_model_the_older_counts() {
    let exact = |model: &str, target: &str| json!([{"matches": [{"model": {"type": "Exact", "value": model}}], "targets": [{"modelRewrite": target, "weight": 1}]}]);
    let all = json!([{"targets": [{"modelRewrite": "fallback"}]}]);
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let older = by_name(
        vec![
            rewrite("a", "llama", late, &exact("chat", "late")),
            rewrite("b", "llama", early, &exact("chat", "early")),
            rewrite("all", "llama", early, &all),
            rewrite("moved", "llama", early, &exact("code", "of-the-older-group")),
            rewrite("other", "qwen", early, &exact("draw", "of-another-pool")),
        ],
        read_rewrite,
    );
    let newer = by_name(vec![rewrite("moved", "llama", late, &exact("code", "of-the-newer-group"))], read_rewrite);
    let found = rewrites(POOL, [&older, &newer]);
    for (model, target) in [("chat", "early"), ("code", "of-the-newer-group"), ("draw", "fallback")] {
        assert_eq!(found.target(model, 0), Some(target), "{model}");
    }
    assert_eq!(rewrites((POOL.0, "mistral"), [&older, &newer]).target("chat", 0), None);
}

#[test]
fn a_rule_is_read_with_its_weights_and_one_without_a_usable_match_is_left_out() {
    let rules = json!([
        {"matches": [{"model": {"value": "chat"}}, {"model": {"type": "Prefix", "value": "c"}}], "targets": [
            {"modelRewrite": "a", "weight": 3}, {"modelRewrite": "b"}, {"weight": 1},
        ]},
        {"matches": [{"model": {"type": "Prefix", "value": "c"}}], "targets": [{"modelRewrite": "a"}]},
        {"matches": [{}], "targets": [{"modelRewrite": "a"}]},
        {},
    ]);
    let read = read_rewrite(&object(rewrite("a", "llama", "1970-01-01T00:01:00Z", &rules))).unwrap().value;
    let target = |model: &str, weight| Target { model: model.to_owned(), weight };
    let first = Rule { models: vec!["chat".to_owned()], targets: vec![target("a", Some(3)), target("b", None)] };
    assert_eq!(read.rules, [first, Rule::default()]);
    assert_eq!((read.created, read.name), (60, ("prod".to_owned(), "a".to_owned())));
}

fn listed<V>(objects: impl IntoIterator<Item = (&'static str, V)>, selector: Option<&str>) -> Listed<V> {
    let objects = objects.into_iter().map(|(name, object)| (name.to_owned(), object)).collect();
    Listed { objects: Some(objects), selector: selector.map(str::to_owned), refusal: None }
}

/// A pool whose pod has been listed.
fn known() -> Known {
    let pod = PoolPod::from_object(&pod_object(|_| ())).unwrap();
    Known {
        pools: [listed([("llama", pool(&[8000]))], None), Listed::default()],
        pods: listed([("llama-0", pod)], Some("app=llama")),
        objectives: [listed([], None), listed([], None)],
        rewrites: [listed([], None), listed([], None)],
    }
}

fn name() -> PoolName {
    PoolName { group: PoolGroup::Any, namespace: "prod".to_owned(), name: "llama".to_owned() }
}

/// Whether everything has been listed, and the obstacle.
fn state(known: &Known) -> (bool, Option<String>) {
    let state = known.state(&name());
    (state.is_listed, state.obstacle)
}

#[test]
fn the_obstacle_names_what_is_missing_and_the_remedy() {
    assert_eq!(state(&known()), (true, None), "the second group isn't waited for");
    let obstacle = |is_listed: bool, text: &str| (is_listed, Some(text.to_owned()));
    let waiting = "the endpoint picker hasn't listed yet: ";
    let kinds = format!("{waiting}InferencePools, InferenceObjectives, InferenceModelRewrites");
    assert_eq!(state(&Known::new(PoolGroup::Any)), obstacle(false, &kinds));

    let pods = Known { pods: Listed { refusal: Some("why".to_owned()), ..Listed::default() }, ..known() };
    assert_eq!(state(&pods), obstacle(false, &format!("{waiting}pods; why")));

    let first = Known { pools: [listed([], None), Listed::default()], ..known() };
    assert_eq!(state(&first), obstacle(false, &format!("{waiting}InferencePools")), "the second group may have it");
    let gone = Known { pools: [listed([], None), listed([], None)], ..known() };
    let text = "InferencePool prod/llama doesn't exist: create it, or correct its name in the flags of the endpoint picker";
    assert_eq!(state(&gone), obstacle(true, text));

    let empty = Known { pools: [listed([("llama", PoolSpec::default())], None), Listed::default()], ..known() };
    let text = "InferencePool prod/llama selects no pods: set their labels in spec.selector";
    assert_eq!(state(&empty), obstacle(true, text));
}

#[test]
fn the_first_group_that_has_the_pool_counts() {
    let group = |known: &Known| known.pool("llama").map(|(group, _)| group);
    let has = || listed([("llama", pool(&[8000]))], None);
    let both = Known { pools: [has(), has()], ..known() };
    assert_eq!(group(&both), Some(POOL.0));
    let second = Known { pools: [listed([], None), has()], ..known() };
    assert_eq!(group(&second), Some(X_GROUP));
    let unlisted = Known { pools: [Listed::default(), has()], ..known() };
    assert_eq!(group(&unlisted), None);
    let mut chosen = Known::new(PoolGroup::Experimental);
    chosen.pools[1] = has();
    assert_eq!(group(&chosen), Some(X_GROUP));
}

#[test]
fn endpoints_stay_until_the_pods_of_a_new_selector_are_listed_and_end_with_the_pool() {
    let count = |known: &Known| known.endpoints("llama").map(|endpoints| endpoints.len());
    assert_eq!(count(&known()), Some(1));
    let changed = PoolSpec { selector: "app=other".to_owned(), ..pool(&[8000, 8001]) };
    let changed = Known { pools: [listed([("llama", changed)], None), Listed::default()], ..known() };
    assert_eq!(count(&changed), None);
    assert_eq!(state(&changed), (true, None), "the endpoints before still serve");
    let relisted = Known { pods: listed([], Some("app=other")), ..changed };
    assert_eq!(count(&relisted), Some(0));
    let gone = Known { pools: [listed([], None), listed([], None)], ..known() };
    assert_eq!(count(&gone), Some(0));
    let empty = Known { pools: [listed([("llama", PoolSpec::default())], None), Listed::default()], ..known() };
    assert_eq!(count(&empty), Some(0), "an empty selector isn't one for all pods");
}

#[test]
fn only_changes_that_matter_are_published() {
    let mut pods = known().pods;
    let read = |change: fn(&mut Value)| PoolPod::from_object(&pod_object(change));
    let name = || "llama-0".to_owned();
    assert!(!pods.apply(name(), read(|pod| pod["status"]["phase"] = json!("Running"))));
    assert!(pods.apply(name(), read(|pod| pod["metadata"]["labels"]["role"] = json!("decode"))));
    assert!(pods.apply(name(), read(|pod| pod["status"]["conditions"] = json!([]))));
    assert!(!pods.apply(name(), None));
    assert!(!Listed::default().apply(name(), read(|_| ())), "nothing has been listed");
}
