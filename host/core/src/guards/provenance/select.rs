//! Finds the fields at a path such as `spec.containers[0].args`, with their provenance.

use super::{
    AdminConfigs, Field, configs_for, decided, field_provenance,
    labels::{MAPS, MetadataOwner, MetadataProvenance},
    list,
    path::{Path, Step},
    role,
    said::HOST,
    writer::StepWriters,
};
use crate::{
    plan::{Decided, Object},
    structural,
    workload::{Template, Workload},
};
use pointsman_sandbox::point::Role;
use serde_json::Value;
use std::str::FromStr;

/// A path to fields, from the root of an object or of a pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    written: String,
    selectors: Vec<Selector>,
}

/// A step of a path, as entered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selector {
    /// A name.
    Name(String),
    /// A bracketed selector: an index, a key of an object, or the key of a list item.
    Item(String),
    /// A list item by a named key: `[name=main]`.
    Keyed(String, String),
    /// Each item.
    Each,
}

/// Why a text isn't a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a path to a field: write it as spec.containers[0].args, spec.template.spec.containers[main].args or /spec/replicas")]
pub struct NotAPath(String);

/// The value at a path in an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundPart {
    /// The path in full, from the object's root.
    pub path: String,
    /// The fields in the value.
    pub fields: Vec<FoundField>,
}

/// A field and its provenance.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundField {
    /// The field.
    pub field: Field,
    /// The plugin that set it, if one did.
    pub writer: Option<String>,
}

/// The end of the existing part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPart {
    /// The existing part, in full; empty for the whole object.
    pub path: String,
    /// The missing name.
    pub name: String,
    /// The names that exist there.
    pub known: Vec<String>,
    /// The number of existing steps.
    depth: usize,
}

impl MissingPart {
    /// The one that gets further.
    #[must_use]
    pub fn or_further(self, other: Self) -> Self {
        if other.depth > self.depth { other } else { self }
    }
}

impl FromStr for FieldPath {
    type Err = NotAPath;

    fn from_str(written: &str) -> Result<Self, NotAPath> {
        let selectors = if written.starts_with('/') { Some(pointer(written)) } else { selectors(written) };
        let selectors = selectors.filter(|selectors| !selectors.is_empty()).ok_or_else(|| NotAPath(written.to_owned()))?;
        Ok(Self { written: written.to_owned(), selectors })
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.written)
    }
}

/// Parses a JSON Pointer, in which `*` stands for each item.
fn pointer(text: &str) -> Vec<Selector> {
    let selector = |token: &str| match token {
        "*" => Selector::Each,
        _ if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()) => Selector::Item(token.to_owned()),
        _ => Selector::Name(token.replace("~1", "/").replace("~0", "~")),
    };
    text.split('/').skip(1).map(selector).collect()
}

fn selectors(text: &str) -> Option<Vec<Selector>> {
    let (mut found, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (selector, after) = bracketed(inner)?;
            found.push(selector);
            rest = after;
            continue;
        }
        // Every name except the first follows a dot.
        let name = if found.is_empty() { rest } else { rest.strip_prefix('.')? };
        let (name, after) = word(name, &['.', '['])?;
        found.push(Selector::Name(name));
        rest = after;
    }
    Some(found)
}

/// The selector in brackets, and the rest.
fn bracketed(text: &str) -> Option<(Selector, &str)> {
    if let Some(after) = text.strip_prefix(']').or_else(|| text.strip_prefix("*]")) {
        return Some((Selector::Each, after));
    }
    let (first, after) = word(text, &['=', ']'])?;
    if let Some(value) = after.strip_prefix('=') {
        let (value, after) = word(value, &[']'])?;
        return Some((Selector::Keyed(first, value), after.strip_prefix(']')?));
    }
    Some((Selector::Item(first), after.strip_prefix(']')?))
}

/// A word up to one of the delimiters, or a JSON string.
fn word<'t>(text: &'t str, ends: &[char]) -> Option<(String, &'t str)> {
    if text.starts_with('"') {
        let mut words = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let word = words.next()?.ok()?;
        return Some((word, text.get(words.byte_offset()..)?));
    }
    let end = text.find(ends).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (!word.is_empty()).then(|| (word.to_owned(), rest))
}

