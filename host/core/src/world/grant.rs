//! The Gateway API's `ReferenceGrants`: references that a namespace permits from others.

use super::{ObjectKey, live::Live};
use serde::Deserialize;

/// A grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReferenceGrant {
    from: Vec<GrantReference>,
    to: Vec<GrantReference>,
}

/// One side of a grant, or of a reference that needs one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GrantReference {
    group: String,
    kind: String,
    /// Only in `from`.
    namespace: String,
    /// Only in `to`; none means all objects of the kind.
    name: Option<String>,
}

impl GrantReference {
    /// Converts an object, for either side.
    pub fn from_key(key: &ObjectKey) -> Self {
        let ObjectKey { resource, namespace, name } = key;
        Self { group: resource.group.to_owned(), kind: resource.kind.to_owned(), namespace: namespace.clone(), name: Some(name.clone()) }
    }

    fn is_of_kind(&self, other: &Self) -> bool {
        (&self.group, &self.kind) == (&other.group, &other.kind)
    }
}

impl ReferenceGrant {
    /// Parses a live object. An unreadable one grants nothing.
    pub(super) fn from_live(live: &Live<'_>) -> Self {
        live.field("spec").and_then(|spec| serde_json::from_str(spec.get()).ok()).unwrap_or_default()
    }

    /// Whether it permits a reference from one object to another in the grant's own namespace.
    pub fn allows(&self, from: &GrantReference, to: &GrantReference) -> bool {
        let names = |granted: &GrantReference| granted.name.as_ref().is_none_or(|name| name.is_empty() || Some(name) == to.name.as_ref());
        self.from.iter().any(|granted| granted.is_of_kind(from) && granted.namespace == from.namespace)
            && self.to.iter().any(|granted| granted.is_of_kind(to) && names(granted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{BENCHMARK_JOB, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource};
    use serde_json::{Value, json};

    fn grant(from: &Value, to: &Value) -> ReferenceGrant {
        let text = json!({"metadata": {"name": "g", "namespace": "chat"}, "spec": {"from": [from], "to": [to]}}).to_string();
        ReferenceGrant::from_live(&Live::parse(&text))
    }

    fn reference(resource: &'static Resource, namespace: &str, name: &str) -> GrantReference {
        GrantReference::from_key(&ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    #[test]
    fn a_grant_is_for_one_kind_of_one_namespace_to_one_kind_or_object() {
        let from = json!({"group": "ome.io", "kind": "BenchmarkJob", "namespace": "perf"});
        let all = grant(&from, &json!({"group": "ome.io", "kind": "InferenceService"}));
        let one = grant(&from, &json!({"group": "ome.io", "kind": "InferenceService", "name": "llama"}));
        let job = reference(&BENCHMARK_JOB, "perf", "b");
        let llama = reference(&INFERENCE_SERVICE, "chat", "llama");
        assert!(all.allows(&job, &llama) && one.allows(&job, &llama));
        assert!(!one.allows(&job, &reference(&INFERENCE_SERVICE, "chat", "mistral")));
        assert!(!all.allows(&reference(&BENCHMARK_JOB, "other", "b"), &llama));
        assert!(!all.allows(&job, &reference(&LLM_INFERENCE_SERVICE, "chat", "llama")));
        assert!(!grant(&json!(7), &json!({})).allows(&job, &llama), "what can't be read grants nothing");
    }
}
