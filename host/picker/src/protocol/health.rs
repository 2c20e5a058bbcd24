//! gRPC's health checking protocol (grpc.health.v1), without watches.

/// The request.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct HealthCheckRequest {
    /// The name of the service; empty for the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HealthCheckResponse {
    /// A [`ServingStatus`].
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// The health of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Unknown.
    Unknown = 0,
    /// Healthy.
    Serving = 1,
    /// Not healthy.
    NotServing = 2,
}
