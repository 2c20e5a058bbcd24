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

/// Whether a failing test prints a backtrace.
const BACKTRACE: &str = "RUST_BACKTRACE";

/// The number of tests that a test program runs at once, unless `--test-threads` sets it.
const THREADS: &str = "RUST_TEST_THREADS";

const TESTS_PER_CORE: usize = 3;

/// The modules in Go: the control plane, and neighbours that need another version of Kubernetes.
const GO_MODULES: [&str; 3] = ["tests/cluster", "tests/knative", "tests/gateways"];

/// The end-to-end test that audits which rights all other tests used.
const AUDIT: &str = "grants::";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leaves out the control plane and everything that runs on it.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Adds everything that takes more than a few minutes: long end-to-end tests, soaks, long fuzzing, the licence check.
    #[arg(long)]
    full: bool,
    /// Runs only the end-to-end tests whose names contain this, including long ones.
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
    // Check these before the long steps, so that a missing tool shows at once.
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
    // The builds in other languages run in parallel with Rust's.
    steps.beside = (!args.quick).then(|| Beside::start("the builds in other languages", others));
    steps.run("formatting", || build::cargo(&["fmt", "--all", "--check"])?.succeed("`cargo fmt --check` (run `cargo fmt`)"))?;
    steps.run("layers", layers::check)?;
    steps.run("features", features::check)?;
    steps.run("building and linting", || {
        // Cargo ignores a test that doesn't run by default until a command names it. Each bench is a program that contains the whole host,
        // so only --full builds them.
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

/// `--full` reaches the tests as an environment variable, which makes the same tests run longer.
fn thorough(args: &Args, cargo: Guarded) -> Guarded {
    if args.full { cargo.env(FULL, "1") } else { cargo }
}

/// Builds the control plane, and the examples in other languages.
fn others() -> Result<()> {
    for module in GO_MODULES {
        build::gofmt(&workspace().join(module))?;
    }
    build::control_plane()?;
    examples::examples()?;
    Ok(())
}

/// Runs before the cluster starts, so that a mistake in a test shows at once.
fn build_end_to_end() -> Result<()> {
    build::host()?;
    build::linting_cargo(&["test", "--workspace", "--test", "e2e", "--no-run"])?.succeed("building the end-to-end tests")
}

/// The number of end-to-end tests that run at once: most of the time each waits for a controller. The test program reads the same variable.
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
    // Always select the whole workspace: another selection of packages would select other features, and rebuild everything.
    let cargo =
        build::linting_cargo(&["test", "--workspace", "--test", "e2e"])?.env(SHARED_CLUSTER, cluster.ready()).env(THREADS, threads());
    // An assertion reports its position and the values that it saw; a hundred lines of an async runtime after it would hide them.
    let mut cargo = thorough(args, cargo.env(BACKTRACE, "0")).args(only);
    // Long tests are ignored, unless all tests run or some by name. The audit runs last.
    if args.full || only.is_some() {
        cargo = cargo.args(["--", "--include-ignored", "--skip", AUDIT]);
    }
    cargo.succeed("an end-to-end test")?;
    if only.is_some() {
        return Ok(());
    }
    // Only with --full, which runs all tests, does the audit expect each right to be used.
    let cargo = build::linting_cargo(&["test", "--workspace", "--test", "e2e"])?.env(SHARED_CLUSTER, cluster.ready());
    thorough(args, cargo).args(["--", "--ignored", "--nocapture", AUDIT]).succeed("the audit of the shipped roles")
}

/// Runs `go vet` and the tests of these modules. They analyse and link all of Kubernetes, which takes minutes, and start their own control
/// planes; the end-to-end tests find most of the same mistakes.
fn go_checks() -> Result<()> {
    for module in GO_MODULES {
        let dir = workspace().join(module);
        build::logged(&cluster_dir(), &format!("go vet in {module}"), build::go_command(&dir)?.args(["vet", "./..."]))?;
        build::logged(&cluster_dir(), &format!("go test in {module}"), build::go_command(&dir)?.args(["test", "./..."]))?;
    }
    Ok(())
}

/// Leaves out advisories: they need a network, and our own changes don't cause them.
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
    /// Work in parallel with the steps; if it fails, the next step doesn't start.
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
