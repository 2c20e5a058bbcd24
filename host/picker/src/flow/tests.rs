use super::*;
use proptest::{collection::vec, prelude::*};

fn request(priority: i64, flow: &str) -> Request {
    Request { priority, flow: flow.into(), bytes: 10, work: 1, deadline: None }
}

fn settings(limit: Limit, band: BandSettings) -> FlowSettings {
    FlowSettings { limit, default_band: band.clone(), default_negative_band: band, bands: BTreeMap::new() }
}

fn unlimited(fairness: Fairness, order: Order) -> FlowSettings {
    settings(Limit::NONE, BandSettings { limit: Limit::NONE, fairness, order })
}

/// Queues a request for which there is room without an eviction.
fn put<T: std::fmt::Debug>(queue: &mut FlowQueue<T>, request: Request, value: T) -> Ticket {
    match queue.push(request, value) {
        Enqueued::Waiting(ticket, evicted) if evicted.is_empty() => ticket,
        other => panic!("{other:?}"),
    }
}

fn order<T>(queue: &mut FlowQueue<T>) -> Vec<T> {
    queue.drain().into_iter().map(|(_, value)| value).collect()
}

#[test]
fn priority_10_goes_before_0_and_0_before_minus_10_whenever_they_come() {
    let mut queue = FlowQueue::new(FlowSettings::default());
    let mut gone = Vec::new();
    for round in 0..100 {
        for priority in [-10, 0, 10] {
            put(&mut queue, request(priority, "a"), (priority, round));
        }
        // Half of the arriving requests are dispatched.
        gone.extend(queue.pop(|_| true).map(|(request, _)| request.priority));
    }
    assert_eq!(gone, [10; 100]);
    let rest: Vec<i64> = order(&mut queue).into_iter().map(|(priority, _)| priority).collect();
    assert_eq!(rest, [[0; 100], [-10; 100]].concat());
}

#[test]
fn nobody_overtakes_the_most_important_that_may_not_go_on() {
    let mut queue = FlowQueue::new(FlowSettings::default());
    put(&mut queue, request(0, "a"), "less");
    put(&mut queue, request(5, "a"), "more");
    assert_eq!(queue.pop(|priority| priority < 5), None);
    assert_eq!(queue.pop(|priority| priority == 5).unwrap().1, "more");
    assert_eq!(queue.pop(|priority| priority < 5).unwrap().1, "less");
}

/// The requests and the work that each flow dispatched while all flows had queued requests.
fn shares(fairness: Fairness, work: impl Fn(usize, u64) -> u64) -> Vec<(usize, u64)> {
    const FLOWS: usize = 7;
    const SENT: usize = 10_000;
    let mut queue = FlowQueue::new(unlimited(fairness, Order::FirstCome));
    let mut shares = vec![(0, 0); FLOWS];
    let mut waiting = [0_u64; FLOWS];
    let mut number = 0;
    for _ in 0..SENT {
        // Flow 0 floods. Each other flow sends less than the one before it, but always has some requests queued.
        for (flow, waiting) in waiting.iter_mut().enumerate() {
            let burst = if flow == 0 { 5 } else { u64::from(*waiting < 3 + flow as u64) };
            for _ in 0..burst {
                number += 1;
                put(&mut queue, Request { work: work(flow, number), ..request(0, &flow.to_string()) }, flow);
                *waiting += 1;
            }
        }
        let (request, flow) = queue.pop(|_| true).unwrap();
        waiting[flow] -= 1;
        shares[flow].0 += 1;
        shares[flow].1 += request.work;
    }
    shares
}

fn within_5_percent(shares: &[u64]) {
    let mean = shares.iter().sum::<u64>() / shares.len() as u64;
    assert!(shares.iter().all(|share| share.abs_diff(mean) * 20 <= mean), "{shares:?}");
}

