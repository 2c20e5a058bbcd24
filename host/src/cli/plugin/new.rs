//! placeholder
use clap::Args;
use std::process::ExitCode;
#[derive(Args, Debug)]
pub(super) struct NewArgs {}
pub(super) fn run(_: &NewArgs) -> anyhow::Result<ExitCode> { Ok(ExitCode::SUCCESS) }
