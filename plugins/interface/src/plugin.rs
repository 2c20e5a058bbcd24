//! What a plugin says of itself.

use crate::{Question, image};
use serde::{Deserialize, Serialize};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

enumeration! {
    /// A question that the host asks of plugins.
    pub enum Point {
        /// Which runtime is to serve a model.
        RuntimeSelection = "runtime-selection",
        /// What a pod looks like.
        PodTemplating = "pod-templating",
        /// Which labels and annotations are carried where.
        MetadataPropagation = "metadata-propagation",
        /// How well each candidate suits.
        SchedulingScoring = "scheduling-scoring",
    }
}

/// The columns that a plugin wants in the matrix of one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct FeatureSet {
    /// The question.
    pub question: Question,
    /// The names of the columns, in order.
    pub features: Vec<String>,
}

/// What a plugin says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Description {
    /// The plugin's name, for people.
    pub name: String,
    /// The plugin's version, for people.
    pub version: String,
    /// The policy points that it answers.
    #[serde(deserialize_with = "image::list")]
    pub points: Vec<Point>,
    /// The JSON Schema of its configuration; empty if there is nothing to configure.
    #[cfg_attr(feature = "host", component(name = "config-schema"))]
    #[serde(with = "image::schema")]
    pub config_schema: String,
    /// The columns that it wants, for each question that it answers.
    #[serde(deserialize_with = "image::list")]
    pub features: Vec<FeatureSet>,
    /// Whether its requests are to tell the time.
    #[cfg_attr(feature = "host", component(name = "wants-time"))]
    pub wants_time: bool,
}

impl Description {
    /// The columns that it wants for a question.
    pub fn features(&self, question: Question) -> &[String] {
        self.features.iter().find(|set| set.question == question).map_or(&[], |set| &set.features)
    }
}
