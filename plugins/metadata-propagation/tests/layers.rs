//! The layers that are propagated to each target, and their precedence.

mod asking;

use asking::{Ask, FACTS, Object, PodTemplate, annotation, config, dropped, label, patterns, placed};
use pointsman_metadata_propagation::Config;
use pointsman_plugin::{Role, Subject};

fn namespace_labels(names: &[&str]) -> Config {
    Config { namespace_labels: patterns(names), ..config() }
}

#[test]
fn the_stronger_layer_wins_and_the_weaker_is_told() {
    let layers = ["namespace", "runtime", "subject", "component", "facts"];
    for (at, weaker) in layers.iter().enumerate() {
        for stronger in &layers[at + 1..] {
            let pair = |value| [("serving.ome.io/model", value)];
            let ask = Ask::engine(PodTemplate).layer(weaker, &pair("weak"), &[]).layer(stronger, &pair("strong"), &[]);
            let answer = ask.with(&namespace_labels(&["serving.ome.io/"]));
            assert_eq!(label(&answer, "serving.ome.io/model"), format!("strong ({stronger})"));
            assert_eq!(dropped(&answer), [format!("{weaker} serving.ome.io/model Overridden")]);
            assert_eq!(answer.dropped[0].reason.message, format!("The stronger layer {stronger} sets this key to another value."));
        }
    }
}

#[test]
fn the_order_is_the_policys_and_not_the_requests() {
    let answer = Ask::engine(PodTemplate).layer("component", &[("a", "1")], &[]).layer("subject", &[("a", "2")], &[]).answer();
    assert_eq!(label(&answer, "a"), "1 (component)");
}

#[test]
fn nothing_is_lost_where_two_layers_agree() {
    let answer = Ask::engine(Object).layer("subject", &[("a", "1")], &[]).layer("component", &[("a", "1")], &[]).answer();
    assert_eq!(label(&answer, "a"), "1 (component)");
    assert_eq!(answer.dropped, []);
}

#[test]
fn the_hosts_own_stay_whatever_layers_say() {
    let frame = [("serving.ome.io/component", "engine"), ("serving.ome.io/revision", "00002"), ("team", "a")];
    for place in [Object, PodTemplate] {
        let ask = Ask::engine(place).frame(&frame, &[("note", "x")]).layer("facts", FACTS, &[]);
        let ask = ask.layer("subject", &[("serving.ome.io/component", "router"), ("team", "a")], &[("note", "y")]);
        let answer = ask.layer("component", &[("serving.ome.io/revision", "1")], &[]).answer();
        for (key, value) in frame {
            assert_eq!(label(&answer, key), format!("{value} (host)"));
        }
        assert_eq!(annotation(&answer, "note"), "x (host)");
        let told = ["subject serving.ome.io/component HostsOwn", "component serving.ome.io/revision HostsOwn", "subject note HostsOwn"];
        assert_eq!(dropped(&answer), told);
    }
}

#[test]
fn the_frame_keeps_the_layers_that_it_came_with_and_even_internal_keys() {
    let mut ask = Ask::engine(PodTemplate);
    ask.0.annotations.push(placed("autoscaling.knative.dev/target", "10", "component"));
    ask.0.labels.push(placed("team", "not a value!", "plugin"));
    let answer = ask.answer();
    assert_eq!(annotation(&answer, "autoscaling.knative.dev/target"), "10 (component)");
    assert_eq!(label(&answer, "team"), "not a value! (plugin)");
}

#[test]
fn the_frame_agrees_with_a_fact_that_it_had_to_cut() {
    let long = "a".repeat(70);
    let cut = pointsman_metadata_propagation::valid_label_value(&long);
    let ask = Ask::engine(Object).frame(&[("serving.ome.io/inferenceservice", &cut)], &[]);
    let answer = ask.layer("facts", &[("serving.ome.io/inferenceservice", &long)], &[]).with(&Config { upstream_keys: false, ..config() });
    assert_eq!((answer.dropped, answer.reasons), (vec![], vec![]));
}

