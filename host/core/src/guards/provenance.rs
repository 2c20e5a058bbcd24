//! Who asked for each field of a planned object.
//!
//! Policies are strangers' code, and what they put out is applied. So rules look at it before, and their measure is what somebody other than
//! a plugin has asked for: a layer (the runtime, the service ...), the host's own frame, or an admin's configuration of a plugin. The host
//! finds that out by itself, from what the layers hold; that a plugin says whose wish it fulfils counts for nothing.

mod facts;
mod labels;
mod line;
mod list;
mod path;
mod pod;
mod said;
pub mod select;
#[cfg(test)]
mod tests;
mod writer;

use crate::{
    decide::{
        AskedPlugin as Plugin,
        templating::{Inputs, Templated},
    },
    plan::{Decided, Object},
    subject_kind::COMPONENT,
    workload::{GroupRole, Workload},
};
use facts::{CONFIG, Configs, Facts};
use labels::{MAPS, MetadataOwner, MetadataProvenance};
use path::Path;
use pod::PodProvenance;
use pointsman_sandbox::{
    digest::Digest,
    point::{Role, propagation::Place},
};
use said::{Contents, HOST, PodLayers, fields};
use serde_json::{Value, json};

/// What an administrator has bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdminConfigs<'a> {
    /// The configurations of all plugins by the names of their `PolicyPlugins`, those of built-in ones with all defaults filled in.
    pub configs: &'a [(String, Value)],
}

/// Who asked for the fields of one planned object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldProvenance {
    /// Its fields, in the order in which the object has them.
    pub fields: Vec<Field>,
    /// Whether there are more, or longer ones, than anybody could look at. Then nothing is known of the object.
    pub too_large: bool,
}

/// Bytes of fields' names and values that are told of one object. A name of a field has the names of all that it is in, so a plugin could
/// make many of few.
const MAX_PROVENANCE_BYTES: usize = 4 << 20;

/// A field, and who asked for it. Fields are scalars, commands as a whole, and what is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Where it is, as people write it: `spec.template.spec.containers[name=main].image`.
    pub field: String,
    /// The same without what tells items apart: `spec.template.spec.containers[].image`.
    pub place: String,
    /// The last name in it: `image`.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// The layers that asked for it, the host among them, or `config of NAME`. None: nobody but a plugin.
    pub by: Vec<String>,
    /// Whether an administrator asked for it: the host, a layer that only administrators write, or a plugin's configuration.
    pub admin: bool,
    /// The plugin that put it there without being asked, if that is known.
    pub plugin: Option<String>,
}

impl FieldProvenance {
    /// Each field with its value and who asked for it, as rules read them.
    pub fn layers(&self) -> Value {
        let entry = |field: &Field| (field.field.clone(), json!({"value": field.value, "by": field.by, "admin": field.admin}));
        Value::Object(self.fields.iter().map(entry).collect())
    }

    /// The fields that nobody has asked for, as rules read them.
    pub fn added(&self) -> Value {
        let nobodys = self.fields.iter().filter(|field| field.by.is_empty());
        let entry = |Field { field, place, name, value, plugin, .. }: &Field| json!({"field": field, "place": place, "name": name, "value": value, "plugin": plugin.as_deref().unwrap_or_default()});
        nobodys.map(entry).collect()
    }
}

/// Finds out who asked for the fields of one planned object.
pub fn field_provenance(object: &Object, decisions: &[Decided], settings: &AdminConfigs<'_>) -> FieldProvenance {
    let configs = Configs::collect(settings.configs);
    let text = |text: &str| Value::String(text.to_owned());
    let kind = [("apiVersion", text(&object.key.resource.api_version())), ("kind", text(object.key.resource.kind))];
    let names = [("name", text(&object.key.name)), ("namespace", text(&object.key.namespace))];
    let templates = templates(object);
    let mut walk = Walk { path: Path::default(), fields: Vec::new(), size: 0, admin_layers: Vec::new(), configs: &configs };
    for (name, value) in &kind {
        walk.below(name, |walk| walk.hosts(value));
    }
    walk.below("metadata", |walk| {
        for (name, value) in names.iter().filter(|(_, value)| value != "") {
            walk.below(name, |walk| walk.hosts(value));
        }
        let labels = MetadataProvenance::find(object, decisions, MetadataOwner::Object);
        let metadata = object.body.get("metadata").and_then(Value::as_object);
        for (name, value) in metadata.into_iter().flat_map(fields) {
            walk.below(name, |walk| match labels.filter(|_| MAPS.contains(&name)) {
                Some(labels) => labels.tell(walk, name, value, None),
                None => walk.hosts(value),
            });
        }
    });
    for (name, value) in object.body.as_object().into_iter().flat_map(fields).filter(|(name, _)| *name != "metadata") {
        walk.below(name, |walk| {
            walk.visit(value, &[HOST], &|walk, value| {
                let Some((_, role)) = templates.iter().find(|(template, _)| std::ptr::eq(*template, value)) else { return false };
                record_template(walk, object, decisions, value, *role);
                true
            });
        });
    }
    FieldProvenance { too_large: walk.size > MAX_PROVENANCE_BYTES, fields: walk.fields }
}

