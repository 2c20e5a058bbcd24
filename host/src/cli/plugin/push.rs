//! `pointsman plugin push`.

use super::{
    file::{FileArgs, PluginUnderTest},
    live::{self, MANAGER},
};
use crate::{
    cli::{ClusterArgs, HostNamespaceArgs, exit::InputResult, output::print, progress},
    source::config_map::{DIGEST, PART_OF, split},
};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, PartialObjectMeta, Patch, PatchParams},
};
use pointsman_core::point::{answered, name};
use pointsman_crds::policy::plugin::{PluginInstances, PolicyPlugin, PolicyPoint, UpdateStrategyType};
use pointsman_sandbox::{builtin, limits::MAX_CONFIG_MAP_PARTS, words::dns_label};
use serde_json::{Map, Value, json};
use std::{fs, process::ExitCode};

/// The key of the bytes in each ConfigMap; the default of a PolicyPlugin.
const KEY: &str = "plugin.wasm";

#[derive(Args, Debug)]
pub(super) struct PushArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Name of the PolicyPlugin and of the first ConfigMap
    #[arg(long, value_parser = plugin_name)]
    name: String,
    #[command(flatten)]
    host: HostNamespaceArgs,
    /// Namespace of the ConfigMaps, one that the host accepts plugins from; default: the host's own
    #[arg(long, value_name = "NAMESPACE")]
    source_namespace: Option<String>,
    /// Policy point to call the plugin at; may be repeated. Default: all that it implements
    #[arg(long = "point", value_name = "POINT", value_parser = super::point)]
    points: Vec<PolicyPoint>,
    /// Position of the plugin; plugins with lower numbers are called first
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(1..=1000))]
    order: Option<i32>,
    /// Extend, or Replace: then plugins before it aren't called
    #[arg(long, value_enum, ignore_case = true)]
    mode: Option<Mode>,
    /// Configuration: a JSON object, or a file with one in YAML or JSON. Default: none, even if an earlier push had one
    #[arg(long, value_name = "FILE|JSON")]
    config: Option<String>,
    /// How updates of the plugin become active: immediately, within limits or after an approval, or never (compared only). Default: the
    /// strategy of an earlier push, otherwise as the host is configured
    #[arg(long, value_enum, ignore_case = true)]
    strategy: Option<Strategy>,
    /// Remove the pin that a rollback has set, so that this plugin can become active
    #[arg(long)]
    unpin: bool,
    /// Print the objects, and write nothing; needs no cluster
    #[arg(long)]
    dry_run: bool,
    /// Output format; yaml prints the objects
    #[arg(short, long, value_enum, default_value_t = Form::Text, value_name = "FORM")]
    output: Form,
    #[command(flatten)]
    waiting: live::WaitArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Mode {
    Extend,
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Strategy {
    Immediate,
    Guarded,
    Shadow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Yaml,
}

impl PushArgs {
    /// The namespace of the ConfigMaps.
    fn namespace(&self) -> &str {
        self.source_namespace.as_ref().unwrap_or(&self.host.host_namespace)
    }
}

/// Parses the name of a PolicyPlugin.
fn plugin_name(text: &str) -> Result<String, String> {
    if text.len() <= 253 && text.split('.').all(dns_label) {
        Ok(text.to_owned())
    } else {
        Err("a PolicyPlugin's name has up to 253 lowercase letters, digits, hyphens and dots, and starts and ends with a letter or digit"
            .to_owned())
    }
}

pub(super) async fn run(args: PushArgs) -> Result<ExitCode> {
    if builtin::find(&args.name).is_some() {
        bail!("{0} is a built-in plugin: choose another --name; with --mode Replace, the plugin replaces {0}", args.name);
    }
    let config = args.config.as_deref().map(configuration).transpose()?;
    let bench = PluginUnderTest::new(&args.file)?;
    let answered = answered(&bench.described.description);
    if let Some(other) = args.points.iter().find(|point| !answered.contains(point)) {
        let answered: Vec<_> = answered.iter().map(|point| name(*point)).collect();
        bail!("--point {}: the plugin doesn't support this point; it supports {}", name(*other), answered.join(", "));
    }
    let checked = config.as_ref().map_or_else(|| "{}".to_owned(), Value::to_string);
    bench.load(&checked, PluginInstances::Fresh).map_err(|error| anyhow!("the plugin can't be used like this: {error}"))?;

    let digest = bench.plugin.digest().to_string();
    let mut maps = split(&args.name, KEY, &bench.plugin.bytes)?;
    for map in &mut maps {
        map.metadata.namespace = Some(args.namespace().to_owned());
    }
    let mut binding = binding(&args, config, &maps);
    if args.output == Form::Yaml {
        for map in &maps {
            print(&format!("---\n{}", serde_saphyr::to_string(map)?));
        }
        print(&format!("---\n{}", serde_saphyr::to_string(&binding)?));
    }
    let told = |line: &str| {
        if args.output == Form::Text {
            print(line);
        }
    };
    if args.dry_run {
        for map in &maps {
            told(&format!("would apply   ConfigMap {}/{}, {} bytes", args.namespace(), map.name_any(), size(map)));
        }
        told(&format!("would apply   PolicyPlugin {}, {digest}", args.name));
        return Ok(ExitCode::SUCCESS);
    }

    let client = args.cluster.connect().await?;
    let plugins: Api<PolicyPlugin> = Api::all(client.clone());
    let before = plugins.get_opt(&args.name).await.with_context(|| format!("looking for the PolicyPlugin {}", args.name))?;
    before.as_ref().map_or(Ok(()), refuse_other_source)?;
    let pinned = before.as_ref().and_then(|plugin| plugin.spec.digest.clone()).filter(|pinned| *pinned != digest);
    if let Some(pinned) = pinned.as_ref().filter(|_| !args.unpin) {
        bail!(
            "the PolicyPlugin {0} is pinned to {pinned}, so that these bytes would not become active: push them with --unpin, or remove the pin with `pointsman plugin rollback {0} --resume`",
            args.name
        )
    }
    if args.waiting.wait > 0 {
        live::warn_without_leader(&client, &args.host.host_namespace).await;
    }
    let target = ConfigMaps::new(client, args.namespace());
    for (map, number) in maps.iter().zip(1..) {
        target.refuse_foreign(&map.name_any(), number).await?;
    }
    if let Some(strategy) = binding["spec"].get("strategy")
        && before.is_some()
    {
        // First of all: otherwise the bytes might become active under the previous strategy.
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = plugins.patch(&args.name, &params, &Patch::Merge(json!({"spec": {"strategy": strategy}}))).await;
        patched.with_context(|| format!("setting spec.strategy of the PolicyPlugin {}", args.name))?;
    } else if let Some(strategy) = before.as_ref().and_then(pushed_strategy) {
        // The apply below would remove it if an earlier apply has set it.
        binding["spec"]["strategy"] = json!({"type": strategy});
    }
    for map in &maps {
        progress::set(format!("applying the ConfigMap {}/{}", args.namespace(), map.name_any()));
        target.apply(map).await?;
        told(&format!("applied   ConfigMap {}/{}, {} bytes", args.namespace(), map.name_any(), size(map)));
    }
    if pinned.is_some() {
        // Not earlier: the source's previous bytes must not become active in between.
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let unpinned = plugins.patch(&args.name, &params, &Patch::Merge(json!({"spec": {"digest": null}}))).await;
        unpinned.with_context(|| format!("removing spec.digest of the PolicyPlugin {}", args.name))?;
        told(&format!("unpinned  PolicyPlugin {}", args.name));
    }
    let applied = plugins.patch(&args.name, &PatchParams::apply(MANAGER), &Patch::Apply(&binding)).await;
    let applied = applied.with_context(|| format!("applying the PolicyPlugin {}", args.name))?;
    told(&format!("applied   PolicyPlugin {}, {digest}", args.name));
    for line in unnamed_settings(&args, before.as_ref(), &applied) {
        told(&line);
    }
    for stale in target.remove_after(&args.name, maps.len()).await? {
        told(&format!("deleted   ConfigMap {}/{stale}, a part of the previous version", args.namespace()));
    }
    if args.waiting.wait > 0 {
        return Ok(live::decides(&plugins, &applied, &digest, args.waiting).await?.tell(&digest, told));
    }
    Ok(ExitCode::SUCCESS)
}

/// A configuration from JSON or a file.
pub(super) fn configuration(given: &str) -> Result<Value> {
    let (text, place) = if given.trim_start().starts_with('{') {
        (given.to_owned(), "--config".to_owned())
    } else {
        let context = || format!("--config {given}: it is neither a JSON object nor a readable file");
        let text = fs::read_to_string(given).with_context(context).readable()?;
        (text, given.to_owned())
    };
    let read: Value = serde_saphyr::from_str(&text).map_err(|error| {
        let line = error.location().map(|at| format!(":{}", at.line())).unwrap_or_default();
        anyhow!("{place}{line}: {}", crate::cli::yaml::parse_error_message(&error))
    })?;
    if read.is_object() { Ok(read) } else { bail!("{place}: a configuration is an object, such as {{\"label\": \"team\"}}") }
}

/// The PolicyPlugin with only the given fields: others' fields stay.
fn binding(args: &PushArgs, config: Option<Value>, maps: &[ConfigMap]) -> Value {
    let mut source = Map::from_iter([("name".to_owned(), json!(args.name)), ("key".to_owned(), json!(KEY))]);
    if maps.len() > 1 {
        source.insert("parts".to_owned(), maps[1..].iter().map(|map| json!(map.name_any())).collect());
    }
    if args.namespace() != args.host.host_namespace {
        source.insert("namespace".to_owned(), json!(args.namespace()));
    }
    let mut spec = Map::from_iter([("source".to_owned(), json!({ "configMap": source }))]);
    let mode = args.mode.map(|mode| json!(format!("{mode:?}")));
    let points = (!args.points.is_empty()).then(|| json!(args.points));
    let strategy = args.strategy.map(|type_| json!({"type": format!("{type_:?}")}));
    let given = [("points", points), ("order", args.order.map(Value::from)), ("mode", mode), ("config", config), ("strategy", strategy)];
    spec.extend(given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))));
    json!({ "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin", "metadata": { "name": args.name }, "spec": spec })
}

