//! `pointsman explain`: explains the plan of a service, the node of a pod, and the endpoint of a request.

pub(super) mod extenders;
mod placement;
mod pod;
pub(super) mod remote;
mod request;

use super::{
    exit::usage,
    live::{self, ViewArgs},
    offline::{Offline, Planned},
    output::{Output, line_width, print},
    render::{read, report_held},
};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use pointsman_core::{
    explain::{self, why},
    guards::provenance::select::FieldPath,
};
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, mut_arg("namespace", |arg| arg.help(NAMESPACE)))]
pub(super) struct ExplainArgs {
    #[command(subcommand)]
    other: Option<Other>,
    /// Subject of the cluster, such as inferenceservice/llama-chat or isvc/llama-chat; or a pod, such as pod/llama-chat-0. Default: the
    /// subjects in the files
    #[arg(value_name = "KIND/NAME", conflicts_with_all = ["files", "without", "only", "plugin_dir", "nodes"])]
    subject: Option<String>,
    #[command(flatten)]
    part: PartArgs,
    /// For a pod: the scheduler extender's port of --listen, such as 127.0.0.1:8080 after `kubectl port-forward`; may be repeated. Default:
    /// the extenders in the host's namespace, through the API server
    #[arg(long, value_name = "ADDRESS:PORT", requires = "subject")]
    extender: Vec<String>,
    #[command(flatten)]
    view: ViewArgs,
}

/// Output instead of a summary
#[derive(Args, Debug)]
#[group(multiple = false)]
struct PartArgs {
    /// Print all decisions: each change of a pod's template, each label and annotation, all conditions
    #[arg(long)]
    all: bool,
    /// Print the labels and annotations of each object, each with its layer and the plugin that set it
    #[arg(long)]
    labels: bool,
    /// Print one pod of the subject: its state, the object that creates it, and the reason for its node
    #[arg(long, value_name = "NAME", requires = "subject")]
    pod: Option<String>,
    /// Print who requested a field of the planned objects or of their pods and which plugin set it, such as spec.containers[0].args,
    /// spec.template.spec.containers[main].image or spec.replicas
    #[arg(long, value_name = "FIELD")]
    why: Option<FieldPath>,
}

/// Other things to explain
#[derive(Debug, Subcommand)]
enum Other {
    /// Explain why an endpoint picker sent a request to its endpoint, from the picker's records
    Request(request::RequestArgs),
}

/// The help of -n in this command.
const NAMESPACE: &str = "Namespace of the subject or the pod; default: the one of the kubeconfig's context. With files: namespace of objects \
                         that specify none; default: `default`";

/// The details that the summary leaves out.
const MORE: &str = "--all prints everything, --labels labels, --pod NAME one pod, --why FIELD who requested a field";

pub(super) async fn run(args: ExplainArgs) -> Result<ExitCode> {
    if let Some(Other::Request(args)) = &args.other {
        return request::run(args).await;
    }
    let ExplainArgs { part, view, extender, .. } = &args;
    let subject = args.subject.as_deref();
    match (subject.and_then(pod::parse), subject.zip(part.pod.as_deref())) {
        (Some(_), _) if part.all || part.labels || part.pod.is_some() || part.why.is_some() => {
            bail!(usage("--all, --labels, --pod and --why are for subjects: specify the pod's subject as KIND/NAME"))
        }
        (Some(name), _) => return pod::run(name, None, view, extender).await,
        (None, Some((subject, name))) => return pod::run(name, Some(subject), view, extender).await,
        // clap doesn't enforce a requirement that conflicts with another given flag.
        (None, None) if part.pod.is_some() => {
            bail!(usage("--pod is for subjects in a cluster: specify KIND/NAME of the pod's subject"))
        }
        (None, None) if !extender.is_empty() => bail!(usage("--extender is for pods: specify one as pod/NAME, or with --pod NAME")),
        (None, None) => {}
    }
    if part.labels && view.output.output == Output::Json {
        bail!(usage("-o json prints the full record: omit --labels"));
    }
    let offline = match subject {
        Some(subject) => live::read(subject, view).await?,
        None if view.offline.files.is_empty() => {
            bail!(usage("nothing to explain: specify KIND/NAME of a subject in the cluster, or files with -f FILE"))
        }
        None => read(&view.offline, &view.cache)?,
    };
    let plans = tokio::task::block_in_place(|| offline.plans());
    let text = explained(&offline, &plans, &args)?;
    if !text.is_empty() {
        print(&text);
    }
    Ok(if args.subject.is_some() { ExitCode::SUCCESS } else { report_held(&plans) })
}

fn explained(offline: &Offline, plans: &[Planned], args: &ExplainArgs) -> Result<String> {
    let ExplainArgs { part, view, .. } = args;
    let output = view.output.output;
    if let Some(path) = &part.why {
        return fields(offline, plans, path, output);
    }
    let mut lines = Vec::new();
    for Planned { subject, plan } in plans {
        // The status in a file may be outdated.
        let stored = if args.subject.is_some() { explain::stored_conditions(subject, plan) } else { Vec::new() };
        lines.push(match output {
            Output::Json => serde_json::to_string(&explain::json(subject, plan, &stored))?,
            Output::Table if part.all => explain::full::text(subject, plan, &stored),
            Output::Table if part.labels => explain::labels::text(subject, plan),
            Output::Table => explain::summary::text(subject, plan, &stored, line_width()),
        });
    }
    if output == Output::Table && !part.all && !part.labels && !lines.is_empty() {
        lines.push(MORE.to_owned());
    }
    Ok(lines.join("\n"))
}

/// Who requested the fields at a path, for the subjects that have it.
fn fields(offline: &Offline, plans: &[Planned], path: &FieldPath, output: Output) -> Result<String> {
    let set = offline.policies.active();
    let (mut lines, mut missing) = (Vec::new(), None);
    for Planned { subject, plan } in plans {
        match why::find(subject, plan, set.configs(), path) {
            Ok(found) => lines.push(match output {
                Output::Json => serde_json::to_string(&found.json())?,
                Output::Table => found.text(),
            }),
            Err(error) => {
                missing.get_or_insert(error);
            }
        }
    }
    match missing {
        Some(missing) if lines.is_empty() => bail!(missing),
        _ => Ok(lines.join("\n")),
    }
}