/// The digests of what a decision was taken from, which says who asked for what, and of what was answered and by whom.
pub(super) fn digests(decided: &Decided) -> [Digest; 2] {
    let by = |plugins: &[Plugin]| plugins.iter().flat_map(|asked| [asked.plugin.as_str(), " ", &asked.digest, "\n"]).collect::<String>();
    match decided {
        Decided::Selection(_, decision) => [decision.inputs, Digest::hash(by(&decision.plugins).as_bytes())],
        Decided::Template(_, inputs, decision) => {
            let answer = format!("{}{}\n{}", by(&decision.plugins), inputs.admin_layers.join(" "), decision.answer.template);
            [decision.inputs, Digest::hash(answer.as_bytes())]
        }
        Decided::Metadata(_, _, decision) => [decision.inputs, Digest::hash(by(&decision.plugins).as_bytes())],
    }
}

/// The configurations of those plugins that had a say in an object: what configures others says nothing there.
pub fn configs_for(object: &Object, decisions: &[Decided], all: &[(String, Value)]) -> Vec<(String, Value)> {
    let plugins = plugins(object, decisions);
    all.iter().filter(|(name, _)| plugins.contains(&name.as_str())).cloned().collect()
}

/// The plugins that had a say in an object.
pub(super) fn plugins<'d>(object: &Object, decisions: &'d [Decided]) -> Vec<&'d str> {
    let key = &object.key;
    let asked = decisions.iter().flat_map(|decided| match decided {
        Decided::Template(of, _, decision) if of == key => &decision.plugins[..],
        // What was taken over, and a RayCluster, have another name than they were decided on by.
        Decided::Template(of, inputs, decision)
            if of.resource == key.resource && is_of(object, inputs.group_role.unwrap_or(inputs.role)) =>
        {
            &decision.plugins[..]
        }
        Decided::Metadata(target, _, decision) if target.kind == key.resource.kind && target.name == key.name => &decision.plugins[..],
        _ => &[],
    });
    asked.map(|asked| asked.plugin.as_str()).collect()
}

/// Tells of a pod's template.
fn record_template<'o>(walk: &mut Walk<'o, '_>, object: &Object, decisions: &[Decided], template: &'o Value, role: Option<Role>) {
    if object.keeps_template {
        return walk.hosts(template);
    }
    let Some((inputs, answer)) = decided(object, decisions, role) else {
        // A template on which nobody has decided is one that nobody has asked for: rather a refusal than a hole.
        return walk.visit(template, &[], &|_, _| false);
    };
    let contents = Contents::read(inputs, answer);
    let speakers = PodLayers::collect(&contents);
    let facts = Facts::collect(&contents, walk.configs);
    let labels = MetadataProvenance::find(object, decisions, MetadataOwner::Pods(role));
    walk.admin_layers.clone_from(&inputs.admin_layers);
    PodProvenance::new(&contents, &speakers, &facts, answer).tell(walk, template, labels);
    walk.admin_layers.clear();
}

/// The templates of pods in an object, and of which role in a group their pods are.
fn templates(object: &Object) -> Vec<(&Value, Option<Role>)> {
    let found = Workload::find(object.key.resource).map(|workload| workload.templates_in(&object.body)).unwrap_or_default();
    found.into_iter().map(|(template, group_role)| (template, group_role.map(role))).collect()
}

fn role(group_role: GroupRole) -> Role {
    match group_role {
        GroupRole::Leader => Role::Leader,
        GroupRole::Worker => Role::Worker,
    }
}

