//! Evaluates the CEL rules of a CRD (`x-kubernetes-validations`), as the API server does when an object is created.

use super::{Step, Violation, below, settled, shown, step};
use crate::rules::judge::unanswered;
use pointsman_sandbox::{
    call::CallError,
    evaluator::{Asking, Evaluator, Outcome, Program, Source, Validation, ValidationVerdict},
};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, collections::HashMap, sync::Arc};

/// The root with the value that a rule applies to.
const SELF: &str = "self";

/// The root with the value before the change, which only admission has.
const OLD: &str = "oldSelf";

/// The results of a CRD's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluated {
    /// The violations.
    pub violations: Vec<Violation>,
    /// The transition rules, each once, with the place and the expression: they can't be evaluated for an object without its previous
    /// state.
    pub not_evaluated: Vec<(String, String)>,
}

/// Evaluates the rules of a CRD's `openAPIV3Schema`, as JSON, for an object. No violation that `validate` finds in the object may be one
/// that `blocks`.
pub fn rules(object: &Value, schema: &Value, evaluator: &Evaluator) -> Evaluated {
    let object = settled(object, schema);
    let mut walk = Walk { evaluator, asking: None, programs: HashMap::new(), path: Vec::new(), evaluated: Evaluated::default() };
    walk.visit(&object, schema);
    walk.evaluated
}

/// A rule, compiled once for all places.
#[derive(Clone)]
enum Prepared {
    Program(Program),
    OfChanges,
}

struct Walk<'e> {
    evaluator: &'e Evaluator,
    asking: Option<Asking<'e>>,
    /// By the rule's expression and the message's expression.
    programs: HashMap<(String, Option<String>), Prepared>,
    path: Vec<Step>,
    evaluated: Evaluated,
}

impl Walk<'_> {
    fn visit(&mut self, value: &Value, schema: &Value) {
        // Rules don't apply to null.
        if value.is_null() {
            return;
        }
        self.evaluate(value, schema);
        for schema in schema["allOf"].as_array().into_iter().flatten() {
            self.visit(value, schema);
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(inner) = below(schema, name) {
                        self.below(step(schema, name), value, inner);
                    }
                }
            }
            Value::Array(items) => {
                for (number, item) in items.iter().enumerate() {
                    self.below(Step::Item(number), item, &schema["items"]);
                }
            }
            _ => {}
        }
    }

    fn below(&mut self, step: Step, value: &Value, schema: &Value) {
        self.path.push(step);
        self.visit(value, schema);
        self.path.pop();
    }

    /// Evaluates the rules at one place.
    fn evaluate(&mut self, value: &Value, schema: &Value) {
        let rules = schema["x-kubernetes-validations"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut bound = false;
        for rule in rules {
            let Prepared::Program(program) = self.prepare(rule) else {
                let told = (super::written(&self.path), rule_expression(rule).to_owned());
                if !self.evaluated.not_evaluated.contains(&told) {
                    self.evaluated.not_evaluated.push(told);
                }
                continue;
            };
            let root = (!bound).then(|| if self.path.is_empty() { Cow::Owned(resource(value)) } else { Cow::Borrowed(value) });
            bound = true;
            let (reported, omitted) = (value, matches!(value, Value::Object(_) | Value::Array(_)));
            let invalid =
                |what: &str| if omitted { format!("Invalid value: {what}") } else { format!("Invalid value: {}: {what}", shown(reported)) };
            match self.judge(&program, root.as_deref()) {
                Ok(Outcome::Judged(verdicts)) => match verdicts.into_iter().next() {
                    Some(ValidationVerdict::Broken(message)) => self.broken(rule, message, &invalid, reported),
                    Some(ValidationVerdict::Failed(problem)) => {
                        self.put(invalid(&format!("{} evaluating rule: {}", problem.message, rule_expression(rule))));
                    }
                    Some(ValidationVerdict::Holds) | None => {}
                },
                Ok(Outcome::Undecided(problem)) => {
                    self.put(invalid(&format!("{} evaluating rule: {}", problem.message, rule_expression(rule))));
                }
                Ok(Outcome::Unmatched(_)) => {}
                Err(error) => {
                    // After an error, the value must be bound again.
                    bound = false;
                    self.put(invalid(&format!("{} evaluating rule: {}", unanswered(&error), rule_expression(rule))));
                }
            }
        }
    }

    fn judge(&mut self, program: &Program, value: Option<&Value>) -> Result<Outcome, CallError> {
        let asking = match &mut self.asking {
            Some(asking) => asking,
            None => self.asking.insert(self.evaluator.ask()?),
        };
        if let Some(value) = value {
            asking.bind(SELF, Arc::from(value.to_string()));
        }
        asking.judge(program)
    }

    fn prepare(&mut self, rule: &Value) -> Prepared {
        let text = |name: &str| rule[name].as_str().map(str::to_owned);
        let (expression, message) = (text("rule").unwrap_or_default(), text("messageExpression"));
        let evaluator = self.evaluator;
        let make = |(expression, message): &(String, Option<String>)| {
            let roots = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let validation = Validation { expression: expression.clone(), message: message.clone() };
            let source = Source { roots: roots(&[SELF, OLD]), validations: vec![validation], ..Source::default() };
            if expression.contains(OLD) && reads_old(evaluator, &source) {
                return Prepared::OfChanges;
            }
            Prepared::Program(Program::new(Source { roots: roots(&[SELF]), ..source }))
        };
        let key = (expression, message);
        self.programs.entry(key).or_insert_with_key(make).clone()
    }

    fn broken(&mut self, rule: &Value, message: Option<String>, invalid: &dyn Fn(&str) -> String, value: &Value) {
        let written = rule["message"].as_str().map(str::trim).filter(|message| !message.is_empty());
        let message = message.map(|message| message.trim().to_owned()).filter(|message| !message.is_empty());
        let message = message.or_else(|| written.map(str::to_owned)).unwrap_or_else(|| format!("failed rule: {}", rule_expression(rule)));
        let message = match rule["reason"].as_str() {
            Some("FieldValueForbidden") => format!("Forbidden: {message}"),
            Some("FieldValueRequired") => format!("Required value: {message}"),
            Some("FieldValueDuplicate") => format!("Duplicate value: {}", shown(value)),
            _ => invalid(&message),
        };
        let steps = field_path(rule["fieldPath"].as_str().unwrap_or_default());
        let path = [self.path.as_slice(), steps.as_slice()].concat();
        self.evaluated.violations.push(Violation::new(&path, message));
    }

    fn put(&mut self, message: String) {
        self.evaluated.violations.push(Violation::new(&self.path, message));
    }
}

