//! The conditions and status fields of the parts of a service, from the state of its objects and pods.

use super::{
    ModelFailure, PlanBuilder, StepResults,
    component::{ComponentKind, Mode},
};
use crate::{
    condition::Condition,
    kinds::{
        gateways, questions,
        workload_health::{AvailabilityPolicy, WorkloadHealth},
    },
    resource::{HTTP_ROUTE, KNATIVE_SERVICE, SERVICE},
    world::{ObjectKey, OwnedObject, pod::PodFailure, referenced::Parent, workload_status::KnativeStatus},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Whether the service is reachable.
const INGRESS: &str = "IngressReady";

/// The state of the parts.
pub(super) struct ComponentsHealth {
    pub(super) conditions: Vec<Condition>,
    states: Vec<(ComponentKind, ComponentHealth)>,
}

/// The state of a component.
struct ComponentHealth {
    fares: WorkloadHealth,
    /// The current revision of its workload, as the component's name and a number.
    running: Option<String>,
    /// Knative's state of its revisions, if Knative runs it.
    serving: Option<Box<KnativeStatus>>,
}

impl PlanBuilder<'_> {
    /// The conditions of all parts.
    pub(super) fn parts(&self, found: &StepResults) -> ComponentsHealth {
        let mut states = Vec::new();
        let mut conditions = Vec::new();
        for part in ComponentKind::ALL {
            let wanted = found.components.iter().find(|component| component.part == part);
            let live = self.live(part, found);
            let state = match live {
                Some(live) => self.state(part, live),
                None if wanted.is_some() || found.components.is_empty() && part == ComponentKind::Engine => {
                    ComponentHealth::waiting(part, found.workloads.get(part.name()))
                }
                None => {
                    let message = format!("The service has no {}.", part.name());
                    conditions.push(Condition::satisfied(part.condition(), "NotWanted", message).optional());
                    continue;
                }
            };
            conditions.push(state.fares.condition.clone());
            states.push((part, state));
        }
        conditions.push(self.ingress(found));
        ComponentsHealth { conditions, states }
    }

    /// The existing object that runs a component's pods: during a replacement there may be two, and the planned one takes precedence.
    fn live(&self, part: ComponentKind, found: &StepResults) -> Option<&Arc<OwnedObject>> {
        let planned = found.workloads.get(part.name()).and_then(|key| self.snapshot.child(key.resource, &key.name));
        planned.or_else(|| part.workloads(self.snapshot).last()).filter(|live| !live.deleting)
    }

    fn service_name(&self) -> &str {
        &self.snapshot.subject.key.name
    }

    fn state(&self, part: ComponentKind, live: &OwnedObject) -> ComponentHealth {
        let pods = self.snapshot.pods.iter().filter(|pod| pod.component == part.name());
        let fares = WorkloadHealth::observe(part.condition(), live, pods, AvailabilityPolicy::AsItSays);
        let number = live.observed.revision.as_ref().and_then(|revision| revision.split_once('-'));
        let running = number.map(|(number, _)| format!("{}-{}-{number}", self.service_name(), part.name()));
        ComponentHealth { fares, running, serving: live.observed.serving.clone() }
    }

    /// Knative's state of the component that receives requests, if Knative runs it; empty at first.
    fn served(&self, found: &StepResults) -> Option<KnativeStatus> {
        // While the objects aren't planned, the existing ones determine the component.
        let running = || [ComponentKind::Router, ComponentKind::Engine].into_iter().find(|part| self.live(*part, found).is_some());
        let entry = found.entry().map(|entry| entry.part).or_else(running)?;
        let live = self.live(entry, found);
        let knatives = match found.entry() {
            Some(entry) => entry.mode == Mode::Serverless,
            None => live.is_some_and(|live| *live.key.resource == KNATIVE_SERVICE),
        };
        knatives.then(|| live.and_then(|live| live.observed.serving.as_deref().cloned()).unwrap_or_default())
    }

    fn ingress(&self, found: &StepResults) -> Condition {
        if let Some(serving) = self.served(found) {
            return match serving.url {
                Some(url) => Condition::satisfied(INGRESS, "Knative", format!("Knative serves it at {url}.")),
                None => Condition::unknown(INGRESS, "Knative", "Knative has not reported a URL yet."),
            };
        }
        let Some(gateway) = &self.settings.gateway else {
            let has_service = || self.snapshot.children.iter().any(|child| *child.key.resource == SERVICE);
            if found.objects.is_none() && !has_service() {
                return Condition::unknown(INGRESS, "Blocked", "There is no Service yet: the other conditions give the reason.");
            }
            let message = "No Gateway is configured (--gateway): the service is reachable within the cluster, at its Service.";
            return Condition::satisfied(INGRESS, "ClusterLocal", message);
        };
        if let Some((reason, message)) = questions::missing_kind(self.snapshot, "configured Gateway", &HTTP_ROUTE) {
            return Condition::no(INGRESS, reason, format!("{message} Meanwhile the service is reachable within the cluster."));
        }
        let parent = Parent::gateway(&gateway.namespace, &gateway.name);
        let name = self.service_name();
        let route = self.snapshot.child(&HTTP_ROUTE, name);
        let Some(known) = route.and_then(|_| self.snapshot.referenced(&HTTP_ROUTE, &self.snapshot.subject.key.namespace, name)) else {
            let blocked = || Condition::unknown(INGRESS, "Blocked", "There is no route yet.");
            // A new route has the same condition as a known one that isn't accepted, because nothing else may change for a while.
            return if found.objects.is_some() { gateways::not_reported(INGRESS, "the route", &parent) } else { blocked() };
        };
        let taken = || {
            Condition::satisfied(INGRESS, "Accepted", format!("The Gateway {}/{} has accepted the route.", gateway.namespace, gateway.name))
        };
        gateways::refusal(INGRESS, "the route", known, &[parent]).unwrap_or_else(taken)
    }

    /// The fields of the status, without the conditions.
    pub(super) fn fields(&self, found: &StepResults, parts: &ComponentsHealth, failure: Option<ModelFailure>) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut keep = |name: &str, value: Option<Value>| fields.insert(name.to_owned(), value.unwrap_or_default());
        if found.objects.is_some() {
            let (url, cluster) = if let Some(KnativeStatus { url, address, .. }) = self.served(found) {
                (url, address)
            } else {
                let cluster = self.url_of(self.service_name());
                (Some(self.host().map_or_else(|| cluster.clone(), |host| format!("http://{host}"))), Some(cluster))
            };
            keep("address", cluster.map(|cluster| json!({"url": cluster})));
            keep("url", url.map(Value::from));
        } else {
            keep("address", self.former("address"));
            keep("url", self.former("url"));
        }
        let components: Map<String, Value> = parts
            .states
            .iter()
            .filter_map(|(part, state)| Some((part.name().to_owned(), self.component_status(*part, state, found)?)))
            .collect();
        keep("components", (!components.is_empty()).then_some(Value::Object(components)));
        keep("modelStatus", Some(self.model_status(found, parts, failure)));
        // Existing objects use the previous choice until they are replaced.
        let held = found.objects.is_none() && !self.snapshot.children.is_empty();
        let choice = if held {
            self.former("runtime").or_else(|| self.choice.clone())
        } else {
            self.choice.clone().or_else(|| self.former("runtime"))
        };
        keep("runtime", choice);
        fields
    }

    fn url_of(&self, service: &str) -> String {
        format!("http://{service}.{}.svc.{}", self.snapshot.subject.key.namespace, self.settings.cluster_domain)
    }

    fn component_status(&self, part: ComponentKind, state: &ComponentHealth, found: &StepResults) -> Option<Value> {
        let before = &self.before["components"][part.name()];
        let former = |field: &str| before[field].as_str().map(str::to_owned);
        if let Some(serving) = &state.serving {
            return Some(revisions(serving, before));
        }
        let created = found.revisions.get(part.name()).cloned().or_else(|| state.running.clone())?;
        // The ready revision is the one that the workload has rolled out, which may be older than the planned one.
        let rolled_out = state.running.clone().filter(|_| state.fares.rolled_out);
        let latest = rolled_out.clone().or_else(|| former("latestRolledoutRevision"));
        let previous = match (former("latestRolledoutRevision"), &rolled_out) {
            (Some(before), Some(now)) if before != *now => Some(before),
            _ => former("previousRolledoutRevision"),
        };
        let url = self.url_of(&format!("{}-{}", self.service_name(), part.name()));
        let mut status = json!({"latestCreatedRevision": created, "url": url, "restURL": url, "address": {"url": url}});
        for (field, value) in
            [("latestReadyRevision", &latest), ("latestRolledoutRevision", &latest), ("previousRolledoutRevision", &previous)]
        {
            if let Some(value) = value {
                status[field] = value.as_str().into();
            }
        }
        if let Some(latest) = latest {
            status["traffic"] = json!([{"revisionName": latest, "latestRevision": latest == created, "percent": 100}]);
        }
        Some(status)
    }

    fn model_status(&self, found: &StepResults, parts: &ComponentsHealth, failure: Option<ModelFailure>) -> Value {
        let serving: Vec<&ComponentHealth> =
            parts.states.iter().filter(|(part, _)| *part != ComponentKind::Router).map(|(_, state)| state).collect();
        let ready: i64 = serving.iter().map(|state| state.fares.ready).sum();
        let failing: Vec<(&ComponentHealth, &(String, PodFailure))> = serving
            .iter()
            .flat_map(|state| state.fares.failing.iter().map(|failing| (*state, failing)))
            .filter(|(_, (_, failure))| failure.started)
            .collect();
        let up_to_date = found.objects.is_some()
            && !serving.is_empty()
            && parts
                .states
                .iter()
                .all(|(part, state)| state.fares.rolled_out && (found.revisions.get(part.name()) == state.running.as_ref()));
        // Knative doesn't report the number of replicas.
        let is_knative = serving.iter().any(|state| state.serving.is_some());
        let (transition, target) = if let Some(failure) = &failure {
            (failure.blames.unwrap_or("InProgress"), "Pending")
        } else if up_to_date && ready == 0 && !is_knative {
            ("UpToDate", "Standby")
        } else if up_to_date {
            ("UpToDate", "Loaded")
        } else if !failing.is_empty() {
            ("BlockedByFailedLoad", "FailedToLoad")
        } else {
            ("InProgress", "Loading")
        };
        let mut states = json!({"targetModelState": target});
        if ready > 0 {
            states["activeModelState"] = "Loaded".into();
        } else if target == "Standby" {
            states["activeModelState"] = target.into();
        }
        let mut status = json!({
            "transitionStatus": transition,
            "modelRevisionStates": states,
            "modelCopies": {"failedCopies": failing.len(), "totalCopies": ready},
        });
        if is_knative {
            status["modelCopies"] = json!({"failedCopies": failing.len()});
        }
        if let Some(ModelFailure { kind, message, blames: Some(_) }) = failure {
            status["lastFailureInfo"] = json!({"location": self.service_name(), "reason": kind, "message": message});
        } else if let Some((state, (pod, failure))) = failing.first().filter(|_| !up_to_date) {
            let mut info = json!({"location": pod, "reason": "ModelLoadFailed", "message": failure.message});
            if let Some(revision) = &state.running {
                info["modelRevisionName"] = revision.as_str().into();
            }
            if let Some(code) = failure.exit_code {
                info["exitCode"] = code.into();
            }
            if let Some(time) = &failure.time {
                info["time"] = time.as_str().into();
            }
            status["lastFailureInfo"] = info;
        }
        status
    }
}

