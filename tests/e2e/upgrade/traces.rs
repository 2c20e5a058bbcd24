//! The objects that an installation leaves behind, compared with the guide.

use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_tests::{
    TestCluster, eventually,
    guide::{page, sections},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Names by kind; no names mean all objects of the kind.
type Kinds = BTreeMap<String, BTreeSet<String>>;

pub(super) struct Traces<'a> {
    cluster: &'a TestCluster,
    before: BTreeSet<(String, String)>,
}

impl<'a> Traces<'a> {
    /// Records the objects before the installation.
    pub(super) fn begin(cluster: &'a TestCluster) -> Self {
        Self { cluster, before: objects(cluster) }
    }

    /// The objects since then, without those of services.
    pub(super) fn left(&self) -> Kinds {
        let mut left = Kinds::new();
        for (kind, name) in objects(self.cluster).difference(&self.before) {
            left.entry(kind.clone()).or_default().insert(name.clone());
        }
        left
    }

    /// Waits until they match the page. The garbage collector works after the deletion.
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

/// The kinds and names that stay, by the table's column for a removal.
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

/// All objects outside of the services' namespaces, by kind and name, without those that every namespace has.
fn objects(cluster: &TestCluster) -> BTreeSet<(String, String)> {
    const EVERYWHERE: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
    // These depend on other objects: an APIService on a CRD, an IPAddress on a Service.
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
