//! 0.1.0, for plugins that were built for it. This code changes only to follow the newest records: if one of them gets a field, 0.1.0 gets
//! its own form of the record here.
//!
//! Questions are narrowed: newer fields are omitted, and the rest is borrowed. Answers are widened. Records that aren't declared here are
//! the same in both versions.

// wasmtime's derives generate unsafe implementations of its traits. wit/0.1.0 documents the cases and the types of the fields.
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

/// The role of a pod in its subject.
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

/// A role that 0.1.0 lacks becomes the role with the same place in a service, as in wit/0.2.0-draft/types.wit.
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

/// Why a plugin can't answer a question.
#[derive(Clone, Debug, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A sentence that describes the problem and the remedy.
    pub message: String,
}

impl From<Failure> for super::Failure {
    fn from(Failure { message }: Failure) -> Self {
        // In 0.1.0, a failure never counts against a plugin.
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

/// The model to serve.
#[derive(Clone, Debug, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_field_names)] // The interface has this name.
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

/// A runtime that may be able to serve the model.
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

/// The verdict on one candidate.
#[derive(Clone, Debug, Deserialize, ComponentType, Lift)]
#[component(variant)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The runtime can serve the model.
    #[component(name = "eligible")]
    Eligible(Eligible),
    /// The runtime can't serve the model, or must not.
    #[component(name = "excluded")]
    Excluded(Reason),
    /// The plugin has no opinion on the runtime.
    #[component(name = "abstain")]
    Abstain,
}

/// The score of a runtime that can serve the model.
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

/// The object that gets the labels and annotations.
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

/// The answer at pod-templating.
#[derive(Clone, Debug, Default, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(default, deny_unknown_fields)]
pub struct Templated {
    #[serde(deserialize_with = "image::list")]
    operations: Vec<Operation>,
    #[serde(deserialize_with = "image::list")]
    reasons: Vec<Reason>,
}

/// One change of the template.
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

/// An action on the template.
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

/// The question of scheduling-scoring, in the form for commands.
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
    /// The question as arguments of a component's function.
    pub fn arguments(self) -> (Question, u32, &'a [f64]) {
        (self.question, self.columns, self.matrix)
    }
}
