//! The example policies that aren't written in Rust. The tools of each language build them below `target/examples`.

use crate::{
    build::{self, Sources},
    guard::Guarded,
    packages, tools,
};
use anyhow::{Context, Result};
use pointsman_harness::{
    plugins::{WASM, plugin_file},
    target_dir, workspace,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A policy below `plugins/examples`.
struct Example {
    name: &'static str,
    /// Checks the tool, and returns its version: another version may produce different bytes.
    version: fn() -> Result<String>,
    build: fn(&ExampleDirs) -> Result<()>,
    test: fn(&ExampleDirs) -> Result<()>,
    /// Its golden cases, a file below `plugins/examples`.
    cases: &'static str,
}

/// The golden cases of the label policy, the same in every language.
const LABELS_CASES: &str = "labels-cases.json";

const EXAMPLES: [Example; 4] = [
    Example { name: "go-labels", version: tools::go, build: go, test: go_test, cases: LABELS_CASES },
    Example { name: "go-price", version: tools::go, build: go, test: go_test, cases: "go-price/cases.json" },
    Example { name: "javascript-labels", version: tools::node, build: javascript, test: javascript_test, cases: LABELS_CASES },
    Example { name: "python-labels", version: tools::python, build: python, test: python_test, cases: LABELS_CASES },
];

/// The paths of an example.
struct ExampleDirs {
    source: PathBuf,
    /// The tools write here; they write nothing into the source tree.
    work: PathBuf,
    wasm: PathBuf,
}

impl ExampleDirs {
    fn for_example(name: &str) -> Result<Self> {
        // An absolute path, because the tools run in other folders.
        let out = std::path::absolute(target_dir().join("examples"))?;
        Ok(Self { source: workspace().join("plugins/examples").join(name), work: out.join(name), wasm: out.join(format!("{name}.wasm")) })
    }

    /// Copies the sources to a folder that the tools may write to.
    fn copy(&self) -> Result<()> {
        for file in build::files(&self.source)? {
            let to = self.work.join(file.strip_prefix(&self.source)?);
            fs::create_dir_all(to.parent().unwrap_or(&self.work))?;
            fs::copy(&file, &to).with_context(|| format!("copying {}", file.display()))?;
        }
        Ok(())
    }

    fn logged(&self, what: &str, command: Guarded) -> Result<()> {
        build::logged(&self.work, what, command)
    }
}

/// Builds the examples whose sources or tools have changed, and returns the paths of all.
pub(crate) fn examples() -> Result<Vec<PathBuf>> {
    let _lock = build::lock(&target_dir().join("examples"), "the examples")?;
    EXAMPLES.iter().map(Example::built).collect()
}

/// Runs each example's own tests.
pub(crate) fn tests() -> Result<()> {
    EXAMPLES.iter().try_for_each(|example| (example.test)(&ExampleDirs::for_example(example.name)?))
}

/// Runs the golden cases of all examples in the sandbox. The label policy has the same cases in every language, including Rust.
pub(crate) fn agree(host: &Path) -> Result<()> {
    let rust = plugin_file("pointsman-example-rust-labels", WASM);
    let cache = target_dir().join("examples/cache");
    let others = EXAMPLES.iter().map(|example| ExampleDirs::for_example(example.name).map(|place| (place.wasm, example.cases)));
    for asked in others.chain([Ok((rust, LABELS_CASES))]) {
        let (plugin, cases) = asked?;
        let cases = workspace().join("plugins/examples").join(cases);
        let asked = Guarded::new(host)?.args(["plugin", "test"]).args([&plugin, &cases]).args(["--cache"]).args([&cache]);
        asked.succeed(&format!("the golden cases of {}", plugin.display()))?;
    }
    Ok(())
}

impl Example {
    fn built(&self) -> Result<PathBuf> {
        let place = ExampleDirs::for_example(self.name)?;
        let version = (self.version)()?;
        let sources = Sources { folders: &[&place.source, &wit()], also: &version };
        sources.unless_built(&place.work.join("stamp"), &[&place.wasm], || (self.build)(&place))?;
        Ok(place.wasm)
    }
}

fn wit() -> PathBuf {
    workspace().join("wit/0.1.0")
}

fn go(place: &ExampleDirs) -> Result<()> {
    // Omit the commit and the folder's name: the same source must give the same bytes.
    let build =
        Guarded::new("go")?.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"]).args([&place.wasm, Path::new(".")]);
    place.logged("the example in Go", build.dir(&place.source).env("GOOS", "wasip1").env("GOARCH", "wasm"))
}

fn go_test(place: &ExampleDirs) -> Result<()> {
    build::gofmt(&place.source)?;
    place.logged("go vet of the example", Guarded::new("go")?.args(["vet", "./..."]).dir(&place.source))?;
    // Without `-count=1`, Go would reuse a result even if the cases have changed: they are outside its module.
    Guarded::new("go")?.args(["test", "-count=1", "./..."]).dir(&place.source).succeed("a test of the example in Go")
}

fn javascript(place: &ExampleDirs) -> Result<()> {
    place.copy()?;
    packages::javascript(&place.work, "the example in JavaScript")?;
    let folder = place.wasm.parent().unwrap_or(&place.work);
    let build = Guarded::new("node")?.args(["build.js".as_ref(), folder, &wit()]).dir(&place.work);
    place.logged("the example in JavaScript", build)
}

fn javascript_test(place: &ExampleDirs) -> Result<()> {
    Guarded::new("node")?.args(["--test", "--test-reporter=spec"]).dir(&place.source).succeed("a test of the example in JavaScript")
}

fn python(place: &ExampleDirs) -> Result<()> {
    // componentize-py writes bytecode next to the sources.
    place.copy()?;
    packages::python(&place.work, Path::new("requirements.txt"), "the example in Python")?;
    componentize_py(place, "the bindings of the example in Python", &["bindings".as_ref(), Path::new("bindings")])?;
    componentize_py(
        place,
        "the example in Python",
        &["componentize".as_ref(), Path::new("--stub-wasi"), "policy".as_ref(), "--output".as_ref(), &place.wasm],
    )
}

fn componentize_py(place: &ExampleDirs, what: &str, args: &[&Path]) -> Result<()> {
    let command = Guarded::new(place.work.join("venv/bin/componentize-py"))?
        .args(["--wit-path"])
        .args([wit()])
        .args(["--world", "metadata-propagator"])
        .args(args)
        .dir(&place.work);
    place.logged(what, command)
}

fn python_test(place: &ExampleDirs) -> Result<()> {
    Guarded::new("python3")?
        .args(["-m", "unittest"])
        .env("PYTHONPATH", place.work.join("bindings"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .dir(&place.source)
        .succeed("a test of the example in Python")
}