/// A resource in the form for a rule at the root of its schema: of its metadata, only the names.
fn resource(object: &Value) -> Value {
    let mut seen: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    let metadata = |name: &str| object["metadata"].get(name).map(|value| (name.to_owned(), value.clone()));
    let names: Map<String, Value> = ["name", "generateName"].into_iter().filter_map(metadata).collect();
    seen.insert("metadata".to_owned(), json!(names));
    Value::Object(seen)
}

/// The text that identifies a rule in messages.
fn rule_expression(rule: &Value) -> &str {
    let text = |name: &str| rule[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    text("message").or_else(|| text("rule")).unwrap_or_default()
}

/// Whether a rule is a transition rule. One that can't be inspected counts as one.
fn reads_old(evaluator: &Evaluator, source: &Source) -> bool {
    match evaluator.inspect(source) {
        Ok(Ok(paths)) => paths.iter().any(|path| path.root == OLD),
        Ok(Err(_)) | Err(_) => true,
    }
}

/// The steps of a rule's `fieldPath`, such as `.spec.names['a.b'].kind`.
fn field_path(text: &str) -> Vec<Step> {
    let (mut steps, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let key = rest.strip_prefix("['").and_then(|rest| rest.split_once("']"));
        if let Some((key, after)) = key {
            steps.push(Step::Key(key.replace("\\'", "'").replace("\\\\", "\\")));
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('.').unwrap_or(rest);
        let (name, after) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
        if name.is_empty() {
            break;
        }
        steps.push(Step::Field(name.to_owned()));
        rest = after;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::KINDS;

    #[test]
    fn a_field_path_leads_through_fields_and_keys() {
        let steps = |text| super::super::written(&field_path(text));
        assert_eq!(steps(".a.b['c.d'].e"), "a.b[c.d].e");
        assert_eq!((steps(""), steps(".a")), (String::new(), "a".to_owned()));
    }

    #[test]
    fn a_resource_has_no_metadata_but_its_names() {
        let object = json!({"kind": "A", "metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {}});
        assert_eq!(resource(&object), json!({"kind": "A", "metadata": {"name": "a"}, "spec": {}}));
    }

    /// The evaluator doesn't support the API server's escaped names for fields that are CEL keywords.
    #[test]
    fn no_rule_of_ours_needs_a_name_to_be_escaped() {
        fn collect(schema: &Value, found: &mut Vec<String>) {
            match schema {
                Value::Object(fields) => {
                    let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
                    found.extend(rules.filter_map(|rule| rule["rule"].as_str().map(str::to_owned)));
                    fields.values().for_each(|inner| collect(inner, found));
                }
                Value::Array(items) => items.iter().for_each(|inner| collect(inner, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        for served in KINDS {
            collect(&serde_json::to_value((served.crd)()).unwrap(), &mut found);
        }
        assert!(found.len() > 20);
        let escaped: Vec<_> = found.iter().filter(|rule| rule.contains("__")).collect();
        assert!(escaped.is_empty(), "{escaped:?}");
    }
}
