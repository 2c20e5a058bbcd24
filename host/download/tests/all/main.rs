//! Downloads from real servers on loopback, which the tests start.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod hub;
mod kill;
mod layout;
mod objects;
mod peers;
mod registry;
mod release;
mod remote;
mod site;
mod support;
mod web;
