//! Command lines: the commands in layers, and the ways in which the built-in policy changes them.

use super::{
    facts::Facts,
    said::{LayerPart, LayerSource},
};
use pointsman_sandbox::point::{Entry, Subject};
use serde_json::Value;

/// The wrapper that the built-in policy adds before the command of a Ray cluster's head: a shell that starts Ray, then executes the
/// command.
const RAY_COMMAND: [&str; 3] = ["/bin/bash", "-c", "--"];
const RAY_ARGUMENTS: [&str; 2] = [r#"ulimit -n 65536; eval "${KUBERAY_GEN_RAY_START_CMD/--block/}" && exec "$@""#, "bash"];

/// The commands that the head executes if no layer specifies one: the entry points of vLLM's images.
const ENTRY_POINTS: [&[&str]; 2] = [&["vllm", "serve"], &["python3", "-m", "vllm.entrypoints.openai.api_server"]];

/// The wrapper before the command of a worker with several copies of a model: a shell that computes the number of the first copy, between
/// these two strings, then executes the command.
const COPIES_COMMAND: [&str; 2] = ["/bin/sh", "-c"];
const COPIES: (&str, &str) = ("exec \"$@\" --data-parallel-start-rank \"$$((LWS_WORKER_INDEX * ", "))\"");

/// A placeholder that the kubelet replaces if the container has the variable.
const MODEL_PATH: &str = "$(MODEL_PATH)";

/// The values for the placeholders of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filling<'f> {
    pub(super) subject: &'f Subject,
    pub(super) facts: &'f Facts<'f>,
}

/// The strings of a list; none if it contains other values.
pub(super) fn words(list: &Value) -> Option<Vec<&str>> {
    list.as_array()?.iter().map(Value::as_str).collect()
}

impl Filling<'_> {
    /// Whether a layer's text equals the planned one, either literally or with its placeholders filled in.
    pub(super) fn same(&self, said: &str, planned: &str) -> bool {
        said == planned || self.filled(said).iter().any(|filled| filled == planned)
    }

    /// The variants of a text with its placeholders filled in; empty if it has none.
    pub(super) fn filled(&self, text: &str) -> Vec<String> {
        let paths = self.facts.paths.iter().filter(|_| text.contains(MODEL_PATH)).map(|path| self.with(text, Some(path)));
        let without = text.contains("{{").then(|| self.with(text, None));
        without.into_iter().chain(paths).collect()
    }

    fn with(&self, text: &str, path: Option<&str>) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, from)) = rest.find(['$', '{']).and_then(|at| rest.split_at_checked(at)) {
            filled.push_str(before);
            let braces = from.strip_prefix("{{").and_then(|inner| inner.split_once("}}"));
            rest = if let Some(after) = from.strip_prefix("$$") {
                // The kubelet reads this as a literal dollar, regardless of what follows.
                filled.push_str("$$");
                after
            } else if let (Some(path), Some(after)) = (path, from.strip_prefix(MODEL_PATH)) {
                filled.push_str(path);
                after
            } else if let Some((value, after)) =
                braces.and_then(|(inside, after)| Some((self.field(inside.trim_matches([' ', '\t']))?, after)))
            {
                filled.push_str(value);
                after
            } else {
                let (first, after) = from.split_at_checked(1).unwrap_or((from, ""));
                filled.push_str(first);
                after
            };
        }
        filled.push_str(rest);
        filled
    }

    /// The subject's field for a Go template expression. Missing fields are empty; other expressions stay unchanged.
    fn field(&self, expression: &str) -> Option<&str> {
        if let Some(arguments) = expression.strip_prefix("index ") {
            let (map, key) = arguments.trim_start_matches(' ').split_once(' ')?;
            let key = key.trim_start_matches(' ').strip_prefix('"')?.strip_suffix('"')?;
            return if key.contains(['"', '\\']) { None } else { self.entry(bare(map), key) };
        }
        match bare(expression) {
            ".Name" => Some(&self.subject.name),
            ".Namespace" => Some(&self.subject.namespace),
            path => {
                let (map, key) = path.rsplit_once('.')?;
                let plain = !key.is_empty() && key.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
                if plain { self.entry(map, key) } else { None }
            }
        }
    }

    fn entry(&self, map: &str, key: &str) -> Option<&str> {
        let entries: &[Entry] = match map {
            ".Labels" => &self.subject.labels,
            ".Annotations" => &self.subject.annotations,
            _ => return None,
        };
        Some(entries.iter().find(|entry| entry.key == key).map_or("", |entry| &entry.value))
    }

    fn all_same(&self, said: &[&str], planned: &[&str]) -> bool {
        said.len() == planned.len() && said.iter().zip(planned).all(|(said, planned)| self.same(said, planned))
    }
}

