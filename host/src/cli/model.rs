//! `pointsman model`: the facts of models, without a cluster.

mod remote;

use super::output::{self, Output, OutputArgs, columns, pairs};
use crate::model_facts::spec_fields;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use pointsman_core::model_nodes::inspection::MAX_FACTS;
use pointsman_model::{Directory, ModelFacts, ModelFiles, Source, inspect};
use serde_json::{Map, Value, json};
use std::{path::PathBuf, process::ExitCode};

#[derive(Args, Debug)]
pub(super) struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// Print the facts in a model's files: architecture, parameters, quantization, context, capabilities
    Inspect(InspectArgs),
}

#[derive(Args, Debug)]
struct InspectArgs {
    /// Folder of the files, or a storageUri such as hf://ORG/MODEL; only the headers of weights are read
    #[arg(value_name = "FOLDER|URI")]
    place: String,
    #[command(flatten)]
    access: remote::AccessArgs,
    /// A table for people; or the fields of a BaseModel's spec as JSON, with the number of parameters, which is null if it is unknown
    #[command(flatten)]
    output: OutputArgs,
    /// File for the fields of a BaseModel's spec, in at most 4 KiB, as a container's termination message, instead of the output. A folder
    /// without files is then an error. Jobs that read models on PersistentVolumeClaims use this
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    termination_message: Option<PathBuf>,
}

pub(super) async fn run(args: &ModelArgs) -> Result<ExitCode> {
    let ModelCommand::Inspect(InspectArgs { place, access, output, termination_message }) = &args.command;
    let path = match place.split_once("://") {
        Some(("local", path)) => Some(PathBuf::from(path)),
        Some((scheme @ ("pvc" | "vendor"), _)) => {
            bail!("{place}: files at {scheme}:// can't be reached from here: specify the folder in which they are mounted")
        }
        Some(_) => None,
        None => Some(PathBuf::from(place)),
    };
    let facts = match path {
        Some(path) => {
            let reading = || path.display().to_string();
            let directory = Directory::new(&path).with_context(reading)?;
            if termination_message.is_some() && directory.list().with_context(reading)?.files.is_empty() {
                bail!("{}: there are no files in this folder: copy the model into it", path.display());
            }
            inspect(&directory).with_context(reading)?
        }
        None => remote::inspect(place, access).await?,
    };
    if let Some(file) = termination_message {
        let text = json!(spec_fields(&facts)).to_string();
        if text.len() > MAX_FACTS {
            bail!("{place}: the facts in the files take {} bytes, and the limit is {MAX_FACTS}: check config.json", text.len());
        }
        std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let fields = spec_fields(&facts);
    output.print(&json(&fields, &facts), || table(&fields, &facts))?;
    // In JSON they are a field.
    if matches!(output.output, Output::Table) {
        facts.notes.iter().for_each(|note| output::note(format!("note: {note}")));
    }
    Ok(ExitCode::SUCCESS)
}

fn json(fields: &Map<String, Value>, facts: &ModelFacts) -> Value {
    let mut all = fields.clone();
    all.insert("diffusionPipeline".to_owned(), json!(facts.diffusion_pipeline));
    all.insert("dtype".to_owned(), json!(facts.dtype));
    all.retain(|_, value| !value.is_null());
    all.insert("parameters".to_owned(), json!(facts.parameters.as_ref().map(|parameters| parameters.count)));
    all.insert("parametersFrom".to_owned(), json!(facts.parameters.as_ref().map(|parameters| parameters.source)));
    all.insert("notes".to_owned(), json!(facts.notes));
    all.into()
}

fn table(fields: &Map<String, Value>, facts: &ModelFacts) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        Value::Object(versioned) => {
            let part = |name: &str| versioned.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{} {}", part("name"), part("version")).trim_end().to_owned()
        }
        other => other.to_string(),
    };
    let names = [
        ("architecture", "modelArchitecture"),
        ("type", "modelType"),
        ("framework", "modelFramework"),
        ("format", "modelFormat"),
        ("quantization", "quantization"),
        ("context", "maxTokens"),
        ("capabilities", "modelCapabilities"),
    ];
    let mut rows: Vec<(&str, String)> =
        names.into_iter().map(|(name, field)| (name, fields.get(field).map_or_else(|| "unknown".to_owned(), text))).collect();
    // Without quantization, the row is left out.
    rows.retain(|(name, value)| *name != "quantization" || value != "unknown");
    rows.push(("numbers", facts.dtype.clone().unwrap_or_else(|| "unknown".to_owned())));
    rows.push(("parameters", parameters(facts)));
    let mut shown = pairs(&rows);
    if let Some(pipeline) = &facts.diffusion_pipeline {
        let pipeline = json!(pipeline);
        let parts: Vec<[String; 2]> = pipeline
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, part)| {
                let part = match (part["library"].as_str(), part["type"].as_str()) {
                    (Some(library), Some(class)) => format!("{library} {class}"),
                    _ => text(part),
                };
                [name.clone(), part]
            })
            .collect();
        shown.push('\n');
        shown.push_str(&columns(["PIPELINE", ""], &parts));
    }
    shown
}

fn parameters(facts: &ModelFacts) -> String {
    let Some(parameters) = &facts.parameters else { return "unknown".to_owned() };
    let from = match parameters.source {
        Source::Tensors => "the shapes of all tensors",
        Source::Index => "the count in the index",
        Source::Formula => "the sizes in the config, within 2 %",
        Source::Bytes => "the bytes of the weights, roughly",
    };
    format!("{} ({}), by {from}", parameters.size, parameters.count)
}
