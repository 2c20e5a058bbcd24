mod starting_over;

use super::*;
use crate::placement::{Gang, Node, fit::Rules};
use serde_json::json;

const GPU: &str = "nvidia.com/gpu";
const TIMEOUT: u64 = 60;

/// A cluster with a scheduler that takes the first fitting node.
struct World {
    cluster: Cluster,
    reservations: Reservations,
    now: u64,
    /// How often nodes were ordered.
    ordered: usize,
    /// The nodes that policies exclude.
    excluded: Vec<&'static str>,
}

fn node(gpus: i64) -> Node {
    Node { allocatable: Resources::from_iter([("cpu", 64_000), (GPU, gpus), ("pods", 110)]), ..Node::default() }
}

fn pod(name: &str, gpus: i64) -> Pod {
    Pod {
        uid: format!("{name}-uid"),
        namespace: "ml".to_owned(),
        name: name.to_owned(),
        requests: Resources::from_iter([("cpu", 1000), (GPU, gpus), ("pods", 1)]),
        ..Pod::default()
    }
}

/// Creates a member. The first one is the leader.
fn member(gang: &str, at: usize, size: usize, gpus: i64) -> Pod {
    let gang_of = Gang { name: gang.to_owned(), size, leads: at == 0, native: false };
    Pod { gang: Some(gang_of), has_controller: true, ..pod(&format!("{gang}{at}"), gpus) }
}

fn waits(text: &str) -> Verdict {
    Verdict::Wait(format!("the gang {text}"))
}

fn goes_to(node: &str) -> Verdict {
    Verdict::Node(node.to_owned())
}

fn question<'q>(cluster: &'q Cluster, pod: &'q Pod, now: u64) -> Question<'q> {
    Question { cluster, pod, now, timeout: TIMEOUT, offered: &|_| true, is_late: &|| false }
}

impl World {
    /// Creates nodes n0, n1 and so on, with these numbers of accelerators.
    fn new(nodes: &[i64]) -> Self {
        let mut cluster = Cluster::default();
        for (at, gpus) in nodes.iter().enumerate() {
            cluster.put_node(&format!("n{at}"), node(*gpus));
        }
        Self { cluster, reservations: Reservations::default(), now: 1000, ordered: 0, excluded: Vec::new() }
    }

    /// Creates all members of a gang, with these numbers of accelerators.
    fn create(&mut self, gang: &str, gpus: &[i64]) {
        for (at, number) in gpus.iter().enumerate() {
            self.cluster.put_pod(member(gang, at, gpus.len(), *number));
        }
    }

    fn ask(&mut self, name: &str) -> Verdict {
        self.ask_among(name, &|_| true)
    }

    fn ask_among(&mut self, name: &str, offered: &dyn Fn(&str) -> bool) -> Verdict {
        let pod = self.cluster.pod("ml", name).unwrap().clone();
        let Self { cluster, reservations, now, ordered, excluded } = self;
        let mut place = |_: &Cluster, _: &Pod, nodes: &[&str], _: &dyn Fn(&str) -> Option<Resources>| -> Vec<String> {
            *ordered += 1;
            nodes.iter().filter(|node| !excluded.contains(*node)).map(|node| (*node).to_owned()).collect()
        };
        reservations.decide(Question { offered, ..question(cluster, &pod, *now) }, &mut place)
    }

    /// Asks about a pod, and binds it to the node.
    fn bind(&mut self, name: &str) -> String {
        let verdict = self.ask(name);
        let Verdict::Node(node) = verdict else { panic!("{name}: {verdict:?}") };
        self.put_on(name, &node);
        node
    }

    fn put_on(&mut self, name: &str, node: &str) {
        let pod = self.cluster.pod("ml", name).unwrap().clone();
        self.cluster.put_pod(Pod { node: node.to_owned(), ..pod });
    }

    /// A pod of another scheduler takes a node, regardless of reservations.
    fn take(&mut self, node: &str, gpus: i64) {
        self.cluster.put_pod(Pod { node: node.to_owned(), ..pod(&format!("taker-of-{node}"), gpus) });
    }

    fn expire(&mut self) -> Vec<Overdue> {
        self.reservations.expire(&self.cluster, self.now, TIMEOUT, Some(&|_| false))
    }