#[test]
fn flows_of_a_band_get_equal_shares_of_10_000_requests_within_5_percent() {
    let shares = shares(Fairness::Requests, |_, _| 1);
    within_5_percent(&shares.iter().map(|(requests, _)| *requests as u64).collect::<Vec<_>>());
}

#[test]
fn by_work_flows_of_long_requests_send_fewer_of_them() {
    let shares = shares(Fairness::Work, |flow, number| (flow as u64 + 1) * 100 + number % 50);
    within_5_percent(&shares.iter().map(|(_, work)| *work).collect::<Vec<_>>());
    assert!(shares[0].0 > 3 * shares[6].0, "{shares:?}");
}

/// The positions at which the requests of flows `b` and `c` are dispatched, while `flood` requests of `a` are queued.
fn places_beside(flood: usize) -> Vec<(usize, &'static str, usize)> {
    let mut queue = FlowQueue::new(unlimited(Fairness::Requests, Order::FirstCome));
    for number in 0..flood {
        put(&mut queue, request(0, "a"), ("a", number));
    }
    let mut places = Vec::new();
    for place in 0..900 {
        if place % 7 == 0 {
            put(&mut queue, request(0, "b"), ("b", place));
        }
        if place % 100 == 0 {
            (0..5).for_each(|more| _ = put(&mut queue, request(0, "c"), ("c", place + more)));
        }
        let (_, (flow, number)) = queue.pop(|_| true).unwrap();
        if flow != "a" {
            places.push((place, flow, number));
        }
    }
    places
}

#[test]
fn a_flood_in_one_flow_moves_no_other_flow_s_request_from_its_place() {
    let beside_few = places_beside(1_000);
    assert!(beside_few.len() > 150);
    assert_eq!(places_beside(100_000), beside_few);
    // A request of an idle flow waits for the current turn and for one request of each other flow.
    assert!(beside_few.iter().filter(|(_, flow, _)| *flow == "b").all(|(place, _, came)| place - came <= 3), "{beside_few:?}");
}

#[test]
fn a_client_with_another_flow_for_each_request_keeps_nobody_from_a_turn() {
    for fairness in [Fairness::Requests, Fairness::Work] {
        let mut queue = FlowQueue::new(unlimited(fairness, Order::FirstCome));
        (0..100).for_each(|_| _ = put(&mut queue, Request { work: 1_000, ..request(0, "steady") }, "steady"));
        let mut steady = 0;
        for number in 0..100 {
            // Two arrive per dispatched request.
            for half in 0..2 {
                put(&mut queue, Request { work: 1_000, ..request(0, &format!("{number}-{half}")) }, "new");
            }
            steady += usize::from(queue.pop(|_| true).unwrap().1 == "steady");
        }
        // A turn is as long as the queue at its start: 1, 3, 9, 27.
        assert!(steady >= 4, "{fairness:?}: {steady}");
    }
}

#[test]
fn a_flow_that_pauses_gains_nothing_and_loses_nothing() {
    let mut queue = FlowQueue::new(unlimited(Fairness::Requests, Order::FirstCome));
    for number in 0..10 {
        put(&mut queue, request(0, "a"), ("a", number));
    }
    let next = |queue: &mut FlowQueue<(&'static str, usize)>| queue.pop(|_| true).unwrap().1.0;
    assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], ["a"; 3]);
    put(&mut queue, request(0, "b"), ("b", 0));
    assert_eq!([next(&mut queue), next(&mut queue)], ["a", "b"], "a's turn is under way");
    // It has just had its turn.
    put(&mut queue, request(0, "b"), ("b", 1));
    assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], ["a", "b", "a"]);
}

#[test]
fn without_fairness_a_band_is_one_flow() {
    let mut queue = FlowQueue::new(unlimited(Fairness::None, Order::FirstCome));
    for (number, flow) in ["a", "a", "a", "b"].into_iter().enumerate() {
        put(&mut queue, request(0, flow), number);
    }
    assert_eq!(order(&mut queue), [0, 1, 2, 3]);
}

