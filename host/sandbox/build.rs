//! Builds the default policies and the CEL evaluator, which are embedded in the host, in their shipped form: for Wasm, with the profile
//! `plugin`.
//!
//! Cargo can't depend on a crate's build for another target, so this script calls another cargo. It has its own target directory, because
//! the outer cargo holds the lock of the outer one. The digests of the bytes are compared, so the bytes must not depend on the machine or
//! on the host's target.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The names of the crates without `pointsman-`.
const POLICIES: [&str; 5] = ["runtime-selection", "pod-templating", "metadata-propagation", "scheduling-scoring", "cel"];

const TARGET: &str = "wasm32-unknown-unknown";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the default policies and the evaluator can't be built: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let workspace = path("CARGO_MANIFEST_DIR")?.ancestors().nth(2).ok_or("the sandbox has no workspace around it")?.to_owned();
    let out = path("OUT_DIR")?;
    watch(&workspace);

    let target = target_dir(&out)?;
    let lock = workspace.join("Cargo.lock").exists().then_some("--locked");
    let mut cargo = Command::new(path("CARGO")?);
    cargo
        .current_dir(&workspace)
        .args(["build", "--quiet", "--profile", "plugin", "--target", TARGET, "--target-dir"])
        .arg(&target)
        .args(lock);
    cargo.args(POLICIES.iter().flat_map(|policy| ["--package".to_owned(), format!("pointsman-{policy}")]));
    if let Ok(jobs) = env::var("NUM_JOBS") {
        cargo.args(["--jobs", &jobs]);
    }
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_the_outer_build(&name.to_string_lossy())) {
        cargo.env_remove(name);
    }
    // Set to empty, they also take precedence over a configuration file.
    cargo.env("RUSTC_WRAPPER", "").env("RUSTC_WORKSPACE_WRAPPER", "").env("CARGO_ENCODED_RUSTFLAGS", flags(&workspace)?);
    let built = cargo.output().map_err(|error| format!("cargo can't be run: {error}"))?;
    if !built.status.success() {
        return Err(format!("cargo ended with {}\n{}", built.status, String::from_utf8_lossy(&built.stderr)));
    }

    for policy in POLICIES {
        let module = format!("pointsman_{}.wasm", policy.replace('-', "_"));
        let from = target.join(TARGET).join("plugin").join(module);
        let to = out.join(format!("{policy}.wasm"));
        fs::copy(&from, &to).map_err(|error| format!("copying {} to {}: {error}", from.display(), to.display()))?;
    }
    Ok(())
}

fn path(variable: &str) -> Result<PathBuf, String> {
    env::var_os(variable).map(PathBuf::from).ok_or_else(|| format!("cargo sets {variable}, but it isn't set"))
}

/// The sources of the policies, without their tests: whenever this script runs, the host is recompiled.
fn watch(workspace: &Path) {
    let of_policies = POLICIES.iter().flat_map(|policy| [format!("plugins/{policy}/src"), format!("plugins/{policy}/Cargo.toml")]);
    let shared = [
        "plugins/cel/wit",
        "plugins/interface/src",
        "plugins/interface/Cargo.toml",
        "plugins/sdk/src",
        "plugins/sdk/build.rs",
        "plugins/sdk/Cargo.toml",
        "wit",
        "Cargo.lock",
        "Cargo.toml",
        "host/sandbox/build.rs",
    ];
    for watched in of_policies.chain(shared.map(str::to_owned)) {
        println!("cargo:rerun-if-changed={}", workspace.join(watched).display());
    }
}

/// A folder in the outer target directory. All profiles and targets of the host share it.
fn target_dir(out: &Path) -> Result<PathBuf, String> {
    // <target directory>/[<target>/]<profile>/build/<package>/out
    let outer = out.ancestors().nth(4).ok_or_else(|| format!("{} isn't below a target directory", out.display()))?;
    let outer = match (outer.parent(), env::var_os("TARGET")) {
        (Some(parent), Some(target)) if outer.file_name() == Some(&target) => parent,
        _ => outer,
    };
    Ok(outer.join("builtin"))
}

/// Whether a variable describes how the outer cargo builds the host: flags, wrappers such as clippy's, profiles, the jobserver, coverage.
/// Variables for the location of the toolchain and of crates stay.
fn is_of_the_outer_build(name: &str) -> bool {
    const STAY: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    const GO: [&str; 7] = ["CARGO_", "CLIPPY_", "DEP_", "LLVM_PROFILE_", "RUSTC_", "RUSTDOC", "RUSTFLAGS"];
    const GO_EXACTLY: [&str; 11] = [
        "CARGO",
        "DEBUG",
        "HOST",
        "MAKEFLAGS",
        "MFLAGS",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "TARGET",
        "__CARGO_DEFAULT_LIB_METADATA",
    ];
    !STAY.iter().any(|stay| name.starts_with(stay)) && (GO.iter().any(|go| name.starts_with(go)) || GO_EXACTLY.contains(&name))
}

/// Flags that remove this machine's paths from the bytes. In this variable they take precedence over all others.
fn flags(workspace: &Path) -> Result<OsString, String> {
    let Toolchain { sources, commit } = toolchain()?;
    let mut renamed = vec![(workspace.to_owned(), "/pointsman".to_owned()), (sources, format!("/rustc/{commit}"))];
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    if let Some(home) = home {
        // Their names differ if a mirror replaces crates.io.
        let registries = fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
        renamed.push((home, "/cargo".to_owned()));
        renamed.extend(registries.map(|registry| (registry.path(), "/crates".to_owned())));
    }
    let mut flags = OsString::new();
    for (from, to) in renamed {
        if !flags.is_empty() {
            flags.push("\u{1f}");
        }
        // rustc uses the last prefix that matches, so more specific prefixes follow.
        flags.push("--remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    Ok(flags)
}

struct Toolchain {
    /// The folder of the standard library's sources, if they are installed.
    sources: PathBuf,
    /// The commit that replaces that folder otherwise.
    commit: String,
}

fn toolchain() -> Result<Toolchain, String> {
    let rustc = path("RUSTC")?;
    let ask = |args: &[&str]| {
        let asked = Command::new(&rustc).args(args).output().map_err(|error| format!("{} can't be run: {error}", rustc.display()))?;
        if asked.status.success() {
            Ok(String::from_utf8_lossy(&asked.stdout).into_owned())
        } else {
            Err(format!("{} {}: {}", rustc.display(), args.join(" "), String::from_utf8_lossy(&asked.stderr)))
        }
    };
    let told = ask(&["--print", "sysroot", "--print", "target-libdir", "--target", TARGET])?;
    let (sysroot, libraries) = told.trim().split_once('\n').ok_or("rustc doesn't tell where its libraries are")?;
    if !Path::new(libraries.trim()).exists() {
        return Err(format!("the standard library for {TARGET} isn't installed: `rustup target add {TARGET}` adds it"));
    }
    let version = ask(&["--version", "--verbose"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown").to_owned();
    Ok(Toolchain { sources: Path::new(sysroot).join("lib/rustlib/src/rust"), commit })
}