impl Selector {
    /// The steps from a value that it selects.
    fn steps<'v>(&self, value: &'v Value) -> Vec<Step<'v>> {
        match (self, value) {
            (Self::Name(name) | Self::Item(name), Value::Object(fields)) => {
                fields.get_key_value(name).map(|(name, _)| Step::Field(name)).into_iter().collect()
            }
            (Self::Item(item), Value::Array(items)) => {
                let number = || item.parse().ok().filter(|number| *number < items.len());
                items.iter().position(|value| goes_by(value, item)).or_else(number).map(Step::Item).into_iter().collect()
            }
            (Self::Keyed(key, wanted), Value::Array(items)) => items
                .iter()
                .position(|item| item.get(key).is_some_and(|value| is_text(value, wanted)))
                .map(Step::Item)
                .into_iter()
                .collect(),
            (Self::Each, Value::Array(items)) => (0..items.len()).map(Step::Item).collect(),
            _ => Vec::new(),
        }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Item(item) => write!(f, "[{item}]"),
            Self::Keyed(key, value) => write!(f, "[{key}={value}]"),
            Self::Each => f.write_str("[]"),
        }
    }
}

/// Whether an item of a list has this key.
fn goes_by(item: &Value, name: &str) -> bool {
    ["name", "key", "containerPort", "mountPath", "devicePath", "ip", "topologyKey"].iter().any(|key| is_text(&item[key], name))
}

fn is_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(value) => value == text,
        Value::Number(number) => number.to_string() == text,
        _ => false,
    }
}

/// The value at the end of a way.
fn value_at<'v>(root: &'v Value, way: &[Step<'_>]) -> &'v Value {
    way.iter().fold(root, |value, step| match step {
        Step::Field(name) => &value[*name],
        Step::Item(number) => &value[*number],
    })
}

/// A way in readable form: items are identified by their keys.
fn shown<'v>(root: &'v Value, way: &[Step<'v>]) -> String {
    let (mut path, mut value) = (Path::default(), root);
    for step in way {
        match step {
            Step::Field(name) => {
                path.enter(name);
                value = &value[*name];
            }
            Step::Item(number) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                path.enter_item(*number, list::names(path.name(), items).get(*number).and_then(Option::as_ref));
                value = &value[*number];
            }
        }
    }
    path.field().to_owned()
}

/// The names that a path may use at this value.
fn known(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.clone()).collect(),
        Value::Array(items) => {
            let name = |(number, item): (usize, &Value)| item["name"].as_str().map_or_else(|| number.to_string(), str::to_owned);
            items.iter().enumerate().map(name).collect()
        }
        _ => Vec::new(),
    }
}

impl FieldPath {
    /// The ways that a path selects in a value, or how far it gets.
    fn resolve<'v>(&self, root: &'v Value) -> Result<Vec<Vec<Step<'v>>>, MissingPart> {
        let mut ways: Vec<Vec<Step<'v>>> = vec![Vec::new()];
        for (depth, selector) in self.selectors.iter().enumerate() {
            let onward = |way: &Vec<Step<'v>>| {
                let steps = selector.steps(value_at(root, way)).into_iter();
                steps.map(|step| way.iter().copied().chain([step]).collect()).collect::<Vec<Vec<Step<'v>>>>()
            };
            let next: Vec<Vec<Step<'v>>> = ways.iter().flat_map(onward).collect();
            if next.is_empty() {
                let way = ways.first().map(Vec::as_slice).unwrap_or_default();
                let name = match selector {
                    Selector::Name(name) | Selector::Item(name) | Selector::Keyed(_, name) => name.clone(),
                    Selector::Each => selector.to_string(),
                };
                return Err(MissingPart { path: shown(root, way), name, known: known(value_at(root, way)), depth });
            }
            ways = next;
        }
        Ok(ways)
    }

    /// The steps of its first way in a value, as far as it exists.
    pub fn steps(&self, root: &Value) -> Vec<structural::Step> {
        let (mut way, mut value) = (Vec::new(), root);
        for selector in &self.selectors {
            let Some(step) = selector.steps(value).into_iter().next() else { break };
            value = value_at(value, &[step]);
            way.push(match step {
                Step::Field(name) => structural::Step::Field(name.to_owned()),
                Step::Item(number) => structural::Step::Item(number),
            });
        }
        way
    }

    /// The same path from the root of the object that contains a pod template.
    fn below(&self, template: &str) -> Self {
        Self { written: self.written.clone(), selectors: pointer(template).into_iter().chain(self.selectors.iter().cloned()).collect() }
    }

    /// The parts of an object at the path, from its root; or how far it gets. `configs` are the configurations of all plugins.
    pub fn in_object(&self, object: &Object, decisions: &[Decided], configs: &[(String, Value)]) -> Result<Vec<FoundPart>, MissingPart> {
        let manifest = object.manifest();
        let ways = self.resolve(&manifest)?;
        Ok(found(object, &manifest, &ways, decisions, configs))
    }

    /// The parts of an object at the path, from the roots of its pod templates; or how far it gets.
    pub fn in_pods(
        &self,
        object: &Object,
        decisions: &[Decided],
        configs: &[(String, Value)],
    ) -> Result<Vec<FoundPart>, Option<MissingPart>> {
        let (manifest, mut ways, mut missing) = (object.manifest(), Vec::new(), None);
        for template in Workload::find(object.key.resource).map(|workload| workload.templates).unwrap_or_default() {
            let below = self.below(template.path);
            match below.resolve(&manifest) {
                Ok(more) => ways.extend(more),
                Err(other) => {
                    let prefix = below.selectors.len() - self.selectors.len();
                    // An object doesn't need all templates of its kind.
                    let other = (other.depth >= prefix).then(|| MissingPart { depth: other.depth - prefix, ..other });
                    missing = match (missing.take(), other) {
                        (Some(one), Some(other)) => Some(MissingPart::or_further(one, other)),
                        (one, other) => one.or(other),
                    };
                }
            }
        }
        if ways.is_empty() { Err(missing) } else { Ok(found(object, &manifest, &ways, decisions, configs)) }
    }
}

