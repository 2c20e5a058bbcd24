//! Knative accepts the objects that are planned for it, with exactly the features that the condition names: Knative's own code checks this.

use crate::plans::{policies, world_of};
use pointsman_core::{
    kinds, planning,
    resource::{INFERENCE_SERVICE, KNATIVE_SERVICE},
    settings::Settings,
    world::ObjectKey,
};
use pointsman_harness::cluster_dir;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// The number of generated services.
const SERVICES: usize = 600;

/// Knative's own defaulting and validation.
struct Knative {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Knative {
    fn start() -> Self {
        let mut process =
            Command::new(cluster_dir().join("bin/knative-check")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let questions = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, questions, answers }
    }

    /// Knative's errors about a service if these features are enabled.
    fn errors(&mut self, service: &Value, features: &BTreeSet<String>) -> String {
        let features: BTreeMap<&String, &str> = features.iter().map(|feature| (feature, "enabled")).collect();
        writeln!(self.questions, "{}", json!({"service": service, "features": features})).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["errors"].as_str().unwrap().to_owned()
    }
}

impl Drop for Knative {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _code = self.process.wait();
    }
}

/// The features in a message.
fn features(message: &str) -> BTreeSet<String> {
    let words = message.split([' ', ',']).map(|word| word.trim_end_matches(['.', ':']));
    words.filter(|word| word.starts_with("kubernetes.") || *word == "multi-container-probing").map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn knative_takes_what_is_planned_for_it_with_just_the_features_that_are_named() {
    let policies = policies();
    let mut knative = Knative::start();
    let mut runner = TestRunner::deterministic();
    let (mut planned, mut needed) = (0, BTreeSet::new());
    for _ in 0..SERVICES {
        let mut service = pointsman_samples::service("chat").new_tree(&mut runner).unwrap().current();
        service["metadata"]["annotations"]["ome.io/deploymentMode"] = "Serverless".into();
        // With a decoder, an engine is never Serverless, and the runtimes of the context's own namespace have one.
        service["spec"].as_object_mut().unwrap().remove("decoder");
        let world = world_of("elsewhere", &service);
        let key = ObjectKey {
            resource: &INFERENCE_SERVICE,
            namespace: "chat".into(),
            name: service["metadata"]["name"].as_str().unwrap().into(),
        };
        let snapshot = world.snapshot(&key, 0).unwrap();
        let plan = planning::plan(kinds::find(&INFERENCE_SERVICE).unwrap(), snapshot, &policies, &Settings::default());
        let accepted = plan.status.conditions.iter().find(|condition| condition.type_ == "Accepted").unwrap();
        // A held plan has no objects.
        let Some(objects) = plan.objects else { continue };
        let named = features(&accepted.message);
        // The message names the features of all components together.
        let services: Vec<Value> =
            objects.iter().filter(|object| *object.key.resource == KNATIVE_SERVICE).map(pointsman_core::plan::Object::manifest).collect();
        for made in &services {
            planned += 1;
            let errors = knative.errors(made, &named);
            assert_eq!(errors, "", "{}\n{made:#}", accepted.message);
        }
        for feature in &named {
            let mut others = named.clone();
            others.remove(feature);
            let refused = services.iter().any(|made| !knative.errors(made, &others).is_empty());
            assert!(refused, "{feature} is named and not needed: {services:#?}");
        }
        needed.extend(named);
    }
    println!("{planned} Knative Services; features: {needed:?}");
    assert!(planned > SERVICES / 10, "only {planned} of {SERVICES} services came to Knative");
    assert!(needed.len() > 5, "{needed:?}");
}
