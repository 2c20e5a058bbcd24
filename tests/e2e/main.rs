//! End-to-end tests on the embedded control plane. One binary, so that they share it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod cel;
mod chart;
mod control_plane;
mod corpus;
mod crds;
mod doctor;
mod faults;
mod foreign_crds;
mod grants;
mod host;
mod install;
mod knative;
mod kubectl;
mod leftovers;
mod llm;
mod models;
mod monitoring;
mod namespaced;
mod objects;
mod operate;
mod partitions;
mod permissions;
mod plans;
mod policies;
mod revisions;
mod rules;
mod services;
mod sets;
mod takeover;
mod tenants;
mod traces;
mod upgrade;
mod validation;
mod wrong_installs;
