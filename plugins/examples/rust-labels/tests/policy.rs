//! Tests the policy as an ordinary function, without Wasm.

use pointsman_example_rust_labels::{Config, propagate};
use pointsman_plugin::{
    Failure, Subject, entry,
    metadata_propagation::{Place, Placed, Request, Target},
};

fn ask(place: Place, labels: Vec<Placed>) -> Result<Vec<(String, String)>, Failure> {
    let subject = Subject { namespace_labels: vec![entry("cost-centre", "4711")], ..Subject::default() };
    let target = Target { place, ..Target::default() };
    let answer = propagate(&Config::default(), Request { subject, target, labels, ..Request::default() })?;
    Ok(answer.labels.into_iter().map(|label| (label.key, label.value)).collect())
}

#[test]
fn pods_get_the_label() {
    assert_eq!(ask(Place::PodTemplate, Vec::new()), Ok(vec![("cost-centre".into(), "4711".into())]));
}

#[test]
fn other_objects_do_not() {
    assert_eq!(ask(Place::Object, Vec::new()), Ok(Vec::new()));
}

#[test]
fn a_label_that_is_there_stays() {
    let own = Placed { key: "cost-centre".into(), value: "1".into(), layer: "subject".into() };
    assert_eq!(ask(Place::PodTemplate, vec![own]), Ok(vec![("cost-centre".into(), "1".into())]));
}