    /// The number of accelerators that are reserved on a node.
    fn held(&self, node: &str) -> i64 {
        self.reservations.held(&self.cluster, node, &pod("nobody", 0)).map_or(0, |held| held.get(GPU))
    }
}

#[test]
fn members_get_their_nodes_once_all_of_them_exist() {
    let mut world = World::new(&[4, 4]);
    world.cluster.put_pod(member("g", 0, 3, 2));
    assert_eq!(world.ask("g0"), waits("g waits: 1 of 3 members exist"));
    assert_eq!(world.ordered, 0);
    world.create("g", &[2, 2, 2]);
    assert_eq!(world.ask("g2"), goes_to("n1"));
    assert_eq!((world.held("n0"), world.held("n1"), world.ordered), (4, 2, 3));
    let itself = world.cluster.pod("ml", "g2").unwrap();
    assert_eq!(world.reservations.held(&world.cluster, "n1", itself), None);
    assert_eq!(world.reservations.places("ml", "g").collect::<Vec<_>>(), [("g0", "n0"), ("g1", "n0"), ("g2", "n1")]);
    assert_eq!(["g0", "g2", "g1"].map(|name| world.bind(name)), ["n0", "n1", "n0"]);
    assert_eq!(world.ordered, 3, "what is reserved is answered without a trial");
    assert!(world.expire().is_empty());
    assert_eq!((world.held("n0"), world.reservations.next_expiry()), (0, None));
}

#[test]
fn nothing_is_reserved_for_pods_outside_of_gangs() {
    let mut world = World::new(&[4]);
    world.cluster.put_pod(pod("alone", 1));
    assert_eq!(world.ask("alone"), Verdict::Free);
    let mut native = member("g", 0, 2, 1);
    native.gang.as_mut().unwrap().native = true;
    world.cluster.put_pod(native);
    assert_eq!(world.ask("g0"), Verdict::Free);
    let off = member("h", 0, 2, 1);
    let mut place = |_: &Cluster, _: &Pod, _: &[&str], _: &dyn Fn(&str) -> Option<Resources>| -> Vec<String> { Vec::new() };
    assert_eq!(world.reservations.decide(Question { timeout: 0, ..question(&world.cluster, &off, 1000) }, &mut place), Verdict::Free);
}

#[test]
fn a_gang_that_fits_in_part_holds_nothing_and_is_tried_again_once_something_has_changed() {
    let mut world = World::new(&[4]);
    world.create("g", &[2, 2, 2]);
    let lacks = "the node doesn't have enough free nvidia.com/gpu (1 node)";
    assert_eq!(world.ask("g0"), waits(&format!("g waits: 2 of 3 fit; member g2 finds no node: {lacks}")));
    assert_eq!((world.held("n0"), world.ordered), (0, 0), "no policy is asked where there isn't enough room");
    world.cluster.put_node("n1", node(2));
    world.excluded.push("n1");
    let excluded = waits("g waits: 2 of 3 fit; member g2 finds no node: policies exclude the node that fits");
    assert_eq!((world.ask("g0"), world.ordered), (excluded.clone(), 3));
    assert_eq!((world.ask("g1"), world.ordered), (excluded, 3), "nothing has changed");
    world.excluded.clear();
    world.reservations.retry();
    assert_eq!(world.ask("g1"), goes_to("n0"));
    assert_eq!(world.held("n1"), 2);
}

#[test]
fn members_that_need_more_find_their_nodes_too() {
    let mut world = World::new(&[4, 2]);
    // If the leader goes first, it takes the only node on which the large member fits: so the large member must go first.
    world.create("g", &[1, 1, 4]);
    assert_eq!(world.ask("g0"), goes_to("n1"));
    assert_eq!(world.reservations.places("ml", "g").collect::<Vec<_>>(), [("g0", "n1"), ("g1", "n1"), ("g2", "n0")]);
    assert_eq!(world.ordered, 4);
}

#[test]
fn followers_go_near_to_their_leader() {
    let mut world = World::new(&[]);
    for (name, zone) in [("n0", "a"), ("n1", "b"), ("n2", "b")] {
        let labels = [("zone".to_owned(), zone.to_owned())];
        world.cluster.put_node(name, Node { labels: labels.into(), ..node(2) });
    }
    world.excluded.push("n0");
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"role": "leader"}}});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let rules = Arc::new(Rules::from_spec(&json!({"affinity": affinity})));
    world.cluster.put_pod(Pod { labels: [("role".to_owned(), "leader".to_owned())].into(), ..member("g", 0, 2, 2) });
    world.cluster.put_pod(Pod { rules, ..member("g", 1, 2, 2) });
    assert_eq!((world.bind("g0"), world.bind("g1")), ("n1".to_owned(), "n2".to_owned()));
}

