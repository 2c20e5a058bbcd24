//! Texts of hand-built plans.

use super::{full, json as explanation, labels, stored_conditions, summary};
use crate::{
    condition::Condition,
    decide::{
        AskedPlugin, Decision, FailedPlugin,
        propagation::{self, Propagated},
        selection::{self, Judged, ScoreShare, Selection},
    },
    plan::{Decided, Plan, Status},
    resource::INFERENCE_SERVICE,
    world::{ObjectKey, Subject, World},
};
use pointsman_sandbox::{
    call::CallError,
    digest::{Digest, Digested},
    point::{
        Reason,
        propagation::{Placed, Target},
        selection::{Candidate, Eligible},
    },
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

fn subject() -> Arc<Subject> {
    subject_with(&[])
}

/// The subject with these conditions in its status.
fn subject_with(conditions: &[Value]) -> Arc<Subject> {
    let key = ObjectKey { resource: &INFERENCE_SERVICE, namespace: "ml".to_owned(), name: "chat".to_owned() };
    let mut world = World::default();
    let status = json!({"conditions": conditions});
    world.put(&INFERENCE_SERVICE, &json!({"metadata": {"name": "chat", "namespace": "ml"}, "spec": {}, "status": status}));
    world.snapshot(&key, 0).unwrap().subject
}

fn summarized(plan: &Plan) -> String {
    summary::text(&subject(), plan, &[], Some(100))
}

fn decision<A>(answer: A, plugins: &[&str]) -> Arc<Decision<A>> {
    let plugin = |name: &&str| AskedPlugin { plugin: (*name).to_owned(), digest: String::new() };
    let plugins = plugins.iter().map(plugin).collect();
    Arc::new(Decision { answer: Arc::new(answer), inputs: Digest::hash(b""), plugins, failed: Vec::new() })
}

fn eligible(score: f64) -> Judged {
    Judged::Eligible(Eligible { score, ..Eligible::default() })
}

/// A plan that selects the first of these runtimes, with the shares of two plugins.
fn selected(judged: Vec<Judged>, shares: Vec<ScoreShare>) -> Plan {
    let name = |number: usize| format!("r{number}");
    let candidate =
        |number| Candidate { kind: "ServingRuntime".into(), namespace: "ml".into(), name: name(number), ..Candidate::default() };
    let candidates = Digested::new((0..judged.len()).map(candidate).collect()).unwrap();
    let ranking = (0..judged.len()).filter(|place| matches!(judged[*place], Judged::Eligible(_))).collect();
    let answer = Selection { judged, ranking, tie: false, shares };
    let inputs = selection::Inputs { candidates, ..selection::Inputs::default() };
    let fields = Map::from_iter([("runtime".to_owned(), json!({"kind": "ServingRuntime", "name": "r0"}))]);
    let conditions = vec![Condition::satisfied("RuntimeSelected", "Selected", "It was chosen.")];
    Plan {
        objects: Some(Vec::new()),
        decisions: vec![Decided::Selection(inputs, decision(answer, &["first", "second"]))],
        status: Status { conditions, fields, ..Status::default() },
        ..Plan::default()
    }
}

fn excluded() -> Judged {
    let reason = Reason { code: "TooDear".into(), message: "It costs too much.".into() };
    Judged::Excluded { plugin: Some("second".into()), reason }
}

#[test]
fn the_summary_has_the_choice_with_its_runners_up_and_what_each_plugin_gave() {
    let share = |plugin: &str, scores: [Option<f64>; 3]| ScoreShare { plugin: plugin.into(), scores: scores.to_vec() };
    let shares = vec![share("first", [Some(10.0), Some(10.0), Some(1.0)]), share("second", [Some(5.0), Some(0.0), None])];
    let said = summarized(&selected(vec![eligible(15.0), eligible(10.0), excluded()], shares));
    let expected = "InferenceService ml/chat: Ready True\n\
        \nruntimes\n\
        \x20 ServingRuntime ml/r0   15   selected; first 10 + second 5\n\
        \x20 ServingRuntime ml/r1   10   5 less; first 10 + second 0\n\
        \x20 ServingRuntime ml/r2   -    excluded by second, TooDear: It costs too much.\n\
        \nplugins\n\
        \x20 first    scores 3 runtimes\n\
        \x20 second   scores 2 runtimes; excludes 1 runtime\n\
        \nnothing needs attention\n";
    assert_eq!(said, expected);
}

#[test]
fn stored_conditions_that_differ_from_the_predicted_ones_are_shown_and_need_attention() {
    let plan = selected(vec![eligible(1.0)], Vec::new());
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message});
    let invalid = |type_: &str| condition(type_, "False", "Invalid", "The API server rejects the Deployment.");
    let broken = [invalid("Applied"), invalid("Ready"), condition("Theirs", "False", "Theirs", "It isn't ours.")];
    let subject = subject_with(&broken);
    let stored = stored_conditions(&subject, &plan);
    assert_eq!(stored, broken[..2]);
    let said = summary::text(&subject, &plan, &stored, None);
    assert!(said.starts_with("InferenceService ml/chat: Ready False, Invalid (predicted: True)\n"), "{said}");
    let attention = "needs attention\n  Applied (stored) False, Invalid: The API server rejects the Deployment.\n";
    assert!(said.ends_with(attention), "{said}");
    let said = full::text(&subject, &plan, &stored);
    let predicted = said.find("conditions (predicted)\n").unwrap();
    let differing = said.find("conditions (stored, where they differ)\n  Applied   False   Invalid   The API server ").unwrap();
    assert!(predicted < said.find("Everything works.").unwrap() && said.find("Everything works.").unwrap() < differing, "{said}");
    assert_eq!(explanation(&subject, &plan, &stored)["storedConditions"], json!(broken[..2]));

    // The status is as predicted, and nobody has written one yet.
    let works = condition("Ready", "True", "Ready", "Everything works.");
    let written = condition("Applied", "True", "Applied", "The objects of the service are as planned.");
    for subject in [subject_with(&[written.clone(), works.clone()]), subject_with(&[])] {
        assert!(stored_conditions(&subject, &plan).is_empty());
    }
    // Ready is stored for a reason that no other condition has any more.
    let subject = subject_with(&[written, condition("Ready", "False", "PodsFailing", "The pod a is failing.")]);
    let said = summary::text(&subject, &plan, &stored_conditions(&subject, &plan), None);
    assert!(said.ends_with("needs attention\n  Ready (stored) False, PodsFailing: The pod a is failing.\n"), "{said}");
    // A queued subject is Ready.
    let subject = subject_with(&[condition("Applied", "True", "WaitingForTurn", "Its restart is queued."), works]);
    let said = summary::text(&subject, &plan, &stored_conditions(&subject, &plan), None);
    assert!(said.starts_with("InferenceService ml/chat: Ready True\n"), "{said}");
    assert!(said.ends_with("needs attention\n  Applied (stored) True, WaitingForTurn: Its restart is queued.\n"), "{said}");
}

