//! `pointsman man`.

use super::Cli;
use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use std::{fs, path::PathBuf, process::ExitCode};

#[derive(Args, Debug)]
pub(super) struct ManArgs {
    /// Folder to write to; created if it doesn't exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(args: &ManArgs) -> Result<ExitCode> {
    fs::create_dir_all(&args.folder).with_context(|| format!("creating the folder {}", args.folder.display()))?;
    clap_mangen::generate_to(Cli::command(), &args.folder).with_context(|| format!("writing man pages to {}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
