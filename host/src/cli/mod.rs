//! The command line, with one file per subcommand.

mod adopt;
mod cache;
mod certificate;
mod check;
mod check_config;
mod cluster;
mod compile;
mod completions;
mod controller;
mod crds;
mod doctor;
mod endpoint_picker;
mod exit;
mod explain;
mod external_metrics;
mod gateway;
mod golden;
mod live;
mod man;
mod memory;
mod memory_usage;
mod model;
mod model_agent;
mod model_reports;
pub mod offline;
mod output;
mod picker;
pub mod placement;
mod plugin;
mod policies;
mod policy;
mod progress;
pub mod render;
mod rule;
mod scheduler_extender;
mod servers;
mod settings;
mod traces;
mod upstream_flags;
mod yaml;

pub(crate) use cluster::ClusterArgs;
pub use exit::{code as exit_code, report};

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_sandbox::{compile::SUBCOMMAND, schema};
use std::{
    error::Error as _,
    ffi::OsStr,
    net::AddrParseError,
    num::{ParseFloatError, ParseIntError},
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

/// Kubernetes controller for model serving with policies as plugins
#[derive(Debug, Parser)]
#[command(name = "pointsman", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller
    Controller(controller::ControllerArgs),
    /// Run the gateway: a proxy that routes OpenAI's API by the model in a request, and holds requests while a model wakes
    Gateway(Box<gateway::GatewayArgs>),
    /// Run an endpoint picker, which selects the endpoint of an InferencePool for each request of a proxy
    EndpointPicker(Box<endpoint_picker::EndpointPickerArgs>),
    /// Run a scheduler extender, which selects nodes for a kube-scheduler's pods by policies, and places gangs whole
    SchedulerExtender(Box<scheduler_extender::SchedulerExtenderArgs>),
    /// Simulate an endpoint picker, without a cluster
    Picker(picker::PickerArgs),
    /// Run the agent of a node, which downloads the models for the node
    ModelAgent(model_agent::ModelAgentArgs),
    /// Print, install or check the CustomResourceDefinitions
    Crds(crds::CrdsArgs),
    /// Print what the controller would apply for the subjects in files, without a cluster
    Render(render::RenderArgs),
    /// Explain why subjects in files or in a cluster get their runtime, pods, labels and annotations
    Explain(explain::ExplainArgs),
    /// Check objects in files against schemas and rules, without a cluster
    Check(check::CheckArgs),
    /// Test rules
    Rule(rule::RuleArgs),
    /// Inspect the files of a model
    Model(model::ModelArgs),
    /// Adopt services from another controller, or release them, without restarting a pod
    Adopt(adopt::AdoptArgs),
    /// Create, test and deliver plugins
    Plugin(plugin::PluginArgs),
    /// Show the active policy set and the changes of a candidate; approve it, pause it, or roll back
    Policy(policy::PolicyArgs),
    /// Check an installation; show findings and remedies
    Doctor(doctor::DoctorArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
    /// Write man pages, one for each subcommand
    Man(man::ManArgs),
    /// Compile a plugin, in a separate process
    #[command(name = SUBCOMMAND, hide = true)]
    Compile(compile::CompileArgs),
    /// Check a plugin's configuration against its schema, in a separate process
    #[command(name = schema::SUBCOMMAND, hide = true)]
    CheckConfig(check_config::CheckConfigArgs),
}

/// The file name under which kubectl finds this program as a plugin.
const KUBECTL_PLUGIN: &str = "kubectl-pointsman";

impl Cli {
    /// Parses the arguments of this process. Help and usage show the command as the user typed it, even as a kubectl plugin.
    pub fn parse_process() -> Self {
        let mut command = Self::command();
        let program = std::env::args_os().next().map(PathBuf::from);
        if program.as_deref().and_then(Path::file_stem) == Some(OsStr::new(KUBECTL_PLUGIN)) {
            command = command.bin_name("kubectl pointsman");
        }
        let mut matches = command.try_get_matches().unwrap_or_else(|error| end(&error));
        // Parsing removes the values.
        let shared = matches.subcommand_matches(controller::SUBCOMMAND).map(controller::shared_settings);
        let mut parsed = Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| end(&error));
        if let (Command::Controller(args), Some(shared)) = (&mut parsed.command, shared) {
            args.shared = shared;
        }
        parsed
    }

    /// Runs the subcommand. Unless it is a server, it shows its progress on a terminal.
    pub async fn run(self) -> Result<ExitCode> {
        if !self.command.is_server() {
            progress::start();
        }
        let outcome = Box::pin(self.command.run()).await;
        progress::end();
        outcome
    }
}

