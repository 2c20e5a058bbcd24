//! The pod's spec, to which the layers are applied one after the other.

use crate::{
    Arguments, Config, arguments,
    merge::merge,
    node::{By, Form, Node},
    place::SpecPosition,
    rules::Rules,
};
use pointsman_plugin::{
    Failure,
    pod_templating::{Layer, Request},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The current spec.
#[derive(Debug)]
pub(crate) struct Pod<'a> {
    pub(crate) spec: Node<'a>,
    /// Annotations to add to the template's own.
    pub(crate) annotations: BTreeMap<&'static str, Node<'a>>,
    rules: &'static Rules,
    /// The container to which the first runner was applied.
    runner: Option<String>,
    /// The entries of all layers' `config`. Each has the value with the highest precedence.
    config: BTreeMap<String, Node<'a>>,
}

/// The command line of a container, from one layer.
#[derive(Debug, Default)]
struct Line<'a> {
    container: String,
    args: Option<Node<'a>>,
    command: Option<Node<'a>>,
}

impl<'a> Pod<'a> {
    /// Merges all layers and the host's frame.
    pub(crate) fn merged(rules: &'static Rules, config: &Config, request: &'a Request, frame: Option<&Value>) -> Result<Self, Failure> {
        let by = By { rank: 0, layer: By::PLUGIN.layer };
        let mut pod = Self { spec: Node::object([], by), annotations: BTreeMap::new(), rules, runner: None, config: BTreeMap::new() };
        let mut frame = frame.cloned();
        for (index, layer) in request.layers.iter().enumerate() {
            if !(rules.speaks)(&layer.name, request.role) {
                continue;
            }
            if layer.name.starts_with("user") {
                pod.lay_frame(config, frame.take(), 2 * index + 1)?;
            }
            pod.lay_layer(config, layer, By { rank: 2 * index + 2, layer: &layer.name })?;
        }
        pod.lay_frame(config, frame.take(), 2 * request.layers.len() + 1)?;
        pod.set_config();
        Ok(pod)
    }

    fn lay_frame(&mut self, config: &Config, frame: Option<Value>, rank: usize) -> Result<(), Failure> {
        match frame.and_then(|spec| Node::from_value(spec, By { rank, layer: By::PLUGIN.layer })) {
            None => Ok(()),
            Some(spec) => self.lay(config, Some(spec), None, ["the template's spec", ""]),
        }
    }

    fn lay_layer(&mut self, config: &Config, layer: &'a Layer, by: By<'a>) -> Result<(), Failure> {
        let Some(mut content) = Node::from_value(layer.content()?, by) else { return Ok(()) };
        let name = &layer.name;
        SpecPosition::Fields.check(&content, name)?;
        self.lay(config, content.take("pod"), content.take("runner"), [&format!("{name}.pod"), &format!("{name}.runner")])?;
        let Some(entries) = content.take("config") else { return Ok(()) };
        let Form::Object(entries) = entries.form else { return Err(format!("{name}.config must be an object; fix it there").into()) };
        for (key, value) in entries {
            SpecPosition::Text.check(&value, &format!("{name}.config.{key}"))?;
            self.config.insert(key, value);
        }
        Ok(())
    }

    /// Merges one layer's parts over the current spec. `names` are the names of the two parts.
    fn lay(&mut self, config: &Config, pod: Option<Node<'a>>, runner: Option<Node<'a>>, names: [&str; 2]) -> Result<(), Failure> {
        let mut lines: Vec<Line<'a>> = Vec::new();
        if let Some(mut pod) = pod {
            SpecPosition::Pod.check(&pod, names[0])?;
            let containers = pod.take("containers");
            merge(&mut self.spec, pod, SpecPosition::Pod);
            if let Some(Node { by, form: Form::List(containers) }) = containers {
                self.spec.list_at("containers", by);
                for container in containers {
                    let line = self.lay_container(container);
                    if lines.iter().any(|other| other.container == line.container) {
                        return Err(format!(
                            "{}.containers has two containers that are {}: give each its own name",
                            names[0], line.container
                        )
                        .into());
                    }
                    lines.push(line);
                }
            }
        }
        if let Some(runner) = runner {
            SpecPosition::Container.check(&runner, names[1])?;
            let line = self.lay_container(runner);
            self.runner.get_or_insert_with(|| line.container.clone());
            match lines.iter_mut().find(|other| other.container == line.container) {
                None => lines.push(line),
                // Within a layer, the two form one command line: first the container's, then the runner's.
                Some(before) => {
                    before.args = joined(before.args.take(), line.args);
                    before.command = joined(before.command.take(), line.command);
                }
            }
        }
        for line in lines {
            self.lay_line(config, line);
        }
        Ok(())
    }

