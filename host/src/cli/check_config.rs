//! `pointsman check-config`, which only the host itself calls.

use clap::Args;
use pointsman_sandbox::schema;
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct CheckConfigArgs {
    /// Size of the address space, in bytes
    #[arg(long)]
    memory: u64,
}

pub(super) fn run(args: &CheckConfigArgs) -> ExitCode {
    // Only the sentences: the host puts them into a condition.
    std::panic::set_hook(Box::new(|_| {}));
    match schema::serve(args.memory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.sentences());
            ExitCode::from(error.code())
        }
    }
}
