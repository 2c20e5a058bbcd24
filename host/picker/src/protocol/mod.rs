//! The exchange with a proxy about one request (Envoy's external processing, with bodies that are sent in full duplex): what was received
//! becomes a step for the caller, and what the caller decides becomes messages to send. Nothing here waits.
//!
//! The proxy forwards nothing of a body but what it is sent back. Answers are in the order headers, body, trailers, whenever their messages
//! came.

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

/// The metadata namespace that load balancers read and write.
pub const LOAD_BALANCER: &str = "envoy.lb";

/// The metadata namespace with the endpoints that a proxy allows.
pub const SUBSET_HINT: &str = "envoy.lb.subset_hint";

/// The header, and the key in the namespace, with the endpoints of a request: `ADDRESS:PORT`, the best first, separated by commas.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";

/// The key with the endpoints that may be picked.
pub const SUBSET: &str = "x-gateway-destination-endpoint-subset";

/// The key with the endpoint that a response came from.
pub const SERVED: &str = "x-gateway-destination-endpoint-served";

/// How much of a body one message may have.
pub const MAX_CHUNK: usize = 62_000;