impl ComponentHealth {
    /// The state before the object that runs its pods exists.
    fn waiting(part: ComponentKind, planned: Option<&ObjectKey>) -> Self {
        let fares = if let Some(ObjectKey { resource, name, .. }) = planned {
            WorkloadHealth::being_created(part.condition(), resource, name)
        } else {
            let message = format!("There is no {} yet: the other conditions give the reason.", part.name());
            WorkloadHealth::absent(Condition::unknown(part.condition(), "Blocked", message))
        };
        Self { fares, running: None, serving: None }
    }
}

/// The status fields for the revisions of a component that Knative runs. The rolled out revision is the last one that had all traffic.
fn revisions(serving: &KnativeStatus, before: &Value) -> Value {
    let former = |field: &str| before[field].as_str().map(str::to_owned);
    let whole = serving.traffic.iter().find(|traffic| traffic.latest_revision && traffic.percent == 100);
    let rolled_out = whole.map(|traffic| traffic.revision_name.clone()).filter(|name| !name.is_empty());
    let last = former("latestRolledoutRevision");
    let previous = match (&last, &rolled_out) {
        (Some(last), Some(now)) if last != now => Some(last.clone()),
        _ => former("previousRolledoutRevision"),
    };
    let mut status = json!({});
    let fields = [
        ("latestCreatedRevision", serving.created.clone()),
        ("latestReadyRevision", serving.ready.clone()),
        ("latestRolledoutRevision", rolled_out.or(last)),
        ("previousRolledoutRevision", previous),
        ("url", serving.url.clone()),
        ("restURL", serving.url.clone()),
    ];
    for (field, value) in fields.into_iter().filter_map(|(field, value)| Some((field, value?))) {
        status[field] = value.into();
    }
    if let Some(address) = &serving.address {
        status["address"] = json!({"url": address});
    }
    let traffic = serving.traffic.iter().map(|traffic| {
        let mut told =
            json!({"revisionName": traffic.revision_name, "latestRevision": traffic.latest_revision, "percent": traffic.percent});
        if let Some(tag) = &traffic.tag {
            told["tag"] = tag.as_str().into();
        }
        told
    });
    let traffic: Vec<Value> = traffic.collect();
    if !traffic.is_empty() {
        status["traffic"] = traffic.into();
    }
    status
}
