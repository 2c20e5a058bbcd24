//! The table of docs/metrics.md matches the code, and the alerts and the dashboard use only these metrics.

use crate::planning::decide;
use pointsman::{
    api_errors::ApiErrors,
    leader::{Timing, agreement::Agreement, campaign},
    liveness::Liveness,
    metrics::{Format, HostState, Reconciles},
    missing_rights::Right,
    pace::Pacer,
    serve::{
        admission::{
            counts::AdmissionCounts,
            tls::{CertificateExpiry, CurrentCertificate},
        },
        health::{Readiness, registry},
    },
    watch::{Shared, apis::Apis},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs, future,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::watch;

/// xtask sets it (`xtask/src/build.rs`).
const UPDATE: &str = "POINTSMAN_UPDATE_METRICS_PAGE";

/// Labels that Prometheus adds to every series, or that histogram buckets have.
const ALWAYS: [&str; 4] = ["job", "pod", "le", "namespace"];

/// A metric of the API server and one of Prometheus. `tests/e2e/monitoring.rs` reads the first one from an API server.
const OTHERS: [(&str, &[&str]); 2] = [("apiserver_admission_webhook_fail_open_count", &["name"]), ("up", &[])];

/// A metric, by its page.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The page of a host with a value for each metric. A Kubernetes client needs a runtime.
fn page() -> String {
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let (leadership, _campaign) = campaign(client, "none", "none", "none", Timing::default(), Agreement::default(), future::pending());
    let policies = Arc::clone(decide());
    policies.count_transition("nominated");
    let (reconciles, counts) = (Reconciles::default(), AdmissionCounts::default());
    let api_errors = ApiErrors::new("none", BTreeSet::new());
    let right = Right { verb: "list".to_owned(), group: String::new(), resource: "pods".to_owned(), namespace: None };
    api_errors.count(&right, "403".to_owned());
    reconciles.done("InferenceService", true, 0.1);
    counts.answered("/validate", "CREATE", true, 0.01);
    let readiness = Readiness {
        apis: watch::channel(Apis::default()).1,
        obstacle: watch::channel(None).1,
        listed: watch::channel(None).1,
        shared: Shared::default(),
        liveness: Liveness::default(),
        differs: watch::channel(None).1,
        served: Vec::new(),
    };
    let state = HostState { policies, pacer: Arc::new(Pacer::new(None)), leadership };
    let expiry = CertificateExpiry(Arc::<CurrentCertificate>::default());
    Format::Prometheus.page(&registry(state, readiness, &reconciles, &api_errors, Some((&counts, expiry)))).unwrap()
}

/// The metrics by name.
fn metrics(page: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help.trim_end_matches('.').clone_into(&mut metrics.entry(name.to_owned()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut metrics.entry(name.to_owned()).or_default().kind);
        } else if let Some((series, labels)) = line.split_once('{') {
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end)).unwrap_or(series);
            let metric = metrics.get_mut(name).unwrap_or_else(|| panic!("{series} isn't described"));
            let names = labels.split("=\"").filter_map(|part| part.rsplit([',', '{', '"']).next());
            let names = names.filter(|name| !name.is_empty() && *name != "le" && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            metric.labels.extend(names.map(str::to_owned));
        }
    }
    assert!(metrics.values().all(|metric| !metric.help.is_empty() && !metric.kind.is_empty()), "{metrics:#?}");
    metrics
}

fn table(metrics: &BTreeMap<String, Metric>) -> String {
    let mut table = "| metric | type | labels | |\n|---|---|---|---|\n".to_owned();
    for (name, Metric { kind, help, labels }) in metrics {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
    }
    table
}

/// All expressions below a value.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("expr").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|value| expressions(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// The metrics and labels in an expression that don't exist.
fn unknown(expression: &str, metrics: &BTreeMap<String, Metric>) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (at, _) in expression.match_indices('{') {
        let before = &expression[..at];
        let name = &before[before.rfind(|c| !is_name(c)).map_or(0, |end| end + 1)..];
        let own = name.strip_suffix("_bucket").unwrap_or(name);
        let labels: Vec<&str> = match (metrics.get(own), OTHERS.iter().find(|(other, _)| *other == name)) {
            (Some(metric), _) => metric.labels.iter().map(String::as_str).collect(),
            (None, Some((_, labels))) => labels.to_vec(),
            (None, None) => {
                wrong.push(name.to_owned());
                continue;
            }
        };
        let matchers = expression[at + 1..].split('}').next().unwrap_or_default();
        let grouped = expression.match_indices("by (").filter_map(|(by, head)| expression[by + head.len()..].split(')').next());
        let asked =
            matchers.split("\",").filter_map(|matcher| matcher.split(['=', '!']).next()).chain(grouped.flat_map(|by| by.split(',')));
        let asked = asked.map(str::trim).filter(|label| !label.is_empty());
        wrong.extend(asked.filter(|label| !labels.contains(label) && !ALWAYS.contains(label)).map(|label| format!("{name}{{{label}}}")));
    }
    wrong
}

#[tokio::test]
async fn the_page_has_the_table_of_the_code() {
    let path = root().join("docs/metrics.md");
    let guide = fs::read_to_string(&path).unwrap();
    let begin = "<!-- metrics: written by `cargo xtask generate` -->\n";
    let (before, rest) = guide.split_once(begin).unwrap();
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap();
    let expected = format!("{before}{begin}\n{}\n<!-- end -->\n{after}", table(&metrics(&page())));
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, expected).unwrap();
        return;
    }
    assert!(guide == expected, "docs/metrics.md isn't that of the code: run `cargo xtask generate`");
}

#[tokio::test]
async fn alerts_and_the_dashboard_ask_for_metrics_and_labels_that_there_are() {
    let metrics = metrics(&page());
    let components = root().join("deploy/components");
    let rule = fs::read_to_string(components.join("alerts/prometheus-rule.yaml")).unwrap();
    let dashboard = fs::read_to_string(components.join("dashboard/pointsman.json")).unwrap();
    let (mut alerts, mut panels) = (Vec::new(), Vec::new());
    expressions(&serde_saphyr::from_str(&rule).unwrap(), &mut alerts);
    expressions(&serde_json::from_str(&dashboard).unwrap(), &mut panels);
    assert!(alerts.len() >= 15 && panels.len() >= 20, "{} and {}", alerts.len(), panels.len());
    for expression in alerts.iter().chain(&panels) {
        assert_eq!(unknown(expression, &metrics), [""; 0], "{expression}");
    }
    let shown = panels.join("\n");
    let unshown: Vec<&String> = metrics.keys().filter(|name| !shown.contains(*name)).collect();
    assert!(unshown.is_empty(), "the dashboard doesn't show {unshown:?}");
    assert_eq!(
        unknown("sum by (plugin) (workqueue_depth{nam=\"x\"}) > nothing{}", &metrics),
        ["workqueue_depth{nam}", "workqueue_depth{plugin}", "nothing"]
    );
}
