//! The configuration.

use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The value of the label ome.io/managed-by.
    pub managed_by: String,
    /// Whether objects also get the labels and annotations that OME's own controller sets, such as base-model-name, for existing selectors
    /// and dashboards.
    pub upstream_keys: bool,
    /// The namespace's labels that are propagated to objects and pods. A change of such a label restarts the pods. For an InferenceService,
    /// those below infrastructure.ome.io/ are also propagated, unless internalKeys includes them.
    pub namespace_labels: Vec<Pattern>,
    /// Labels and annotations that are never propagated, in addition to the built-in ones. Values from the host's facts are still set under
    /// these keys.
    pub internal_keys: Vec<Pattern>,
    /// Settings for KServe's LLMInferenceService only.
    pub llm_inference_service: LlmInferenceService,
}

impl Default for Config {
    fn default() -> Self {
        // The value that OME's documentation uses in selectors.
        let managed_by = "ome-controller".to_owned();
        Self {
            managed_by,
            upstream_keys: true,
            namespace_labels: Vec::new(),
            internal_keys: Vec::new(),
            llm_inference_service: LlmInferenceService::default(),
        }
    }
}

/// The metadata of an LLMInferenceService that is propagated to its workloads and their pods. The metadata for pods in its spec needs no
/// approval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LlmInferenceService {
    /// The labels. A specified list replaces the default one, which is kueue.x-k8s.io/.
    pub approved_labels: Vec<Pattern>,
    /// The annotations. A specified list replaces the default one, which is k8s.v1.cni.cncf.io/, kueue.x-k8s.io/ and prometheus.io/.
    pub approved_annotations: Vec<Pattern>,
}

impl Default for LlmInferenceService {
    fn default() -> Self {
        // The keys that KServe's documentation approves.
        let approved = |beginnings: &[&str]| beginnings.iter().map(|beginning| Pattern::beginning(beginning)).collect();
        Self {
            approved_labels: approved(&["kueue.x-k8s.io/"]),
            approved_annotations: approved(&["k8s.v1.cni.cncf.io/", "kueue.x-k8s.io/", "prometheus.io/"]),
        }
    }
}

/// A key, or a prefix of keys, which ends with / or *: team.example.com/, app-*.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Pattern {
    text: String,
    prefix: bool,
}

impl Pattern {
    fn beginning(text: &str) -> Self {
        Self { text: text.to_owned(), prefix: true }
    }

    /// Whether the pattern matches the key.
    pub fn names(&self, key: &str) -> bool {
        if self.prefix { key.starts_with(&self.text) } else { key == self.text }
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(mut text: String) -> Result<Self, Self::Error> {
        let prefix = text.ends_with(['*', '/']);
        if text.ends_with('*') {
            text.pop();
        }
        // It would match no key, and the mistake would go unnoticed.
        if text.contains('*') || (text.is_empty() && !prefix) {
            return Err(format!("`{text}` names no keys: write a whole key, or a prefix of keys that ends with / or a single *"));
        }
        Ok(Self { text, prefix })
    }
}

/// Whether one of the patterns matches the key.
pub fn any_matches(patterns: &[Pattern], key: &str) -> bool {
    patterns.iter().any(|pattern| pattern.names(key))
}