#[test]
fn of_the_namespace_goes_what_is_named() {
    let labels = [("a", "1"), ("ab", "2"), ("team.example.com/b", "3"), ("team.example.com.evil/c", "4"), ("x", "5")];
    let carried = |names: &[&str]| {
        let answer = Ask::new(Object, None, None).layer("namespace", &labels, &[]).with(&namespace_labels(names));
        assert_eq!(answer.dropped, []);
        let of_namespace = answer.labels.into_iter().filter(|placed| placed.layer == "namespace");
        of_namespace.map(|placed| placed.key).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(carried(&[]), "");
    assert_eq!(carried(&["a"]), "a");
    assert_eq!(carried(&["a*"]), "a ab");
    assert_eq!(carried(&["team.example.com/"]), "team.example.com/b");
    assert_eq!(carried(&["team.example.com/*", "x"]), "team.example.com/b x");
    assert_eq!(carried(&["*"]), "a ab team.example.com.evil/c team.example.com/b x");
}

#[test]
fn the_namespaces_labels_reach_pods_too() {
    let answer = Ask::engine(PodTemplate).layer("namespace", &[("a", "1")], &[]).with(&namespace_labels(&["a"]));
    assert_eq!(label(&answer, "a"), "1 (namespace)");
}

#[test]
fn what_the_namespace_says_of_its_hardware_is_carried_unless_the_service_says_otherwise() {
    let hardware = [
        ("infrastructure.ome.io/cluster", "gpu-cluster-1"),
        ("infrastructure.ome.io/profile", "h100"),
        ("infrastructure.ome.io.evil/x", "1"),
        ("sub.infrastructure.ome.io/x", "1"),
    ];
    for (place, role) in [(Object, None), (Object, Some(Role::Engine)), (PodTemplate, Some(Role::Worker))] {
        let ask = Ask::new(place, role, None).layer("namespace", &hardware, &[("infrastructure.ome.io/note", "1")]);
        let answer = ask.clone().layer("subject", &[("infrastructure.ome.io/profile", "a100")], &[]).answer();
        assert_eq!(label(&answer, "infrastructure.ome.io/cluster"), "gpu-cluster-1 (namespace)");
        assert_eq!(label(&answer, "infrastructure.ome.io/profile"), "a100 (subject)");
        assert_eq!(dropped(&answer), ["namespace infrastructure.ome.io/profile Overridden"]);
        assert_eq!(annotation(&answer, "infrastructure.ome.io/note"), "-");
        let internal = Config { internal_keys: patterns(&["infrastructure.ome.io/"]), ..config() };
        assert_eq!(label(&ask.with(&internal), "infrastructure.ome.io/cluster"), "-");
    }
    let of_llm = Ask::new(PodTemplate, Some(Role::Main), None).llm("Deployment").layer("namespace", &hardware, &[]).answer();
    assert_eq!((of_llm.labels, of_llm.dropped), (vec![], vec![]));
}

#[test]
fn what_tells_the_place_in_the_cloud_travels() {
    let region = [("oci.ome.io/region", "us-ashburn-1")];
    for place in [Object, PodTemplate] {
        assert_eq!(annotation(&Ask::engine(place).layer("subject", &[], &region).answer(), region[0].0), "us-ashburn-1 (subject)");
    }
    assert_eq!(annotation(&Ask::engine(PodTemplate).layer("component", &[], &region).answer(), region[0].0), "us-ashburn-1 (component)");
}

#[test]
fn the_runtimes_reach_pods_only() {
    let ask = |place| Ask::engine(place).layer("runtime", &[("a", "1")], &[("b", "2")]).answer();
    let of_pods = ask(PodTemplate);
    assert_eq!((label(&of_pods, "a"), annotation(&of_pods, "b")), ("1 (runtime)".into(), "2 (runtime)".into()));
    let of_object = ask(Object);
    assert_eq!((label(&of_object, "a"), annotation(&of_object, "b")), ("-".into(), "-".into()));
    assert_eq!(dropped(&of_object), ["runtime a PodsOnly", "runtime b PodsOnly"]);
}

#[test]
fn the_subjects_reach_everything() {
    for (place, role) in [(Object, None), (Object, Some(Role::Engine)), (PodTemplate, Some(Role::Engine))] {
        let subject = [("app.kubernetes.io/instance", "chat"), ("team", "a")];
        let answer = Ask::new(place, role, None).layer("subject", &subject, &[("note", "x")]).answer();
        assert_eq!(label(&answer, "team"), "a (subject)");
        assert_eq!(label(&answer, "app.kubernetes.io/instance"), "chat (subject)");
        assert_eq!(annotation(&answer, "note"), "x (subject)");
        assert_eq!(answer.dropped, []);
    }
}

#[test]
fn a_components_annotations_reach_pods_only_and_its_labels_the_object_as_well() {
    let ask = |place| Ask::engine(place).layer("component", &[("a", "1")], &[("b", "2")]).answer();
    let of_pods = ask(PodTemplate);
    assert_eq!((label(&of_pods, "a"), annotation(&of_pods, "b")), ("1 (component)".into(), "2 (component)".into()));
    let of_object = ask(Object);
    assert_eq!((label(&of_object, "a"), annotation(&of_object, "b")), ("1 (component)".into(), "-".into()));
    assert_eq!(dropped(&of_object), ["component b PodsOnly"]);
}

#[test]
fn what_cannot_be_placed_overrides_nothing() {
    let ask = Ask::engine(Object).layer("subject", &[], &[("b", "1")]).layer("component", &[], &[("b", "2")]);
    let answer = ask.answer();
    assert_eq!(annotation(&answer, "b"), "1 (subject)");
    assert_eq!(dropped(&answer), ["component b PodsOnly"]);
}

#[test]
fn a_layer_without_rules_is_told() {
    let answer = Ask::engine(Object).layer("spec", &[("a", "1")], &[("b", "2")]).layer("spec", &[("a", "1")], &[]).answer();
    assert_eq!(dropped(&answer), ["spec a UnknownLayer", "spec b UnknownLayer"]);
}

#[test]
fn a_key_that_kubernetes_refuses_is_left_out() {
    let answer = Ask::engine(Object).layer("component", &[("not a key", "1")], &[]).layer("subject", &[], &[("a/b/c", "2")]).answer();
    assert_eq!(dropped(&answer), ["component not a key InvalidKey", "subject a/b/c InvalidKey"]);
}

#[test]
fn another_kind_keeps_its_frame_and_gets_nothing() {
    for (group, kind) in [("ome.io", "LLMInferenceService"), ("serving.kserve.io", "InferenceService"), ("ome.io", "Other")] {
        let mut ask = Ask::engine(Object).frame(&[("b", "1"), ("a", "2")], &[("c", "3")]).layer("subject", &[("d", "4")], &[]);
        ask.0.subject = Subject { group: group.into(), kind: kind.into(), ..Subject::default() };
        let answer = ask.answer();
        assert_eq!(answer.labels, [placed("a", "2", "host"), placed("b", "1", "host")]);
        assert_eq!(answer.annotations, [placed("c", "3", "host")]);
        assert_eq!(answer.dropped, []);
        let codes: Vec<_> = answer.reasons.iter().map(|reason| reason.code.as_str()).collect();
        assert_eq!(codes, ["NoRules"]);
    }
}
