//! The subjects that this controller manages, by its configuration.

use crate::{resource::Resource, subject_kind::SubjectKind, world::ObjectKey};
use std::{collections::BTreeSet, str::FromStr};

/// A kind, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    resource: &'static Resource,
    namespace: Option<String>,
}

impl FromStr for Claim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, namespace) = text.split_once(':').map_or((text, None), |(word, namespace)| (word, Some(namespace)));
        let resource =
            SubjectKind::parse(word).ok_or_else(|| format!("{word:?} is not a served kind: use {}", SubjectKind::list()))?.resource;
        match namespace {
            Some(namespace) if namespace.is_empty() || namespace.contains([':', '/']) => {
                Err("it has the form KIND or KIND:NAMESPACE".to_owned())
            }
            namespace => Ok(Self { resource, namespace: namespace.map(str::to_owned) }),
        }
    }
}

/// All claims of this controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The claimed kinds; all, if empty.
    pub kinds: Vec<Claim>,
    /// The claimed namespaces; all, if empty.
    pub namespaces: BTreeSet<String>,
}

impl Claims {
    /// Whether a subject is claimed.
    pub fn contains(&self, subject: &ObjectKey) -> bool {
        self.contains_in(subject.resource, &subject.namespace)
    }

    /// Whether a kind of subject is claimed in a namespace; if it is empty, in all namespaces.
    pub fn contains_in(&self, resource: &Resource, namespace: &str) -> bool {
        let in_namespace = |claim: &Claim| claim.namespace.as_deref().is_none_or(|claimed| claimed == namespace);
        (self.namespaces.is_empty() || self.namespaces.contains(namespace))
            && (self.kinds.is_empty() || self.kinds.iter().any(|claim| claim.resource == resource && in_namespace(claim)))
    }

    /// Whether a kind of subject is claimed in any namespace.
    pub fn contains_kind(&self, resource: &Resource) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|claim| claim.resource == resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE};

    fn claims(texts: &[&str]) -> Claims {
        Claims { kinds: texts.iter().map(|text| text.parse().unwrap()).collect(), namespaces: BTreeSet::new() }
    }

    #[test]
    fn a_kind_is_claimed_whole_or_a_namespace_at_a_time() {
        let key = |resource, namespace: &str| ObjectKey { resource, namespace: namespace.to_owned(), name: "a".to_owned() };
        let held = |claims: Claims| {
            [key(&INFERENCE_SERVICE, "a"), key(&LLM_INFERENCE_SERVICE, "a"), key(&LLM_INFERENCE_SERVICE, "b")]
                .map(|key| claims.contains(&key))
        };
        assert_eq!(held(Claims::default()), [true, true, true]);
        assert_eq!(held(claims(&["isvc"])), [true, false, false]);
        assert_eq!(held(claims(&["inferenceservices.ome.io", "LLMInferenceService:b"])), [true, false, true]);
        let within = |namespace: &str, kinds: &[&str]| Claims { namespaces: BTreeSet::from([namespace.to_owned()]), ..claims(kinds) };
        assert_eq!(held(within("a", &[])), [true, true, false]);
        assert_eq!(held(within("a", &["llmisvc"])), [false, true, false]);
        assert_eq!(held(within("a", &["llmisvc:b"])), [false, false, false]);
    }

    #[test]
    fn an_unknown_kind_is_refused_with_those_that_are_known() {
        for text in ["Deployment", "", "inferenceservices.serving.kserve.io"] {
            let said = text.parse::<Claim>().unwrap_err();
            assert!(said.contains("InferenceService (inferenceservices, isvc) or LLMInferenceService"), "{said}");
        }
        assert!("isvc:".parse::<Claim>().unwrap_err().contains("KIND:NAMESPACE"));
    }
}
