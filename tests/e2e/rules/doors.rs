//! The corpus of `tests/fixtures/doors` on a real API server, which calls the webhook: for each object, the webhook and the condition
//! report the expected results. `pointsman check` rejects the objects that the schema rejects, with the same messages.

use super::{active, wait_for_rule_status};
use crate::{
    admission::{ready, trusted, validating},
    objects::{Answer, Wish, ask},
    services::{Space, condition},
};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api, Client,
    api::{DeleteParams, PatchParams, PostParams},
};
use pointsman_core::{resource::Resource, subject_kind::SUBJECT_KINDS};
use pointsman_samples::doors::{self, Row, Said, Word};
use pointsman_tests::{
    PolicyCluster, TestCluster, TestNamespace, eventually,
    fixtures::{self, base, put},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The prefix of the audit log's annotations of the corpus' rules.
const NOTED: &str = "validate.pointsman.dev/doors-";

fn make(dry_run: bool) -> Wish {
    Wish::Make(PostParams { dry_run, ..PostParams::default() })
}

fn change(dry_run: bool) -> Wish {
    Wish::Change(PatchParams { dry_run, ..PatchParams::default() })
}

fn resource(row: &Row) -> &'static Resource {
    Resource::find(row.api_version(), row.kind()).unwrap()
}

/// The rules' messages to the client that writes an object; `None` if the webhook didn't respond.
fn heard(answer: &Answer) -> Option<Said> {
    let message = answer.body["message"].as_str().unwrap_or_default();
    if answer.success {
        return Some(Said::of_admission(None, &answer.warnings));
    }
    if message.contains("failed calling webhook") {
        return None;
    }
    let denial = message.strip_prefix("admission webhook \"validate.pointsman.dev\" denied the request: ");
    Some(Said::of_admission(Some(denial.unwrap_or(message)), &answer.warnings))
}

/// The expected messages in the corpus. Rules that only audit send no message to the client.
fn expected(row: &Row) -> Said {
    Said { noted: Vec::new(), ..row.at_admission() }
}

/// Sends rows to the webhook in a dry run.
async fn put_to_the_webhook(client: &Client, rows: &[Row], wish: &Wish) {
    for row in rows {
        // On a busy machine, the webhook may not respond in time.
        let said = eventually(&format!("the webhook answers about {}", row.called()), async || {
            heard(&ask(client, row.namespace(), &row.object, wish).await)
        })
        .await;
        assert_eq!(said, expected(row), "the webhook, of {}", row.called());
    }
}

/// Writes rows without a dry run.
async fn write<'r>(client: &Client, rows: impl IntoIterator<Item = &'r Row>, wish: &Wish) {
    for row in rows {
        let answer = ask(client, row.namespace(), &row.object, wish).await;
        assert!(answer.success, "{}: {}", row.called(), answer.body);
    }
}

/// The message of a service's condition for its newest generation; `None` if there is none yet.
fn by_condition(service: &Value) -> Option<Said> {
    let told = condition(service, "Valid");
    let text = |field: &str| told[field].as_str().unwrap_or_default();
    let status = [("True", true), ("False", false)].into_iter().find_map(|(word, status)| (text("status") == word).then_some(status));
    let newest = told["observedGeneration"] == service["metadata"]["generation"];
    Said::of_condition(status, text("reason"), text("message")).filter(|_| newest)
}

/// Waits until the condition of each service has the corpus' message.
async fn wait_for_conditions<'r>(cluster: &PolicyCluster, client: &Client, rows: impl IntoIterator<Item = &'r Row>) {
    for row in rows {
        let space = Space(TestNamespace { cluster, client: client.clone(), name: row.namespace().to_owned() });
        let wanted = row.by_condition();
        let says = |service: &Value| by_condition(service).as_ref() == Some(&wanted);
        space.becomes(resource(row), row.name(), &format!("Valid says {wanted:?}"), says).await;
    }
}

