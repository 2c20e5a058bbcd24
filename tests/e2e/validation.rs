//! Every CEL rule and pattern of our CRDs: an accepted and a rejected object each, and the message.

use crate::objects::api_of;
use kube::{
    Client,
    api::{DeleteParams, PostParams},
};
use pointsman_crds::KINDS;
use pointsman_tests::{
    TestCluster, eventually,
    fixtures::{self, Case, base, put},
};
use serde_json::Value;
use std::collections::BTreeSet;

#[tokio::test]
async fn every_rule_and_pattern_accepts_and_refuses_what_its_case_says() {
    let namespace = TestCluster::shared().namespace("validation").await;
    let mut failures = Vec::new();
    for case in fixtures::cases() {
        for place in &case.at {
            if let Err(failure) = try_case(&namespace.client, &namespace.name, &case, place).await {
                failures.push(format!("{place}: {}: {failure}", case.rule.as_ref().or(case.pattern.as_ref()).unwrap()));
            }
        }
    }
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
}

async fn try_case(client: &Client, namespace: &str, case: &Case, place: &str) -> Result<(), String> {
    let (kind, path) = place.split_once(' ').unwrap_or((place, ""));
    let api = api_of(client, kind, namespace);
    let with = |fragment: &Value| {
        let mut object = base(kind);
        put(&mut object, path, fragment);
        object["metadata"]["name"] = "case".into();
        object
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let said = |result: kube::Result<_>| match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    };
    let attempt = async |fragment: &Value| {
        let mut object = with(fragment);
        let Some(before) = &case.before else {
            return said(api.create(&dry, &serde_json::from_value(object).unwrap()).await);
        };
        api.create(&PostParams::default(), &serde_json::from_value(with(before)).unwrap()).await.map_err(|error| error.to_string())?;
        // A host of another test may write the status in between. Then try again.
        let answer = eventually("it is as it was read", async || {
            let there = api.get("case").await.unwrap();
            object["metadata"]["resourceVersion"] = there.metadata.resource_version.unwrap().into();
            let answer = said(api.replace("case", &dry, &serde_json::from_value(object.clone()).unwrap()).await);
            let outdated = answer.as_ref().is_err_and(|message| message.contains("the object has been modified"));
            (!outdated).then_some(answer)
        })
        .await;
        api.delete("case", &DeleteParams::default()).await.unwrap();
        answer
    };
    attempt(&case.accepted).await.map_err(|message| format!("what should be accepted is refused: {message}"))?;
    let wanted = case.says.as_ref().or(case.rule.as_ref()).map_or("should match", String::as_str);
    match attempt(&case.rejected).await {
        Ok(()) => Err("what should be refused is accepted".to_owned()),
        Err(message) if message.contains(wanted) => Ok(()),
        Err(message) => Err(format!("it is refused with other words than {wanted:?}: {message}")),
    }
}

#[test]
fn every_rule_and_pattern_has_a_case() {
    let mut wanted = BTreeSet::new();
    for served in KINDS {
        let crd = (served.crd)();
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        collect(&schema["openAPIV3Schema"], &crd.spec.names.kind, "", &mut wanted);
    }
    let mut covered = BTreeSet::new();
    for case in fixtures::cases() {
        for place in &case.at {
            let (kind, path) = place.split_once(' ').unwrap_or((place, ""));
            covered.insert((kind.to_owned(), path.to_owned(), case.rule.clone().unwrap_or_else(|| "pattern".to_owned())));
        }
    }
    let missing: Vec<_> = wanted.difference(&covered).collect();
    assert!(missing.is_empty(), "{} rules and patterns have no case: {missing:#?}", missing.len());
    let stale: Vec<_> = covered.difference(&wanted).collect();
    assert!(stale.is_empty(), "these cases are for no rule or pattern: {stale:#?}");
}

fn collect(schema: &Value, kind: &str, path: &str, found: &mut BTreeSet<(String, String, String)>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.insert((kind.to_owned(), path.to_owned(), rule["message"].as_str().expect("a rule without a message").to_owned()));
    }
    // A quantity of a core type has Kubernetes' own pattern, which we don't test.
    let of_kubernetes = |pattern: &str| schema["x-kubernetes-int-or-string"] == true && pattern.contains("[KMGTPE]i");
    if schema["pattern"].as_str().is_some_and(|pattern| !of_kubernetes(pattern)) {
        found.insert((kind.to_owned(), path.to_owned(), "pattern".to_owned()));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(property, kind, &path, found);
    }
    if schema["items"].is_object() {
        collect(&schema["items"], kind, &format!("{path}[]"), found);
    }
    if schema["additionalProperties"].is_object() {
        collect(&schema["additionalProperties"], kind, &format!("{path}{{}}"), found);
    }
}
