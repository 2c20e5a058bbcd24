//! Determines who requested each field of a planned object.
//!
//! Plugins are untrusted code, and their answers are applied. Rules therefore check the planned objects against what someone other than a
//! plugin has requested: a layer (the runtime, the service ...), the host's own frame, or an administrator's configuration of a plugin. The
//! host determines this itself, from the contents of the layers; what a plugin claims about the origin of a field is ignored.

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

/// The configurations that administrators have set.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdminConfigs<'a> {
    /// The configurations of all plugins by the names of their `PolicyPlugins`; for built-in ones with all defaults.
    pub configs: &'a [(String, Value)],
}

/// The provenance of the fields of one planned object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldProvenance {
    /// The fields, in the order of the object.
    pub fields: Vec<Field>,
    /// Whether the fields exceed the size limit. The provenance of such an object is unknown.
    pub too_large: bool,
}

/// The maximum total size of the fields' names and values per object, in bytes. The name of a field contains the names of its parents, so a
/// plugin could produce much text from a small object.
const MAX_PROVENANCE_BYTES: usize = 4 << 20;

/// A field and its provenance. Fields are scalars, whole commands, and empty values.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its readable path: `spec.template.spec.containers[name=main].image`.
    pub field: String,
    /// The path without the keys of items: `spec.template.spec.containers[].image`.
    pub place: String,
    /// The last name of the path: `image`.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// The layers that requested it (`host` for the host's frame), or `config of NAME`. Empty: only a plugin set it.
    pub by: Vec<String>,
    /// Whether an administrator requested it: the host, a layer that only administrators write, or a plugin's configuration.
    pub admin: bool,
    /// The plugin that set it without a request, if known.
    pub plugin: Option<String>,
}

impl FieldProvenance {
    /// Each field with its value and provenance, in the form that rules read.
    pub fn layers(&self) -> Value {
        let entry = |field: &Field| (field.field.clone(), json!({"value": field.value, "by": field.by, "admin": field.admin}));
        Value::Object(self.fields.iter().map(entry).collect())
    }

    /// The fields that nobody requested, in the form that rules read.
    pub fn added(&self) -> Value {
        let nobodys = self.fields.iter().filter(|field| field.by.is_empty());
        let entry = |Field { field, place, name, value, plugin, .. }: &Field| json!({"field": field, "place": place, "name": name, "value": value, "plugin": plugin.as_deref().unwrap_or_default()});
        nobodys.map(entry).collect()
    }
}

/// Determines the provenance of the fields of one planned object.
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

/// The digests of a decision's inputs, which determine who requested what, and of its answer with its plugins.
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

/// The configurations of the plugins that contributed to an object: other plugins' configurations request nothing there.
pub fn configs_for(object: &Object, decisions: &[Decided], all: &[(String, Value)]) -> Vec<(String, Value)> {
    let plugins = plugins(object, decisions);
    all.iter().filter(|(name, _)| plugins.contains(&name.as_str())).cloned().collect()
}

/// The plugins that contributed to an object.
pub(super) fn plugins<'d>(object: &Object, decisions: &'d [Decided]) -> Vec<&'d str> {
    let key = &object.key;
    let asked = decisions.iter().flat_map(|decided| match decided {
        Decided::Template(of, _, decision) if of == key => &decision.plugins[..],
        // Adopted objects and RayClusters have a name that differs from the one in the decision.
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

/// Records the fields of a pod template.
fn record_template<'o>(walk: &mut Walk<'o, '_>, object: &Object, decisions: &[Decided], template: &'o Value, role: Option<Role>) {
    if object.keeps_template {
        return walk.hosts(template);
    }
    let Some((inputs, answer)) = decided(object, decisions, role) else {
        // If there is no decision for a template, nobody requested its fields: a denial is safer than a gap.
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

/// The pod templates in an object, each with the role of its pods in their group.
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
    // Adopted objects have the name that the other controller gave them, and the decision for a RayCluster is made before it has a name.
    let other = || fitting().find(|(_, inputs, _)| is_of(object, inputs.group_role.unwrap_or(inputs.role)));
    named.or_else(other).map(|(_, inputs, answer)| (inputs, answer))
}

/// The decisions on a template of an object: on its pods, and on their labels.
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

/// Whether an object belongs to a component of an InferenceService, by a label that policies can't change.
fn is_of(object: &Object, component: Role) -> bool {
    let component = match component {
        Role::Engine => "engine",
        Role::Decoder => "decoder",
        Role::Router => "router",
        _ => return false,
    };
    object.body.pointer("/metadata/labels").and_then(|labels| labels.get(COMPONENT)).is_some_and(|label| label == component)
}

/// Records the provenance of a value if it is responsible for it; otherwise returns false.
type ProvenanceSink<'t, 'o> = &'t dyn Fn(&mut Walk<'o, '_>, &'o Value) -> bool;

/// A walk through an object's fields.
struct Walk<'o, 'c> {
    path: Path<'o>,
    fields: Vec<Field>,
    /// The approximate size of the fields.
    size: usize,
    /// The layers of the current template that only administrators write.
    admin_layers: Vec<String>,
    configs: &'c Configs<'c>,
}

impl<'o> Walk<'o, '_> {
    /// Enters a field, then leaves it.
    fn below(&mut self, name: &'o str, then: impl FnOnce(&mut Self)) {
        self.path.enter(name);
        then(self);
        self.path.leave();
    }

    /// Records a value that the host builds.
    fn hosts(&mut self, value: &'o Value) {
        self.visit(value, &[HOST], &|_, _| false);
    }

    /// Records a value that these layers requested completely, except for parts that `otherwise` records.
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

    /// Records the current field.
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