#[test]
fn runtimes_beyond_a_screen_are_counted() {
    let said = summarized(&selected((0..40).map(|_| eligible(1.0)).collect(), Vec::new()));
    assert!(said.contains("\n  and 34 more, which --all lists\n") && said.contains("same score, a later name"), "{said}");
    let said = summarized(&selected((0..7).map(|_| eligible(1.0)).collect(), Vec::new()));
    assert!(said.contains("ml/r6") && !said.contains("more, which"), "{said}");
}

#[test]
fn a_runtime_that_stays_comes_before_a_better_one() {
    let mut plan = selected(vec![eligible(5.0), eligible(1.0)], Vec::new());
    plan.status.fields["runtime"]["name"] = "r1".into();
    let said = summarized(&plan);
    let (first, second) = (said.find("ml/r1   1   selected").unwrap(), said.find("ml/r0   5   4 more, for the next choice").unwrap());
    assert!(first < second, "{said}");
}

#[test]
fn what_fails_is_told_once_with_its_remedy_and_what_waits_for_it_is_not() {
    let mut plan = selected(vec![eligible(1.0)], Vec::new());
    let message = "No node has the labels of spec.nodeSelector: label the nodes, or correct it. ".repeat(3);
    plan.status.conditions.extend([
        Condition::unknown("RouterReady", "Progressing", "It isn't available yet."),
        Condition::no("EngineReady", "NoNode", message.clone()),
        Condition::no("DecoderReady", "NoNode", message.clone()),
        Condition::unknown("Decided", "Blocked", "Waiting for EngineReady."),
    ]);
    if let Decided::Selection(_, decision) = &mut plan.decisions[0] {
        let error = CallError::Failed("no".to_owned());
        *decision = Arc::new(Decision { failed: vec![FailedPlugin { plugin: "third".into(), error }], ..(**decision).clone() });
    }
    let said = summarized(&plan);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let attention = format!("needs attention EngineReady, DecoderReady False, NoNode: {} RouterReady Unknown", message.trim());
    assert!(words.contains(&attention) && !words.contains("Blocked"), "{said}");
    assert!(said.contains("  third    changes nothing\n    no answer at runtime-selection: "), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
}

#[test]
fn labels_are_listed_with_their_layer_and_who_set_them() {
    let placed = |key: &str, layer: &str| Placed { key: key.into(), value: "x".into(), layer: layer.into() };
    let labels = vec![placed("app", "host"), placed("cost", "plugin"), placed("team", "namespace")];
    let answer = Propagated { labels, label_writers: vec![None, Some(1), Some(0)], ..Propagated::default() };
    let target = Target { kind: "Deployment".into(), name: "chat-engine".into(), ..Target::default() };
    let decided = Decided::Metadata(target, propagation::Inputs::default(), decision(answer, &["built-in", "costs"]));
    let plan = Plan { decisions: vec![decided], ..Plan::default() };
    let said = labels::text(&subject(), &plan);
    for row in ["KEY    VALUE   FROM        SET BY", "app    x       host        the host", "cost   x       plugin      costs"] {
        assert!(said.contains(row), "{row}: {said}");
    }
    let said = summarized(&plan);
    assert!(said.contains("  costs      sets cost of 1 object\n"), "{said}");
}
