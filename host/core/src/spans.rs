//! The spans of traces: spans of `tracing`, which the host exports with OpenTelemetry. No decision depends on them.

/// The target of all spans of traces. It isn't a module path, so filters of the log for modules don't match it.
pub const TARGET: &str = "pointsman-traces";

/// The name of a trace's root span. There are no spans outside it.
pub const RECONCILE: &str = "reconcile";

/// The field of a span that began before it was created, with the start in nanoseconds since 1970.
pub const BEGIN: &str = "begin";
