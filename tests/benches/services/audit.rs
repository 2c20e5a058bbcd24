//! A user's requests to the API server, from its audit log. Reading the log costs the API server nothing.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

/// One request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) verb: String,
    /// With its subresource after a slash.
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) code: i64,
    pub(crate) received: Timestamp,
    pub(crate) answered: Timestamp,
}

impl Request {
    pub(crate) fn writes(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str())
    }

    /// Whether it belongs to the leader election, which continues regardless of other work.
    pub(crate) fn elects(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether it created an object.
    pub(crate) fn makes(&self) -> bool {
        self.verb == "patch" && self.code == 201
    }
}

/// The requests of one user, in order.
#[derive(Debug)]
pub(crate) struct Audit {
    log: BufReader<File>,
    mark: String,
    line: String,
}

impl Audit {
    pub(crate) fn open(log: &Path, user: &str) -> Self {
        Self { log: BufReader::new(File::open(log).unwrap()), mark: format!("\"username\":\"{user}\""), line: String::new() }
    }

    /// The requests since the last call.
    pub(crate) fn take(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        loop {
            // The last line may be incomplete.
            self.log.read_line(&mut self.line).unwrap();
            if !self.line.ends_with('\n') {
                return requests;
            }
            // Other users have many requests, and parsing them would take CPU from the measured processes.
            if self.line.contains(&self.mark) {
                requests.extend(request(&serde_json::from_str(&self.line).unwrap()));
            }
            self.line.clear();
        }
    }
}

fn request(event: &Value) -> Option<Request> {
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let verb = text("/verb");
    // A watch has a line at its start and one at its end.
    if (text("/stage") == "ResponseStarted") != (verb == "watch") {
        return None;
    }
    let subresource = text("/objectRef/subresource");
    let resource = text("/objectRef/resource");
    Some(Request {
        verb: verb.to_owned(),
        resource: if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") },
        name: text("/objectRef/name").to_owned(),
        code: event.pointer("/responseStatus/code").and_then(Value::as_i64).unwrap_or_default(),
        received: text("/requestReceivedTimestamp").parse().unwrap(),
        answered: text("/stageTimestamp").parse().unwrap(),
    })
}
