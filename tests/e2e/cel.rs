//! Evaluates the expressions of `tests/fixtures/cel` with the real API server: which of them it rejects, and the verdicts of the others.

use crate::objects::{Wish, ask};
use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Api, Client, Error, api::PostParams};
use pointsman_harness::workspace;
use pointsman_tests::{PolicyCluster, eventually};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{env, fmt, fs};

/// The number of expressions per policy. If the warnings of a response exceed 4096 characters together, the API server truncates each of
/// them to 256 characters, so this limits the warnings for one object.
const BATCH: usize = 8;

/// The number of concurrent requests.
const AT_ONCE: usize = 8;

/// The warning that a policy returns for every object once it is in force.
const IN_FORCE: &str = "in force";

/// The verdict about an expression.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Holds,
    Broken,
    /// The evaluation failed.
    Failed,
    /// The API server rejected the policy.
    Refused,
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Holds => "holds",
            Self::Broken => "broken",
            Self::Failed => "failed",
            Self::Refused => "refused",
        })
    }
}

/// A file, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    objects: Map<String, Value>,
    cases: Vec<WrittenCorpusCase>,
}

/// A case, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCorpusCase {
    expression: String,
    object: Option<String>,
    verdict: Verdict,
    ours: Option<Verdict>,
    because: Option<String>,
}

/// A case with its object.
struct Case {
    file: String,
    expression: String,
    object: Value,
    verdict: Verdict,
}

/// All cases in the order of the files. Cases with the same object are adjacent.
fn cases() -> Vec<Case> {
    let folder = workspace().join("tests/fixtures/cel");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut cases = Vec::new();
    for path in files {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let family: Family = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap_or_else(|error| panic!("{file}: {error}"));
        let first = family.objects.keys().next().unwrap();
        for written in &family.cases {
            let WrittenCorpusCase { expression, verdict, ours, because, .. } = written;
            let name = written.object.as_ref().unwrap_or(first);
            assert!(family.objects.contains_key(name), "{file}: {expression}: there is no object {name}");
            assert!(*ours != Some(*verdict) && ours.is_some() == because.is_some(), "{file}: {expression}: a difference has its reason");
            // The API server never sends a warning with a control character.
            assert!(!expression.chars().any(char::is_control), "{file}: {expression}: it has a control character");
        }
        for (name, object) in &family.objects {
            let of_object = family.cases.iter().filter(|written| written.object.as_ref().unwrap_or(first) == name);
            cases.extend(of_object.map(|written| Case {
                file: file.clone(),
                expression: written.expression.clone(),
                object: object.clone(),
                verdict: written.verdict,
            }));
        }
    }
    cases
}

/// Cases that have the same object and share a policy, with their indexes.
struct Batch<'a> {
    /// The name of the policy, of its binding, and of the field manager whose requests the policy checks.
    name: String,
    cases: Vec<(usize, &'a Case)>,
}

/// The accepted cases, in batches of one policy each.
fn batches<'a>(cases: &'a [Case], refused: &[bool]) -> Vec<Batch<'a>> {
    let accepted: Vec<(usize, &Case)> = cases.iter().enumerate().filter(|(index, _)| !refused[*index]).collect();
    let alike = accepted.chunk_by(|(_, one), (_, other)| one.file == other.file && one.object == other.object);
    let few = alike.flat_map(|cases| cases.chunks(BATCH));
    few.enumerate().map(|(number, cases)| Batch { name: format!("cel-{number}"), cases: cases.to_vec() }).collect()
}

/// The message of a case whose expression is false.
fn broken(index: usize) -> String {
    format!("case {index}")
}

fn validation(index: usize, case: &Case) -> Value {
    json!({ "expression": case.expression, "message": broken(index) })
}

/// A policy that applies only to objects that the field manager of the same name creates.
fn policy(name: &str, validations: &[Value]) -> ValidatingAdmissionPolicy {
    let policy = json!({
        "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["ome.io", "serving.kserve.io"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"],
            }] },
            "matchConditions": [{
                "name": "batch",
                "expression": format!("has(request.options.fieldManager) && request.options.fieldManager == '{name}'"),
            }],
            "validations": validations,
        },
    });
    serde_json::from_value(policy).unwrap()
}

