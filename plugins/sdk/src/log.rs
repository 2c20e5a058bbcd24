//! Lines for the host's log; nothing where there is no host, as in a test.

/// Writes what is of use only while the plugin is written.
pub fn debug(message: impl AsRef<str>) {
    host::write(host::Level::Debug, message.as_ref());
}

/// Writes what is worth knowing.
pub fn info(message: impl AsRef<str>) {
    host::write(host::Level::Info, message.as_ref());
}

/// Writes what is worth looking at.
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