fn size(map: &ConfigMap) -> usize {
    map.binary_data.iter().flatten().map(|(_, bytes)| bytes.0.len()).sum()
}

/// Refuses a PolicyPlugin whose bytes don't come from ConfigMaps: it can't have a second source.
fn refuse_other_source(plugin: &PolicyPlugin) -> Result<()> {
    let source = &plugin.spec.source;
    let others = [("builtin", source.builtin.is_some()), ("file", source.file.is_some())];
    match others.into_iter().find(|(_, is_set)| *is_set) {
        Some((field, _)) => bail!(
            "the PolicyPlugin {} gets its plugin from spec.source.{field}, and a push adds spec.source.configMap: choose another --name",
            plugin.name_any()
        ),
        None => Ok(()),
    }
}

/// The strategy that an earlier push has set.
fn pushed_strategy(plugin: &PolicyPlugin) -> Option<UpdateStrategyType> {
    let is_pushed = |entry: &ManagedFieldsEntry| {
        let field = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:spec/f:strategy/f:type"));
        entry.manager.as_deref() == Some(MANAGER) && field.is_some()
    };
    let strategy = plugin.spec.strategy.as_ref()?;
    plugin.metadata.managed_fields.iter().flatten().any(is_pushed).then_some(strategy.type_)
}

