//! `pointsman picker`: simulates an endpoint picker.

use super::{
    cache::CacheArgs,
    exit::InputResult,
    gateway::duration,
    output::{OutputArgs, columns},
};
use crate::{
    endpoint_picker::{
        simulate::{BuiltIn, Contender, FleetSettings, MAX_REQUESTS, Outcome, Trace, Workload, WorkloadKind, simulate},
        unused,
    },
    load::Loader,
};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand, value_parser};
use pointsman_picker::{
    config::{PickerConfig, Profiles},
    simulation::EngineSettings,
};
use pointsman_sandbox::engine::Engines;
use serde_json::{Value, json};
use std::{fs, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

/// The maximum number of policies that run at once, and the interval at which their deadlines are checked.
const SLOTS: u32 = 32;
const TICK: Duration = Duration::from_millis(1);

/// Far more than a call takes, so that a busy machine doesn't change the results.
const DEADLINE: Duration = Duration::from_millis(100);

/// The row of the scorers of `--config-file`.
const CONFIGURED: &str = "config";

#[derive(Args, Debug)]
pub(super) struct PickerArgs {
    #[command(subcommand)]
    command: PickerCommand,
}

#[derive(Debug, Subcommand)]
enum PickerCommand {
    /// Compare policies on simulated model servers: time to first token and throughput for a trace or a workload, in virtual time
    Simulate(Box<SimulateArgs>),
}

#[derive(Args, Debug)]
struct SimulateArgs {
    /// File with the requests as JSON lines, such as {"at": 0.5, "blocks": [17, 23], "tokens": 140, "output": 100}. `at` is in seconds,
    /// `blocks` are the hashes of the blocks of the prompt, numbers or strings, and `tokens` is by default the size of all of them. `model`
    /// (an adapter), `flow`, `priority` and `session` are optional
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "requests", "rate", "system_prompts"])]
    trace: Option<PathBuf>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Plugin at scheduling-scoring to compare with the others, and the name of its row; may be repeated. Default name: that of the file
    #[arg(long = "policy", value_name = "FILE[=NAME]", value_parser = named_file)]
    policies: Vec<NamedFile>,
    /// File with the configuration of the policy of this name, in JSON or YAML; may be repeated
    #[arg(long = "policy-config", value_name = "NAME=FILE", value_parser = config_of, requires = "policies")]
    policy_configs: Vec<NamedFile>,
    /// File with an EndpointPickerConfig. Its scorers are an additional row; its filters and its flow control apply to all rows
    #[arg(long, value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Built-in policies to compare with
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',', default_values_t = [BuiltIn::Default, BuiltIn::RoundRobin, BuiltIn::LeastQueue])]
    compare: Vec<BuiltIn>,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Requests to generate, without a trace
#[derive(Args, Debug)]
struct WorkloadArgs {
    /// Workload to generate
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    workload: WorkloadKind,
    /// Number of requests
    #[arg(long, value_name = "NUMBER", default_value_t = 2_000, value_parser = value_parser!(u64).range(1..=MAX_REQUESTS as u64))]
    requests: u64,
    /// Mean number of requests per second
    #[arg(long, value_name = "NUMBER", default_value_t = 20.0, value_parser = rate)]
    rate: f64,
    /// Number of system prompts that conversations of shared-prefix begin with
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = value_parser!(u64).range(1..=100_000))]
    system_prompts: u64,
    /// Seed of random numbers: equal seeds have equal results
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// Endpoints to simulate
#[derive(Args, Debug)]
struct FleetArgs {
    /// Number of endpoints
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = value_parser!(u16).range(1..=4_096))]
    endpoints: u16,
    /// Maximum number of requests that an endpoint processes at once
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = value_parser!(u32).range(1..=100_000))]
    seats: u32,
    /// Number of blocks in the KV cache of an endpoint
    #[arg(long, value_name = "NUMBER", default_value_t = 2_048, value_parser = value_parser!(u32).range(1..=10_000_000))]
    kv_blocks: u32,
    /// Number of tokens per block, of the trace and of the KV cache
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = value_parser!(u32).range(1..=131_072))]
    block_tokens: u32,
    /// Microseconds per token of a prompt that isn't cached
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = value_parser!(u64).range(0..=10_000_000))]
    prefill_us_per_token: u64,
    /// Microseconds per token of output, for all running requests together
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = value_parser!(u64).range(0..=1_000_000_000))]
    decode_us: u64,
    /// Additional microseconds per running request
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = value_parser!(u64).range(0..=1_000_000_000))]
    decode_us_per_running: u64,
    /// Time between two reports of an endpoint; default: that of the configuration, or 50ms
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    report_interval: Option<Duration>,
}

