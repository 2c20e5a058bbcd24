use super::*;
use crate::engine_metrics::EngineMetrics;

fn spec(pod: &str, last: u8) -> EndpointSpec {
    EndpointSpec { uid: format!("uid-of-{pod}").into(), pod: pod.into(), address: ([10, 0, 0, last], 8000).into(), labels: Arc::default() }
}

fn pods(fleet: &Fleet) -> Vec<String> {
    fleet.endpoints().iter().map(|endpoint| endpoint.spec.pod.to_string()).collect()
}

#[test]
fn what_is_known_of_an_endpoint_stays_and_goes_with_its_pod() {
    let fleet = Fleet::default();
    assert_eq!(fleet.replace(vec![spec("b", 2), spec("a", 1)]), 0);
    assert_eq!(pods(&fleet), ["a", "b"]);
    let first = fleet.endpoints()[0].clone();
    let in_flight = first.state.send(100, 1_000_000);
    fleet.prefixes.record(first.state.id(), &[1, 2, 3]);
    first.state.set_report(Report { at: 1_000_000, metrics: EngineMetrics { waiting: Some(3.0), ..EngineMetrics::default() } });

    let labels = Arc::new(BTreeMap::from([("role".to_owned(), "decode".to_owned())]));
    fleet.replace(vec![EndpointSpec { labels, ..spec("a", 1) }, spec("c", 3)]);
    let again = fleet.endpoints()[0].clone();
    assert_eq!((again.state.id(), again.label("role")), (first.state.id(), Some("decode")));
    assert_eq!((again.state.in_flight_requests(), again.state.in_flight_tokens()), (1, 100));
    assert_eq!(again.load(1_200_000, 200_000).waiting, Some(3.0));
    assert_eq!(again.load(1_200_001, 200_000).waiting, None, "its report is stale");
    assert!(again.state.requests_per_second(1_000_000) > again.state.requests_per_second(9_000_000));

    fleet.replace(vec![spec("c", 3)]);
    assert_eq!(fleet.prefixes.len(), 0, "its prefixes are forgotten");
    drop(in_flight);
    assert_eq!(first.state.in_flight_requests(), 0, "the answer of a pod that is gone ends well");
    fleet.replace(vec![EndpointSpec { uid: "another".into(), ..spec("a", 1) }]);
    assert_eq!(fleet.endpoints()[0].state.report(), None, "a pod that comes back has seen nothing");
}

#[test]
fn more_endpoints_than_there_is_room_for_are_left_out_and_numbers_are_used_again_last() {
    let fleet = Fleet::default();
    let many = |from: u32, to: u32| -> Vec<EndpointSpec> {
        (from..to)
            .map(|number| {
                let [_, _, high, low] = number.to_be_bytes();
                EndpointSpec { address: ([10, 1, high, low], 8000).into(), ..spec(&format!("pod-{number:05}"), 0) }
            })
            .collect()
    };
    assert_eq!(fleet.replace(many(0, MAX_ENDPOINTS + 2)), 2);
    assert_eq!(fleet.endpoints().len(), MAX_ENDPOINTS as usize);
    fleet.replace(many(2, MAX_ENDPOINTS + 2));
    let endpoints = fleet.endpoints();
    let newest: Vec<u32> = endpoints[endpoints.len() - 2..].iter().map(|endpoint| endpoint.state.id().0).collect();
    assert_eq!(newest, [0, 1], "those of the pods that went");
}

#[test]
fn a_request_that_went_elsewhere_is_counted_there_and_an_endpoint_is_avoided_for_a_while() {
    let fleet = Fleet::default();
    fleet.replace(vec![spec("a", 1), spec("b", 2)]);
    let [one, other] = &fleet.endpoints()[..] else { panic!() };
    let mut in_flight = one.state.send(7, 0);
    in_flight.move_to(&other.state, 0);
    assert_eq!((one.state.in_flight_tokens(), other.state.in_flight_tokens()), (0, 7));
    one.state.note_unreachable(50);
    assert!(one.state.is_avoided(49) && !one.state.is_avoided(50));
    one.state.note_silent(90);
    assert!(one.state.is_avoided(60));
    one.state.note_report();
    assert!(one.state.is_avoided(49) && !one.state.is_avoided(60));
    assert_eq!(one.state.cold_request(), 0);
    one.state.note_cold_request(5);
    one.state.note_cold_request(4);
    assert_eq!(one.state.cold_request(), 5);
}
