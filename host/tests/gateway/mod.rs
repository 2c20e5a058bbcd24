//! The gateway between real clients and a real backend, each with sockets of its own.

mod access;
mod answers;
mod backend;
mod holding;
mod limits;
mod malformed;
mod page;
mod rig;
mod streaming;
mod tls;
