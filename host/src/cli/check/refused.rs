//! Rules and plugins of the files that can't be used.

use super::{
    finding::{Finding, Severity},
    object::Object,
};
use crate::cli::offline::{fields, files::SourceLocation, policies::Refused};
use pointsman_core::{
    rules::rule::{Flaw, RuleError},
    structural::Step,
};
use pointsman_crds::policy::rule::ValidationRuleSpec;
use std::sync::Arc;

/// Tells why something can't be used, at the object that brings it.
pub(super) fn report_refused(refused: &Refused<'_>, objects: &mut [Object]) {
    let place = match refused {
        Refused::Rule { rule, .. } => &rule.place,
        Refused::Plugin { plugin, .. } => &plugin.place,
    };
    let Some(object) = objects.iter_mut().find(|object| same(&object.place, place)) else { return };
    let found = |path: &[Step], message: String| {
        let (place, field) = fields::locate(place, path);
        Finding::new(Severity::Error, &place, &object.named, field, message)
    };
    let findings = match refused {
        Refused::Rule { rule, error: RuleError::Expressions(flaws) } => {
            flaws.iter().map(|flaw| found(&steps(&rule.rule.spec, &flaw.field), flaw_message(flaw))).collect()
        }
        // The schema has told it already, where it tells anything.
        Refused::Rule { error: RuleError::Spec(_), .. } if object.is_bad() => Vec::new(),
        Refused::Rule { error, .. } => vec![found(&[Step::Field("spec".to_owned())], error.to_string())],
        Refused::Plugin { why, .. } => vec![found(&[], format!("it can't be loaded: {why}"))],
    };
    object.findings.extend(findings);
}

fn same(one: &SourceLocation, other: &SourceLocation) -> bool {
    Arc::ptr_eq(&one.file, &other.file) && one.line == other.line
}

/// What is wrong with an expression, and where in it; the field is told beside it.
fn flaw_message(flaw: &Flaw) -> String {
    let whole = flaw.to_string();
    whole.strip_prefix(&format!("{}: ", flaw.field)).map_or_else(|| whole.clone(), str::to_owned)
}

/// The way to a field of a rule's spec that is called by its name or number: `variables[mine].expression`, `validations[0].expression`.
fn steps(spec: &ValidationRuleSpec, field: &str) -> Vec<Step> {
    let step = |name: &str| Step::Field(name.to_owned());
    let whole = vec![step("spec")];
    let Some((list, rest)) = field.split_once('[') else { return [whole, vec![step(field)]].concat() };
    let Some((item, name)) = rest.rsplit_once("].") else { return [whole, vec![step(list)]].concat() };
    let number = match list {
        "matchConditions" => spec.match_conditions.iter().position(|condition| condition.name == item),
        "variables" => spec.variables.iter().position(|variable| variable.name == item),
        _ => item.parse().ok(),
    };
    let inner = number.map_or_else(Vec::new, |number| vec![Step::Item(number), step(name)]);
    [whole, vec![step(list)], inner].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_flaw_is_found_where_its_field_stands() {
        let spec: ValidationRuleSpec = serde_json::from_value(json!({
            "variables": [{"name": "a", "expression": "1"}, {"name": "b", "expression": "2"}],
            "matchConditions": [{"name": "x.y", "expression": "true"}],
            "validations": [{"expression": "true"}],
        }))
        .unwrap();
        let field = |name: &str| Step::Field(name.to_owned());
        assert_eq!(steps(&spec, "variables[b].expression"), [field("spec"), field("variables"), Step::Item(1), field("expression")]);
        assert_eq!(
            steps(&spec, "matchConditions[x.y].expression"),
            [field("spec"), field("matchConditions"), Step::Item(0), field("expression")]
        );
        assert_eq!(
            steps(&spec, "validations[0].messageExpression"),
            [field("spec"), field("validations"), Step::Item(0), field("messageExpression")]
        );
        assert_eq!(steps(&spec, "validations"), [field("spec"), field("validations")]);
        let flaw = Flaw { field: "validations[0].expression".into(), at: (1, 3), message: "it is wrong".into() };
        assert_eq!(flaw_message(&flaw), "column 3: it is wrong");
    }
}
