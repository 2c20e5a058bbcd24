//! The annotations of OME's labels page that say how a component runs: what each may be, and for whom it counts.

use super::{
    Stop,
    component::{Annotations, Part, invalid},
};
use crate::quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// An annotation that the policies at pod-templating act upon.
#[derive(Clone, Copy, Debug)]
struct Setting {
    key: &'static str,
    holds: fn(&str) -> bool,
    what: &'static str,
    /// Whether it is said of a router's pods too, which have no model.
    of_routers: bool,
}

/// A key, what it must be, and how that is told.
const fn of_model(key: &'static str, holds: fn(&str) -> bool, what: &'static str) -> Setting {
    Setting { key, holds, what, of_routers: false }
}

const fn of_pods(key: &'static str, holds: fn(&str) -> bool, what: &'static str) -> Setting {
    Setting { key, holds, what, of_routers: true }
}

const SETTINGS: [Setting; 11] = [
    of_model("model.ome.io/quantization", word, "a word such as fp8"),
    of_model("model.ome.io/max-tokens", number, "a whole number above 0"),
    of_model("model.ome.io/context-length", number, "a whole number above 0"),
    of_model("performance.ome.io/gpu-memory-fraction", fraction, "a number above 0 and up to 1"),
    of_model("performance.ome.io/batch-size", number, "a whole number above 0"),
    of_model("performance.ome.io/max-batch-delay", duration, "a time such as 10ms or 1s"),
    of_pods(
        "security.ome.io/pod-security-policy",
        |text| ["privileged", "baseline", "restricted"].contains(&text),
        "privileged, baseline or restricted",
    ),
    of_pods("security.ome.io/secret-ref", name, "the name of a Secret"),
    of_pods("oci.ome.io/compartment-id", said, "the id of a compartment"),
    of_pods("oci.ome.io/region", said, "the name of a region"),
    of_pods("oci.ome.io/availability-domain", said, "the name of an availability domain"),
];

pub(super) const STORAGE_URI: &str = "model.ome.io/storage-uri";
const NETWORK_POLICY: &str = "security.ome.io/network-policy";
const STORAGE_CLASS: &str = "storage.ome.io/class";
const STORAGE_SIZE: &str = "storage.ome.io/size";
const ACCESS_MODE: &str = "storage.ome.io/access-mode";
const SCRAPE: &str = "monitoring.ome.io/scrape";
const METRICS_PORT: &str = "monitoring.ome.io/port";
const METRICS_PATH: &str = "monitoring.ome.io/path";

/// The only NetworkPolicy whose content is known.
const INFERENCE_ONLY: &str = "allow-inference-only";

/// The schemes of a storage URI.
const SCHEMES: [&str; 11] = ["oci", "pvc", "hf", "s3", "gs", "az", "http", "https", "github", "vendor", "local"];

/// Room for files that a component asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) class: Option<String>,
    pub(super) size: String,
    pub(super) mode: &'static str,
}

/// What the annotations say of a component, beside how it is deployed and scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extras {
    /// What the policies at pod-templating are told.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// Where the model comes from, in place of the nodes.
    pub(super) storage_uri: Option<String>,
    pub(super) storage: Option<Storage>,
    /// Whether only requests are let in.
    pub(super) inference_only: bool,
    /// The port of the metrics, if somebody reads them.
    pub(super) metrics_port: Option<i64>,
}

impl Extras {
    /// Whether its room for files can be mounted on one node at a time.
    pub(super) fn on_one_node(&self) -> bool {
        self.storage.as_ref().is_some_and(|storage| storage.mode.starts_with("ReadWriteOnce"))
    }

    /// Reads them. `settings` are those that count for a component's own deployment, `pods` those that count for its pods.
    pub(super) fn read(part: Part, settings: &Annotations<'_>, pods: &Annotations<'_>) -> Result<Self, Box<Stop>> {
        let mut extras = Self::default();
        for Setting { key, holds, what, of_routers } in SETTINGS {
            let from = if of_routers { pods } else { settings };
            if let Some((value, _)) = from.read(key, |text| holds(text).then(|| text.to_owned()), what)? {
                extras.settings.insert(key, value);
            }
        }
        let policy = pods.read(NETWORK_POLICY, |text| (text == INFERENCE_ONLY).then_some(()), "allow-inference-only")?;
        extras.inference_only = policy.is_some();
        let scraped = pods.read(SCRAPE, |text| text.parse::<bool>().ok(), "true or false")?.is_some_and(|(scraped, _)| scraped);
        let port = pods.read(METRICS_PORT, |text| text.parse::<u16>().ok().filter(|port| *port > 0), "a port from 1 to 65535")?;
        extras.metrics_port = port.filter(|_| scraped).map(|(port, _)| port.into());
        pods.read(METRICS_PATH, |text| text.starts_with('/').then_some(()), "a path that begins with /")?;
        if part == Part::Router {
            return Ok(extras);
        }
        extras.storage_uri = settings.read(STORAGE_URI, storage_uri, "a storage URI such as hf://ORG/MODEL")?.map(|(uri, _)| uri);
        extras.storage = storage(settings)?;
        Ok(extras)
    }
}

fn storage(annotations: &Annotations<'_>) -> Result<Option<Storage>, Box<Stop>> {
    let class = annotations.read(STORAGE_CLASS, |text| name(text).then(|| text.to_owned()), "the name of a StorageClass")?;
    let size = annotations.read(
        STORAGE_SIZE,
        |text| quantity::parse(&Value::from(text)).filter(|size| *size > 0).map(|_| text.to_owned()),
        "a quantity such as 100Gi",
    )?;
    let modes = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
    let mode = annotations.read(
        ACCESS_MODE,
        |text| modes.iter().find(|mode| **mode == text).copied(),
        "ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod",
    )?;
    match (class, size, mode) {
        (None, None, None) => Ok(None),
        (class, Some((size, _)), mode) => {
            Ok(Some(Storage { class: class.map(|(class, _)| class), size, mode: mode.map_or(modes[0], |(mode, _)| mode) }))
        }
        _ => Err(invalid(format!("The annotations ask for storage without a size: give {STORAGE_SIZE}, such as 100Gi."))),
    }
}

fn storage_uri(text: &str) -> Option<String> {
    let (scheme, place) = text.split_once("://")?;
    (SCHEMES.contains(&scheme) && !place.is_empty()).then(|| text.to_owned())
}

fn said(text: &str) -> bool {
    !text.trim().is_empty()
}

fn word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn number(text: &str) -> bool {
    text.parse::<u32>().is_ok_and(|number| number > 0)
}

fn fraction(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(|fraction| fraction > 0.0 && fraction <= 1.0)
}

fn duration(text: &str) -> bool {
    let units = ["us", "ms", "s"];
    let count = |unit: &str| text.strip_suffix(unit).is_some_and(|count| count.parse::<u32>().is_ok());
    units.into_iter().any(count)
}

/// A name of an object, as Kubernetes takes it.
fn name(text: &str) -> bool {
    let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253 && text.starts_with(outer) && text.ends_with(outer) && text.chars().all(|c| outer(c) || matches!(c, '-' | '.'))
}
