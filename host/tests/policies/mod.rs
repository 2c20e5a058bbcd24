//! The policies that are written here, built as they are shipped.

use pointsman_harness::plugins::plugin;
use pointsman_sandbox::{
    compile::Compilers,
    engine::{Engines, Use},
    limits::{COMPILER_MEMORY, Limits},
    plugin::{Instances, Plugin},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

/// One for all tests of a program: each reserves address space.
pub(crate) fn engines() -> &'static Arc<Engines> {
    static ENGINES: OnceLock<Arc<Engines>> = OnceLock::new();
    ENGINES.get_or_init(|| Arc::new(Engines::with_slots(8).unwrap()))
}

/// The core module of a package, up to date.
pub(crate) fn module(package: &str) -> Vec<u8> {
    std::fs::read(plugin(package)).unwrap()
}

/// Where this build's program, and the tests with it, keep what was compiled from test to test.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache/plugins")
}

/// Compiles with this build's program. Plugins are asked by the draft if they speak it.
/// With time enough for a component of Python or JavaScript on a loaded machine: `compile` tests the deadline.
pub(crate) fn compilers() -> Compilers {
    let compilers = Compilers::new(env!("CARGO_BIN_EXE_pointsman").into(), &cache()).unwrap();
    compilers.with_drafts(true).bounded(Duration::from_mins(10), COMPILER_MEMORY)
}

/// Ample time: on a loaded machine a call may have to wait for its turn, and none of these loops.
const LIMITS: Limits = Limits { deadline: Limits::MAX.deadline, ..Limits::DEFAULT };

/// A plugin of a module's bytes.
pub(crate) fn linked(module: &[u8], use_: Use, config: &str, instances: Instances) -> Plugin {
    let compiled = compilers().load(engines(), use_, module).unwrap();
    Plugin::new(engines(), use_, (&compiled.code, compiled.version), config, LIMITS, instances).unwrap()
}

/// A package's plugin at a control-plane point.
#[allow(dead_code, reason = "the benches, which share this file, load plugins in other ways")]
pub(crate) fn load(package: &str, config: &str) -> Plugin {
    linked(&module(package), Use::ControlPlane, config, Instances::Fresh)
}
