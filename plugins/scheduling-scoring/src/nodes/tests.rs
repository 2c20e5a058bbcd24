use super::*;
use serde_json::{Value, json};

const NAN: f64 = f64::NAN;

/// A node of which only these features are known.
fn node(known: &[(&str, f64)]) -> Vec<f64> {
    assert!(known.iter().all(|(name, _)| FEATURES.contains(name)), "{known:?}");
    let find = |name| known.iter().find(|(known, _)| *known == name).map_or(NAN, |(_, value)| *value);
    FEATURES.iter().map(|name| find(*name)).collect()
}

/// A node with 8 accelerators, of which `free` are free, for a pod that requests `requested`.
fn with_accelerators(free: f64, requested: f64, known: &[(&str, f64)]) -> Vec<f64> {
    let is_free = f64::from(u8::from(free >= 8.0));
    let usual =
        [("allocatable-accelerators", 8.0), ("free-accelerators", free), ("requested-accelerators", requested), ("node-is-free", is_free)];
    node(&[known, &usual].concat())
}

fn config(config: &Value) -> NodePlacement {
    serde_json::from_value(config.clone()).unwrap()
}

fn matrix(nodes: &[Vec<f64>]) -> Matrix {
    Matrix::new(FEATURES.len(), nodes.concat()).unwrap()
}

fn scores(given: &Value, nodes: &[Vec<f64>]) -> Vec<f64> {
    config(given).score(&matrix(nodes))
}

/// A configuration in which only one part has a weight, so that the score equals that part.
fn only(part: &str) -> Value {
    let parts = ["locality", "gang", "packing", "domain", "spread", "proximity", "adjacency", "image", "spot", "price"];
    assert!(parts.contains(&part));
    parts.into_iter().map(|name| (name.to_owned(), json!(u8::from(name == part)))).collect::<serde_json::Map<_, _>>().into()
}

#[track_caller]
fn assert_near(scores: &[f64], expected: &[f64]) {
    let near = scores.iter().zip(expected).all(|(score, expected)| (score - expected).abs() < 1e-9);
    assert!(near && scores.len() == expected.len(), "{scores:?} aren't {expected:?}");
}

#[track_caller]
fn assert_alike(nodes: &[Vec<f64>]) {
    let scores = scores(&json!({}), nodes);
    assert_near(&scores, &vec![scores[0]; scores.len()]);
}

/// Checks that, by default, each node is better than the next, and that this part causes it.
#[track_caller]
fn decides(part: &str, nodes: &[Vec<f64>]) {
    let is_ordered = |scores: &[f64]| scores.is_sorted_by(|better, worse| *better > *worse + 1e-9);
    let by_default = scores(&json!({}), nodes);
    assert!(is_ordered(&by_default), "{by_default:?}");
    let without = scores(&json!({part: 0}), nodes);
    assert!(!is_ordered(&without), "without {part}: {without:?}");
}

#[test]
fn a_model_that_is_there_in_a_minute_is_nearly_as_good_as_one_that_is_there() {
    let model =
        |present, share, seconds| node(&[("model-present", present), ("model-download-share", share), ("model-seconds-left", seconds)]);
    let nodes = [
        model(1.0, 1.0, 0.0),
        model(0.0, 0.1, 60.0),
        model(0.0, 0.9, 300.0),
        model(0.0, 0.8, NAN),
        model(0.0, 0.9, 600.0),
        model(0.0, 0.0, NAN),
    ];
    assert_near(&scores(&only("locality"), &nodes), &[1.0, 1.0 / 1.04, 0.5, 0.4, 0.2, 0.0]);
    decides("locality", &nodes);
    assert_near(&scores(&only("locality"), &[model(NAN, NAN, NAN), model(0.0, NAN, NAN)]), &[0.5, 0.0]);
}

#[test]
fn the_model_on_a_busy_node_outweighs_an_empty_node_and_one_that_fits_exactly() {
    let model = |present| [("model-present", present), ("model-download-share", present)];
    let busy = with_accelerators(5.0, 2.0, &model(1.0));
    decides("locality", &[busy, with_accelerators(2.0, 2.0, &model(0.0)), with_accelerators(8.0, 2.0, &model(0.0))]);
    // Waiting for a minute is worth it to keep a whole node free.
    let soon = [("model-present", 0.0), ("model-download-share", 0.7), ("model-seconds-left", 60.0)];
    decides("packing", &[with_accelerators(2.0, 2.0, &soon), with_accelerators(8.0, 2.0, &model(1.0))]);
}

