//! KServe's LLMInferenceService: all rows and examples of its documentation.

mod asking;

use asking::{Ask, Object, Pairs, PodTemplate, annotation, config, dropped, label, patterns, shown, why};
use pointsman_metadata_propagation::{Config, LlmInferenceService, valid_label_value};
use pointsman_plugin::{
    Role,
    metadata_propagation::{Place, Sort},
};

/// The Deployment and the LeaderWorkerSet of a workload.
fn workloads(role: Role) -> [Ask; 2] {
    ["Deployment", "LeaderWorkerSet"].map(|kind| Ask::new(Object, Some(role), None).llm(kind))
}

/// The pods of a workload: those of a Deployment, leaders and workers.
fn pods(role: Role) -> [Ask; 3] {
    let of_group = |place| Ask::new(PodTemplate, Some(place), Some(role)).llm("LeaderWorkerSet");
    [Ask::new(PodTemplate, Some(role), None).llm("Deployment"), of_group(Role::Leader), of_group(Role::Worker)]
}

fn scheduler(place: Place) -> Ask {
    Ask::new(place, Some(Role::Scheduler), None).llm("Deployment")
}

/// Objects that get none of the service's metadata: of each part, and of the whole service.
fn others() -> Vec<Ask> {
    let of_roles = [Role::Main, Role::Prefill, Role::Scheduler].map(|role| ("Service", Some(role)));
    let others = [("HorizontalPodAutoscaler", Some(Role::Main)), ("InferencePool", Some(Role::Scheduler)), ("HTTPRoute", None)];
    let more = [("ServiceAccount", Some(Role::Scheduler)), ("Deployment", Some(Role::Scheduler)), ("Deployment", None)];
    of_roles.into_iter().chain(others).chain(more).map(|(kind, role)| Ask::new(Object, role, None).llm(kind)).collect()
}

/// All pods and objects.
fn everything() -> Vec<Ask> {
    let of_models = [Role::Main, Role::Prefill].into_iter().flat_map(|role| workloads(role).into_iter().chain(pods(role)));
    of_models.chain([scheduler(PodTemplate)]).chain(others()).collect()
}

/// Checks the metadata of all these targets, without the labels that identify an object's manager.
fn get(asks: impl IntoIterator<Item = Ask>, service: impl Fn(Ask) -> Ask, labels: &[&str], annotations: &[&str]) {
    for ask in asks {
        let target = ask.0.target.clone();
        let mut answer = service(ask).answer();
        answer.labels.retain(|label| label.key != "app.kubernetes.io/managed-by");
        assert_eq!(shown(&answer.labels), labels, "{target:?}");
        assert_eq!(shown(&answer.annotations), annotations, "{target:?}");
    }
}

#[test]
fn annotations_with_an_approved_prefix_reach_workloads_and_their_pods() {
    let annotations = [
        ("k8s.v1.cni.cncf.io/networks", "rdma-net"),
        ("kueue.x-k8s.io/pod-group", "a"),
        ("prometheus.io/scrape", "true"),
        ("my-team.example.com/owner", "me"),
    ];
    let service = |ask: Ask| ask.layer("subject", &[], &annotations);
    let carried =
        ["k8s.v1.cni.cncf.io/networks=rdma-net (subject)", "kueue.x-k8s.io/pod-group=a (subject)", "prometheus.io/scrape=true (subject)"];
    for role in [Role::Main, Role::Prefill] {
        get(workloads(role), service, &[], &carried);
        get(pods(role), service, &[], &carried);
    }
    get(others(), service, &[], &[]);
    get([scheduler(PodTemplate)], service, &[], &[]);
}