#[test]
fn within_a_flow_the_oldest_the_shortest_or_the_most_urgent_goes_first() {
    let orders = [(Order::FirstCome, [0, 1, 2, 3]), (Order::Shortest, [1, 2, 0, 3]), (Order::Deadline, [3, 0, 1, 2])];
    for (by, expected) in orders {
        let mut queue = FlowQueue::new(unlimited(Fairness::Requests, by));
        for (number, (work, deadline)) in [(5, Some(9)), (1, None), (1, None), (7, Some(3))].into_iter().enumerate() {
            put(&mut queue, Request { work, deadline, ..request(0, "a") }, number);
        }
        assert_eq!(order(&mut queue), expected, "{by:?}");
    }
}

#[test]
fn where_the_queue_is_full_the_newest_of_the_least_important_goes() {
    let limit = Limit { requests: 4, bytes: u64::MAX };
    let mut queue = FlowQueue::new(settings(limit, BandSettings { limit: Limit::NONE, ..BandSettings::default() }));
    for (priority, value) in [(-10, "old"), (-10, "new"), (0, "x"), (0, "y")] {
        put(&mut queue, request(priority, "a"), value);
    }
    let push = |queue: &mut FlowQueue<&'static str>, priority, value| match queue.push(request(priority, "a"), value) {
        Enqueued::Waiting(_, evicted) => evicted,
        Enqueued::Refused(value, refusal) => {
            assert_eq!((value, refusal), ("refused", Refusal::QueueFull));
            Vec::new()
        }
    };
    assert_eq!(push(&mut queue, 10, "urgent"), ["new"]);
    assert!(push(&mut queue, -20, "refused").is_empty());
    assert!(push(&mut queue, -10, "refused").is_empty());
    assert_eq!(push(&mut queue, 0, "z"), ["old"]);
    assert!(push(&mut queue, 0, "refused").is_empty());
    assert_eq!(order(&mut queue), ["urgent", "x", "y", "z"]);
}

#[test]
fn a_flow_that_fills_a_band_has_its_own_requests_refused_and_evicted() {
    let limit = Limit { requests: 10, bytes: u64::MAX };
    let mut queue = FlowQueue::new(settings(Limit::NONE, BandSettings { limit, ..BandSettings::default() }));
    for number in 0..10 {
        put(&mut queue, request(0, "flood"), number);
    }
    assert_eq!(queue.push(request(0, "flood"), 10), Enqueued::Refused(10, Refusal::BandFull));
    for (number, evicted) in [(100, 9), (101, 8), (102, 7), (103, 6)] {
        assert!(matches!(queue.push(request(0, "other"), number), Enqueued::Waiting(_, gone) if gone == [evicted]), "{number}");
    }
    // Now both have almost the same number.
    assert!(matches!(queue.push(request(0, "other"), 104), Enqueued::Waiting(_, gone) if gone == [5]));
    assert_eq!(queue.push(request(0, "other"), 105), Enqueued::Refused(105, Refusal::BandFull));
    assert_eq!(queue.push(request(0, "flood"), 11), Enqueued::Refused(11, Refusal::BandFull));
    assert_eq!(queue.len(), 10);
}

#[test]
fn bytes_are_limited_alike_and_what_can_never_fit_evicts_nobody() {
    let limit = Limit { requests: 100, bytes: 100 };
    let sized = |flow: &str, bytes| Request { bytes, ..request(0, flow) };
    let mut queue = FlowQueue::new(settings(Limit::NONE, BandSettings { limit, ..BandSettings::default() }));
    for number in 0..10 {
        put(&mut queue, sized("big", 10), number);
    }
    assert_eq!(queue.push(sized("other", 101), 20), Enqueued::Refused(20, Refusal::BandFull));
    assert_eq!(queue.push(sized("other", 60), 21), Enqueued::Refused(21, Refusal::BandFull), "it would have more than the others");
    assert!(matches!(queue.push(sized("other", 25), 22), Enqueued::Waiting(_, gone) if gone == [7, 8, 9]));
    assert_eq!(queue.bytes(), 95);
}