#[test]
fn a_pod_goes_where_the_fewest_accelerators_are_left_over_and_no_whole_node_is_broken() {
    let nodes = [2.0, 3.0, 7.0, 8.0, 1.0].map(|free| with_accelerators(free, 2.0, &[]));
    assert_near(&scores(&only("packing"), &nodes), &[1.0, 2.0 / 3.0, 2.0 / 7.0, 1.0 / 16.0, 0.0]);
    decides("packing", &nodes);
}

#[test]
fn a_pod_that_takes_whole_nodes_prefers_none_of_those_that_are_free() {
    let larger =
        node(&[("allocatable-accelerators", 16.0), ("free-accelerators", 8.0), ("requested-accelerators", 8.0), ("node-is-free", 0.0)]);
    assert_alike(&[with_accelerators(8.0, 8.0, &[]), with_accelerators(8.0, 8.0, &[]), larger]);
}

#[test]
fn a_pod_without_accelerators_keeps_off_nodes_that_have_free_ones() {
    let without = node(&[("allocatable-accelerators", 0.0), ("free-accelerators", 0.0), ("requested-accelerators", 0.0)]);
    let nodes = [without, with_accelerators(0.0, 0.0, &[]), with_accelerators(4.0, 0.0, &[]), with_accelerators(8.0, 0.0, &[])];
    assert_near(&scores(&only("packing"), &nodes), &[1.0, 0.5, 0.25, 0.0]);
    decides("packing", &nodes);
}

#[test]
fn a_copy_of_a_model_goes_where_accelerators_are_free_for_its_pods() {
    let without = node(&[("allocatable-accelerators", 0.0), ("free-accelerators", 0.0)]);
    let nodes = [with_accelerators(6.0, NAN, &[]), with_accelerators(2.0, NAN, &[]), without];
    assert_near(&scores(&only("packing"), &nodes), &[0.75, 0.5, 0.0]);
    decides("packing", &nodes);
}

fn in_domain(free: f64, requested: f64, taken: f64, free_nodes: f64) -> Vec<f64> {
    with_accelerators(free, requested, &[("domain-accelerators-taken-share", taken), ("domain-free-nodes", free_nodes)])
}

#[test]
fn a_domain_in_use_is_better_than_one_with_many_free_nodes() {
    decides("domain", &[in_domain(8.0, 8.0, 0.75, 0.0), in_domain(8.0, 8.0, 0.25, 2.0), in_domain(8.0, 8.0, 0.0, 7.0)]);
    // The result is the same for all nodes of a domain, free or not.
    let nodes = [in_domain(8.0, 2.0, 0.5, 3.0), in_domain(4.0, 2.0, 0.5, 4.0), in_domain(4.0, 2.0, NAN, NAN)];
    assert_near(&scores(&only("domain"), &nodes), &[0.5, 0.5, 0.5]);
    // A gang may need the free nodes, and a pod without accelerators needs neither.
    let of_gang = |free_nodes| node(&[("gang-size", 2.0), ("requested-accelerators", 8.0), ("domain-free-nodes", free_nodes)]);
    assert_alike(&[of_gang(0.0), of_gang(9.0)]);
    assert_alike(&[in_domain(0.0, 0.0, 1.0, 0.0), in_domain(0.0, 0.0, 0.0, 9.0)]);
}

/// A node of a domain, for a member of a gang of 16 pods.
fn for_gang(free: f64, requested: f64, spare: f64, distance: f64) -> Vec<f64> {
    let gang = [("gang-size", 16.0), ("gang-domain-free-accelerators", spare), ("gang-distance", distance)];
    with_accelerators(free, requested, &gang)
}

#[test]
fn the_first_pod_of_a_gang_goes_to_the_domain_that_holds_all_and_has_the_least_left_over() {
    let spare = [0.0, 16.0, 128.0, NAN, -8.0, -64.0];
    let nodes = spare.map(|spare| for_gang(8.0, 8.0, spare, NAN));
    assert_near(&scores(&only("gang"), &nodes)[..4], &[1.0, 1.0 - 0.25 / 9.0, 0.875, 0.5]);
    decides("gang", &nodes);
    // A node that fits exactly doesn't attract a gang into a domain that is too small for it.
    decides("gang", &[for_gang(8.0, 4.0, 64.0, NAN), for_gang(4.0, 4.0, -10.0, NAN)]);
}

