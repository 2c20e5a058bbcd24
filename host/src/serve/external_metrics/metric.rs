//! The metrics, their requests, and their values in the format of Kubernetes.

use super::Unanswered;
use crate::endpoint_picker::scaling::{DECODE, PREFILL, PoolScaling, RoleScaling};
use axum::http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The API group and its version.
pub(super) const GROUP: &str = "external.metrics.k8s.io";
pub(super) const VERSION: &str = "v1beta1";

/// The labels in a selector.
const POOL: &str = "inference_pool";
const ROLE: &str = "role";

/// The maximum length of a selector, in bytes.
const MAX_SELECTOR: usize = 1 << 10;

/// The maximum length of a pool's name, in bytes.
const MAX_NAME: usize = 253;

/// A value of a pool's endpoints with a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolMetric {
    Demand,
    Saturation,
    Requests,
}

impl PoolMetric {
    const ALL: [Self; 3] = [Self::Demand, Self::Saturation, Self::Requests];

    const fn name(self) -> &'static str {
        match self {
            Self::Demand => "pointsman_pool_demand",
            Self::Saturation => "pointsman_pool_saturation",
            Self::Requests => "pointsman_pool_requests",
        }
    }

    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    fn read(self, role: &RoleScaling) -> f64 {
        match self {
            Self::Demand => role.demand,
            Self::Saturation => role.saturation,
            Self::Requests => role.requests() as f64,
        }
    }
}

/// A request of an autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetricRequest {
    metric: PoolMetric,
    pub(super) namespace: String,
    pub(super) pool: String,
    role: &'static str,
}

fn bad_request(message: impl Into<String>) -> Unanswered {
    Unanswered::new(StatusCode::BAD_REQUEST, message)
}

impl MetricRequest {
    pub(super) fn parse(namespace: String, metric: &str, query: &str) -> Result<Self, Unanswered> {
        let metric = PoolMetric::ALL.into_iter().find(|known| known.name() == metric).ok_or_else(|| {
            let [first, second, third] = PoolMetric::ALL.map(PoolMetric::name);
            Unanswered::new(StatusCode::NOT_FOUND, format!("Pointsman has no such metric: use {first}, {second} or {third}"))
        })?;
        // It becomes a part of paths.
        if !is_name(&namespace) {
            return Err(bad_request("the namespace isn't a name"));
        }
        let selectors = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "labelSelector");
        let selector = selectors.map(|(_, selector)| selector).last().unwrap_or_default();
        let (pool, role) = parse_selector(&selector)?;
        Ok(Self { metric, namespace, pool, role })
    }

    /// The list with the one value.
    pub(super) fn value(&self, scaling: &PoolScaling) -> Result<Value, Unanswered> {
        let role = scaling.roles.get(self.role).ok_or_else(|| {
            let message = format!("the InferencePool {}/{} has no endpoints with the role {}", self.namespace, self.pool, self.role);
            Unanswered::new(StatusCode::NOT_FOUND, format!("{message}: its picker's configuration needs a profile that prefills"))
        })?;
        let item = json!({
            "metricName": self.metric.name(), "metricLabels": {POOL: self.pool, ROLE: self.role},
            "timestamp": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "value": milli(self.metric.read(role)),
        });
        Ok(json!({"kind": "ExternalMetricValueList", "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {}, "items": [item]}))
    }

    /// The message if there is no value in time.
    pub(super) fn late(&self) -> String {
        let Self { namespace, pool, .. } = self;
        format!(
            "the demand of the InferencePool {namespace}/{pool} can't be read in time: check the load of the API server and of the \
             controller"
        )
    }
}

/// The pool and the role in a selector, in which each label equals one value.
fn parse_selector(selector: &str) -> Result<(String, &'static str), Unanswered> {
    const REMEDY: &str = "set matchLabels to inference_pool: NAME and, if it isn't decode, role: prefill";
    if selector.len() > MAX_SELECTOR {
        return Err(bad_request(format!("the selector has {} bytes; the limit is {MAX_SELECTOR}: {REMEDY}", selector.len())));
    }
    let (mut pool, mut role) = (None, None);
    for requirement in selector.split(',').filter(|requirement| !requirement.trim().is_empty()) {
        let Some((label, value)) = requirement.split_once('=').filter(|(label, _)| !label.ends_with('!')) else {
            return Err(bad_request(format!("the selector has `{requirement}`, which isn't LABEL=VALUE: {REMEDY}")));
        };
        let (label, value) = (label.trim(), value.strip_prefix('=').unwrap_or(value).trim());
        let before = match label {
            POOL => pool.replace(value),
            ROLE => role.replace(value),
            _ => return Err(bad_request(format!("the selector has the label `{label}`, which these metrics don't have: {REMEDY}"))),
        };
        if before.is_some() {
            return Err(bad_request(format!("the selector has the label {label} twice: {REMEDY}")));
        }
    }
    let pool =
        pool.ok_or_else(|| bad_request(format!("the selector has no label {POOL}, by which the InferencePool is found: {REMEDY}")))?;
    if !is_name(pool) {
        return Err(bad_request(format!("`{pool}` isn't the name of an InferencePool: {REMEDY}")));
    }
    let role = match role {
        None | Some(DECODE) => DECODE,
        Some(PREFILL) => PREFILL,
        Some(other) => return Err(bad_request(format!("`{other}` isn't a role: set it to {DECODE} or {PREFILL}"))),
    };
    Ok((pool.to_owned(), role))
}

/// Whether this is a valid name of an object.
fn is_name(name: &str) -> bool {
    let is_edge = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    name.len() <= MAX_NAME
        && ends.iter().all(|end| end.is_some_and(is_edge))
        && bytes.iter().all(|c| is_edge(c) || matches!(c, b'-' | b'.'))
        // Such a part would change the path.
        && !name.contains("..")
}

/// A number as a quantity, in thousandths.
fn milli(number: f64) -> String {
    #[allow(clippy::cast_possible_truncation)] // A float's cast saturates.
    let thousandths = (number * 1000.0).round() as i64;
    format!("{thousandths}m")
}

fn versions() -> Value {
    json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION})
}