/// The effects of a push on settings that it doesn't name, one per line.
fn unnamed_settings(args: &PushArgs, before: Option<&PolicyPlugin>, after: &PolicyPlugin) -> Vec<String> {
    let is_configured = |plugin: &PolicyPlugin| plugin.spec.config.as_ref().is_some_and(|config| !config.0.is_empty());
    let removed = before.is_some_and(is_configured) && !is_configured(after);
    let strategy = after.spec.strategy.as_ref().filter(|_| args.strategy.is_none()).map(|strategy| {
        let origin = if pushed_strategy(after).is_some() { "from an earlier push" } else { "from another field manager" };
        format!("strategy  {:?} ({origin})", strategy.type_)
    });
    removed.then(|| "removed   config".to_owned()).into_iter().chain(strategy).collect()
}

/// The ConfigMaps of one namespace.
pub(super) struct ConfigMaps {
    api: Api<ConfigMap>,
    namespace: String,
}

impl ConfigMaps {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    async fn metadata(&self, name: &str) -> Result<Option<PartialObjectMeta<ConfigMap>>> {
        self.api.get_metadata_opt(name).await.with_context(|| format!("looking for the ConfigMap {}/{name}", self.namespace))
    }

    /// Refuses to overwrite a ConfigMap that isn't a plugin's.
    async fn refuse_foreign(&self, name: &str, number: usize) -> Result<()> {
        match self.metadata(name).await? {
            Some(there) if !is_part(&there.metadata, number) => {
                bail!("the ConfigMap {}/{name} already exists and contains no plugin: choose another --name", self.namespace)
            }
            _ => Ok(()),
        }
    }

