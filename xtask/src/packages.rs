//! Packages of other languages, installed where their tools may write.

use crate::{build, guard::Guarded};
use anyhow::Result;
use std::path::Path;

/// Installs the packages of a requirements.txt into a virtual environment, `venv` below the folder.
pub(crate) fn python(work: &Path, requirements: &Path, whose: &str) -> Result<()> {
    let venv = Guarded::new("python3")?.args(["-m", "venv", "--clear", "venv"]).dir(work);
    build::logged(work, &format!("a virtual environment for {whose}"), venv)?;
    let install = Guarded::new(work.join("venv/bin/pip"))?
        .args(["--disable-pip-version-check", "install", "--require-hashes", "--requirement"])
        .args([requirements])
        .dir(work);
    build::logged(work, &format!("the packages of {whose}"), install)
}

/// Installs the packages of a package-lock.json that is in the folder.
pub(crate) fn javascript(work: &Path, whose: &str) -> Result<()> {
    let install = Guarded::new("npm")?.args(["ci", "--no-audit", "--no-fund"]).dir(work);
    build::logged(work, &format!("the packages of {whose}"), install)
}
