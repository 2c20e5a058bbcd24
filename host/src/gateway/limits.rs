//! The gateway's limits: everything that a client, a model's author or a backend can make large or slow is limited.

use std::time::Duration;

/// The gateway's limits. The defaults are in docs/gateway.md.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The maximum number of clients' connections; further ones wait in the listener's backlog.
    pub connections: usize,
    /// The maximum number of concurrent requests of one HTTP/2 connection.
    pub streams: u32,
    /// The maximum size of a request's line and headers, in bytes.
    pub header_bytes: usize,
    /// The maximum size of a request's body, in bytes.
    pub body_bytes: u64,
    /// The maximum number of bytes of one request that are buffered before its model is known, or while it is held.
    pub buffered_bytes: usize,
    /// The maximum number of bytes that all requests have buffered.
    pub all_buffered_bytes: usize,
    /// The maximum number of held requests, of all models.
    pub held: usize,
    /// The maximum number of requests of a model in flight; further ones are queued. 0 means no limit.
    pub concurrency: u64,
    /// How long a request is held.
    pub hold_timeout: Duration,
    /// The interval of comments to a held request whose client accepts server-sent events.
    pub comment_interval: Duration,
    /// The timeout of a request's headers.
    pub header_timeout: Duration,
    /// How long a client may pause within a body.
    pub body_timeout: Duration,
    /// How long a client may leave sent data unread.
    pub stall_timeout: Duration,
    /// How long a connection without a request stays open.
    pub idle_timeout: Duration,
    /// The timeout of connecting to a backend.
    pub connect_timeout: Duration,
    /// The maximum time until a backend's response begins, and of a pause within it.
    pub backend_timeout: Duration,
    /// The maximum duration of a request once it is sent to a backend.
    pub request_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            streams: 100,
            header_bytes: 64 << 10,
            body_bytes: 512 << 20,
            buffered_bytes: 32 << 20,
            all_buffered_bytes: 512 << 20,
            held: 1000,
            concurrency: 0,
            hold_timeout: Duration::from_mins(5),
            comment_interval: Duration::from_secs(10),
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_mins(1),
            idle_timeout: Duration::from_secs(90),
            connect_timeout: Duration::from_secs(5),
            backend_timeout: Duration::from_mins(10),
            request_timeout: Duration::from_hours(1),
        }
    }
}
