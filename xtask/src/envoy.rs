//! Envoy, with which the gateway is compared and which asks the endpoint picker in tests, from a Python package that carries its binary:
//! installed below `target/envoy`.

use crate::{
    build::{self, Sources},
    packages, tools,
};
use anyhow::{Context, Result};
use pointsman_harness::{envoy, envoy_dir, workspace};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Installs it if its version has changed.
pub(crate) fn install() -> Result<()> {
    let _lock = build::lock(&envoy_dir(), "Envoy")?;
    let work = std::path::absolute(envoy_dir())?;
    let source = workspace().join("tests/envoy");
    let version = tools::python()?;
    let program = envoy();
    Sources { folders: &[&source], also: &version }.unless_built(&work.join("stamp"), &[&program], || {
        packages::python(&work, &source.join("requirements.txt"), "Envoy")?;
        // The folder between is named by Python's version. What pip puts beside `python` is a script that starts the binary.
        let binary = binary(&work.join("venv/lib"))?;
        fs::remove_file(&program).ok();
        symlink(&binary, &program).with_context(|| format!("linking {}", binary.display()))
    })
}

fn binary(libraries: &Path) -> Result<PathBuf> {
    let versions = fs::read_dir(libraries).with_context(|| format!("reading {}", libraries.display()))?;
    let binaries = versions.flatten().map(|version| version.path().join("site-packages/envoy/_bin/envoy"));
    binaries.into_iter().find(|binary| binary.exists()).context("Envoy's package has no binary")
}
