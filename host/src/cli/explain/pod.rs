//! `pointsman explain pod/NAME`, and `pointsman explain KIND/NAME --pod NAME`: the state of a pod, the object that creates it, and the
//! reason for its node.

use super::{
    super::{
        live::{self, ViewArgs, parse_subject},
        offline::Planned,
        output::{Output, line_width, note, print},
    },
    extenders::failure,
    placement::{self, NoPlacement},
};
use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use pointsman_core::{explain, resource::Resource};
use std::process::ExitCode;

/// The name of a pod, if KIND/NAME is one.
pub(super) fn parse(subject: &str) -> Option<&str> {
    let (kind, name) = subject.split_once('/')?;
    let is_pod = ["pod", "pods", "po"].iter().any(|word| word.eq_ignore_ascii_case(kind));
    Some(name).filter(|name| is_pod && !name.is_empty() && !name.contains('/'))
}

/// Explains a pod of the given subject, or of its own.
pub(super) async fn run(name: &str, subject: Option<&str>, view: &ViewArgs, extenders: &[String]) -> Result<ExitCode> {
    let subject = subject.map(parse_subject).transpose()?;
    let placed = match placement::find(name, view, extenders).await {
        // With --extender, the node is in question.
        Err(NoPlacement::Unanswered(error)) if !extenders.is_empty() => return Err(error),
        placed => placed,
    };
    if view.output.output == Output::Json {
        print(&serde_json::to_string_pretty(&placed.map_err(NoPlacement::into_error)?)?);
        return Ok(ExitCode::SUCCESS);
    }
    let planned = planned(name, subject, view).await;
    let text = match (planned, placed) {
        (Ok(planned), Ok(placed)) => [planned, Some(placement::text(&placed))].into_iter().flatten().collect::<Vec<_>>().join("\n"),
        (Ok(Some(planned)), Err(missing)) => {
            note(format!("its node isn't explained: {}", failure(&missing.into_error())));
            planned
        }
        (Ok(None), Err(missing)) => return Err(missing.into_error()),
        (Err(error), Ok(placed)) if subject.is_none() => {
            note(format!("the owner of the pod isn't explained: {}", failure(&error)));
            placement::text(&placed)
        }
        (Err(error), _) => return Err(error),
    };
    print(&text);
    Ok(ExitCode::SUCCESS)
}

/// The plan of the pod's subject for it; none if it belongs to no subject.
async fn planned(name: &str, wanted: Option<(&'static Resource, &str)>, view: &ViewArgs) -> Result<Option<String>> {
    let client = view.cluster.connect().await?;
    let namespace = view.offline.namespace.as_deref().unwrap_or_else(|| client.default_namespace());
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = pods.get_opt(name).await.with_context(|| format!("reading the pod {namespace}/{name}"))?;
    let live = found.map(serde_json::to_value).transpose().context("reading the response of the API server")?;
    let subject = live.as_ref().and_then(explain::pod::subject);
    let (live, kind, subject) = match (live, subject, wanted) {
        (None, ..) => bail!("there is no pod {name} in the namespace {namespace}: `kubectl get pods -n {namespace}` lists them"),
        (Some(live), Some((kind, subject)), wanted) => {
            let theirs = wanted.is_none_or(|wanted| wanted == (kind.resource, subject.as_str()));
            if !theirs {
                bail!("the pod {namespace}/{name} belongs to the {} {subject}: specify that one", kind.resource.kind);
            }
            (live, kind, subject)
        }
        (Some(_), None, Some((resource, wanted))) => {
            bail!("the pod {namespace}/{name} doesn't belong to the {} {wanted}: it has no label of a subject", resource.kind)
        }
        (Some(_), None, None) => return Ok(None),
    };
    let offline = live::read(&format!("{}/{subject}", kind.resource.plural), view).await?;
    let plans = tokio::task::block_in_place(|| offline.plans());
    let Planned { subject, plan } = plans.first().ok_or_else(|| anyhow!("the {} {subject} is being deleted", kind.resource.kind))?;
    Ok(Some(explain::pod::text(subject, plan, &live, line_width())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_as_kubectl_takes_it() {
        assert_eq!((parse("pod/a"), parse("Pods/a"), parse("po/a")), (Some("a"), Some("a"), Some("a")));
        assert_eq!((parse("isvc/a"), parse("pod/"), parse("pod/a/b"), parse("a")), (None, None, None, None));
    }
}