fn found(object: &Object, manifest: &Value, ways: &[Vec<Step<'_>>], decisions: &[Decided], configs: &[(String, Value)]) -> Vec<FoundPart> {
    let configs = configs_for(object, decisions, configs);
    let all = field_provenance(object, decisions, &AdminConfigs { configs: &configs }).fields;
    let part = |way: &Vec<Step<'_>>| {
        let path = shown(manifest, way);
        let inside =
            |longer: &str, shorter: &str| longer.strip_prefix(shorter).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        // A command is one field.
        let wanted = all.iter().filter(|field| inside(&field.field, &path) || field.name == "command" && inside(&path, &field.field));
        let with_writer = |field: &Field| FoundField { writer: writer(object, manifest, decisions, field), field: field.clone() };
        let fields = wanted.map(with_writer).collect();
        FoundPart { path, fields }
    };
    ways.iter().map(part).collect()
}

/// The plugin that set a field.
fn writer(object: &Object, manifest: &Value, decisions: &[Decided], field: &Field) -> Option<String> {
    if field.by == [HOST] {
        return None;
    }
    let way = field.field.parse::<FieldPath>().ok()?.resolve(manifest).ok()?.into_iter().next()?;
    let template = template_ways(object, manifest).into_iter().find(|(template, _)| way.starts_with(template));
    let (start, owner, role) = match &template {
        Some((template, role)) => (template.len(), MetadataOwner::Pods(*role), *role),
        None => (0, MetadataOwner::Object, None),
    };
    let inner = way.get(start..)?;
    if let [Step::Field("metadata"), Step::Field(map), Step::Field(key)] = inner
        && MAPS.contains(map)
        && let Some(plugin) = MetadataProvenance::find(object, decisions, owner)?.writer(map, key)
    {
        return Some(plugin.to_owned());
    }
    template?;
    let (_, answer) = decided(object, decisions, role)?;
    StepWriters::new(&answer.steps).last(inner.iter().copied(), &field.value)
}

/// The ways to the pod templates in an object, each with the role of its pods in their group.
fn template_ways<'v>(object: &Object, manifest: &'v Value) -> Vec<(Vec<Step<'v>>, Option<Role>)> {
    let templates = Workload::find(object.key.resource).map(|workload| workload.templates).unwrap_or_default();
    let ways = |template: &Template| {
        let path = FieldPath { written: String::new(), selectors: pointer(template.path) };
        let role = template.group_role.map(role);
        path.resolve(manifest).unwrap_or_default().into_iter().map(move |way| (way, role)).collect::<Vec<_>>()
    };
    templates.iter().flat_map(ways).collect()
}
