//! Paths within an object.

use std::borrow::Cow;

/// A step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'o> {
    /// Into a field.
    Field(&'o str),
    /// Into a list.
    Item(usize),
}

/// The current path of a walk, in readable form.
#[derive(Debug, Default)]
pub(super) struct Path<'o> {
    /// The path with the keys of items.
    field: String,
    /// The path without them.
    place: String,
    /// The steps, each with the previous lengths of both texts.
    steps: Vec<(Step<'o>, usize, usize)>,
}

impl<'o> Path<'o> {
    /// Enters a field.
    pub(super) fn enter(&mut self, name: &'o str) {
        self.steps.push((Step::Field(name), self.field.len(), self.place.len()));
        for text in [&mut self.field, &mut self.place] {
            if !text.is_empty() {
                text.push('.');
            }
            push(text, name);
        }
    }

    /// Enters an item of a list, with its key if it has one.
    pub(super) fn enter_item(&mut self, index: usize, key: Option<&(&'static str, Cow<'o, str>)>) {
        self.steps.push((Step::Item(index), self.field.len(), self.place.len()));
        if let Some((key, value)) = key {
            self.field.push('[');
            self.field.push_str(key);
            self.field.push('=');
            push(&mut self.field, value);
            self.field.push(']');
        } else {
            let index = format!("[{index}]");
            self.field.push_str(&index);
        }
        self.place.push_str("[]");
    }

    /// Goes back one step.
    pub(super) fn leave(&mut self) {
        if let Some((_, field, place)) = self.steps.pop() {
            self.field.truncate(field);
            self.place.truncate(place);
        }
    }

    /// The path with the keys of items.
    pub(super) fn field(&self) -> &str {
        &self.field
    }

    /// The path without them.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The last name of the path.
    pub(super) fn name(&self) -> &'o str {
        let names = self.steps.iter().rev().filter_map(|(step, ..)| match step {
            Step::Field(name) => Some(*name),
            Step::Item(_) => None,
        });
        names.take(1).next().unwrap_or_default()
    }

    /// The number of steps.
    pub(super) fn length(&self) -> usize {
        self.steps.len()
    }

    /// The steps after the first `first` ones.
    pub(super) fn behind(&self, first: usize) -> impl Iterator<Item = Step<'o>> {
        self.steps.iter().skip(first).map(|(step, ..)| *step)
    }
}

/// A name with a dot, such as a label's, would otherwise look like two names.
fn push(text: &mut String, name: &str) {
    if name.contains(['.', '[', ']', '"']) {
        let quoted = format!("{name:?}");
        text.push_str(&quoted);
    } else {
        text.push_str(name);
    }
}
