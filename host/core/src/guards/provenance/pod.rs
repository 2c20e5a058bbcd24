//! Determines who requested the fields of a pod template, by a walk through it in parallel with all layers.

use super::{
    Walk,
    facts::{At, Facts},
    labels::{MAPS, MetadataProvenance},
    line::{Filling, Line, line, words},
    list,
    said::{CONTAINERS, Contents, HOST, INIT_CONTAINERS, LayerPart, LayerSource, PodLayers, fields},
    writer::StepWriters,
};
use crate::decide::templating::Templated;
use serde_json::Value;

/// A template, with the contents of the layers and the plugins' answer.
pub(super) struct PodProvenance<'p> {
    names: Vec<&'p str>,
    answer: Option<&'p Value>,
    speakers: &'p PodLayers<'p>,
    facts: &'p Facts<'p>,
    filling: Filling<'p>,
    writers: StepWriters<'p>,
    /// The number of steps to the template.
    start: usize,
    /// The current container, and whether it is the main one.
    container: Option<(&'p str, bool)>,
    /// Whether the plugins' answer has too many items here to compare: the provenance of all these fields is then the plugins'.
    crowded: bool,
}

impl<'p> PodProvenance<'p> {
    pub(super) fn new(contents: &'p Contents<'_>, speakers: &'p PodLayers<'p>, facts: &'p Facts<'p>, answer: &'p Templated) -> Self {
        let names = contents.layers.iter().map(|(name, _)| *name).collect();
        let filling = Filling { subject: contents.subject, facts };
        let (writers, made) = (StepWriters::new(&answer.steps), contents.answer.as_ref());
        Self { names, answer: made, speakers, facts, filling, writers, start: 0, container: None, crowded: made.is_none() }
    }

    /// Records the whole template.
    pub(super) fn tell<'o: 'p>(&mut self, walk: &mut Walk<'o, '_>, template: &'o Value, labels: Option<MetadataProvenance<'_>>) {
        self.start = walk.path.length();
        for (name, value) in template.as_object().into_iter().flat_map(fields) {
            walk.path.enter(name);
            let answer = self.answer.and_then(|answer| answer.get(name));
            let answer: Vec<LayerPart<'p>> = answer.map(|answer| (LayerSource::Answer, answer)).into_iter().collect();
            match (name, value.as_object()) {
                ("metadata", Some(metadata)) => {
                    for (name, value) in fields(metadata) {
                        walk.path.enter(name);
                        match labels.filter(|_| MAPS.contains(&name)) {
                            Some(labels) => labels.tell(walk, name, value, Some((&mut self.writers, self.start))),
                            None => walk.hosts(value),
                        }
                        walk.path.leave();
                    }
                }
                ("spec", Some(spec)) => {
                    let said: Vec<LayerPart<'p>> = answer.into_iter().chain(self.speakers.specs.iter().copied()).collect();
                    for (name, value) in fields(spec) {
                        walk.path.enter(name);
                        let said = inside(&said, name);
                        match (name, value) {
                            (CONTAINERS, Value::Array(items)) => self.containers(walk, CONTAINERS, items, &said),
                            (INIT_CONTAINERS, Value::Array(items)) => self.containers(walk, INIT_CONTAINERS, items, &said),
                            _ => self.node(walk, value, &said),
                        }
                        walk.path.leave();
                    }
                }
                _ => self.node(walk, value, &answer),
            }
            walk.path.leave();
        }
    }