#[test]
fn the_room_of_a_member_that_is_deleted_is_kept_for_its_successor() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.bind("g0"), "n0");
    world.cluster.remove_pod("ml", "g1");
    assert!(world.expire().is_empty());
    world.cluster.put_pod(pod("other", 1));
    let other = world.cluster.pod("ml", "other").unwrap();
    assert_eq!(world.reservations.broken_by(&world.cluster, other, "n1"), Some(("ml".to_owned(), "g".to_owned())));
    world.cluster.put_pod(Pod { uid: "successor".to_owned(), ..member("g", 1, 2, 2) });
    assert_eq!(world.ask("g1"), goes_to("n1"));
    for name in ["g0", "g1"] {
        world.cluster.remove_pod("ml", name);
    }
    assert!(world.expire().is_empty());
    assert_eq!((world.held("n1"), world.reservations.next_expiry()), (0, None), "the gang is gone");
}

#[test]
fn a_member_that_is_gone_is_waited_for() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.ask("g0"), goes_to("n0"));
    world.cluster.put_pod(Pod { is_leaving: true, ..member("g", 1, 2, 2) });
    assert_eq!(world.ask("g0"), waits("g waits: 1 of 2 members exist"));
    assert_eq!(world.ask("g1"), waits("g waits: g1 is being deleted"));
    world.cluster.put_pod(Pod { uid: "successor".to_owned(), ..member("g", 1, 2, 2) });
    assert_eq!((world.ask("g0"), world.ask("g1")), (goes_to("n0"), goes_to("n1")));
}

