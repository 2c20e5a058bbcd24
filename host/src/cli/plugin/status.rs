//! `pointsman plugin status`.

use super::live::{self, ready, short, state};
use crate::{
    cli::{
        ClusterArgs, HostNamespaceArgs,
        output::{OutputArgs, Tone, columns, pairs},
    },
    revision::{Revision, Revisions},
};
use anyhow::{Context, Result};
use clap::Args;
use kube::{Api, ResourceExt, api::ListParams};
use pointsman_core::point::name;
use pointsman_crds::policy::plugin::{PluginRevision, PolicyPlugin, PolicyPluginStatus};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    /// Only this PolicyPlugin, in detail
    name: Option<String>,
    #[command(flatten)]
    host: HostNamespaceArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: StatusArgs) -> Result<ExitCode> {
    let client = args.cluster.connect().await?;
    let plugins: Api<PolicyPlugin> = Api::all(client.clone());
    if let Some(name) = &args.name {
        let plugin = live::get(&plugins, name).await?;
        let revisions = Revisions::new(client, &args.host.host_namespace).list(name).await?;
        args.output.print(&json!({ "plugin": plugin, "revisions": as_json(&revisions) }), || details(&plugin, &revisions))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut items = plugins.list(&ListParams::default()).await.context("listing the PolicyPlugins")?.items;
    items.sort_by_key(|plugin| (plugin.spec.order, plugin.name_any()));
    args.output.print(&items, || table(&items))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn as_json(revisions: &[Revision]) -> Value {
    let revision =
        |Revision { digest, version, created }: &Revision| json!({ "digest": digest.to_string(), "version": version, "created": created });
    revisions.iter().map(revision).collect()
}

fn points(plugin: &PolicyPlugin) -> String {
    let told = plugin.status.as_ref().map_or(&[][..], |status| &status.points);
    let points = if told.is_empty() { &plugin.spec.points } else { told };
    points.iter().map(|point| name(*point)).collect::<Vec<_>>().join(",")
}

/// The color of a plugin's state.
fn tone(status: Option<&PolicyPluginStatus>) -> Tone {
    match status.and_then(ready).map(|ready| (&*ready.status, &*ready.reason)) {
        Some(("True", "Ready")) => Tone::Good,
        Some(("True", _)) | None => Tone::Attention,
        Some(_) => Tone::Bad,
    }
}

fn table(plugins: &[PolicyPlugin]) -> String {
    let rows: Vec<_> = plugins
        .iter()
        .map(|plugin| {
            let status = plugin.status.as_ref();
            let active = status.and_then(|status| status.active.as_ref());
            let candidate = status.and_then(|status| status.candidate.as_ref()).and_then(|candidate| candidate.version.as_ref());
            let waiting = candidate.map(|version| format!("{version} (waiting)"));
            let error = status.and_then(|status| status.last_error.as_ref());
            [
                plugin.name_any(),
                points(plugin),
                format!("{:?}", plugin.spec.mode),
                plugin.spec.order.to_string(),
                active.and_then(|active| active.version.clone()).or(waiting).unwrap_or_default(),
                active.map(|active| short(&active.digest).to_owned()).unwrap_or_default(),
                tone(status).paint(state(status)),
                error.map(|error| error.reason.clone()).unwrap_or_default(),
            ]
        })
        .collect();
    columns(["NAME", "POINTS", "MODE", "ORDER", "VERSION", "ACTIVE", "STATE", "LAST ERROR"], &rows)
}

fn details(plugin: &PolicyPlugin, revisions: &[Revision]) -> String {
    let status = plugin.status.clone().unwrap_or_default();
    let revision = |revision: Option<&PluginRevision>| {
        revision.map_or_else(
            || "none".to_owned(),
            |PluginRevision { digest, version, at }| {
                let version = version.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
                let since = at.as_ref().map(|at| format!(", since {}", at.0)).unwrap_or_default();
                format!("{digest}{version}{since}")
            },
        )
    };
    let error = status.last_error.as_ref();
    let facts = pairs(&[
        ("name", plugin.name_any()),
        ("points", points(plugin)),
        ("mode", format!("{:?}", plugin.spec.mode)),
        ("order", plugin.spec.order.to_string()),
        ("source", status.source.clone().unwrap_or_default()),
        ("pinned to", plugin.spec.digest.clone().unwrap_or_else(|| "none".to_owned())),
        ("active", revision(status.active.as_ref())),
        ("previous", revision(status.previous.as_ref())),
        ("candidate", revision(status.candidate.as_ref())),
        ("last error", error.map_or_else(|| "none".to_owned(), |error| format!("{}: {}", error.reason, error.message))),
    ]);
    let conditions: Vec<_> =
        status.conditions.iter().map(|c| [c.type_.clone(), c.status.clone(), c.reason.clone(), c.message.clone()]).collect();
    let conditions = columns(["CONDITION", "STATUS", "REASON", "MESSAGE"], &conditions);
    let kept: Vec<_> = revisions.iter().map(|kept| [kept.digest.to_string(), kept.version.clone(), kept.created.0.to_string()]).collect();
    [facts, conditions, columns(["REVISION", "VERSION", "STORED SINCE"], &kept)].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anstream::adapter::strip_str;
    use pointsman_sandbox::digest::Digest;

    fn plugin() -> PolicyPlugin {
        let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "It is.", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin", "metadata": {"name": "a"},
            "spec": {"source": {"configMap": {"name": "a"}}, "order": 7},
            "status": {
                "points": ["pod-templating"], "source": "configmap",
                "active": {"digest": "sha256:0123456789abcdef", "version": "0.1.0", "at": "2026-01-01T00:00:00Z"},
                "conditions": [condition("Ready", "Ready")],
                "lastError": {"reason": "Trapped", "message": "it trapped"},
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_row_a_plugin_is_printed() {
        let table = strip_str(&table(&[plugin()])).to_string();
        assert_eq!(
            table.lines().nth(1).unwrap(),
            "a      pod-templating   Extend   7       0.1.0     sha256:0123456789ab   Ready   Trapped"
        );
    }

    #[test]
    fn a_plugin_whose_first_version_waits_has_that_version() {
        let mut waits = plugin();
        let status = waits.status.as_mut().unwrap();
        status.candidate = status.active.take();
        let table = strip_str(&table(&[waits])).to_string();
        assert!(table.lines().nth(1).unwrap().contains(" 0.1.0 (waiting) "), "{table}");
    }

    #[test]
    fn the_details_have_conditions_and_revisions() {
        let created = serde_json::from_value(json!("2026-01-02T00:00:00Z")).unwrap();
        let kept = Revision { digest: Digest::hash(b"a"), version: "0.0.9".into(), created };
        let told = details(&plugin(), &[kept]);
        for part in ["version 0.1.0, since 2026-01-01T00:00:00Z", "Trapped: it trapped", "It is.", "0.0.9", "2026-01-02T00:00:00Z"] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }
}
