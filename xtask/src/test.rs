//! The checks and tests, in the order in which they fail fastest.

use crate::{beside::Beside, build, clients, envoy, examples, features, guard::Guarded, image, layers, tools};
use anyhow::{Context, Result, bail};
use pointsman_harness::{Cluster, FULL, Options, SHARED_CLUSTER, cluster_dir, forget_our_package, workspace};
use std::{
    env,
    num::NonZero,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Whether a test that fails prints a backtrace.
const BACKTRACE: &str = "RUST_BACKTRACE";

/// How many tests a test program runs at once, unless it is told by `--test-threads`.
const THREADS: &str = "RUST_TEST_THREADS";

const TESTS_PER_CORE: usize = 3;

/// What is written in Go: the control plane, and neighbours that are built with another Kubernetes.
const GO_MODULES: [&str; 3] = ["tests/cluster", "tests/knative", "tests/gateways"];

/// The end-to-end test that reads what all others have done.
const AUDIT: &str = "grants::";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leaves out the control plane and what runs on it.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Adds what takes more than a few minutes: long end-to-end tests, soaks, long fuzzing, the licence check.
    #[arg(long)]
    full: bool,
    /// Runs only the end-to-end tests whose names contain this, long ones too.
    #[arg(value_name = "NAME", conflicts_with_all = ["quick", "full"])]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut steps = Steps::default();
    tools::rust()?;
    if !args.quick {
        tools::go()?;
        tools::kubectl()?;
    }
    // Asked before the long steps, so that what is missing shows at once.
    if !args.quick && args.only.is_none() {
        tools::node()?;
        tools::python()?;
    }
    if args.full {
        image::require_tools()?;
    }
    if let Some(name) = &args.only {
        let mut control_plane = Beside::start("the control plane's build", build::control_plane);
        steps.run("building the end-to-end tests", build_end_to_end)?;
        steps.run("waiting for the control plane", || control_plane.finish())?;
        return steps.run("end-to-end tests", || end_to_end(args, Some(name)));
    }
    // What other compilers build, beside what Rust's does.
    steps.beside = (!args.quick).then(|| Beside::start("what isn't Rust", others));
    steps.run("formatting", || build::cargo(&["fmt", "--all", "--check"])?.succeed("`cargo fmt --check` (run `cargo fmt`)"))?;
    steps.run("layers", layers::check)?;
    steps.run("features", features::check)?;
    steps.run("building and linting", || {
        // Of a test that isn't run by default cargo takes no notice until it is named. Each bench is a program with all of the host in it.
        let most: &[&str] = if args.full { &["--all-targets"] } else { &[] };
        for targets in [most, &["--test", "e2e"]] {
            build::linting_cargo(&["test", "--workspace", "--no-run"])?.args(targets).succeed("building, or a lint of clippy,")?;
        }
        Ok(())
    })?;
    steps.run("plugins", build::plugins)?;
    steps.run("unit and doc tests, generated files", || {
        thorough(args, build::linting_cargo(&["test", "--workspace"])?).succeed("a unit or doc test")
    })?;
    if !args.quick {
        steps.run("building the end-to-end tests", build_end_to_end)?;
        if let Some(mut others) = steps.beside.take() {
            steps.run("waiting for the control plane and the examples in other languages", || others.finish())?;
        }
        steps.run("the examples' own tests", || {
            examples::tests()?;
            examples::agree(&build::host()?)
        })?;
        if args.full {
            steps.run("control plane's own checks", go_checks)?;
        }
        steps.run("end-to-end tests", || end_to_end(args, None))?;
    }
    if args.full {
        steps.run("the image", image::trial)?;
        steps.run("licences and bans", licences)?;
    }
    steps.tell();
    Ok(())
}

/// `--full` reaches the tests as an environment variable: the same tests then run longer.
fn thorough(args: &Args, cargo: Guarded) -> Guarded {
    if args.full { cargo.env(FULL, "1") } else { cargo }
}

/// The control plane, and the examples in other languages.
fn others() -> Result<()> {
    for module in GO_MODULES {
        build::gofmt(&workspace().join(module))?;
    }
    build::control_plane()?;
    examples::examples()?;
    Ok(())
}

