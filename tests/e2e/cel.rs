//! The expressions of `tests/fixtures/cel`, judged by the real API server: which it refuses, and what the others say of their objects.

use crate::objects::{Wish, ask};
use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Api, Client, Error, api::PostParams};
use pointsman_harness::workspace;
use pointsman_tests::{PolicyCluster, eventually};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{env, fmt, fs};

/// How many expressions share a policy. The API server cuts what it warns of at 256 characters each as soon as it is more than 4096
/// together, so this bounds what one object can make it say.
const BATCH: usize = 8;

/// How many requests are under way at once.
const AT_ONCE: usize = 8;

/// What a policy says of every object, as soon as it is in force.
const IN_FORCE: &str = "in force";

/// What became of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Holds,
    Broken,
    /// It couldn't be evaluated.
    Failed,
    /// Its policy couldn't be made.
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

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    objects: Map<String, Value>,
    cases: Vec<WrittenCorpusCase>,
}

/// A case as it is written.
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

/// All cases, file by file, those of one object together.
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
            // A warning with a control character is never sent.
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

/// Cases of one object that share a policy, by their positions.
struct Batch<'a> {
    /// The policy's name, its binding's, and the field manager whose requests it judges.
    name: String,
    cases: Vec<(usize, &'a Case)>,
}

/// The cases that aren't refused, a policy each few of them.
fn batches<'a>(cases: &'a [Case], refused: &[bool]) -> Vec<Batch<'a>> {
    let accepted: Vec<(usize, &Case)> = cases.iter().enumerate().filter(|(index, _)| !refused[*index]).collect();
    let alike = accepted.chunk_by(|(_, one), (_, other)| one.file == other.file && one.object == other.object);
    let few = alike.flat_map(|cases| cases.chunks(BATCH));
    few.enumerate().map(|(number, cases)| Batch { name: format!("cel-{number}"), cases: cases.to_vec() }).collect()
}

/// What a case says when it is broken.
fn broken(index: usize) -> String {
    format!("case {index}")
}

fn validation(index: usize, case: &Case) -> Value {
    json!({ "expression": case.expression, "message": broken(index) })
}

/// A policy for what the field manager of its name creates. Whatever else happens isn't its business, whoever does it.
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

/// Whether the API server refuses to make a policy of a case.
async fn is_refused(client: &Client, index: usize, case: &Case) -> bool {
    let only_asked = PostParams { dry_run: true, ..PostParams::default() };
    match Api::all(client.clone()).create(&only_asked, &policy("cel-asked", &[validation(index, case)])).await {
        Ok(_) => false,
        Err(Error::Api(status)) if status.code == 422 && status.message.contains("spec.validations[0].expression") => true,
        Err(error) => panic!("{}: {}: {error}", case.file, case.expression),
    }
}

/// Makes a batch's policy, and binds it so that it only warns.
async fn put_in_force(client: &Client, batch: &Batch<'_>) {
    let mut validations: Vec<Value> = batch.cases.iter().map(|(index, case)| validation(*index, case)).collect();
    validations.push(json!({ "expression": "false", "message": IN_FORCE }));
    Api::all(client.clone()).create(&PostParams::default(), &policy(&batch.name, &validations)).await.unwrap();
    let binding = json!({ "metadata": { "name": batch.name }, "spec": { "policyName": batch.name, "validationActions": ["Warn"] } });
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(binding).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
}

/// What the API server warns of when an object is created, which it isn't in the end.
async fn warnings(client: &Client, namespace: &str, object: &Value, manager: &str) -> Vec<String> {
    let only_asked = PostParams { dry_run: true, field_manager: Some(manager.to_owned()) };
    let answer = ask(client, namespace, object, &Wish::Make(only_asked)).await;
    assert!(answer.success, "{manager}: {}", answer.body);
    answer.warnings
}

/// What the API server thinks of each case of a batch, as soon as its policy is in force.
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
            // The text may have been cut before the error.
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