    async fn apply(&self, map: &ConfigMap) -> Result<()> {
        let name = map.name_any();
        let applied = self.api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(map)).await;
        applied.map(|_| ()).with_context(|| format!("applying the ConfigMap {}/{name}", self.namespace))
    }

    /// Deletes the part of this number of a plugin. Returns whether it is one; none if there is no such ConfigMap.
    pub(super) async fn delete_part(&self, name: &str, number: usize, dry_run: bool) -> Result<Option<bool>> {
        let Some(there) = self.metadata(name).await? else { return Ok(None) };
        if !is_part(&there.metadata, number) {
            return Ok(Some(false));
        }
        if !dry_run {
            let deleted = self.api.delete(name, &DeleteParams::default()).await;
            deleted.with_context(|| format!("deleting the ConfigMap {}/{name}", self.namespace))?;
        }
        Ok(Some(true))
    }

    /// Deletes the parts that a larger push has left. Parts are numbered without gaps.
    async fn remove_after(&self, name: &str, count: usize) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for number in count + 1..=MAX_CONFIG_MAP_PARTS {
            let stale = format!("{name}-{number}");
            match self.metadata(&stale).await? {
                Some(there) if is_part(&there.metadata, number) && is_ours(&there.metadata) => {
                    let deleted = self.api.delete(&stale, &DeleteParams::default()).await;
                    deleted.with_context(|| format!("deleting the ConfigMap {}/{stale}", self.namespace))?;
                    removed.push(stale);
                }
                _ => break,
            }
        }
        Ok(removed)
    }
}

/// Whether a ConfigMap is the part of this number of a plugin. The first part may be a whole plugin; one with the name of a further part
/// may be another plugin's first.
fn is_part(metadata: &ObjectMeta, number: usize) -> bool {
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
    let told = annotation(PART_OF).and_then(|told| told.split_once('/'));
    let told = told.and_then(|(part, of)| Some((part.parse::<usize>().ok()?, of.parse::<usize>().ok()?)));
    match told {
        Some((part, of)) => part == number && part <= of,
        None => number == 1 && annotation(DIGEST).is_some(),
    }
}

