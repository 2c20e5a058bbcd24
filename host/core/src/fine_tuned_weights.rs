//! FineTunedWeights and their status: whether services can load a weight, given its model and the location of its files.

use crate::{
    condition::{Condition, condition_json},
    live_object::LiveObject,
    model_nodes::live::status_writers,
    subject_kind::TRAINING_JOB_UID,
};
use k8s_openapi::jiff::Timestamp;
use pointsman_crds::ome::{
    fine_tuned_weight::FineTunedWeightSpec,
    model::{LifeCycleState, ModelStatusSpec},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The field manager of the statuses of FineTunedWeights.
pub const STATUS_MANAGER: &str = "pointsman/weight-status";

/// The condition that reports whether services can load a weight.
const READY: &str = "Ready";

/// The names that tools use for the rank of an adapter.
const RANK: [&str; 5] = ["rank", "r", "lora_rank", "loraRank", "lora_r"];

/// A fine-tuned weight.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightView {
    /// The base model: its namespace, empty for a cluster-scoped one, and its name.
    pub tuned: (String, String),
    /// The tuning method: its modelType, otherwise the strategy in its hyperParameters.
    pub tuning: Option<String>,
    /// The rank of its matrices, from its hyperParameters.
    pub rank: Option<u32>,
    /// Whether it is a complete model, which is served instead of the base model.
    pub is_merged: bool,
    /// The URI of its files.
    pub storage_uri: String,
    /// Whether it is disabled.
    pub disabled: bool,
    /// Whether its status marks it as deprecated.
    pub is_deprecated: bool,
    /// Its lifecycle state.
    pub state: Option<LifeCycleState>,
    /// The uid of the training job that it was created for, if any.
    pub trained_by: Option<String>,
    /// Its live state, for writing its status.
    pub live: LiveWeight,
}

/// A weight as it exists in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveWeight {
    /// The fields that every object has.
    pub object: LiveObject,
    /// Whether another field manager has written its state.
    pub has_foreign_state: bool,
}

/// The state of a weight's base model, as far as weights depend on it.
#[derive(Clone, Copy, Debug)]
pub struct BaseModelState<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Whether it is disabled.
    pub is_disabled: bool,
    /// Its lifecycle state.
    pub state: Option<LifeCycleState>,
}

impl WeightView {
    /// Parses a FineTunedWeight.
    pub fn from_object(object: &Value) -> serde_json::Result<Self> {
        let spec = FineTunedWeightSpec::deserialize(&object["spec"])?;
        let status = object.get("status").map_or_else(|| Ok(ModelStatusSpec::default()), ModelStatusSpec::deserialize)?;
        let hyper_parameters = spec.hyper_parameters.unwrap_or_default().0;
        let strategy = hyper_parameters.get("strategy").and_then(Value::as_str).map(str::to_owned);
        let configuration = spec.configuration.unwrap_or_default().0;
        let said = |text: &String| !text.is_empty();
        Ok(Self {
            tuned: (spec.base_model_ref.namespace.unwrap_or_default(), spec.base_model_ref.name),
            tuning: spec.model_type.filter(said).or(strategy.filter(said)),
            rank: rank(&hyper_parameters),
            is_merged: configuration.get("merged_weights").is_some_and(|merged| *merged == true || merged == "true"),
            storage_uri: spec.storage.storage_uri,
            disabled: spec.extension.disabled.unwrap_or_default(),
            is_deprecated: is_deprecated(&status),
            state: status.state,
            trained_by: object["metadata"]["labels"][TRAINING_JOB_UID].as_str().map(str::to_owned),
            live: LiveWeight { object: LiveObject::from_object(object), has_foreign_state: status_writers(object, STATUS_MANAGER).0 },
        })
    }

    /// Whether this state makes no difference to services.
    pub fn serves_the_same(&self, other: &Self) -> bool {
        let service_view = |weight: &Self| Self { live: LiveWeight::default(), ..weight.clone() };
        service_view(self) == service_view(other)
    }