#[test]
fn the_rest_is_tried_again_when_a_reserved_node_is_gone_or_cordoned() {
    let mut world = World::new(&[2, 2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.ask("g1"), goes_to("n1"));
    world.cluster.remove_node("n1");
    assert_eq!((world.ask("g0"), world.ask("g1")), (goes_to("n0"), goes_to("n2")));
    world.cluster.put_node("n0", Node { unschedulable: true, ..node(2) });
    let lacks = "the node doesn't have enough free nvidia.com/gpu (1 node), the node is cordoned (1 node)";
    let Verdict::Wait(text) = world.ask("g1") else { panic!("the gang no longer fits") };
    assert!(text.starts_with("the gang g waits: 1 of 2 fit; member g1 finds no node: "), "{text}");
    assert!(lacks.split(", ").all(|reason| text.contains(reason)), "{text}");
    assert_eq!((world.held("n0"), world.held("n2")), (0, 0));
}

#[test]
fn the_rest_is_tried_again_when_another_scheduler_takes_the_room() {
    let mut world = World::new(&[2, 2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.ask("g0"), goes_to("n0"));
    world.take("n1", 1);
    assert_eq!((world.bind("g0"), world.bind("g1")), ("n0".to_owned(), "n2".to_owned()));
}

#[test]
fn pods_that_take_nothing_of_what_is_held_may_go_anywhere() {
    let mut world = World::new(&[4]);
    world.create("g", &[1, 1]);
    assert_eq!(world.ask("g0"), goes_to("n0"));
    let broken = |gpus: i64, cpu: i64| {
        let requests = Resources::from_iter([("cpu", cpu), (GPU, gpus)]);
        world.reservations.broken_by(&world.cluster, &Pod { requests, ..pod("other", 0) }, "n0")
    };
    assert_eq!((broken(2, 1000), broken(0, 62_000)), (None, None));
    let gang = ("ml".to_owned(), "g".to_owned());
    assert_eq!((broken(3, 1000), broken(0, 62_001)), (Some(gang.clone()), Some(gang)));
    let elsewhere = pod("other", 4);
    assert_eq!(world.reservations.broken_by(&world.cluster, &elsewhere, "n1"), None, "there is no such node");
}

#[test]
fn after_a_restart_members_that_are_bound_keep_their_nodes() {
    let mut world = World::new(&[2, 2, 2]);
    world.create("g", &[2, 2, 2]);
    assert_eq!(world.bind("g1"), "n1");
    world.reservations = Reservations::default();
    world.take("n0", 2);
    world.cluster.put_node("n3", node(2));
    assert_eq!((world.ask("g2"), world.ask("g1")), (goes_to("n3"), goes_to("n1")));
    assert_eq!(world.reservations.places("ml", "g").collect::<Vec<_>>(), [("g0", "n2"), ("g2", "n3")]);
}

#[test]
fn of_two_gangs_the_first_that_fits_gets_the_nodes_until_its_time_is_up() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    world.create("h", &[1, 2]);
    assert_eq!(world.ask("h1"), goes_to("n1"));
    assert_eq!((world.held("n0"), world.held("n1")), (1, 2));
    let Verdict::Wait(text) = world.ask("g0") else { panic!("both got the nodes") };
    assert!(text.starts_with("the gang g waits: 0 of 2 fit; member g0 finds no node: "), "{text}");
    assert_eq!(world.reservations.next_expiry(), Some(1060));
    world.now = 1059;
    assert!(world.expire().is_empty());
    assert!(matches!(world.ask("g0"), Verdict::Wait(_)));
    world.now = 1060;
    assert!(world.expire().is_empty());
    assert_eq!(world.ask("g0"), goes_to("n0"));
    assert!(matches!(world.ask("h1"), Verdict::Wait(_)));
}

#[test]
fn policies_see_what_earlier_members_take_and_what_other_gangs_hold() {
    let mut world = World::new(&[4]);
    world.create("h", &[1, 1]);
    assert_eq!(world.ask("h0"), goes_to("n0"));
    world.create("g", &[1, 1]);
    let mut seen = Vec::new();
    let mut place = |trial: &Cluster, pod: &Pod, nodes: &[&str], held: &dyn Fn(&str) -> Option<Resources>| -> Vec<String> {
        let free = trial.node("n0").unwrap().free_amount(GPU);
        seen.push((pod.name.clone(), free, held("n0").map(|held| held.get(GPU))));
        nodes.iter().map(|node| (*node).to_owned()).collect()
    };
    let asked = world.cluster.pod("ml", "g1").unwrap();
    assert_eq!(world.reservations.decide(question(&world.cluster, asked, 1000), &mut place), goes_to("n0"));
    assert_eq!(seen, [("g0".to_owned(), 4, Some(2)), ("g1".to_owned(), 3, Some(2))]);
}

#[test]
fn the_largest_size_counts_and_members_beyond_it_are_free_once_the_gang_is_placed() {
    let mut world = World::new(&[2, 2, 2]);
    world.cluster.put_pod(member("g", 0, 2, 2));
    world.cluster.put_pod(member("g", 1, 3, 2));
    let text = "g waits: 2 of 3 members exist; members specify sizes from 2 to 3; the largest is used";
    assert_eq!(world.ask("g0"), waits(text));
    for at in 0..3 {
        world.cluster.put_pod(member("g", at, 2, 2));
    }
    assert_eq!(world.ask("g2"), waits("g waits: its 2 members take precedence over this pod"));
    assert_eq!((world.bind("g0"), world.bind("g1")), ("n0".to_owned(), "n1".to_owned()));
    assert_eq!(world.ask("g2"), Verdict::Free);
}

#[test]
fn a_member_too_many_does_not_keep_the_others_waiting() {
    let mut world = World::new(&[2, 2]);
    for (at, gpus) in [(1, 9), (2, 2), (3, 2)] {
        world.cluster.put_pod(member("g", at, 2, gpus));
    }
    assert_eq!((world.ask("g2"), world.ask("g3")), (goes_to("n0"), goes_to("n1")));
    assert_eq!(world.ask("g1"), waits("g waits: its 2 members take precedence over this pod"));
}

#[test]
fn a_pod_of_a_higher_priority_is_not_kept_off_and_nothing_is_returned_where_no_gang_starts_over() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.bind("g0"), "n0");
    assert_eq!(world.ask("g1"), goes_to("n1"));
    let broken = |world: &World, priority: i32| world.reservations.broken_by(&world.cluster, &Pod { priority, ..pod("other", 2) }, "n1");
    assert_eq!((broken(&world, 0).is_some(), broken(&world, 1).is_some()), (true, false));
    world.now = 5000;
    assert!(world.reservations.expire(&world.cluster, world.now, TIMEOUT, None).is_empty());
}