/// The decision on a template of an object.
fn decided<'d>(object: &Object, decisions: &'d [Decided], role: Option<Role>) -> Option<(&'d Inputs, &'d Templated)> {
    let fitting = || {
        decisions.iter().filter_map(move |decided| match decided {
            Decided::Template(key, inputs, decision)
                if key.resource == object.key.resource
                    && key.namespace == object.key.namespace
                    && role.is_none_or(|role| inputs.role == role) =>
            {
                Some((key, inputs, &*decision.answer))
            }
            _ => None,
        })
    };
    let named = fitting().find(|(key, ..)| key.name == object.key.name);
    // What was taken over has the name that others gave it, and a RayCluster is decided on before it has one.
    let other = || fitting().find(|(_, inputs, _)| is_of(object, inputs.group_role.unwrap_or(inputs.role)));
    named.or_else(other).map(|(_, inputs, answer)| (inputs, answer))
}

/// The decisions on a template of an object: what its pods look like, and their labels.
pub fn template_decisions<'d>(object: &Object, decisions: &'d [Decided], role: Option<Role>) -> Vec<&'d Decided> {
    let key = &object.key;
    let fits = |name: &str, decided: Option<Role>, component: Option<Role>| {
        let is_named = name == key.name || component.is_some_and(|component| is_of(object, component));
        is_named && role.is_none_or(|role| decided == Some(role))
    };
    let concerns = |decided: &&Decided| match decided {
        Decided::Selection(..) => false,
        Decided::Template(of, inputs, _) => {
            of.resource == key.resource && fits(&of.name, Some(inputs.role), inputs.group_role.or(Some(inputs.role)))
        }
        Decided::Metadata(target, ..) => {
            let is_of_pods = target.place == Place::PodTemplate && target.group == key.resource.group && target.kind == key.resource.kind;
            is_of_pods && fits(&target.name, target.role, target.group_role.or(target.role))
        }
    };
    decisions.iter().filter(concerns).collect()
}

/// Whether an object is part of a component of OME's, by a label that no policy has a say in.
fn is_of(object: &Object, component: Role) -> bool {
    let component = match component {
        Role::Engine => "engine",
        Role::Decoder => "decoder",
        Role::Router => "router",
        _ => return false,
    };
    object.body.pointer("/metadata/labels").and_then(|labels| labels.get(COMPONENT)).is_some_and(|label| label == component)
}

/// Tells of a value at which a walk arrives, or says that it has not.
type ProvenanceSink<'t, 'o> = &'t dyn Fn(&mut Walk<'o, '_>, &'o Value) -> bool;

/// A walk through an object.
struct Walk<'o, 'c> {
    path: Path<'o>,
    fields: Vec<Field>,
    /// About what they take.
    size: usize,
    /// The layers of the template that it is in that only administrators write.
    admin_layers: Vec<String>,
    configs: &'c Configs<'c>,
}

impl<'o> Walk<'o, '_> {
    /// Goes into a field and back.
    fn below(&mut self, name: &'o str, then: impl FnOnce(&mut Self)) {
        self.path.enter(name);
        then(self);
        self.path.leave();
    }

    /// What the host builds.
    fn hosts(&mut self, value: &'o Value) {
        self.visit(value, &[HOST], &|_, _| false);
    }

    /// What the same layers have asked for, all of it but what is told otherwise.
    fn visit(&mut self, value: &'o Value, by: &[&str], otherwise: ProvenanceSink<'_, 'o>) {
        if otherwise(self, value) {
            return;
        }
        match value {
            Value::Object(object) if !object.is_empty() => {
                for (name, value) in fields(object) {
                    self.below(name, |walk| walk.visit(value, by, otherwise));
                }
            }
            Value::Array(items) if !items.is_empty() && self.path.name() != "command" => {
                for ((index, item), shown) in items.iter().enumerate().zip(list::names(self.path.name(), items)) {
                    self.path.enter_item(index, shown.as_ref());
                    self.visit(item, by, otherwise);
                    self.path.leave();
                }
            }
            Value::Null => {}
            _ => self.put(value, by.iter().map(|&layer| layer.to_owned()).collect(), None),
        }
    }

    /// Notes the field at which the walk is.
    fn put(&mut self, value: &Value, by: Vec<String>, plugin: Option<String>) {
        let said = value.as_str().map_or(16, str::len);
        self.size = self.size.saturating_add(self.path.field().len() + self.path.place().len() + said + 64);
        if self.size > MAX_PROVENANCE_BYTES {
            return;
        }
        let (field, place, name) = (self.path.field().to_owned(), self.path.place().to_owned(), self.path.name().to_owned());
        let admin = by.iter().any(|layer| layer == HOST || layer.starts_with(CONFIG) || self.admin_layers.contains(layer));
        self.fields.push(Field { field, place, name, value: value.clone(), by, admin, plugin });
    }
}
