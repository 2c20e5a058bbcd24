//! The contents of the layers for a pod, per container.

use crate::decide::templating::{Inputs, Templated};
use crate::subject_kind::{MainContainer, SUBJECT_KINDS, SubjectKind};
use pointsman_sandbox::point::{IMAGE_MIRROR, Subject, templating::Layer};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// The name of the host as a layer: its frame, and everything that it builds itself.
pub(super) const HOST: &str = "host";

/// The source of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerSource {
    /// The plugins' combined answer.
    Answer,
    /// Also the plugins' answer, if it has too many items with one key to compare each.
    Any,
    /// A layer, by index.
    Layer(usize),
}

/// A part of a source's content.
pub(super) type LayerPart<'a> = (LayerSource, &'a Value);

/// The lists of containers in a pod.
pub(super) const CONTAINERS: &str = "containers";
pub(super) const INIT_CONTAINERS: &str = "initContainers";

/// The contents of a question and its answer, parsed once.
pub(super) struct Contents<'a> {
    pub(super) subject: &'a Subject,
    /// The layers by name, the host's frame first.
    pub(super) layers: Vec<(&'a str, Value)>,
    /// The variables from the `config` of a layer, as a container.
    configs: Vec<(usize, Value)>,
    /// The mirror registry that the plugins are to use for images.
    pub(super) mirror: Option<String>,
    /// The template in the plugins' answer, if it is valid JSON.
    pub(super) answer: Option<Value>,
}

impl<'a> Contents<'a> {
    /// Parses them. Invalid JSON is ignored.
    pub(super) fn read(inputs: &'a Inputs, answer: &Templated) -> Self {
        let frame = json!({"pod": inputs.template.get("spec")});
        let read = |layer: &'a Layer| {
            let mut content = serde_json::from_str(&layer.content).unwrap_or_default();
            if layer.content.contains("null") {
                without_nulls(&mut content);
            }
            (layer.name.as_str(), content)
        };
        let layers: Vec<(&str, Value)> = std::iter::once((HOST, frame)).chain(inputs.layers.iter().map(read)).collect();
        let variables = |(number, (name, content)): (usize, &(&str, Value))| {
            let entries = content.get("config").and_then(Value::as_object).filter(|_| describes(name))?;
            let entries: Vec<Value> = entries.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            Some((number, json!({"env": entries})))
        };
        let configs = layers.iter().enumerate().filter_map(variables).collect();
        let mirror = inputs.facts.iter().find(|fact| fact.name == IMAGE_MIRROR).and_then(|fact| serde_json::from_str(&fact.value).ok());
        Self { subject: &inputs.subject, layers, configs, mirror, answer: serde_json::from_str(&answer.template).ok() }
    }

    /// The layers that contain facts instead of parts of pods: about the model, the storage ...
    pub(super) fn facts(&self) -> impl Iterator<Item = (&'a str, &Value)> {
        self.layers.iter().filter(|(name, _)| !describes(name)).map(|(name, content)| (*name, content))
    }
}

/// Whether a layer describes pods, in a `pod` and a `runner`. Other layers may have arbitrary fields.
fn describes(layer: &str) -> bool {
    let mut of_a_place = ["runtime-", "user-", "base:"].iter();
    [HOST, "runtime", "user", "preset"].contains(&layer) || of_a_place.any(|beginning| layer.starts_with(beginning))
}

/// Removes nulls, in lists too: they have no meaning.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(without_nulls);
        }
        _ => {}
    }
}

/// The parts of the layers that describe the pod.
#[derive(Debug)]
pub(super) struct PodLayers<'a> {
    /// The pod specs.
    pub(super) specs: Vec<LayerPart<'a>>,
    /// The parts for each container, by name.
    containers: HashMap<&'a str, Vec<LayerPart<'a>>>,
    /// The parts for each init container, which is never renamed.
    init_containers: HashMap<&'a str, Vec<LayerPart<'a>>>,
    /// The name of the main container, and whether a layer specifies it.
    pub(super) main: &'a str,
    main_is_given: bool,
}

