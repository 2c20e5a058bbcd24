//! The record of a decision: its inputs and its result. A prompt is recorded only as counts, without its text or hashes, with which
//! somebody could check whether it is a known text.

use pointsman_picker::pick::EndpointFeatures;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::{borrow::Cow, ops::Deref, sync::Arc};

/// The step that removes endpoints which the gateway doesn't allow.
pub const SUBSET: &str = "subset";

/// The step that removes unreachable endpoints.
pub const AVOIDED: &str = "avoided";

/// The step that removes endpoints which the policy excludes.
pub const EXCLUDED: &str = "policy";

/// A value with several references that exists once.
#[derive(Debug)]
pub struct Shared<T: ?Sized>(pub Arc<T>);

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize + ?Sized> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: ?Sized> Deserialize<'de> for Shared<T>
where
    Box<T>: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<T>::deserialize(deserializer).map(|value| Self(value.into()))
    }
}

impl Default for Shared<str> {
    fn default() -> Self {
        Self("".into())
    }
}

/// The decision about a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// The number of records before it.
    pub number: u64,
    /// The request's `x-request-id`, or the number.
    pub request: String,
    /// When it arrived, as RFC 3339.
    pub time: String,
    /// The pool, as NAMESPACE/NAME.
    pub pool: Shared<str>,
    /// The model in the client's request; empty if none.
    pub model: String,
    /// The model that it was sent to instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The InferenceObjective that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// Its priority.
    pub priority: i64,
    /// Its flow.
    pub flow: String,
    /// The estimated number of tokens of its prompt.
    pub prompt_tokens: u64,
    /// The maximum number of tokens of its response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,
    /// The time it spent in flow control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_seconds: Option<f64>,
    /// The saturation of the pool when it arrived, if that mattered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation: Option<f64>,
    /// The number of endpoints of the pool.
    pub pool_endpoints: usize,
    /// The number of endpoints that the gateway allowed, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<usize>,
    /// The endpoints it was sent to, first choice first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<String>,
    /// The other endpoint that prefills its prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<String>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalRecord>,
    /// The choice of each profile that ran, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfileRecord>,
}

/// Why a request was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RefusalRecord {
    /// The status of the response.
    pub status: u16,
    /// The reason, in upstream's terms.
    pub reason: String,
    /// A sentence for people.
    pub message: Cow<'static, str>,
}

/// The choice of a profile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileRecord {
    /// The profile's name.
    pub name: String,
    /// The type of its picker.
    pub picker: Cow<'static, str>,
    /// The seed of all random choices.
    pub seed: u64,
    /// The policy that scored; without one, the endpoint with the least load was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Shared<PolicyRecord>>,
    /// All policies that scored, including that one, if there are several: a score is the weighted mean of theirs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<WeightedPolicy>,
    /// The digest of the policy set whose plugins scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_set: Option<Shared<str>>,
    /// The preceding policies that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<Unanswered>,
    /// The endpoints: the chosen ones, the scored ones from the best on, and the removed ones.
    pub endpoints: Vec<EndpointRecord>,
    /// The number of endpoints that are left out.
    pub left_out: usize,
    /// The range of each feature over all scored endpoints, if some of these are left out: scorers compare values with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extremes: Option<Box<Extremes>>,
}

/// The minimum and maximum value of each feature.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Extremes {
    /// The minimum values.
    pub least: EndpointFeatures,
    /// The maximum values.
    pub most: EndpointFeatures,
}

/// A policy that has scored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRecord {
    /// Its name.
    pub name: String,
    /// The digest of its bytes.
    pub digest: String,
    /// The features that it requests, in its order.
    pub features: Vec<String>,
    /// The configuration of the built-in policy: the profile's scorers. Another policy's configuration isn't shown, because anyone who
    /// reaches the port could read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// The digest of its configuration.
    pub config_digest: String,
}

/// One of several policies that have scored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WeightedPolicy {
    /// The weight of its scores.
    pub weight: f64,
    /// The policy.
    pub policy: Shared<PolicyRecord>,
}

/// A policy that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unanswered {
    /// Its name.
    pub policy: String,
    /// The digest of its bytes.
    pub digest: String,
    /// The reason, as one word.
    pub reason: Cow<'static, str>,
    /// The reason, as a sentence.
    pub message: String,
}

/// An endpoint's features and result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointRecord {
    /// Its pod.
    pub pod: Shared<str>,
    /// Its address and port.
    pub address: Shared<str>,
    /// Whether it was chosen.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
    /// Its score.
    pub score: Option<f64>,
    /// The step that removed it before the choice: `subset`, the type of a filter, `avoided`, or `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_by: Option<Cow<'static, str>>,
    /// All features; null is unknown.
    pub features: EndpointFeatures,
}
