//! The exchange with a proxy about one request (Envoy's external processing, with full-duplex bodies). Each received message becomes a step
//! for the caller, and the caller's decisions become messages to send. Nothing here blocks.
//!
//! The proxy forwards only the parts of a body that we send back. Responses are in the order headers, body, trailers, regardless of when
//! their messages arrived.

mod exchange;
pub mod framing;
mod head;
pub mod health;
pub mod messages;
mod send;
#[cfg(test)]
mod tests;
mod trace_parent;

pub use exchange::{Exchange, Limits, Step};
pub use head::{RequestHead, ResponseHead, header};
pub use send::{Placement, Refusal};
pub use trace_parent::{TRACE_PARENT, TraceParent};

/// The metadata namespace of load balancers.
pub const LOAD_BALANCER: &str = "envoy.lb";

/// The metadata namespace with the endpoints that a proxy allows.
pub const SUBSET_HINT: &str = "envoy.lb.subset_hint";

/// The header, and the key in the namespace, with the endpoints of a request: `ADDRESS:PORT`, best first, separated by commas.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";

/// The key with the allowed endpoints.
pub const SUBSET: &str = "x-gateway-destination-endpoint-subset";

/// The key with the endpoint that served a response.
pub const SERVED: &str = "x-gateway-destination-endpoint-served";

/// The maximum part of a body in one message, in bytes.
pub const MAX_CHUNK: usize = 62_000;
