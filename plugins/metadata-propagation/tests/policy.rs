//! The policy as an ordinary function: no Wasm is needed to test it.

use pointsman_metadata_propagation::propagate;
use pointsman_plugin::{
    NoConfig, entry,
    metadata_propagation::{Layer, Placed, Request},
};

fn placed(key: &str) -> Vec<Placed> {
    vec![Placed { key: key.into(), value: "1".into(), layer: "plugin".into() }]
}

#[test]
fn what_is_placed_stays_and_nothing_of_the_layers_is_added() {
    let subject = Layer { name: "subject".into(), labels: vec![entry("c", "3")], annotations: vec![entry("d", "4")] };
    let request = Request { layers: vec![subject], labels: placed("a"), annotations: placed("b"), ..Request::default() };
    let answer = propagate(&NoConfig {}, request).unwrap();
    assert_eq!((answer.labels, answer.annotations, answer.dropped), (placed("a"), placed("b"), Vec::new()));
    let codes: Vec<_> = answer.reasons.iter().map(|reason| reason.code.as_str()).collect();
    assert_eq!(codes, ["Unchanged"]);
}
