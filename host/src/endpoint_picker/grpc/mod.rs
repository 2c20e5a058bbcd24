//! The parts of gRPC over HTTP/2 that a proxy needs: a stream for each of its requests, and a health check.

mod authority;
mod conversation;
mod server;
#[cfg(test)]
mod tests;

pub use conversation::{Health, Picks};
pub use server::{Settings, serve, serve_probes};

/// The path of a proxy's streams.
const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// The path of the health check.
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// The maximum size of a message. Envoy's chunks are far smaller; headers with metadata may be long.
const MAX_MESSAGE: usize = 4 << 20;

/// The status of a call, by gRPC's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Ok = 0,
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
}