#[test]
fn labels_with_an_approved_prefix_reach_workloads_and_their_pods() {
    let labels =
        [("kueue.x-k8s.io/queue-name", "gpu-queue"), ("prometheus.io/scrape", "true"), ("k8s.v1.cni.cncf.io/x", "1"), ("team", "a")];
    let service = |ask: Ask| ask.layer("subject", &labels, &[]);
    let carried = ["kueue.x-k8s.io/queue-name=gpu-queue (subject)"];
    for role in [Role::Main, Role::Prefill] {
        get(workloads(role), service, &carried, &[]);
        get(pods(role), service, &carried, &[]);
    }
    get(others(), service, &[], &[]);
    get([scheduler(PodTemplate)], service, &[], &[]);
}

#[test]
fn the_specs_reach_the_pods_of_main_and_prefill() {
    let service = |ask: Ask| ask.layer("spec", &[("team", "a")], &[("helm.sh/chart", "x"), ("pointsman.dev/y", "z")]);
    for role in [Role::Main, Role::Prefill] {
        get(pods(role), service, &["team=a (spec)"], &["helm.sh/chart=x (spec)", "pointsman.dev/y=z (spec)"]);
        get(workloads(role), service, &[], &[]);
    }
    get(others(), service, &[], &[]);
    get([scheduler(PodTemplate)], service, &[], &[]);
}

#[test]
fn the_prefills_reach_its_pods_alone() {
    let service = |ask: Ask| ask.layer("prefill", &[("team", "a")], &[("note", "x")]);
    get(pods(Role::Prefill), service, &["team=a (prefill)"], &["note=x (prefill)"]);
    get(pods(Role::Main), service, &[], &[]);
    get(workloads(Role::Main).into_iter().chain(workloads(Role::Prefill)), service, &[], &[]);
    get(others(), service, &[], &[]);
    get([scheduler(PodTemplate)], service, &[], &[]);
}

#[test]
fn the_schedulers_reach_its_pods_alone() {
    let service = |ask: Ask| ask.layer("scheduler", &[("team", "a")], &[("note", "x")]);
    get([scheduler(PodTemplate)], service, &["team=a (scheduler)"], &["note=x (scheduler)"]);
    for role in [Role::Main, Role::Prefill] {
        get(pods(role), service, &[], &[]);
        get(workloads(role), service, &[], &[]);
    }
    get(others(), service, &[], &[]);
}

#[test]
fn the_example_of_prometheus() {
    let annotations = [("prometheus.io/scrape", "true"), ("prometheus.io/port", "8000"), ("prometheus.io/path", "/metrics")];
    let carried = ["prometheus.io/path=/metrics (subject)", "prometheus.io/port=8000 (subject)", "prometheus.io/scrape=true (subject)"];
    get(pods(Role::Main), |ask| ask.layer("subject", &[], &annotations), &[], &carried);
}

#[test]
fn the_example_of_a_queue() {
    let service = |ask: Ask| ask.layer("subject", &[("kueue.x-k8s.io/queue-name", "gpu-queue")], &[]);
    let carried = ["kueue.x-k8s.io/queue-name=gpu-queue (subject)"];
    get(workloads(Role::Main), service, &carried, &[]);
    get(pods(Role::Main), service, &carried, &[]);
}

#[test]
fn the_example_of_labels_for_each_component() {
    let base: Pairs<'_> = &[("platform.example.com/cost-center", "ai-infra"), ("platform.example.com/team", "ml-platform")];
    let scrape: Pairs<'_> = &[("prometheus.io/scrape", "true"), ("prometheus.io/port", "9090")];
    let service = |ask: Ask| {
        ask.layer("spec", base, &[("platform.example.com/monitored", "true")])
            .layer("prefill", &[("platform.example.com/role", "prefill")], &[("platform.example.com/slo", "latency-sensitive")])
            .layer("scheduler", &[("platform.example.com/role", "scheduler")], scrape)
    };
    let labels = ["platform.example.com/cost-center=ai-infra (spec)", "platform.example.com/team=ml-platform (spec)"];
    let monitored = "platform.example.com/monitored=true (spec)";
    get(pods(Role::Main), service, &labels, &[monitored]);
    let of_prefill = [labels[0], "platform.example.com/role=prefill (prefill)", labels[1]];
    get(pods(Role::Prefill), service, &of_prefill, &[monitored, "platform.example.com/slo=latency-sensitive (prefill)"]);
    let scraped = ["prometheus.io/port=9090 (scheduler)", "prometheus.io/scrape=true (scheduler)"];
    get([scheduler(PodTemplate)], service, &["platform.example.com/role=scheduler (scheduler)"], &scraped);
}