/// The audit log's annotations of the corpus' rules, by the resource and the name of the written object.
fn noted(cluster: &TestCluster) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut noted: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for request in cluster.requests() {
        let annotations = request["annotations"].as_object().into_iter().flatten();
        let ours: Vec<_> = annotations.filter(|(key, _)| key.starts_with(NOTED)).collect();
        if !ours.is_empty() {
            let [resource, name] = ["resource", "name"].map(|field| request["objectRef"][field].as_str().unwrap_or_default().to_owned());
            noted.entry((resource, name)).or_default().extend(ours.into_iter().filter_map(|(_, value)| value.as_str().map(str::to_owned)));
        }
    }
    noted
}

/// Applies the objects and the rules of the corpus, and waits until the rules are active.
async fn bring_rules(cluster: &PolicyCluster) {
    for file in ["context.yaml", "rules.yaml"] {
        cluster.kubectl(&["apply", "-f", &doors::folder().join(file).to_string_lossy()]).ok();
    }
    for rule in doors::rules().iter().filter(|rule| rule["spec"]["enabled"] != false) {
        wait_for_rule_status(cluster, rule["metadata"]["name"].as_str().unwrap(), "it counts", active).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_webhook_and_the_conditions_say_of_each_object_what_the_corpus_says() {
    let cluster = PolicyCluster::start().await;
    let (host, address) = ready(&cluster).await;
    let client = cluster.client().await;
    bring_rules(&cluster).await;
    // With Fail, no object is admitted without the webhook.
    validating(&cluster, &address, "Fail").await;
    trusted(&cluster).await;

    let rows = doors::rows("objects");
    // It violates a rule about its namespace's labels: once the webhook reports that, the host knows all objects.
    let probe = rows.iter().find(|row| row.name() == "shared-by-nobody").unwrap();
    let tried = async || ask(&client, probe.namespace(), &probe.object, &make(true)).await;
    eventually("the webhook knows the namespaces", async || (heard(&tried().await)? == expected(probe)).then_some(())).await;
    put_to_the_webhook(&client, &rows, &make(true)).await;
    // kubectl requests strict validation, and the test's client doesn't.
    let unknown: Vec<&Row> = rows.iter().filter(|row| !row.said(&[Word::Unknown]).is_empty()).collect();
    assert!(!unknown.is_empty());
    for row in unknown {
        let file = cluster.dir.join("unknown.json");
        fs::write(&file, row.object.to_string()).unwrap();
        let refused = cluster.kubectl(&["create", "--dry-run=server", "--validate=strict", "-f", &file.to_string_lossy()]);
        assert!(refused.stderr.contains("strict decoding error: unknown field"), "{}: {}", row.called(), refused.stderr);
    }
    let wanted = rows.iter().filter(|row| !row.at_admission().noted.is_empty());
    let wanted: BTreeMap<_, BTreeSet<String>> = wanted
        .map(|row| ((resource(row).plural.to_owned(), row.name().to_owned()), row.at_admission().noted.into_iter().collect()))
        .collect();
    assert_eq!(noted(&cluster), wanted);

    // Create the objects that are to be changed, which the webhook admits.
    let changes = doors::rows("updates");
    let (before, others): (Vec<Row>, Vec<Row>) = rows.iter().cloned().partition(|row| changes.iter().any(|change| change.is_of(row)));
    assert_eq!(before.len(), changes.len());
    write(&client, &before, &make(false)).await;
    put_to_the_webhook(&client, &changes, &change(true)).await;

    Api::<ValidatingWebhookConfiguration>::all(client.clone()).delete("pointsman", &DeleteParams::default()).await.unwrap();
    eventually("nobody is asked any more", async || tried().await.success.then_some(())).await;
    write(&client, others.iter().filter(|row| row.is_service()), &make(false)).await;
    let (alone, judged): (Vec<&Row>, Vec<&Row>) = rows.iter().filter(|row| row.is_service()).partition(|row| row.is_left_alone());
    wait_for_conditions(&cluster, &client, judged).await;
    // Conditions don't report rules that only apply at admission.
    write(&client, &changes, &change(false)).await;
    wait_for_conditions(&cluster, &client, &changes).await;
    for row in alone {
        let service = Space(TestNamespace { cluster: &cluster, client: client.clone(), name: row.namespace().to_owned() });
        let service = service.get(resource(row), row.name()).await;
        assert!(condition(&service, "Valid").is_null(), "{service:#}");
    }
    host.stop();
}

/// The errors of `pointsman check` about the objects of files, by kind and name.
fn checked(cluster: &TestCluster, files: &Path) -> BTreeMap<(String, String), BTreeSet<String>> {
    let said = cluster.pointsman(&["check", "-o", "json", "-f", &files.to_string_lossy()]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for finding in report["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] == "error") {
        let [kind, name, field, message] = ["kind", "name", "field", "message"].map(|part| finding[part].as_str().unwrap().to_owned());
        found.entry((kind, name)).or_default().insert(format!("{field}: {message}"));
    }
    found
}

/// The API server's errors about an object; empty if it accepts the object.
async fn refused(client: &Client, namespace: &str, object: &Value) -> BTreeSet<String> {
    let mut object = object.clone();
    object["metadata"]["namespace"] = namespace.into();
    let answer = ask(client, namespace, &object, &make(true)).await;
    if answer.success {
        return BTreeSet::new();
    }
    let causes = answer.body["details"]["causes"].as_array();
    let causes = causes.unwrap_or_else(|| panic!("{}: it is refused for something else: {}", object["metadata"]["name"], answer.body));
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    // A cause without a field only says that the API server has stopped its checks.
    let causes = causes.iter().filter(|cause| cause["field"] != "<nil>");
    causes.map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
}

/// Fails with the objects for which the entry points differ.
fn agree(differing: &[String]) {
    assert!(differing.is_empty(), "of {} objects the doors say different things:\n{}", differing.len(), differing.join("\n"));
}

#[tokio::test]
async fn what_the_schema_refuses_check_refuses_at_the_same_field_in_the_same_words() {
    let cluster = TestCluster::shared();
    let space = cluster.namespace("refused").await;
    let found = checked(cluster, &doors::folder().join("refused"));
    let mut differing = Vec::new();
    for row in doors::rows("refused") {
        let wanted: BTreeSet<String> = row.said(&[Word::Refused]).into_iter().collect();
        let by_check = found.get(&(row.kind().to_owned(), row.name().to_owned())).cloned().unwrap_or_default();
        let by_server = refused(&space.client, &space.name, &row.object).await;
        if by_check != wanted || by_server != wanted {
            differing.push(format!("{}: check says {by_check:#?}, and the API server {by_server:#?}", row.called()));
        }
    }
    agree(&differing);
}

/// The cases of rules and patterns that `validation` compares with the API server.
#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn every_case_of_a_rule_or_pattern_of_services_is_accepted_and_refused_by_check_as_by_the_api_server() {
    let cluster = TestCluster::shared();
    let space = cluster.namespace("cases").await;
    let mut objects = Vec::new();
    for case in fixtures::cases().into_iter().filter(|case| case.before.is_none()) {
        let places = case.at.iter().map(|place| place.split_once(' ').unwrap_or((place, "")));
        for (kind, path) in places.filter(|(kind, _)| SUBJECT_KINDS.iter().any(|subject| subject.resource.kind == *kind)) {
            for fragment in [&case.accepted, &case.rejected] {
                let mut object = base(kind);
                put(&mut object, path, fragment);
                object["metadata"]["name"] = format!("case-{}", objects.len()).into();
                objects.push(object);
            }
        }
    }
    assert!(objects.len() > 100, "{}", objects.len());
    let file = cluster.dir.join("cases.yaml");
    std::fs::write(&file, objects.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")).unwrap();

    let found = checked(cluster, &file);
    let mut differing = Vec::new();
    for object in &objects {
        let [kind, name] = ["/kind", "/metadata/name"].map(|pointer| object.pointer(pointer).and_then(Value::as_str).unwrap().to_owned());
        let by_check = found.get(&(kind, name)).cloned().unwrap_or_default();
        let by_server = refused(&space.client, &space.name, object).await;
        if by_check != by_server {
            differing.push(format!("{object}: check says {by_check:#?}, and the API server {by_server:#?}"));
        }
    }
    agree(&differing);
}
