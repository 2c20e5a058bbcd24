//! Gangs that stay partly placed, and which of them restart.

use super::{super::watched::DELETION_DELAY, *};

#[test]
fn a_gang_of_ours_that_nobody_asks_about_starts_again_too() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    world.put_on("g0", "n0");
    let expire =
        |world: &mut World, now: u64, is_ours: bool| world.reservations.expire(&world.cluster, now, TIMEOUT, Some(&|_| is_ours)).len();
    assert_eq!((expire(&mut world, 1000, false), expire(&mut world, 2000, false)), (0, 0), "it is another scheduler's");
    // The time starts when it is first seen partly placed.
    world.put_on("g0", "n1");
    assert_eq!(expire(&mut world, 1059, true), 0);
    assert_eq!(expire(&mut world, 1060, true), 1);
}

#[test]
fn a_gang_that_stays_placed_in_part_starts_again() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!(world.bind("g0"), "n0");
    world.take("n1", 2);
    assert!(world.expire().is_empty());
    assert!(matches!(world.ask("g1"), Verdict::Wait(_)));
    assert_eq!(world.reservations.next_expiry(), Some(1060));
    world.now = 1059;
    assert!(world.expire().is_empty());
    world.now = 1060;
    let placed = vec![("ml".to_owned(), "g0".to_owned(), "g0-uid".to_owned())];
    let overdue = Overdue { namespace: "ml".to_owned(), gang: "g".to_owned(), size: 2, placed, irreplaceable: None };
    assert_eq!(world.expire(), std::slice::from_ref(&overdue));
    assert!(world.expire().is_empty(), "it is returned once");
    world.cluster.remove_pod("ml", "taker-of-n1");
    assert_eq!(world.ask("g1"), waits("g waits: its placed members are being deleted, so that it can restart"));
    // The deletion fails: until then the rest may be placed, and after the same time the gang is returned again.
    world.now += DELETION_DELAY;
    assert_eq!(world.ask("g1"), goes_to("n1"));
    world.now = 1120;
    assert_eq!(world.expire(), [overdue]);
    assert_eq!(world.held("n1"), 0);
    world.cluster.put_pod(Pod { uid: "successor".to_owned(), ..member("g", 0, 2, 2) });
    assert!(world.expire().is_empty());
    assert_eq!((world.bind("g0"), world.bind("g1")), ("n0".to_owned(), "n1".to_owned()));
}

#[test]
fn a_gang_that_was_whole_is_not_dissolved() {
    let mut world = World::new(&[2, 2]);
    world.create("g", &[2, 2]);
    assert_eq!((world.bind("g0"), world.bind("g1")), ("n0".to_owned(), "n1".to_owned()));
    assert!(world.expire().is_empty());
    world.cluster.put_pod(Pod { uid: "successor".to_owned(), ..member("g", 1, 2, 2) });
    world.take("n1", 2);
    assert!(matches!(world.ask("g1"), Verdict::Wait(_)));
    world.now += 10 * TIMEOUT;
    assert!(world.expire().is_empty());
    // A restart loses the record that it was complete. A Ready member proves it.
    world.reservations = Reservations::default();
    let first = world.cluster.pod("ml", "g0").unwrap().clone();
    world.cluster.put_pod(Pod { is_ready: true, ..first.clone() });
    assert!(matches!(world.ask("g1"), Verdict::Wait(_)));
    world.cluster.put_pod(first);
    world.now += 10 * TIMEOUT;
    assert!(world.expire().is_empty(), "it was Ready");
}

#[test]
fn only_gangs_that_the_scheduler_asks_about_are_dissolved() {
    let mut world = World::new(&[2]);
    world.create("g", &[2, 2]);
    world.put_on("g0", "n0");
    assert!(world.expire().is_empty());
    world.now += 10 * TIMEOUT;
    assert!(world.expire().is_empty());
    assert!(matches!(world.ask("g1"), Verdict::Wait(_)));
    world.now += TIMEOUT - 1;
    assert!(world.expire().is_empty(), "the rest has as much time as that of another gang");
    world.now += 1;
    assert_eq!(world.expire().len(), 1);
}

#[test]
fn nothing_is_deleted_that_nothing_creates_again() {
    let mut world = World::new(&[2]);
    world.create("g", &[2, 2]);
    world.cluster.put_pod(Pod { has_controller: false, ..world.cluster.pod("ml", "g0").unwrap().clone() });
    assert!(matches!(world.ask("g0"), Verdict::Wait(_)));
    world.put_on("g0", "n0");
    assert!(world.expire().is_empty());
    world.now += TIMEOUT;
    let overdue = world.expire();
    assert_eq!(overdue[0].irreplaceable.as_deref(), Some("g0"));
    assert!(is_half(&world.cluster, "ml", "g"));
}
