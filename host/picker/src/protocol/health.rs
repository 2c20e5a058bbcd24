//! gRPC's protocol for the question whether a server is well (grpc.health.v1), without watches.

/// The question.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct HealthCheckRequest {
    /// What it is about; empty is the whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HealthCheckResponse {
    /// A [`ServingStatus`].
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether something is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Nobody knows.
    Unknown = 0,
    /// It is.
    Serving = 1,
    /// It isn't.
    NotServing = 2,
}