#[test]
fn members_that_no_scheduler_or_another_one_places_do_not_exist_yet() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    let gated = Pod { is_gated: true, ..world.cluster.pod("ml", "g1").unwrap().clone() };
    world.cluster.put_pod(gated.clone());
    assert_eq!(world.ask("g0"), waits("g waits: 1 of 2 members exist"));
    world.cluster.put_pod(Pod { is_gated: false, scheduler: "another".to_owned(), ..gated.clone() });
    assert_eq!(world.ask("g0"), waits("g waits: 1 of 2 members exist"));
    world.cluster.put_pod(Pod { is_gated: false, ..gated });
    assert_eq!(world.ask("g0"), goes_to("n0"));
}

#[test]
fn a_surplus_member_of_another_scheduler_takes_no_node_of_the_others() {
    let mut world = World::new(&[2, 2]);
    for at in [1, 2] {
        world.cluster.put_pod(member("g", at, 2, 1));
    }
    // It needs the most, so it would be placed first.
    world.cluster.put_pod(Pod { scheduler: "another".to_owned(), ..member("g", 0, 2, 2) });
    assert_eq!((world.ask("g1"), world.ask("g2")), (goes_to("n0"), goes_to("n0")));
}

#[test]
fn a_member_whose_node_is_not_offered_gets_another() {
    let mut world = World::new(&[2, 2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!((world.ask("g0"), world.ask_among("g1", &|node| node == "n2")), (goes_to("n0"), goes_to("n2")));
    let refused = waits("g waits: the scheduler doesn't offer the node n2, which is reserved for this member");
    assert_eq!(world.ask_among("g1", &|_| false), refused);
    assert_eq!(world.held("n2"), 2, "the others can still be bound");
    // If a member wasn't offered its node, the trials of the others don't put it there either.
    assert_eq!(world.ask_among("g0", &|node| node == "n1"), goes_to("n1"));
    assert_eq!(world.reservations.places("ml", "g").collect::<Vec<_>>(), [("g0", "n1"), ("g1", "n0")]);
    // A failure that depends on the offered nodes is tried again each time.
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    let text = "g waits: 0 of 2 fit; member g0 finds no node: the scheduler offers none of the 2 nodes that fit";
    assert_eq!(world.ask_among("g0", &|_| false), waits(text));
    assert_eq!(world.ask("g0"), goes_to("n0"));
}

#[test]
fn a_pod_that_was_assumed_in_vain_gets_the_same_node_again() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.ask("g1"), goes_to("n1"));
    world.cluster.assume("ml", "g1", "n1");
    assert_eq!((world.held("n0"), world.held("n1")), (2, 0), "what is assumed is taken");
    assert!(world.expire().is_empty());
    assert_eq!(world.ask("g1"), goes_to("n1"));
    // Its reservation has expired, and the assumed node is void too.
    world.now += TIMEOUT;
    assert_eq!((world.ask("g1"), world.ask("g0")), (goes_to("n1"), goes_to("n0")));
    assert_eq!(world.reservations.next_expiry(), Some(1000 + 2 * TIMEOUT));
}

#[test]
fn a_pod_that_no_watch_has_shown_yet_is_a_member() {
    let mut world = World::new(&[2, 2]);
    world.cluster.put_pod(member("g", 0, 2, 2));
    let unseen = member("g", 1, 2, 2);
    let mut place = |_: &Cluster, _: &Pod, nodes: &[&str], _: &dyn Fn(&str) -> Option<Resources>| -> Vec<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    };
    assert_eq!(world.reservations.decide(question(&world.cluster, &unseen, 1000), &mut place), goes_to("n1"));
    world.cluster.put_pod(unseen);
    assert_eq!((world.ask("g1"), world.ask("g0")), (goes_to("n1"), goes_to("n0")));
}

#[test]
fn turned_off_nothing_is_held() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.ask("g0"), goes_to("n0"));
    assert!(world.reservations.expire(&world.cluster, 1000, 0, Some(&|_| false)).is_empty());
    assert_eq!((world.held("n0"), world.reservations.next_expiry()), (0, None));
}

