//! Installs Envoy below `target/envoy`, from a Python package that contains its binary. A bench compares the gateway with it, and in tests
//! it calls the endpoint picker.

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

/// Installs Envoy if its version has changed.
pub(crate) fn install() -> Result<()> {
    let _lock = build::lock(&envoy_dir(), "Envoy")?;
    let work = std::path::absolute(envoy_dir())?;
    let source = workspace().join("tests/envoy");
    let version = tools::python()?;
    let program = envoy();
    Sources { folders: &[&source], also: &version }.unless_built(&work.join("stamp"), &[&program], || {
        packages::python(&work, &source.join("requirements.txt"), "Envoy")?;
        // The path contains Python's version. The program that pip installs next to `python` is only a script that starts the binary.
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
