//! `pointsman completions`.

use super::Cli;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::{
    io::{self, Write},
    process::ExitCode,
};

#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pointsman", &mut script);
    io::stdout().lock().write_all(&script).ok();
    ExitCode::SUCCESS
}
