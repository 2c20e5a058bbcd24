use super::*;
use crate::resource::INFERENCE_MODEL;

const GIB: i64 = 1 << 30;
const NOW: u64 = 1_000_000;

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: name.to_owned() }
}

fn memory(gib: i64) -> Amounts {
    Amounts { memory: gib * GIB, cpu: 1000, gpus: 0, pods: 1 }
}

fn pool(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("inference-pool".to_owned(), name.to_owned())])
}

fn node(gib: i64) -> Node {
    let allocatable = Amounts { memory: gib * GIB, cpu: 64_000, gpus: 8, pods: 110 };
    Node { labels: pool("default"), allocatable, ..Node::default() }
}

/// A model that has never run and is therefore requested.
fn model(gib: i64) -> Model {
    Model { selector: pool("default"), needs: memory(gib), cooldown: 600, residency: 300, created: NOW - 5000, ..Model::default() }
}

/// A sleeping model.
fn asleep(gib: i64) -> Model {
    let activity = Activity { ran: true, last_request: Some(NOW - 4500), scaled_to_zero: true, ..Activity::default() };
    Model { activity, ..model(gib) }
}

/// A model that has been ready on a node for a long time, with its last request this many seconds ago.
fn running(gib: i64, on: &str, idle: u64) -> Model {
    let held = Held { node: on.to_owned(), amounts: memory(gib), phase: Phase::Admitted, since: 0 };
    let activity = Activity {
        last_request: Some(NOW - idle),
        ready_since: Some(NOW - 4000),
        ran: true,
        start_seconds: Some(40.0),
        ..Activity::default()
    };
    Model { held: Some(held), pods: vec![(on.to_owned(), memory(gib))], activity, ..model(gib) }
}

#[derive(Default)]
struct Case {
    nodes: BTreeMap<String, Node>,
    models: BTreeMap<ObjectKey, Model>,
}

impl Case {
    fn nodes<const N: usize>(nodes: [(&str, Node); N]) -> Self {
        Self { nodes: nodes.map(|(name, node)| (name.to_owned(), node)).into(), ..Self::default() }
    }

    fn model(mut self, name: &str, model: Model) -> Self {
        self.models.insert(key(name), Model { name: name.to_owned(), ..model });
        self
    }

    /// Decides with scores by priority; among equals, the longest idle model scores lowest.
    fn decided(&self) -> Ledger {
        self.chosen(&mut |_| NodeAnswer::Equal)
    }

    /// Decides the same way, with a custom choice of nodes.
    fn chosen(&self, choose: &mut NodeScorer<'_>) -> Ledger {
        let score = |(_, row): &(&ObjectKey, Features)| {
            let idle = if row.idle_seconds.is_nan() { 0.0 } else { row.idle_seconds };
            Some((row.priority + 0.5 - idle / 1000.0).clamp(0.0, 1.0))
        };
        allocate(&self.nodes, &self.models, NOW, &mut |rows| rows.iter().map(score).collect(), choose)
    }
}

/// The steps as text: NAME NODE PHASE.
fn steps(ledger: &Ledger) -> Vec<String> {
    let text = |step: &Step| match &step.held {
        None => format!("{} released", step.model.name),
        Some(held) => match &held.phase {
            Phase::Draining(SleepReason::Evicted(by)) => format!("{} drains for {by}", step.model.name),
            phase => format!("{} on {}: {phase:?}", step.model.name, held.node),
        },
    };
    ledger.steps.iter().map(text).collect()
}

fn waiting<'l>(ledger: &'l Ledger, name: &str) -> &'l Waiting {
    match &ledger.entries[&key(name)] {
        Entry::Waiting(waiting) => waiting,
        entry => panic!("{name} doesn't wait: {entry:?}"),
    }
}

#[test]
fn a_new_model_gets_the_node_whose_memory_it_fills_best() {
    let case = Case::nodes([("large", node(100)), ("small", node(50))]).model("a", model(40));
    assert_eq!(steps(&case.decided()), ["a on small: Admitted"]);
}

