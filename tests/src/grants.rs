//! The use of the rights of `deploy/roles` by hosts: each control plane records it from its audit log, and the last test of a whole run
//! compares all records with the granted rights.

use crate::TestCluster;
use pointsman::permissions::ACCOUNT;
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::{Cluster, SHARED_CLUSTER};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// A right that the API server authorizes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Right {
    /// The API group; empty for the core.
    pub group: String,
    /// The plural, with a subresource after a slash.
    pub resource: String,
    /// The verb, as in roles.
    pub verb: String,
    /// Whether the object is in the host's own namespace.
    pub at_home: bool,
}

/// The requests of hosts under the shipped roles.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// How often each right was used.
    pub used: Vec<(Right, u64)>,
    /// The messages of denied requests.
    pub refused: BTreeSet<String>,
}

/// The hosts' user name for the API server.
pub fn host_user() -> String {
    format!("system:serviceaccount:{HOST_NAMESPACE}:{ACCOUNT}")
}

/// Writes the record of a control plane that ends. Without the shared cluster, no test reads it.
pub(crate) fn record(audit_lines: &str) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let Some(folder) = folder() else { return };
    let file = folder.join(format!("{}-{}.json", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    // The test may have failed already with its own message, which an unwritable record must not hide.
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, serde_json::to_string(&read(audit_lines))?));
    if let Err(error) = written {
        eprintln!("{}: {error}", file.display());
    }
}

/// All records of a run, and one of the shared control plane's audit log.
pub fn records() -> Vec<Record> {
    let folder = folder().expect("`cargo xtask test` runs this test, after all others");
    let mut records = vec![read(&TestCluster::shared().audit_lines())];
    for file in fs::read_dir(folder).expect("the others have left their records") {
        let text = fs::read_to_string(file.expect("reading the folder").path()).expect("reading a record");
        records.push(serde_json::from_str(&text).expect("it is a record"));
    }
    records
}

/// In the folder of the shared cluster, so that it is deleted with the run.
fn folder() -> Option<PathBuf> {
    let ready = std::env::var(SHARED_CLUSTER).ok()?;
    Some(Cluster::attach(ready).ok()?.dir.join("grants"))
}

fn read(audit_lines: &str) -> Record {
    let user = host_user();
    let mut used: BTreeMap<Right, u64> = BTreeMap::new();
    let (mut allowed, mut refused) = (BTreeSet::new(), BTreeMap::new());
    // Most lines are of other users. Filter them by text before parsing.
    let lines = audit_lines.lines().filter(|line| line.contains(&user));
    for event in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(|event| event["user"]["username"] == *user) {
        let request = request(&event);
        if let Some(message) = refusal(&event) {
            refused.insert(request, message);
            continue;
        }
        allowed.insert(request);
        for right in rights(&event) {
            *used.entry(right).or_default() += 1;
        }
    }
    // Right after its start, an API server doesn't know the roles yet, and denies requests that the same roles allow later.
    refused.retain(|request, _| !allowed.contains(request));
    Record { used: used.into_iter().collect(), refused: refused.into_values().collect() }
}

/// The verb and the path of a request.
fn request(event: &Value) -> String {
    let uri = event["requestURI"].as_str().unwrap_or_default();
    let path = uri.split_once('?').map_or(uri, |(path, _)| path);
    format!("{} {path}", event["verb"].as_str().unwrap_or_default())
}

/// The message of an event that was denied because of a missing right. Other denials have the same code: a terminating namespace, a quota.
fn refusal(event: &Value) -> Option<String> {
    let message = event["responseStatus"]["message"].as_str().unwrap_or_default();
    let is_refused = event["annotations"]["authorization.k8s.io/decision"] == "forbid"
        || event["responseStatus"]["code"] == 403
            && ["attempting to grant", "cannot create resource"].iter().any(|why| message.contains(why));
    is_refused.then(|| format!("{}: {message}", request(event)))
}

/// The rights that an allowed request used. An apply that creates an object uses two.
fn rights(event: &Value) -> Vec<Right> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    if object.is_null() {
        return Vec::new();
    }
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
        None => text(&object["resource"]),
    };
    let at_home = object["namespace"] == HOST_NAMESPACE;
    let right = |verb: &str| Right { group: text(&object["apiGroup"]), resource: resource.clone(), verb: verb.to_owned(), at_home };
    let verb = text(&event["verb"]);
    if verb == "patch" && event["responseStatus"]["code"] == 201 { vec![right("patch"), right("create")] } else { vec![right(&verb)] }
}
