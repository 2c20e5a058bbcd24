//! The tools that the machine must have, and those that we install.

use crate::guard::Guarded;
use anyhow::{Context, Result, anyhow, bail};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

type Version = (u32, u32, u32);

/// The oldest versions that are known to work; the README lists them too.
const GO: Version = (1, 26, 4);
const KUBECTL: Version = (1, 30, 0);
const NODE: Version = (20, 19, 0);
const PYTHON: Version = (3, 11, 0);
const RUST: Version = (1, 95, 0);

/// The targets that plugins are compiled for.
const WASM_TARGETS: [&str; 2] = ["wasm32-unknown-unknown", "wasm32-wasip2"];

/// Checks the compiler and adds the Wasm targets that are missing.
pub(crate) fn rust() -> Result<()> {
    at_least("rustc", &["--version"], "rustc ", RUST, "install Rust with rustup (https://rustup.rs)")?;
    targets(&WASM_TARGETS)
}

/// Adds the compiler's missing targets.
pub(crate) fn targets(wanted: &[&str]) -> Result<()> {
    // Don't rely on rustup's list: a distribution's compiler can include the targets without rustup.
    let sysroot = output("rustc", &["--print", "sysroot"]).ok_or_else(|| anyhow!("rustc doesn't print its sysroot"))?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    let missing: Vec<_> = wanted.iter().copied().filter(|target| !libraries.join(target).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if output("rustup", &["--version"]).is_none() {
        bail!(
            "the Rust targets {} are missing, and rustup, which could add them, isn't installed: install them as you installed Rust",
            missing.join(" and ")
        );
    }
    println!("adding the Rust targets {}", missing.join(" and "));
    Guarded::new("rustup")?.args(["target", "add"]).args(missing).succeed("adding the Rust targets (`rustup target add`)")
}

/// Checks Go, which builds the control plane and an example, and returns the version that it prints.
pub(crate) fn go() -> Result<String> {
    at_least("go", &["version"], "go version go", GO, "install it from https://go.dev/dl, or put it on the PATH")
}

/// Checks Node.js with npm, which build an example, and returns the version that it prints.
pub(crate) fn node() -> Result<String> {
    let advice = "it builds the example plugin in JavaScript; install it from https://nodejs.org, or put it on the PATH";
    let said = at_least("node", &["--version"], "v", NODE, advice)?;
    if output("npm", &["--version"]).is_none() {
        bail!("npm is needed and can't be run: {advice} (it comes with Node.js)");
    }
    Ok(said)
}

/// Checks Python, which builds an example and installs the image's C compiler, and returns the version that it prints.
pub(crate) fn python() -> Result<String> {
    let advice = "it builds the example plugin in Python, and installs the image's C compiler; install it, with its module venv, \
        from https://www.python.org, or put it on the PATH";
    let said = at_least("python3", &["--version"], "Python ", PYTHON, advice)?;
    if output("python3", &["-c", "import ensurepip, venv"]).is_none() {
        bail!("python3 lacks the module venv or ensurepip: {advice} (Debian and Ubuntu have it in the package python3-venv)");
    }
    Ok(said)
}

/// Checks kubectl, with which the demo and the tests inspect the cluster as a user does.
pub(crate) fn kubectl() -> Result<String> {
    let advice = "install it as described at https://kubernetes.io/docs/tasks/tools, or put it on the PATH";
    at_least("kubectl", &["version", "--client", "-o", "json"], "\"gitVersion\": \"v", KUBECTL, advice)
}

/// Prometheus, and promtool, which checks the alerts.
const PROMETHEUS: [&str; 2] = ["prometheus", "promtool"];

/// Puts Prometheus's programs into a folder, from the PATH or from Debian's package.
pub(crate) fn prometheus(folder: &Path) -> Result<()> {
    if PROMETHEUS.iter().all(|program| folder.join(program).exists()) {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let installed = PROMETHEUS.map(|program| output("sh", &["-c", &format!("command -v {program}")]));
    if let [Some(server), Some(checker)] = &installed {
        for (program, path) in PROMETHEUS.iter().zip([server, checker]) {
            let link = folder.join(program);
            if !link.exists() {
                symlink(path.trim(), &link).with_context(|| format!("linking {program}"))?;
            }
        }
        return Ok(());
    }
    println!("downloading Prometheus from Debian's package prometheus");
    let place = folder.join("prometheus-package");
    fs::create_dir_all(&place)?;
    let advice =
        "prometheus and promtool are needed: install them (Debian and Ubuntu have them in the package prometheus), or put them on the PATH";
    let download = || Guarded::new("apt-get")?.args(["download", "prometheus"]).dir(&place).succeed(advice);
    // apt's package lists can be empty on a new machine.
    download().or_else(|_| Guarded::new("apt-get")?.args(["update", "--quiet=2"]).succeed(advice).and_then(|()| download()))?;
    let package =
        fs::read_dir(&place)?.filter_map(Result::ok).map(|entry| entry.path()).find(|path| path.extension() == Some("deb".as_ref()));
    let package = package.context(advice)?;
    Guarded::new("dpkg-deb")?.args(["--extract"]).args([&package, &place]).succeed(advice)?;
    for program in PROMETHEUS {
        fs::rename(place.join("usr/bin").join(program), folder.join(program)).context(advice)?;
    }
    fs::remove_dir_all(place).context("removing the rest of Debian's package")
}

/// The output of a program, if it succeeds.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn at_least(program: &str, args: &[&str], before: &str, wanted: Version, advice: &str) -> Result<String> {
    let (major, minor, patch) = wanted;
    let Some(said) = output(program, args) else {
        bail!("{program} {major}.{minor}.{patch} or newer is needed and can't be run: {advice}");
    };
    match version(&said, before) {
        Some(found) if found >= wanted => Ok(said),
        Some((a, b, c)) => bail!("{program} {major}.{minor}.{patch} or newer is needed, and {a}.{b}.{c} is on the PATH: {advice}"),
        None => bail!("`{program} {}` prints no version: {advice}", args.join(" ")),
    }
}

/// Finds the version in a text: 1.26.8 in `go version go1.26.8 linux/amd64`.
fn version(said: &str, before: &str) -> Option<Version> {
    let (_, rest) = said.split_once(before)?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_out_of_what_the_tools_print() {
        assert_eq!(version("go version go1.26.8 linux/amd64", "go version go"), Some((1, 26, 8)));
        assert_eq!(version("rustc 1.95.0 (59807616e 2026-04-14)", "rustc "), Some((1, 95, 0)));
        assert_eq!(version("{\"gitVersion\": \"v1.32.4-x\"}", "\"gitVersion\": \"v"), Some((1, 32, 4)));
        assert_eq!(version("go version go1.27 linux/amd64", "go version go"), Some((1, 27, 0)));
        assert_eq!(version("v20.20.2\n", "v"), Some((20, 20, 2)));
        assert_eq!(version("Python 3.13.0rc1", "Python "), Some((3, 13, 0)));
        assert_eq!(version("gibberish", "go"), None);
    }
}
