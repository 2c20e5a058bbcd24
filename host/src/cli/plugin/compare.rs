//! `pointsman plugin diff`.

mod placements;
mod scene;

use super::{file::PluginFile, push::configuration};
use crate::{
    cli::{
        HostNamespaceArgs,
        exit::DECISION_NEEDED,
        live::{Source, ViewArgs},
        memory::observe,
        offline::{self, Offline, OfflineArgs},
        output::{self, Output},
        render, settings,
    },
    keeper::{binding::binding, of_set, sets},
    load::Loader,
    source::config_map::{Namespaces, PART_OF, assemble},
};
use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgGroup, Args};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt, api::ListParams};
use pointsman_core::{
    decide::{Policies, member::Member, set::ActiveSet},
    world::ObjectKey,
};
use pointsman_crds::policy::{
    plugin::{ConfigMapSource, PluginMode, PolicyPluginSpec, PolicyPoint},
    set::{PolicySet, PolicySetPhase, PolicySetPlugin},
};
use pointsman_sandbox::{
    cache::Cache,
    digest::{Digest, sorted},
    limits::{DECISION_CACHE, MAX_CONFIG_MAP_PARTS},
};
use scene::{Scene, text};
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, sync::Arc};
use tokio::task::block_in_place;

#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("what").required(true).args(["file", "config_map", "candidate", "set"])),
    mut_arg("namespace", |arg| arg.help(NAMESPACE)),
    mut_arg("without", |arg| arg.requires("files")),
    mut_arg("plugin_dir", |arg| arg.requires("files")),
    mut_arg("nodes", |arg| arg.requires("files")),
    after_help = "Exit code: 0 if nothing changes, 2 if something does, 1 if the comparison fails."
)]
pub(super) struct DiffArgs {
    /// Plugin to compare: a component, or a core module that embeds its interfaces; uncompressed or compressed with gzip. Services in files
    /// (-f) count as running unchanged
    file: Option<PathBuf>,
    /// ConfigMap of the cluster with the plugin, or the first of several with its parts
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = settings::place, conflicts_with = "files")]
    config_map: Option<(String, String)>,
    /// Compare the candidate, the policy set that becomes active next
    #[arg(long, conflicts_with = "files")]
    candidate: bool,
    /// Policy set of the cluster to compare: its name or digest
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    set: Option<String>,
    /// PolicyPlugin that would use this plugin; a new one if none has this name
    #[arg(long, required_unless_present_any = ["candidate", "set"], conflicts_with_all = ["candidate", "set"])]
    name: Option<String>,
    /// Policy point to call the plugin at; may be repeated. Default: as in the PolicyPlugin; for a new one, all that the plugin implements
    #[arg(long = "point", value_name = "POINT", value_parser = super::point, conflicts_with_all = ["candidate", "set"])]
    points: Vec<PolicyPoint>,
    /// Position of the plugin; plugins with lower numbers are called first. Default: as in the PolicyPlugin, or 100
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(1..=1000), conflicts_with_all = ["candidate", "set"])]
    order: Option<i32>,
    /// Extend, or Replace: then plugins before it aren't called
    #[arg(long, value_parser = mode, conflicts_with_all = ["candidate", "set"])]
    mode: Option<PluginMode>,
    /// Configuration: a JSON object, or a file with one in YAML or JSON; default: as in the PolicyPlugin
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["candidate", "set"])]
    config: Option<String>,
    /// Recorded placements to compare instead of services: a file with a response of a scheduler extender's /placements, or - for standard
    /// input
    #[arg(long, value_name = "FILE|-", conflicts_with = "extender")]
    placements: Option<PathBuf>,
    /// Scheduler extender whose recorded placements to compare instead of services: its port of --listen, such as 127.0.0.1:8080 after
    /// `kubectl port-forward`; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    extender: Vec<String>,
    /// Print the names of changed objects without the changes; for placements, only the numbers
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    view: ViewArgs,
}

/// The help of -n in this command.
const NAMESPACE: &str =
    "Only the services of this namespace; default: all namespaces. With files: namespace of objects that specify none; default: `default`";

fn mode(text: &str) -> Result<PluginMode, String> {
    match text.to_ascii_lowercase().as_str() {
        "extend" => Ok(PluginMode::Extend),
        "replace" => Ok(PluginMode::Replace),
        _ => Err("expected Extend or Replace".to_owned()),
    }
}

pub(super) async fn run(args: DiffArgs) -> Result<ExitCode> {
    let ViewArgs { offline, cache, output, .. } = &args.view;
    let loader = block_in_place(|| render::loader(cache))?;
    if args.placements.is_some() || !args.extender.is_empty() {
        return placements::run(&args, Arc::new(loader)).await;
    }
    let scene = if offline.files.is_empty() { live(&args, Arc::new(loader)).await? } else { block_in_place(|| of_files(&args, &loader))? };
    let detailed = !args.summary && output.output == Output::Table;
    let (report, details) = block_in_place(|| scene.compare(detailed));
    output.print(&report, || text(&report, &details))?;
    Ok(if report.changed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DECISION_NEEDED) })
}