impl Command {
    /// Whether it runs until it is stopped, or in a process that the host starts.
    fn is_server(&self) -> bool {
        matches!(
            self,
            Self::Controller(_)
                | Self::Gateway(_)
                | Self::EndpointPicker(_)
                | Self::SchedulerExtender(_)
                | Self::ModelAgent(_)
                | Self::Compile(_)
                | Self::CheckConfig(_)
        )
    }

    async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Controller(args) => Box::pin(controller::run(args)).await,
            Self::Gateway(args) => Box::pin(gateway::run(*args)).await,
            Self::EndpointPicker(args) => Box::pin(endpoint_picker::run(*args)).await,
            Self::SchedulerExtender(args) => Box::pin(scheduler_extender::run(*args)).await,
            Self::Picker(args) => picker::run(&args),
            Self::ModelAgent(args) => Box::pin(model_agent::run(args)).await,
            Self::Crds(args) => crds::run(args).await,
            Self::Render(args) => render::run(&args),
            Self::Explain(args) => Box::pin(explain::run(args)).await,
            Self::Check(args) => check::run(&args),
            Self::Rule(args) => rule::run(&args),
            Self::Model(args) => Box::pin(model::run(&args)).await,
            Self::Adopt(args) => Box::pin(adopt::run(args)).await,
            Self::Plugin(args) => plugin::run(args).await,
            Self::Policy(args) => policy::run(args).await,
            Self::Doctor(args) => Box::pin(doctor::run(args)).await,
            Self::Completions(args) => Ok(completions::run(&args)),
            Self::Man(args) => man::run(&args),
            Self::Compile(args) => Ok(compile::run(&args)),
            Self::CheckConfig(args) => Ok(check_config::run(&args)),
        }
    }
}

/// Ends the process after a request for help, or with an invalid command line.
fn end(error: &clap::Error) -> ! {
    match with_example(error) {
        Some(text) => output::note(text.trim_end()),
        // The stream may be closed.
        None => _ = error.print(),
    }
    process::exit(if error.use_stderr() { exit::USAGE.into() } else { 0 })
}

/// The message about a value that the standard library can't parse, with an example of a right one: its own text has none.
fn with_example(error: &clap::Error) -> Option<String> {
    let cause = error.source()?;
    let expected = if cause.is::<ParseIntError>() {
        "expected a whole number, such as 10"
    } else if cause.is::<ParseFloatError>() {
        "expected a number, such as 0.5"
    } else if cause.is::<AddrParseError>() {
        "expected ADDRESS:PORT, such as 0.0.0.0:8080"
    } else {
        return None;
    };
    Some(error.render().ansi().to_string().replace(&cause.to_string(), expected))
}

/// A name for this process: the pod's or machine's, with the process ID.
fn process_name() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{machine}-{}", std::process::id())
}

/// Namespace of the host
#[derive(Args, Clone, Debug)]
pub(crate) struct HostNamespaceArgs {
    /// Namespace of the Pointsman host: its Lease, its record, and the ConfigMaps of plugins and rules
    #[arg(long, value_name = "NAMESPACE", env = "POINTSMAN_NAMESPACE", default_value = HOST_NAMESPACE)]
    pub(crate) host_namespace: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_number_or_address_is_answered_with_an_example() {
        let said = |words: &[&str]| with_example(&Cli::try_parse_from([&["pointsman"], words].concat()).unwrap_err());
        for (words, example) in [
            (&["plugin", "push", "a.wasm", "--name", "a", "--order", "abc"][..], ": expected a whole number, such as 10"),
            (&["controller", "--listen", "8080"], ": expected ADDRESS:PORT, such as 0.0.0.0:8080"),
        ] {
            let said = said(words).unwrap();
            assert!(said.contains(example) && !said.contains("invalid digit") && !said.contains("syntax"), "{said}");
        }
        assert_eq!(said(&["plugin", "push", "a.wasm", "--name", "a", "--order", "0"]), None, "clap names the range");
        assert_eq!(said(&["nonsense"]), None);
    }
}