#[test]
fn on_pods_the_specs_win_over_the_metadata_and_the_prefills_over_both() {
    let key = "kueue.x-k8s.io/queue-name";
    let pair = |value| [(key, value)];
    // The policy determines the order, not the request.
    let service = |ask: Ask| {
        ask.layer("prefill", &pair("of-prefill"), &pair("of-prefill")).layer("spec", &pair("of-spec"), &pair("of-spec")).layer(
            "subject",
            &pair("of-metadata"),
            &pair("of-metadata"),
        )
    };
    let placed = |value: &str, layer: &str| format!("{key}={value} ({layer})");
    for (asks, expected) in [(pods(Role::Main), placed("of-spec", "spec")), (pods(Role::Prefill), placed("of-prefill", "prefill"))] {
        get(asks, service, &[&expected], &[&expected]);
    }
    for role in [Role::Main, Role::Prefill] {
        let expected = placed("of-metadata", "subject");
        get(workloads(role), service, &[&expected], &[&expected]);
    }
    let [of_prefill, ..] = pods(Role::Prefill).map(|ask| service(ask).answer());
    let told = [format!("spec {key} Overridden"), format!("subject {key} Overridden")];
    assert_eq!(dropped(&of_prefill), [&told[..], &told].concat());
}

#[test]
fn the_frame_wins_over_every_layer() {
    let frame = [("app.kubernetes.io/name", "llama"), ("kueue.x-k8s.io/queue-name", "of-template"), ("llm-d.ai/role", "decode")];
    let users = frame.map(|(key, _)| (key, "mine"));
    for ask in everything() {
        let ask = ["namespace", "subject", "spec", "prefill", "scheduler"].iter().fold(ask, |ask, layer| ask.layer(layer, &users, &users));
        let answer = ask.frame(&frame, &frame).with(&Config { namespace_labels: patterns(&["*"]), ..config() });
        for (key, value) in frame {
            assert_eq!((label(&answer, key), annotation(&answer, key)), (format!("{value} (host)"), format!("{value} (host)")));
        }
        assert_eq!(why(&answer, Sort::Label, "namespace", "llm-d.ai/role"), "HostsOwn");
    }
}

#[test]
fn the_namespaces_reach_everything_if_they_are_named_and_yield_to_all() {
    let config = Config { namespace_labels: patterns(&["team", "kueue.x-k8s.io/"]), ..config() };
    let labels = [("team", "search"), ("kueue.x-k8s.io/queue-name", "of-namespace"), ("other", "x")];
    for ask in everything() {
        let ask = ask.layer("namespace", &labels, &[]);
        assert_eq!(label(&ask.clone().answer(), "team"), "-");
        let answer = ask.with(&config);
        assert_eq!((label(&answer, "team"), label(&answer, "other")), ("search (namespace)".into(), "-".into()));
        assert_eq!(answer.dropped, []);
    }
    for ask in workloads(Role::Main).into_iter().chain(pods(Role::Main)) {
        let ask = ask.layer("namespace", &labels, &[]).layer("subject", &[("kueue.x-k8s.io/queue-name", "mine")], &[]);
        assert_eq!(label(&ask.with(&config), "kueue.x-k8s.io/queue-name"), "mine (subject)");
    }
}

