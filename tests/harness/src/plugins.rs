//! Our own plugins, built as they are shipped.

use crate::{forget_our_package, target_dir, workspace};
use std::{
    env,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
};

/// The packages that are plugins.
pub const PLUGINS: [&str; 9] = [
    "pointsman-runtime-selection",
    "pointsman-pod-templating",
    "pointsman-metadata-propagation",
    "pointsman-scheduling-scoring",
    "pointsman-example-rust-balance",
    "pointsman-example-rust-cost",
    "pointsman-example-rust-labels",
    "pointsman-hostile",
    "pointsman-cel",
];

/// Where plugins run that are core modules.
pub const WASM: &str = "wasm32-unknown-unknown";

/// The arguments for cargo that build plugins for `triple`; what to build follows them.
pub const fn build_arguments(triple: &str) -> [&str; 5] {
    ["build", "--profile", "plugin", "--target", triple]
}

/// Where the file of a package's plugin is once it is built.
pub fn plugin_file(package: &str, triple: &str) -> PathBuf {
    folder(triple).join(format!("{}.wasm", package.replace('-', "_")))
}

/// The file of a package's plugin, up to date.
pub fn plugin(package: &str) -> PathBuf {
    // One call of cargo for all of them and all tests of a program: they share their dependencies, and each call waits for the other.
    build_once(WASM, &PLUGINS.map(|package| ["--package", package]).concat());
    plugin_file(package, WASM)
}

/// The same for another target.
pub fn plugin_for(package: &str, triple: &str) -> PathBuf {
    build_once(triple, &["--package", package]);
    plugin_file(package, triple)
}

/// The file of one of a package's `examples`, up to date.
pub fn example_plugin(package: &str, example: &str) -> PathBuf {
    build_once(WASM, &["--package", package, "--example", example]);
    folder(WASM).join("examples").join(format!("{}.wasm", example.replace('-', "_")))
}

fn folder(triple: &str) -> PathBuf {
    target_dir().join(triple).join("plugin")
}

/// Builds plugins, once in this process.
fn build_once(triple: &str, what: &[&str]) {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    // A build that failed has ended its test, and is tried again by the next one.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let key = format!("{triple} {}", what.join(" "));
    if built.contains(&key) {
        return;
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_our_package(&mut cargo);
    cargo.args(build_arguments(triple)).arg("--quiet").args(what).current_dir(workspace());
    let status = cargo.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "the plugins can't be built ({status:?}); `rustup target add {triple}` adds what they need"
    );
    built.push(key);
}