/// Whether this program has written it.
fn is_ours(metadata: &ObjectMeta) -> bool {
    metadata.managed_fields.iter().flatten().any(|entry| entry.manager.as_deref() == Some(MANAGER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: PushArgs,
    }

    fn bound(words: &[&str], parts: usize) -> Value {
        let args = Only::try_parse_from(["push", "a.wasm", "--name", "a"].iter().chain(words)).unwrap().args;
        let config = args.config.as_deref().map(configuration).transpose().unwrap();
        let part = |number| ConfigMap {
            metadata: ObjectMeta { name: Some(format!("a-{number}")), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        binding(&args, config, &(1..=parts).map(part).collect::<Vec<_>>())["spec"].take()
    }

    #[test]
    fn only_what_was_given_is_applied() {
        assert_eq!(bound(&[], 1), json!({"source": {"configMap": {"name": "a", "key": "plugin.wasm"}}}));
        let words = [
            "--strategy",
            "immediate",
            "--order",
            "7",
            "--mode",
            "replace",
            "--point",
            "pod-templating",
            "--config",
            r#"{"a": 1}"#,
            "--source-namespace",
            "n",
        ];
        let source = json!({"configMap": {"name": "a", "key": "plugin.wasm", "parts": ["a-2", "a-3"], "namespace": "n"}});
        let all = json!({"source": source, "points": ["pod-templating"], "order": 7, "mode": "Replace", "config": {"a": 1}, "strategy": {"type": "Immediate"}});
        assert_eq!(bound(&words, 3), all);
    }

    #[test]
    fn a_configuration_is_an_object() {
        assert_eq!(configuration("{a: 1}").unwrap(), json!({"a": 1}));
        assert!(configuration("{a").unwrap_err().to_string().starts_with("--config:1: "));
        assert!(format!("{:#}", configuration("/nowhere/a.yaml").unwrap_err()).contains("nor a readable file"));
    }

    #[test]
    fn what_the_api_server_would_reject_is_refused_before_anything_is_written() {
        for name in ["Bad_Name", "a..b", "a-", "a."] {
            let refused = Only::try_parse_from(["push", "a.wasm", "--name", name]).unwrap_err().to_string();
            assert!(refused.contains("lowercase letters"), "{name}: {refused}");
        }
        assert_eq!(plugin_name("team.labels-2").as_deref(), Ok("team.labels-2"));

        let plugin = |source: Value| -> PolicyPlugin {
            serde_json::from_value(json!({
                "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin", "metadata": {"name": "a"}, "spec": {"source": source},
            }))
            .unwrap()
        };
        let refused = |source: Value| refuse_other_source(&plugin(source)).unwrap_err().to_string();
        assert!(refused(json!({"file": {"path": "a.wasm"}})).contains("spec.source.file"));
        assert!(refused(json!({"builtin": {"name": "pod-templating"}})).contains("spec.source.builtin"));
        assert!(refuse_other_source(&plugin(json!({"configMap": {"name": "a"}}))).is_ok());
    }

    #[test]
    fn settings_that_a_push_does_not_name_are_reported() {
        let plugin = |spec: Value, manager: &str| -> PolicyPlugin {
            let fields = json!({"f:spec": {"f:strategy": {"f:type": {}}}});
            let mut plugin = json!({
                "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin",
                "metadata": {"name": "a", "managedFields": [{"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}]},
                "spec": {"source": {"configMap": {"name": "a"}}},
            });
            plugin["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            serde_json::from_value(plugin).unwrap()
        };
        let args = |more: &[&str]| Only::try_parse_from(["push", "a.wasm", "--name", "a"].iter().chain(more)).unwrap().args;
        let immediate = || plugin(json!({"strategy": {"type": "Immediate"}}), MANAGER);
        let configured = plugin(json!({"config": {"label": "team"}}), MANAGER);
        assert_eq!(pushed_strategy(&immediate()), Some(UpdateStrategyType::Immediate));
        assert_eq!(
            unnamed_settings(&args(&[]), Some(&configured), &immediate()),
            ["removed   config", "strategy  Immediate (from an earlier push)"]
        );
        let named = args(&["--strategy", "Immediate"]);
        assert!(unnamed_settings(&named, Some(&immediate()), &immediate()).is_empty());
        assert!(unnamed_settings(&args(&[]), Some(&configured), &configured).is_empty());
        let edited = plugin(json!({"strategy": {"type": "Shadow"}}), "kubectl-edit");
        assert_eq!(pushed_strategy(&edited), None);
        assert_eq!(unnamed_settings(&args(&[]), None, &edited), ["strategy  Shadow (from another field manager)"]);
    }

    #[test]
    fn the_order_of_built_in_plugins_is_refused() {
        assert!(Cli::try_parse_from(["pointsman", "plugin", "push", "a.wasm", "--name", "a", "--order", "0"]).is_err());
    }
}
