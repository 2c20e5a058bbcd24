//! Installs the OpenAI clients with which the tests call the gateway, from their registries, below `target/clients`.

use crate::{
    build::{self, Sources},
    packages, tools,
};
use anyhow::Result;
use pointsman_harness::{clients_dir, workspace};
use std::{fs, path::Path};

/// The client of one language.
struct Client {
    language: &'static str,
    /// Checks the tool, and returns its version.
    version: fn() -> Result<String>,
    /// Installs the client from one folder into another.
    install: fn(&Path, &Path) -> Result<()>,
    /// A file that exists after the installation.
    outcome: &'static str,
}

const CLIENTS: [Client; 2] = [
    Client { language: "python", version: tools::python, install: python, outcome: "venv/bin/python" },
    Client { language: "javascript", version: tools::node, install: javascript, outcome: "node_modules/openai/package.json" },
];

/// Installs the clients whose versions have changed.
pub(crate) fn install() -> Result<()> {
    let _lock = build::lock(&clients_dir(), "the OpenAI clients")?;
    for Client { language, version, install, outcome } in CLIENTS {
        // An absolute path, because the tools run in other folders.
        let work = std::path::absolute(clients_dir().join(language))?;
        let source = workspace().join("tests/clients").join(language);
        let version = version()?;
        let sources = Sources { folders: &[&source], also: &version };
        sources.unless_built(&work.join("stamp"), &[&work.join(outcome)], || {
            fs::create_dir_all(&work)?;
            install(&source, &work)
        })?;
    }
    Ok(())
}

fn python(source: &Path, work: &Path) -> Result<()> {
    packages::python(work, &source.join("requirements.txt"), "the OpenAI client for Python")
}

fn javascript(source: &Path, work: &Path) -> Result<()> {
    // Node searches for packages next to the script that imports them.
    for file in build::files(source)? {
        fs::copy(&file, work.join(file.strip_prefix(source)?))?;
    }
    packages::javascript(work, "the OpenAI client for JavaScript")
}