/// Whether the API server rejects a policy with this case.
async fn is_refused(client: &Client, index: usize, case: &Case) -> bool {
    let only_asked = PostParams { dry_run: true, ..PostParams::default() };
    match Api::all(client.clone()).create(&only_asked, &policy("cel-asked", &[validation(index, case)])).await {
        Ok(_) => false,
        Err(Error::Api(status)) if status.code == 422 && status.message.contains("spec.validations[0].expression") => true,
        Err(error) => panic!("{}: {}: {error}", case.file, case.expression),
    }
}

/// Creates the policy of a batch, and binds it so that it only warns.
async fn put_in_force(client: &Client, batch: &Batch<'_>) {
    let mut validations: Vec<Value> = batch.cases.iter().map(|(index, case)| validation(*index, case)).collect();
    validations.push(json!({ "expression": "false", "message": IN_FORCE }));
    Api::all(client.clone()).create(&PostParams::default(), &policy(&batch.name, &validations)).await.unwrap();
    let binding = json!({ "metadata": { "name": batch.name }, "spec": { "policyName": batch.name, "validationActions": ["Warn"] } });
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(binding).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
}

/// The warnings of the API server for a dry run that creates an object.
async fn warnings(client: &Client, namespace: &str, object: &Value, manager: &str) -> Vec<String> {
    let only_asked = PostParams { dry_run: true, field_manager: Some(manager.to_owned()) };
    let answer = ask(client, namespace, object, &Wish::Make(only_asked)).await;
    assert!(answer.success, "{manager}: {}", answer.body);
    answer.warnings
}

/// The verdicts of the API server about the cases of a batch, once its policy is in force.
async fn judged(client: &Client, namespace: &str, batch: &Batch<'_>) -> Vec<(usize, Verdict)> {
    let name = &batch.name;
    let object = &batch.cases[0].1.object;
    let prefix = format!("Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': ");
    let said = eventually(&format!("{name} is in force"), async || {
        let said = warnings(client, namespace, object, name).await;
        said.iter().any(|said| said.strip_prefix(&prefix) == Some(IN_FORCE)).then_some(said)
    })
    .await;
    let mut verdicts: Vec<_> = batch.cases.iter().map(|(index, _)| (*index, Verdict::Holds)).collect();
    for said in &said {
        let words = said.strip_prefix(&prefix).unwrap_or_else(|| panic!("{name} is warned of something else: {said}"));
        let mut told = words == IN_FORCE;
        for ((index, case), (_, verdict)) in batch.cases.iter().zip(&mut verdicts) {
            let error = format!("expression '{}' resulted in error: ", case.expression);
            // The API server may have truncated the text before the error.
            let failed = words.starts_with(&error) || (words.starts_with("expression '") && error.starts_with(words));
            if failed || words == broken(*index) {
                *verdict = if failed { Verdict::Failed } else { Verdict::Broken };
                told = true;
            }
        }
        assert!(told, "{name} says what belongs to no case: {said}");
    }
    verdicts
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn kubernetes_gives_the_verdicts_of_the_corpus() {
    let cases = cases();
    let cluster = PolicyCluster::start().await;
    let namespace = cluster.namespace("cel").await;
    let client = &namespace.client;

    let asked = stream::iter(cases.iter().enumerate()).map(|(index, case)| is_refused(client, index, case));
    let refused: Vec<bool> = asked.buffered(AT_ONCE).collect().await;
    let batches = batches(&cases, &refused);
    let made = stream::iter(&batches).map(|batch| put_in_force(client, batch));
    made.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    let mut verdicts = vec![Verdict::Refused; cases.len()];
    let mut all = stream::iter(&batches).map(|batch| judged(client, &namespace.name, batch)).buffer_unordered(AT_ONCE);
    while let Some(judged) = all.next().await {
        for (index, verdict) in judged {
            verdicts[index] = verdict;
        }
    }

    let differing: Vec<_> = cases.iter().zip(&verdicts).filter(|(case, verdict)| case.verdict != **verdict).collect();
    if env::var_os("POINTSMAN_UPDATE").is_some() {
        for (case, verdict) in &differing {
            println!("{}\n- expression: {}\n  verdict: {verdict}", case.file, case.expression);
        }
    }
    let told = |(case, verdict): &(&Case, &Verdict)| format!("{}: {}: {verdict}, not {}", case.file, case.expression, case.verdict);
    let told: Vec<String> = differing.iter().map(told).collect();
    println!("{} expressions in {} policies", cases.len(), batches.len());
    assert!(told.is_empty(), "{} of {} verdicts aren't what the files say:\n{}", told.len(), cases.len(), told.join("\n"));
}
