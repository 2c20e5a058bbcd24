//! What a running host tells in its log.

use serde_json::Value;
use std::{fs, path::Path};

/// The lines of a host's log that are whole.
pub fn log_lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Where a host that was told to take any free port listens, once it has said so.
pub fn listening_address(log: &Path) -> Option<String> {
    log_lines(log).iter().find_map(|line| Some(line["address"].as_str()?.to_owned()))
}
