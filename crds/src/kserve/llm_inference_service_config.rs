//! LLMInferenceServiceConfig: a base configuration of LLMInferenceServices.

use crate::{
    kserve::spec::{LLMServingFields, MODEL_URI, ONE_WAY_TO_SCALE},
    schema::rules,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const NO_BASES: (&str, &str) = (
    "!has(self.baseRefs) || size(self.baseRefs) == 0",
    "an LLMInferenceServiceConfig can't have baseRefs: list all configurations in the LLMInferenceService's baseRefs",
);

/// An LLMInferenceServiceConfig is a part of an LLMInferenceService's spec that several services share: they name it in their baseRefs. Its
/// strings can contain Go-style templates with fields of the service, such as {{ .Spec.Model.Name }}.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "serving.kserve.io",
    version = "v1alpha1",
    kind = "LLMInferenceServiceConfig",
    plural = "llminferenceserviceconfigs",
    shortname = "llmisvcconfig",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    doc = "LLMInferenceServiceConfig is a part of an LLMInferenceService's spec that several services share: they name it in their baseRefs."
)]
#[schemars(extend("x-kubernetes-validations" = rules(&[NO_BASES, MODEL_URI, ONE_WAY_TO_SCALE])))]
pub struct LLMInferenceServiceConfigSpec {
    /// The fields that the services share.
    #[serde(flatten)]
    pub serving: LLMServingFields,
}
