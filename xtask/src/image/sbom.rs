//! Lists all crates in a binary, as CycloneDX, with cargo-cyclonedx.

use super::{Commit, tracked_files};
use crate::{build, guard::Guarded};
use anyhow::{Context, Result, bail};
use pointsman_harness::{plugins::WASM, workspace};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Another version could write the same crates as different bytes, which would change the image's digest.
const VERSION: &str = "0.5.9";

/// The plugins that the host's build compiles to WebAssembly and embeds (`host/sandbox/build.rs`). Cargo doesn't see them as dependencies.
const EMBEDDED: [&str; 5] = ["cel", "metadata-propagation", "pod-templating", "runtime-selection", "scheduling-scoring"];

/// The package that embeds them.
const EMBEDDED_BY: &str = "pointsman-sandbox";

const FILE: &str = "bill-of-materials";

/// cargo-cyclonedx, and a copy of the workspace: the tool writes its lists next to the manifests.
pub(crate) struct Generator {
    program: PathBuf,
    source: PathBuf,
}

impl Generator {
    /// Installs the tool below `folder` unless it is there.
    pub(crate) fn install(folder: &Path) -> Result<Self> {
        let program = folder.join("bin/cargo-cyclonedx");
        let found = Command::new(&program).args(["cyclonedx", "--version"]).output();
        if !found.is_ok_and(|found| String::from_utf8_lossy(&found.stdout).trim().ends_with(VERSION)) {
            println!("installing cargo-cyclonedx {VERSION}, which lists the crates");
            let install = build::cargo(&["install", "--locked", "--quiet", &format!("cargo-cyclonedx@{VERSION}"), "--root"])?;
            install.args([folder]).succeed("installing cargo-cyclonedx")?;
        }
        let source = folder.join("manifests");
        if source.exists() {
            fs::remove_dir_all(&source).with_context(|| format!("clearing {}", source.display()))?;
        }
        // Cargo reads the manifests, and requires the source files that they name.
        for file in
            tracked_files()?.iter().filter(|file| file.extension().is_some_and(|kind| kind == "toml" || kind == "lock" || kind == "rs"))
        {
            let to = source.join(file);
            fs::create_dir_all(to.parent().unwrap_or(&source))?;
            fs::copy(workspace().join(file), &to).with_context(|| format!("copying {}", file.display()))?;
        }
        Ok(Self { program, source })
    }

    /// Lists the crates of the host for a target, including those of the embedded plugins.
    pub(crate) fn list(&self, target: &str, commit: &Commit) -> Result<Vec<u8>> {
        self.run(target, commit)?;
        let mut host = self.read("host")?;
        self.run(WASM, commit)?;
        for embedded in EMBEDDED {
            embed(&mut host, self.read(&format!("plugins/{embedded}"))?)?;
        }
        Ok(host.to_string().into_bytes())
    }

    fn run(&self, target: &str, commit: &Commit) -> Result<()> {
        // The tool warns about crates with an outdated notation of their licence: `-qq` hides this.
        let command = Guarded::new(&self.program)?
            .args(["cyclonedx", "-qq", "--format", "json", "--spec-version", "1.5", "--no-build-deps"])
            .args(["--target", target, "--override-filename", FILE])
            .dir(&self.source)
            // Otherwise the list contains the current time and a random number.
            .env("SOURCE_DATE_EPOCH", commit.seconds.to_string());
        command.succeed(&format!("listing the crates for {target}"))
    }

    fn read(&self, package: &str) -> Result<Value> {
        let file = self.source.join(package).join(format!("{FILE}.json"));
        let list = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let list = list.replace(&*self.source.to_string_lossy(), "/pointsman");
        serde_json::from_str(&list).with_context(|| format!("parsing {}", file.display()))
    }
}

