//! 0.1.0, as plugins that were built for it take questions and give answers. Nothing here ever changes but to follow the newest records:
//! where one of them gets a field, 0.1.0 keeps its own form of it here.
//!
//! Questions are narrowed: what came later is left out, and borrowed is what stays. Answers are widened. Records that are missing here are
//! still the same in both.

// wasmtime's derive implements its traits, which are unsafe to implement by hand. Cases and the types of fields are told by wit/0.1.0.
#![allow(unsafe_code, unused_qualifications, missing_docs, clippy::missing_fields_in_debug)]

use super::{
    Entry, Question, Reason, Subject, image,
    propagation::{self, Place, Placed},
    scoring,
    selection::{self, Supported, Versioned},
    templating,
};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

/// What a pod does for its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ComponentType, Lower)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Role {
    #[component(name = "engine")]
    Engine,
    #[component(name = "decoder")]
    Decoder,
    #[component(name = "router")]
    Router,
    #[component(name = "leader")]
    Leader,
    #[component(name = "worker")]
    Worker,
    #[component(name = "main")]
    Main,
    #[component(name = "prefill")]
    Prefill,
    #[component(name = "scheduler")]
    Scheduler,
    #[component(name = "job")]
    Job,
    #[component(name = "server")]
    Server,
}

/// A role that 0.1.0 lacks is the one that it has for the same place in a service, as wit/0.2.0-draft/types.wit says.
impl From<super::Role> for Role {
    fn from(role: super::Role) -> Self {
        match role {
            super::Role::Engine => Self::Engine,
            super::Role::Decoder => Self::Decoder,
            super::Role::Router => Self::Router,
            super::Role::Leader => Self::Leader,
            super::Role::Worker => Self::Worker,
            super::Role::Main => Self::Main,
            super::Role::Prefill => Self::Prefill,
            super::Role::Scheduler | super::Role::Tokenizer => Self::Scheduler,
            super::Role::Job | super::Role::Trainer | super::Role::Launcher => Self::Job,
            super::Role::Server => Self::Server,
        }
    }
}

/// Why a question can't be answered.
#[derive(Clone, Debug, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A sentence that says what is wrong and what to do about it.
    pub message: String,
}

impl From<Failure> for super::Failure {
    fn from(Failure { message }: Failure) -> Self {
        // It was never held against a plugin.
        Self::refusal(message)
    }
}

/// The question of runtime-selection.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct Selecting<'a> {
    subject: &'a Subject,
    model: Model<'a>,
    candidates: Vec<Candidate<'a>>,
    named: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<u64>,
}

/// The model that is to be served.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_field_names)] // The interface names the field so.
pub struct Model<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    labels: &'a [Entry],
    annotations: &'a [Entry],
    disabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a Versioned>,
    #[serde(skip_serializing_if = "Option::is_none")]
    framework: Option<&'a Versioned>,
    #[component(name = "model-type")]
    #[serde(skip_serializing_if = "Option::is_none")]
    model_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    architecture: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantization: Option<&'a str>,
    #[component(name = "parameter-size")]
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter_size: Option<&'a str>,
    capabilities: &'a [String],
}

/// A runtime that might serve the model.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
pub struct Candidate<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    labels: &'a [Entry],
    annotations: &'a [Entry],
    disabled: bool,
    models: Vec<SupportedModel<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    largest: Option<&'a str>,
    protocols: &'a [String],
}

/// One kind of model that a runtime supports.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct SupportedModel<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a Supported>,
    #[serde(skip_serializing_if = "Option::is_none")]
    framework: Option<&'a Supported>,
    #[serde(skip_serializing_if = "Option::is_none")]
    architecture: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quantization: Option<&'a str>,
    #[component(name = "auto-select")]
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_select: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
}

impl<'a> From<selection::RequestRef<'a>> for Selecting<'a> {
    fn from(request: selection::RequestRef<'a>) -> Self {
        let selection::RequestRef { subject, model, candidates, named, now, .. } = request;
        Self { subject, model: model.into(), candidates: candidates.iter().map(Into::into).collect(), named, now }
    }
}

impl<'a> From<&'a selection::Model> for Model<'a> {
    fn from(model: &'a selection::Model) -> Self {
        Self {
            kind: &model.kind,
            namespace: &model.namespace,
            name: &model.name,
            labels: &model.labels,
            annotations: &model.annotations,
            disabled: model.disabled,
            format: model.format.as_ref(),
            framework: model.framework.as_ref(),
            model_type: model.model_type.as_deref(),
            architecture: model.architecture.as_deref(),
            quantization: model.quantization.as_deref(),
            parameter_size: model.parameter_size.as_deref(),
            capabilities: &model.capabilities,
        }
    }
}

impl<'a> From<&'a selection::Candidate> for Candidate<'a> {
    fn from(candidate: &'a selection::Candidate) -> Self {
        Self {
            kind: &candidate.kind,
            namespace: &candidate.namespace,
            name: &candidate.name,
            labels: &candidate.labels,
            annotations: &candidate.annotations,
            disabled: candidate.disabled,
            models: candidate.models.iter().map(Into::into).collect(),
            smallest: candidate.smallest.as_deref(),
            largest: candidate.largest.as_deref(),
            protocols: &candidate.protocols,
        }
    }
}

