//! The location of a pod's metrics, as Prometheus' own annotations.

use crate::{
    config::{Config, any_matches},
    offer::{Offer, Offers, Strength},
};
use pointsman_plugin::{
    lookup,
    metadata_propagation::{Layer, Place, Target},
};

/// The annotations of a service, and those that Prometheus reads.
const KEYS: [(&str, &str); 3] = [
    ("monitoring.ome.io/scrape", "prometheus.io/scrape"),
    ("monitoring.ome.io/port", "prometheus.io/port"),
    ("monitoring.ome.io/path", "prometheus.io/path"),
];

/// Offers each annotation to pods: from the component, otherwise from the service. An explicit annotation for Prometheus in any layer takes
/// precedence.
pub fn offer(config: &Config, target: &Target, layers: &[Layer], offers: &mut Offers) {
    if target.place == Place::Object {
        return;
    }
    for (key, of_prometheus) in KEYS {
        let Some((layer, value)) = ["component", "subject"].iter().find_map(|layer| Some((*layer, layer_value(layers, layer, key)?)))
        else {
            continue;
        };
        if !any_matches(&config.internal_keys, of_prometheus) {
            let strength = Strength::Fallback;
            offers.annotations.push(Offer { strength, ..Offer::of_policy(of_prometheus, value, layer) });
        }
        // Without scraping, port and path are irrelevant.
        if value == "false" && of_prometheus == "prometheus.io/scrape" {
            return;
        }
    }
}

fn layer_value<'l>(layers: &'l [Layer], name: &str, key: &str) -> Option<&'l str> {
    lookup(&layers.iter().rfind(|layer| layer.name == name)?.annotations, key)
}
