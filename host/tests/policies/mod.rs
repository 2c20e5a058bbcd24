//! Our own policies, built as they are shipped.

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

/// The engines for all tests of a program, because each engine reserves address space.
pub(crate) fn engines() -> &'static Arc<Engines> {
    static ENGINES: OnceLock<Arc<Engines>> = OnceLock::new();
    ENGINES.get_or_init(|| Arc::new(Engines::with_slots(8).unwrap()))
}

/// The core module of a package, up to date.
pub(crate) fn module(package: &str) -> Vec<u8> {
    std::fs::read(plugin(package)).unwrap()
}

/// The folder in which this build's program and its tests cache compiled plugins.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache/plugins")
}

/// Compiles with this build's program. Uses the draft of the interfaces for plugins that support it. The deadline is long enough for a
/// component of Python or JavaScript on a busy machine: `compile` tests the default one.
pub(crate) fn compilers() -> Compilers {
    let compilers = Compilers::new(env!("CARGO_BIN_EXE_pointsman").into(), &cache()).unwrap();
    compilers.with_drafts(true).bounded(Duration::from_mins(10), COMPILER_MEMORY)
}

/// A long deadline: on a busy machine a call may be queued, and none of these plugins loops.
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