impl<'a> From<&'a selection::SupportedModel> for SupportedModel<'a> {
    fn from(model: &'a selection::SupportedModel) -> Self {
        Self {
            format: model.format.as_ref(),
            framework: model.framework.as_ref(),
            architecture: model.architecture.as_deref(),
            quantization: model.quantization.as_deref(),
            auto_select: model.auto_select,
            priority: model.priority,
        }
    }
}

/// What became of one candidate.
#[derive(Clone, Debug, Deserialize, ComponentType, Lift)]
#[component(variant)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It can serve the model.
    #[component(name = "eligible")]
    Eligible(Eligible),
    /// It can't, or must not.
    #[component(name = "excluded")]
    Excluded(Reason),
    /// The plugin has nothing to say of it.
    #[component(name = "abstain")]
    Abstain,
}

/// What speaks for a runtime.
#[derive(Clone, Debug, Default, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Eligible {
    score: f64,
    #[component(name = "tie-break")]
    #[serde(deserialize_with = "image::list")]
    tie_break: Vec<f64>,
    #[serde(deserialize_with = "image::list")]
    reasons: Vec<Reason>,
}

impl From<Verdict> for selection::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Eligible(Eligible { score, tie_break, reasons }) => {
                Self::Eligible(selection::Eligible { score, tie_break, reasons, ..selection::Eligible::default() })
            }
            Verdict::Excluded(reason) => Self::Excluded(reason),
            Verdict::Abstain => Self::Abstain,
        }
    }
}

/// The question of metadata-propagation.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct Propagating<'a> {
    subject: &'a Subject,
    target: Target<'a>,
    layers: &'a [propagation::Layer],
    labels: &'a [Placed],
    annotations: &'a [Placed],
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<u64>,
}

/// What labels and annotations are for.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct Target<'a> {
    group: &'a str,
    kind: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    #[component(name = "group-role")]
    #[serde(skip_serializing_if = "Option::is_none")]
    group_role: Option<Role>,
    place: Place,
}

impl<'a> From<propagation::RequestRef<'a>> for Propagating<'a> {
    fn from(request: propagation::RequestRef<'a>) -> Self {
        let propagation::RequestRef { subject, target, layers, labels, annotations, now, .. } = request;
        let propagation::Target { group, kind, name, role, group_role, place } = target;
        let target = Target { group, kind, name, role: role.map(Into::into), group_role: group_role.map(Into::into), place: *place };
        Self { subject, target, layers, labels, annotations, now }
    }
}

/// The question of pod-templating.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct Templating<'a> {
    subject: &'a Subject,
    role: Role,
    #[component(name = "group-role")]
    #[serde(skip_serializing_if = "Option::is_none")]
    group_role: Option<Role>,
    layers: &'a [templating::Layer],
    #[serde(serialize_with = "image::json::serialize")]
    template: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<u64>,
}

impl<'a> From<templating::RequestRef<'a>> for Templating<'a> {
    fn from(request: templating::RequestRef<'a>) -> Self {
        let templating::RequestRef { subject, role, group_role, layers, template, now, .. } = request;
        Self { subject, role: role.into(), group_role: group_role.map(Into::into), layers, template, now }
    }
}

/// The answer of pod-templating.
#[derive(Clone, Debug, Default, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(default, deny_unknown_fields)]
pub struct Templated {
    #[serde(deserialize_with = "image::list")]
    operations: Vec<Operation>,
    #[serde(deserialize_with = "image::list")]
    reasons: Vec<Reason>,
}

/// One step on the way to the new template.
#[derive(Clone, Debug, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    action: Action,
    path: String,
    #[serde(default, with = "image::optional_json")]
    value: Option<String>,
    layer: String,
}

/// What is done at a place in the template.
#[derive(Clone, Copy, Debug, Deserialize, ComponentType, Lift)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Action {
    #[component(name = "add")]
    Add,
    #[component(name = "remove")]
    Remove,
    #[component(name = "replace")]
    Replace,
}

impl From<Templated> for templating::Answer {
    fn from(Templated { operations, reasons }: Templated) -> Self {
        Self { operations: operations.into_iter().map(Into::into).collect(), reasons }
    }
}

impl From<Operation> for templating::Operation {
    fn from(Operation { action, path, value, layer }: Operation) -> Self {
        let action = match action {
            Action::Add => templating::Action::Add,
            Action::Remove => templating::Action::Remove,
            Action::Replace => templating::Action::Replace,
        };
        Self { action, path, value, layer }
    }
}

/// The question of scheduling-scoring, as a command reads it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scoring<'a> {
    question: Question,
    columns: u32,
    #[serde(serialize_with = "image::numbers::serialize")]
    matrix: &'a [f64],
}

impl<'a> From<scoring::RequestRef<'a>> for Scoring<'a> {
    fn from(scoring::RequestRef { question, columns, matrix, .. }: scoring::RequestRef<'a>) -> Self {
        Self { question, columns, matrix }
    }
}

impl<'a> Scoring<'a> {
    /// As the arguments that a component's functions have.
    pub fn arguments(self) -> (Question, u32, &'a [f64]) {
        (self.question, self.columns, self.matrix)
    }
}