/// The services of a cluster.
async fn live(args: &DiffArgs, loader: Arc<Loader>) -> Result<Scene> {
    let source = Source::connect(&args.view.cluster).await?;
    let OfflineArgs { namespace, host: HostNamespaceArgs { host_namespace }, only, settings, .. } = &args.view.offline;
    let namespace = namespace.as_deref().unwrap_or_default();
    let (before, after) = live_sets(args, &source, loader).await?;
    let mut world = source.read_all(namespace).await?;
    let wanted = |key: &ObjectKey| only.is_empty() || only.iter().any(|(namespace, name)| *namespace == key.namespace && *name == key.name);
    let subjects: Vec<ObjectKey> = world.subjects().map(|subject| subject.key.clone()).filter(wanted).collect();
    if subjects.is_empty() && !only.is_empty() {
        let place = if namespace.is_empty() { String::new() } else { format!(" in the namespace {namespace} (-n)") };
        bail!("there is no subject {} (--for){place}", offline::names(only));
    }
    for rules in [before.rules(), after.rules()] {
        source.crowd(&mut world, rules, namespace).await?;
    }
    observe(&source, &mut world, &Policies::for_comparison(&before, Arc::new(Cache::new(DECISION_CACHE))), host_namespace).await;
    Ok(Scene { world, subjects, settings: settings.settings(), before, after, files: false })
}

/// The active set in a cluster's record, and the set to compare with it.
async fn live_sets(args: &DiffArgs, source: &Source, loader: Arc<Loader>) -> Result<(Arc<ActiveSet>, ActiveSet)> {
    let host_namespace = &args.view.offline.host.host_namespace;
    let (before, _) = source.set(host_namespace, Arc::clone(&loader)).await?;
    let before = Arc::new(before);
    let after = if let Some(bytes) = args.bytes(&source.client).await? {
        block_in_place(|| args.exchanged(&loader, &before, &bytes))?
    } else {
        let set = args.policy_set(&source.client).await?;
        let loaded = of_set(source.client.clone(), host_namespace, loader, Arc::clone(&before), &set).await;
        let loaded = loaded.map_err(|why| anyhow!("the PolicySet {}: {why}", sets::name(&set.spec.digest)))?;
        ActiveSet::new(loaded.members().iter().map(|member| with_previous(&before, member)).collect()).ruled(loaded.rules().clone())
    };
    Ok((before, after))
}

/// The services in files.
fn of_files(args: &DiffArgs, loader: &Loader) -> Result<Scene> {
    let (offline, after) = read_files(args, loader)?;
    let before = offline.policies.active();
    let Offline { world, subjects, settings, .. } = offline;
    Ok(Scene { world, subjects, settings, before, after, files: true })
}

/// The content of files with its active set, and the set to compare with it.
fn read_files(args: &DiffArgs, loader: &Loader) -> Result<(Offline, ActiveSet)> {
    let path = args.file.as_ref().context("with files (-f), the plugin must be a file: specify it")?;
    let bytes = PluginFile::read(path)?.bytes;
    let offline = Offline::read(&args.view.offline, loader)?;
    for note in &offline.notes {
        output::note(note);
    }
    let after = args.exchanged(loader, &offline.policies.active(), &bytes)?;
    Ok((offline, after))
}

impl DiffArgs {
    /// The bytes to compare, unless a whole set is compared.
    async fn bytes(&self, client: &Client) -> Result<Option<Vec<u8>>> {
        if let Some(path) = &self.file {
            return Ok(Some(PluginFile::read(path)?.bytes));
        }
        let Some((namespace, name)) = &self.config_map else { return Ok(None) };
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let mut maps = BTreeMap::new();
        let read = async |name: &str| api.get_opt(name).await.with_context(|| format!("reading the ConfigMap {namespace}/{name}"));
        let first = read(name).await?;
        let source = source(namespace, name, first.as_ref());
        maps.extend(first.map(|first| (name.clone(), Arc::new(first))));
        for part in &source.parts {
            maps.extend(read(part).await?.map(|map| (part.clone(), Arc::new(map))));
        }
        Ok(Some(assemble(&source, namespace, &Namespaces::All, |_, name| maps.get(name).cloned())?))
    }

