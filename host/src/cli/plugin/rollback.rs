//! `pointsman plugin rollback`.

use super::live::{self, MANAGER};
use crate::{
    cli::{ClusterArgs, output::print},
    revision::{Revision, Revisions},
};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_crds::policy::plugin::PolicyPlugin;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct RollbackArgs {
    /// The PolicyPlugin.
    name: String,
    /// The digest to go back to, or its beginning; by default the one that decided before.
    #[arg(long, value_name = "DIGEST", conflicts_with = "resume")]
    to: Option<String>,
    /// Removes the pin: the plugin's source decides again.
    #[arg(long, alias = "undo")]
    resume: bool,
    /// The host's own namespace, where revisions are kept.
    #[arg(long, default_value = HOST_NAMESPACE)]
    namespace: String,
    /// How many seconds to wait until the revision decides; 0 doesn't wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: RollbackArgs) -> Result<ExitCode> {
    let name = &args.name;
    let client = args.cluster.connect().await?;
    let plugins: Api<PolicyPlugin> = Api::all(client.clone());
    let found = plugins.get_opt(name).await.with_context(|| format!("reading the PolicyPlugin {name}"))?;
    let plugin = found.ok_or_else(|| anyhow!("there is no PolicyPlugin {name}; `pointsman plugin status` lists those that there are"))?;
    if args.resume {
        if plugin.spec.digest.is_none() {
            print(&format!("{name} isn't pinned"));
            return Ok(ExitCode::SUCCESS);
        }
        pin(&plugins, name, Value::Null).await?;
        print(&format!("{name} follows its source again"));
        return Ok(ExitCode::SUCCESS);
    }
    let kept = Revisions::new(client, &args.namespace).list(name).await?;
    let previous = plugin.status.as_ref().and_then(|status| status.previous.as_ref()).map(|previous| previous.digest.as_str());
    let digest = chosen(name, args.to.as_deref(), previous, &kept)?;
    let pinned = pin(&plugins, name, json!(digest)).await?;
    print(&format!("pinned    {name} to {digest}; `pointsman plugin rollback {name} --resume` removes the pin"));
    if args.wait > 0 {
        return Ok(live::decides(&plugins, &pinned, &digest, args.wait).await?.tell(&digest, print));
    }
    Ok(ExitCode::SUCCESS)
}

/// A merge patch of the one field: whoever applies the rest keeps it.
async fn pin(plugins: &Api<PolicyPlugin>, name: &str, digest: Value) -> Result<PolicyPlugin> {
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patched = plugins.patch(name, &params, &Patch::Merge(json!({ "spec": { "digest": digest } }))).await;
    patched.with_context(|| format!("setting spec.digest of the PolicyPlugin {name}"))
}

/// The digest to go back to, which must be kept.
fn chosen(name: &str, to: Option<&str>, previous: Option<&str>, kept: &[Revision]) -> Result<String> {
    let wanted = to.or(previous).ok_or_else(|| {
        anyhow!("nothing decided before the active version of {name}: name a revision with --to; {}", list_revisions(kept))
    })?;
    let fits = |digest: &String| digest.starts_with(wanted) || digest.trim_start_matches("sha256:").starts_with(wanted);
    let fitting: Vec<String> = kept.iter().map(|revision| revision.digest.to_string()).filter(fits).collect();
    match &fitting[..] {
        [digest] if !wanted.is_empty() => Ok(digest.clone()),
        [] => bail!("no revision {wanted} of {name} is kept; {}", list_revisions(kept)),
        _ => bail!("{wanted:?} is the beginning of several revisions of {name}; {}", list_revisions(kept)),
    }
}

fn list_revisions(kept: &[Revision]) -> String {
    let each: Vec<_> = kept.iter().map(|revision| format!("{} (version {})", revision.digest, revision.version)).collect();
    if each.is_empty() { "none is kept".to_owned() } else { format!("there are {}", each.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sandbox::digest::Digest;

    fn revision(bytes: &[u8]) -> Revision {
        let created = serde_json::from_value(json!("2026-01-02T00:00:00Z")).unwrap();
        Revision { digest: Digest::hash(bytes), version: "0.1.0".into(), created }
    }

    #[test]
    fn a_rollback_goes_to_what_is_kept() {
        let kept = [revision(b"a"), revision(b"b")];
        let [a, b] = [0, 1].map(|at| kept[at].digest.to_string());
        assert_eq!(chosen("p", None, Some(&b), &kept).unwrap(), b);
        assert_eq!(chosen("p", Some(&a), Some(&b), &kept).unwrap(), a);
        assert_eq!(chosen("p", Some(&a[7..15]), None, &kept).unwrap(), a);
        let said = |to: Option<&str>, kept: &[Revision]| chosen("p", to, None, kept).unwrap_err().to_string();
        assert!(said(Some("sha256:0"), &kept).contains(&format!("there are {a} (version 0.1.0), {b}")));
        assert!(said(Some("sha256:"), &kept).contains("beginning of several"));
        assert!(said(Some(""), &kept[..1]).contains("beginning of several"));
        assert!(said(None, &[]).contains("name a revision with --to; none is kept"));
    }
}