/// Before the cluster starts, so that a mistake in a test shows at once.
fn build_end_to_end() -> Result<()> {
    build::host()?;
    build::linting_cargo(&["test", "--workspace", "--test", "e2e", "--no-run"])?.succeed("building the end-to-end tests")
}

/// How many end-to-end tests run at once: most of the time each waits for a controller. The variable is the test program's own.
fn threads() -> String {
    env::var(THREADS).unwrap_or_else(|_| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        (TESTS_PER_CORE * cores).to_string()
    })
}

fn end_to_end(args: &Args, only: Option<&String>) -> Result<()> {
    if let Some(name) = only {
        let mut list = Command::new("cargo");
        list.args(["test", "--quiet", "--workspace", "--test", "e2e", name, "--", "--list"]).current_dir(workspace());
        forget_our_package(&mut list);
        list.envs(build::LINTING);
        let listed = list.output().context("listing the end-to-end tests")?;
        if !String::from_utf8_lossy(&listed.stdout).contains(": test") {
            bail!("no end-to-end test has {name} in its name");
        }
    }
    tools::prometheus(&cluster_dir().join("bin"))?;
    clients::install()?;
    envoy::install()?;
    if args.full || env::var_os(FULL).is_some() {
        build::kueue()?;
        build::istio()?;
    }
    let cluster = Cluster::start(&Options { progress: true, ..Options::default() })?;
    // Always the whole workspace: another choice of packages would choose other features, and build everything again.
    let cargo =
        build::linting_cargo(&["test", "--workspace", "--test", "e2e"])?.env(SHARED_CLUSTER, cluster.ready()).env(THREADS, threads());
    // An assertion says where it stands and what it saw; a hundred lines of an async runtime after it hide that.
    let mut cargo = thorough(args, cargo.env(BACKTRACE, "0")).args(only);
    // Long ones are ignored, unless all are wanted or some by their names. The audit comes last.
    if args.full || only.is_some() {
        cargo = cargo.args(["--", "--include-ignored", "--skip", AUDIT]);
    }
    cargo.succeed("an end-to-end test")?;
    if only.is_some() {
        return Ok(());
    }
    // Only with --full, which runs all tests, it expects each right to be used.
    let cargo = build::linting_cargo(&["test", "--workspace", "--test", "e2e"])?.env(SHARED_CLUSTER, cluster.ready());
    thorough(args, cargo).args(["--", "--ignored", "--nocapture", AUDIT]).succeed("the audit of the shipped roles")
}

/// `go vet` and the tests of these modules. They analyse and link all of Kubernetes, which takes minutes, and start control planes of their own:
/// the end-to-end tests notice most of what they would.
fn go_checks() -> Result<()> {
    for module in GO_MODULES {
        let dir = workspace().join(module);
        build::logged(&cluster_dir(), &format!("go vet in {module}"), build::go_command(&dir)?.args(["vet", "./..."]))?;
        build::logged(&cluster_dir(), &format!("go test in {module}"), build::go_command(&dir)?.args(["test", "./..."]))?;
    }
    Ok(())
}

/// Advisories are left out: they need a network, and a change of ours doesn't bring one about.
fn licences() -> Result<()> {
    if build::cargo(&["deny", "--version"])?.run().is_ok_and(|status| !status.success()) {
        println!("installing cargo-deny");
        build::cargo(&["install", "--locked", "cargo-deny@0.20.2"])?.succeed("installing cargo-deny")?;
    }
    build::cargo(&["deny", "check", "bans", "licenses", "sources"])?.succeed("cargo deny")
}

#[derive(Default)]
struct Steps {
    done: Vec<(&'static str, Duration)>,
    /// What goes on beside them; where it fails, the next step isn't begun.
    beside: Option<Beside>,
}

impl Steps {
    fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(beside) = &mut self.beside {
            beside.check()?;
        }
        println!("\n# {name}");
        let started = Instant::now();
        step()?;
        self.done.push((name, started.elapsed()));
        Ok(())
    }

    fn tell(&self) {
        println!();
        for (name, took) in &self.done {
            println!("{:>6.0} s  {name}", took.as_secs_f64());
        }
        println!("{:>6.0} s  all passed", self.done.iter().map(|(_, took)| took.as_secs_f64()).sum::<f64>());
    }
}