#[test]
fn objects_say_who_manages_them_and_nothing_of_omes_is_given() {
    for ask in everything() {
        let place = ask.0.target.place;
        let answer = ask.answer();
        let managed = ["app.kubernetes.io/managed-by=pointsman (plugin)"];
        assert_eq!(shown(&answer.labels), if place == Object { &managed[..] } else { &[] });
        assert_eq!((answer.annotations, answer.dropped, answer.reasons), (vec![], vec![], vec![]));
    }
}

#[test]
fn what_is_not_approved_is_told_where_it_would_have_been() {
    let near = ["prometheus.io", "prometheus.iox/x", "sub.prometheus.io/x", "my-team.example.com/owner"].map(|key| (key, "1"));
    let told = [
        "subject prometheus.io/scrape NotApproved",
        "subject my-team.example.com/owner NotApproved",
        "subject prometheus.io NotApproved",
        "subject prometheus.iox/x NotApproved",
        "subject sub.prometheus.io/x NotApproved",
    ];
    for role in [Role::Main, Role::Prefill] {
        for ask in workloads(role).into_iter().chain(pods(role)) {
            let answer = ask.layer("subject", &[("prometheus.io/scrape", "true")], &near).answer();
            assert_eq!(dropped(&answer), told);
            assert_eq!(answer.dropped[0].reason.message, "The configuration's approvedLabels don't name it.");
            assert_eq!(answer.dropped[1].reason.message, "The configuration's approvedAnnotations don't name it.");
        }
    }
}

#[test]
fn what_is_for_pods_is_told_on_what_makes_them() {
    let told = |ask: Ask| {
        let layers = ["spec", "prefill", "scheduler"];
        dropped(&layers.iter().fold(ask, |ask, layer| ask.layer(layer, &[("a", "1")], &[])).answer())
    };
    for ask in workloads(Role::Main) {
        assert_eq!(told(ask), ["spec a PodsOnly"]);
    }
    for ask in workloads(Role::Prefill) {
        assert_eq!(told(ask), ["prefill a PodsOnly", "spec a PodsOnly"]);
    }
    assert_eq!(told(scheduler(Object)), ["scheduler a PodsOnly"]);
}

#[test]
fn a_layer_that_has_no_say_in_a_target_is_not_told_there() {
    let all = [("a", "1"), ("not a key", "2"), ("helm.sh/chart", "3")];
    let silent = |ask: Ask, layers: &[&str]| {
        let target = ask.0.target.clone();
        let answer = layers.iter().fold(ask, |ask, layer| ask.layer(layer, &all, &all)).answer();
        assert_eq!(answer.dropped, [], "{target:?}");
    };
    for ask in others() {
        let of_scheduler = ask.0.target.role == Some(Role::Scheduler) && ask.0.target.kind == "Deployment";
        silent(ask, if of_scheduler { &["subject", "spec", "prefill"] } else { &["subject", "spec", "prefill", "scheduler"] });
    }
    pods(Role::Main).into_iter().chain(workloads(Role::Main)).for_each(|ask| silent(ask, &["prefill", "scheduler"]));
    pods(Role::Prefill).into_iter().chain(workloads(Role::Prefill)).for_each(|ask| silent(ask, &["scheduler"]));
    silent(scheduler(PodTemplate), &["subject", "spec", "prefill"]);
}

#[test]
fn a_layer_without_rules_is_told() {
    for ask in everything() {
        assert_eq!(dropped(&ask.layer("runtime", &[("a", "1")], &[]).answer()), ["runtime a UnknownLayer"]);
    }
}

#[test]
fn other_prefixes_can_be_approved_in_place_of_these() {
    let service = LlmInferenceService { approved_labels: patterns(&["team", "example.com/"]), ..LlmInferenceService::default() };
    let config = Config { llm_inference_service: service, ..config() };
    let labels = [("team", "a"), ("example.com/x", "b"), ("kueue.x-k8s.io/queue-name", "c")];
    for ask in workloads(Role::Main).into_iter().chain(pods(Role::Prefill)) {
        let answer = ask.layer("subject", &labels, &labels).with(&config);
        assert_eq!((label(&answer, "team"), label(&answer, "example.com/x")), ("a (subject)".into(), "b (subject)".into()));
        assert_eq!(shown(&answer.annotations), ["kueue.x-k8s.io/queue-name=c (subject)"]);
        assert_eq!(why(&answer, Sort::Label, "subject", "kueue.x-k8s.io/queue-name"), "NotApproved");
    }
}

