//! What a plugin says of itself.

use super::{Question, image};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift};

/// A question that the host asks of plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Point {
    /// Which runtime is to serve a model.
    #[component(name = "runtime-selection")]
    RuntimeSelection,
    /// What a pod looks like.
    #[component(name = "pod-templating")]
    PodTemplating,
    /// Which labels and annotations are carried where.
    #[component(name = "metadata-propagation")]
    MetadataPropagation,
    /// How well each candidate suits.
    #[component(name = "scheduling-scoring")]
    SchedulingScoring,
}

impl Point {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::RuntimeSelection, Self::PodTemplating, Self::MetadataPropagation, Self::SchedulingScoring];

    /// Its name, which is its interface's name too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RuntimeSelection => "runtime-selection",
            Self::PodTemplating => "pod-templating",
            Self::MetadataPropagation => "metadata-propagation",
            Self::SchedulingScoring => "scheduling-scoring",
        }
    }
}

/// The columns that a plugin wants in the matrix of one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct FeatureSet {
    /// The question.
    pub question: Question,
    /// The names of the columns, in order.
    pub features: Vec<String>,
}

/// What a plugin says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(record)]
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
    #[component(name = "config-schema")]
    #[serde(with = "image::schema")]
    pub config_schema: String,
    /// The columns that it wants, for each question that it answers.
    #[serde(deserialize_with = "image::list")]
    pub features: Vec<FeatureSet>,
    /// Whether its requests are to tell the time.
    #[component(name = "wants-time")]
    pub wants_time: bool,
}

impl Description {
    /// The columns that it wants for a question.
    pub fn features(&self, question: Question) -> &[String] {
        self.features.iter().find(|set| set.question == question).map_or(&[], |set| &set.features)
    }

    /// What is wrong with it, given the policy points whose interfaces the binary exports: none if it is a command, which has no
    /// interfaces.
    pub fn flaw(&self, exported: &[String]) -> Option<String> {
        if self.points.is_empty() {
            return Some("it describes itself as answering no policy point".to_owned());
        }
        if exported.is_empty() {
            return None;
        }
        if let Some(twice) = self.points.iter().enumerate().find(|(at, point)| self.points[..*at].contains(point)) {
            return Some(format!("it describes itself as answering {} twice", twice.1.name()));
        }
        let missing = self.points.iter().map(|point| point.name()).find(|point| !exported.iter().any(|exported| exported == point))?;
        Some(format!("it describes itself as answering {missing}, but doesn't export that interface"))
    }
}
