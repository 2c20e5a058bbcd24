//! The ConfigMaps for allocations in the hosts' namespace: the leader writes one per node with its reservations, and each gateway writes
//! one with its activity.

use super::{Held, ObjectName, Phase, amounts::Amounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The label of a ConfigMap with a node's reservations; its value is `true`.
pub const RESERVATIONS: &str = "pointsman.dev/reservations";

/// The label of a ConfigMap with a gateway's activity; its value is `true`.
pub const GATEWAY_ACTIVITY: &str = "pointsman.dev/gateway-activity";

/// The prefix of the name of a gateway's ConfigMap; the gateway's identity follows.
pub const GATEWAY_PREFIX: &str = "pointsman-gateway-";

/// The key with the node's name in the data of a node's ConfigMap.
pub const NODE: &str = "node";

/// The key with the reservations in the data of a node's ConfigMap, as JSON: [`Reservations`].
pub const PLACES: &str = "places";

/// The key with the activity in the data of a gateway's ConfigMap, as JSON: [`GatewayActivity`].
pub const ACTIVITY: &str = "activity";

/// How often a gateway writes its ConfigMap at least, in seconds, so that hosts see that it is alive.
pub const HEARTBEAT: u64 = 10;

/// The number of seconds without a write after which a gateway is considered gone.
pub const GATEWAY_PATIENCE: u64 = 60;

/// The reservations on a node, by model.
pub type Reservations = BTreeMap<ObjectName, Reservation>;

/// A reservation on a node, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// The reserved amounts.
    pub amounts: Amounts,
    /// The phase of its model.
    pub phase: Phase,
    /// The time of the last change of phase, in milliseconds since 1970. A gateway confirms that it has drained a model by repeating this
    /// number.
    pub since: u64,
    /// The model for which this one was admitted, if it is another one. The reservations on several nodes can't be written at once; the
    /// root's is written last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub root: Option<ObjectName>,
}

impl Reservation {
    /// Converts it for an allocation.
    pub fn held(&self, node: &str) -> Held {
        Held { node: node.to_owned(), amounts: self.amounts, phase: self.phase.clone(), since: self.since }
    }
}

/// The reservations in the data of a node's ConfigMap; none if the key is missing.
pub fn reservations(data: &BTreeMap<String, String>) -> Option<serde_json::Result<Reservations>> {
    data.get(PLACES).map(|text| serde_json::from_str(text))
}

/// The activity in the data of a gateway's ConfigMap; empty if it is unreadable.
pub fn activity(data: &BTreeMap<String, String>) -> GatewayActivity {
    data.get(ACTIVITY).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The activity that a gateway reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayActivity {
    /// The time of this write, in seconds since 1970, so that each write differs from the previous one.
    pub written: u64,
    /// The models that got requests.
    pub models: BTreeMap<ObjectName, ModelActivity>,
}

/// The activity of a model at a gateway. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelActivity {
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that wait for the model to wake.
    pub waiting: u64,
    /// Since when the oldest of these has waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<u64>,
    /// The time of the last request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_request: Option<u64>,
    /// The average over the last minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// The [`Reservation::since`] of the draining that it confirms: it no longer routes to the model and has no requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::SleepReason;

    #[test]
    fn what_is_written_is_read_again_and_stays_as_it_is_for_other_versions() {
        let evicted = Phase::Draining(SleepReason::Evicted(ObjectName("ml/large".to_owned())));
        let amounts = Amounts { memory: 1 << 30, cpu: 500, gpus: 1, pods: 1 };
        let places =
            Reservations::from([(ObjectName("ml/llama".to_owned()), Reservation { amounts, phase: evicted, since: 7, root: None })]);
        let text = r#"{"ml/llama":{"amounts":{"memory":1073741824,"cpu":500,"gpus":1,"pods":1},"phase":{"Draining":{"Evicted":"ml/large"}},"since":7}}"#;
        assert_eq!(serde_json::to_string(&places).unwrap(), text);
        assert_eq!(serde_json::from_str::<Reservations>(text).unwrap(), places);
        let activity = r#"{"written":9,"models":{"ml/llama":{"inFlight":0,"waiting":0,"drained":7,"lastRequest":5,"later":1}}}"#;
        let read: GatewayActivity = serde_json::from_str(activity).unwrap();
        let model = &read.models[&ObjectName("ml/llama".to_owned())];
        assert_eq!((read.written, model.drained, model.last_request, model.in_flight), (9, Some(7), Some(5), 0));
    }
}