/// The response at /apis.
pub(super) fn group_list() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": GROUP, "versions": [versions()], "preferredVersion": versions()}]})
}

/// The response at the group.
pub(super) fn group() -> Value {
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [versions()], "preferredVersion": versions()})
}

/// The response at the group's version.
pub(super) fn resource_list() -> Value {
    let resource = |metric: PoolMetric| json!({"name": metric.name(), "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]});
    let resources = PoolMetric::ALL.map(resource);
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"), "resources": resources})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(selector: &str) -> Result<(String, &'static str), String> {
        parse_selector(selector).map_err(|unanswered| {
            assert_eq!(unanswered.code, StatusCode::BAD_REQUEST);
            unanswered.message
        })
    }

    #[test]
    fn a_selector_names_a_pool_and_perhaps_a_role() {
        for (selector, expected) in [
            ("inference_pool=llama", ("llama", DECODE)),
            ("inference_pool==llama,role=decode", ("llama", DECODE)),
            ("role = prefill, inference_pool = llama.v1", ("llama.v1", PREFILL)),
        ] {
            assert_eq!(selected(selector), Ok((expected.0.to_owned(), expected.1)), "{selector}");
        }
        for (selector, says) in [
            ("", "the selector has no label inference_pool"),
            ("role=decode", "the selector has no label inference_pool"),
            ("inference_pool", "`inference_pool`, which isn't LABEL=VALUE"),
            ("inference_pool!=llama", "`inference_pool!=llama`, which isn't LABEL=VALUE"),
            ("inference_pool in (llama)", "which isn't LABEL=VALUE"),
            ("inference_pool=a,inference_pool=b", "the label inference_pool twice"),
            ("inference_pool=a,app=b", "the label `app`, which these metrics don't have"),
            ("inference_pool=", "`` isn't the name of an InferencePool"),
            ("inference_pool=../secrets", "isn't the name of an InferencePool"),
            ("inference_pool=Llama", "isn't the name of an InferencePool"),
            ("inference_pool=a,role=encode", "`encode` isn't a role: set it to decode or prefill"),
            (&format!("inference_pool={}", "a".repeat(1 << 10)), "the selector has 1039 bytes"),
        ] {
            let said = selected(selector).unwrap_err();
            assert!(said.contains(says), "{selector}: {said}");
        }
    }

    #[test]
    fn a_request_names_one_of_the_metrics_and_its_value_is_in_thousandths() {
        let parse =
            |metric: &str| MetricRequest::parse("models".to_owned(), metric, "labelSelector=inference_pool%3Dllama%2Crole%3Ddecode");
        let decode =
            RoleScaling { endpoints: 3, saturation: 0.8, demand: 2.8004, waiting_demand: 0.4, waiting: 2, queued: 12, running: 30 };
        let scaling = PoolScaling { roles: [(DECODE.to_owned(), decode)].into(), waiting: 2, running: 30 };
        for (metric, value) in
            [("pointsman_pool_demand", "2800m"), ("pointsman_pool_saturation", "800m"), ("pointsman_pool_requests", "44000m")]
        {
            let list = parse(metric).unwrap().value(&scaling).unwrap();
            assert_eq!(
                (&list["kind"], &list["apiVersion"]),
                (&json!("ExternalMetricValueList"), &json!("external.metrics.k8s.io/v1beta1"))
            );
            let item = &list["items"][0];
            assert_eq!((&item["metricName"], &item["value"]), (&json!(metric), &json!(value)));
            assert_eq!(item["metricLabels"], json!({"inference_pool": "llama", "role": "decode"}));
        }
        let unknown = parse("pointsman_pool_latency").unwrap_err();
        assert_eq!(unknown.code, StatusCode::NOT_FOUND);
        assert!(unknown.message.ends_with("use pointsman_pool_demand, pointsman_pool_saturation or pointsman_pool_requests"));
        let prefill = MetricRequest { role: PREFILL, ..parse("pointsman_pool_demand").unwrap() }.value(&scaling).unwrap_err();
        assert!(prefill.message.starts_with("the InferencePool models/llama has no endpoints with the role prefill"), "{prefill:?}");
        assert!(MetricRequest::parse("..".to_owned(), "pointsman_pool_demand", "labelSelector=inference_pool%3Dllama").is_err());
    }

    #[test]
    fn any_number_has_a_quantity() {
        for (number, quantity) in [(0.0, "0m"), (2.4, "2400m"), (1e300, "9223372036854775807m"), (f64::NAN, "0m")] {
            assert_eq!(milli(number), quantity);
        }
    }
}