#[test]
fn the_others_follow_into_its_domain() {
    let nodes = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|distance| for_gang(8.0, 8.0, NAN, distance));
    decides("gang", &nodes);
    // The first domain has no capacity left: the rest isn't split again.
    decides("gang", &[for_gang(8.0, 8.0, 0.0, 2.0), for_gang(8.0, 8.0, -32.0, 2.0)]);
    // Distance takes precedence: one step nearer outweighs the capacity of a domain.
    decides("gang", &[for_gang(8.0, 8.0, -64.0, 1.0), for_gang(8.0, 8.0, 0.0, 2.0)]);
    // The size of Kubernetes' native gangs isn't always known.
    let native = |distance| with_accelerators(8.0, 8.0, &[("gang-size", 0.0), ("gang-distance", distance)]);
    decides("gang", &[native(1.0), native(5.0)]);
}

/// Places replicas one after the other on equal nodes with 8 accelerators, 2 in each of 3 zones. Returns the number of replicas on each
/// node. Of equally good nodes, the first is used.
fn placed(replicas: u8, requested: u8, given: &Value) -> [[u8; 2]; 3] {
    let mut placed = [[0_u8; 2]; 3];
    for _ in 0..replicas {
        let in_zone = placed.map(|nodes| nodes.iter().sum::<u8>());
        let fewest = in_zone.into_iter().min().unwrap();
        let free = |zone: usize, node: usize| 8 - placed[zone][node] * requested;
        let mut places = vec![(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)];
        places.retain(|(zone, node)| free(*zone, *node) >= requested);
        let row = |(zone, node): &(usize, usize)| {
            let (own, in_zone) = (placed[*zone][*node], in_zone[*zone]);
            let free_nodes: u8 = placed[*zone].iter().map(|replicas| u8::from(*replicas == 0)).sum();
            let known = [
                ("gang-size", 0.0),
                ("subject-pods", f64::from(own)),
                ("zone-spread", f64::from(in_zone - fewest)),
                // If only zones are known, they are the domains.
                ("domain-free-nodes", f64::from(free_nodes - u8::from(own == 0))),
                ("domain-accelerators-taken-share", f64::from(in_zone * requested) / 16.0),
            ];
            with_accelerators(f64::from(free(*zone, *node)), f64::from(requested), &known)
        };
        let scores = scores(given, &places.iter().map(row).collect::<Vec<_>>());
        let best = (1..scores.len()).fold(0, |best, at| if scores[at] > scores[best] + 1e-9 { at } else { best });
        let (zone, node) = places[best];
        placed[zone][node] += 1;
    }
    placed
}

#[test]
fn replicas_are_spread_over_zones_and_packed_within_them() {
    for requested in [1, 2, 3, 4, 8] {
        assert_eq!(placed(3, requested, &json!({})), [[1, 0]; 3], "{requested}");
        assert_eq!(placed(6, requested, &json!({})), if requested < 8 { [[2, 0]; 3] } else { [[1, 1]; 3] }, "{requested}");
    }
    assert_eq!(placed(7, 4, &json!({})), [[2, 1], [2, 0], [2, 0]]);
    // Without the part, the nodes are filled one after the other.
    assert_eq!(placed(4, 4, &json!({"spread": 0})), [[2, 2], [0, 0], [0, 0]]);
}

#[test]
fn another_zone_is_worth_a_wholly_free_node_but_not_a_model_nor_the_domain_of_peers() {
    let node = |free, known: &[(&str, f64)]| with_accelerators(free, 1.0, known);
    let (few, many) = (("zone-spread", 0.0), ("zone-spread", 1.0));
    let domain = [("domain-accelerators-taken-share", 0.9), ("domain-free-nodes", 0.0)];
    decides("spread", &[node(8.0, &[few]), node(1.0, &[many]), node(1.0, &[many, ("subject-pods", 1.0)])]);
    decides("spread", &[node(8.0, &[few]), node(1.0, &[&[many][..], &domain].concat())]);
    let model = |present, spread| node(4.0, &[spread, ("model-present", present), ("model-download-share", present)]);
    decides("locality", &[model(1.0, many), model(0.0, few)]);
    decides("proximity", &[node(1.0, &[many, ("peer-distance", 2.0)]), node(1.0, &[few, ("peer-distance", 5.0)])]);
}

