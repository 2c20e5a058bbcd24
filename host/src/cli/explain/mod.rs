//! `pointsman explain`: why a service gets what it gets, why a pod went to its node, and why a request went where it did.

pub(super) mod extenders;
mod pod;
pub(super) mod remote;
mod request;

use super::{
    live::{self, ViewArgs},
    offline::Planned,
    output::{Output, print},
    render::{read, report_held},
};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use pointsman_core::explain;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ExplainArgs {
    #[command(subcommand)]
    other: Option<Other>,
    /// A service of the cluster, such as inferenceservice/llama-chat or isvc/llama-chat; or a pod that `pointsman scheduler-extender` has placed,
    /// such as pod/llama-chat-0. Without one, the services in the files.
    #[arg(value_name = "KIND/NAME", conflicts_with_all = ["files", "without", "only", "plugin_dir", "nodes"])]
    subject: Option<String>,
    /// Of a pod: the scheduler extender's port of --listen, such as 127.0.0.1:8080 after `kubectl port-forward`; may be repeated. By default the
    /// API server asks the extenders in the host's namespace.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "subject")]
    extender: Vec<String>,
    #[command(flatten)]
    view: ViewArgs,
}

/// What else is explained.
#[derive(Debug, Subcommand)]
enum Other {
    /// Explain why an endpoint picker sent a request where it did, from what the picker has recorded
    Request(request::RequestArgs),
}

pub(super) async fn run(args: ExplainArgs) -> Result<ExitCode> {
    if let Some(Other::Request(args)) = &args.other {
        return request::run(args).await;
    }
    if let Some(name) = args.subject.as_deref().and_then(pod::parse) {
        return pod::run(name, &args.view, &args.extender).await;
    }
    if !args.extender.is_empty() {
        bail!("--extender is for pods: name one as pod/NAME");
    }
    let ViewArgs { offline: given, cache, output, .. } = &args.view;
    let offline = match &args.subject {
        Some(subject) => live::read(subject, &args.view).await?,
        None if given.files.is_empty() => {
            bail!("nothing to explain: give KIND/NAME of a subject in the cluster, or files with -f FILE")
        }
        None => read(given, cache)?,
    };
    let plans = tokio::task::block_in_place(|| offline.plans());
    let text = explained(&plans, output.output)?;
    if !text.is_empty() {
        print(&text);
    }
    Ok(if args.subject.is_some() { ExitCode::SUCCESS } else { report_held(&plans) })
}

fn explained(plans: &[Planned], output: Output) -> Result<String> {
    let mut lines = Vec::new();
    for Planned { subject, plan } in plans {
        lines.push(match output {
            Output::Table => explain::text::text(subject, plan),
            Output::Json => serde_json::to_string(&explain::json(subject, plan))?,
        });
    }
    Ok(lines.join("\n"))
}
