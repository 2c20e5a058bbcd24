//! The active policies offline: the built-in policies and shipped rules, which PolicyPlugins and ValidationRules of the same name in the
//! files replace.

use super::objects::{Bound, OfflineObjects, Ruled};
use crate::{
    keeper::{binding::binding, builtins},
    load::{LoadError, Loader},
    source::{self, SOURCES, SourceSettings, SourceView, config_map::Namespaces},
};
use anyhow::{Result, anyhow};
use pointsman_core::{
    decide::{member::Member, set::ActiveSet},
    rules::{
        Rules,
        rule::{Rule, RuleError, bind},
    },
};
use pointsman_crds::policy::rule::RuleParams;
use pointsman_sandbox::{builtin, digest::Digest};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// The set of the files. Plugin files are below `directory` or, by default, in the folder of the PolicyPlugin's file.
pub(in crate::cli) fn set(loader: &Loader, gathered: &OfflineObjects, host_namespace: &str, directory: Option<&Path>) -> Result<ActiveSet> {
    let (set, refused) = set_of_good(loader, gathered, host_namespace, directory)?;
    match refused.into_iter().next() {
        Some(refused) => Err(anyhow!("{refused}")),
        None => Ok(set),
    }
}

/// A policy that can't be part of a set.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Refused<'g> {
    /// A rule that can't be used.
    #[error("{}: the ValidationRule {} can't be used: {error}", .rule.place, .rule.name)]
    Rule { rule: &'g Ruled, error: RuleError },
    /// A plugin that can't be loaded.
    #[error("{}: the PolicyPlugin {} can't be loaded: {refusal}", .plugin.place, .plugin.name)]
    Plugin { plugin: &'g Bound, refusal: PluginRefusal },
}

/// Why a plugin can't be loaded.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum PluginRefusal {
    /// A sentence.
    #[error("{0}")]
    Message(String),
    /// Its conditions can't be evaluated.
    #[error("{0}")]
    Conditions(RuleError),
}

impl From<String> for PluginRefusal {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

/// The set of the usable policies, and the others.
pub(in crate::cli) fn set_of_good<'g>(
    loader: &Loader,
    gathered: &'g OfflineObjects,
    host_namespace: &str,
    directory: Option<&Path>,
) -> Result<(ActiveSet, Vec<Refused<'g>>)> {
    let built_in = builtins(loader).map_err(|error| anyhow!(error))?;
    let mut refused = Vec::new();
    let rules = rules(loader, gathered, built_in.rules(), host_namespace, &mut refused)?;
    let named = |member: &&Arc<Member>| !gathered.plugins.iter().any(|bound| bound.name == member.name());
    let mut members: Vec<Arc<Member>> = built_in.members().iter().filter(named).cloned().collect();
    for bound in &gathered.plugins {
        match member(loader, gathered, bound, host_namespace, directory) {
            Ok(member) => members.push(Arc::new(member)),
            Err(refusal) => refused.push(Refused::Plugin { plugin: bound, refusal }),
        }
    }
    Ok((ActiveSet::new(members).ruled(rules), refused))
}

/// The rules of the files in addition to the shipped rules, of which they replace those with the same name.
fn rules<'g>(
    loader: &Loader,
    gathered: &'g OfflineObjects,
    brought: &Rules,
    host_namespace: &str,
    refused: &mut Vec<Refused<'g>>,
) -> Result<Rules> {
    let others = brought.all().iter().filter(|rule| !gathered.rules.iter().any(|ruled| ruled.name == rule.name()));
    let mut all: Vec<Arc<Rule>> = Vec::new();
    for rule in others {
        // The files may have its parameters.
        let params = params(gathered, rule.bound.spec.params.as_ref(), host_namespace);
        all.push(if params == rule.bound.params {
            Arc::clone(rule)
        } else {
            let bound = bind(rule.name(), &rule.bound.spec, params);
            Arc::new(loader.rule(bound).map_err(|error| anyhow!("the shipped rule {}: {error}", rule.name()))?)
        });
    }
    for rule in &gathered.rules {
        let params = params(gathered, rule.rule.spec.params.as_ref(), host_namespace);
        match loader.rule(bind(&rule.name, &rule.rule.spec, params)) {
            Ok(rule) => all.push(Arc::new(rule)),
            Err(error) => refused.push(Refused::Rule { rule, error }),
        }
    }
    Ok(Rules::new(all, brought.evaluator().cloned()))
}

/// The data of the ConfigMap that a rule names, if it is in the files.
pub(in crate::cli) fn params(
    gathered: &OfflineObjects,
    wanted: Option<&RuleParams>,
    host_namespace: &str,
) -> Option<BTreeMap<String, String>> {
    let map = &wanted?.config_map;
    let namespace = map.namespace.clone().unwrap_or_else(|| host_namespace.to_owned());
    let found = gathered.config_maps.get(&(namespace, map.name.clone()))?;
    Some(found.data.clone().unwrap_or_default())
}

fn member(
    loader: &Loader,
    gathered: &OfflineObjects,
    bound: &Bound,
    host_namespace: &str,
    directory: Option<&Path>,
) -> Result<Member, PluginRefusal> {
    let spec = &bound.plugin.spec;
    let wanted = &spec.source;
    let found = source::find(SOURCES, wanted).map_err(|problem| problem.message.trim_end_matches('.').to_owned())?;
    if builtin::find(&bound.name).is_some() && !found.is_part_of_host() {
        return Err("this is the name of a built-in plugin, which is the fallback of others: rename yours".to_owned().into());
    }
    if spec.order == 0 && !found.is_part_of_host() {
        return Err("order 0 is reserved for built-in plugins: set spec.order to a number from 1 to 1000".to_owned().into());
    }
    let settings = SourceSettings {
        namespace: host_namespace.to_owned(),
        namespaces: Namespaces::All,
        directory: Some(directory.unwrap_or(&bound.folder).to_owned()),
    };
    let keys = found.config_maps(wanted, &settings);
    let config_maps = keys.into_iter().map(|key| (key.clone(), gathered.config_maps.get(&key).cloned())).collect();
    let view = SourceView { settings, config_maps, unreadable: None };
    let read = source::read_offline(found, wanted, view).map_err(|problem| problem.message.trim_end_matches('.').to_owned())?;
    let bytes = read.unwrap_or_default();
    let digest = Digest::hash(&bytes).to_string();
    if let Some(wanted) = spec.digest.as_ref().filter(|wanted| **wanted != digest) {
        return Err(format!("spec.digest accepts only {wanted}, and the file has the digest {digest}").into());
    }
    let mut binding = binding(&bound.name, spec);
    binding.digest = digest;
    loader.load(binding, &bytes).map_err(|error| match error {
        LoadError::Conditions(error) => PluginRefusal::Conditions(error),
        other => PluginRefusal::Message(other.to_string()),
    })
}
