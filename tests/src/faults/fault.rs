//! What can go wrong between a host and the API server.

use http::{Method, Request};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One object, or what the API server serves.
    Get,
    /// All objects of a kind.
    List,
    /// To be told of changes.
    Watch,
    /// A change.
    Write,
    /// Not a request: what comes on a watch.
    Event,
}

/// A request, as far as faults depend on it.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it asks for.
    pub verb: Verb,
    /// As the client has written it.
    pub method: Method,
    /// The path with the query.
    pub target: String,
    /// Whether it is about the Lease that hosts take turns with.
    pub is_of_lease: bool,
}

impl Call {
    /// What a request is.
    pub fn new<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let target = uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string);
        let watches = uri.query().is_some_and(|query| query.split('&').any(|part| ["watch=true", "watch=1"].contains(&part)));
        let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        // After the version come the namespace, if any, the plural, the name and the subresource.
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

    /// Whether it changes what others rely on. What a host says about itself, or only asks, isn't part of that.
    pub fn is_leaders(&self) -> bool {
        const ANYBODYS: [&str; 5] = ["/leases", "/events", "accessreviews", "rulesreviews", "dryRun=All"];
        self.verb == Verb::Write && !ANYBODYS.iter().any(|part| self.target.contains(part))
    }
}

/// A fault. Those of a request come by chance, the others when a test says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The API server is overloaded: nothing is done.
    Refused,
    /// The connection ends without an answer, and nothing is done.
    Cut,
    /// No answer comes, and nothing is done.
    Hung,
    /// It takes its time.
    Late,
    /// Somebody else wrote in between: nothing is done.
    Conflict,
    /// It is done, and the answer is an error.
    RefusedAfter,
    /// It is done, and the connection ends without an answer.
    CutAfter,
    /// It is done, and no answer comes.
    HungAfter,
    /// Something between the two sends it twice.
    Twice,
    /// The connection ends in the middle of the answer.
    Torn,
    /// An API server that lags behind answers with what there was.
    StaleList,
    /// The version that a watch or a list asks for is gone.
    Expired,
    /// A watch ends between two events.
    WatchCut,
    /// A watch ends in the middle of an event.
    WatchTorn,
    /// A watch ends with an event that says that its version is gone.
    WatchExpired,
    /// Nothing comes on a watch for a while, and then it ends.
    WatchFrozen,
    /// An event takes its time, and so do those behind it.
    WatchLate,
    /// Another has taken the lease.
    LeaseTaken,
    /// The lease is deleted.
    LeaseDeleted,
    /// The leader can't reach the lease, and everything else.
    LeaseHung,
    /// The leader reaches nothing, though nobody hangs up.
    Partition,
    /// The leader is killed.
    Killed,
    /// The leader receives SIGTERM.
    Terminated,
}

impl Fault {
    /// Those of a request, and of what comes on a watch.
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

    /// Those of a host as a whole.
    pub const BY_HOST: [Self; 6] = [Self::LeaseHung, Self::Killed, Self::LeaseTaken, Self::Terminated, Self::Partition, Self::LeaseDeleted];

    /// Whether such a request can meet it.
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