#[test]
fn nodes_of_one_zone_differ_by_their_replicas_and_gangs_are_not_spread() {
    let replicas = |zone, node| self::node(&[("zone-spread", zone), ("subject-pods", node)]);
    let nodes = [replicas(0.0, 0.0), replicas(0.0, 1.0), replicas(1.0, 0.0), replicas(1.0, 1.0), replicas(2.0, 2.0)];
    decides("spread", &nodes);
    assert_near(&scores(&only("spread"), &[replicas(NAN, 0.0), replicas(NAN, 1.0)]), &[2.0 / 3.0, 0.4]);
    let of_gang = |zone| node(&[("gang-size", 2.0), ("zone-spread", zone), ("subject-pods", zone)]);
    assert_alike(&[of_gang(0.0), of_gang(3.0)]);
}

#[test]
fn prefill_goes_beside_decode() {
    let peer =
        |distance, spread| with_accelerators(8.0, 8.0, &[("peer-distance", distance), ("zone-spread", spread), ("subject-pods", 0.0)]);
    decides("proximity", &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(|distance| peer(distance, 0.0)));
    // The RDMA domain of its peers outweighs another zone, but their rack doesn't.
    decides("proximity", &[peer(2.0, 1.0), peer(5.0, 0.0)]);
    decides("spread", &[peer(5.0, 0.0), peer(3.0, 1.0)]);
    // A pod without accelerators exchanges no tensors.
    let router = |distance| node(&[("requested-accelerators", 0.0), ("peer-distance", distance)]);
    assert_alike(&[router(0.0), router(5.0)]);
}

#[test]
fn linked_accelerators_and_images_that_are_there_decide_among_equal_nodes() {
    let linked = |adjacent| with_accelerators(8.0, 4.0, &[("adjacent-accelerators", adjacent)]);
    assert_near(&scores(&only("adjacency"), &[linked(8.0), linked(4.0), linked(2.0), linked(NAN)]), &[1.0, 1.0, 0.5, 0.5]);
    decides("adjacency", &[linked(4.0), linked(3.0), linked(1.0)]);
    let images = |share| node(&[("image-share", share)]);
    decides("image", &[images(1.0), images(0.5), images(0.0)]);
}

#[test]
fn spot_nodes_and_prices_count_only_if_that_is_configured() {
    let spot = |spot| node(&[("spot", spot)]);
    assert_alike(&[spot(0.0), spot(1.0)]);
    assert_near(&scores(&only("spot"), &[spot(0.0), spot(1.0), spot(NAN)]), &[1.0, 0.0, 0.5]);
    let price = |price| node(&[("price", price)]);
    assert_alike(&[price(1.0), price(9.0)]);
    assert_near(&scores(&only("price"), &[price(1.0), price(2.0), price(5.0), price(NAN)]), &[1.0, 0.75, 0.0, 0.5]);
    // Equal and unknown prices are neutral.
    assert_near(&scores(&only("price"), &[price(3.0), price(3.0), price(NAN)]), &[0.5, 0.5, 0.5]);
    let turned = scores(&json!({"spot": -1}), &[spot(1.0), spot(0.0)]);
    assert!(turned[0] > turned[1], "{turned:?}");
}

#[test]
fn a_node_is_excluded_only_if_that_is_configured() {
    let nodes = [
        node(&[("model-present", 1.0), ("price", 2.0)]),
        node(&[("model-present", 0.0), ("model-seconds-left", 1.0), ("price", 2.0)]),
        node(&[("price", 2.5)]),
        node(&[]),
    ];
    let excluded = |config: Value| scores(&config, &nodes).iter().map(|score| score.is_nan()).collect::<Vec<_>>();
    assert_eq!(excluded(json!({})), [false; 4]);
    assert_eq!(excluded(json!({"requireModel": true})), [false, true, false, false]);
    assert_eq!(excluded(json!({"maxPrice": 2})), [false, false, true, false]);
    let both = config(&json!({"requireModel": true, "maxPrice": 2}));
    let explained = |row: usize| both.explain(&matrix(&nodes), &nodes[row]).remove(0);
    assert_eq!(explained(1).message, "It doesn't have the model, which `requireModel` requires: it is excluded.");
    assert_eq!(explained(2).message, "It costs 2.5, and `maxPrice` is 2: it is excluded.");
    assert_eq!(explained(2).value, None);
}

