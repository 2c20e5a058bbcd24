//! `pointsman plugin rollback`.

use super::live::{self, MANAGER};
use crate::{
    cli::{ClusterArgs, HostNamespaceArgs, output::print},
    revision::{Revision, Revisions},
};
use anyhow::{Context, Result, bail};
use clap::Args;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use pointsman_crds::policy::plugin::PolicyPlugin;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The annotation of a PolicyPlugin with the digests that users have rolled back from, newest last.
pub(super) const ROLLED_BACK: &str = "policy.pointsman.dev/rolled-back-from";

/// The maximum number of remembered digests.
const MAX_ROLLED_BACK: usize = 16;

#[derive(Args, Debug)]
pub(super) struct RollbackArgs {
    /// PolicyPlugin to roll back
    name: String,
    /// Digest to roll back to, or its beginning. Default: the active version, if a newer one isn't active; otherwise the newest revision
    /// from before the active version that isn't known to fail
    #[arg(long, value_name = "DIGEST", conflicts_with = "resume")]
    to: Option<String>,
    /// Remove the pin, so that the plugin's source can become active again
    #[arg(long, alias = "undo")]
    resume: bool,
    /// Print the revision that the plugin would roll back to, and write nothing
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    #[command(flatten)]
    host: HostNamespaceArgs,
    #[command(flatten)]
    waiting: live::WaitArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: RollbackArgs) -> Result<ExitCode> {
    let name = &args.name;
    let client = args.cluster.connect().await?;
    let plugins: Api<PolicyPlugin> = Api::all(client.clone());
    let plugin = live::get(&plugins, name).await?;
    if args.resume {
        if plugin.spec.digest.is_none() {
            print(&format!("{name} isn't pinned"));
            return Ok(ExitCode::SUCCESS);
        }
        // After undoing a rollback, the digest that becomes active again no longer counts as bad.
        pin(&plugins, name, Value::Null, Value::Null).await?;
        print(&format!("{name} follows its source again"));
        return Ok(ExitCode::SUCCESS);
    }
    let kept = Revisions::new(client.clone(), &args.host.host_namespace).list(name).await?;
    let Target { digest, skipped, withdrawn } = match &args.to {
        Some(to) => Target { digest: find(name, to, &kept)?, skipped: Vec::new(), withdrawn: None },
        None => choose(&plugin, &kept)?,
    };
    if let Some(withdrawn) = withdrawn {
        print(&format!("skipped   {withdrawn}: it isn't active, so the rollback pins the active version"));
    }
    for (skipped, why) in &skipped {
        print(&format!("skipped   {skipped}: {why}"));
    }
    if args.dry_run {
        print(&format!("would pin {name} to {digest}"));
        return Ok(ExitCode::SUCCESS);
    }
    if args.waiting.wait > 0 {
        live::warn_without_leader(&client, &args.host.host_namespace).await;
    }
    let pinned = pin(&plugins, name, json!(digest), json!(rolled_back(&plugin, &digest))).await?;
    print(&format!("pinned    {name} to {digest}; run `pointsman plugin push --unpin` with a fix, or `plugin rollback {name} --resume`"));
    if args.waiting.wait > 0 {
        return Ok(live::decides(&plugins, &pinned, &digest, args.waiting).await?.tell(&digest, print));
    }
    Ok(ExitCode::SUCCESS)
}

/// A merge patch of only the rollback's fields: whoever applies the others doesn't change these.
async fn pin(plugins: &Api<PolicyPlugin>, name: &str, digest: Value, rolled_back: Value) -> Result<PolicyPlugin> {
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patch = json!({"metadata": {"annotations": {ROLLED_BACK: rolled_back}}, "spec": {"digest": digest}});
    let patched = plugins.patch(name, &params, &Patch::Merge(patch)).await;
    patched.with_context(|| format!("setting spec.digest of the PolicyPlugin {name}"))
}

/// The digests that users have rolled back from.
fn known_rollbacks(plugin: &PolicyPlugin) -> impl Iterator<Item = &str> {
    let text = plugin.annotations().get(ROLLED_BACK).map(String::as_str).unwrap_or_default();
    text.split(',').map(str::trim).filter(|digest| !digest.is_empty())
}

/// The same with the active one and the one that waits, and without the target.
fn rolled_back(plugin: &PolicyPlugin, to: &str) -> String {
    let left: Vec<&str> = active(plugin).into_iter().chain(waiting(plugin)).collect();
    let former = known_rollbacks(plugin).filter(|digest| !left.contains(digest));
    let all: Vec<&str> = former.chain(left.iter().copied()).filter(|digest| *digest != to).collect();
    all[all.len().saturating_sub(MAX_ROLLED_BACK)..].join(",")
}

