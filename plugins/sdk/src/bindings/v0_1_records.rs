//! Converts between the newest records, which policies use, and those of 0.1.0: its questions have fewer fields, and so do its answers.

use super::v0_1::{
    exports::pointsman::policy::{metadata_propagation, pod_templating, runtime_selection},
    pointsman::policy::types,
};
use pointsman_interface::{
    Failure, Reason, Role, metadata_propagation as newest_metadata,
    pod_templating::{self as newest_pods, Action, Operation},
    runtime_selection::{self as newest_runtimes, Eligible, Verdict},
};
use serde_json::Value;

impl From<types::Role> for Role {
    fn from(role: types::Role) -> Self {
        match role {
            types::Role::Engine => Self::Engine,
            types::Role::Decoder => Self::Decoder,
            types::Role::Router => Self::Router,
            types::Role::Leader => Self::Leader,
            types::Role::Worker => Self::Worker,
            types::Role::Main => Self::Main,
            types::Role::Prefill => Self::Prefill,
            types::Role::Scheduler => Self::Scheduler,
            types::Role::Job => Self::Job,
            types::Role::Server => Self::Server,
        }
    }
}

impl From<Failure> for types::Failure {
    fn from(Failure { message, field, .. }: Failure) -> Self {
        Self {
            message: match field {
                Some(field) => format!("{field}: {message}"),
                None => message,
            },
        }
    }
}

impl From<runtime_selection::Request> for newest_runtimes::Request {
    fn from(request: runtime_selection::Request) -> Self {
        let runtime_selection::Request { subject, model, candidates, named, now } = request;
        let candidates = candidates.into_iter().map(Into::into).collect();
        Self { subject, model: model.into(), candidates, named, now, ..Self::default() }
    }
}

impl From<runtime_selection::Model> for newest_runtimes::Model {
    fn from(model: runtime_selection::Model) -> Self {
        let runtime_selection::Model {
            kind,
            namespace,
            name,
            labels,
            annotations,
            disabled,
            format,
            framework,
            model_type,
            architecture,
            quantization,
            parameter_size,
            capabilities,
        } = model;
        Self {
            kind,
            namespace,
            name,
            labels,
            annotations,
            disabled,
            format,
            framework,
            model_type,
            architecture,
            quantization,
            parameter_size,
            capabilities,
            ..Self::default()
        }
    }
}

impl From<runtime_selection::SupportedModel> for newest_runtimes::SupportedModel {
    fn from(model: runtime_selection::SupportedModel) -> Self {
        let runtime_selection::SupportedModel { format, framework, architecture, quantization, auto_select, priority } = model;
        Self { format, framework, architecture, quantization, auto_select, priority, ..Self::default() }
    }
}

impl From<runtime_selection::Candidate> for newest_runtimes::Candidate {
    fn from(candidate: runtime_selection::Candidate) -> Self {
        let runtime_selection::Candidate { kind, namespace, name, labels, annotations, disabled, models, smallest, largest, protocols } =
            candidate;
        let models = models.into_iter().map(Into::into).collect();
        Self { kind, namespace, name, labels, annotations, disabled, models, smallest, largest, protocols, ..Self::default() }
    }
}

impl From<Verdict> for runtime_selection::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Eligible(Eligible { score, tie_break, reasons, .. }) => {
                Self::Eligible(runtime_selection::Eligible { score, tie_break, reasons })
            }
            Verdict::Excluded(Reason { code, message }) => Self::Excluded(Reason { code, message }),
            Verdict::Abstain => Self::Abstain,
        }
    }
}

impl From<metadata_propagation::Request> for newest_metadata::Request {
    fn from(request: metadata_propagation::Request) -> Self {
        let metadata_propagation::Request { subject, target, layers, labels, annotations, now } = request;
        let metadata_propagation::Target { group, kind, name, role, group_role, place } = target;
        let target =
            newest_metadata::Target { group, kind, name, role: role.map(Into::into), group_role: group_role.map(Into::into), place };
        Self { subject, target, layers, labels, annotations, now, ..Self::default() }
    }
}

