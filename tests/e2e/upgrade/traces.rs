//! What an installation leaves behind, beside what the guide says of it.

use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_tests::{
    TestCluster, eventually,
    guide::{page, sections},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds with names. Of kinds without, every object is meant.
type Kinds = BTreeMap<String, BTreeSet<String>>;

pub(super) struct Traces<'a> {
    cluster: &'a TestCluster,
    before: BTreeSet<(String, String)>,
}

impl<'a> Traces<'a> {
    /// Before the installation.
    pub(super) fn begin(cluster: &'a TestCluster) -> Self {
        Self { cluster, before: objects(cluster) }
    }

    /// What has come since, and not by the services.
    pub(super) fn left(&self) -> Kinds {
        let mut left = Kinds::new();
        for (kind, name) in objects(self.cluster).difference(&self.before) {
            left.entry(kind.clone()).or_default().insert(name.clone());
        }
        left
    }

    /// Waits until that is what the page says. The garbage collector is later than who deletes.
    pub(super) async fn match_page(&self, after: &str) {
        let stays = stays(after);
        let last = crate::services::LastSeen::default();
        eventually(&format!("{stays:?} is left after {after}"), async || {
            let mut left = self.left();
            last.note(format!("{left:#?}"));
            for (kind, names) in &stays {
                let found = left.remove(kind)?;
                (names.is_empty() || found == *names).then_some(())?;
            }
            left.is_empty().then_some(())
        })
        .await;
    }
}

/// The rows of the table that something stays after.
fn stays(after: &str) -> Kinds {
    let page = page("operate.md");
    let (_, section) = sections(&page).into_iter().find(|(heading, _)| *heading == "Removing it").unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let column =
        rows[0].iter().position(|cell| *cell == format!("after {after}")).unwrap_or_else(|| panic!("no column for {after}: {rows:?}"));
    let mut stays = Kinds::new();
    for row in rows.iter().skip(2).filter(|row| row[column] == "stays") {
        let (kinds, name) = row[0].split_once(" `").unwrap_or((row[0], ""));
        for kind in kinds.split(", ") {
            let names = stays.entry(kind.to_owned()).or_default();
            names.extend((!name.is_empty()).then(|| name.trim_end_matches('`').to_owned()));
        }
    }
    assert!(!stays.is_empty(), "{rows:?}");
    stays
}

/// All objects outside of the namespaces of services, by kind and name, but for what every namespace has.
fn objects(cluster: &TestCluster) -> BTreeSet<(String, String)> {
    const EVERYWHERE: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
    // They come and go with others' work: an APIService with CRDs, an IPAddress with a Service.
    const PASSING: [&str; 4] = ["APIService", "Event", "IPAddress", "Node"];
    let kinds = cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"]);
    let kinds: Vec<&str> = kinds.stdout.lines().filter(|name| !name.starts_with("events") && !name.ends_with("metrics.k8s.io")).collect();
    let found = cluster.kubectl(&["get", &kinds.join(","), "--all-namespaces", "--ignore-not-found", "-o", "json"]);
    let list: Value = serde_json::from_str(&found.stdout).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let objects = items.iter().filter(|object| {
        let namespace = object["metadata"]["namespace"].as_str();
        namespace.is_none_or(|namespace| namespace == HOST_NAMESPACE)
    });
    objects
        .map(|object| (text(&object["kind"]), text(&object["metadata"]["name"])))
        .filter(|(kind, name)| !PASSING.contains(&kind.as_str()) && !EVERYWHERE.contains(&(kind, name)) && !name.starts_with("isvc-"))
        .collect()
}
