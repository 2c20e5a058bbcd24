//! The policies that are written here, built as they are shipped.

#![allow(dead_code)] // Each test takes what it needs.

use pointsman_sandbox::{
    compile::Compilers,
    engine::{Engines, Use},
    limits::Limits,
    plugin::{Instances, Plugin},
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
};

/// One for all tests of a program: each reserves address space.
pub(crate) fn engines() -> &'static Arc<Engines> {
    static ENGINES: OnceLock<Arc<Engines>> = OnceLock::new();
    ENGINES.get_or_init(|| Arc::new(Engines::with_slots(8).unwrap()))
}

/// The core module of a package, up to date.
pub(crate) fn module(package: &str) -> Vec<u8> {
    built(package, "wasm32-unknown-unknown")
}

/// A package built for a target, up to date.
pub(crate) fn built(package: &str, triple: &str) -> Vec<u8> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "plugin", "--target", triple, "--package", package])
        .arg("--target-dir")
        .arg(target)
        .status()
        .unwrap();
    assert!(built.success(), "the plugin can't be built; `rustup target add {triple}` adds what it needs");
    let file: PathBuf = target.join(triple).join("plugin").join(format!("{}.wasm", package.replace('-', "_")));
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Compiles with this build's program, and keeps what it made from test to test.
pub(crate) fn compilers() -> Compilers {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins-cache");
    Compilers::new(env!("CARGO_BIN_EXE_pointsman").into(), &cache).unwrap()
}

/// Ample time: on a loaded machine a call may have to wait for its turn, and none of these loops.
const LIMITS: Limits = Limits { deadline: Limits::MOST.deadline, ..Limits::DEFAULT };

/// A plugin of a module's bytes.
pub(crate) fn linked(module: &[u8], use_: Use, config: &str, instances: Instances) -> Plugin {
    let compiled = compilers().load(engines(), use_, module).unwrap();
    Plugin::new(engines(), use_, &compiled.code, config, LIMITS, instances).unwrap()
}

/// A package's plugin at a control-plane point.
pub(crate) fn load(package: &str, config: &str) -> Plugin {
    linked(&module(package), Use::ControlPlane, config, Instances::Fresh)
}
