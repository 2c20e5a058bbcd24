//! What can be configured.

use schemars::JsonSchema;
use serde::Deserialize;

/// What can be configured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The value of the label ome.io/managed-by.
    pub managed_by: String,
    /// Whether what is made also gets the labels and annotations that OME's own controller sets, such as base-model-name, for selectors
    /// and dashboards made for it.
    pub upstream_keys: bool,
    /// The namespace's labels that are carried, to objects and to pods: a change of such a label restarts the pods. To what is made for
    /// an InferenceService those below infrastructure.ome.io/ are carried as well, unless internalKeys names them.
    pub namespace_labels: Vec<Pattern>,
    /// Labels and annotations that are never carried, beside those that never are. What the host knows and gives under a key of these
    /// stays.
    pub internal_keys: Vec<Pattern>,
    /// What is for KServe's LLMInferenceService alone.
    pub llm_inference_service: LlmInferenceService,
}

impl Default for Config {
    fn default() -> Self {
        // What OME's documentation tells to select by.
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

/// What of an LLMInferenceService's own metadata is carried to its workloads and their pods. What its spec gives for pods needs no
/// approval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LlmInferenceService {
    /// The labels. A list that is given takes the place of the default one, which is kueue.x-k8s.io/.
    pub approved_labels: Vec<Pattern>,
    /// The annotations. A list that is given takes the place of the default one, which is k8s.v1.cni.cncf.io/, kueue.x-k8s.io/ and
    /// prometheus.io/.
    pub approved_annotations: Vec<Pattern>,
}

impl Default for LlmInferenceService {
    fn default() -> Self {
        // What KServe's documentation approves of.
        let approved = |beginnings: &[&str]| beginnings.iter().map(|beginning| Pattern::beginning(beginning)).collect();
        Self {
            approved_labels: approved(&["kueue.x-k8s.io/"]),
            approved_annotations: approved(&["k8s.v1.cni.cncf.io/", "kueue.x-k8s.io/", "prometheus.io/"]),
        }
    }
}

/// A key, or all keys that begin alike, written with a / or a * at the end: team.example.com/, app-*.
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

    /// Whether it names the key.
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
        // It would name nothing, and nobody would notice.
        if text.contains('*') || (text.is_empty() && !prefix) {
            return Err(format!("`{text}` names no keys: write a whole key, or a prefix of keys that ends with / or a single *"));
        }
        Ok(Self { text, prefix })
    }
}

/// Whether one of the patterns names the key.
pub fn any_matches(patterns: &[Pattern], key: &str) -> bool {
    patterns.iter().any(|pattern| pattern.names(key))
}
