//! Autoscalers and PodDisruptionBudgets.

use super::Metadata;
use crate::resource::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The target of an autoscaler: its kind and name.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Its kind.
    pub resource: &'static Resource,
    /// Its name.
    pub name: &'a str,
}

impl Target<'_> {
    fn reference(self) -> Value {
        json!({"apiVersion": self.resource.api_version(), "kind": self.resource.kind, "name": self.name})
    }
}

/// A HorizontalPodAutoscaler's body.
pub fn horizontal(metadata: Metadata, target: Target<'_>, least: i64, most: i64, metric: &Value, behavior: Option<Value>) -> Value {
    let mut spec = json!({"scaleTargetRef": target.reference(), "minReplicas": least, "maxReplicas": most, "metrics": [metric]});
    if let Some(behavior) = behavior {
        spec["behavior"] = behavior;
    }
    json!({"metadata": metadata.into_value(), "spec": spec})
}

/// A metric: the utilization of `cpu` or `memory` relative to the requests.
pub fn used(of: &str, percent: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": of, "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// The number of replicas that the workload variant autoscaler recommends. It identifies a variant by the name of its autoscaler.
const DESIRED_REPLICAS_METRIC: &str = "wva_desired_replicas";

/// A metric: the recommendation of the workload variant autoscaler for a variant in a namespace.
pub fn wanted(namespace: &str, variant: &str) -> Value {
    let labels = json!({"variant_name": variant, "exported_namespace": namespace});
    json!({
        "type": "External",
        "external": {
            "metric": {"name": DESIRED_REPLICAS_METRIC, "selector": {"matchLabels": labels}}, "target": {"type": "AverageValue", "averageValue": "1"},
        },
    })
}

/// The demand on an InferencePool's endpoints with a role, as the number of endpoints that its requests fill, measured by this project's
/// endpoint picker.
const POOL_DEMAND_METRIC: &str = "pointsman_pool_demand";

/// The demand for pods of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolDemand<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The role of the pods: `decode` or `prefill`.
    pub role: &'a str,
    /// The target demand per replica, in thousandths.
    pub target: u32,
}

impl PoolDemand<'_> {
    /// The metric for a HorizontalPodAutoscaler, through the API for external metrics.
    pub fn metric(self) -> Value {
        json!({
            "type": "External",
            "external": {
                "metric": {"name": POOL_DEMAND_METRIC, "selector": {"matchLabels": {"inference_pool": self.pool, "role": self.role}}},
                // In the canonical form of quantities: any other would differ from what the API server stores.
                "target": {"type": "AverageValue", "averageValue": thousandths(self.target)},
            },
        })
    }

    /// A trigger for KEDA, which queries the picker directly at a Service's host name.
    pub fn trigger(self, host: &str, port: i64, namespace: &str) -> Value {
        let url = format!("http://{host}:{port}/scaling/{namespace}/{}/{}", self.pool, self.role);
        json!({"type": "metrics-api", "metadata": {"url": url, "valueLocation": "demand", "targetValue": decimal(self.target)}})
    }
}

/// A quantity from thousandths.
fn thousandths(number: u32) -> String {
    if number.is_multiple_of(1000) { (number / 1000).to_string() } else { format!("{number}m") }
}

/// A decimal number from thousandths.
fn decimal(thousandths: u32) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A Prometheus query for scaling with KEDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The server's URL.
    pub server: String,
    /// The query.
    pub query: String,
    /// The threshold per replica.
    pub threshold: String,
}

impl Query {
    /// The query for the recommendation of the workload variant autoscaler for a variant in a namespace.
    pub fn wanted(server: String, namespace: &str, variant: &str) -> Self {
        let query = format!("{DESIRED_REPLICAS_METRIC}{{variant_name=\"{variant}\",exported_namespace=\"{namespace}\"}}");
        Self { server, query, threshold: "1".to_owned() }
    }

    /// A trigger for KEDA.
    pub fn trigger(&self) -> Value {
        let Self { server, query, threshold } = self;
        json!({"type": "prometheus", "metadata": {"serverAddress": server, "query": query, "threshold": threshold}})
    }
}

/// A KEDA ScaledObject's body, with additional fields in its spec.
pub fn scaled_object(metadata: Metadata, target: Target<'_>, least: i64, most: i64, trigger: &Value, more: Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": target.reference(),
        "minReplicaCount": least,
        "maxReplicaCount": most,
        "triggers": [trigger],
    });
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    json!({"metadata": metadata.into_value(), "spec": spec})
}

/// A PodDisruptionBudget's body: permits one eviction at a time, so that nodes can be drained with any number of pods, and always permits
/// the eviction of unhealthy pods. For pods without a scale subresource, Kubernetes needs their number.
pub fn disruption_budget(metadata: Metadata, selector: &BTreeMap<String, String>, unscaled: Option<i64>) -> Value {
    let mut spec = unscaled.map_or_else(|| json!({"maxUnavailable": 1}), |pods| json!({"minAvailable": pods - 1}));
    spec["selector"] = json!({"matchLabels": selector});
    spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
    json!({"metadata": metadata.into_value(), "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_as_each_reader_has_them() {
        let written = |target| {
            let demand = PoolDemand { pool: "p", role: "decode", target };
            let [metric, trigger] = [demand.metric(), demand.trigger("h", 9090, "n")];
            [metric["external"]["target"]["averageValue"].clone(), trigger["metadata"]["targetValue"].clone()]
        };
        assert_eq!(written(800), ["800m", "0.8"]);
        assert_eq!(written(1000), ["1", "1"]);
        assert_eq!(written(1250), ["1250m", "1.25"]);
        assert_eq!(written(50), ["50m", "0.05"]);
        assert_eq!(written(10000), ["10", "10"]);
    }
}