fn active(plugin: &PolicyPlugin) -> Option<&str> {
    Some(&*plugin.status.as_ref()?.active.as_ref()?.digest)
}

/// The version of the source that isn't active yet. A pinned one was chosen by a rollback.
fn waiting(plugin: &PolicyPlugin) -> Option<&str> {
    let candidate = &*plugin.status.as_ref()?.candidate.as_ref()?.digest;
    let is_newer = active(plugin) != Some(candidate) && plugin.spec.digest.as_deref() != Some(candidate);
    is_newer.then_some(candidate)
}

/// The target of a rollback, and the skipped revisions with reasons.
#[derive(Debug, PartialEq)]
struct Target {
    digest: String,
    skipped: Vec<(String, String)>,
    /// The version that won't become active.
    withdrawn: Option<String>,
}

/// The active version, if a newer one waits. Otherwise the newest revision before the active one that isn't known to fail, and that nobody
/// has rolled back from.
fn choose(plugin: &PolicyPlugin, kept: &[Revision]) -> Result<Target> {
    let status = plugin.status.clone().unwrap_or_default();
    let digest = |revision: &Revision| revision.digest.to_string();
    if let (Some(newer), Some(current)) = (waiting(plugin), active(plugin))
        && kept.iter().any(|revision| digest(revision) == current)
        && status.failed_revisions.iter().all(|failed| failed.digest != current)
    {
        return Ok(Target { digest: current.to_owned(), skipped: Vec::new(), withdrawn: Some(newer.to_owned()) });
    }
    let active = active(plugin);
    let since = kept.iter().find(|revision| active == Some(&*digest(revision))).map(|revision| &revision.created.0);
    // A revision that was never active was stored after the active one. The previous one may have been pushed again since.
    let previous = status.previous.as_ref().map(|previous| &previous.digest);
    let is_former = |revision: &&Revision| Some(&digest(revision)) == previous || since.is_none_or(|since| revision.created.0 <= *since);
    let mut former: Vec<&Revision> = kept.iter().filter(is_former).filter(|revision| active != Some(&*digest(revision))).collect();
    former.sort_by_key(|revision| (Some(&digest(revision)) != previous, std::cmp::Reverse(revision.created.0)));
    let mut skipped = Vec::new();
    for revision in former {
        let text = digest(revision);
        let failed = status.failed_revisions.iter().find(|failed| failed.digest == text);
        let why = if known_rollbacks(plugin).any(|known| known == text) {
            "it was rolled back from".to_owned()
        } else if let Some(failed) = failed {
            format!("it failed ({})", failed.reason)
        } else {
            return Ok(Target { digest: text, skipped, withdrawn: None });
        };
        skipped.push((format!("{text} (version {})", revision.version), why));
    }
    let name = plugin.name_any();
    let passed: Vec<String> = skipped.iter().map(|(revision, why)| format!("; {revision}: {why}")).collect();
    bail!("no earlier revision of {name} is left to roll back to{}: name one with --to, or push a fix with --unpin", passed.concat())
}

/// The digest that starts with `wanted`, which must be stored.
fn find(name: &str, wanted: &str, kept: &[Revision]) -> Result<String> {
    let fits = |digest: &String| digest.starts_with(wanted) || digest.trim_start_matches("sha256:").starts_with(wanted);
    let fitting: Vec<String> = kept.iter().map(|revision| revision.digest.to_string()).filter(fits).collect();
    match &fitting[..] {
        [digest] if !wanted.is_empty() => Ok(digest.clone()),
        [] => bail!("no revision {wanted} of {name} is stored; {}", list_revisions(kept)),
        _ => bail!("{wanted:?} is the beginning of several revisions of {name}; {}", list_revisions(kept)),
    }
}

