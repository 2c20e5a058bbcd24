//! The host's tests, in one program, because linking the host takes longer than most of them.
//!
//! `cargo test --workspace --test all hostile::` runs those of one file.
#![allow(clippy::unwrap_used, clippy::panic)]

mod check_cli;
mod command_line;
mod commands;
mod compile;
mod config;
mod doors;
mod explain_cli;
mod explain_request_cli;
mod expressions;
mod gateway;
mod hostile;
mod image;
mod image_mirror;
mod interfaces;
mod labels_page;
mod lookups;
mod metrics_page;
mod model_cli;
mod parity;
mod picker;
mod picker_cli;
mod picker_traces;
mod placements_cli;
mod plans;
mod plugin_cli;
mod plugin_new;
mod plugins;
mod render_cli;
mod replay;
mod restarts;
mod rules;
mod scenarios;
mod scores_page;
mod security_page;
mod shipped_rules;
mod tenants;
mod training_agent;
mod wasi;

// Shared by the tests.
mod grammar;
mod planning;
mod policies;
mod program;
mod questions;
mod text;
