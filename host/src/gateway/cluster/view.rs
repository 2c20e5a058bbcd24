//! Computes the catalog from InferenceModels and their reservations: a pure function.

use crate::gateway::{
    catalog::{AllowList, Definition},
    error::GatewayError,
    model::Gate,
    target::Target,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use pointsman_core::allocation::{
    ObjectName, Phase,
    inputs::seconds,
    records::{Reservation, Reservations},
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The annotation of a model with the namespaces whose callers may use it, separated by commas.
pub const ALLOWED_NAMESPACES: &str = "pointsman.dev/allowed-namespaces";

/// The annotation of a model with a label selector of the namespaces whose callers may use it.
pub const ALLOWED_SELECTOR: &str = "pointsman.dev/allowed-namespace-selector";

/// The number of seconds after which a client should retry while a model wakes.
const WAKE_SECONDS: u64 = 30;

/// The maximum length of a condition's message for clients, in bytes.
const MAX_MESSAGE: usize = 2048;

/// The fields of an InferenceModel that matter here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelObject {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    model_name: String,
    backend_url: String,
    container_image: String,
    max_replicas: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    ready: bool,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
}

impl ModelObject {
    /// The mistake in the model, if any.
    pub fn flaw(&self, key: &ObjectName, cluster_domain: &str) -> Option<String> {
        let Self { metadata, spec, .. } = self;
        let selector = metadata.annotations.get(ALLOWED_SELECTOR).filter(|text| parse_selector(text).is_none());
        let selector = selector.map(|text| {
            format!("the annotation {ALLOWED_SELECTOR} {text:?} isn't a selector such as team=ml,tier!=free and allows nobody: correct it")
        });
        selector.or_else(|| Target::parse(&spec.backend_url, namespace(key), cluster_domain).err())
    }
}

fn namespace(key: &ObjectName) -> &str {
    key.0.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// The known state of the cluster.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// InferenceModels.
    pub models: BTreeMap<ObjectName, ModelObject>,
    /// Reservations, by name of their ConfigMap.
    pub places: BTreeMap<String, Reservations>,
    /// The labels of namespaces.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl View {
    /// The reservation of each model.
    fn reservations(&self) -> BTreeMap<&ObjectName, &Reservation> {
        let mut all: BTreeMap<&ObjectName, &Reservation> = BTreeMap::new();
        for (key, reservation) in self.places.values().flatten() {
            // A model that moves may have two for a moment: a draining one takes precedence, and otherwise the newer one.
            let rank = |reservation: &Reservation| (matches!(reservation.phase, Phase::Draining(_)), reservation.since);
            let known = all.entry(key).or_insert(reservation);
            if rank(reservation) > rank(known) {
                *known = reservation;
            }
        }
        all
    }

    /// The models, and the drainings of deleted ones.
    pub fn catalog(&self, cluster_domain: &str) -> (Vec<Definition>, BTreeMap<ObjectName, u64>) {
        let reservations = self.reservations();
        let definition = |(key, object): (&ObjectName, &ModelObject)| {
            let name = object.spec.model_name.clone();
            let gate = gate(key, object, reservations.get(key).copied(), cluster_domain);
            Definition { key: key.clone(), name, created: created(object), allowed: allowed(object), gate }
        };
        let definitions = self.models.iter().filter(|(_, object)| !object.spec.model_name.is_empty()).map(definition).collect();
        let drains = reservations.iter().filter_map(|(key, reservation)| Some(((*key).clone(), drain(reservation)?)));
        (definitions, drains.collect())
    }
}

fn drain(reservation: &Reservation) -> Option<u64> {
    matches!(reservation.phase, Phase::Draining(_)).then_some(reservation.since)
}

fn created(object: &ModelObject) -> u64 {
    object.metadata.creation_timestamp.as_deref().and_then(seconds).unwrap_or_default()
}

/// Whether requests may go to a model.
fn gate(key: &ObjectName, object: &ModelObject, reservation: Option<&Reservation>, cluster_domain: &str) -> Gate {
    let name = &object.spec.model_name;
    let drain = reservation.and_then(drain);
    let refused = |answer| Gate::Refused { drain, answer };
    if object.metadata.deletion_timestamp.is_some() {
        return refused(GatewayError::model_not_found(name));
    }
    if object.spec.max_replicas == Some(0) {
        let message = format!("The model {name} is off, because its spec.maxReplicas is 0: ask its owner to set it to 1.");
        return refused(GatewayError::model_not_ready(message, None));
    }
    let Ok(target) = Target::parse(&object.spec.backend_url, namespace(key), cluster_domain).map(Arc::new) else {
        let message = format!("The model {name} can't be reached, because its spec.backendUrl isn't valid: ask its owner to correct it.");
        return refused(GatewayError::backend_unavailable(message, None));
    };
    let is_awake = reservation.is_some_and(|reservation| reservation.phase == Phase::Admitted) && object.status.ready;
    // A model that has become external drains like any other: hosts wait for its pod's last responses.
    let is_external = object.spec.container_image.is_empty() && drain.is_none();
    if is_external || is_awake {
        return Gate::Open(target);
    }
    Gate::Closed { drain, answer: late(object) }
}

/// Why a model isn't awake, from its status.
fn late(object: &ModelObject) -> GatewayError {
    let conditions = &object.status.conditions;
    let message = |condition: &Condition| {
        let mut message = condition.message.clone();
        pointsman_sandbox::text::cut(&mut message, MAX_MESSAGE);
        message
    };
    let lacks =
        |condition: &&Condition| condition.r#type == "Allocated" && condition.status == "False" && condition.reason == "InsufficientMemory";
    if let Some(condition) = conditions.iter().find(lacks) {
        return GatewayError::insufficient_memory(message(condition), WAKE_SECONDS);
    }
    let name = &object.spec.model_name;
    if let Some(condition) = conditions.iter().find(|condition| condition.reason == "Failed") {
        let message = format!("The model {name} has failed: {}", message(condition));
        return GatewayError::model_not_ready(message, Some(WAKE_SECONDS));
    }
    let message = format!("The model {name} isn't awake yet: try again in {WAKE_SECONDS} s.");
    GatewayError::model_not_ready(message, Some(WAKE_SECONDS))
}

/// The callers that may use a model. An invalid list allows nobody.
fn allowed(object: &ModelObject) -> AllowList {
    let annotations = &object.metadata.annotations;
    let namespaces = annotations.get(ALLOWED_NAMESPACES).map(|list| {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    });
    match annotations.get(ALLOWED_SELECTOR).map(|text| parse_selector(text)) {
        None => AllowList { namespaces, selector: None },
        Some(Some(selector)) => AllowList { namespaces, selector: Some(selector) },
        Some(None) => AllowList { namespaces: Some(namespaces.unwrap_or_default()), selector: None },
    }
}

/// Parses a label selector in kubectl's format, without sets: `a=b,c!=d,e,!f`.
fn parse_selector(text: &str) -> Option<LabelSelector> {
    let is_label = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c));
    let mut requirements = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (key, operator, value) = if let Some((key, value)) = part.split_once("!=") {
            (key, "NotIn", Some(value))
        } else if let Some((key, value)) = part.split_once('=') {
            (key, "In", Some(value.strip_prefix('=').unwrap_or(value)))
        } else if let Some(key) = part.strip_prefix('!') {
            (key, "DoesNotExist", None)
        } else {
            (part, "Exists", None)
        };
        let (key, value) = (key.trim(), value.map(str::trim));
        if !is_label(key) || value.is_some_and(|value| !value.is_empty() && !is_label(value)) {
            return None;
        }
        let values = value.map(|value| vec![value.to_owned()]);
        requirements.push(LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values });
    }
    Some(LabelSelector { match_expressions: Some(requirements), match_labels: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::allocation::SleepReason;
    use serde_json::{Value, json};

    fn key(name: &str) -> ObjectName {
        ObjectName(format!("ml/{name}"))
    }

    /// A view of one model `a`, with a reservation in this phase since 7.
    fn view(spec: &Value, status: &Value, phase: Option<Phase>) -> View {
        let mut object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec, "status": status});
        object["spec"]["modelName"] = "a".into();
        object["spec"]["backendUrl"] = "http://vllm:8000".into();
        let place = phase.map(|phase| (key("a"), Reservation { phase, since: 7, ..Reservation::default() }));
        let places = BTreeMap::from([("node-1".to_owned(), place.into_iter().collect())]);
        let models = BTreeMap::from([(key("a"), serde_json::from_value(object).unwrap())]);
        View { models, places, namespaces: BTreeMap::new() }
    }

    fn gate_in(spec: &Value, status: &Value, phase: Option<Phase>) -> Gate {
        view(spec, status, phase).catalog("cluster.local").0.remove(0).gate
    }

    #[test]
    fn requests_go_to_a_model_that_has_a_place_and_is_ready_or_that_somebody_else_runs() {
        let (image, ready, none) = (json!({"containerImage": "i"}), json!({"ready": true}), json!({}));
        let is_open = |gate| matches!(gate, Gate::Open(_));
        assert!(is_open(gate_in(&image, &ready, Some(Phase::Admitted))));
        assert!(!is_open(gate_in(&image, &none, Some(Phase::Admitted))));
        assert!(!is_open(gate_in(&image, &ready, None)));
        assert!(!is_open(gate_in(&image, &ready, Some(Phase::Stopping))));
        assert!(is_open(gate_in(&none, &none, None)));
        let Gate::Closed { drain, .. } = gate_in(&image, &ready, Some(Phase::Draining(SleepReason::Idle))) else { panic!("it drains") };
        assert_eq!(drain, Some(7));
        let Gate::Closed { drain, .. } = gate_in(&none, &ready, Some(Phase::Draining(SleepReason::Off))) else { panic!("its pod drains") };
        assert_eq!(drain, Some(7));
        let off = json!({"containerImage": "i", "maxReplicas": 0});
        let Gate::Refused { drain, answer } = gate_in(&off, &ready, Some(Phase::Draining(SleepReason::Off))) else { panic!("it is off") };
        assert_eq!((drain, answer.status.as_u16(), answer.code, answer.retry_after), (Some(7), 503, "model_not_ready", None));
    }

    #[test]
    fn a_draining_of_a_deleted_model_is_still_to_be_confirmed() {
        let mut view = view(&json!({}), &json!({}), Some(Phase::Draining(SleepReason::Idle)));
        view.models.clear();
        let (definitions, drains) = view.catalog("cluster.local");
        assert_eq!((definitions.len(), drains), (0, BTreeMap::from([(key("a"), 7)])));
    }

    #[test]
    fn what_keeps_a_model_from_waking_is_what_its_status_has() {
        let answer = |conditions: Value| {
            let gate = gate_in(&json!({"containerImage": "i"}), &json!({"conditions": conditions}), None);
            let Gate::Closed { answer, .. } = gate else { panic!("it sleeps") };
            answer
        };
        let lacks = json!({"type": "Allocated", "status": "False", "reason": "InsufficientMemory", "message": "ml/b takes 80Gi."});
        let failed = json!({"type": "Ready", "status": "False", "reason": "Failed", "message": "No such image."});
        let error = answer(json!([failed, lacks]));
        assert_eq!((error.status.as_u16(), error.code, error.message.as_str()), (429, "insufficient_memory", "ml/b takes 80Gi."));
        assert!(error.retry_after.is_some());
        let error = answer(json!([failed]));
        assert_eq!((error.status.as_u16(), error.code), (503, "model_not_ready"));
        assert!(error.message.ends_with("No such image."));
        assert!(answer(json!([])).retry_after.is_some());
    }

    #[test]
    fn a_url_that_isn_t_valid_is_a_refusal_and_an_unreadable_selector_allows_nobody() {
        let mut view = view(&json!({}), &json!({}), None);
        let object = view.models.get_mut(&key("a")).unwrap();
        object.spec.backend_url = "ftp://x".to_owned();
        object.metadata.annotations = BTreeMap::from([(ALLOWED_SELECTOR.to_owned(), "a in (b)".to_owned())]);
        let flaw = object.flaw(&key("a"), "cluster.local").unwrap();
        assert!(flaw.contains(ALLOWED_SELECTOR), "{flaw}");
        object.metadata.annotations.insert(ALLOWED_SELECTOR.to_owned(), "a=b".to_owned());
        assert!(object.flaw(&key("a"), "cluster.local").unwrap().contains("spec.backendUrl"));
        object.metadata.annotations.insert(ALLOWED_SELECTOR.to_owned(), "a in (b)".to_owned());
        let definition = view.catalog("cluster.local").0.remove(0);
        assert!(matches!(definition.gate, Gate::Refused { answer, .. } if answer.code == "backend_unavailable"));
        assert!(!definition.allowed.allows(Some("a"), |_| BTreeMap::new()));
    }

    #[test]
    fn a_selector_is_read_as_kubectl_has_it() {
        let labels = BTreeMap::from([("team".to_owned(), "ml".to_owned())]);
        for (text, expected) in [
            ("team=ml", true),
            ("team==ml", true),
            ("team=other", false),
            ("team!=other,team", true),
            ("!team", false),
            ("tier!=free", true),
            ("tier", false),
        ] {
            let selector = parse_selector(text).unwrap();
            let selected = pointsman_core::selector::selects(&selector, |key| labels.get(key).map(String::as_str));
            assert_eq!(selected, expected, "{text}");
        }
        for wrong in ["", "a=b,", "a in (b)", "=b", "a=b c"] {
            assert!(parse_selector(wrong).is_none(), "{wrong}");
        }
    }
}
