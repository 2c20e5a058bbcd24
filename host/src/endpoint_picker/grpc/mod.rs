//! gRPC over HTTP/2, as far as a proxy needs it: a stream for each of its requests, and a question whether we are well.

mod authority;
mod conversation;
mod server;
#[cfg(test)]
mod tests;

pub use conversation::{Health, Picks};
pub use server::{Settings, serve, serve_probes};

/// The path of a proxy's streams.
const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// The path of the question.
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// How long a message may be. Envoy's chunks are far shorter; headers with metadata may be long.
const MAX_MESSAGE: usize = 4 << 20;

/// How a call ends, by gRPC's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Ok = 0,
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
}
