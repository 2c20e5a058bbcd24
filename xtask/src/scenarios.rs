//! The scenario tests: the plans for services, as golden files that people review.

use crate::build;
use anyhow::Result;
use pointsman_harness::workspace;
use std::process::Command;

/// See `host/tests/scenarios.rs`.
const UPDATE: &str = "POINTSMAN_UPDATE_SCENARIOS";
const ONLY: &str = "POINTSMAN_SCENARIO";

const FOLDER: &str = "tests/scenarios";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Accepts the current results as the expected ones, and shows the difference.
    #[arg(long)]
    update: bool,
    /// Runs only the scenarios whose names contain this.
    #[arg(value_name = "NAME")]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // Always select the whole workspace: another selection of packages would select other features, and rebuild everything.
    let mut cargo = build::linting_cargo(&["test", "--workspace", "--test", "all", "scenarios::"])?;
    if args.update {
        cargo = cargo.env(UPDATE, "1");
    }
    if let Some(only) = &args.only {
        cargo = cargo.env(ONLY, only);
    }
    cargo.succeed("the scenario tests")?;
    if args.update {
        // Include new files in the difference.
        git(&["add", "--intent-to-add", FOLDER])?;
        git(&["--no-pager", "diff", "--stat", "--", FOLDER])?;
        git(&["--no-pager", "diff", "--", FOLDER])?;
    }
    Ok(())
}

fn git(args: &[&str]) -> Result<()> {
    Command::new("git").args(args).current_dir(workspace()).status()?;
    Ok(())
}
