//! The location of a pod's metrics for Prometheus.

mod asking;

use asking::{Ask, Object, Pairs, PodTemplate, config, patterns, shown, why};
use pointsman_metadata_propagation::Config;
use pointsman_plugin::{Role, metadata_propagation::Sort};

const SERVICE: Pairs<'static> =
    &[("monitoring.ome.io/path", "/metrics"), ("monitoring.ome.io/port", "8080"), ("monitoring.ome.io/scrape", "true")];

const TOLD: [&str; 3] =
    ["prometheus.io/path=/metrics (subject)", "prometheus.io/port=8080 (subject)", "prometheus.io/scrape=true (subject)"];

fn pods(service: Pairs<'_>, component: Pairs<'_>) -> Vec<String> {
    shown(&Ask::engine(PodTemplate).layer("subject", &[], service).layer("component", &[], component).answer().annotations)
}

#[test]
fn pods_tell_prometheus_what_the_service_says() {
    for role in [Role::Engine, Role::Router, Role::Leader, Role::Worker] {
        let answer = Ask::new(PodTemplate, Some(role), Some(Role::Engine)).layer("subject", &[], SERVICE).answer();
        assert_eq!(shown(&answer.annotations), TOLD);
        assert_eq!(why(&answer, Sort::Annotation, "subject", "monitoring.ome.io/port"), "Internal");
    }
    assert_eq!(pods(&SERVICE[1..2], &[]), ["prometheus.io/port=8080 (subject)"], "each where it is given");
}

#[test]
fn a_component_says_it_for_itself() {
    let port = [("monitoring.ome.io/port", "9090")];
    assert_eq!(pods(SERVICE, &port), [TOLD[0], "prometheus.io/port=9090 (component)", TOLD[2]]);
    assert_eq!(pods(&[], &port), ["prometheus.io/port=9090 (component)"]);
}

#[test]
fn where_nobody_is_to_look_no_place_is_told() {
    let no = [("monitoring.ome.io/scrape", "false")];
    assert_eq!(pods(SERVICE, &no), ["prometheus.io/scrape=false (component)"]);
    assert_eq!(pods(&no, &SERVICE[2..]), ["prometheus.io/scrape=true (component)"]);
    assert_eq!(pods(&no, &[("monitoring.ome.io/port", "1")]), ["prometheus.io/scrape=false (subject)"]);
}

#[test]
fn what_a_layer_tells_prometheus_itself_wins() {
    let own = [("prometheus.io/port", "1")];
    let both = [SERVICE, &own].concat();
    for layer in ["runtime", "subject", "component"] {
        let ask = Ask::engine(PodTemplate).layer("subject", &[], if layer == "subject" { &both } else { SERVICE });
        let ask = if layer == "subject" { ask } else { ask.layer(layer, &[], &own) };
        let port = format!("prometheus.io/port=1 ({layer})");
        assert_eq!(shown(&ask.answer().annotations), [TOLD[0], port.as_str(), TOLD[2]]);
    }
}

#[test]
fn the_template_wins_and_what_is_internal_is_not_told() {
    let ask = || Ask::engine(PodTemplate).layer("subject", &[], SERVICE);
    assert_eq!(shown(&ask().frame(&[], &[("prometheus.io/port", "2")]).answer().annotations)[1], "prometheus.io/port=2 (host)");
    let config = Config { internal_keys: patterns(&["prometheus.io/*"]), ..config() };
    let answer = ask().with(&config);
    assert_eq!(shown(&answer.annotations), Vec::<String>::new());
    assert_eq!(why(&answer, Sort::Annotation, "subject", "prometheus.io/port"), "-", "nobody has said that");
}

#[test]
fn objects_and_other_kinds_get_none_of_it() {
    let objects = Ask::engine(Object).layer("subject", &[], SERVICE).answer();
    assert_eq!(shown(&objects.annotations), Vec::<String>::new());
    let runtime = Ask::engine(PodTemplate).layer("runtime", &[], SERVICE).answer();
    assert_eq!(shown(&runtime.annotations), Vec::<String>::new(), "a runtime serves many");
    let llm = Ask::new(PodTemplate, Some(Role::Main), None).llm("Deployment").layer("subject", &[], SERVICE).answer();
    assert_eq!(shown(&llm.annotations), Vec::<String>::new());
}