    /// The set to compare.
    async fn policy_set(&self, client: &Client) -> Result<PolicySet> {
        let api = Api::<PolicySet>::all(client.clone());
        if let Some(given) = &self.set {
            let name = if given.starts_with("sha256:") { sets::name(given) } else { given.clone() };
            let found = api.get_opt(&name).await.with_context(|| format!("reading the PolicySet {name}"))?;
            return found.ok_or_else(|| anyhow!("there is no PolicySet {name}: run `pointsman policy history` to list all sets"));
        }
        let sets = api.list(&ListParams::default()).await.context("listing the PolicySets")?.items;
        let candidate = |set: &PolicySet| set.status.as_ref().and_then(|status| status.phase) == Some(PolicySetPhase::Candidate);
        let mut candidates: Vec<PolicySet> = sets.into_iter().filter(candidate).collect();
        match candidates.len() {
            0 => bail!("no policy set is a candidate now: run `pointsman policy history` to list all sets"),
            1 => Ok(candidates.remove(0)),
            _ => {
                let names: Vec<String> = candidates.iter().map(ResourceExt::name_any).collect();
                bail!("there are several candidates: specify one with --set: {}", names.join(", "))
            }
        }
    }

    /// The same set with these bytes as the plugin of that name.
    fn exchanged(&self, loader: &Loader, before: &ActiveSet, bytes: &[u8]) -> Result<ActiveSet> {
        let bound = self.bound(before, &Digest::hash(bytes))?;
        let member = loader.load(bound, bytes).map_err(|error| anyhow!("the plugin can't be used like this: {error}"))?;
        let others = before.members().iter().filter(|other| other.name() != member.name()).cloned();
        Ok(ActiveSet::new(others.chain([with_previous(before, &member)]).collect()).ruled(before.rules().clone()))
    }

    /// The binding of the plugin: like the one that it replaces, except for given flags.
    fn bound(&self, set: &ActiveSet, digest: &Digest) -> Result<PolicySetPlugin> {
        let name = self.name.as_deref().context("set --name to the PolicyPlugin")?;
        let mut bound = match set.member(name) {
            Some(member) => member.bound.clone(),
            None => binding(name, &PolicyPluginSpec::default()),
        };
        // A plugin that is bound at all of its points most likely has no spec.points.
        if set.member(name).is_some_and(|member| member.description.points.len() == bound.points.len()) {
            bound.points.clear();
        }
        if !self.points.is_empty() {
            bound.points.clone_from(&self.points);
            bound.points.sort();
            bound.points.dedup();
        }
        bound.digest = digest.to_string();
        bound.order = self.order.unwrap_or(bound.order);
        bound.mode = self.mode.unwrap_or(bound.mode);
        if let Some(given) = &self.config {
            bound.config = bound_configuration(given)?;
        }
        Ok(bound)
    }
}

/// A configuration from JSON or a file, in the form of a binding.
fn bound_configuration(given: &str) -> Result<Option<String>> {
    let given = configuration(given)?;
    Ok(given.as_object().is_some_and(|fields| !fields.is_empty()).then(|| sorted(&given).to_string()))
}

/// The source in a PolicyPlugin for the plugin in a ConfigMap, whose annotation has the number of parts.
fn source(namespace: &str, name: &str, first: Option<&ConfigMap>) -> ConfigMapSource {
    let told = first.and_then(|first| first.metadata.annotations.as_ref()?.get(PART_OF)?.strip_prefix("1/")?.parse::<usize>().ok());
    let parts = (2..=told.unwrap_or(1).min(MAX_CONFIG_MAP_PARTS)).map(|number| format!("{name}-{number}")).collect();
    let mut source = ConfigMapSource { namespace: Some(namespace.to_owned()), name: name.to_owned(), parts, ..ConfigMapSource::default() };
    let keys = first.and_then(|first| first.binary_data.as_ref()).filter(|data| data.len() == 1);
    if let Some(only) = keys.and_then(|data| data.keys().next()) {
        source.key.clone_from(only);
    }
    source
}