#[test]
fn of_the_metadata_internal_keys_stay_even_where_all_are_approved() {
    let service = LlmInferenceService { approved_labels: patterns(&["*"]), approved_annotations: patterns(&["*"]) };
    let config = Config { llm_inference_service: service, internal_keys: patterns(&["secret.example.com/"]), ..config() };
    let internal = [
        "internal.serving.kserve.io/localmodel",
        "kubectl.kubernetes.io/last-applied-configuration",
        "pointsman.dev/x",
        "secret.example.com/x",
    ];
    let pairs = internal.map(|key| (key, "1"));
    for role in [Role::Main, Role::Prefill] {
        for ask in workloads(role).into_iter().chain(pods(role)) {
            let answer = ask.layer("subject", &[("a", "1")], &pairs).with(&config);
            assert_eq!(label(&answer, "a"), "1 (subject)");
            assert_eq!(dropped(&answer), internal.map(|key| format!("subject {key} Internal")));
        }
    }
    let [answer, ..] = pods(Role::Main).map(|ask| ask.layer("subject", &[], &pairs).answer());
    assert_eq!(why(&answer, Sort::Annotation, "subject", internal[1]), "Internal");
}

#[test]
fn of_what_is_for_pods_only_what_would_break_them_stays() {
    let config = Config { internal_keys: patterns(&["secret.example.com/", "helm.sh/"]), ..config() };
    let breaking = ["controller-revision-hash", "leaderworkerset.sigs.k8s.io/worker-index", "pod-template-hash"];
    let configured = ["helm.sh/chart", "secret.example.com/x"];
    let asks = [("spec", pods(Role::Main)), ("spec", pods(Role::Prefill)), ("prefill", pods(Role::Prefill))];
    let asks = asks.into_iter().flat_map(|(layer, asks)| asks.map(|ask| (layer, ask)));
    for (layer, ask) in asks.chain([("scheduler", scheduler(PodTemplate))]) {
        let of_either = [&breaking[..], &configured].concat().into_iter().map(|key| (key, "1")).collect::<Vec<_>>();
        let answer = ask.layer(layer, &of_either, &of_either).layer(layer, &[("not a key", "1")], &[]).with(&config);
        assert_eq!(shown(&answer.labels), [""; 0]);
        assert_eq!(shown(&answer.annotations), breaking.map(|key| format!("{key}=1 ({layer})")));
        for key in breaking {
            assert_eq!(why(&answer, Sort::Label, layer, key), "Internal");
        }
        for key in configured {
            assert_eq!(why(&answer, Sort::Label, layer, key), "Internal");
            assert_eq!(why(&answer, Sort::Annotation, layer, key), "Internal");
        }
        assert_eq!(why(&answer, Sort::Label, layer, "not a key"), "InvalidKey");
    }
}

#[test]
fn a_labels_value_is_made_valid_and_an_annotations_is_not() {
    let raw = "Gold, mostly";
    for (layer, ask) in [("spec", pods(Role::Main)), ("prefill", pods(Role::Prefill))] {
        let [answer, ..] = ask.map(|ask| ask.layer(layer, &[("tier", raw)], &[("tier", raw)]).answer());
        assert_eq!(label(&answer, "tier"), format!("{} ({layer})", valid_label_value(raw)));
        assert_eq!(annotation(&answer, "tier"), format!("{raw} ({layer})"));
        let codes: Vec<_> = answer.reasons.iter().map(|reason| reason.code.as_str()).collect();
        assert_eq!(codes, ["ValueShortened"]);
    }
}
