//! The labels and annotations that OME's own controller sets, for existing selectors and dashboards.

use crate::{
    offer::{Offer, Offers},
    source::part,
};
use pointsman_plugin::{Entry, Role, lookup, metadata_propagation::Target};

/// The key that is the same in the facts.
pub const FINE_TUNED: &str = "fine-tuned-serving";

const LABELS: [(&str, &[&str]); 5] = [
    ("serving-runtime", &["serving.ome.io/runtime"]),
    ("base-model-name", MODEL),
    ("base-model-size", &["model.ome.io/size"]),
    ("base-model-type", &["model.ome.io/type"]),
    ("base-model-vendor", &["model.ome.io/vendor"]),
];

const ANNOTATIONS: [(&str, &[&str]); 4] = [
    ("ome.io/base-model-name", MODEL),
    ("ome.io/base-model-vendor", &["model.ome.io/vendor"]),
    ("ome.io/base-model-format", &["model.ome.io/format"]),
    ("ome.io/serving-runtime", &["serving.ome.io/runtime"]),
];

/// The first of these facts that exists is used.
const MODEL: &[&str] = &["serving.ome.io/model", "model.ome.io/name"];

/// Offers the entries whose facts exist. All except one are only for targets with a role.
pub fn offer(target: &Target, facts: &[Entry], offers: &mut Offers) {
    if let Some(name) = lookup(facts, "serving.ome.io/inferenceservice") {
        offers.labels.push(Offer::of_policy("ome.io/inferenceservice", name, "facts"));
    }
    if target.role.is_none() {
        return;
    }
    if let Some(component) = component(target) {
        // It is derived from the target, not from a fact.
        offers.labels.push(Offer::of_policy("component", component, "plugin"));
    }
    let known = |(key, facts_names): (&'static str, &[&str])| {
        let value = facts_names.iter().find_map(|name| lookup(facts, name))?;
        Some(Offer::of_policy(key, value, "facts"))
    };
    offers.labels.extend(LABELS.into_iter().filter_map(known));
    offers.annotations.extend(ANNOTATIONS.into_iter().filter_map(known));
}

fn component(target: &Target) -> Option<&'static str> {
    match part(target)? {
        Role::Engine => Some("engine"),
        Role::Decoder => Some("decoder"),
        Role::Router => Some("router"),
        _ => None,
    }
}