/// A member as the host puts it into a set: its fallback is the one that it replaces.
fn with_previous(active: &ActiveSet, member: &Member) -> Arc<Member> {
    let current = active.member(member.name());
    let former = current.filter(|current| current.bound.digest != member.bound.digest).map(|current| Arc::new(current.after(None)));
    let previous = former.or_else(|| current.and_then(|current| current.previous.clone()));
    Arc::new(member.after(previous.filter(|previous| previous.missing().is_none())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    use pointsman_sandbox::point::describe::Description;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: DiffArgs,
    }

    fn args(words: &[&str]) -> Result<DiffArgs, String> {
        Only::try_parse_from(["diff"].iter().chain(words)).map(|only| only.args).map_err(|error| error.to_string())
    }

    #[test]
    fn one_thing_is_compared_and_bytes_need_a_name() {
        let from_extenders = ["--candidate", "--extender", "localhost:8080", "--extender", "localhost:8081"];
        let plugins = [&["a.wasm", "--name", "a"][..], &["--config-map", "n/a", "--name", "a"], &["--candidate"], &["--set", "set-1"]];
        for words in plugins.into_iter().chain([&from_extenders[..]]) {
            args(words).unwrap();
        }
        let refused: [(&[&str], &str); 10] = [
            (&[], "--candidate"),
            (&["--name", "a"], "--candidate"),
            (&["a.wasm"], "--name"),
            (&["a.wasm", "--name", "a", "--candidate"], "cannot be used with"),
            (&["--candidate", "--order", "7"], "cannot be used with"),
            (&["--candidate", "-f", "a.yaml"], "cannot be used with"),
            (&["a.wasm", "--name", "a", "--plugin-dir", "b"], "--file"),
            (&["a.wasm", "--name", "a", "--order", "0"], "1..=1000"),
            (&["a.wasm", "--name", "a", "--mode", "else"], "Extend or Replace"),
            (&["--candidate", "--placements", "-", "--extender", "localhost:8080"], "cannot be used with"),
        ];
        for (words, says) in refused {
            let said = args(words).unwrap_err();
            assert!(said.contains(says), "{words:?}: {said}");
        }
    }

    #[test]
    fn all_namespaces_are_meant_unless_one_is_named() {
        assert_eq!(args(&["--candidate"]).unwrap().view.offline.namespace, None);
        assert_eq!(args(&["--candidate", "-n", "a"]).unwrap().view.offline.namespace.as_deref(), Some("a"));
    }

    #[test]
    fn a_plugin_is_bound_like_the_one_whose_place_it_takes_but_for_what_is_said() {
        let there = PolicySetPlugin {
            name: "a".to_owned(),
            points: vec![PolicyPoint::PodTemplating],
            order: 7,
            config: Some("{}".to_owned()),
            ..PolicySetPlugin::default()
        };
        let set = ActiveSet::new(vec![Arc::new(Member::new(there.clone(), Description::default(), None, None).unwrap())]);
        let digest = Digest::hash(b"new");
        let bound = |words: &[&str]| args(&[&["a.wasm", "--name"][..], words].concat()).unwrap().bound(&set, &digest).unwrap();
        assert_eq!(bound(&["a"]), PolicySetPlugin { digest: digest.to_string(), ..there });
        let other = bound(&["a", "--order", "9", "--mode", "replace", "--config", "{b: 1, a: 2}", "--point", "runtime-selection"]);
        assert_eq!((other.order, other.mode, other.points), (9, PluginMode::Replace, vec![PolicyPoint::RuntimeSelection]));
        assert_eq!(other.config.as_deref(), Some(r#"{"a":2,"b":1}"#));
        let new = bound(&["b"]);
        assert_eq!((new.name.as_str(), new.order, new.weight, new.points), ("b", 100, 1, Vec::new()));
    }

    #[test]
    fn what_a_member_takes_the_place_of_is_what_it_falls_back_to() {
        let member = |digest: &str| {
            let bound = PolicySetPlugin { name: "a".to_owned(), digest: digest.to_owned(), ..PolicySetPlugin::default() };
            Member::new(bound, Description::default(), None, None).unwrap()
        };
        let active = ActiveSet::new(vec![Arc::new(member("old"))]);
        let previous = |digest: &str| with_previous(&active, &member(digest)).previous.as_ref().map(|former| former.bound.digest.clone());
        assert_eq!((previous("new").as_deref(), previous("old")), (Some("old"), None));
    }

    #[test]
    fn a_configuration_is_an_object() {
        assert_eq!(bound_configuration("{}").unwrap(), None);
        assert_eq!(bound_configuration("{b: 1, a: 2}").unwrap().as_deref(), Some(r#"{"a":2,"b":1}"#));
    }

    #[test]
    fn a_config_map_tells_in_how_many_parts_the_plugin_comes() {
        let map = |part: &str, key: &str| ConfigMap {
            metadata: ObjectMeta { annotations: Some([(PART_OF.to_owned(), part.to_owned())].into()), ..ObjectMeta::default() },
            binary_data: Some([(key.to_owned(), ByteString(vec![1]))].into()),
            ..ConfigMap::default()
        };
        let of = |map: Option<&ConfigMap>| {
            let ConfigMapSource { key, parts, .. } = source("n", "a", map);
            (key, parts.join(" "))
        };
        assert_eq!(of(Some(&map("1/3", "b.wasm"))), ("b.wasm".to_owned(), "a-2 a-3".to_owned()));
        assert_eq!(of(Some(&map("2/3", "b.wasm"))), ("b.wasm".to_owned(), String::new()));
        assert_eq!(of(None), ("plugin.wasm".to_owned(), String::new()));
    }
}
