use super::*;
use pointsman_core::resource::INFERENCE_SERVICE;

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: &INFERENCE_SERVICE, namespace: "n".to_owned(), name: name.to_owned() }
}

fn work(restarts: bool, rolling: bool) -> PodImpact {
    PodImpact { restarts, rolling, serves: true, ..PodImpact::default() }
}

fn broken(restarts: bool) -> PodImpact {
    PodImpact { broken: Some("the pod x fails".to_owned()), ..work(restarts, true) }
}

fn look(pacer: &Pacer, name: &str, work: &PodImpact, ready: bool) -> RestartPermission {
    pacer.admit(&key(name), Observation { work, ready: Some(ready), was_ready: ready, has_turn: false, own_edit: false, generation: None })
}

fn names(keys: &[ObjectKey]) -> Vec<&str> {
    keys.iter().map(|key| key.name.as_str()).collect()
}

fn pacer(most: usize) -> Pacer {
    let pacer = Pacer::new(Some(most));
    pacer.pause(None);
    pacer
}

/// Three subjects that should restart, two of them at once.
fn three() -> Pacer {
    let pacer = pacer(2);
    for name in ["c", "a", "b"] {
        assert_eq!(look(&pacer, name, &work(true, false), true), RestartPermission::Wait);
    }
    assert!(pacer.start_next(false).is_empty(), "others are still to be looked at");
    assert_eq!(names(&pacer.start_next(true)), ["a", "b"]);
    pacer
}

#[test]
fn so_many_at_once_get_their_turn_by_name_and_the_next_when_one_is_through() {
    let pacer = three();
    assert_eq!(look(&pacer, "a", &work(true, false), true), RestartPermission::Restart(true));
    assert_eq!(look(&pacer, "c", &work(true, false), true), RestartPermission::Wait);
    assert_eq!(look(&pacer, "a", &work(false, true), true), RestartPermission::Restart(true));
    assert!(pacer.start_next(true).is_empty(), "a is still at it");
    assert_eq!(look(&pacer, "a", &work(false, false), true), RestartPermission::GoOn);
    assert_eq!(names(&pacer.start_next(true)), ["c"]);
    assert!(!pacer.in_use());
}

#[test]
fn a_restart_that_the_api_server_rejects_stops_the_others() {
    let pacer = three();
    pacer.reject(&key("c"), "it is invalid");
    assert_eq!(pacer.failure_reason(), None, "c isn't restarting");
    pacer.reject(&key("a"), "it is invalid");
    assert!(pacer.start_next(true).is_empty() && !pacer.has_turn(&key("a")));
    assert_eq!(pacer.failure_reason().unwrap(), "InferenceService n/a failed to restart: it is invalid");
}

#[test]
fn one_that_fails_stops_the_others_until_somebody_has_looked() {
    let pacer = three();
    look(&pacer, "a", &broken(false), true);
    assert!(pacer.start_next(true).is_empty());
    assert_eq!(pacer.failure_reason().unwrap(), "InferenceService n/a failed to restart: the pod x fails");
    pacer.pause(pacer.failure_reason());
    pacer.pause(None);
    assert_eq!(names(&pacer.start_next(true)), ["c"]);
    look(&pacer, "a", &broken(false), false);
    assert_eq!(pacer.failure_reason(), None, "it is waited for no more");
    // Removing a pause doesn't clear a failure that happened meanwhile.
    pacer.pause(Some("the night shift".to_owned()));
    look(&pacer, "b", &broken(false), true);
    pacer.pause(None);
    assert!(pacer.failure_reason().is_some_and(|why| why.contains("n/b failed to restart")));
}

#[test]
fn what_failed_or_was_not_ready_before_its_turn_is_no_failure_of_it() {
    let pacer = pacer(1);
    look(&pacer, "a", &broken(true), true);
    pacer.start_next(true);
    assert_eq!(look(&pacer, "a", &broken(true), true), RestartPermission::Restart(true));
    assert_eq!(look(&pacer, "a", &broken(false), true), RestartPermission::Restart(true));
    assert_eq!((look(&pacer, "a", &work(false, false), true), pacer.failure_reason()), (RestartPermission::GoOn, None));
    // Not ready for another reason, it is restarting while it rolls.
    look(&pacer, "b", &work(true, false), true);
    look(&pacer, "z", &work(true, false), false);
    assert_eq!(names(&pacer.start_next(true)), ["z"], "it has the least to lose");
    assert_eq!(look(&pacer, "z", &work(false, true), false), RestartPermission::Restart(false));
    assert!(pacer.start_next(true).is_empty());
    look(&pacer, "z", &work(false, false), false);
    assert_eq!((pacer.failure_reason(), names(&pacer.start_next(true))), (None, vec!["b"]));
}

