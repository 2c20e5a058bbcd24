//! The autoscaler of a workload, and its metric: that of the workload variant autoscaler, or the demand that this project's endpoint picker
//! measures.

use super::{
    COMBINED, PlanBuilder, PlanError,
    router::PICKER_SERVICE,
    service::{Service, Workload},
};
use crate::{
    kinds::questions::MetadataQuestion,
    objects::scaling::{self, PoolDemand, Query, Target},
    plan::Object,
    resource::{HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT},
    settings::Scheduler,
    world::{ObjectKey, child::SCHEDULER},
};
use pointsman_crds::kserve::scaling::ScalingSpec;
use serde_json::json;

// The labels by which the workload variant autoscaler finds an autoscaler, and compares its workload with others.
const MANAGED: &str = "llm-d.ai/managed";
const MODEL_ID: &str = "llm-d.ai/model-id";
const VARIANT_COST: &str = "llm-d.ai/variant-cost";

/// The annotation of a service that selects the metric for scaling.
const SCALING_METRIC: &str = "pointsman.dev/scaling-metric";

/// The annotation of a service with the target demand per replica.
const SCALING_TARGET: &str = "pointsman.dev/scaling-target";

/// The default target demand per replica: a fifth of the capacity stays free for requests that arrive before another replica has started.
const DEFAULT_TARGET: u32 = 800;

/// The metrics port of the endpoint picker.
const METRICS_PORT: i64 = 9090;

/// The metric for scaling.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Metric {
    /// The number of replicas that the workload variant autoscaler recommends.
    Wanted,
    /// The demand that the endpoint picker measures, with the target per replica in thousandths.
    Demand { target: u32 },
}

impl Metric {
    fn read(service: &Service) -> Result<Self, Box<PlanError>> {
        let refused = |message: String| Err(PlanError::new(COMBINED, "InvalidValue", message));
        let annotation = |name: &str| service.annotations.get(name).map(String::as_str);
        match annotation(SCALING_METRIC) {
            None | Some("wva") => return Ok(Self::Wanted),
            Some("demand") => {}
            Some(word) => return refused(format!("The annotation {SCALING_METRIC} is {word:?}: set it to demand or wva, or remove it.")),
        }
        if !service.scheduled() {
            let message =
                format!("The annotation {SCALING_METRIC} is demand, which an endpoint picker measures: set spec.router.scheduler.");
            return refused(message);
        }
        if service.combined.scheduler != Scheduler::Pointsman {
            let message = format!(
                "The annotation {SCALING_METRIC} is demand, which llm-d's endpoint picker doesn't measure: set the annotation {SCHEDULER} to \
                 pointsman, or {SCALING_METRIC} to wva."
            );
            return refused(message);
        }
        let Some(text) = annotation(SCALING_TARGET) else { return Ok(Self::Demand { target: DEFAULT_TARGET }) };
        match thousandths(text).filter(|target| (50..=10_000).contains(target)) {
            Some(target) => Ok(Self::Demand { target }),
            None => refused(format!(
                "The annotation {SCALING_TARGET} is {text:?}: set it to a decimal number from 0.05 to 10, such as 0.8, or remove it. 1 is a \
                 replica that is just saturated."
            )),
        }
    }
}

/// A decimal number with up to three decimals, in thousandths.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str, most: usize| (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole, 2) || !digits(part, 3) {
        return None;
    }
    format!("{whole}{part:0<3}").parse().ok()
}

impl PlanBuilder<'_> {
    /// The autoscaler of a workload.
    pub(super) fn scaler(&mut self, workload: &Workload, asked: &ScalingSpec) -> Result<Object, Box<PlanError>> {
        let field = workload.part.field();
        let refused = |reason: &str, message: String| Err(PlanError::new(COMBINED, reason, message));
        let Some(most) = asked.max_replicas else {
            return refused("InvalidValue", format!("{field}.scaling has no maxReplicas: set it."));
        };
        let Some(wva) = &asked.wva else {
            let message = format!("{field}.scaling has no wva: set wva.hpa or wva.keda.");
            return refused("InvalidValue", message);
        };
        let metric = Metric::read(&self.service)?;
        if metric != Metric::Wanted && wva.variant_cost.is_some() {
            let note = format!("{field}.scaling.wva.variantCost has no effect: {SCALING_METRIC} is demand.");
            self.service.notes.push(note);
        }
        let (least, most) = (i64::from(asked.min_replicas.unwrap_or(1)), i64::from(most));
        let (resource, name) = &workload.runs;
        let target = Target { resource, name };
        let namespace = self.service.namespace.clone();
        let scaler = if wva.keda.is_some() { &SCALED_OBJECT } else { &HORIZONTAL_POD_AUTOSCALER };
        self.served(COMBINED, workload.part.name(), scaler)?;
        let key = ObjectKey { resource: scaler, namespace: namespace.clone(), name: name.clone() };
        let about = MetadataQuestion { key: &key, role: Some(workload.part.role()), pods: None, template: None };
        let mut metadata = self.metadata(about, self.selector(workload.part))?;
        let pool = self.pool_name();
        let demand = match &metric {
            Metric::Wanted => None,
            Metric::Demand { target } => Some(PoolDemand { pool: &pool, role: workload.part.stage(), target: *target }),
        };
        if demand.is_none() {
            let model = self.service.combined.given("/model/name");
            let told = [(MANAGED, Some("true")), (MODEL_ID, model.as_str()), (VARIANT_COST, wva.variant_cost.as_deref())];
            metadata.annotations.extend(told.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))));
        }
        let body = if let Some(keda) = &wva.keda {
            let trigger = match (demand, self.settings.prometheus.clone()) {
                (Some(demand), _) => demand.trigger(&self.service_host(PICKER_SERVICE), METRICS_PORT, &namespace),
                (None, Some(server)) => Query::wanted(server, &namespace, name).trigger(),
                (None, None) => {
                    let message = format!(
                        "{field}.scaling.wva.keda needs Prometheus: set its URL with the controller's flag --prometheus, or use wva.hpa."
                    );
                    return refused("NoPrometheus", message);
                }
            };
            scaling::scaled_object(metadata, target, least, most, &trigger, json!(keda))
        } else {
            let behavior = wva.hpa.as_ref().and_then(|hpa| hpa.behavior.as_ref()).map(|behavior| json!(behavior));
            let metric = demand.map_or_else(|| scaling::wanted(&namespace, name), PoolDemand::metric);
            scaling::horizontal(metadata, target, least, most, &metric, behavior)
        };
        Ok(Object::new(key, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_decimal_numbers() {
        assert_eq!(["0.8", "1", "0.05", "10", "1.125", "00.5"].map(thousandths), [800, 1000, 50, 10_000, 1125, 500].map(Some));
        for wrong in ["", ".8", "0.", "-1", "0.8000", "100", "80%", "1e1", "0,8", "800m", " 1"] {
            assert_eq!(thousandths(wrong), None, "{wrong:?}");
        }
    }
}
