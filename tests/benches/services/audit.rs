//! What a user has asked the API server for, as its audit log tells it. Reading that costs the API server nothing.

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
    /// With its subresource behind a slash.
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

    /// The election of the leader goes on whatever there is to do.
    pub(crate) fn elects(&self) -> bool {
        self.resource == "leases"
    }

    /// Whether it has made an object that wasn't there.
    pub(crate) fn makes(&self) -> bool {
        self.verb == "patch" && self.code == 201
    }
}

/// The requests of one user, as they come in.
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

    /// Those since it was asked last.
    pub(crate) fn take(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        loop {
            // A line may be there in part.
            self.log.read_line(&mut self.line).unwrap();
            if !self.line.ends_with('\n') {
                return requests;
            }
            // The others' are many, and reading them takes time from what is measured.
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
    // A watch has a line when it begins and one when it ends.
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