/// Adds the list of an embedded plugin to the host's, as a dependency of the package that embeds it.
fn embed(host: &mut Value, mut embedded: Value) -> Result<()> {
    let root = embedded["metadata"]["component"].take();
    let reference = root["bom-ref"].clone();
    let mut components = by_name(host["components"].take(), "bom-ref");
    components.extend(by_name(json!([root]), "bom-ref"));
    for (name, component) in by_name(embedded["components"].take(), "bom-ref") {
        components.entry(name).or_insert(component);
    }
    let embedding = components.values().find(|component| component["name"] == EMBEDDED_BY).map(|component| component["bom-ref"].clone());

    let mut dependencies = by_name(host["dependencies"].take(), "ref");
    for (name, dependency) in by_name(embedded["dependencies"].take(), "ref") {
        // A crate may have other dependencies in WebAssembly than in the host.
        let known = dependencies.entry(name).or_insert_with(|| json!({"ref": dependency["ref"]}));
        depend(known, dependency["dependsOn"].as_array().into_iter().flatten().cloned());
    }
    let embedding = embedding.as_ref().and_then(Value::as_str).and_then(|name| dependencies.get_mut(name));
    let Some(embedding) = embedding else { bail!("the list of the host's crates lacks {EMBEDDED_BY}") };
    depend(embedding, [reference]);

    host["components"] = components.into_values().collect();
    host["dependencies"] = dependencies.into_values().collect();
    Ok(())
}

fn by_name(list: Value, name: &str) -> BTreeMap<String, Value> {
    let Value::Array(list) = list else { return BTreeMap::new() };
    list.into_iter().map(|entry| (entry[name].as_str().unwrap_or_default().to_owned(), entry)).collect()
}

fn depend(dependency: &mut Value, on: impl IntoIterator<Item = Value>) {
    let mut all: Vec<Value> = dependency["dependsOn"].as_array().into_iter().flatten().cloned().chain(on).collect();
    all.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
    all.dedup();
    if !all.is_empty() {
        dependency["dependsOn"] = all.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_packages_are_those_of_the_build_script() {
        let script = fs::read_to_string(workspace().join("host/sandbox/build.rs")).unwrap();
        let line = script.lines().find_map(|line| line.strip_prefix("const POLICIES: ")).unwrap();
        assert_eq!(line.matches('"').count(), 2 * EMBEDDED.len());
        assert!(EMBEDDED.iter().all(|package| line.contains(&format!("\"{package}\""))), "{line}");
    }

    #[test]
    fn what_is_embedded_is_a_dependency_of_the_sandbox() {
        let crates = |names: &[&str]| names.iter().map(|name| json!({"bom-ref": name, "name": name})).collect::<Value>();
        let mut host = json!({
            "metadata": {"component": {"bom-ref": "pointsman", "name": "pointsman"}},
            "components": crates(&["serde", EMBEDDED_BY]),
            "dependencies": [{"ref": "pointsman", "dependsOn": [EMBEDDED_BY]}, {"ref": "serde"}, {"ref": EMBEDDED_BY, "dependsOn": ["serde"]}],
        });
        let plugin = json!({
            "metadata": {"component": {"bom-ref": "policy", "name": "policy"}},
            "components": crates(&["cel", "serde"]),
            "dependencies": [{"ref": "policy", "dependsOn": ["cel", "serde"]}, {"ref": "cel"}, {"ref": "serde", "dependsOn": ["cel"]}],
        });
        embed(&mut host, plugin.clone()).unwrap();
        assert_eq!(host["components"], crates(&["cel", EMBEDDED_BY, "policy", "serde"]));
        let expected = json!([
            {"ref": "cel"},
            {"ref": "pointsman", "dependsOn": [EMBEDDED_BY]},
            {"ref": EMBEDDED_BY, "dependsOn": ["policy", "serde"]},
            {"ref": "policy", "dependsOn": ["cel", "serde"]},
            {"ref": "serde", "dependsOn": ["cel"]},
        ]);
        assert_eq!(host["dependencies"], expected);

        assert!(embed(&mut json!({"components": [], "dependencies": []}), plugin).is_err());
    }
}