#[test]
fn those_whose_deadline_has_come_and_those_that_have_gone_leave() {
    let mut queue = FlowQueue::new(FlowSettings::default());
    let until = |deadline| Request { deadline: Some(deadline), ..request(0, "a") };
    put(&mut queue, until(30), "late");
    let gone = put(&mut queue, until(20), "gone");
    put(&mut queue, until(10), "soon");
    put(&mut queue, request(0, "a"), "patient");
    assert_eq!(queue.next_deadline(), Some(10));
    assert_eq!((queue.cancel(gone), queue.cancel(gone)), (Some("gone"), None));
    assert_eq!((queue.expire(9), queue.expire(10)), (vec![], vec!["soon"]));
    assert_eq!(queue.next_deadline(), Some(30));
    assert_eq!(order(&mut queue), ["late", "patient"]);
    assert_eq!((queue.len(), queue.bytes(), queue.bands().count(), queue.next_deadline()), (0, 0, 0, None));
}

#[test]
fn flows_that_leave_without_a_request_that_went_on_are_forgotten() {
    let mut queue = FlowQueue::new(FlowSettings::default());
    put(&mut queue, request(0, "stays"), 0);
    for number in 1..1_000 {
        let ticket = put(&mut queue, request(0, &number.to_string()), number);
        assert_eq!(queue.cancel(ticket), Some(number));
    }
    assert_eq!(queue.bands[&Reverse(0)].remembered_flows(), 1);
}

#[test]
fn nothing_is_lost_when_settings_change_and_lower_limits_let_one_in_for_one() {
    let mut queue = FlowQueue::new(FlowSettings::default());
    for number in 0..100 {
        put(&mut queue, Request { work: 100 - number, ..request(if number % 2 == 0 { 0 } else { -1 }, "a") }, number);
    }
    let limit = Limit { requests: 10, bytes: u64::MAX };
    queue.set_settings(settings(limit, BandSettings { limit: Limit::NONE, fairness: Fairness::Requests, order: Order::Shortest }));
    assert_eq!((queue.len(), queue.bytes()), (100, 1_000));
    assert!(matches!(queue.push(request(1, "b"), 1_000), Enqueued::Waiting(_, gone) if gone == [99]));
    assert_eq!(queue.push(request(-1, "a"), 1_001), Enqueued::Refused(1_001, Refusal::QueueFull));
    let all = order(&mut queue);
    assert_eq!((all.len(), &all[..3], all[51]), (100, &[1_000, 98, 96][..], 97));
}

#[derive(Clone, Debug)]
enum Action {
    Push(Request),
    Pop(i64),
    Cancel(usize),
    Expire(u64),
    Settings(FlowSettings),
}

fn a_request() -> impl Strategy<Value = Request> {
    (-1..2_i64, 0..4_u8, 0..40_u64, 0..5_u64, proptest::option::of(0..50_u64)).prop_map(|(priority, flow, bytes, work, deadline)| Request {
        priority,
        flow: flow.to_string().into(),
        bytes,
        work,
        deadline,
    })
}

fn some_settings() -> impl Strategy<Value = FlowSettings> {
    let limit = || (0..12_usize, 0..200_u64).prop_map(|(requests, bytes)| Limit { requests, bytes });
    let fairness = prop_oneof![Just(Fairness::None), Just(Fairness::Requests), Just(Fairness::Work)];
    let order = prop_oneof![Just(Order::FirstCome), Just(Order::Shortest), Just(Order::Deadline)];
    (limit(), limit(), fairness, order).prop_map(|(all, limit, fairness, order)| settings(all, BandSettings { limit, fairness, order }))
}

fn an_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => a_request().prop_map(Action::Push),
        5 => (-2..2_i64).prop_map(Action::Pop),
        1 => (0..20_usize).prop_map(Action::Cancel),
        1 => (0..60_u64).prop_map(Action::Expire),
        1 => some_settings().prop_map(Action::Settings),
    ]
}