/// A path within the subject's metadata, without Go's optional `.ObjectMeta`.
fn bare(path: &str) -> &str {
    path.strip_prefix(".ObjectMeta").filter(|rest| rest.starts_with('.')).unwrap_or(path)
}

/// The provenance of a container's planned command line.
#[derive(Debug, Default)]
pub(super) struct Line<'l> {
    /// The layers that requested the command as a whole.
    pub(super) command: Vec<&'l str>,
    /// The number of arguments that belong to the wrapper and the command, and the layers that requested these.
    pub(super) before: (usize, Vec<&'l str>),
}

/// Determines who requested a planned command.
pub(super) fn line<'l>(planned: &Value, said: &[LayerPart<'_>], names: &[&'l str], filling: Filling<'l>) -> Line<'l> {
    let list = |name: &str| planned.get(name).and_then(words).unwrap_or_default();
    let (command, arguments) = (list("command"), list("args"));
    if command.is_empty() {
        return Line::default();
    }
    let given = given(said);
    let asking = |fits: &dyn Fn(&[&str]) -> bool| -> Vec<&'l str> {
        let mut layers: Vec<usize> = given.iter().filter(|(_, words)| fits(words)).map(|(layer, _)| *layer).collect();
        layers.dedup();
        layers.into_iter().filter_map(|layer| names.get(layer).copied()).collect()
    };
    let plain = asking(&|words| filling.all_same(words, &command));
    if !plain.is_empty() {
        return Line { command: plain, ..Line::default() };
    }
    if let Some(group) = filling.facts.ray
        && command == RAY_COMMAND
        && let Some(behind) = arguments.strip_prefix(&RAY_ARGUMENTS)
    {
        return behind_ray(group, behind, &given, asking, filling);
    }
    let copies = |script: &str| {
        let number = script.strip_prefix(COPIES.0).and_then(|rest| rest.strip_suffix(COPIES.1));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some(split) = filling.facts.split
        && let Some([script, "sh", behind @ ..]) = command.strip_prefix(&COPIES_COMMAND)
        && copies(script)
    {
        let mut by = asking(&|words| filling.all_same(words, behind));
        by.extend((!by.is_empty()).then_some(split));
        return Line { command: by, ..Line::default() };
    }
    Line::default()
}

/// The script that starts Ray must be followed by a command from a layer: the shell would execute any other as well.
fn behind_ray<'l>(
    group: &'l str,
    behind: &[&str],
    given: &[(usize, Vec<&str>)],
    asking: impl Fn(&dyn Fn(&[&str]) -> bool) -> Vec<&'l str>,
    filling: Filling<'_>,
) -> Line<'l> {
    let begins = |words: &[&str]| behind.get(..words.len()).is_some_and(|first| filling.all_same(words, first));
    let mut by = asking(&|words| !words.is_empty() && begins(words));
    let commands = || given.iter().map(|(_, words)| words.as_slice()).filter(|words| !words.is_empty());
    let found = if by.is_empty() {
        ENTRY_POINTS.into_iter().find(|words| commands().next().is_none() && begins(words)).map(<[_]>::len)
    } else {
        commands().filter(|words| begins(words)).map(<[_]>::len).max()
    };
    let Some(length) = found else { return Line::default() };
    by.push(group);
    Line { command: by.clone(), before: (RAY_ARGUMENTS.len() + length, by) }
}

/// The commands in the layers. If a layer has two parts of a container, the second also counts as a continuation of the first.
fn given<'s>(said: &[LayerPart<'s>]) -> Vec<(usize, Vec<&'s str>)> {
    let mut all: Vec<(usize, Vec<&str>)> = Vec::new();
    for (source, container) in said {
        let (LayerSource::Layer(layer), Some(command)) = (source, container.get("command").and_then(words)) else { continue };
        let before = all.last().filter(|(last, _)| last == layer).map(|(_, words)| words.clone());
        all.push((*layer, command.clone()));
        all.extend(before.map(|before| (*layer, [before, command].concat())));
    }
    all
}
