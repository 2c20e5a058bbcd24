//! What the annotations of OME's labels page say of a component, beside how it is deployed and scaled.

use super::{
    PlanError,
    component::{Annotations, ComponentKind, invalid},
};
use crate::rules::ome_keys::{
    ACCESS_MODE, ANNOTATIONS, Annotation, METRICS_PATH, METRICS_PORT, NETWORK_POLICY, Reader, SCRAPE, STORAGE_CLASS, STORAGE_SIZE,
    STORAGE_URI,
};
use std::collections::BTreeMap;

/// Room for files that a component asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StorageRequest {
    pub(super) class: Option<String>,
    pub(super) size: String,
    pub(super) mode: &'static str,
}

/// What the annotations say of a component, beside how it is deployed and scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ComponentAnnotations {
    /// The settings that policies at pod-templating get.
    pub(super) settings: BTreeMap<&'static str, String>,
    /// Where the model comes from, in place of the nodes.
    pub(super) storage_uri: Option<String>,
    pub(super) storage: Option<StorageRequest>,
    /// Whether only requests are let in.
    pub(super) inference_only: bool,
    /// The port of the metrics, if somebody reads them.
    pub(super) metrics_port: Option<i64>,
}

impl ComponentAnnotations {
    /// Whether its room for files can be mounted on one node at a time.
    pub(super) fn on_one_node(&self) -> bool {
        self.storage.as_ref().is_some_and(|storage| storage.mode.starts_with("ReadWriteOnce"))
    }

    /// Reads them. `settings` are those that count for a component's own deployment, `pods` those that count for its pods.
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

/// The value of an annotation, if it is one that it may have.
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
