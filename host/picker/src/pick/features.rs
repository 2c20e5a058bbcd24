//! The features of an endpoint for one request, with their names in plugins.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// The features of an endpoint for one request; NaN is unknown.
#[derive(Clone, Copy, Debug)]
pub struct EndpointFeatures {
    /// Requests in the model server's queue.
    pub queue_length: f64,
    /// Requests that it is processing.
    pub running_requests: f64,
    /// The used share of its KV cache.
    pub kv_cache_utilization: f64,
    /// The share of the prompt's blocks that it has seen.
    pub prefix_match: f64,
    /// Estimated tokens of the prompt that it has seen.
    pub cached_tokens: f64,
    /// Estimated tokens of the prompt that it hasn't seen.
    pub uncached_tokens: f64,
    /// 1 if it has loaded the request's adapter, otherwise 0.
    pub adapter_loaded: f64,
    /// 1 if that adapter waits to be loaded there.
    pub adapter_waiting: f64,
    /// The number of additional adapters that it can load without unloading one.
    pub adapter_slots: f64,
    /// Requests that this picker has sent to it and whose responses haven't ended.
    pub in_flight_requests: f64,
    /// The estimated tokens of these requests.
    pub in_flight_tokens: f64,
    /// The number of requests per second that this picker sends to it.
    pub requests_per_second: f64,
    /// The expected time to the first token.
    pub time_to_first_token_seconds: f64,
    /// The expected time per further token.
    pub time_per_output_token_seconds: f64,
    /// 1 if the request belongs to a session that this endpoint has served.
    pub session: f64,
    /// For a request whose prefix no endpoint has seen: 1 for the endpoint that got such a request longest ago, 0 for the one that got the
    /// latest. NaN for other requests.
    pub cold_request_turn: f64,
    /// How well its range of context lengths fits the prompt, from 0 to 1.
    pub context_length_fit: f64,
    /// The age of the endpoint's report.
    pub report_age_seconds: f64,
}

impl Default for EndpointFeatures {
    /// All features are unknown.
    fn default() -> Self {
        Self {
            queue_length: f64::NAN,
            running_requests: f64::NAN,
            kv_cache_utilization: f64::NAN,
            prefix_match: f64::NAN,
            cached_tokens: f64::NAN,
            uncached_tokens: f64::NAN,
            adapter_loaded: f64::NAN,
            adapter_waiting: f64::NAN,
            adapter_slots: f64::NAN,
            in_flight_requests: f64::NAN,
            in_flight_tokens: f64::NAN,
            requests_per_second: f64::NAN,
            time_to_first_token_seconds: f64::NAN,
            time_per_output_token_seconds: f64::NAN,
            session: f64::NAN,
            cold_request_turn: f64::NAN,
            context_length_fit: f64::NAN,
            report_age_seconds: f64::NAN,
        }
    }
}

macro_rules! features {
    ($($feature:ident $field:ident $name:literal;)*) => {
        /// A column of the matrix.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Feature {
            $(
                #[doc = concat!("[`EndpointFeatures::", stringify!($field), "`].")]
                $feature,
            )*
        }

        impl Feature {
            /// All features, in the order of the docs.
            pub const ALL: &[Self] = &[$(Self::$feature),*];

            /// Its name in plugins.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$feature => $name,)*
                }
            }

            /// Its value for an endpoint.
            pub fn value(self, endpoint: &EndpointFeatures) -> f64 {
                match self {
                    $(Self::$feature => endpoint.$field,)*
                }
            }

            /// A mutable reference to its value.
            pub fn value_mut(self, endpoint: &mut EndpointFeatures) -> &mut f64 {
                match self {
                    $(Self::$feature => &mut endpoint.$field,)*
                }
            }
        }
    };
}

features! {
    QueueLength queue_length "queue-length";
    RunningRequests running_requests "running-requests";
    KvCacheUtilization kv_cache_utilization "kv-cache-utilization";
    PrefixMatch prefix_match "prefix-match";
    CachedTokens cached_tokens "cached-tokens";
    UncachedTokens uncached_tokens "uncached-tokens";
    AdapterLoaded adapter_loaded "adapter-loaded";
    AdapterWaiting adapter_waiting "adapter-waiting";
    AdapterSlots adapter_slots "adapter-slots";
    InFlightRequests in_flight_requests "in-flight-requests";
    InFlightTokens in_flight_tokens "in-flight-tokens";
    RequestsPerSecond requests_per_second "requests-per-second";
    TimeToFirstTokenSeconds time_to_first_token_seconds "time-to-first-token-seconds";
    TimePerOutputTokenSeconds time_per_output_token_seconds "time-per-output-token-seconds";
    Session session "session";
    ColdRequestTurn cold_request_turn "cold-request-turn";
    ContextLengthFit context_length_fit "context-length-fit";
    ReportAgeSeconds report_age_seconds "report-age-seconds";
}

impl Feature {
    /// The feature with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|feature| feature.name() == name)
    }
}

/// Serialises to a map by the names of the features. Unknown values are null.
impl Serialize for EndpointFeatures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Feature::ALL.iter().map(|feature| {
            let value = feature.value(self);
            (feature.name(), value.is_finite().then_some(value))
        }))
    }
}

/// Ignores unknown features of another version. Missing features are unknown.
impl<'de> Deserialize<'de> for EndpointFeatures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
        let mut features = Self::default();
        for (name, value) in values {
            if let (Some(feature), Some(value)) = (Feature::parse(&name), value) {
                *feature.value_mut(&mut features) = value;
            }
        }
        Ok(features)
    }
}

/// Writes the matrix into a reusable buffer: one row per endpoint, and one column per feature. A feature that this picker doesn't know is a
/// column of NaN, so that a plugin for a newer picker still works.
pub fn fill<'e>(features: &[Option<Feature>], endpoints: impl IntoIterator<Item = &'e EndpointFeatures>, matrix: &mut Vec<f64>) {
    matrix.clear();
    for endpoint in endpoints {
        matrix.extend(features.iter().map(|feature| feature.map_or(f64::NAN, |feature| feature.value(endpoint))));
    }
}
