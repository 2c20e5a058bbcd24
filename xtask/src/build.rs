//! Builds everything that the demo and the tests run, each once.

use crate::{guard::Guarded, tools};
use anyhow::{Context, Result, bail};
use pointsman_harness::{
    RUSTC_WORKSPACE_WRAPPER, cluster_dir,
    plugins::{PLUGINS, WASM, build_arguments, plugin_file},
    target_dir, workspace,
};
use std::{
    env,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// The version of Kubernetes that the control plane's module pins; kubectl reads it from the server.
const KUBERNETES: (&str, &str, &str) = ("1", "36", "3");

/// The variables that `cargo clippy -- --deny warnings` sets for the cargo that it runs.
pub(crate) const LINTING: [(&str, &str); 2] =
    [(RUSTC_WORKSPACE_WRAPPER, "clippy-driver"), ("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__")];

/// The cargo that runs this program.
pub(crate) fn cargo(args: &[&str]) -> Result<Guarded> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Ok(Guarded::new(cargo)?.args(args).dir(&workspace()))
}

/// The same for everything that tests run: clippy's driver compiles our crates, and denies warnings. A separate `cargo clippy` would check
/// all dependencies again, which takes ten minutes on a fresh machine.
pub(crate) fn linting_cargo(args: &[&str]) -> Result<Guarded> {
    let cargo = cargo(args)?;
    Ok(LINTING.into_iter().fold(cargo, |cargo, (name, value)| cargo.env(name, value)))
}

/// Returns the output of a cargo command.
pub(crate) fn cargo_output(args: &[&str]) -> Result<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(args).current_dir(workspace()).output().context("running cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Builds all plugins.
pub(crate) fn plugins() -> Result<()> {
    packages(&PLUGINS)
}

/// Builds one plugin and returns its path.
pub(crate) fn plugin(package: &str) -> Result<PathBuf> {
    packages(&[package])?;
    Ok(plugin_file(package, WASM))
}

fn packages(packages: &[&str]) -> Result<()> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    cargo(&build_arguments(WASM))?.args(packages).succeed("building the plugins")
}

/// Builds the host and returns its path.
pub(crate) fn host() -> Result<PathBuf> {
    // Select the features for the whole workspace, so that tests use the same crates, but build only what the program needs.
    linting_cargo(&["build", "--workspace", "--bin", "pointsman"])?.succeed("building the host")?;
    Ok(target_dir().join("debug/pointsman"))
}

/// Writes the generated files: `crds/yaml`, `deploy/roles`, and the tables of docs/labels-and-annotations.md, docs/metrics.md,
/// docs/models.md and docs/node-placement.md.
pub(crate) fn generate() -> Result<()> {
    let to = workspace().join("crds/yaml");
    let host = host()?;
    // The folder contains nothing else: the files of removed kinds must not stay.
    fs::remove_dir_all(&to).with_context(|| format!("clearing {}", to.display()))?;
    Guarded::new(host)?.args(["crds", "print", "--all", "--dir"]).args([to]).succeed("generating crds/yaml")?;
    // See the test in `host/src/permissions.rs`, which compares them.
    let roles = ["test", "--workspace", "--lib", "permissions::tests::the_files"];
    linting_cargo(&roles)?.env("POINTSMAN_UPDATE_ROLES", "1").succeed("generating deploy/roles")?;
    // See the test in `host/tests/metrics_page.rs`, which compares them.
    let metrics = ["test", "--workspace", "--test", "all", "metrics_page::the_page"];
    linting_cargo(&metrics)?.env("POINTSMAN_UPDATE_METRICS_PAGE", "1").succeed("generating the table of docs/metrics.md")?;
    // See the test in `host/model/src/inspect/document.rs`, which compares them.
    let models = ["test", "--workspace", "--lib", "inspect::document::the_page"];
    linting_cargo(&models)?.env("POINTSMAN_UPDATE_MODELS_PAGE", "1").succeed("generating the tables of docs/models.md")?;
    // See the test in `host/src/scheduler_extender/document.rs`, which compares them.
    let placement = ["test", "--workspace", "--lib", "scheduler_extender::document"];
    linting_cargo(&placement)?.env("POINTSMAN_UPDATE_PLACEMENT_PAGE", "1").succeed("generating the table of docs/node-placement.md")?;
    // See the test in `host/core/src/rules/ome_keys/document.rs`, which compares them.
    let tables = ["test", "--workspace", "--lib", "rules::ome_keys::document"];
    linting_cargo(&tables)?.env("POINTSMAN_UPDATE_LABELS_PAGE", "1").succeed("generating the tables of docs/labels-and-annotations.md")
}