impl From<pod_templating::Request> for newest_pods::Request {
    fn from(request: pod_templating::Request) -> Self {
        let pod_templating::Request { subject, role, group_role, layers, template, now } = request;
        Self { subject, role: role.into(), group_role: group_role.map(Into::into), layers, template, now, ..Self::default() }
    }
}

impl TryFrom<newest_pods::Answer> for pod_templating::Answer {
    type Error = Failure;

    fn try_from(answer: newest_pods::Answer) -> Result<Self, Failure> {
        let mut operations = Vec::with_capacity(answer.operations.len());
        for operation in answer.operations {
            spell_out(operation, &mut operations)?;
        }
        Ok(Self { operations, reasons: answer.reasons })
    }
}

/// Converts one operation to those of 0.1.0: `extend` becomes one `add` per element.
fn spell_out(operation: Operation, operations: &mut Vec<pod_templating::Operation>) -> Result<(), Failure> {
    let Operation { action, path, value, layer } = operation;
    let action = match action {
        Action::Add => pod_templating::Action::Add,
        Action::Remove => pod_templating::Action::Remove,
        Action::Replace => pod_templating::Action::Replace,
        Action::Extend => {
            let add = |last: &str, value: &Value| pod_templating::Operation {
                action: pod_templating::Action::Add,
                path: format!("{path}/{last}"),
                value: Some(value.to_string()),
                layer: layer.clone(),
            };
            match value.as_deref().map(serde_json::from_str) {
                Some(Ok(Value::Array(items))) => operations.extend(items.iter().map(|item| add("-", item))),
                Some(Ok(Value::Object(fields))) => {
                    operations.extend(fields.iter().map(|(name, value)| add(&name.replace('~', "~0").replace('/', "~1"), value)));
                }
                _ => return Err(Failure::fault(format!("{path} is extended by what is neither a list nor an object"))),
            }
            return Ok(());
        }
    };
    operations.push(pod_templating::Operation { action, path, value, layer });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn narrowed(operations: Vec<Operation>) -> Vec<(pod_templating::Action, String, Option<String>)> {
        let answer = newest_pods::Answer { operations, ..newest_pods::Answer::default() };
        let narrowed = pod_templating::Answer::try_from(answer).unwrap();
        narrowed.operations.into_iter().map(|operation| (operation.action, operation.path, operation.value)).collect()
    }

    #[test]
    fn a_host_of_0_1_0_gets_each_element_by_itself() {
        let env = Operation::extend("/spec/env", &["a", "b"], "user").unwrap();
        let labels = Operation::extend("/metadata/labels", &serde_json::json!({"a/b~c": "d"}), "user").unwrap();
        let removed = Operation::remove("/spec/x", "plugin");
        let seen = narrowed(vec![env, labels, removed]);
        let add = |path: &str, value: &str| (pod_templating::Action::Add, path.to_owned(), Some(value.to_owned()));
        let expected = [
            add("/spec/env/-", "\"a\""),
            add("/spec/env/-", "\"b\""),
            add("/metadata/labels/a~1b~0c", "\"d\""),
            (pod_templating::Action::Remove, "/spec/x".to_owned(), None),
        ];
        assert_eq!(seen, expected);
        let wrong = Operation::extend("/spec/env", &7, "user").unwrap();
        let answer = newest_pods::Answer { operations: vec![wrong], ..newest_pods::Answer::default() };
        assert!(pod_templating::Answer::try_from(answer).is_err());
    }

    #[test]
    fn a_host_of_0_1_0_is_told_the_field_in_the_sentence() {
        let failure = types::Failure::from(Failure::refusal("there are too many").at("spec.engine.runner.args"));
        assert_eq!(failure.message, "spec.engine.runner.args: there are too many");
        assert_eq!(types::Failure::from(Failure::fault("no")).message, "no");
    }
}