#[test]
fn what_is_known_of_no_node_decides_nothing() {
    assert_near(&scores(&json!({}), &[node(&[]), node(&[])]), &[0.5, 0.5]);
    assert!(scores(&json!({}), &[]).is_empty());
}

#[test]
fn no_input_makes_a_score_that_excludes_and_terms_add_up_to_the_score() {
    const ODD: [f64; 12] = [NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE, -0.0, 0.0, -1.0, 1.0, 8.0, 1e300];
    let mut state = 1_u64;
    let mut odd = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ODD[usize::try_from((state >> 33) % 12).unwrap()]
    };
    let configs = [json!({}), json!({"spot": 1, "price": 3, "gang": -6}), json!({"locality": 1e308, "gang": 1e308})];
    for case in 0..3_000 {
        let config = config(&configs[case % configs.len()]);
        let rows: Vec<Vec<f64>> = (0..4).map(|_| FEATURES.iter().map(|_| odd()).collect()).collect();
        let matrix = matrix(&rows);
        for (row, score) in rows.iter().zip(config.score(&matrix)) {
            assert!((0.0..=1.0).contains(&score), "case {case}: {score}, {rows:?}");
            let terms = config.explain(&matrix, row);
            let sum: f64 = terms.iter().filter_map(|term| term.value).sum();
            assert!(terms.is_empty() || (sum - score).abs() < 1e-12, "case {case}: {score}, {terms:?}");
        }
    }
    // A host of another version may send rows of another length.
    for columns in 1..30 {
        let matrix = Matrix::new(columns, vec![1.0; columns * 3]).unwrap();
        assert!(NodePlacement::default().score(&matrix).iter().all(|score| (0.0..=1.0).contains(score)));
    }
}

fn explained(node: &[f64]) -> Vec<String> {
    let matrix = Matrix::new(FEATURES.len(), node.to_vec()).unwrap();
    NodePlacement::default().explain(&matrix, node).into_iter().map(|term| term.message).collect()
}

#[test]
fn an_explanation_says_what_each_part_is_made_from() {
    let known = [
        ("model-present", 0.0),
        ("model-seconds-left", 60.0),
        ("gang-size", 0.0),
        ("domain-accelerators-taken-share", 0.5),
        ("domain-free-nodes", 1.0),
        ("zone-spread", 0.0),
        ("subject-pods", 1.0),
        ("peer-distance", 2.0),
        ("adjacent-accelerators", 3.0),
        ("image-share", 0.5),
    ];
    assert_eq!(
        explained(&with_accelerators(3.0, 2.0, &known)),
        [
            "It will have the model in 60 s: 0.96 of 1, weight 8 of 24.5.",
            "The pod is in no gang: 0.50 of 1, weight 6 of 24.5.",
            "1 accelerators remain: 0.67 of 1, weight 4 of 24.5.",
            "50 % of its domain's accelerators are in use, and 1 of its nodes are wholly free: 0.65 of 1, weight 2 of 24.5.",
            "Its zone has 0 replicas of the pod more than the zone with the fewest, and it has 1: 0.73 of 1, weight 2 of 24.5.",
            "The nearest pod with another role is in its RDMA domain: 0.75 of 1, weight 1.5 of 24.5.",
            "3 of its free accelerators are linked to one another, and the pod requests 2: 1.00 of 1, weight 0.5 of 24.5.",
            "It has 50 % of the pod's images: 0.50 of 1, weight 0.5 of 24.5.",
        ]
    );
    let gang = [("gang-size", 16.0), ("gang-placed", 3.0), ("gang-distance", 1.0), ("gang-domain-free-accelerators", -8.0)];
    let messages = explained(&with_accelerators(8.0, 4.0, &gang));
    let gang =
        "Of the gang's 3 placed pods the farthest is in its NVLink domain, and its domain lacks 8 accelerators for the rest of the gang";
    assert!(messages[1].starts_with(gang), "{messages:?}");
    assert_eq!(messages[2], "4 accelerators remain on a node that was wholly free: 0.08 of 1, weight 4 of 24.5.");
    assert_eq!(messages[4], "Pods of a gang aren't spread: 0.50 of 1, weight 2 of 24.5.");
    let crowded = with_accelerators(4.0, 4.0, &[("zone-spread", 1.0), ("subject-pods", 1.0)]);
    let packing = "Its zone has more replicas of the pod than another, so nothing is packed there";
    assert_eq!(explained(&crowded)[2], format!("{packing}: 0.00 of 1, weight 4 of 24.5."));
}
