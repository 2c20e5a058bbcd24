//! What traces are made of: spans of `tracing`, which the host exports by OpenTelemetry. Nothing that is decided depends on them.

/// The target of all spans of traces. It is no path of a module, so no filter of the log for modules matches it.
pub const TARGET: &str = "pointsman-traces";

/// The name of the span that is the root of a trace. Outside it there are none.
pub const RECONCILE: &str = "reconcile";

/// The field of a span that began before it was created: nanoseconds since 1970.
pub const BEGIN: &str = "begin";