#[test]
fn of_the_nodes_with_room_the_policies_choose_and_of_equal_ones_the_best_filled_is_taken() {
    let case = Case::nodes([("cheap", node(90)), ("full", node(30)), ("large", node(100)), ("small", node(50))]).model("a", model(40));
    let mut asked = Vec::new();
    let mut chosen = |scores: [Option<f64>; 3]| {
        let ledger = case.chosen(&mut |choice| {
            asked.push(choice.nodes.join(" "));
            NodeAnswer::Scores(scores.to_vec())
        });
        steps(&ledger)
    };
    assert_eq!(chosen([Some(0.7), Some(0.5), Some(0.5)]), ["a on cheap: Admitted"]);
    assert_eq!(chosen([Some(0.7), Some(0.72), Some(0.1)]), ["a on cheap: Admitted"], "it is filled better than the other");
    assert_eq!(chosen([Some(0.0), Some(0.0), Some(0.0)]), ["a on small: Admitted"]);
    assert_eq!(chosen([None, Some(0.1), None]), ["a on large: Admitted"]);
    assert_eq!(asked, ["cheap large small"; 4], "each time once, about the nodes with room");
}

#[test]
fn nobody_is_asked_about_a_model_that_fits_nowhere_or_has_its_place() {
    let mut asked = 0;
    let case = Case::nodes([("n", node(100))]).model("runs", running(60, "n", 10)).model("waits", model(60));
    let ledger = case.chosen(&mut |_| {
        asked += 1;
        NodeAnswer::Equal
    });
    assert!(!waiting(&ledger, "waits").is_coming);
    assert_eq!(asked, 0);
}

#[test]
fn what_models_have_of_a_node_is_known_to_whoever_chooses() {
    let leaves = Held { phase: Phase::Stopping, ..running(20, "a", 10).held.unwrap() };
    let case = Case::nodes([("a", node(100)), ("b", node(100))])
        .model("new", model(10))
        .model("newer", Model { created: NOW - 10, ..model(80) })
        .model("leaves", Model { held: Some(leaves), ..running(20, "a", 10) })
        .model("starts", Model { pods: Vec::new(), ..running(5, "b", 10) });
    let mut seen = Vec::new();
    case.chosen(&mut |choice| {
        seen.push((choice.model.name.clone(), ["a", "b"].map(|node| (choice.taken)(node).memory / GIB)));
        NodeAnswer::Scores(choice.nodes.iter().map(|node| Some(if *node == "a" { 1.0 } else { 0.0 })).collect())
    });
    assert_eq!(seen, [("new".to_owned(), [20, 5]), ("newer".to_owned(), [30, 5])]);
}

#[test]
fn a_node_that_the_policies_exclude_is_not_taken_even_if_others_would_have_to_sleep_there() {
    let mut excluded = |choice: &Choice<'_>| NodeAnswer::Scores(choice.nodes.iter().map(|node| (*node != "bad").then_some(0.5)).collect());
    let ledger = Case::nodes([("bad", node(100)), ("full", node(30))]).model("a", model(40)).model("b", model(30)).chosen(&mut excluded);
    assert_eq!(steps(&ledger), ["b on full: Admitted"]);
    let found = waiting(&ledger, "a");
    assert_eq!((&found.node, &found.excluded[..], found.is_coming), (&None, &["bad".to_owned()][..], false));

    let woken = Model { activity: Activity { waiting: 1, ..asleep(40).activity }, ..asleep(40) };
    let case = Case::nodes([("bad", node(100)), ("good", node(100))])
        .model("idle", running(80, "bad", 500))
        .model("woken", woken)
        .model("worthier", running(80, "good", 100));
    assert_eq!(steps(&case.decided()), ["idle drains for ml/woken"]);
    assert_eq!(steps(&case.chosen(&mut excluded)), ["worthier drains for ml/woken"]);
}

#[test]
fn a_model_moves_to_no_node_that_the_policies_exclude_and_another_takes_what_is_excluded_for_one() {
    let only = |name: &'static str| {
        move |choice: &Choice<'_>| NodeAnswer::Scores(choice.nodes.iter().map(|_| (choice.model.name == name).then_some(0.5)).collect())
    };
    let moved = Model { selector: pool("other"), ..running(40, "a", 10) };
    let case = Case::nodes([("a", node(60)), ("b", Node { labels: pool("other"), ..node(60) })]).model("moves", moved);
    assert_eq!(steps(&case.chosen(&mut only("moves"))), ["moves on a: Draining(Misplaced)"]);
    assert_eq!(steps(&case.chosen(&mut only("none"))), [""; 0]);

    let case = Case::nodes([("n", node(100))]).model("a", model(40)).model("b", Model { created: NOW - 10, ..model(40) });
    assert_eq!(steps(&case.chosen(&mut only("b"))), ["b on n: Admitted"]);
}

#[test]
fn a_model_waits_while_policies_give_no_answer_about_its_node_and_is_asked_about_again_soon() {
    let case = Case::nodes([("n", node(100))]).model("runs", running(40, "n", 10)).model("new", model(40));
    let ledger = case.chosen(&mut |_| NodeAnswer::Later);
    assert_eq!(steps(&ledger), [""; 0]);
    assert!(waiting(&ledger, "new").is_undecided);
    assert_eq!(ledger.next, Some(NOW + 2));
}

