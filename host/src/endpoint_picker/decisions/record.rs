//! What is recorded of a decision: what it was made from, and what came of it. Of a prompt there are counts alone: neither its text nor hashes of
//! it, by which somebody could find out whether it is a text that they know.

use pointsman_picker::pick::EndpointFeatures;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::{borrow::Cow, ops::Deref, sync::Arc};

/// What removes endpoints that the gateway doesn't allow.
pub const SUBSET: &str = "subset";

/// What removes endpoints that can't be reached.
pub const AVOIDED: &str = "avoided";

/// What removes endpoints that the policy excludes.
pub const EXCLUDED: &str = "policy";

/// What is held several times and exists once.
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
    /// How many were recorded before it.
    pub number: u64,
    /// The request's `x-request-id`, or the number.
    pub request: String,
    /// When it came, by RFC 3339.
    pub time: String,
    /// The pool, as NAMESPACE/NAME.
    pub pool: Shared<str>,
    /// The model that the client has named; empty if none.
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
    /// The tokens of its prompt, by estimate.
    pub prompt_tokens: u64,
    /// How many tokens its answer may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,
    /// How long it was in flow control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_seconds: Option<f64>,
    /// How full the pool was when it came, if that mattered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation: Option<f64>,
    /// How many endpoints the pool had.
    pub pool_endpoints: usize,
    /// How many endpoints the gateway allowed, if it didn't allow all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subset: Option<usize>,
    /// Where it was sent, the first choice first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<String>,
    /// Which other endpoint prefills its prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<String>,
    /// Why it was sent nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalRecord>,
    /// The choice of each profile that ran, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfileRecord>,
}

/// Why a request was sent nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RefusalRecord {
    /// The status of the response.
    pub status: u16,
    /// The reason, as upstream calls it.
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
    /// What decided whatever was left to chance.
    pub seed: u64,
    /// The policy that scored; without one, the endpoint with the least load was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Shared<PolicyRecord>>,
    /// All policies that scored, it among them, if they are several: a score is the weighted mean of theirs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<WeightedPolicy>,
    /// The digest of the policy set whose plugins scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_set: Option<Shared<str>>,
    /// The policies before it in line, which didn't answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<Unanswered>,
    /// The endpoints: those that were chosen, those that were scored from the best on, and those that were removed.
    pub endpoints: Vec<EndpointRecord>,
    /// How many endpoints there is no room for.
    pub left_out: usize,
    /// The range of each feature over all endpoints that were scored, if some of these are left out: scorers compare with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extremes: Option<Box<Extremes>>,
}

/// The least and the greatest value of each feature.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Extremes {
    /// The least ones.
    pub least: EndpointFeatures,
    /// The greatest ones.
    pub most: EndpointFeatures,
}

/// A policy that has answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRecord {
    /// Its name.
    pub name: String,
    /// The digest of its bytes.
    pub digest: String,
    /// The features that it asks for, in its order.
    pub features: Vec<String>,
    /// The configuration of the built-in policy: the profile's scorers. What an administrator has configured for another one isn't shown to
    /// whoever reaches the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// The digest of its configuration.
    pub config_digest: String,
}

/// One of several policies that have answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WeightedPolicy {
    /// How much its scores count.
    pub weight: f64,
    /// It.
    pub policy: Shared<PolicyRecord>,
}

/// A policy that hasn't answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unanswered {
    /// Its name.
    pub policy: String,
    /// The digest of its bytes.
    pub digest: String,
    /// Why, as one word.
    pub reason: Cow<'static, str>,
    /// Why, as a sentence.
    pub message: String,
}

/// What was known of an endpoint, and what came of it.
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
    /// What has removed it before the choice: `subset`, the type of a filter, `avoided`, or `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_by: Option<Cow<'static, str>>,
    /// All features; null is unknown.
    pub features: EndpointFeatures,
}
