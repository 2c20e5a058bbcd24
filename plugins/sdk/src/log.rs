//! Writes lines to the host's log. Outside of a host, for example in a test, it does nothing.

/// Writes a line that helps only during the development of the plugin.
pub fn debug(message: impl AsRef<str>) {
    host::write(host::Level::Debug, message.as_ref());
}

/// Writes a line with useful information.
pub fn info(message: impl AsRef<str>) {
    host::write(host::Level::Info, message.as_ref());
}

/// Writes a line that deserves attention.
pub fn warn(message: impl AsRef<str>) {
    host::write(host::Level::Warn, message.as_ref());
}

#[cfg(target_arch = "wasm32")]
use crate::bindings::v0_1::pointsman::policy::log as host;

#[cfg(not(target_arch = "wasm32"))]
mod host {
    pub(super) use crate::bindings::v0_1::pointsman::policy::log::Level;

    pub(super) fn write(_: Level, _: &str) {}
}