    /// Merges a container except for its command line, which is returned.
    fn lay_container(&mut self, mut node: Node<'a>) -> Line<'a> {
        let by = node.by;
        let given = node.take("name").and_then(|name| name.as_str().filter(|name| !name.is_empty()).map(str::to_owned));
        let name = given.or_else(|| self.main_name().map(str::to_owned)).unwrap_or_else(|| self.rules.main.to_owned());
        let (args, command) = (node.take("args"), node.take("command"));
        if self.named_mut(&name).is_none()
            && let Some(containers) = self.spec.list_at("containers", by)
        {
            containers.push(Node::object([("name", Node::text(&*name, by))], by));
        }
        if let Some(container) = self.named_mut(&name) {
            merge(container, node, SpecPosition::Container);
        }
        Line { container: name, args, command }
    }

    fn lay_line(&mut self, config: &Config, line: Line<'a>) {
        let Line { container: name, args, command } = line;
        let Some(container) = self.named_mut(&name) else { return };
        if let Some(command) = command {
            container.set("command", command);
        }
        let Some(mut args) = args else { return };
        if config.arguments == Arguments::MergeByFlag
            && !arguments::is_shell(&line_of(container))
            && !arguments::is_shell(&args.items().iter().filter_map(Node::as_str).collect::<Vec<_>>())
            && let Some(Node { form: Form::List(weak), .. }) = container.take("args")
            && let Form::List(strong) = args.form
        {
            args = Node::list(arguments::merge(weak, strong), args.by);
        }
        container.set("args", args);
    }

    /// Sets the variables in `config`, except those that a layer of the same or higher precedence sets in `env`.
    fn set_config(&mut self) {
        let entries = std::mem::take(&mut self.config);
        let Some(main) = self.main_mut() else { return };
        for (name, value) in entries {
            let by = value.by;
            let Some(env) = main.list_at("env", by) else { return };
            let existing = env.iter_mut().find(|variable| variable.text_at("name") == Some(&*name));
            let Some(variable) = existing else {
                env.push(Node::object([("name", Node::text(name, by)), ("value", value)], by));
                continue;
            };
            let set = ["value", "valueFrom"].iter().filter_map(|field| variable.get(field)).map(|node| node.strongest().rank).max();
            if set.is_none_or(|rank| rank < by.rank) {
                merge(variable, Node::object([("value", value)], by), SpecPosition::Variable);
            }
        }
    }

    /// The main container: the one with the main name. If the rules are lenient, otherwise the runner, and otherwise the first container.
    ///
    /// A runner with a different name takes precedence over the first container, which may be a sidecar.
    fn main_name(&self) -> Option<&str> {
        let names = || self.spec.items_at("containers").iter().filter_map(|container| container.text_at("name"));
        let named = names().find(|name| *name == self.rules.main);
        if self.rules.lenient { named.or(self.runner.as_deref()).or_else(|| names().next()) } else { named }
    }

    pub(crate) fn main(&self) -> Option<&Node<'a>> {
        let name = self.main_name()?;
        self.spec.items_at("containers").iter().find(|container| container.text_at("name") == Some(name))
    }

    pub(crate) fn main_mut(&mut self) -> Option<&mut Node<'a>> {
        let name = self.main_name()?.to_owned();
        self.named_mut(&name)
    }

    /// Moves the main container before all others.
    pub(crate) fn put_main_first(&mut self) {
        let Some(name) = self.main_name().map(str::to_owned) else { return };
        if let Some(containers) = self.spec.fields_mut().and_then(|spec| spec.get_mut("containers")?.items_mut()) {
            containers.sort_by_key(|container| container.text_at("name") != Some(&*name));
        }
    }

    /// Adds an annotation to the template.
    pub(crate) fn annotate(&mut self, key: &'static str, value: &str, by: By<'a>) {
        self.annotations.insert(key, Node::text(value, by));
    }

    fn named_mut(&mut self, name: &str) -> Option<&mut Node<'a>> {
        let containers = self.spec.fields_mut()?.get_mut("containers")?.items_mut()?;
        containers.iter_mut().find(|container| container.text_at("name") == Some(name))
    }
}

/// The command and the arguments of a container.
pub(crate) fn line_of<'n>(container: &'n Node<'_>) -> Vec<&'n str> {
    ["command", "args"].iter().flat_map(|field| container.items_at(field)).filter_map(Node::as_str).collect()
}

/// Adds words at the end of the arguments.
pub(crate) fn add_arguments<'a>(container: &mut Node<'a>, words: impl IntoIterator<Item = String>, by: By<'a>) {
    if let Some(args) = container.list_at("args", by) {
        args.extend(words.into_iter().map(|word| Node::text(word, by)));
    }
}

/// Sets a variable unless it is already set.
///
/// It is inserted before the others, because the kubelet expands `$(VAR)` in a variable's value only if VAR is defined earlier.
pub(crate) fn set_variable<'a>(container: &mut Node<'a>, name: &str, value: impl Into<String>, by: By<'a>) {
    if !has_variable(container, name)
        && let Some(env) = container.list_at("env", by)
    {
        env.insert(0, Node::object([("name", Node::text(name, by)), ("value", Node::text(value, by))], by));
    }
}

pub(crate) fn has_variable(container: &Node<'_>, name: &str) -> bool {
    container.items_at("env").iter().any(|variable| variable.text_at("name") == Some(name))
}

fn joined<'a>(first: Option<Node<'a>>, then: Option<Node<'a>>) -> Option<Node<'a>> {
    match (first, then) {
        (Some(Node { by, form: Form::List(mut words) }), Some(Node { form: Form::List(more), .. })) => {
            words.extend(more);
            Some(Node::list(words, by))
        }
        (first, then) => first.or(then),
    }
}
