//! The dependencies between models.

use super::{Model, Refusal};
use crate::key::ObjectKey;
use std::collections::{BTreeMap, HashMap};

/// The dependencies of all models, by index.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// The dependencies of each model.
    pub(super) needs: Vec<Vec<usize>>,
    /// The dependants of each model.
    pub(super) needed_by: Vec<Vec<usize>>,
    /// Why a model can't run, regardless of the nodes.
    pub(super) refused: Vec<Option<Refusal>>,
}

/// The state of a model during the traversal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    /// Its dependencies are being followed.
    Open,
    Done,
}

impl Graph {
    pub(super) fn new(models: &[(&ObjectKey, &Model)]) -> Self {
        let mut graph =
            Self { needs: vec![Vec::new(); models.len()], needed_by: vec![Vec::new(); models.len()], refused: name_conflicts(models) };
        let mut by_name: HashMap<(&str, &str), usize> = HashMap::new();
        for (at, (key, model)) in models.iter().enumerate() {
            if graph.refused[at].is_none() {
                by_name.insert((&key.namespace, &model.name), at);
            }
        }
        let mut unknown: BTreeMap<usize, &str> = BTreeMap::new();
        for (at, (key, model)) in models.iter().enumerate() {
            for name in &model.dependencies {
                match by_name.get(&(key.namespace.as_str(), name.as_str())) {
                    Some(&needed) if !graph.needs[at].contains(&needed) => {
                        graph.needs[at].push(needed);
                        graph.needed_by[needed].push(at);
                    }
                    Some(_) => {}
                    None => _ = unknown.entry(at).or_insert(name),
                }
            }
        }
        let mut marks = vec![Mark::New; models.len()];
        for at in 0..models.len() {
            graph.follow(at, models, &unknown, &mut marks);
        }
        graph
    }

    /// Determines whether a model can't run because of its dependencies. Not recursive, because a tenant can create a chain of any length.
    fn follow(&mut self, from: usize, models: &[(&ObjectKey, &Model)], unknown: &BTreeMap<usize, &str>, marks: &mut [Mark]) {
        if marks[from] != Mark::New {
            return;
        }
        let name = |at: usize| models[at].1.name.clone();
        // The path to the current model; for each one, the number of dependencies already followed.
        let mut path: Vec<(usize, usize)> = vec![(from, 0)];
        marks[from] = Mark::Open;
        while let Some(&mut (at, ref mut next)) = path.last_mut() {
            if let Some(&needed) = self.needs[at].get(*next) {
                *next += 1;
                match marks[needed] {
                    Mark::New => {
                        marks[needed] = Mark::Open;
                        path.push((needed, 0));
                    }
                    Mark::Open => {
                        let begin = path.iter().position(|(step, _)| *step == needed).unwrap_or_default();
                        let circle: Vec<usize> = path[begin..].iter().map(|(step, _)| *step).collect();
                        for (turn, &member) in circle.iter().enumerate() {
                            let names = circle[turn..].iter().chain(&circle[..=turn]).map(|&step| name(step)).collect();
                            self.refused[member].get_or_insert(Refusal::Circle(names));
                        }
                    }
                    Mark::Done => {}
                }
                continue;
            }
            if let Some(missing) = unknown.get(&at) {
                self.refused[at].get_or_insert(Refusal::UnknownDependency(vec![name(at), (*missing).to_owned()]));
            }
            if self.refused[at].is_none() {
                self.refused[at] = self.needs[at].iter().find_map(|&needed| self.passed_on(at, needed, models));
            }
            marks[at] = Mark::Done;
            path.pop();
        }
    }

    /// Why a model can't run because of this dependency.
    fn passed_on(&self, at: usize, needed: usize, models: &[(&ObjectKey, &Model)]) -> Option<Refusal> {
        let with = |path: &[String]| [&[models[at].1.name.clone()], path].concat();
        match &self.refused[needed] {
            Some(Refusal::Circle(path)) => Some(Refusal::Circle(with(path))),
            Some(Refusal::UnknownDependency(path)) => Some(Refusal::UnknownDependency(with(path))),
            Some(Refusal::DependencyOff(path)) => Some(Refusal::DependencyOff(with(path))),
            None if models[needed].1.off => Some(Refusal::DependencyOff(with(std::slice::from_ref(&models[needed].1.name)))),
            _ => None,
        }
    }

    /// A model and all its transitive dependencies, the model last.
    pub(super) fn with_needs(&self, at: usize) -> Vec<usize> {
        closure(at, &self.needs)
    }

    /// A model and all its transitive dependants, the model last.
    pub(super) fn with_dependants(&self, at: usize) -> Vec<usize> {
        closure(at, &self.needed_by)
    }
}

/// All models reachable from one, the furthest first, each once.
fn closure(from: usize, edges: &[Vec<usize>]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut path = vec![(from, 0)];
    while let Some(&mut (at, ref mut next)) = path.last_mut() {
        let Some(&to) = edges[at].get(*next) else {
            found.push(at);
            path.pop();
            continue;
        };
        *next += 1;
        if !found.contains(&to) && path.iter().all(|(step, _)| *step != to) {
            path.push((to, 0));
        }
    }
    found
}

/// If several models have the same name, the oldest one owns it. Requests specify only this name, so it must be unique across namespaces.
fn name_conflicts(models: &[(&ObjectKey, &Model)]) -> Vec<Option<Refusal>> {
    let mut oldest: HashMap<&str, usize> = HashMap::new();
    let age = |at: usize| (models[at].1.created, models[at].0);
    for (at, (_, model)) in models.iter().enumerate() {
        let first = oldest.entry(&model.name).or_insert(at);
        if age(at) < age(*first) {
            *first = at;
        }
    }
    let conflict = |(at, (_, model)): (usize, &(&ObjectKey, &Model))| {
        let first = oldest[model.name.as_str()];
        (first != at).then(|| Refusal::NameTaken(models[first].0.clone()))
    };
    models.iter().enumerate().map(conflict).collect()
}