/// Adds the digests of the built-in policies to those that all later hosts trust.
pub(crate) fn record_release() -> Result<()> {
    let test = ["test", "--workspace", "--lib", "builtin::tests::each_line_about_a_former_release"];
    linting_cargo(&test)?.env("POINTSMAN_RELEASE", "1").succeed("writing host/sandbox/src/builtin/released.txt")
}

/// Builds the control plane with all its neighbours, unless they are already built.
pub(crate) fn control_plane() -> Result<()> {
    kubernetes()?;
    knative()
}

/// The same without Knative.
pub(crate) fn kubernetes() -> Result<()> {
    let source = workspace().join("tests/cluster");
    let out = cluster_dir();
    let bin = out.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("making {}", bin.display()))?;
    let _lock = lock(&out, "the control plane")?;

    let (major, minor, patch) = KUBERNETES;
    let mut ldflags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        ldflags += &[
            format!(" -X {package}.gitVersion=v{major}.{minor}.{patch}"),
            format!(" -X {package}.gitMajor={major}"),
            format!(" -X {package}.gitMinor={minor}"),
            format!(" -X {package}.gitTreeState=clean"),
        ]
        .concat();
    }
    // Helm checks a chart's kubeVersion against these when it doesn't query a cluster.
    let package = "helm.sh/helm/v3/pkg/chartutil";
    let helm_ldflags = format!("-s -w -X {package}.k8sVersionMajor={major} -X {package}.k8sVersionMinor={minor}");
    let (server, manager, helm) = (bin.join("pointsman-cluster"), bin.join("lws-manager"), bin.join("helm"));
    let also = format!("{ldflags} {helm_ldflags}");
    Sources { folders: &[&source], also: &also }.unless_built(&out.join("stamp"), &[&server, &manager, &helm], || {
        tools::go()?;
        println!("building the control plane (Kubernetes, etcd, kwok, LeaderWorkerSet, Helm); the first time this takes about ten minutes");
        go("etcd, the control plane, kwok", &source, &["build", "-ldflags", &ldflags, "-o", &text(&server), "."])?;
        go("LeaderWorkerSet's manager", &source, &["build", "-ldflags", "-s -w", "-o", &text(&manager), "sigs.k8s.io/lws/cmd"])?;
        go("Helm", &source, &["build", "-ldflags", &helm_ldflags, "-o", &text(&helm), "helm.sh/helm/v3/cmd/helm"])?;
        let fetch = Guarded::new(&server)?.args(["fetch", "--out"]).args([out.join("neighbours")]);
        logged(&out, "the neighbours' CRDs", fetch)
    })
}

/// Knative's webhook, and its validation as a program. They have their own module because Knative needs another version of Kubernetes.
fn knative() -> Result<()> {
    let source = workspace().join("tests/knative");
    let out = cluster_dir();
    let bin = out.join("bin");
    let _lock = lock(&out, "the control plane")?;
    let (webhook, check) = (bin.join("knative-webhook"), bin.join("knative-check"));
    Sources { folders: &[&source], also: "" }.unless_built(&out.join("stamp-knative"), &[&webhook, &check], || {
        tools::go()?;
        println!("building Knative's webhook; the first time this takes about three minutes");
        let webhook_main = "knative.dev/serving/cmd/webhook";
        go("Knative's webhook", &source, &["build", "-ldflags", "-s -w", "-o", &text(&webhook), webhook_main])?;
        go("Knative's validation", &source, &["build", "-ldflags", "-s -w", "-o", &text(&check), "."])
    })
}

/// Kueue's manager, in its own module for the same reason. The ordinary tests don't need it.
pub(crate) fn kueue() -> Result<()> {
    let source = workspace().join("tests/kueue");
    let out = cluster_dir();
    let manager = out.join("bin/kueue-manager");
    let _lock = lock(&out, "the control plane")?;
    Sources { folders: &[&source], also: "" }.unless_built(&out.join("stamp-kueue"), &[&manager], || {
        tools::go()?;
        println!("building Kueue's manager; the first time this takes about five minutes");
        go("Kueue's manager", &source, &["build", "-ldflags", "-s -w", "-o", &text(&manager), "sigs.k8s.io/kueue/cmd/kueue"])
    })
}

/// Istio's control plane without a cluster, in its own module for the same reason. The ordinary tests don't need it.
pub(crate) fn istio() -> Result<()> {
    let source = workspace().join("tests/gateways");
    let out = cluster_dir();
    let _lock = lock(&out, "the control plane")?;
    Sources { folders: &[&source], also: "" }.unless_built(&out.join("stamp-istio"), &[&pointsman_harness::istio()], || {
        tools::go()?;
        println!("building Istio's control plane; the first time this takes about ten minutes");
        let program = text(&pointsman_harness::istio());
        go("Istio's control plane", &source, &["build", "-ldflags", "-s -w", "-o", &program, "."])
    })
}