/// A file, and its name in the output.
#[derive(Clone, Debug)]
struct NamedFile {
    name: String,
    file: PathBuf,
}

fn named_file(text: &str) -> Result<NamedFile, String> {
    let (file, name) = text.rsplit_once('=').map_or((text, None), |(file, name)| (file, Some(name)));
    let file = PathBuf::from(file);
    let name = name.map_or_else(|| file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()), str::to_owned);
    if name.is_empty() { Err("expected FILE or FILE=NAME".to_owned()) } else { Ok(NamedFile { name, file }) }
}

fn config_of(text: &str) -> Result<NamedFile, String> {
    let parts = text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
    let (name, file) = parts.ok_or("expected NAME=FILE, with the name of a --policy")?;
    Ok(NamedFile { name: name.to_owned(), file: file.into() })
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1_000_000.0).contains(rate));
    rate.ok_or_else(|| "expected a number from 0.001 to 1000000".to_owned())
}

pub(super) fn run(args: &PickerArgs) -> Result<ExitCode> {
    let PickerCommand::Simulate(args) = &args.command;
    args.check_names()?;
    let (config, mut notes) = args.config()?;
    let fleet = args.fleet.settings(&config);
    let (trace, source) = args.trace(&fleet.engine)?;
    let mut outcomes = Vec::new();
    for contender in args.contenders(&config)? {
        let outcome = simulate(&trace, &fleet, &contender, args.workload.seed)?;
        for (reason, number) in &outcome.policy_failures {
            let policy = &outcome.policy;
            notes.push(format!("{policy}: the policy returned no answer to {number} requests ({reason}); the next policy decided them"));
        }
        if outcome.max_waiting > 0 {
            notes.push(format!("{}: by flow control, up to {} requests have waited in the picker", outcome.policy, outcome.max_waiting));
        }
        outcomes.push(outcome);
    }
    args.output.print(&json(&trace, &source, &fleet, &outcomes, &notes), || table(&trace, &source, &fleet, &outcomes, &notes))?;
    Ok(ExitCode::SUCCESS)
}

impl SimulateArgs {
    /// Each row needs a unique name, and each configuration a policy.
    fn check_names(&self) -> Result<()> {
        let mut names: Vec<&str> = self.compare.iter().map(|which| which.name()).collect();
        names.extend(self.config_file.as_ref().map(|_| CONFIGURED));
        for policy in &self.policies {
            if names.contains(&&*policy.name) {
                bail!("--policy {}: two rows would have the name {}: set another with FILE=NAME", policy.file.display(), policy.name);
            }
            names.push(&policy.name);
        }
        let unknown = self.policy_configs.iter().find(|config| self.policies.iter().all(|policy| policy.name != config.name));
        if let Some(config) = unknown {
            bail!("--policy-config {}={}: there is no --policy of this name: add it, or fix the name", config.name, config.file.display());
        }
        Ok(())
    }

    /// The configuration, and notes on settings that aren't simulated.
    fn config(&self) -> Result<(PickerConfig, Vec<String>)> {
        let Some(file) = &self.config_file else { return Ok((PickerConfig::default(), Vec::new())) };
        let source = format!("--config-file {}", file.display());
        let text = fs::read_to_string(file).with_context(|| source.clone()).readable()?;
        let (config, remarks) = PickerConfig::read(&text).map_err(|error| anyhow!("{source}: {error}"))?;
        let mut notes: Vec<String> = remarks.iter().map(|remark| format!("{source}: {remark}")).chain(unused(&config)).collect();
        if matches!(config.profiles, Profiles::Disaggregated { .. }) {
            notes.push("disaggregated prefill isn't simulated: each prompt is prefilled where it is decoded".to_owned());
        }
        Ok((config, notes))
    }

    /// The requests, and their description.
    fn trace(&self, engine: &EngineSettings) -> Result<(Trace, String)> {
        if let Some(file) = &self.trace {
            return Ok((Trace::read(file, engine).context("--trace")?, format!("the trace {}", file.display())));
        }
        let WorkloadArgs { workload: kind, requests, rate, system_prompts, seed } = self.workload;
        let requests = usize::try_from(requests).unwrap_or(MAX_REQUESTS);
        let workload = Workload { kind, requests, rate, seed, system_prompts };
        let trace = workload.trace(engine).map_err(|error| anyhow!("--workload: a request can't be simulated: {error}"))?;
        let name = match kind {
            WorkloadKind::SharedPrefix => "shared-prefix",
            WorkloadKind::Bursty => "bursty",
        };
        Ok((trace, format!("the workload {name}, rate {rate}/s, seed {seed}")))
    }

