//! Determines which plugin set a field in a template, if several changed it.

use super::path::Step;
use crate::decide::templating;
use pointsman_sandbox::point::templating::Action;
use serde_json::Value;

/// The maximum work for all fields of a template. The writers of the remaining fields are unknown: finding them isn't worth a plan's time.
const MAX_WRITER_STEPS: usize = 1 << 18;

/// The steps that built a template.
#[derive(Debug)]
pub(super) struct StepWriters<'s> {
    steps: &'s [templating::Step],
    /// The plugin, if there is only one.
    only: Option<&'s str>,
    left: usize,
}

impl<'s> StepWriters<'s> {
    pub(super) fn new(steps: &'s [templating::Step]) -> Self {
        let first = steps.first().map(|step| step.plugin.as_str());
        let only = first.filter(|first| steps.iter().all(|step| step.plugin == *first));
        Self { steps, only, left: MAX_WRITER_STEPS }
    }

    /// The last writer of a value at a place. Items are found by their contents, because their positions change from step to step.
    pub(super) fn last<'o>(&mut self, way: impl Iterator<Item = Step<'o>>, value: &Value) -> Option<String> {
        if let Some(only) = self.only {
            return Some(only.to_owned());
        }
        let way: Vec<Step<'o>> = way.collect();
        for step in self.steps.iter().rev() {
            let operation = &step.operation;
            let text = operation.value.as_deref().unwrap_or_default();
            self.left = self.left.checked_sub(1)?;
            let wrote = match below(&operation.path, &way) {
                PointerRelation::Not => false,
                // An operation within a list that is one field changes that field.
                PointerRelation::Within => true,
                PointerRelation::Above(_) if operation.action == Action::Remove => false,
                PointerRelation::Above(rest) => {
                    self.left = self.left.checked_sub(text.len() / 64)?;
                    serde_json::from_str(text).is_ok_and(|written: Value| holds(&written, rest, value))
                }
            };
            if wrote {
                return Some(step.plugin.clone());
            }
        }
        None
    }
}

/// The relation of an operation's path to a field.
enum PointerRelation<'w, 'o> {
    /// Unrelated.
    Not,
    /// The operation is at the field or above it; the rest of the way leads to the field.
    Above(&'w [Step<'o>]),
    /// The operation is within the field.
    Within,
}

fn below<'w, 'o>(pointer: &str, way: &'w [Step<'o>]) -> PointerRelation<'w, 'o> {
    let mut way = way;
    for token in pointer.split('/').skip(1) {
        let Some((step, rest)) = way.split_first() else { return PointerRelation::Within };
        let leads = match step {
            Step::Field(name) => *name == token || token.contains('~') && token.replace("~1", "/").replace("~0", "~") == *name,
            Step::Item(_) => token == "-" || token.bytes().all(|byte| byte.is_ascii_digit()),
        };
        if !leads {
            return PointerRelation::Not;
        }
        way = rest;
    }
    PointerRelation::Above(way)
}

fn holds(written: &Value, way: &[Step<'_>], value: &Value) -> bool {
    match way.split_first() {
        None => written == value,
        Some((Step::Field(name), rest)) => written.get(name).is_some_and(|inner| holds(inner, rest, value)),
        Some((Step::Item(_), rest)) => written.as_array().is_some_and(|items| items.iter().any(|item| holds(item, rest, value))),
    }
}
