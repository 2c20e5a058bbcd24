//! The operations that turn the host's frame into the finished template.
//!
//! `pointsman explain` shows them, so each contains its source. Everything from one layer is one operation. A value with several sources is
//! split.

use crate::{
    node::{By, Form, Node},
    place::{Keyed, SpecPosition},
};
use pointsman_plugin::{
    Failure,
    pod_templating::{Action, Operation},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The maximum number of levels that are split. The host accepts paths of at most 64 levels.
const DEEPEST: usize = 24;

/// The operations between the frame and the finished spec.
pub(crate) fn between(frame: Option<&Value>, spec: &Node<'_>) -> Result<Vec<Operation>, Failure> {
    let mut steps = Steps { operations: Vec::new() };
    let none = Value::Object(Map::new());
    if frame.is_none() {
        steps.add("/spec", &none, By::PLUGIN)?;
    }
    steps.change("/spec", frame.unwrap_or(&none), spec, SpecPosition::Pod, 0)?;
    Ok(steps.operations)
}

/// The operations that add annotations to the template's metadata.
pub(crate) fn annotate(metadata: Option<&Value>, annotations: &BTreeMap<&'static str, Node<'_>>) -> Result<Vec<Operation>, Failure> {
    let mut steps = Steps { operations: Vec::new() };
    let Some(first) = annotations.values().next() else { return Ok(Vec::new()) };
    let metadata = metadata.and_then(Value::as_object);
    let none = Value::Object(Map::new());
    if metadata.is_none() {
        steps.add("/metadata", &none, first.by)?;
    }
    let path = "/metadata/annotations";
    if !metadata.is_some_and(|metadata| metadata.get("annotations").is_some_and(Value::is_object)) {
        steps.add(path, &none, first.by)?;
    }
    annotations.iter().try_for_each(|(key, value)| steps.add(&below(path, key), value, value.by))?;
    Ok(steps.operations)
}

struct Steps {
    operations: Vec<Operation>,
}

impl Steps {
    fn add(&mut self, path: &str, value: &impl Serialize, by: By<'_>) -> Result<(), Failure> {
        self.operations.push(Operation::add(path, value, by.layer)?);
        Ok(())
    }

    fn put(&mut self, action: Action, path: &str, value: &impl Serialize, by: By<'_>) -> Result<(), Failure> {
        self.operations.push(match action {
            Action::Replace => Operation::replace(path, value, by.layer)?,
            _ => Operation::add(path, value, by.layer)?,
        });
        Ok(())
    }

    /// Changes the existing value to the node.
    fn change(&mut self, path: &str, old: &Value, node: &Node<'_>, place: SpecPosition, depth: usize) -> Result<(), Failure> {
        if node.is(old) {
            return Ok(());
        }
        let (Value::Object(old), Form::Object(new)) = (old, &node.form) else {
            return self.build(Action::Replace, path, node, place, depth);
        };
        if depth > DEEPEST || matches!(place, SpecPosition::Whole) {
            return self.build(Action::Replace, path, node, place, depth);
        }
        let mut gone: Vec<_> =
            old.iter().filter(|(name, value)| !value.is_null() && !new.contains_key(*name)).map(|(name, _)| name).collect();
        gone.sort_unstable();
        self.operations.extend(gone.into_iter().map(|name| Operation::remove(below(path, name), By::PLUGIN.layer)));
        for (name, node) in new {
            let path = below(path, name);
            match old.get(name).filter(|old| !old.is_null()) {
                Some(old) => self.change(&path, old, node, place.field(name), depth + 1)?,
                None => self.build(Action::Add, &path, node, place.field(name), depth + 1)?,
            }
        }
        Ok(())
    }

    /// Creates the node, or replaces the existing value with it.
    fn build(&mut self, action: Action, path: &str, node: &Node<'_>, place: SpecPosition, depth: usize) -> Result<(), Failure> {
        match (place, &node.form) {
            (SpecPosition::List(keyed), Form::List(items)) => {
                // Containers are always split, regardless of their sources.
                let first = if keyed.holds_containers() { None } else { items.first().and_then(Node::sole) };
                let begun = self.begin(action, path, items, first.unwrap_or(node.by), first)?;
                let mut others = items.iter().enumerate().skip(begun);
                others.try_for_each(|(index, item)| self.item(path, index, item, keyed, depth + 1))
            }
            (SpecPosition::Words, Form::List(words)) => {
                let first = words.first().and_then(Node::sole);
                let begun = self.begin(action, path, words, first.unwrap_or(node.by), first)?;
                words.iter().skip(begun).try_for_each(|word| self.add(&below(path, "-"), word, word.by))
            }
            (_, Form::Object(fields)) if depth <= DEEPEST && node.sole().is_none() => {
                // The layer with the lowest precedence comes first, in one operation.
                let by = fields.values().filter_map(Node::sole).min_by_key(|by| by.rank).unwrap_or(node.by);
                self.parts(action, (path, path), node, |_, part| part.sole() == Some(by), by, place, depth)
            }
            _ => self.put(action, path, node, node.sole().unwrap_or_else(|| node.strongest())),
        }
    }

    /// Writes a list with only its first items, as far as they have the same single source. Returns their number.
    fn begin(&mut self, action: Action, path: &str, items: &[Node<'_>], by: By<'_>, first: Option<By<'_>>) -> Result<usize, Failure> {
        let begun = items.iter().take_while(|item| first.is_some() && item.sole() == first).count();
        self.put(action, path, &&items[..begun], by)?;
        Ok(begun)
    }

    /// Appends an item to a list.
    fn item(&mut self, list: &str, index: usize, item: &Node<'_>, keyed: &Keyed, depth: usize) -> Result<(), Failure> {
        let end = below(list, "-");
        let named = item.fields().into_iter().flatten().find(|(name, _)| keyed.is_key(name)).map_or(item.by, |(_, key)| key.by);
        let path = below(list, &index.to_string());
        if keyed.holds_containers() {
            return self.parts(Action::Add, (&end, &path), item, |name, _| keyed.is_key(name), named, keyed.item, depth);
        }
        let mut others = item.fields().into_iter().flatten().filter(|(name, _)| !keyed.is_key(name)).map(|(_, part)| part.sole());
        let first = others.next().unwrap_or(Some(named));
        if let Some(by) = first.filter(|_| others.all(|other| other == first)) {
            return self.add(&end, item, by);
        }
        let first = |name: &str, part: &Node<'_>| keyed.is_key(name) || part.sole() == Some(named);
        self.parts(Action::Add, (&end, &path), item, first, named, keyed.item, depth)
    }

    /// Writes an object with some of its fields, and then the others. The two paths are the path of the operation, and the path of the
    /// object afterwards.
    #[allow(clippy::too_many_arguments, reason = "they are what there is to say, and both callers say it in a line")]
    fn parts<'n, 'a: 'n>(
        &mut self,
        action: Action,
        (put, then): (&str, &str),
        node: &'n Node<'a>,
        first: impl Fn(&str, &Node<'a>) -> bool,
        by: By<'_>,
        place: SpecPosition,
        depth: usize,
    ) -> Result<(), Failure> {
        let Some(fields) = node.fields() else { return Ok(()) };
        let begun = fields.iter().filter(|(name, part)| first(name, part)).map(|(name, part)| (name.clone(), part.clone())).collect();
        self.put(action, put, &Node { by: node.by, form: Form::Object(begun) }, by)?;
        for (name, part) in fields.iter().filter(|(name, part)| !first(name, part)) {
            self.build(Action::Add, &below(then, name), part, place.field(name), depth + 1)?;
        }
        Ok(())
    }
}

fn below(path: &str, step: &str) -> String {
    if step.contains(['~', '/']) {
        return format!("{path}/{}", step.replace('~', "~0").replace('/', "~1"));
    }
    format!("{path}/{step}")
}
