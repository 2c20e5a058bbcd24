//! The scenario tests: what services become, as files that are looked at.

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
    /// Takes what the scenarios give now as what is expected, and shows what that changes.
    #[arg(long)]
    update: bool,
    /// Only the scenarios whose names contain this.
    #[arg(value_name = "NAME")]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // Always the whole workspace: another choice of packages would choose other features, and build everything again.
    let mut cargo = build::linting_cargo(&["test", "--workspace", "--test", "all", "scenarios::"])?;
    if args.update {
        cargo = cargo.env(UPDATE, "1");
    }
    if let Some(only) = &args.only {
        cargo = cargo.env(ONLY, only);
    }
    cargo.succeed("the scenario tests")?;
    if args.update {
        // Files that are new are part of what changes.
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