#[test]
fn policies_see_what_is_left_of_a_node_once_others_have_gone() {
    let woken = Model { activity: Activity { waiting: 1, ..asleep(40).activity }, ..asleep(40) };
    let case = Case::nodes([("n", node(100))]).model("idle", running(80, "n", 500)).model("woken", woken);
    let mut seen = Vec::new();
    let ledger = case.chosen(&mut |choice| {
        seen.push((choice.taken)("n").memory / GIB);
        NodeAnswer::Scores(vec![Some(0.5)])
    });
    assert_eq!((steps(&ledger), seen), (vec!["idle drains for ml/woken".to_owned()], vec![0]));
}

#[test]
fn what_other_pods_take_and_what_a_budget_withholds_is_not_there() {
    let others = Node { others: memory(70), ..node(100) };
    let budget = Node { memory_budget: Some(30 * GIB), ..node(100) };
    let case = Case::nodes([("others", others), ("budget", budget)]).model("a", model(40)).model("b", model(30));
    let ledger = case.decided();
    let Entry::Refused(Refusal::TooLarge { node, capacity }) = &ledger.entries[&key("a")] else { panic!("{ledger:?}") };
    assert_eq!((node.as_str(), capacity.memory), ("budget", 30 * GIB));
    assert_eq!(steps(&ledger).len(), 1);
}

#[test]
fn cordoned_tainted_and_unready_nodes_take_no_new_models_and_keep_those_that_they_have() {
    let closed = |why| Node { closed: Some(why), ..node(100) };
    let tainted = Node { taints: vec!["nvidia.com/gpu".to_owned()], ..node(100) };
    let case = Case::nodes([("a", closed(Closed::Cordoned)), ("b", closed(Closed::NotReady)), ("c", tainted)])
        .model("stays", running(40, "a", 10))
        .model("new", model(40))
        .model("tolerates", Model { tolerations: vec!["nvidia.com/gpu".to_owned()], ..model(70) });
    let ledger = case.decided();
    assert_eq!(steps(&ledger), ["tolerates on c: Admitted"]);
    assert_eq!(waiting(&ledger, "new").node, None);
}

#[test]
fn a_request_evicts_the_idle_model_that_is_worth_least_and_the_waiting_one_says_whom_it_waits_for() {
    let woken = Model { activity: Activity { waiting: 1, last_request: Some(NOW), ..asleep(40).activity }, ..asleep(40) };
    let case =
        Case::nodes([("n", node(100))]).model("old", running(50, "n", 500)).model("new", running(50, "n", 100)).model("woken", woken);
    let ledger = case.decided();
    assert_eq!(steps(&ledger), ["old drains for ml/woken"]);
    let found = waiting(&ledger, "woken");
    assert!(found.is_coming && found.node.as_deref() == Some("n"));
    assert_eq!((found.blockers[0].model.name.as_str(), found.blockers[0].idle, found.blockers[0].stays), ("old", 500, Stays::Leaving));
}

#[test]
fn nobody_goes_who_is_busy_starts_was_never_seen_or_has_just_come() {
    let with = |activity: Activity| Model { activity, ..running(25, "n", 500) };
    let base = running(25, "n", 500).activity;
    let case = Case::nodes([("n", node(100))])
        .model("busy", with(Activity { in_flight: 1, ..base.clone() }))
        .model("starts", with(Activity { ready_since: None, ..base.clone() }))
        .model("unseen", with(Activity { last_request: None, ..base.clone() }))
        .model("resident", with(Activity { ready_since: Some(NOW - 299), last_request: Some(NOW - 298), ..base }))
        .model("woken", Model { activity: Activity { waiting: 1, ..asleep(20).activity }, priority: 9.0, ..asleep(20) });
    let ledger = case.decided();
    assert_eq!(ledger.steps, []);
    let found = waiting(&ledger, "woken");
    assert!(!found.is_coming && found.blockers.len() == 3, "{found:?}");
    let Entry::Placed { unseen, .. } = ledger.entries[&key("unseen")] else { panic!("{ledger:?}") };
    assert!(unseen);
}