    /// Records the containers of a list. A container is only compared with containers of the same name in the same list, not with other
    /// parts of a layer.
    fn containers<'o: 'p>(&mut self, walk: &mut Walk<'o, '_>, list: &'static str, items: &'o [Value], said: &[LayerPart<'p>]) {
        if items.is_empty() {
            return self.leaf(walk, &EMPTY_LIST, said);
        }
        let speakers = self.speakers;
        let answered: Vec<LayerPart<'p>> = said.iter().copied().filter(|(source, _)| *source == LayerSource::Answer).collect();
        let answered = list::by_key(list, &answered);
        let called = speakers.container_names(list, items);
        for (((index, item), shown), called) in items.iter().enumerate().zip(list::names(list, items)).zip(called) {
            walk.path.enter_item(index, shown.as_ref());
            let answer = answered.get(&list::key(list, item)).into_iter().flatten();
            let asking = speakers.container(list, called);
            let said: Vec<LayerPart<'p>> = answer.chain(asking).copied().collect();
            self.container = Some((called, list == CONTAINERS && called == speakers.main));
            let before = self.enter(&said);
            match item.as_object().filter(|fields| !fields.is_empty()) {
                Some(object) => {
                    let line = line(item, asking, &self.names, self.filling);
                    for (name, value) in fields(object) {
                        walk.path.enter(name);
                        let said = inside(&said, name);
                        match (name, value) {
                            ("command", Value::Array(_)) => self.command(walk, value, &said, &line),
                            ("args", Value::Array(words)) if !words.is_empty() => self.arguments(walk, words, &said, &line),
                            _ => self.node(walk, value, &said),
                        }
                        walk.path.leave();
                    }
                }
                None => self.leaf(walk, item, &said),
            }
            (self.container, self.crowded) = (None, before);
            walk.path.leave();
        }
    }

    /// Enters an item, and returns the previous value of `crowded`.
    fn enter(&mut self, said: &[LayerPart<'_>]) -> bool {
        let before = self.crowded;
        self.crowded = before || said.iter().any(|(source, _)| *source == LayerSource::Any);
        before
    }

    /// Whether a value equals the plugins' answer, or may do so.
    fn answered(&self, said: &[LayerPart<'_>], value: &Value) -> bool {
        self.crowded || said.iter().any(|(source, said)| *source == LayerSource::Answer && *said == value)
    }

    /// Records a command as a whole.
    fn command(&mut self, walk: &mut Walk<'_, '_>, value: &Value, said: &[LayerPart<'p>], line: &Line<'_>) {
        if self.answered(said, value) && !line.command.is_empty() {
            let by = line.command.iter().map(|layer| (*layer).to_owned()).collect();
            return walk.put(value, by, None);
        }
        self.leaf(walk, value, said);
    }

    /// Records the arguments. Each was requested by every layer that contains it in any position, because plugins insert arguments before
    /// and after them.
    fn arguments<'o>(&mut self, walk: &mut Walk<'o, '_>, planned: &'o [Value], said: &[LayerPart<'p>], line: &Line<'_>) {
        let of_layers = said.iter().filter(|(source, _)| *source != LayerSource::Answer);
        let of_layers = of_layers.flat_map(|(source, list)| words(list).into_iter().flatten().map(|word| (*source, word)));
        let filled =
            of_layers.flat_map(|(source, word)| self.filling.filled(word).into_iter().map(move |word| (source, Value::String(word))));
        let filled: Vec<(LayerSource, Value)> = filled.collect();
        let mut items = list::by_value(said);
        for (source, word) in &filled {
            items.entry(word).or_default().push((*source, word));
        }
        for (index, value) in planned.iter().enumerate() {
            walk.path.enter_item(index, None);
            let said = items.get(value).map(Vec::as_slice).unwrap_or_default();
            if index < line.before.0 && self.answered(said, value) {
                walk.put(value, line.before.1.iter().map(|layer| (*layer).to_owned()).collect(), None);
            } else {
                self.leaf(walk, value, said);
            }
            walk.path.leave();
        }
    }

    fn node<'o: 'p>(&mut self, walk: &mut Walk<'o, '_>, value: &'o Value, said: &[LayerPart<'p>]) {
        match value {
            Value::Object(object) if !object.is_empty() => {
                for (name, value) in fields(object) {
                    walk.path.enter(name);
                    self.node(walk, value, &inside(said, name));
                    walk.path.leave();
                }
            }
            Value::Array(items) if !items.is_empty() && walk.path.name() != "command" => {
                let list = walk.path.name();
                if list::is_keyed(list) {
                    let found = list::by_key(list, said);
                    self.items(walk, items, |item| found.get(&list::key(list, item)).map(Vec::as_slice).unwrap_or_default());
                } else {
                    let found = list::by_value(said);
                    self.items(walk, items, |item| found.get(item).map(Vec::as_slice).unwrap_or_default());
                }
            }
            Value::Null => {}
            _ => self.leaf(walk, value, said),
        }
    }

    fn items<'o: 'p, 's>(&mut self, walk: &mut Walk<'o, '_>, items: &'o [Value], said: impl Fn(&'o Value) -> &'s [LayerPart<'p>])
    where
        'p: 's,
    {
        for ((index, item), shown) in items.iter().enumerate().zip(list::names(walk.path.name(), items)) {
            walk.path.enter_item(index, shown.as_ref());
            let said = said(item);
            let before = self.enter(said);
            self.node(walk, item, said);
            self.crowded = before;
            walk.path.leave();
        }
    }

    /// Records a field. A value from the plugins' answer must have been requested; any other comes from the host.
    fn leaf(&mut self, walk: &mut Walk<'_, '_>, value: &Value, said: &[LayerPart<'_>]) {
        if !self.answered(said, value) {
            return walk.put(value, vec![HOST.to_owned()], None);
        }
        let filling = self.filling;
        let variable = walk.path.name() == "value";
        let same = |said: &Value| {
            said == value || variable && said.as_str().zip(value.as_str()).is_some_and(|(said, planned)| filling.same(said, planned))
        };
        let mut by: Vec<String> = Vec::new();
        for (source, said) in said {
            if let LayerSource::Layer(number) = source
                && same(said)
                && let Some(layer) = self.names.get(*number)
                && by.last().is_none_or(|last| last != layer)
            {
                by.push((*layer).to_owned());
            }
        }
        if by.is_empty() {
            by = self.facts.asking(At { place: walk.path.place(), container: self.container }, value, walk.configs);
        }
        let plugin = if by.is_empty() { self.writers.last(walk.path.behind(self.start), value) } else { None };
        walk.put(value, by, plugin);
    }
}

static EMPTY_LIST: Value = Value::Array(Vec::new());

/// The field with this name in each part that has it.
fn inside<'p>(said: &[LayerPart<'p>], name: &str) -> Vec<LayerPart<'p>> {
    said.iter().filter_map(|(source, value)| Some((*source, value.get(name)?))).collect()
}