    /// The contenders, in the order of the rows. Blocks while policies are compiled.
    fn contenders(&self, config: &PickerConfig) -> Result<Vec<Contender>> {
        let engines = Engines::with_clock(SLOTS, TICK).map_err(|error| anyhow!("{error:#}")).context("starting the engine of policies")?;
        let loader = Loader::new(Arc::new(engines), self.cache.compilers()?).with_hot_deadline(DEADLINE);
        let policies = self.policies.iter().map(|NamedFile { name, file }| {
            let settings = self.policy_configs.iter().find(|config| config.name == *name).map(|config| config.file.as_path());
            Contender::custom(&loader, name, (file.as_path(), settings), config)
        });
        let configured = self.config_file.iter().map(|_| Contender::configured(&loader, CONFIGURED, config));
        let built_in = self.compare.iter().map(|which| Contender::built_in(&loader, *which, config));
        policies.chain(configured).chain(built_in).collect::<Result<_, _>>().map_err(|error| anyhow!(error))
    }
}

impl FleetArgs {
    fn settings(&self, config: &PickerConfig) -> FleetSettings {
        let engine = EngineSettings {
            max_num_seqs: self.seats as usize,
            blocks: self.kv_blocks as usize,
            block_size: self.block_tokens as usize,
            prefill_us_per_token: self.prefill_us_per_token,
            decode_us: self.decode_us,
            decode_us_per_running: self.decode_us_per_running,
        };
        let interval = self.report_interval.unwrap_or(config.scrape.interval).max(Duration::from_millis(1));
        FleetSettings { endpoints: self.endpoints, engine, report_interval: u64::try_from(interval.as_micros()).unwrap_or(u64::MAX) }
    }
}

fn json(trace: &Trace, source: &str, fleet: &FleetSettings, outcomes: &[Outcome], notes: &[String]) -> Value {
    let EngineSettings { max_num_seqs, blocks, block_size, prefill_us_per_token, decode_us, decode_us_per_running } = &fleet.engine;
    json!({
        "workload": {"source": source, "requests": trace.len(), "seconds": trace.seconds()},
        "fleet": {
            "endpoints": fleet.endpoints,
            "seats": max_num_seqs,
            "kvBlocks": blocks,
            "blockTokens": block_size,
            "prefillUsPerToken": prefill_us_per_token,
            "decodeUs": decode_us,
            "decodeUsPerRunning": decode_us_per_running,
            "reportIntervalUs": fleet.report_interval,
        },
        "policies": outcomes,
        "notes": notes,
    })
}

fn table(trace: &Trace, source: &str, fleet: &FleetSettings, outcomes: &[Outcome], notes: &[String]) -> String {
    const HEADINGS: [&str; 11] = [
        "POLICY",
        "REQUESTS",
        "REFUSED",
        "TTFT MEAN",
        "TTFT P50",
        "TTFT P90",
        "TTFT P99",
        "PER TOKEN",
        "TOKENS/S",
        "PREFIX HITS",
        "MAX QUEUE",
    ];
    let rows: Vec<_> = outcomes.iter().map(row).collect();
    let EngineSettings { max_num_seqs, blocks, block_size, prefill_us_per_token, decode_us, decode_us_per_running } = &fleet.engine;
    let mut text = format!(
        "{} requests within {:.1} s ({source}), to {} endpoints that report every {:?}.\nAn endpoint has {max_num_seqs} seats and {blocks} \
         blocks of {block_size} tokens. A token of a prompt takes {prefill_us_per_token} us, and one of output {decode_us} us, and \
         {decode_us_per_running} us more for each request that runs.\n\n",
        trace.len(),
        trace.seconds(),
        fleet.endpoints,
        Duration::from_micros(fleet.report_interval),
    );
    text.push_str(&columns(HEADINGS, &rows));
    for note in notes {
        text.push_str("\nnote: ");
        text.push_str(note);
    }
    text
}

fn row(outcome: &Outcome) -> [String; 11] {
    let ms = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1e3));
    let first = outcome.time_to_first_token_seconds.as_ref();
    [
        outcome.policy.clone(),
        outcome.requests.to_string(),
        outcome.refused.values().sum::<u64>().to_string(),
        ms(first.map(|times| times.mean)),
        ms(first.map(|times| times.p50)),
        ms(first.map(|times| times.p90)),
        ms(first.map(|times| times.p99)),
        ms(outcome.time_per_output_token_seconds),
        format!("{:.0}", outcome.output_tokens_per_second),
        format!("{:.1} %", outcome.prefix_hit_share * 100.0),
        outcome.max_queue.to_string(),
    ]
}
