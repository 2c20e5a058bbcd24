//! Installs packages of other languages in folders that their tools may write to.

use crate::{build, guard::Guarded};
use anyhow::Result;
use std::path::Path;

/// Installs the packages of a requirements.txt into `venv`, a virtual environment below the folder.
pub(crate) fn python(work: &Path, requirements: &Path, whose: &str) -> Result<()> {
    let venv = Guarded::new("python3")?.args(["-m", "venv", "--clear", "venv"]).dir(work);
    build::logged(work, &format!("a virtual environment for {whose}"), venv)?;
    let install = Guarded::new(work.join("venv/bin/pip"))?
        .args(["--disable-pip-version-check", "install", "--require-hashes", "--requirement"])
        .args([requirements])
        .dir(work);
    build::logged(work, &format!("the packages of {whose}"), install)
}

/// Installs the packages of the folder's package-lock.json.
pub(crate) fn javascript(work: &Path, whose: &str) -> Result<()> {
    let install = Guarded::new("npm")?.args(["ci", "--no-audit", "--no-fund"]).dir(work);
    build::logged(work, &format!("the packages of {whose}"), install)
}
