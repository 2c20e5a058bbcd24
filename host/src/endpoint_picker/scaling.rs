//! The number of endpoints that a pool could use, for autoscalers: `GET /scaling` on the metrics port. `serve::external_metrics` also reads
//! it, and combines the values of several pickers of a pool.

pub mod route;

use super::micros;
use pointsman_picker::{
    config::{PickerConfig, Role},
    fleet::Endpoint,
    flow::saturation::Load,
    pick::ROLE,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The role of endpoints that serve requests.
pub const DECODE: &str = "decode";

/// The role of endpoints that prefill for others.
pub const PREFILL: &str = "prefill";

/// The endpoints that a pool has, and the number it could use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolScaling {
    /// Its endpoints by role: `decode`, and `prefill` if the configuration has a profile for it.
    pub roles: BTreeMap<String, RoleScaling>,
    /// The number of requests that wait in this picker.
    pub waiting: u64,
    /// The number of requests that its endpoints run.
    pub running: u64,
}

/// The endpoints of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleScaling {
    /// The number of endpoints.
    pub endpoints: u64,
    /// Their mean saturation: 1 is full.
    pub saturation: f64,
    /// The number of endpoints that the present and waiting requests would just saturate.
    pub demand: f64,
    /// The part of the demand that waits in this picker.
    pub waiting_demand: f64,
    /// The number of requests that wait in this picker.
    pub waiting: u64,
    /// The number of requests in the queues of the endpoints.
    pub queued: u64,
    /// The number of requests that they run.
    pub running: u64,
}

impl PoolScaling {
    /// For these endpoints and the number of requests that wait in the picker, with the reports known at this time.
    pub(super) fn new(config: &PickerConfig, endpoints: &[Endpoint], waiting: usize, now: u64) -> Self {
        let role = |role: Role| {
            let all = endpoints.iter().filter(|endpoint| role.accepts(endpoint.label(ROLE)));
            RoleScaling::new(config, all, waiting, now)
        };
        let prefill = config.profiles.prefill().map(|_| (PREFILL.to_owned(), role(Role::Prefill)));
        Self {
            roles: [(DECODE.to_owned(), role(Role::Decode))].into_iter().chain(prefill).collect(),
            waiting: waiting as u64,
            running: running(endpoints.iter()),
        }
    }
}

impl RoleScaling {
    fn new<'e>(config: &PickerConfig, endpoints: impl Iterator<Item = &'e Endpoint> + Clone, waiting: usize, now: u64) -> Self {
        let staleness = micros(config.scrape.staleness);
        let loads: Vec<Load> = endpoints.clone().map(|endpoint| endpoint.load(now, staleness)).collect();
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let waiting_demand = waiting as f64 * config.saturation.one_more(1);
        Self {
            endpoints: loads.len() as u64,
            saturation: config.saturation.saturation(&loads),
            demand: config.saturation.demand(&loads) + waiting_demand,
            waiting_demand,
            waiting: waiting as u64,
            queued: whole(endpoints.clone().filter_map(|endpoint| endpoint.state.report()?.metrics.waiting).sum()),
            running: running(endpoints),
        }
    }

    /// The number of all requests.
    pub fn requests(&self) -> u64 {
        self.waiting.saturating_add(self.queued).saturating_add(self.running)
    }
}

/// The number of requests that endpoints run, by their last reports.
fn running<'e>(endpoints: impl Iterator<Item = &'e Endpoint>) -> u64 {
    whole(endpoints.filter_map(|endpoint| endpoint.state.report()?.metrics.running).sum())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A float's cast saturates.
fn whole(count: f64) -> u64 {
    count.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_picker::{
        engine_metrics::EngineMetrics,
        fleet::{EndpointSpec, Fleet, Report},
    };
    use std::{net::SocketAddr, sync::Arc};

    const DISAGGREGATED: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- {type: always-disagg-pd-decider}
- {type: decode-filter}
- {type: prefill-filter}
- {type: queue-scorer}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]}
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]}
";

    /// Endpoints by role, each with its queue and running requests, if it has reported.
    fn fleet(endpoints: &[(&str, Option<(f64, f64)>)]) -> Fleet {
        let fleet = Fleet::default();
        let spec = |(number, (role, _)): (usize, &(&str, _))| EndpointSpec {
            uid: number.to_string().into(),
            pod: format!("pod-{number}").into(),
            address: SocketAddr::from(([10, 0, 0, 1], 8000)),
            labels: Arc::new([(ROLE.to_owned(), (*role).to_owned())].into()),
        };
        fleet.replace(endpoints.iter().enumerate().map(spec).collect());
        for (endpoint, (_, report)) in fleet.endpoints().iter().zip(endpoints) {
            if let Some((waiting, running)) = report {
                let metrics = EngineMetrics { waiting: Some(*waiting), running: Some(*running), ..EngineMetrics::default() };
                endpoint.state.set_report(Report { at: 0, metrics });
            }
        }
        fleet
    }

    #[track_caller]
    fn is(number: f64, expected: f64) {
        assert!((number - expected).abs() < 1e-9, "{number} and not {expected}");
    }

    #[test]
    fn queues_and_what_waits_in_the_picker_count_in_full_and_a_silent_endpoint_as_one() {
        let fleet = fleet(&[("decode", Some((20.0, 8.0))), ("both", Some((0.0, 3.0))), ("decode", None), ("prefill", Some((9.0, 1.0)))]);
        let scaling = PoolScaling::new(&PickerConfig::default(), &fleet.endpoints(), 2, 0);
        assert_eq!(scaling.roles.keys().collect::<Vec<_>>(), [DECODE], "nobody prefills for others");
        assert_eq!((scaling.waiting, scaling.running), (2, 12));
        let decode = scaling.roles[DECODE];
        assert_eq!((decode.endpoints, decode.queued, decode.running, decode.requests()), (3, 20, 11, 33));
        is(decode.waiting_demand, 0.4);
        is(decode.demand, 4.0 + 0.0 + 1.0 + 0.4);
        is(decode.saturation, 5.0 / 3.0);
    }

    #[test]
    fn with_disaggregation_those_that_prefill_have_a_demand_of_their_own_and_what_waits_counts_for_both() {
        let (config, remarks) = PickerConfig::read(DISAGGREGATED).unwrap();
        assert_eq!(remarks, []);
        let fleet = fleet(&[("decode", Some((5.0, 1.0))), ("prefill", Some((10.0, 2.0))), ("both", Some((0.0, 4.0))), ("encode", None)]);
        let scaling = PoolScaling::new(&config, &fleet.endpoints(), 5, 0);
        let (decode, prefill) = (scaling.roles[DECODE], scaling.roles[PREFILL]);
        assert_eq!((decode.endpoints, prefill.endpoints), (2, 2));
        is(decode.demand, 1.0 + 1.0);
        is(prefill.demand, 2.0 + 1.0);
        assert_eq!((decode.running, prefill.running, scaling.running), (5, 6, 7));
    }

    #[test]
    fn a_pool_without_endpoints_is_full_and_its_demand_is_what_waits() {
        let scaling = PoolScaling::new(&PickerConfig::default(), &[], 10, 0);
        is(scaling.roles[DECODE].saturation, 1.0);
        is(scaling.roles[DECODE].demand, 2.0);
    }
}
