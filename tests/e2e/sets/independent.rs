//! Changes of several teams: each is approved separately, those of a group together, and those that set the same field in either way.

use super::oracle::{Effects, effects, foretold, is_through, made, serve};
use super::{
    LABEL, LABELS, bring, by_itself, counts, decides, digest, has, is, label, message, next, recorded, set_that, start, status, turns,
    waits,
};
use crate::{
    services::{LastSeen, Space, own_cluster},
    sets::oracle::{LAST, are_ready, furnished},
};
use kube::{Api, ResourceExt, api::ListParams};
use pointsman_core::resource::{DEPLOYMENT, LLM_INFERENCE_SERVICE};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use pointsman_tests::{PolicyCluster, condition, eventually, plugin_bytes, with_other_digest};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The label by which changes become active together.
const UPDATE_GROUP: &str = "policy.pointsman.dev/update-group";

/// Selects the services of a tier.
fn of_tier(tier: &str) -> Value {
    json!({"objectSelector": {"matchLabels": {"tier": tier}}})
}

/// LLMInferenceServices with tiers, once their Deployments exist.
async fn services<'a>(cluster: &'a PolicyCluster, tiers: &[(&str, &str)]) -> Space<'a> {
    let space = Space::bare(cluster, "teams").await;
    label(&space, json!({LABEL: "4711"})).await;
    for (name, tier) in tiers {
        let metadata = json!({"labels": {"tier": tier}, "annotations": {"ome.io/version": "7"}});
        space.create(&LLM_INFERENCE_SERVICE, name, json!({"metadata": metadata, "spec": {"model": {"uri": "hf://example/llama"}}})).await;
    }
    for (name, _) in tiers {
        space.becomes(&DEPLOYMENT, &format!("{name}-kserve"), "it is there", |_| true).await;
    }
    space
}