#[test]
fn an_idle_model_sleeps_after_its_cooldown_and_is_released_once_its_pods_are_gone() {
    let with = |phase: Phase, activity: Activity, pods: bool| {
        let mut model = running(40, "n", 700);
        model.held.as_mut().unwrap().phase = phase;
        model.activity = Activity { ..activity };
        if !pods {
            model.pods.clear();
        }
        steps(&Case::nodes([("n", node(100))]).model("a", model).decided())
    };
    let base = running(40, "n", 700).activity;
    let idle = Phase::Draining(SleepReason::Idle);
    assert_eq!(with(Phase::Admitted, base.clone(), true), ["a on n: Draining(Idle)"]);
    assert_eq!(with(Phase::Admitted, Activity { last_request: Some(NOW - 599), ..base.clone() }, true), [""; 0]);
    assert_eq!(with(idle.clone(), base.clone(), true), [""; 0], "no gateway has confirmed it");
    assert_eq!(with(idle.clone(), Activity { drained: true, ..base.clone() }, true), ["a on n: Stopping"]);
    assert_eq!(with(idle, Activity { waiting: 1, ..base.clone() }, true), ["a on n: Admitted"], "somebody asks for it again");
    let stopped = Activity { scaled_to_zero: true, ready_since: None, ..base };
    assert_eq!(with(Phase::Stopping, stopped.clone(), true), [""; 0], "its pod is there still");
    assert_eq!(with(Phase::Stopping, stopped, false), ["a released"]);
}

#[test]
fn overlapping_pools_share_the_memory_of_the_nodes_that_they_share() {
    let both = Node {
        labels: [pool("default"), BTreeMap::from([("gpu".to_owned(), "a100".to_owned())])].into_iter().flatten().collect(),
        ..node(100)
    };
    let by_gpu = |gib| Model { selector: BTreeMap::from([("gpu".to_owned(), "a100".to_owned())]), ..model(gib) };
    let ledger = Case::nodes([("n", both)]).model("a", model(60)).model("b", by_gpu(60)).decided();
    assert_eq!(steps(&ledger).len(), 1);
    let waits = ledger.entries.values().filter(|entry| matches!(entry, Entry::Waiting(waiting) if !waiting.is_coming)).count();
    assert_eq!(waits, 1);
}

#[test]
fn dependencies_are_admitted_together_or_not_at_all_and_start_first() {
    let needs = |gib, names: &[&str]| Model { dependencies: names.iter().map(ToString::to_string).collect(), ..model(gib) };
    let needed = |gib| Model { activity: asleep(1).activity, ..model(gib) };
    let case = |gib| Case::nodes([("n", node(100))]).model("chat", needs(40, &["tokens"])).model("tokens", needed(gib));
    let ledger = case(60).decided();
    assert_eq!(steps(&ledger), ["tokens on n: Admitted", "chat on n: Admitted"]);
    assert!(ledger.steps.iter().all(|step| step.with == key("chat")), "written together");
    let ledger = case(61).decided();
    assert_eq!(ledger.steps, []);
    assert!(matches!(&ledger.entries[&key("tokens")], Entry::Waiting(_)));

    let running = Case::nodes([("n", node(100))])
        .model("chat", Model { dependencies: vec!["tokens".to_owned()], ..running(40, "n", 10) })
        .model("tokens", running(40, "n", 900));
    assert_eq!(running.decided().steps, [], "it is needed, however long nobody has asked for it");
}

#[test]
fn circles_and_unknown_names_are_refused_with_the_path() {
    let needs = |names: &[&str]| Model { dependencies: names.iter().map(ToString::to_string).collect(), ..model(1) };
    let ledger = Case::nodes([("n", node(100))])
        .model("a", needs(&["b"]))
        .model("b", needs(&["c"]))
        .model("c", needs(&["b"]))
        .model("d", needs(&["e"]))
        .model("e", needs(&["nobody"]))
        .model("f", needs(&["off"]))
        .model("off", Model { off: true, ..model(1) })
        .decided();
    let path = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let refused = |name: &str| match &ledger.entries[&key(name)] {
        Entry::Refused(refusal) => refusal.clone(),
        entry => panic!("{name}: {entry:?}"),
    };
    assert_eq!(refused("a"), Refusal::Circle(path(&["a", "b", "c", "b"])));
    assert_eq!(refused("b"), Refusal::Circle(path(&["b", "c", "b"])));
    assert_eq!(refused("c"), Refusal::Circle(path(&["c", "b", "c"])));
    assert_eq!(refused("d"), Refusal::UnknownDependency(path(&["d", "e", "nobody"])));
    assert_eq!(refused("f"), Refusal::DependencyOff(path(&["f", "off"])));
    assert_eq!(ledger.entries[&key("off")], Entry::Asleep);
}

