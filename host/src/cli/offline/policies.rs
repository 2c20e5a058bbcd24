//! What decides offline: the built-in policies, with the PolicyPlugins of the files in their places.

use super::objects::{Bound, Gathered};
use crate::policy::{
    digest::Digest,
    keeper::{binding::binding, builtins},
    load::Loader,
    member::Member,
    set::ActiveSet,
    source::{builtin, config_map, config_map::Namespaces, file, unpack::unpack},
};
use anyhow::{Result, anyhow};
use std::{path::Path, sync::Arc};

/// The set that the files make. Plugins in files are below `directory`, or else beside what names them.
pub(super) fn set(loader: &Loader, gathered: &Gathered, host_namespace: &str, directory: Option<&Path>) -> Result<ActiveSet> {
    let built_in = builtins(loader).map_err(|error| anyhow!(error))?;
    if gathered.plugins.is_empty() {
        return Ok(built_in);
    }
    let named = |member: &&Arc<Member>| !gathered.plugins.iter().any(|bound| bound.name == member.name());
    let mut members: Vec<Arc<Member>> = built_in.members().iter().filter(named).cloned().collect();
    for bound in &gathered.plugins {
        let member = member(loader, gathered, bound, host_namespace, directory)
            .map_err(|why| anyhow!("{}: the PolicyPlugin {} can't be loaded: {why}", bound.place, bound.name))?;
        members.push(Arc::new(member));
    }
    Ok(ActiveSet::new(members))
}

fn member(loader: &Loader, gathered: &Gathered, bound: &Bound, host_namespace: &str, directory: Option<&Path>) -> Result<Member, String> {
    let spec = &bound.plugin.spec;
    let source = &spec.source;
    let given = [source.builtin.is_some(), source.file.is_some(), source.config_map.is_some()];
    if given.into_iter().filter(|given| *given).count() != 1 {
        return Err("spec.source needs exactly one of builtin, file and configMap".to_owned());
    }
    if builtin::named(&bound.name).is_some() && source.builtin.is_none() {
        return Err("this is the name of a built-in plugin, which stands in for others: give yours another name".to_owned());
    }
    if spec.order == 0 && source.builtin.is_none() {
        return Err("order 0 is reserved for built-in plugins: set spec.order to a number from 1 to 1000".to_owned());
    }
    let bytes = if let Some(source) = &source.builtin {
        let known = builtin::named(&source.name).ok_or_else(|| format!("there is no built-in plugin {}", source.name))?;
        known.bytes.to_vec()
    } else if let Some(source) = &source.file {
        let read = file::read(directory.unwrap_or(&bound.folder), &source.path).map_err(|error| error.to_string())?;
        unpack(&read).map_err(|error| error.to_string())?.into_owned()
    } else if let Some(source) = &source.config_map {
        let get = |namespace: &str, name: &str| gathered.config_maps.get(&(namespace.to_owned(), name.to_owned())).cloned();
        config_map::assemble(source, host_namespace, &Namespaces::All, get).map_err(|error| error.to_string())?
    } else {
        Vec::new()
    };
    let digest = Digest::of(&bytes).to_string();
    if let Some(wanted) = spec.digest.as_ref().filter(|wanted| **wanted != digest) {
        return Err(format!("spec.digest accepts {wanted} alone, and the bytes are {digest}"));
    }
    let mut binding = binding(&bound.name, spec);
    binding.digest = digest;
    loader.load(binding, &bytes).map_err(|error| error.to_string())
}
