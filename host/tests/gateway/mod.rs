//! The gateway between real clients and a real backend, all of them with their own sockets.

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
