//! The OpenAI clients that the tests ask the gateway with, from their registries: installed below `target/clients`.

use crate::{
    build::{self, Sources},
    guard::Guarded,
    tools,
};
use anyhow::Result;
use pointsman_harness::{clients_dir, workspace};
use std::{fs, path::Path};

/// Installs those whose versions have changed.
pub(crate) fn install() -> Result<()> {
    let _lock = build::lock(&clients_dir(), "the OpenAI clients")?;
    let installs: [(&str, fn() -> Result<String>, fn(&Path, &Path) -> Result<()>, &str); 2] =
        [("python", tools::python, python, "venv/bin/python"), ("javascript", tools::node, javascript, "node_modules/openai/package.json")];
    for (language, version, install, result) in installs {
        let (source, work) = (workspace().join("tests/clients").join(language), clients_dir().join(language));
        let version = version()?;
        let sources = Sources { folders: &[&source], also: &version };
        sources.unless_built(&work.join("stamp"), &[&work.join(result)], || {
            fs::create_dir_all(&work)?;
            install(&source, &work)
        })?;
    }
    Ok(())
}

fn python(source: &Path, work: &Path) -> Result<()> {
    let venv = Guarded::new("python3")?.args(["-m", "venv", "--clear", "venv"]).dir(work);
    build::logged(work, "a virtual environment for the OpenAI client", venv)?;
    let install = Guarded::new(work.join("venv/bin/pip"))?
        .args(["--disable-pip-version-check", "install", "--require-hashes", "--requirement"])
        .args([source.join("requirements.txt")])
        .dir(work);
    build::logged(work, "the OpenAI client for Python", install)
}

fn javascript(source: &Path, work: &Path) -> Result<()> {
    // Node finds packages beside the script that imports them.
    for file in build::files(source)? {
        fs::copy(&file, work.join(file.strip_prefix(source)?))?;
    }
    let install = Guarded::new("npm")?.args(["ci", "--no-audit", "--no-fund"]).dir(work);
    build::logged(work, "the OpenAI client for JavaScript", install)
}
