//! Tests of the records' content, number and order.

use super::{
    record::{AVOIDED, EXCLUDED, EndpointRecord, Record, SUBSET},
    route::Wanted,
    *,
};
use crate::endpoint_picker::refusal::{Dropped, NotPlaced, unclaimed};
use pointsman_picker::{
    fleet::{Endpoint, EndpointSpec, Fleet},
    pick::EndpointFeatures,
};

fn lines(decisions: &Decisions, wanted: &Wanted) -> Vec<Record> {
    let lines = String::from_utf8(wanted.lines(decisions)).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_last_decisions_are_there_the_newest_first() {
    let decisions = Decisions::new(3);
    let pool: Arc<str> = "prod/llama".into();
    assert!(lines(&decisions, &Wanted::default()).is_empty());
    for at in 0..5 {
        let head = RequestHead { request_id: (at % 2 == 1).then(|| format!("id-{at}")), ..RequestHead::default() };
        decisions.push(*decisions.start(&pool, &head).unwrap());
    }
    let ids = |wanted: &Wanted| lines(&decisions, wanted).into_iter().map(|record| record.request).collect::<Vec<_>>();
    assert_eq!(ids(&Wanted::default()), ["4", "id-3", "2"], "three of five");
    assert_eq!(ids(&Wanted { limit: 1, ..Wanted::default() }), ["4"]);
    assert_eq!(ids(&Wanted { request: Some("id-3".to_owned()), ..Wanted::default() }), ["id-3"]);
    assert!(ids(&Wanted { request: Some("id-1".to_owned()), ..Wanted::default() }).is_empty());
    let newest = &lines(&decisions, &Wanted::default())[0];
    assert!(newest.time.parse::<Timestamp>().is_ok() && newest.time.ends_with('Z'), "{}", newest.time);

    let off = Decisions::new(0);
    assert!(off.start(&pool, &RequestHead::default()).is_none());
    off.push(Record::default());
    assert!(off.newest().is_empty());
}

#[test]
fn whoever_writes_and_reads_at_once_waits_for_nobody_and_finds_whole_records() {
    let decisions = Decisions::new(8);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..1_000 {
                    decisions.push(Record::default());
                }
            });
        }
        for _ in 0..100 {
            assert!(decisions.newest().iter().all(|record| record.request == record.number.to_string()));
        }
    });
    let numbers: Vec<u64> = decisions.newest().iter().map(|record| record.number).collect();
    assert_eq!(numbers.len(), 8);
    assert!(numbers.is_sorted_by(|one, other| one > other), "{numbers:?}");
}

fn endpoints(number: usize) -> (Vec<Endpoint>, Vec<EndpointFeatures>) {
    let fleet = Fleet::default();
    let spec = |at: usize| EndpointSpec {
        uid: format!("uid-{at}").into(),
        pod: format!("pod-{at:03}").into(),
        address: ([10, 0, 0, u8::try_from(at).unwrap()], 8000).into(),
        labels: Arc::default(),
    };
    fleet.replace((0..number).map(spec).collect());
    #[allow(clippy::cast_precision_loss)] // A few.
    let features = (0..number).map(|at| EndpointFeatures { queue_length: at as f64, ..EndpointFeatures::default() }).collect();
    (fleet.endpoints().to_vec(), features)
}

fn shown(row: &EndpointRecord) -> (&str, bool, Option<f64>, Option<&str>) {
    (&row.pod, row.chosen, row.score, row.removed_by.as_deref())
}

#[test]
fn chosen_endpoints_come_first_then_the_best_and_then_those_that_a_step_has_removed() {
    let (endpoints, features) = endpoints(6);
    let mut steps = Steps::default();
    steps.reset(6);
    steps.add(SUBSET, &[0, 1, 2, 3, 4]);
    steps.add("decode-filter", &[0, 1, 2, 4]);
    steps.add(AVOIDED, &[0, 1, 4]);
    let considered = Considered {
        endpoints: &endpoints,
        features: &features,
        steps: &steps,
        kept: &[0, 1, 4],
        scores: Some(&[0.9, f64::NAN, 0.3]),
        chosen: &[4],
    };
    let rows = considered.rows(MAX_ROWS);
    let expected = [
        ("pod-004", true, Some(0.3), None),
        ("pod-000", false, Some(0.9), None),
        ("pod-001", false, None, Some(EXCLUDED)),
        ("pod-002", false, None, Some(AVOIDED)),
        ("pod-003", false, None, Some("decode-filter")),
        ("pod-005", false, None, Some(SUBSET)),
    ];
    assert_eq!(rows.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(considered.extremes(MAX_ROWS).is_none());
}

#[test]
fn of_many_endpoints_the_best_are_recorded_with_the_range_of_all() {
    let (endpoints, features) = endpoints(200);
    let all: Vec<usize> = (0..200).collect();
    let mut steps = Steps::default();
    steps.reset(200);
    steps.add(SUBSET, &all);
    #[allow(clippy::cast_precision_loss)] // A few.
    let scores: Vec<f64> = all.iter().map(|at| *at as f64 / 200.0).collect();
    let considered =
        Considered { endpoints: &endpoints, features: &features, steps: &steps, kept: &all, scores: Some(&scores), chosen: &[7] };
    let rows = considered.rows(MAX_ROWS);
    assert_eq!((rows.len(), &*rows[0].pod, &*rows[1].pod, &*rows[63].pod), (64, "pod-007", "pod-199", "pod-137"));
    let extremes = considered.extremes(MAX_ROWS).unwrap();
    assert_eq!((extremes.least.queue_length.to_bits(), extremes.most.queue_length.to_bits()), (0.0_f64.to_bits(), 199.0_f64.to_bits()));
    assert!(extremes.least.session.is_nan());
}

#[test]
fn a_refusal_is_recorded_by_its_reason_and_never_by_a_text_of_the_request() {
    let refused = NotPlaced::Dropped(Dropped::Filtered).record();
    assert_eq!((refused.status, &*refused.reason), (429, "rejected-no-endpoints"));
    assert!(refused.message.contains("filters"), "{refused:?}");
    let unread = NotPlaced::Unread(unclaimed("/a/path/with-a-secret")).record();
    assert_eq!((unread.status, &*unread.reason), (400, "path_unclaimed"));
    assert!(!serde_json::to_string(&unread).unwrap().contains("secret"));
}
