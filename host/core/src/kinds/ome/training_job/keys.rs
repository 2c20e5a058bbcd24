//! The annotations on OME's labels page for a training job.

use super::PlanError;
use crate::rules::ome_keys::{
    ACCESS_MODE, ANNOTATIONS, Annotation, METRICS_PATH, METRICS_PORT, NETWORK_POLICY, Reader, SCRAPE, STORAGE_CLASS, STORAGE_SIZE,
    TRAINING_ANNOTATIONS,
};
use std::collections::BTreeMap;

/// The parsed annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobAnnotations {
    /// The settings for the policies at pod-templating.
    pub(super) settings: BTreeMap<&'static str, String>,
    pub(super) storage: Option<Storage>,
    /// Whether only the job's own pods may connect.
    pub(super) isolated: bool,
    /// The metrics port, if metrics are scraped.
    pub(super) metrics_port: Option<i64>,
}

/// A volume for all pods of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    pub(super) class: Option<String>,
    pub(super) size: String,
    pub(super) mode: &'static str,
}

impl JobAnnotations {
    pub(super) fn read(annotations: &BTreeMap<String, String>) -> Result<Self, Box<PlanError>> {
        let mut keys = Self::default();
        let of_pods = ANNOTATIONS.iter().filter(|annotation| annotation.reader == Reader::PodPolicies);
        for annotation in of_pods.chain(&TRAINING_ANNOTATIONS) {
            if let Some(value) = value(annotations, annotation)? {
                keys.settings.insert(annotation.key, value.to_owned());
            }
        }
        keys.isolated = value(annotations, &NETWORK_POLICY)?.is_some();
        let scraped = value(annotations, &SCRAPE)? == Some("true");
        let port = value(annotations, &METRICS_PORT)?.and_then(|port| port.parse().ok());
        keys.metrics_port = port.filter(|_| scraped);
        value(annotations, &METRICS_PATH)?;
        let (class, size) = (value(annotations, &STORAGE_CLASS)?, value(annotations, &STORAGE_SIZE)?);
        let mode = value(annotations, &ACCESS_MODE)?.and_then(|mode| ACCESS_MODE.word(mode));
        keys.storage = match (class, size, mode) {
            (None, None, None) => None,
            (class, Some(size), mode) => {
                let mode = mode.unwrap_or("ReadWriteOnce");
                Some(Storage { class: class.map(str::to_owned), size: size.to_owned(), mode })
            }
            _ => {
                let message = format!("The annotations request storage without a size: set {}, such as 100Gi.", STORAGE_SIZE.key);
                return Err(PlanError::refused("InvalidValue", message));
            }
        };
        Ok(keys)
    }
}

/// The value of an annotation, if it is permitted.
fn value<'a>(annotations: &'a BTreeMap<String, String>, annotation: &Annotation) -> Result<Option<&'a str>, Box<PlanError>> {
    match annotations.get(annotation.key) {
        Some(value) if !annotation.accepts(value) => {
            let message = format!("The annotation {} has the value {value:?}: it must be {}.", annotation.key, annotation.what());
            Err(PlanError::refused("InvalidValue", message))
        }
        value => Ok(value.map(String::as_str)),
    }
}