#[test]
fn of_two_models_with_one_name_the_older_has_it() {
    let ledger = {
        let mut case = Case::nodes([("n", node(100))]).model("a", model(1)).model("b", Model { created: NOW - 9000, ..model(1) });
        case.models.get_mut(&key("a")).unwrap().name = "b".to_owned();
        case.decided()
    };
    assert_eq!(ledger.entries[&key("a")], Entry::Refused(Refusal::NameTaken(key("b"))));
    assert_eq!(steps(&ledger), ["b on n: Admitted"]);
}

#[test]
fn a_node_that_shrinks_is_relieved_and_what_was_written_of_a_running_model_is_recovered() {
    let case = Case::nodes([("n", Node { memory_budget: Some(60 * GIB), ..node(100) })])
        .model("a", running(50, "n", 500))
        .model("b", running(50, "n", 100));
    assert_eq!(steps(&case.decided()), ["a on n: Draining(Overcommitted)"]);

    let lost = Model { held: None, ..running(50, "n", 10) };
    let ledger = Case::nodes([("n", node(100))]).model("a", lost).model("b", model(60)).decided();
    assert_eq!(steps(&ledger), ["a on n: Admitted"]);
    assert!(!waiting(&ledger, "b").is_coming);
}

#[test]
fn a_reservation_shrinks_once_the_smaller_pod_runs_and_grows_only_into_what_is_free() {
    // The node has 60 GiB, and another model takes 40 of them.
    let reserved = |held: i64, pods: &[i64], needs: i64| {
        let pods = pods.iter().map(|gib| ("n".to_owned(), memory(*gib))).collect();
        let mut changed = Model { needs: memory(needs), pods, ..running(held, "n", 10) };
        changed.held.as_mut().unwrap().since = 7;
        let case = Case::nodes([("n", node(60))]).model("a", changed).model("b", running(40, "n", 10));
        let ledger = case.decided();
        let [step] = &ledger.steps[..] else { return held };
        assert_eq!((&step.model, step.held.as_ref().unwrap().since), (&key("a"), 7));
        step.held.as_ref().unwrap().amounts.memory / GIB
    };
    // The spec now requests less. Until the pod is replaced, no other model may get its memory; if the spec requests more again, nothing
    // has changed.
    assert_eq!(reserved(20, &[20], 10), 20);
    assert_eq!(reserved(20, &[], 10), 20, "a pod of what it needed before may come yet");
    assert_eq!(reserved(20, &[10], 10), 10);
    assert_eq!(reserved(10, &[10], 20), 20);
    assert_eq!(reserved(10, &[10], 30), 10);
    // The recovered reservation is what the running pod takes, not what the current spec requests.
    let lost = Model { held: None, needs: memory(30), ..running(20, "n", 10) };
    let ledger = Case::nodes([("n", node(60))]).model("a", lost).model("b", running(40, "n", 10)).decided();
    assert_eq!(ledger.steps[0].held.as_ref().unwrap().amounts, memory(20));
}

#[test]
fn a_model_that_moves_takes_those_along_that_depend_on_it_and_is_not_called_back_for_them() {
    let chat = Model { dependencies: vec!["tokens".to_owned()], ..running(20, "a", 10) };
    let with_phases = |phase: &Phase, selector: BTreeMap<String, String>| {
        let mut case = Case::nodes([("a", node(60)), ("b", Node { labels: pool("other"), ..node(60) })])
            .model("chat", chat.clone())
            .model("tokens", Model { selector, ..running(30, "a", 10) })
            .model("alone", running(10, "a", 10));
        for name in ["chat", "tokens"] {
            case.models.get_mut(&key(name)).unwrap().held.as_mut().unwrap().phase = phase.clone();
        }
        case.decided()
    };
    assert_eq!(with_phases(&Phase::Admitted, pool("default")).steps, []);
    // The selector has changed, and another node has capacity.
    let ledger = with_phases(&Phase::Admitted, pool("other"));
    assert_eq!(steps(&ledger), ["chat on a: Draining(Misplaced)", "tokens on a: Draining(Misplaced)"]);
    assert!(ledger.steps.iter().all(|step| step.with == key("tokens")));
    let draining = Phase::Draining(SleepReason::Misplaced);
    assert_eq!(with_phases(&draining, pool("other")).steps, [], "one decision leads to no other that takes it back");
    // A model's own pending step is written first.
    let grown = Model { needs: memory(25), ..chat.clone() };
    let case = Case::nodes([("a", node(60)), ("b", Node { labels: pool("other"), ..node(60) })])
        .model("chat", grown)
        .model("tokens", Model { selector: pool("other"), ..running(30, "a", 10) });
    assert_eq!(steps(&case.decided()), ["chat on a: Admitted"]);
}
