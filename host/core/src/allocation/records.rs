//! What hosts and gateways write about allocations into the cluster, each a ConfigMap in the namespace of the hosts: the places on a node,
//! written by the leader, and what a gateway has seen, written by that gateway.

use super::{Held, ObjectName, Phase, amounts::Amounts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The label of a ConfigMap with the places on a node; its value is `true`.
pub const RESERVATIONS: &str = "pointsman.dev/reservations";

/// The label of a ConfigMap with what a gateway has seen; its value is `true`.
pub const GATEWAY_ACTIVITY: &str = "pointsman.dev/gateway-activity";

/// The name of a gateway's ConfigMap begins with this; its identity follows.
pub const GATEWAY_PREFIX: &str = "pointsman-gateway-";

/// The key in the data of a node's ConfigMap for the node's name.
pub const NODE: &str = "node";

/// The key in the data of a node's ConfigMap for its places, as JSON: [`Reservations`].
pub const PLACES: &str = "places";

/// The key in the data of a gateway's ConfigMap for what it has seen, as JSON: [`GatewayActivity`].
pub const ACTIVITY: &str = "activity";

/// How often a gateway writes its ConfigMap at least, in seconds, so that hosts see that it lives.
pub const HEARTBEAT: u64 = 10;

/// After how many seconds without a write a gateway counts as gone.
pub const GATEWAY_PATIENCE: u64 = 60;

/// The places on a node, by their models.
pub type Reservations = BTreeMap<ObjectName, Reservation>;

/// A place on a node, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// What is set aside.
    pub amounts: Amounts,
    /// How far its model is.
    pub phase: Phase,
    /// Since when it has been that far, in milliseconds since 1970. A gateway confirms a draining by this number.
    pub since: u64,
    /// The model that it was admitted for, if it isn't its own. Places on several nodes can't be written at once, and that of this model is
    /// written last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub root: Option<ObjectName>,
}

impl Reservation {
    /// As an allocation reads it.
    pub fn held(&self, node: &str) -> Held {
        Held { node: node.to_owned(), amounts: self.amounts, phase: self.phase.clone(), since: self.since }
    }
}

/// What the data of a node's ConfigMap says is reserved there; none if they say nothing of it.
pub fn reservations(data: &BTreeMap<String, String>) -> Option<serde_json::Result<Reservations>> {
    data.get(PLACES).map(|text| serde_json::from_str(text))
}

/// What the data of a gateway's ConfigMap say that it has seen; nothing if that can't be read.
pub fn activity(data: &BTreeMap<String, String>) -> GatewayActivity {
    data.get(ACTIVITY).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// What a gateway has seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayActivity {
    /// When it has written this, in seconds since 1970: each write differs from the one before.
    pub written: u64,
    /// Of models that requests came for.
    pub models: BTreeMap<ObjectName, ModelActivity>,
}

/// What a gateway has seen of a model. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelActivity {
    /// Requests that are being answered.
    pub in_flight: u64,
    /// Requests that wait for the model to wake.
    pub waiting: u64,
    /// Since when the oldest of them waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<u64>,
    /// When the last request came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_request: Option<u64>,
    /// Over the last minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// The [`Reservation::since`] of the draining that it confirms: it routes nothing new there, and nothing is in flight.
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