proptest! {
    #[test]
    fn each_request_leaves_once_and_limits_and_priorities_hold(initial in some_settings(), actions in vec(an_action(), 0..200)) {
        let mut queue = FlowQueue::new(initial.clone());
        let mut settings = initial;
        // The requests that should be queued, in order of arrival.
        let mut waiting: BTreeMap<usize, (Ticket, Request)> = BTreeMap::new();
        for (number, action) in actions.into_iter().enumerate() {
            let before = (queue.len(), queue.bytes());
            match action {
                Action::Push(request) => match queue.push(request.clone(), number) {
                    Enqueued::Waiting(ticket, evicted) => {
                        for gone in evicted {
                            let (_, gone) = waiting.remove(&gone).unwrap();
                            prop_assert!(gone.priority <= request.priority);
                        }
                        waiting.insert(number, (ticket, request));
                        prop_assert!(queue.len() <= before.0.max(settings.limit.requests));
                        prop_assert!(queue.bytes() <= before.1.max(settings.limit.bytes));
                    }
                    Enqueued::Refused(value, _) => prop_assert_eq!(value, number),
                },
                Action::Pop(least) => {
                    let highest = waiting.values().map(|(_, request)| request.priority).max();
                    match queue.pop(|priority| priority >= least) {
                        Some((request, value)) => {
                            let (_, known) = waiting.remove(&value).unwrap();
                            prop_assert_eq!(&known, &request);
                            prop_assert_eq!(Some(request.priority), highest);
                            let band = settings.band(request.priority);
                            let mut same = waiting.values().filter(|(_, other)| other.priority == request.priority);
                            let is_first = match band.order {
                                Order::FirstCome => same.all(|(_, other)| other.flow != request.flow || band.fairness == Fairness::None)
                                    || waiting.iter().all(|(at, (_, other))| {
                                        other.priority != request.priority || other.flow != request.flow || *at > value
                                    }),
                                Order::Shortest => same.all(|(_, other)| other.flow != request.flow || other.work >= request.work),
                                Order::Deadline => same.all(|(_, other)| {
                                    other.flow != request.flow || other.deadline.unwrap_or(u64::MAX) >= request.deadline.unwrap_or(u64::MAX)
                                }),
                            };
                            prop_assert!(is_first, "{request:?} {waiting:?}");
                        }
                        None => prop_assert!(highest.is_none_or(|highest| highest < least)),
                    }
                }
                Action::Cancel(at) => {
                    if let Some((number, (ticket, _))) = waiting.iter().nth(at).map(|(number, known)| (*number, known.clone())) {
                        prop_assert_eq!(queue.cancel(ticket), Some(number));
                        waiting.remove(&number);
                    }
                }
                Action::Expire(now) => {
                    let expired = queue.expire(now);
                    for number in &expired {
                        let (_, request) = waiting.remove(number).unwrap();
                        prop_assert!(request.deadline.unwrap() <= now);
                    }
                    prop_assert!(waiting.values().all(|(_, request)| request.deadline.is_none_or(|deadline| deadline > now)));
                }
                Action::Settings(new) => {
                    settings = new.clone();
                    queue.set_settings(new);
                }
            }
            prop_assert_eq!(queue.len(), waiting.len());
            prop_assert_eq!(queue.bytes(), waiting.values().map(|(_, request)| request.bytes).sum::<u64>());
            prop_assert_eq!(queue.bands().map(|(_, requests, _)| requests).sum::<usize>(), waiting.len());
        }
        let left: BTreeSet<usize> = order(&mut queue).into_iter().collect();
        prop_assert_eq!(left, waiting.into_keys().collect::<BTreeSet<_>>());
        prop_assert!(queue.is_empty() && queue.bytes() == 0 && queue.next_deadline().is_none());
    }
}
