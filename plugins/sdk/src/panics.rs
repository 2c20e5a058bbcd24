//! Reports a panic's message to the host. Without it, the host sees only that the plugin trapped.

/// From now on, logs each panic of this instance. The host copies a line that begins like this into the error of the call; see
/// docs/plugin-abi.md.
#[cfg(target_arch = "wasm32")]
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| crate::log::warn(line(panic.location(), panic.payload_as_str()))));
}

/// In tests, the default hook prints the message.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn log_panics() {}

#[cfg(target_arch = "wasm32")]
fn line(location: Option<&std::panic::Location<'_>>, message: Option<&str>) -> String {
    let mut line = "panicked".to_owned();
    for (before, part) in [(" at ", location.map(ToString::to_string)), (": ", message.map(str::to_owned))] {
        line.extend(part.map(|part| before.to_owned() + &part));
    }
    line
}