    /// The status to write, if it differs from the current one. A state that another field manager has written stays unchanged, as for
    /// models.
    pub fn status_to_write(&self, base: Option<BaseModelState<'_>>, now: Timestamp) -> Option<Value> {
        let live = &self.live.object;
        if live.is_deleting || self.live.has_foreign_state {
            return None;
        }
        let (state, condition) = self.summary(base);
        let former = live.status["conditions"].as_array().into_iter().flatten().find(|former| former["type"] == READY);
        let condition = condition_json(condition, former, Some(live.generation), now);
        let mut status = live.status.as_object().cloned().unwrap_or_default();
        let of_others = live.status["conditions"].as_array().into_iter().flatten().filter(|other| other["type"] != READY).cloned();
        status.insert("conditions".to_owned(), [condition].into_iter().chain(of_others).collect());
        status.insert("state".to_owned(), json!(state));
        status.insert("observedGeneration".to_owned(), live.generation.into());
        let status = Value::Object(status);
        (status != live.status).then_some(status)
    }

    /// Its lifecycle state, and whether services can load it.
    fn summary(&self, base: Option<BaseModelState<'_>>) -> (LifeCycleState, Condition) {
        let name = &self.tuned.1;
        let no = |state, reason: &str, message: String| (state, Condition::no(READY, reason, message));
        if let Some(flaw) = storage_flaw(&self.storage_uri) {
            return no(LifeCycleState::Failed, "InvalidStorage", flaw);
        }
        let Some(BaseModelState { kind, is_disabled, state }) = base else {
            let message = match &*self.tuned.0 {
                "" => format!("There is neither a ClusterBaseModel nor a BaseModel {name}"),
                namespace => format!("There is no BaseModel {name} in the namespace {namespace}"),
            };
            return no(LifeCycleState::Creating, "BaseModelNotFound", format!("{message}: create it, or correct spec.baseModelRef."));
        };
        if is_disabled {
            let message = format!("The {kind} {name} is disabled, so no service can use it: enable it (spec.disabled).");
            return no(LifeCycleState::Creating, "BaseModelDisabled", message);
        }
        if !self.is_merged && state != Some(LifeCycleState::Ready) {
            let message = format!("The {kind} {name} isn't ready, so no service can use it: its status gives the reason.");
            return no(LifeCycleState::InTransit, "BaseModelNotReady", message);
        }
        if self.disabled {
            return no(LifeCycleState::Ready, "Disabled", "Services can't use it: enable it (spec.disabled).".to_owned());
        }
        let tuning = self.tuning.as_ref().map(|tuning| format!(" It was tuned by {tuning}")).unwrap_or_default();
        let tuning = match self.rank {
            Some(rank) if tuning.is_empty() => format!(" Its rank is {rank}."),
            Some(rank) => format!("{tuning}, with rank {rank}."),
            None if tuning.is_empty() => tuning,
            None => format!("{tuning}."),
        };
        let place = if self.is_merged { "in place of" } else { "beside" };
        let message = format!("Services can serve it {place} the {kind} {name}: their pods load it from {}.{tuning}", self.storage_uri);
        (LifeCycleState::Ready, Condition::satisfied(READY, "Usable", message))
    }
}

/// Whether a status marks its object as deprecated.
pub fn is_deprecated(status: &ModelStatusSpec) -> bool {
    status.lifecycle.as_deref().is_some_and(|lifecycle| lifecycle.eq_ignore_ascii_case("deprecated"))
}

/// The rank in hyperparameters. Tools also write numbers as strings.
fn rank(hyper_parameters: &Map<String, Value>) -> Option<u32> {
    let number = |value: &Value| match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    RANK.iter().find_map(|name| hyper_parameters.get(*name).and_then(number)).filter(|rank| *rank > 0)
}