#[test]
fn an_own_edit_needs_no_turn_and_what_serves_nothing_only_where_nothing_is_known_against_it() {
    let pacer = pacer(1);
    let edited = |work: &PodImpact| {
        pacer.admit(
            &key("a"),
            Observation { work, ready: Some(true), was_ready: true, has_turn: false, own_edit: true, generation: Some(2) },
        )
    };
    assert_eq!(edited(&work(true, false)), RestartPermission::AsAsked);
    assert!(pacer.start_next(true).is_empty(), "nor does it take one");
    // Refused at first, the edit is requested until it is applied.
    let again = work(true, false);
    let later = Observation { work: &again, ready: Some(true), was_ready: true, has_turn: false, own_edit: false, generation: Some(2) };
    assert_eq!(pacer.admit(&key("a"), later), RestartPermission::AsAsked);
    assert_eq!(edited(&work(false, true)), RestartPermission::GoOn);
    let dark = PodImpact { serves: false, ..work(true, false) };
    assert_eq!(look(&pacer, "b", &dark, false), RestartPermission::GoOn);
    pacer.pause(Some("it is bad".to_owned()));
    assert_eq!(look(&pacer, "b", &dark, false), RestartPermission::Wait);
}

#[test]
fn a_new_leader_goes_on_with_the_turns_that_were_given_and_asks_before_it_gives_one() {
    let pacer = Pacer::new(Some(1));
    let told = |work: &PodImpact| {
        pacer.admit(&key("a"), Observation { work, ready: Some(true), was_ready: true, has_turn: true, own_edit: false, generation: None })
    };
    assert_eq!(told(&work(false, true)), RestartPermission::Restart(true));
    look(&pacer, "b", &work(true, false), true);
    assert!(pacer.start_next(true).is_empty() && !pacer.progress().borrow().known, "nobody knows whether somebody has paused it");
    pacer.pause(None);
    assert!(pacer.start_next(true).is_empty() && pacer.progress().borrow().known);
    told(&work(false, false));
    assert_eq!(names(&pacer.start_next(true)), ["b"]);
    pacer.reset();
    assert!(pacer.in_use(), "somebody may still be on a former set");
    pacer.pause(None);
    pacer.begin_new_set();
    pacer.start_next(true);
    assert!(!pacer.in_use());
    pacer.expect_new_set();
    pacer.start_next(true);
    assert!(pacer.in_use() && !pacer.progress().borrow().known, "those who look haven't been told");
    pacer.begin_new_set();
    pacer.start_next(true);
    assert!(!pacer.in_use());
}

#[test]
fn a_failure_holds_its_own_namespace_until_nobody_else_waits_or_several_have_failed() {
    let key = |namespace: &str, name: &str| ObjectKey { namespace: namespace.to_owned(), ..key(name) };
    let look = |pacer: &Pacer, key: &ObjectKey, work: &PodImpact| {
        let seen = Observation { work, ready: Some(true), was_ready: true, has_turn: false, own_edit: false, generation: None };
        pacer.admit(key, seen)
    };
    let begin = |namespaces: &[&str]| {
        let pacer = pacer(1);
        for namespace in namespaces {
            for name in ["x", "y"] {
                look(&pacer, &key(namespace, name), &work(true, false));
            }
        }
        pacer
    };
    let fail_next = |pacer: &Pacer| {
        let next = pacer.start_next(true).into_iter().next().unwrap();
        look(pacer, &next, &broken(false));
        next.namespace
    };
    let pacer = begin(&["a", "b"]);
    assert_eq!(fail_next(&pacer), "a");
    assert_eq!(pacer.failure_reason(), None);
    let dark = PodImpact { serves: false, ..work(true, false) };
    assert_eq!(look(&pacer, &key("a", "z"), &dark), RestartPermission::Wait);
    let next = pacer.start_next(true);
    assert_eq!((&next[..], pacer.progress().borrow().held.len()), (&[key("b", "x")][..], 1), "in b they go on");
    look(&pacer, &next[0], &work(false, false));
    assert_eq!((pacer.start_next(true), pacer.failure_reason().is_some()), (vec![key("b", "y")], true), "only those of a are left");
    look(&pacer, &key("b", "y"), &work(false, false));
    assert!(pacer.start_next(true).is_empty());
    let why = pacer.failure_reason().unwrap();
    assert_eq!(why, "InferenceService a/x failed to restart: the pod x fails");
    pacer.pause(Some(why));
    pacer.pause(None);
    assert_eq!(pacer.start_next(true), [key("a", "y")], "somebody has looked");

    let pacer = begin(&["a", "b", "c", "d"]);
    assert_eq!([fail_next(&pacer), fail_next(&pacer)], ["a", "b"]);
    assert_eq!(pacer.failure_reason(), None);
    fail_next(&pacer);
    assert!(pacer.start_next(true).is_empty() && pacer.failure_reason().unwrap().matches("failed to restart").count() == 3);
}
