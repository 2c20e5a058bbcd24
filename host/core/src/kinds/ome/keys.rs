//! The annotations on OME's labels page for a component, except those for deployment and scaling.

use super::{
    PlanError,
    component::{Annotations, ComponentKind, invalid},
};
use crate::rules::ome_keys::{
    ACCESS_MODE, ANNOTATIONS, Annotation, METRICS_PATH, METRICS_PORT, NETWORK_POLICY, Reader, SCRAPE, STORAGE_CLASS, STORAGE_SIZE,
    STORAGE_URI,
};
use std::collections::BTreeMap;

/// A component's request for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StorageRequest {
    pub(super) class: Option<String>,
    pub(super) size: String,
    pub(super) mode: &'static str,
}

/// The annotations of a component, except those for deployment and scaling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ComponentAnnotations {
    /// The settings for the policies at pod-templating.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// The URI of the model, instead of the nodes' copy.
    pub(super) storage_uri: Option<String>,
    pub(super) storage: Option<StorageRequest>,
    /// Whether the NetworkPolicy only admits requests.
    pub(super) inference_only: bool,
    /// The metrics port, if metrics are scraped.
    pub(super) metrics_port: Option<i64>,
}

impl ComponentAnnotations {
    /// Whether its volume can be mounted on only one node at a time.
    pub(super) fn on_one_node(&self) -> bool {
        self.storage.as_ref().is_some_and(|storage| storage.mode.starts_with("ReadWriteOnce"))
    }

    /// Parses the annotations. `settings` are those for the component's deployment, `pods` those for its pods.
    pub(super) fn read(part: ComponentKind, settings: &Annotations<'_>, pods: &Annotations<'_>) -> Result<Self, Box<PlanError>> {
        let mut extras = Self::default();
        for annotation in &ANNOTATIONS {
            let from = match annotation.reader {
                Reader::ModelPolicies => settings,
                Reader::PodPolicies => pods,
                Reader::Host | Reader::Nobody => continue,
            };
            if let Some(value) = text(from, annotation)? {
                extras.settings.insert(annotation.key, value);
            }
        }
        extras.inference_only = text(pods, &NETWORK_POLICY)?.is_some();
        let scraped = text(pods, &SCRAPE)?.is_some_and(|scraped| scraped == "true");
        let port = pods.read(METRICS_PORT.key, |text| text.parse::<u16>().ok().filter(|port| *port > 0), &METRICS_PORT.what())?;
        extras.metrics_port = port.filter(|_| scraped).map(|(port, _)| port.into());
        text(pods, &METRICS_PATH)?;
        if part == ComponentKind::Router {
            return Ok(extras);
        }
        extras.storage_uri = text(settings, &STORAGE_URI)?;
        extras.storage = storage(settings)?;
        Ok(extras)
    }
}

/// The value of an annotation, if it is permitted.
fn text(from: &Annotations<'_>, annotation: &Annotation) -> Result<Option<String>, Box<PlanError>> {
    let read = from.read(annotation.key, |text| annotation.accepts(text).then(|| text.to_owned()), &annotation.what())?;
    Ok(read.map(|(value, _)| value))
}

fn storage(annotations: &Annotations<'_>) -> Result<Option<StorageRequest>, Box<PlanError>> {
    let class = text(annotations, &STORAGE_CLASS)?;
    let size = text(annotations, &STORAGE_SIZE)?;
    let mode = annotations.read(ACCESS_MODE.key, |text| ACCESS_MODE.word(text), &ACCESS_MODE.what())?;
    match (class, size, mode) {
        (None, None, None) => Ok(None),
        (class, Some(size), mode) => Ok(Some(StorageRequest { class, size, mode: mode.map_or("ReadWriteOnce", |(mode, _)| mode) })),
        _ => Err(invalid(format!("The annotations request storage without a size: set {}, such as 100Gi.", STORAGE_SIZE.key))),
    }
}
