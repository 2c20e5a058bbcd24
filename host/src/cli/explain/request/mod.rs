//! `pointsman explain request`: explains where an endpoint picker sent a request. It calls the deciding policy again with the picker's
//! record.

mod replay;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

use crate::{
    cli::{
        cache::CacheArgs,
        output::{Output, OutputArgs, print},
    },
    endpoint_picker::decisions::record::Record,
};
use anyhow::Result;
use clap::Args;
use replay::Replay;
use serde::Serialize;
use std::{path::PathBuf, process::ExitCode};
use verdict::Explanation;

#[derive(Args, Debug)]
pub(super) struct RequestArgs {
    /// Request to explain: its x-request-id, or the number that the picker assigned; default: the newest
    #[arg(value_name = "ID")]
    request: Option<String>,
    /// Metrics port of the picker, such as 127.0.0.1:9090 after `kubectl port-forward`
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "file", conflicts_with = "file")]
    picker: Option<String>,
    /// File with a response of the picker's /decisions, or - for standard input
    #[arg(short, long, value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Plugin that scored the endpoints, if it isn't the built-in policy of this version
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// File with the configuration of that plugin, in JSON or YAML
    #[arg(long, value_name = "FILE", requires = "policy")]
    policy_config: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A record, with the explanations of its profiles.
#[derive(Debug, Serialize)]
struct Explained<'r> {
    record: &'r Record,
    explanations: Vec<Explanation<'r>>,
}

pub(super) async fn run(args: &RequestArgs) -> Result<ExitCode> {
    let record = source::read(args).await?;
    let text = tokio::task::block_in_place(|| -> Result<String> {
        let mut replay = Replay::new(args)?;
        let mut explanations = Vec::new();
        for profile in &record.profiles {
            explanations.push(verdict::explain(profile, |rows, row| replay.terms(profile, rows, row)));
        }
        Ok(match args.output.output {
            Output::Table => text::text(&record, &explanations),
            Output::Json => serde_json::to_string_pretty(&Explained { record: &record, explanations })?,
        })
    })?;
    print(&text);
    Ok(ExitCode::SUCCESS)
}