/// Why the URI of a weight's files is invalid, as far as that is visible without downloading them.
fn storage_flaw(uri: &str) -> Option<String> {
    let fix = |remedy: &str| Some(format!("spec.storage.storageUri is {uri:?}, which Pointsman can't download: {remedy}."));
    let Some((scheme, rest)) = uri.split_once("://") else { return fix("write a URI, such as hf://ORGANISATION/NAME") };
    let parts: Vec<&str> = rest.split('/').collect();
    match scheme {
        "vendor" => fix("vendor:// can't be downloaded: set the location of the files"),
        "oci" if rest.starts_with("n/") && !matches!(&parts[..], ["n", _, "b", _, "o", first, ..] if !first.is_empty()) => {
            fix("write oci://n/NAMESPACE/b/BUCKET/o/PATH")
        }
        "pvc" if parts[0].is_empty() => fix("write pvc://CLAIM/PATH"),
        "local" if !rest.starts_with('/') || rest.len() < 2 => fix("write local:///PATH"),
        "hf" if parts.len() < 2 || parts[..2].iter().any(|part| part.is_empty()) => fix("write hf://ORGANISATION/NAME"),
        "oci" | "pvc" | "local" | "hf" => None,
        "s3" | "gs" | "az" | "http" | "https" | "github" if !parts[0].is_empty() => None,
        "s3" | "gs" | "az" | "http" | "https" | "github" => fix("add a location after the scheme"),
        _ => fix("start it with hf://, s3://, gs://, az://, http://, https://, github://, oci://, pvc:// or local://"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(spec: Value, more: Value) -> WeightView {
        let mut object = json!({
            "metadata": {"name": "legal", "uid": "u", "generation": 2, "resourceVersion": "7"},
            "spec": {"baseModelRef": {"name": "llama"}, "storage": {"storageUri": "hf://org/legal"}},
        });
        for (part, fields) in [("spec", spec), ("", more)] {
            let target = if part.is_empty() { &mut object } else { &mut object[part] };
            for (name, value) in fields.as_object().unwrap() {
                target[name] = value.clone();
            }
        }
        WeightView::from_object(&object).unwrap()
    }

    #[allow(clippy::unnecessary_wraps, reason = "a weight may have no base model")]
    fn base(state: LifeCycleState) -> Option<BaseModelState<'static>> {
        Some(BaseModelState { kind: "ClusterBaseModel", is_disabled: false, state: Some(state) })
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn told(weight: &WeightView, base: Option<BaseModelState<'_>>) -> [String; 3] {
        let status = weight.status_to_write(base, now()).unwrap();
        let condition = &status["conditions"][0];
        [&status["state"], &condition["reason"], &condition["message"]].map(|value| value.as_str().unwrap().to_owned())
    }

    #[test]
    fn each_thing_that_keeps_services_from_it_has_its_reason() {
        let plain = || weight(json!({}), json!({}));
        let ready = base(LifeCycleState::Ready);
        let state = |weight: &WeightView, base| {
            let [state, reason, _] = told(weight, base);
            (state, reason)
        };
        let expect = |state: &str, reason: &str| (state.to_owned(), reason.to_owned());
        assert_eq!(state(&plain(), ready), expect("Ready", "Usable"));
        assert_eq!(state(&plain(), None), expect("Creating", "BaseModelNotFound"));
        assert_eq!(state(&plain(), base(LifeCycleState::InTransit)), expect("In_Transit", "BaseModelNotReady"));
        let disabled = Some(BaseModelState { is_disabled: true, ..ready.unwrap() });
        assert_eq!(state(&plain(), disabled), expect("Creating", "BaseModelDisabled"));
        assert_eq!(state(&weight(json!({"disabled": true}), json!({})), ready), expect("Ready", "Disabled"));
        let vendor = weight(json!({"storage": {"storageUri": "vendor://a/b/c"}}), json!({}));
        assert_eq!(state(&vendor, ready), expect("Failed", "InvalidStorage"));
        // A complete model only requires that its base model is known.
        let merged = weight(json!({"configuration": {"merged_weights": true}}), json!({}));
        assert_eq!(state(&merged, base(LifeCycleState::Failed)), expect("Ready", "Usable"));
        let there = weight(json!({"baseModelRef": {"name": "llama", "namespace": "ml"}}), json!({}));
        assert_eq!(told(&there, None)[2], "There is no BaseModel llama in the namespace ml: create it, or correct spec.baseModelRef.");
    }

    #[test]
    fn what_it_was_tuned_by_stands_in_its_message() {
        let message = |spec: Value| {
            let [_, _, message] = told(&weight(spec, json!({})), base(LifeCycleState::Ready));
            message
                .strip_prefix("Services can serve it beside the ClusterBaseModel llama: their pods load it from hf://org/legal.")
                .unwrap()
                .to_owned()
        };
        assert_eq!(message(json!({"hyperParameters": {"strategy": "lora", "r": "16"}})), " It was tuned by lora, with rank 16.");
        assert_eq!(message(json!({"modelType": "LoRA", "hyperParameters": {"strategy": "x"}})), " It was tuned by LoRA.");
        assert_eq!(message(json!({"hyperParameters": {"lora_rank": 8}})), " Its rank is 8.");
        for other in [json!({}), json!({"hyperParameters": {"rank": 0}}), json!({"hyperParameters": {"rank": -1, "r": 1.5}})] {
            assert_eq!(message(other), "");
        }
    }

    #[test]
    fn a_status_is_written_once_and_never_over_another_writers_state() {
        let ready = base(LifeCycleState::Ready);
        let foreign = json!({"lifecycle": "Public", "conditions": [{
            "type": "Theirs", "status": "True", "reason": "Said", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        let status = weight(json!({}), json!({"status": foreign})).status_to_write(ready, now()).unwrap();
        assert_eq!((&status["lifecycle"], &status["conditions"][1]["type"]), (&json!("Public"), &json!("Theirs")));
        let written = weight(json!({}), json!({"status": status}));
        assert_eq!(written.status_to_write(ready, "2026-02-01T00:00:00Z".parse().unwrap()), None);
        let later = written.status_to_write(None, "2026-02-01T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(later["conditions"][0]["lastTransitionTime"], "2026-02-01T00:00:00Z");
        assert!(written.serves_the_same(&weight(json!({}), json!({"status": {"state": "Ready"}}))));
        let by_hand = json!([{"manager": "kubectl-patch", "fieldsV1": {"f:status": {"f:state": {}}}}]);
        let metadata = json!({"name": "legal", "managedFields": by_hand});
        assert_eq!(weight(json!({}), json!({"metadata": metadata})).status_to_write(None, now()), None);
        let deleted = json!({"metadata": {"name": "legal", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(weight(json!({}), deleted).status_to_write(ready, now()), None);
    }

    #[test]
    fn a_uri_that_nothing_can_fetch_has_a_remedy() {
        for uri in [
            "hf://a/b",
            "hf://a/b@main",
            "oci://n/a/b/c/o/d/e",
            "oci://registry/image",
            "pvc://claim/a",
            "pvc://ns:claim/a",
            "local:///a",
            "s3://b/p",
            "az://a/c/p",
        ] {
            assert_eq!(storage_flaw(uri), None, "{uri}");
        }
        for (uri, remedy) in [
            ("", "write a URI"),
            ("/mnt/a", "write a URI"),
            ("hf://a", "write hf://"),
            ("oci://n/a/b/c", "write oci://n/"),
            ("pvc:///a", "write pvc://"),
            ("local://./a", "write local:///"),
            ("s3://", "add a location"),
            ("ftp://a/b", "start it with"),
        ] {
            assert!(storage_flaw(uri).unwrap().contains(remedy), "{uri}");
        }
    }
}