/// Creates a rule about LLMInferenceServices.
fn rule(cluster: &PolicyCluster, name: &str, expression: &str) {
    let spec = json!({
        "match": {"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]},
        "validations": [{"expression": expression, "message": format!("the rule {name} says no")}],
    });
    let rule = json!({"apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "ValidationRule", "metadata": {"name": name}, "spec": spec});
    cluster.apply(&rule).ok();
}

/// Whether a set has exactly these changes.
fn changes(set: &PolicySet, names: &[&str]) -> bool {
    let status = status(set);
    status.changes.len() == names.len()
        && names.iter().all(|name| status.changes.iter().any(|change| change.contains(&format!(" {name}: "))))
}

/// The candidate with only these changes, once it awaits an approval and was compared with the active set.
async fn waiting(cluster: &PolicyCluster, names: &[&str]) -> PolicySet {
    let client = cluster.client().await;
    let last = LastSeen::default();
    eventually(&format!("a candidate with {names:?} waits"), async || {
        let active = recorded(&client).await.digest;
        let sets = Api::<PolicySet>::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
        last.note(format!("{:#?}", sets.iter().map(|set| (set.name_any(), &set.status)).collect::<Vec<_>>()));
        sets.into_iter().find(|set| waits(set) && changes(set, names) && status(set).against.as_ref() == Some(&active))
    })
    .await
}

fn approve(cluster: &PolicyCluster, set: &PolicySet) -> String {
    cluster.pointsman(&["policy", "approve", &set.name_any()]).ok()
}

/// The value of the label in the pod template of a service.
async fn carried(space: &Space<'_>, service: &str) -> Value {
    space.get(&DEPLOYMENT, &format!("{service}-kserve")).await["spec"]["template"]["metadata"]["labels"][LABEL].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_several_teams_wait_and_are_approved_each_by_itself() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", "gold"), ("b", "silver"), ("c", "bronze")]).await;
    bring(&cluster, "labels", &plugin_bytes(LABELS), json!({"match": of_tier("gold")})).await;
    let gold = waiting(&cluster, &["labels"]).await;
    bring(&cluster, "next", &next(), json!({"match": of_tier("silver")})).await;
    let silver = waiting(&cluster, &["next"]).await;
    assert_eq!((counts(&gold), counts(&silver)), ([1, 0, 0, 0], [1, 0, 0, 0]));
    assert!(!has(&silver, "labels") && !message(&silver).contains("same fields"), "{silver:#?}");

    // A rule that rejects nothing needs no approval, and doesn't wait for those of the others.
    rule(&cluster, "small", "!has(object.spec.replicas) || object.spec.replicas <= 8");
    let ruled = |set: &PolicySet| decides(set) && set.spec.rules.iter().any(|rule| rule.name == "small");
    let active = set_that(&cluster, "the set with the rule decides", ruled).await;
    assert!(!has(&active, "labels") && !has(&active, "next"), "{active:#?}");
    let gone = turns(&cluster, &silver, PolicySetPhase::Abandoned).await;
    let silver = waiting(&cluster, &["next"]).await;
    assert_eq!(status(&gone).replaced_by, Some(silver.name_any()));

    // The second change is approved first. The first one doesn't become active with it.
    let said = approve(&cluster, &silver);
    assert!(said.contains(&format!("active    {}", silver.name_any())), "{said}");
    let set = turns(&cluster, &silver, PolicySetPhase::Active).await;
    assert!(!has(&set, "labels"), "{set:#?}");
    space
        .becomes(&DEPLOYMENT, "b-kserve", "it carries the label", |now| now["spec"]["template"]["metadata"]["labels"][LABEL] != Value::Null)
        .await;
    assert_eq!(carried(&space, "a").await, Value::Null);

    let refused = cluster.pointsman(&["policy", "approve", &gold.name_any()]).refused();
    assert!(refused.contains("was abandoned") && refused.contains("Review set-"), "{refused}");
    let gold = waiting(&cluster, &["labels"]).await;
    assert!(has(&gold, "next") && counts(&gold) == [1, 0, 0, 0], "{gold:#?}");
    approve(&cluster, &gold);
    space
        .becomes(&DEPLOYMENT, "a-kserve", "it carries the label", |now| now["spec"]["template"]["metadata"]["labels"][LABEL] == "4711")
        .await;
    assert_eq!(carried(&space, "c").await, Value::Null);
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_counts_although_another_change_becomes_active_first_unless_more_changes_by_that() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", "gold"), ("b", "silver")]).await;
    bring(&cluster, "labels", &plugin_bytes(LABELS), json!({"match": of_tier("gold")})).await;
    bring(&cluster, "next", &next(), json!({"match": of_tier("silver")})).await;
    let (gold, silver) = (waiting(&cluster, &["labels"]).await, waiting(&cluster, &["next"]).await);
    // Both are approved before the host can have seen either approval.
    let names = [gold.name_any(), silver.name_any()];
    let both = names.each_ref().map(|name| ["policy", "approve", name.as_str()]);
    let [first, second] =
        std::thread::scope(|scope| both.each_ref().map(|args| scope.spawn(|| cluster.pointsman(args).ok())).map(|run| run.join().unwrap()));
    assert!(first.contains("active    ") && second.contains("active    "), "{first}\n{second}");
    let set = set_that(&cluster, "both decide", |set| decides(set) && has(set, "labels") && has(set, "next")).await;
    assert!(is(&set, PolicySetPhase::Active));
    for service in ["a-kserve", "b-kserve"] {
        space
            .becomes(&DEPLOYMENT, service, "it carries the label", |now| {
                now["spec"]["template"]["metadata"]["labels"][LABEL] != Value::Null
            })
            .await;
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_same_field_say_so_and_are_compared_together_too() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", "gold"), ("b", "silver")]).await;
    bring(&cluster, "labels", &plugin_bytes(LABELS), json!({})).await;
    bring(&cluster, "next", &next(), json!({"match": of_tier("gold")})).await;
    let config = json!({"llmInferenceService": {"approvedAnnotations": ["ome.io/version"]}});
    let source = json!({"builtin": {"name": "metadata-propagation"}});
    cluster
        .plugin("metadata-propagation", json!({"source": source, "config": config, "strategy": {"type": "Guarded", "maxChanged": 0}}))
        .await;

    let field = format!("LLMInferenceService {}/a, Deployment a-kserve: spec.template.metadata.labels.{LABEL}", space.0.name);
    let joint = waiting(&cluster, &["labels", "next"]).await;
    for (one, other) in [("labels", "next"), ("next", "labels")] {
        let expected = format!("It changes the same fields as plugin {other} (in {field}); {} combines these changes.", joint.name_any());
        set_that(&cluster, &format!("{one} says whom it meets"), |set| {
            waits(set) && changes(set, &[one]) && message(set).contains(&expected)
        })
        .await;
    }
    let apart = waiting(&cluster, &["metadata-propagation"]).await;
    assert!(!message(&apart).contains("same fields"), "{}", message(&apart));
    assert_eq!(counts(&joint), [2, 0, 0, 0]);

    let parts = [waiting(&cluster, &["labels"]).await, waiting(&cluster, &["next"]).await];
    approve(&cluster, &joint);
    let set = turns(&cluster, &joint, PolicySetPhase::Active).await;
    assert!(has(&set, "labels") && has(&set, "next"), "{set:#?}");
    for part in &parts {
        let gone = turns(&cluster, part, PolicySetPhase::Abandoned).await;
        assert!(message(&gone).contains("became active together"), "{}", message(&gone));
        assert_eq!(status(&gone).replaced_by, Some(joint.name_any()));
    }
    waiting(&cluster, &["metadata-propagation"]).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_one_group_become_active_together() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = services(&cluster, &[("a", "gold"), ("b", "silver")]).await;
    for (name, bytes, tier) in [("labels", plugin_bytes(LABELS), "gold"), ("next", next(), "silver")] {
        cluster.config_map(name, &bytes).await;
        let plugin = json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "PolicyPlugin", "metadata": {"name": name, "labels": {UPDATE_GROUP: "team"}},
            "spec": {"source": {"configMap": {"name": name}}, "match": of_tier(tier)},
        });
        cluster.apply(&plugin).ok();
    }
    let both = waiting(&cluster, &["labels", "next"]).await;
    assert_eq!(counts(&both), [2, 0, 0, 0]);
    // Outside of the group, each change is separate again.
    cluster.kubectl(&["label", "policyplugin", "next", &format!("{UPDATE_GROUP}-")]).ok();
    turns(&cluster, &both, PolicySetPhase::Abandoned).await;
    let alone = waiting(&cluster, &["next"]).await;
    waiting(&cluster, &["labels"]).await;
    approve(&cluster, &alone);
    space
        .becomes(&DEPLOYMENT, "b-kserve", "it carries the label", |now| now["spec"]["template"]["metadata"]["labels"][LABEL] != Value::Null)
        .await;
    assert_eq!(carried(&space, "a").await, Value::Null);
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_plugin_that_is_pushed_every_moment_delays_no_other_plugin_s_update() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let labels = [plugin_bytes(LABELS), next()];
    bring(&cluster, "labels", &labels[0], by_itself()).await;
    cluster.active("labels", &digest(&labels[0])).await;
    let cost = plugin_bytes("pointsman-example-rust-cost");
    bring(&cluster, "cost", &cost, by_itself()).await;
    cluster.active("cost", &digest(&cost)).await;

    let pushed = AtomicUsize::new(0);
    let pushing = async {
        // Without a pause, so that the next version arrives while one is loaded.
        loop {
            let number = pushed.load(Ordering::Relaxed) + 1;
            cluster.config_map("labels", &with_other_digest(&labels[number % 2], number)).await;
            pushed.store(number, Ordering::Relaxed);
        }
    };
    let update = async {
        eventually("it is pushed again and again", async || (pushed.load(Ordering::Relaxed) > 10).then_some(())).await;
        let newer = with_other_digest(&cost, 1);
        cluster.config_map("cost", &newer).await;
        cluster.active("cost", &digest(&newer)).await;
    };
    // The pushes continue until the other plugin's update is active.
    tokio::select! {
        () = update => {}
        () = pushing => {}
    }

    // After the last push, the newest version becomes active too.
    let last = pushed.into_inner();
    let [either, or] = [last, last + 1].map(|number| digest(&with_other_digest(&labels[number % 2], number)));
    cluster
        .status("labels", "its newest version is active", |status| {
            let active = status.active.as_ref().map(|active| &*active.digest);
            active == Some(&*either) || active == Some(&*or)
        })
        .await;
    host.stop();
}

/// The changes of the teams by name: the match and configuration of a plugin, or a rule.
const CHANGES: [&str; 4] = ["labels", "next", "metadata-propagation", "small"];

/// All orders of them.
fn orders(left: &[&'static str]) -> Vec<Vec<&'static str>> {
    if left.is_empty() {
        return vec![Vec::new()];
    }
    let with = |first: &&'static str| {
        let rest: Vec<&'static str> = left.iter().filter(|other| *other != first).copied().collect();
        orders(&rest).into_iter().map(|rest| [vec![*first], rest].concat()).collect::<Vec<_>>()
    };
    left.iter().flat_map(with).collect()
}

/// Makes all changes, all of which need an approval: those of three teams and a rule, one that is never approved, and one that is
/// withdrawn.
async fn ask(cluster: &PolicyCluster) {
    let kind = json!({"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]});
    bring(cluster, "labels", &plugin_bytes(LABELS), json!({"match": of_tier("gold")})).await;
    bring(cluster, "next", &next(), json!({"match": of_tier("silver"), "order": 150})).await;
    let config = json!({"llmInferenceService": {"approvedAnnotations": ["ome.io/version"]}});
    let source = json!({"builtin": {"name": "metadata-propagation"}});
    cluster
        .plugin("metadata-propagation", json!({"source": source, "config": config, "strategy": {"type": "Guarded", "maxChanged": 0}}))
        .await;
    rule(cluster, "small", "object.metadata.name != 's-4'");
    bring(cluster, "stuck", &plugin_bytes(LABELS), json!({"match": kind, "config": {"label": "stuck"}})).await;
    bring(cluster, "withdrawn", &plugin_bytes(LABELS), json!({"match": of_tier("silver"), "config": {"label": "withdrawn"}})).await;
}

/// Reverts all of them at once, and waits until the initial set is active.
async fn take_back(cluster: &PolicyCluster, beginning: &str) {
    let client = cluster.client().await;
    let at_once = json!({"strategy": {"type": "Immediate"}});
    for name in ["labels", "next", "stuck"] {
        cluster.kubectl(&["patch", "policyplugin", name, "--type", "merge", "-p", &json!({"spec": at_once}).to_string()]).ok();
        let read = async || recorded(&client).await.plugins.get(name).is_none_or(|plugin| plugin.strategy.is_some()).then_some(());
        eventually(&format!("the strategy of {name} is recorded"), read).await;
        cluster.delete_plugin(name).await;
    }
    cluster.kubectl(&["patch", "validationrule", "small", "--type", "merge", "-p", &json!({"spec": at_once}).to_string()]).ok();
    let read = async || recorded(&client).await.rules.get("small").is_none_or(|rule| rule.strategy.is_some()).then_some(());
    eventually("the strategy of the rule is recorded", read).await;
    cluster.kubectl(&["delete", "validationrule", "small"]).ok();
    let source = json!({"builtin": {"name": "metadata-propagation"}});
    cluster.plugin("metadata-propagation", json!({"source": source, "strategy": {"type": "Immediate"}})).await;
    let back = async || (recorded(&client).await.digest == beginning).then_some(());
    eventually("the set is what it was", back).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn three_teams_changes_and_a_rule_do_what_was_predicted_in_whatever_order_they_are_approved() {
    let all = orders(&CHANGES);
    let orders: Vec<_> = if pointsman_tests::is_full() { all } else { vec![all[0].clone(), all[all.len() - 1].clone()] };
    let at = LastSeen::default();
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&["lws"])));
    let client = cluster.client().await;
    let host = start(&cluster, &["--pace", "0", "--workers", "1"]).await;
    let spaces = [furnished(&cluster, json!({LABEL: "4711", "stuck": "1", "withdrawn": "1"})).await];
    let last = Space::bare(&cluster, "oracle-last").await;
    let spec = json!({"model": {"uri": "hf://example/llama"}, "replicas": 1});
    last.create(&LLM_INFERENCE_SERVICE, LAST, json!({"spec": spec})).await;
    let served = serve(&spaces, 10).await;
    are_ready(&spaces, &served).await;
    last.says_of(&LLM_INFERENCE_SERVICE, LAST, "Ready", "True", "Ready").await;
    let (mut times, mut seen) = (0, BTreeMap::<String, usize>::new());
    let beginning = recorded(&client).await.digest;
    for order in orders {
        ask(&cluster).await;
        waiting(&cluster, &["withdrawn"]).await;
        for (count, name) in order.iter().enumerate() {
            at.note(format!("{name} of {order:?}"));
            let candidate = waiting(&cluster, &[name]).await;
            is_through(&last, &mut times).await;
            let before = made(&spaces).await;
            let predicted = foretold(&cluster, &candidate.name_any(), &spaces);
            assert!(!predicted.is_empty(), "{name} of {order:?} changes something");
            approve(&cluster, &candidate);
            // Subjects whose plan fails stay unchanged.
            let expected: Effects =
                predicted.iter().filter(|(_, effect)| *effect != "Failed").map(|(at, effect)| (at.clone(), effect.clone())).collect();
            for failing in predicted.iter().filter(|(_, effect)| *effect == "Failed").filter_map(|(at, _)| at.rsplit('/').next()) {
                spaces[0].says_of(&LLM_INFERENCE_SERVICE, failing, "Valid", "False", "RuleBroken").await;
            }
            let happens = LastSeen::default();
            eventually(&format!("what was predicted of {name} happens in {order:?}"), async || {
                let happened = effects(&before, &made(&spaces).await);
                happens.note(format!("predicted {expected:#?}\nhappened {happened:#?}"));
                (happened == expected).then_some(())
            })
            .await;
            is_through(&last, &mut times).await;
            assert_eq!(effects(&before, &made(&spaces).await), expected, "{name} of {order:?}, and nothing else");
            for effect in predicted.into_values() {
                *seen.entry(effect).or_default() += 1;
            }
            if count == 0 {
                let withdrawn = waiting(&cluster, &["withdrawn"]).await;
                cluster.delete_plugin("withdrawn").await;
                let gone = turns(&cluster, &withdrawn, PolicySetPhase::Abandoned).await;
                assert!(message(&gone).contains("reverted"), "{}", message(&gone));
            }
        }
        // The change that is never approved stays a candidate, compared with each active set.
        let stuck = waiting(&cluster, &["stuck"]).await;
        assert!(counts(&stuck)[0] > 0, "{stuck:#?}");
        let status = cluster
            .status("stuck", "it waits", |status| condition(status, "Ready").is_some_and(|(_, reason, _)| reason == "ApprovalNeeded"));
        assert_eq!(status.await.active, None);
        take_back(&cluster, &beginning).await;
        is_through(&last, &mut times).await;
    }
    println!("{seen:?}");
    for effect in ["Restarts", "Metadata", "Failed"] {
        assert!(seen.contains_key(effect), "{seen:?}");
    }
    host.stop();
}
