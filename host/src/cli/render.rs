//! `pointsman render`: prints the objects that the controller would apply.

use super::{
    cache::CacheArgs,
    exit::{DECISION_NEEDED, usage},
    offline::{Offline, OfflineArgs, Planned},
    output::{note, print},
    placement::{PlacementArgs, predict},
    progress,
};
use crate::load::Loader;
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use pointsman_core::{plan::Object, world::ObjectKey};
use pointsman_sandbox::engine::Engines;
use serde_json::{Value, json};
use std::{collections::HashMap, process::ExitCode, sync::Arc, time::Duration};

/// The timeout of a policy that scores nodes or models. No scheduler waits for it, and the machine may be busy.
const SCORING_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
pub(super) struct RenderArgs {
    #[command(flatten)]
    offline: OfflineArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Output format of the objects
    #[arg(short, long, value_enum, default_value_t = Form::Yaml, value_name = "FORM")]
    output: Form,
}

/// Output format of objects
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// One document per object
    #[default]
    Yaml,
    /// One List of all objects
    Json,
}

pub(super) fn run(args: &RenderArgs) -> Result<ExitCode> {
    let loader = loader(&args.cache)?.with_hot_deadline(SCORING_DEADLINE);
    let offline = read_with(&args.offline, &loader)?;
    let plans = offline.plans();
    for line in predict(&offline, &plans, &args.placement, &loader)? {
        note(&line);
    }
    let text = rendered(&plans, args.output)?;
    if !text.is_empty() {
        print(&text);
    }
    Ok(report_held(&plans))
}

/// Reads the files of the command line, and prints notes on them.
pub(super) fn read(args: &OfflineArgs, cache: &CacheArgs) -> Result<Offline> {
    read_with(args, &loader(cache)?)
}

fn read_with(args: &OfflineArgs, loader: &Loader) -> Result<Offline> {
    if args.files.is_empty() {
        bail!(usage("nothing to read: specify files with -f FILE, or - for standard input"));
    }
    let offline = Offline::read(args, loader)?;
    for text in &offline.notes {
        note(text);
    }
    Ok(offline)
}

pub(super) fn loader(cache: &CacheArgs) -> Result<Loader> {
    progress::set("loading the policies");
    let engines = Engines::with_slots(16).map_err(|error| anyhow!("this machine can't run plugins: {error:#}"))?;
    Ok(Loader::new(Arc::new(engines), cache.compilers()?))
}

/// Prints the services that get no objects, with the reasons. Returns the exit code.
pub(super) fn report_held(plans: &[Planned]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for sentence in plans.iter().filter_map(Planned::held).chain(clashes(plans)) {
        note(&sentence);
        code = ExitCode::from(DECISION_NEEDED);
    }
    code
}

/// The objects that two services would both create: `chat` has a Service `chat-engine`, and so does `chat-engine`.
pub fn clashes(plans: &[Planned]) -> Vec<String> {
    let mut makers: HashMap<&ObjectKey, &Planned> = HashMap::new();
    let mut clashes = Vec::new();
    for planned in plans {
        for Object { key, .. } in planned.plan.objects.iter().flatten() {
            if let Some(first) = makers.insert(key, planned) {
                let (first, second) = (&first.subject.key, &planned.subject.key);
                let [first, second] = [first, second].map(|subject| format!("{}/{}", subject.namespace, subject.name));
                clashes.push(format!("{first} and {second} both produce the {key}: rename one of them"));
            }
        }
    }
    clashes
}

/// The objects of all plans.
pub fn rendered(plans: &[Planned], form: Form) -> Result<String> {
    let objects = plans.iter().filter_map(|planned| planned.plan.objects.as_ref()).flatten().map(Object::manifest);
    match form {
        Form::Yaml => {
            let documents = objects.map(|object| serde_saphyr::to_string(&object).context("writing YAML"));
            Ok(documents.collect::<Result<Vec<_>>>()?.join("---\n"))
        }
        Form::Json => {
            let items: Vec<Value> = objects.collect();
            Ok(serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?)
        }
    }
}