#[test]
fn a_search_that_takes_too_long_goes_on_with_the_next_question() {
    let mut world = World::new(&[2, 2, 2]);
    world.create("g", &[2, 2, 2]);
    let late = |world: &mut World, name: &str, most: usize| {
        let pod = world.cluster.pod("ml", name).unwrap().clone();
        let ordered = std::cell::Cell::new(0);
        let mut place = |_: &Cluster, _: &Pod, nodes: &[&str], _: &dyn Fn(&str) -> Option<Resources>| -> Vec<String> {
            ordered.set(ordered.get() + 1);
            nodes.iter().map(|node| (*node).to_owned()).collect()
        };
        let asked = Question { is_late: &|| ordered.get() >= most, ..question(&world.cluster, &pod, world.now) };
        let verdict = world.reservations.decide(asked, &mut place);
        (verdict, ordered.get())
    };
    // Even an answer that is due at once finds a node for one more member.
    let first = late(&mut world, "g1", 0);
    assert_eq!(first, (waits("g waits: nodes are found for 1 of 3, and the search continues"), 1));
    assert!(world.reservations.is_searching("ml", "g"));
    assert_eq!(world.held("n0"), 0, "nothing is reserved for a gang that waits");
    let second = late(&mut world, "g2", 1);
    assert_eq!(second, (waits("g waits: nodes are found for 2 of 3, and the search continues"), 1));
    assert_eq!(late(&mut world, "g0", 1), (goes_to("n0"), 1));
    assert!(!world.reservations.is_searching("ml", "g"));
    assert_eq!((world.bind("g1"), world.bind("g2")), ("n1".to_owned(), "n2".to_owned()));
    // Nodes that were found may be taken before the next question.
    let mut world = World::new(&[2, 2, 2]);
    world.create("g", &[2, 2]);
    assert!(matches!(late(&mut world, "g0", 0).0, Verdict::Wait(_)));
    world.take("n0", 2);
    assert_eq!(late(&mut world, "g0", 2), (goes_to("n1"), 2));
}

#[test]
fn a_gang_that_was_whole_takes_members_back_although_others_have_ended() {
    let mut world = World::new(&[2, 2, 2]);
    world.create("g", &[2, 2, 2]);
    let nodes = [world.bind("g0"), world.bind("g1"), world.bind("g2")];
    assert_eq!(nodes, ["n0", "n1", "n2"]);
    assert!(world.expire().is_empty());
    world.cluster.remove_pod("ml", "g2");
    world.cluster.put_pod(Pod { uid: "successor".to_owned(), ..member("g", 1, 3, 2) });
    assert_eq!(world.ask("g1"), goes_to("n1"));
}

#[test]
fn a_leader_whose_workers_are_created_later_goes_first_and_the_workers_together() {
    let mut world = World::new(&[2, 2, 2]);
    world.cluster.put_pod(member("g", 0, 3, 2));
    assert_eq!(world.ask("g0"), waits("g waits: 1 of 3 members exist"));
    world.reservations.put_leader_first("ml", "g");
    assert_eq!(world.ask("g0"), Verdict::Free);
    world.cluster.put_pod(Pod { is_ready: true, node: "n1".to_owned(), ..member("g", 0, 3, 2) });
    assert!(world.expire().is_empty());
    world.now += 10 * TIMEOUT;
    assert!(world.expire().is_empty(), "nobody waits for a node");
    world.cluster.put_pod(member("g", 1, 3, 2));
    assert_eq!(world.ask("g1"), waits("g waits: 2 of 3 members exist"));
    world.cluster.put_pod(member("g", 2, 3, 2));
    assert_eq!((world.bind("g1"), world.bind("g2")), ("n0".to_owned(), "n2".to_owned()));
}

#[test]
fn what_becomes_free_without_an_event_is_counted_and_what_is_bound_is_not() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.ask("g0"), goes_to("n0"));
    let before = world.reservations.freed();
    assert_eq!(world.bind("g0"), "n0");
    assert!(world.expire().is_empty());
    assert_eq!(world.reservations.freed(), before);
    world.now += TIMEOUT;
    world.reservations.drop_late(world.now);
    assert_eq!((world.held("n1"), world.reservations.freed()), (0, before + 1));
    world.reservations.drop_late(world.now);
    assert_eq!(world.reservations.freed(), before + 1);
}
