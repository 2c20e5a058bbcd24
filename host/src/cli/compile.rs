//! `pointsman compile`, which only the host itself calls.

use clap::Args;
use pointsman_sandbox::{compile, engine::Use};
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(super) struct CompileArgs {
    /// Size of the address space, in bytes
    #[arg(long)]
    memory: u64,
    use_: Use,
}

pub(super) fn run(args: &CompileArgs) -> ExitCode {
    // Only the sentence: the host puts it into a condition. A panic would print more to stderr before it.
    std::panic::set_hook(Box::new(|_| {}));
    if let Err(error) = compile::serve(args.use_, args.memory) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
