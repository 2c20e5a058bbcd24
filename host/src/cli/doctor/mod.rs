//! `pointsman doctor`: the problems of an installation, with remedies. It only reads.

mod bundle;
mod definitions;
mod environment;
mod hosts;
mod policies;
mod rights;
mod scheduler;
mod webhook;

use super::{
    ClusterArgs, HostNamespaceArgs,
    output::{OutputArgs, Tone, columns, note},
    progress,
};
use crate::{
    problem::sentence,
    watch::apis::{self, Apis},
};
use anyhow::{Context, Result};
use clap::Args;
use kube::Client;
use serde::Serialize;
use std::{error::Error, path::PathBuf, process::ExitCode};

#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    host: HostNamespaceArgs,
    /// Archive to write for a support case, a .tar.gz that doesn't exist yet; its contents are listed: the findings, versions, objects
    /// without Secrets, and the log, metrics and readiness of each host
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The installation to check.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
struct Installation {
    client: Client,
    served: Apis,
    namespace: String,
}

/// The state of a checked item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// It may be intended.
    Note,
    Wrong,
}

/// A finding of a check.
#[derive(Debug, Serialize)]
struct Finding {
    state: State,
    message: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(message: impl Into<String>) -> Self {
        Self { state: State::Ok, message: message.into(), remedy: None }
    }

    fn note(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Note, message: message.into(), remedy: Some(remedy.into()) }
    }

    fn wrong(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Wrong, message: message.into(), remedy: Some(remedy.into()) }
    }
}

/// A finding, with the name of its check.
#[derive(Debug, Serialize)]
struct Line {
    check: &'static str,
    #[serde(flatten)]
    finding: Finding,
}

/// The findings of a check, or why it failed.
type Checked<E = kube::Error> = Result<Vec<Finding>, E>;

fn unread(error: &(dyn Error + 'static)) -> Vec<Finding> {
    vec![Finding::wrong(format!("this can't be checked: {}", sentence(error)), "retry as a user with the right to read it")]
}

/// The findings of a check, with its name.
async fn checked<E: Error + 'static>(name: &'static str, check: impl Future<Output = Checked<E>>) -> (&'static str, Vec<Finding>) {
    progress::set(format!("checking {name}"));
    (name, check.await.unwrap_or_else(|error| unread(&error)))
}

pub(super) async fn run(args: DoctorArgs) -> Result<ExitCode> {
    let client = args.cluster.connect().await?;
    let served = apis::discover(&client).await.context("requesting the served kinds from the API server")?;
    let installation = Installation { client, served, namespace: args.host.host_namespace };
    let deployed = hosts::Deployed::read(&installation).await;
    let served_only = deployed.as_ref().ok().and_then(|deployed| deployed.flag("--namespaces"));
    let namespaces: Vec<String> = served_only.iter().flat_map(|flag| flag.split(',')).map(str::to_owned).collect();
    // Without the right to find out, the ServiceAccount is checked.
    let outside = hosts::outside(&installation).await.ok().flatten();
    let checks = [
        Box::pin(checked("crds", definitions::ours(&installation))).await,
        ("neighbours", definitions::neighbours(&installation)),
        checked("namespace", hosts::namespace(&installation)).await,
        checked("rights", rights::check(&installation, deployed.as_ref().ok(), &namespaces, outside.as_deref())).await,
        ("hosts", deployed.as_ref().map_or_else(|error| unread(error), hosts::Deployed::check)),
        checked("leader", hosts::leader(&installation)).await,
        checked("policies", policies::check(&installation)).await,
        checked("scheduler", scheduler::check(&installation, deployed.as_ref().ok())).await,
        checked("gateway", environment::gateway(&installation, deployed.as_ref().ok())).await,
        checked("prometheus", environment::prometheus(&installation, deployed.as_ref().ok())).await,
        checked("webhook", webhook::check(&installation, deployed.as_ref().ok())).await,
    ];
    let lines = |(check, findings): (&'static str, Vec<Finding>)| findings.into_iter().map(move |finding| Line { check, finding });
    let all: Vec<Line> = checks.into_iter().flat_map(lines).collect();
    args.output.print(&all, || table(&all))?;
    if let Some(file) = &args.bundle {
        note(bundle::write(&installation, deployed.as_ref().ok(), &all, file).await?);
    }
    let wrong = all.iter().any(|line| line.finding.state == State::Wrong);
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn table(lines: &[Line]) -> String {
    let row = |line: &Line| {
        let Finding { state, message, remedy } = &line.finding;
        let state = match state {
            State::Ok => Tone::Good.paint("ok"),
            State::Note => Tone::Attention.paint("note"),
            State::Wrong => Tone::Bad.paint("WRONG"),
        };
        let said = remedy.as_ref().map_or_else(|| message.clone(), |remedy| format!("{message}: {remedy}"));
        [line.check.to_owned(), state, said]
    };
    columns(["CHECK", "STATE", "FINDING"], &lines.iter().map(row).collect::<Vec<_>>())
}
