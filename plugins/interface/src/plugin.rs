//! A plugin's description of itself.

use crate::{Question, image};
use serde::{Deserialize, Serialize};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

enumeration! {
    /// A policy point: a question that the host asks plugins.
    pub enum Point {
        /// Which runtime serves a model.
        RuntimeSelection = "runtime-selection",
        /// How a pod is built.
        PodTemplating = "pod-templating",
        /// Which labels and annotations are propagated to which objects.
        MetadataPropagation = "metadata-propagation",
        /// How suitable each candidate is.
        SchedulingScoring = "scheduling-scoring",
    }
}

/// The columns that a plugin requests for the matrix of one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct FeatureSet {
    /// The question.
    pub question: Question,
    /// The names of the columns, in order.
    pub features: Vec<String>,
}

/// A plugin's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Description {
    /// The plugin's name, for display.
    pub name: String,
    /// The plugin's version, for display.
    pub version: String,
    /// The policy points at which it answers.
    #[serde(deserialize_with = "image::list")]
    pub points: Vec<Point>,
    /// The JSON Schema of its configuration; empty if it has none.
    #[cfg_attr(feature = "host", component(name = "config-schema"))]
    #[serde(with = "image::schema")]
    pub config_schema: String,
    /// The columns that it requests, for each question that it answers.
    #[serde(deserialize_with = "image::list")]
    pub features: Vec<FeatureSet>,
    /// Whether its requests contain the time.
    #[cfg_attr(feature = "host", component(name = "wants-time"))]
    pub wants_time: bool,
}

impl Description {
    /// The columns that it requests for a question.
    pub fn features(&self, question: Question) -> &[String] {
        self.features.iter().find(|set| set.question == question).map_or(&[], |set| &set.features)
    }
}