impl<'a> PodLayers<'a> {
    /// Collects the parts. A container without a name and a runner are the main container, as for the built-in policy and the host: the
    /// main container depends only on the layers, so that no plugin can give one container what was requested for another.
    pub(super) fn collect(contents: &'a Contents<'_>) -> Self {
        let Subject { group, kind, .. } = contents.subject;
        let known = SubjectKind::find_by_name(group, kind).unwrap_or(&SUBJECT_KINDS[0]);
        let MainContainer { name: usual, may_be_renamed: lenient } = known.main_container;
        let mut names = Names { usual, lenient, ..Names::default() };
        let mut speakers =
            Self { specs: Vec::new(), containers: HashMap::new(), init_containers: HashMap::new(), main: "", main_is_given: false };
        for (number, (_, content)) in contents.layers.iter().enumerate().filter(|(_, (name, _))| describes(name)) {
            let source = LayerSource::Layer(number);
            let pod = content.get("pod").filter(|pod| pod.is_object());
            speakers.specs.extend(pod.map(|pod| (source, pod)));
            let list = |name: &str| pod.and_then(|pod| pod.get(name)?.as_array()).into_iter().flatten();
            for container in list(CONTAINERS) {
                speakers.add(CONTAINERS, names.name(container), (source, container));
            }
            for container in list(INIT_CONTAINERS) {
                speakers.add(INIT_CONTAINERS, given(container).unwrap_or_default(), (source, container));
            }
            if let Some(runner) = content.get("runner").filter(|runner| runner.is_object()) {
                let name = names.name(runner);
                names.runner.get_or_insert(name);
                speakers.add(CONTAINERS, name, (source, runner));
            }
        }
        speakers.main = names.main().unwrap_or(names.usual);
        speakers.main_is_given = names.given.contains(speakers.main);
        for (number, variables) in &contents.configs {
            speakers.add(CONTAINERS, speakers.main, (LayerSource::Layer(*number), variables));
        }
        speakers
    }

    fn add(&mut self, list: &'static str, name: &'a str, said: LayerPart<'a>) {
        let containers = if list == CONTAINERS { &mut self.containers } else { &mut self.init_containers };
        containers.entry(name).or_default().push(said);
    }

    /// The parts for a container of a list.
    pub(super) fn container(&self, list: &'static str, name: &str) -> &[LayerPart<'a>] {
        let containers = if list == CONTAINERS { &self.containers } else { &self.init_containers };
        containers.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The planned containers' names as the layers use them. If no layer names the main container, a policy may: it is then the first one,
    /// unless a layer uses that name for another container.
    pub(super) fn container_names<'p>(&'p self, list: &'static str, planned: &'p [Value]) -> Vec<&'p str>
    where
        'a: 'p,
    {
        let mut names: Vec<&str> = planned.iter().map(|container| given(container).unwrap_or_default()).collect();
        let free = list == CONTAINERS && !self.main_is_given && !names.contains(&self.main);
        if let Some(first) = names.first_mut().filter(|first| free && self.container(CONTAINERS, first).is_empty()) {
            *first = self.main;
        }
        names
    }
}

/// Determines the names of containers while the layers are read in order of precedence, the lowest first.
#[derive(Default)]
struct Names<'a> {
    usual: &'static str,
    lenient: bool,
    /// The first container, whether one has the usual name, and the runner of the layer with the lowest precedence.
    first: Option<&'a str>,
    has_usual: bool,
    runner: Option<&'a str>,
    given: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn name(&mut self, container: &'a Value) -> &'a str {
        let given = given(container);
        self.given.extend(given);
        let name = given.or_else(|| self.main()).unwrap_or(self.usual);
        self.first.get_or_insert(name);
        self.has_usual = self.has_usual || name == self.usual;
        name
    }

    /// The main container so far.
    fn main(&self) -> Option<&'a str> {
        let usual = self.has_usual.then_some(self.usual);
        if self.lenient { usual.or(self.runner).or(self.first) } else { usual }
    }
}

fn given(container: &Value) -> Option<&str> {
    container.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())
}

/// The fields of an object, without nulls.
pub(super) fn fields(object: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    object.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.as_str(), value))
}