fn go(what: &str, dir: &Path, args: &[&str]) -> Result<()> {
    logged(&cluster_dir(), what, go_command(dir)?.args(args))
}

/// `go` in one of the control plane's modules. All its commands use the same flags; otherwise each would compile everything again.
pub(crate) fn go_command(dir: &Path) -> Result<Guarded> {
    // The compiler spends a tenth of its time on debug information that the linker discards, and another tenth on garbage collection.
    let flags = format!("{} -gcflags=all=-dwarf=false", env::var("GOFLAGS").unwrap_or_default());
    let collect_at = env::var("GOGC").unwrap_or_else(|_| "200".to_owned());
    Ok(Guarded::new("go")?.dir(dir).env("GOFLAGS", flags.trim()).env("GOGC", collect_at))
}

/// Prevents a second command from building the same thing at the same time: both would write the same files.
pub(crate) fn lock(folder: &Path, what: &str) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).with_context(|| format!("making the lock file of {what}"))?;
    if lock.try_lock().is_err() {
        println!("waiting for another build of {what}");
        lock.lock().with_context(|| format!("waiting for another build of {what}"))?;
    }
    Ok(lock)
}

/// Fails if gofmt would change any of the folder's files.
pub(crate) fn gofmt(dir: &Path) -> Result<()> {
    let unformatted = Command::new("gofmt").arg("-l").arg(dir).output().context("running gofmt, which comes with Go")?;
    if !unformatted.status.success() || !unformatted.stdout.is_empty() {
        bail!(
            "gofmt would change these files (run `gofmt -w {}`): {}",
            dir.strip_prefix(workspace()).unwrap_or(dir).display(),
            String::from_utf8_lossy(&unformatted.stdout).replace('\n', " ")
        );
    }
    Ok(())
}

/// Runs a long step with its output in a file. Prints a sign of life regularly, and the end of the file if the step fails.
pub(crate) fn logged(folder: &Path, what: &str, command: Guarded) -> Result<()> {
    const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
    let name: String = what.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let log = folder.join(format!("{name}.log"));
    let started = Instant::now();
    let mut running = command.log(&log)?.start()?;
    let mut next = SIGN_OF_LIFE;
    let status = loop {
        if let Some(status) = running.ended() {
            break status;
        }
        if started.elapsed() > next {
            println!("  {what}: still running after {} s", started.elapsed().as_secs());
            next += SIGN_OF_LIFE;
        }
        thread::sleep(Duration::from_millis(50));
    };
    if !status.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.to_lowercase().contains("no space left on device") {
            bail!(
                "{what} can't be built because the disk is full: free some space, or point CARGO_TARGET_DIR, GOCACHE and TMPDIR to another disk"
            );
        }
        let end: Vec<&str> = said.lines().rev().take(15).collect();
        for line in end.iter().rev() {
            eprintln!("  {line}");
        }
        bail!("{what} failed; the lines above are the end of {}", log.display());
    }
    println!("  {what}: {} s", started.elapsed().as_secs());
    Ok(())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The inputs of a build.
pub(crate) struct Sources<'a> {
    pub(crate) folders: &'a [&'a Path],
    /// Everything else that the outcome depends on.
    pub(crate) also: &'a str,
}

impl Sources<'_> {
    /// Builds it, unless the stamp shows that the same sources were already built and the outcome still exists.
    pub(crate) fn unless_built(&self, stamp: &Path, outcome: &[&Path], build: impl FnOnce() -> Result<()>) -> Result<()> {
        let wanted = format!("{:016x}", self.digest()?);
        if fs::read_to_string(stamp).is_ok_and(|found| found == wanted) && outcome.iter().all(|file| file.exists()) {
            return Ok(());
        }
        fs::remove_file(stamp).ok();
        build()?;
        fs::write(stamp, wanted).with_context(|| format!("writing {}", stamp.display()))
    }

    fn digest(&self) -> Result<u64> {
        let mut hasher = DefaultHasher::new();
        self.also.hash(&mut hasher);
        for folder in self.folders {
            for file in files(folder)? {
                file.strip_prefix(folder)?.hash(&mut hasher);
                fs::read(&file).with_context(|| format!("reading {}", file.display()))?.hash(&mut hasher);
            }
        }
        Ok(hasher.finish())
    }
}

/// Folders that a language's tools create next to the sources when a user runs them manually.
const LEFT_BY_TOOLS: [&str; 5] = ["__pycache__", "bindings", "dist", "node_modules", "venv"];

/// The files of a folder, in order, without documentation (`.md`).
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                files.push(entry.path());
            } else if LEFT_BY_TOOLS.iter().all(|name| entry.file_name() != *name) {
                folders.push(entry.path());
            }
        }
    }
    files.retain(|file| file.extension().is_none_or(|extension| extension != "md"));
    files.sort();
    Ok(files)
}
