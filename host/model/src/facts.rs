//! The facts about a model.

use crate::{
    capabilities::Capability, config::is_usable, diffusion::DiffusionPipeline, limits::MAX_NOTES, quantization::Quantization,
    size_text::size_text,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// All facts from a model's files. If the files lack a fact, it is absent and a note gives the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelFacts {
    /// `model_type`, such as llama.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// The class, such as LlamaForCausalLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The library and its version, such as transformers 4.51.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<Versioned>,
    /// The format of the weights, such as safetensors 1.0.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Versioned>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
    /// The type of the numbers, such as bfloat16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The context: the maximum number of tokens that the model can process at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diffusion_pipeline: Option<DiffusionPipeline>,
    /// The file that describes the model: config.json, or `model_index.json` of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_file: Option<String>,
    /// Its content.
    #[serde(skip)]
    pub configuration: Option<Map<String, Value>>,
    /// Unknown facts, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// The number of further notes.
    #[serde(skip_serializing_if = "is_zero")]
    pub further_notes: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A name with a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Versioned {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Versioned {
    pub(crate) fn new(name: &str, version: Option<&str>) -> Self {
        Self { name: name.to_owned(), version: version.map(str::to_owned) }
    }
}

/// The number of a model's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    pub count: u64,
    /// The count in the form of `modelParameterSize`.
    pub size: String,
    pub source: Source,
}

impl Parameters {
    pub(crate) fn new(count: u64, source: Source) -> Self {
        Self { count, size: size_text(count), source }
    }

    /// Whether the count is exact, not an estimate.
    pub fn is_exact(&self) -> bool {
        matches!(self.source, Source::Tensors | Source::Index)
    }
}

/// The source of a count of parameters, most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// The shapes of all tensors.
    Tensors,
    /// The count that the index of the shards states.
    Index,
    /// The formula of the family, from config.json.
    Formula,
    /// The size of the weights in bytes, divided by the size of a number.
    Bytes,
}

/// A note about the facts for the reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The name of the fact's field.
    pub about: &'static str,
    /// The file that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(formatter, "{}: {file} {}", self.about, self.message),
            None => write!(formatter, "{}: {}", self.about, self.message),
        }
    }
}

impl ModelFacts {
    pub(crate) fn note(&mut self, about: &'static str, file: Option<&str>, message: impl Into<String>) {
        if self.notes.len() == MAX_NOTES {
            self.further_notes += 1;
            return;
        }
        // Names of files and values of configs are untrusted, so notes omit characters that a terminal interprets.
        let clean = |text: &str| -> String {
            if is_usable(text) { text.to_owned() } else { text.chars().filter(|letter| !letter.is_control()).take(512).collect() }
        };
        let (file, message) = (file.map(clean), clean(&message.into()));
        self.notes.push(Note { about, file, message });
    }
}
