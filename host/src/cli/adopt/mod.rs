//! `pointsman adopt`: adopts services from another controller, and releases them. It only changes ownership; the host writes the planned
//! changes.

mod change;
mod dry_run;
mod fate;
mod fields;
mod read;
mod release;
mod take_over;

use super::{
    ClusterArgs, HostNamespaceArgs,
    cache::CacheArgs,
    exit::DECISION_NEEDED,
    live::Source,
    output::{columns, print},
    settings::SettingsArgs,
};
use crate::problem::sentence;
use anyhow::{Context, Result, bail};
use clap::Args;
use kube::{
    api::{DynamicObject, Patch, PatchParams},
    core::Status,
};
use pointsman_core::world::ObjectKey;
use serde_json::Value;
use std::{fmt::Write, process::ExitCode};

/// The maximum number of attempts if an object changes meanwhile.
const TRIES: usize = 10;

#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag of its own.
pub(super) struct AdoptArgs {
    /// Service to adopt, such as inferenceservice/llama-chat or isvc/llama-chat; may be repeated
    #[arg(value_name = "KIND/NAME", required_unless_present = "all", conflicts_with_all = ["all", "all_namespaces"])]
    subjects: Vec<String>,
    /// Adopt all services of the namespace
    #[arg(long)]
    all: bool,
    /// Namespace of the services; default: the one of the kubeconfig's context
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// With --all: adopt the services of all namespaces
    #[arg(short = 'A', long, requires = "all")]
    all_namespaces: bool,
    /// Write the changes; default: only print them
    #[arg(long)]
    yes: bool,
    /// Release the services to the controller that they were adopted from
    #[arg(long, conflicts_with_all = ["new_templates", "force"])]
    back: bool,
    /// Recreate the pods immediately, from the templates of the policies; default: pods stay until their template changes for another
    /// reason
    #[arg(long)]
    new_templates: bool,
    /// Adopt even a service that the other controller has just written
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    host: HostNamespaceArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: AdoptArgs) -> Result<ExitCode> {
    let source = Source::connect(&args.cluster).await?;
    if args.back { release::run(&source, &args).await } else { take_over::run(&source, &args).await }
}

/// A service's part of the report: its objects, and the outcome for each.
struct AdoptionReport {
    head: String,
    rows: Vec<[String; 4]>,
    notes: Vec<String>,
    /// Why it isn't adopted or released.
    refused: Option<String>,
    /// Why it was started but not finished.
    failed: Option<String>,
}

impl AdoptionReport {
    fn new(head: String) -> Self {
        Self { head, rows: Vec::new(), notes: Vec::new(), refused: None, failed: None }
    }

    /// Records the result: one service that fails doesn't end the others.
    fn done(&mut self, done: Result<()>) {
        self.failed = done.err().map(|error| format!("{}. Run the command again.", sentence(error.as_ref())));
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.head);
        let table = if self.rows.is_empty() { String::new() } else { columns(["KIND", "NAME", "MANAGER", "RESULT"], &self.rows) };
        for line in table.lines().chain(self.notes.iter().map(String::as_str)) {
            writeln!(text, "  {line}").ok();
        }
        for (word, why) in [("refused", &self.refused), ("failed", &self.failed)] {
            if let Some(why) = why {
                writeln!(text, "  {word}: {why}").ok();
            }
        }
        text
    }
}

/// Prints what would be done, or was done. Returns the exit code.
fn tell(outlooks: &[AdoptionReport], done: bool) -> ExitCode {
    let texts: Vec<String> = outlooks.iter().map(AdoptionReport::text).collect();
    print(&texts.join("\n"));
    let refused = outlooks.iter().filter(|outlook| outlook.refused.is_some()).count();
    if !done && refused < outlooks.len() {
        print("\nNothing was changed: set --yes to apply.");
    }
    let failed = outlooks.iter().any(|outlook| outlook.failed.is_some());
    if refused > 0 || failed { ExitCode::from(DECISION_NEEDED) } else { ExitCode::SUCCESS }
}

fn services(number: usize) -> Result<()> {
    if number == 0 {
        bail!("there are no services: set -n to another namespace, or -A for all namespaces");
    }
    Ok(())
}

/// The effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A dry run on the API server.
    Tried,
    Done,
}

/// The API server's rejection of a write.
#[derive(Debug, thiserror::Error)]
#[error("The API server rejects the {key}: {said}{advice}")]
struct Refusal {
    key: ObjectKey,
    code: u16,
    said: String,
    advice: &'static str,
}

impl Refusal {
    fn from_status(key: &ObjectKey, status: &Status) -> Self {
        let said = status.message.trim_end_matches('.').to_owned();
        let advice = if said.contains("failed calling webhook") {
            ". Start the server of that webhook, or delete its ValidatingWebhookConfiguration or MutatingWebhookConfiguration"
        } else {
            ""
        };
        Self { key: key.clone(), code: status.code, said, advice }
    }
}

/// Patches an object as it was read, or its newer version: its own controller may have written its status meanwhile.
async fn change(source: &Source, key: &ObjectKey, mut object: Value, patch: impl Fn(&Value) -> Value, mode: Mode) -> Result<()> {
    let ObjectKey { resource, namespace, name } = key;
    for _ in 0..TRIES {
        let params =
            PatchParams { field_manager: Some(fields::ADOPTER.to_owned()), dry_run: mode == Mode::Tried, ..PatchParams::default() };
        let patched = source.api(resource, namespace).patch(name, &params, &Patch::Merge(patch(&object))).await;
        match patched.map(|_: DynamicObject| ()) {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let Some(now) =
                    source.one(resource, namespace, name).await?.filter(|now| now["metadata"]["uid"] == object["metadata"]["uid"])
                else {
                    bail!("the {key} was deleted in the meantime: run the command again");
                };
                object = now;
            }
            // It was to be deleted anyway.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(kube::Error::Api(status)) => return Err(Refusal::from_status(key, &status).into()),
            done => return done.with_context(|| format!("writing the {key}")),
        }
    }
    bail!("another writer changed the {key} during each of {TRIES} attempts to write it: stop that writer, and run the command again")
}
