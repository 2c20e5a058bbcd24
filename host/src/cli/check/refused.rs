//! Reports rules and plugins of the files that can't be used.

use super::{
    finding::{Finding, Severity},
    object::Object,
};
use crate::cli::offline::{
    fields,
    files::SourceLocation,
    policies::{PluginRefusal, Refused},
};
use pointsman_core::{
    guards::provenance::select::FieldPath,
    rules::rule::{Flaw, RuleError},
};
use std::{slice, sync::Arc};

/// Reports why a rule or plugin can't be used, on its object.
pub(super) fn report_refused(refused: &Refused<'_>, objects: &mut [Object]) {
    let place = match refused {
        Refused::Rule { rule, .. } => &rule.place,
        Refused::Plugin { plugin, .. } => &plugin.place,
    };
    let Some(object) = objects.iter_mut().find(|object| same(&object.place, place)) else { return };
    let findings = match refused {
        // The schema check has already reported it.
        Refused::Rule { error: RuleError::Spec(_), .. } if object.is_bad() => Vec::new(),
        Refused::Rule { error, .. } | Refused::Plugin { refusal: PluginRefusal::Conditions(error), .. } => wrong_fields(object, error),
        Refused::Plugin { refusal: PluginRefusal::Message(why), .. } => vec![of_object(object, format!("it can't be loaded: {why}"))],
    };
    object.findings.extend(findings);
}

fn same(one: &SourceLocation, other: &SourceLocation) -> bool {
    Arc::ptr_eq(&one.file, &other.file) && one.line == other.line
}

fn of_object(object: &Object, message: String) -> Finding {
    Finding::new(Severity::Error, &object.place, &object.named, String::new(), message)
}

/// The invalid fields with their lines, in the same words as at the other entry points.
fn wrong_fields(object: &Object, error: &RuleError) -> Vec<Finding> {
    let flaws = match error {
        RuleError::Spec(flaw) => slice::from_ref(flaw),
        RuleError::Expressions(flaws) => flaws,
        RuleError::Evaluator(_) => return vec![of_object(object, error.to_string())],
    };
    let finding = |flaw: &Flaw| {
        let steps = flaw.field.parse::<FieldPath>().map(|path| path.steps(&object.written)).unwrap_or_default();
        let (place, _) = fields::locate(&object.place, &steps);
        Finding::new(Severity::Error, &place, &object.named, flaw.field.clone(), flaw.inside())
    };
    flaws.iter().map(finding).collect()
}