fn list_revisions(kept: &[Revision]) -> String {
    let each: Vec<_> = kept.iter().map(|revision| format!("{} (version {})", revision.digest, revision.version)).collect();
    if each.is_empty() { "none is stored".to_owned() } else { format!("there are {}", each.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sandbox::digest::Digest;

    /// A revision of these bytes, stored on this day.
    fn revision(bytes: &[u8], day: u8) -> Revision {
        let created = serde_json::from_value(json!(format!("2026-01-{day:02}T00:00:00Z"))).unwrap();
        Revision { digest: Digest::hash(bytes), version: format!("0.{day}.0"), created }
    }

    fn digest(bytes: &[u8]) -> String {
        Digest::hash(bytes).to_string()
    }

    fn plugin(active: &[u8], previous: Option<&[u8]>, failed: &[&[u8]], rolled_back: &str) -> PolicyPlugin {
        let failed: Vec<Value> = failed.iter().map(|bytes| json!({"digest": digest(bytes), "reason": "Trap"})).collect();
        serde_json::from_value(json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin",
            "metadata": {"name": "p", "annotations": {ROLLED_BACK: rolled_back}},
            "spec": {"source": {"configMap": {"name": "p"}}},
            "status": {
                "active": {"digest": digest(active)}, "previous": previous.map(|bytes| json!({"digest": digest(bytes)})),
                "failedRevisions": failed,
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_digest_that_is_given_must_be_kept() {
        let kept = [revision(b"a", 1), revision(b"b", 2)];
        let [a, b] = [0, 1].map(|at| kept[at].digest.to_string());
        assert_eq!(find("p", &a, &kept).unwrap(), a);
        assert_eq!(find("p", &a[7..15], &kept).unwrap(), a);
        let said = |wanted: &str, kept: &[Revision]| find("p", wanted, kept).unwrap_err().to_string();
        assert!(said("sha256:0", &kept).contains(&format!("there are {a} (version 0.1.0), {b}")));
        assert!(said("sha256:", &kept).contains("beginning of several"));
        assert!(said("", &kept[..1]).contains("beginning of several"));
        assert!(said("x", &[]).contains("none is stored"));
    }

    #[test]
    fn a_rollback_passes_over_what_failed_and_names_it() {
        let kept = [revision(b"a", 1), revision(b"b", 2), revision(b"c", 3), revision(b"candidate", 4)];
        let chosen = choose(&plugin(b"c", Some(b"b"), &[], ""), &kept).unwrap();
        assert_eq!(chosen, Target { digest: digest(b"b"), skipped: Vec::new(), withdrawn: None });
        let chosen = choose(&plugin(b"c", Some(b"b"), &[b"b", b"c"], ""), &kept).unwrap();
        let skipped = (format!("{} (version 0.2.0)", digest(b"b")), "it failed (Trap)".to_owned());
        assert_eq!(chosen, Target { digest: digest(b"a"), skipped: vec![skipped], withdrawn: None });
        let none = choose(&plugin(b"b", Some(b"a"), &[b"a"], ""), &kept).unwrap_err().to_string();
        assert!(none.contains("no earlier revision of p is left") && none.contains("it failed (Trap): name one with --to"), "{none}");
    }

    #[test]
    fn a_version_that_waits_is_withdrawn_for_the_active_one() {
        let kept = [revision(b"a", 1), revision(b"b", 2), revision(b"broken", 3)];
        let mut waits = plugin(b"b", Some(b"a"), &[], "");
        let candidate = |bytes: &[u8]| serde_json::from_value(json!({"digest": digest(bytes)})).unwrap();
        waits.status.as_mut().unwrap().candidate = candidate(b"broken");
        let chosen = choose(&waits, &kept).unwrap();
        assert_eq!(chosen, Target { digest: digest(b"b"), skipped: Vec::new(), withdrawn: Some(digest(b"broken")) });
        // A later rollback doesn't choose it either.
        assert_eq!(rolled_back(&waits, &chosen.digest), digest(b"broken"));
        assert_eq!(rolled_back(&waits, &digest(b"a")), format!("{},{}", digest(b"b"), digest(b"broken")));

        // A rollback that waits for its approval stays the target.
        let mut pinned = waits.clone();
        pinned.spec.digest = Some(digest(b"a"));
        pinned.status.as_mut().unwrap().candidate = candidate(b"a");
        assert_eq!(choose(&pinned, &kept).unwrap().digest, digest(b"a"));
        // The active one fails, too.
        let mut failing = plugin(b"b", Some(b"a"), &[b"b"], "");
        failing.status.as_mut().unwrap().candidate = candidate(b"broken");
        assert_eq!(choose(&failing, &kept).unwrap().digest, digest(b"a"));
        // The same bytes with another configuration.
        waits.status.as_mut().unwrap().candidate = candidate(b"b");
        assert_eq!(choose(&waits, &kept).unwrap().digest, digest(b"a"));
    }

    #[test]
    fn rolling_back_twice_goes_further_back_and_never_to_and_fro() {
        let kept = [revision(b"a", 1), revision(b"b", 2), revision(b"c", 3)];
        let first = plugin(b"c", Some(b"b"), &[], "");
        let annotation = rolled_back(&first, &digest(b"b"));
        assert_eq!(annotation, digest(b"c"));
        // The one that was rolled back from is now the previous one.
        let second = plugin(b"b", Some(b"c"), &[], &annotation);
        let chosen = choose(&second, &kept).unwrap();
        assert_eq!(chosen.digest, digest(b"a"));
        assert_eq!(chosen.skipped[0].1, "it was rolled back from");
        assert_eq!(rolled_back(&second, &digest(b"a")), format!("{},{}", digest(b"c"), digest(b"b")));
        // Whoever names it explicitly disagrees.
        assert_eq!(rolled_back(&second, &digest(b"c")), digest(b"b"));
    }
}
