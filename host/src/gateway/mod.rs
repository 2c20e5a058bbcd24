//! What the gateway in front of models is made of. No subcommand runs it yet.

pub mod json_model;
