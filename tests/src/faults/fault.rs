//! Faults between a host and the API server.

use http::{Method, Request};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One object, or API discovery.
    Get,
    /// All objects of a kind.
    List,
    /// Changes.
    Watch,
    /// A change.
    Write,
    /// Not a request: an event on a watch.
    Event,
}

/// A request, with the properties that faults depend on.
#[derive(Clone, Debug)]
pub struct Call {
    /// The kind of the request.
    pub verb: Verb,
    /// The HTTP method.
    pub method: Method,
    /// The path with the query.
    pub target: String,
    /// Whether it is about the hosts' Lease.
    pub is_of_lease: bool,
}

impl Call {
    /// Parses a request.
    pub fn new<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let target = uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string);
        let watches = uri.query().is_some_and(|query| query.split('&').any(|part| ["watch=true", "watch=1"].contains(&part)));
        let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        // After the version, the segments are the namespace, if any, the plural, the name and the subresource.
        let within = match segments.first() {
            Some(&"api") => segments.get(2..),
            Some(&"apis") => segments.get(3..),
            _ => None,
        };
        let within = match within.unwrap_or_default() {
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        let verb = match (request.method(), within) {
            (&Method::GET, _) if watches => Verb::Watch,
            (&Method::GET, [_plural]) => Verb::List,
            (&Method::GET, _) => Verb::Get,
            _ => Verb::Write,
        };
        Self { verb, method: request.method().clone(), target, is_of_lease: within.first() == Some(&"leases") }
    }

    /// Whether only the leader may send it: a change that others rely on, but not a report about the host itself.
    pub fn is_leaders(&self) -> bool {
        const ANYBODYS: [&str; 5] = ["/leases", "/events", "accessreviews", "rulesreviews", "dryRun=All"];
        self.verb == Verb::Write && !ANYBODYS.iter().any(|part| self.target.contains(part))
    }
}

/// A fault. Those of a request occur randomly, and a test triggers the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The API server is overloaded: nothing is done.
    Refused,
    /// The connection is closed without a response, and nothing is done.
    Cut,
    /// There is no response, and nothing is done.
    Hung,
    /// The response is late.
    Late,
    /// Another client wrote in between: nothing is done.
    Conflict,
    /// The request is done, and the response is an error.
    RefusedAfter,
    /// The request is done, and the connection is closed without a response.
    CutAfter,
    /// The request is done, and there is no response.
    HungAfter,
    /// The request is sent twice.
    Twice,
    /// The connection is closed in the middle of the response.
    Torn,
    /// A lagging API server responds with an earlier state.
    StaleList,
    /// The requested resource version of a watch or a list has expired.
    Expired,
    /// A watch ends between two events.
    WatchCut,
    /// A watch ends in the middle of an event.
    WatchTorn,
    /// A watch ends with an event that its resource version has expired.
    WatchExpired,
    /// A watch stalls for a while, and then ends.
    WatchFrozen,
    /// An event and those after it are late.
    WatchLate,
    /// Another client has taken the lease.
    LeaseTaken,
    /// The lease is deleted.
    LeaseDeleted,
    /// The leader can reach everything except the lease.
    LeaseHung,
    /// The leader can reach nothing, although its connections stay open.
    Partition,
    /// The leader is killed.
    Killed,
    /// The leader receives SIGTERM.
    Terminated,
}

impl Fault {
    /// The faults of requests and of events on watches.
    pub const BY_CHANCE: [Self; 17] = [
        Self::Refused,
        Self::Cut,
        Self::Hung,
        Self::Late,
        Self::Conflict,
        Self::RefusedAfter,
        Self::CutAfter,
        Self::HungAfter,
        Self::Twice,
        Self::Torn,
        Self::StaleList,
        Self::Expired,
        Self::WatchCut,
        Self::WatchTorn,
        Self::WatchExpired,
        Self::WatchFrozen,
        Self::WatchLate,
    ];

    /// The faults of whole hosts.
    pub const BY_HOST: [Self; 6] = [Self::LeaseHung, Self::Killed, Self::LeaseTaken, Self::Terminated, Self::Partition, Self::LeaseDeleted];

    /// Whether it can occur for such a request.
    pub fn meets(self, call: &Call) -> bool {
        match self {
            Self::Refused | Self::Cut | Self::Hung | Self::Late => call.verb != Verb::Event,
            Self::Conflict | Self::RefusedAfter | Self::CutAfter | Self::HungAfter | Self::Twice => call.verb == Verb::Write,
            Self::Torn => [Verb::Get, Verb::List, Verb::Write].contains(&call.verb),
            Self::StaleList => call.verb == Verb::List && !call.is_of_lease,
            Self::Expired => call.verb == Verb::Watch || call.verb == Verb::List && call.target.contains("resourceVersion="),
            Self::WatchCut | Self::WatchTorn | Self::WatchExpired | Self::WatchFrozen | Self::WatchLate => call.verb == Verb::Event,
            Self::LeaseTaken | Self::LeaseDeleted | Self::LeaseHung | Self::Partition | Self::Killed | Self::Terminated => false,
        }
    }
}
