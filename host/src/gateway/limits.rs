//! The gateway's limits: everything that a client, a model's author or a backend can make large or slow has one.

use std::time::Duration;

/// The gateway's limits. The defaults are in docs/gateway.md.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections of clients at once; further ones wait in the listener's backlog.
    pub connections: usize,
    /// Requests of one HTTP/2 connection at once.
    pub streams: u32,
    /// The bytes of a request's line and headers together.
    pub header_bytes: usize,
    /// The bytes of a request's body.
    pub body_bytes: u64,
    /// The bytes of one request that are buffered before its model is known, or while it is held.
    pub buffered_bytes: usize,
    /// The bytes of all requests that are buffered.
    pub all_buffered_bytes: usize,
    /// Requests that are held, of all models.
    pub held: usize,
    /// Requests of a model that are in flight at once; further ones are queued. 0 is any number.
    pub concurrency: u64,
    /// How long a request is held.
    pub hold_timeout: Duration,
    /// How often a held request gets a comment if its client accepts server-sent events.
    pub comment_interval: Duration,
    /// How long a request's headers may take.
    pub header_timeout: Duration,
    /// How long a client may pause within a body.
    pub body_timeout: Duration,
    /// How long a client may leave what is sent to it unread.
    pub stall_timeout: Duration,
    /// How long a connection without a request stays open.
    pub idle_timeout: Duration,
    /// How long connecting to a backend may take.
    pub connect_timeout: Duration,
    /// How long a backend may take until its answer begins, and pause within it.
    pub backend_timeout: Duration,
    /// How long a request may take in all once it is sent to a backend.
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
