use super::{
    holders::Holders,
    index::{MAX_CAPACITY, MAX_ENDPOINTS, lock},
    shard::Shard,
    *,
};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap, HashSet};
use xxhash_rust::xxh64::xxh64;

/// An arbitrary hash. The hashes of prompts are evenly distributed.
fn hash(of: u64) -> u64 {
    xxh64(&of.to_le_bytes(), 0)
}

fn hashes(of: std::ops::Range<u64>) -> Vec<u64> {
    of.map(hash).collect()
}

fn matched(index: &PrefixIndex, hashes: &[u64]) -> Vec<(EndpointId, usize)> {
    let mut matches = Matches::default();
    index.matches(hashes, &mut matches);
    let mut found: Vec<_> = matches.iter().collect();
    assert!(found.is_sorted_by(|a, b| a.1 >= b.1), "longest first");
    assert_eq!(matches.longest(), found.first().map_or(0, |(_, blocks)| *blocks));
    assert_eq!(matches.is_empty(), found.is_empty());
    assert!(found.iter().all(|(endpoint, blocks)| *blocks > 0 && matches.blocks(*endpoint) == *blocks));
    found.sort_unstable();
    found
}

/// The number of these blocks that an endpoint holds, in any order.
fn held(index: &PrefixIndex, endpoint: EndpointId, hashes: &[u64]) -> usize {
    hashes.iter().filter(|hash| matched(index, &[**hash]).iter().any(|(found, _)| *found == endpoint)).count()
}

/// Checks that queues and shards agree: each queued block occurs once, and each holder has its blocks queued.
fn audit(index: &PrefixIndex) {
    let mut queued = 0;
    for (number, place) in (0u32..).zip(&index.endpoints) {
        let Some(place) = place.get() else { continue };
        let queue = lock(&place.0);
        assert!(queue.keys.len() <= queue.capacity);
        assert_eq!(queue.keys.iter().collect::<HashSet<_>>().len(), queue.keys.len(), "a block is queued once");
        for key in &queue.keys {
            let shard = index.shard(*key);
            let (holders, sets) = shard.holders(*key).expect("a queued block has holders");
            assert_eq!(holders.word((number / 64) as usize, sets) >> (number % 64) & 1, 1, "a queued block is held");
        }
        queued += queue.keys.len();
    }
    let held: u32 = index
        .shards
        .iter()
        .map(|shard| {
            let Shard { table, sets } = &*lock(&shard.0);
            table
                .slots
                .iter()
                .flat_map(|slot| (0..slot.holders.words(sets)).map(|word| slot.holders.word(word, sets).count_ones()))
                .sum::<u32>()
        })
        .sum();
    assert_eq!(held as usize, queued, "nobody holds what isn't queued");
    assert_eq!(index.len(), queued);
}

#[test]
fn hashes_are_as_documented() {
    let text: Vec<u8> = (0..=255).cycle().take(600).collect();
    let chain = |block: &[u8], before: u64| xxh64(&[xxh64(block, 0).to_le_bytes(), before.to_le_bytes()].concat(), 0);
    let first = chain(&text[..256], xxh64(b"llama", 0));
    assert_eq!(hash_pieces("llama", "", BlockSize::default(), [&text[..]]), [first, chain(&text[256..512], first)]);
    let salted = chain(&text[..256], xxh64(b"llama\xffsalt", 0));
    assert_eq!(hash_pieces("llama", "salt", BlockSize::default(), [&text[..300]]), [salted]);
    // As a constant too, so that another byte order or version of the algorithm is noticed.
    assert_eq!(first, 1_892_014_843_035_057_902);
}

#[test]
fn hashes_differ_by_model_salt_and_everything_before() {
    let text = [b'a'; 512];
    let of = |model: &str, salt: &str, text: &[u8]| hash_pieces(model, salt, BlockSize::default(), [text]);
    let all = [
        of("ab", "", &text),
        of("a", "", &text),
        of("a", "b", &text),
        of("", "ab", &text),
        of("ab", "c", &text),
        of("a", "bc", &text),
        of("ab", "", &[b"b".as_slice(), &text[1..]].concat()),
    ];
    assert!(all.iter().all(|hashes| hashes.len() == 2));
    assert_eq!(all.iter().flatten().collect::<HashSet<_>>().len(), all.len() * 2);
}

#[test]
fn block_sizes() {
    assert_eq!(BlockSize::of_engine(16).tokens(), 64);
    assert_eq!(BlockSize::of_engine(128).tokens(), 128);
    assert_eq!((BlockSize::exactly(16).bytes(), BlockSize::exactly(16).max_blocks()), (64, 8_192));
    assert_eq!((BlockSize::exactly(0).bytes(), BlockSize::exactly(0).max_blocks()), (4, 131_072));
    assert_eq!(BlockSize::exactly(u32::MAX).max_blocks(), 0);
    assert_eq!(BlockSize::of_engine(16).capacity(10_000, 16), 2_500);
    assert_eq!(BlockSize::of_engine(256).capacity(10_000, 256), 10_000);
    assert_eq!(BlockSize::exactly(1).capacity(u64::MAX, u32::MAX), usize::MAX);
}

#[test]
fn prompts_are_hashed_up_to_the_cap() {
    let (size, text) = (BlockSize::default(), vec![b'x'; 600_000]);
    let all = hash_pieces("m", "", size, [&text[..]]);
    assert_eq!(all.len(), 2_048);
    // The rest isn't read.
    assert_eq!(hash_pieces("m", "", size, std::iter::repeat(&text[..1_000])), all);
    let mut hasher = PrefixHasher::new("m", "", BlockSize::exactly(u32::MAX));
    hasher.write(&text);
    assert!(hasher.is_full() && hasher.hashes().is_empty());
    assert!(hash_pieces("m", "", size, [&text[..255]]).is_empty(), "a partial block doesn't count");
    assert!(hash_pieces("m", "", size, []).is_empty());
}

proptest! {
    #[test]
    fn hashes_are_the_same_in_any_pieces(
        text in prop::collection::vec(any::<u8>(), 0..1_500),
        cuts in prop::collection::vec(0usize..1_500, 0..12),
        tokens in 1u32..80,
    ) {
        let size = BlockSize::exactly(tokens);
        let whole = hash_pieces("m", "s", size, [&text[..]]);
        prop_assert_eq!(whole.len(), text.len() / size.bytes());
        let mut hasher = PrefixHasher::new("m", "s", size);
        let cuts: BTreeSet<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([text.len()]).collect();
        let mut from = 0;
        for to in cuts {
            hasher.write(&text[from..to]);
            prop_assert_eq!(hasher.hashes(), &whole[..to / size.bytes()]);
            from = to;
        }
        prop_assert_eq!(&hasher.finish(), &whole);
        prop_assert_eq!(hash_pieces("m", "s", size, text.chunks(1)), whole);
    }

    /// Keys with nearby homes, so that slots are contended and gaps are closed across the end of the table.
    #[test]
    fn tables_are_maps(operations in prop::collection::vec((any::<bool>(), 0u64..6, 0u64..12), 0..300)) {
        let (mut shard, mut model) = (Shard::default(), HashSet::new());
        for (add, high, low) in operations {
            let key = [0, 1 << 60, 7 << 60, 13 << 60, 15 << 60, u64::MAX - 20][usize::try_from(high).unwrap()] + low;
            if add {
                prop_assert_eq!(shard.add(key, 1), model.insert(key));
            } else {
                prop_assert!(!shard.take(key, 1, false));
                model.remove(&key);
            }
            let held: Vec<u64> = shard.table.slots.iter().filter(|slot| !slot.holders.is_none()).map(|slot| slot.key).collect();
            prop_assert_eq!(held.len(), model.len());
            prop_assert!(model.iter().all(|key| shard.holders(*key).is_some()));
            prop_assert!(held.iter().all(|key| model.contains(key)));
            let slots = shard.table.slots.len();
            prop_assert!(held.len() * 5 <= slots * 4 && (slots <= 16 || held.len() * 5 >= slots * 2));
        }
    }

    /// Compares one block's holders with a map of marks: in place, in a set, and back.
    #[test]
    fn holders_are_maps(operations in prop::collection::vec((0u8..4, 0usize..7), 0..80)) {
        let (mut shard, mut model) = (Shard::default(), HashMap::new());
        for (operation, which) in operations {
            let endpoint = [0u16, 1, 63, 64, 130, 511, 4_095][which];
            match operation {
                0 | 1 => {
                    let known = model.contains_key(&endpoint);
                    prop_assert_eq!(shard.add(9, endpoint), !known);
                    model.insert(endpoint, known);
                }
                2 => {
                    let spared = model.get(&endpoint) == Some(&true);
                    prop_assert_eq!(shard.take(9, endpoint, true), spared);
                    if spared { model.insert(endpoint, false); } else { model.remove(&endpoint); }
                }
                _ => {
                    prop_assert!(!shard.take(9, endpoint, false));
                    model.remove(&endpoint);
                }
            }
            let held = shard.holders(9).map_or(vec![], |(holders, sets)| {
                let words = (0u16..).step_by(64).zip(0..holders.words(sets));
                words.flat_map(|(base, word)| (0..64).filter(move |nth| holders.word(word, sets) >> nth & 1 == 1).map(move |nth| base + nth)).collect()
            });
            let mut expected: Vec<u16> = model.keys().copied().collect();
            expected.sort_unstable();
            prop_assert_eq!(held, expected);
            prop_assert_eq!(shard.holders(9).is_some_and(|(holders, _)| matches!(holders, Holders::Many(_))), model.len() > 3);
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Record(usize, Vec<u64>),
    Matches(Vec<u64>),
    Forget(usize),
    Capacity(usize, usize),
}

const ENDPOINTS: [EndpointId; 7] =
    [EndpointId(0), EndpointId(1), EndpointId(63), EndpointId(64), EndpointId(130), EndpointId(511), EndpointId(MAX_ENDPOINTS - 1)];

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let prompt = || prop::collection::vec((0u64..16).prop_map(hash), 0..12);
    let operation = prop_oneof![
        6 => (0..ENDPOINTS.len(), prompt()).prop_map(|(endpoint, prompt)| Operation::Record(endpoint, prompt)),
        4 => prompt().prop_map(Operation::Matches),
        1 => (0..ENDPOINTS.len()).prop_map(Operation::Forget),
        1 => (0..ENDPOINTS.len(), 0..10usize).prop_map(|(endpoint, blocks)| Operation::Capacity(endpoint, blocks)),
    ];
    prop::collection::vec(operation, 0..80)
}

proptest! {
    #[test]
    fn below_capacity_matches_are_those_of_a_plain_map(operations in operations()) {
        let index = PrefixIndex::new();
        let mut model: HashMap<EndpointId, HashSet<u64>> = HashMap::new();
        for operation in operations {
            match operation {
                Operation::Record(endpoint, prompt) => {
                    index.record(ENDPOINTS[endpoint], &prompt);
                    model.entry(ENDPOINTS[endpoint]).or_default().extend(prompt);
                }
                Operation::Matches(prompt) => {
                    let expected: Vec<_> = ENDPOINTS
                        .iter()
                        .map(|endpoint| (*endpoint, prompt.iter().take_while(|hash| model.get(endpoint).is_some_and(|held| held.contains(hash))).count()))
                        .filter(|(_, blocks)| *blocks > 0)
                        .collect();
                    prop_assert_eq!(matched(&index, &prompt), expected);
                }
                Operation::Forget(endpoint) => {
                    index.forget(ENDPOINTS[endpoint]);
                    model.remove(&ENDPOINTS[endpoint]);
                }
                Operation::Capacity(endpoint, more) => index.set_capacity(ENDPOINTS[endpoint], 16 + more),
            }
            prop_assert_eq!(index.len(), model.values().map(HashSet::len).sum::<usize>());
        }
        audit(&index);
    }

    #[test]
    fn capacity_is_never_exceeded(operations in operations()) {
        let index = PrefixIndex::new();
        for operation in operations {
            match operation {
                Operation::Record(endpoint, prompt) => index.record(ENDPOINTS[endpoint], &prompt),
                Operation::Matches(prompt) => drop(matched(&index, &prompt)),
                Operation::Forget(endpoint) => {
                    index.forget(ENDPOINTS[endpoint]);
                    prop_assert_eq!(index.endpoint_len(ENDPOINTS[endpoint]), 0);
                }
                Operation::Capacity(endpoint, blocks) => index.set_capacity(ENDPOINTS[endpoint], blocks),
            }
            prop_assert!(index.endpoints.iter().filter_map(|place| place.get()).map(|place| lock(&place.0)).all(|queue| queue.keys.len() <= queue.capacity));
        }
        audit(&index);
    }
}

#[test]
fn the_oldest_goes_first_without_marks() {
    let (index, endpoint) = (PrefixIndex::new(), EndpointId(3));
    index.set_capacity(endpoint, 1_000);
    for of in 0..1_500 {
        index.record(endpoint, &[hash(of)]);
    }
    assert_eq!(index.endpoint_len(endpoint), 1_000);
    assert_eq!(held(&index, endpoint, &hashes(0..500)), 0);
    assert_eq!(held(&index, endpoint, &hashes(500..1_500)), 1_000);
}

#[test]
fn what_is_used_again_outlives_what_is_not() {
    let (index, endpoint) = (PrefixIndex::new(), EndpointId(0));
    index.set_capacity(endpoint, 1_000);
    let hot = hashes(0..300);
    for round in 1..200 {
        index.record(endpoint, &hot);
        index.record(endpoint, &hashes(round * 1_000..round * 1_000 + 400));
        assert_eq!(matched(&index, &hot), [(endpoint, 300)], "round {round}");
    }
    audit(&index);
}

#[test]
fn everything_marked_does_not_keep_new_blocks_out() {
    let (index, endpoint) = (PrefixIndex::new(), EndpointId(0));
    index.set_capacity(endpoint, 9_000);
    index.record(endpoint, &hashes(0..9_000));
    index.record(endpoint, &hashes(0..9_000));
    index.record(endpoint, &hashes(10_000..10_010));
    assert_eq!(matched(&index, &hashes(10_000..10_010)), [(endpoint, 10)]);
    assert_eq!(held(&index, endpoint, &hashes(0..9_000)), 8_990);
}

#[test]
fn the_end_of_a_prompt_goes_before_its_beginning() {
    let (index, endpoint) = (PrefixIndex::new(), EndpointId(0));
    index.set_capacity(endpoint, 100);
    index.record(endpoint, &hashes(0..80));
    index.record(endpoint, &hashes(1_000..1_050));
    assert_eq!(matched(&index, &hashes(0..80)), [(endpoint, 50)]);
    // A prompt that exceeds the capacity: its first blocks are kept.
    index.record(endpoint, &hashes(5_000..9_000));
    assert_eq!(matched(&index, &hashes(5_000..9_000)), [(endpoint, 100)]);
}

#[test]
fn capacities_change() {
    let (index, endpoint) = (PrefixIndex::new(), EndpointId(0));
    index.record(endpoint, &hashes(0..2_000));
    index.set_capacity(endpoint, 700);
    assert_eq!(matched(&index, &hashes(0..2_000)), [(endpoint, 700)]);
    index.set_capacity(endpoint, 900);
    index.record(endpoint, &hashes(5_000..5_200));
    assert_eq!(index.len(), 900);
    index.set_capacity(endpoint, 0);
    index.record(endpoint, &hashes(0..10));
    assert!(index.is_empty());
    index.set_capacity(endpoint, usize::MAX);
    assert_eq!(lock(&index.endpoints[0].get().unwrap().0).capacity, MAX_CAPACITY);
    audit(&index);
}

#[test]
fn a_number_given_again_inherits_nothing() {
    let (index, gone, stays) = (PrefixIndex::new(), EndpointId(7), EndpointId(8));
    index.set_capacity(gone, 1_200);
    for endpoint in [gone, stays] {
        index.record(endpoint, &hashes(0..1_200));
        index.record(endpoint, &hashes(0..1_200));
    }
    index.forget(gone);
    index.forget(EndpointId(9));
    assert_eq!(matched(&index, &hashes(0..1_200)), [(stays, 1_200)]);
    index.record(gone, &hashes(0..4));
    assert_eq!(matched(&index, &hashes(0..1_200)), [(gone, 4), (stays, 1_200)]);
    // Its capacity is the default again.
    index.record(gone, &hashes(10_000..12_000));
    assert_eq!(index.endpoint_len(gone), 2_004);
    audit(&index);
}

#[test]
fn numbers_beyond_the_most_are_ignored() {
    let index = PrefixIndex::new();
    for number in [MAX_ENDPOINTS, 65_536, u32::MAX] {
        index.record(EndpointId(number), &hashes(0..4));
        index.set_capacity(EndpointId(number), 4);
        index.forget(EndpointId(number));
        assert_eq!(index.endpoint_len(EndpointId(number)), 0);
    }
    assert!(index.is_empty() && matched(&index, &hashes(0..4)).is_empty());
}

#[test]
fn five_hundred_endpoints_share_a_prefix() {
    let index = PrefixIndex::new();
    let prompt = hashes(0..100);
    for number in 0..500 {
        index.record(EndpointId(number), &prompt[..=(number as usize % 100)]);
    }
    let expected: Vec<_> = (0..500).map(|number| (EndpointId(number), number as usize % 100 + 1)).collect();
    assert_eq!(matched(&index, &prompt), expected);
    // Reused scratch memory contains nothing of the previous prompt.
    let mut matches = Matches::default();
    index.matches(&prompt, &mut matches);
    index.matches(&hashes(500..510), &mut matches);
    assert!(matches.is_empty() && (0..500).all(|number| matches.blocks(EndpointId(number)) == 0));
    index.matches(&prompt[..2], &mut matches);
    assert_eq!((matches.longest(), matches.blocks(EndpointId(0)), matches.blocks(EndpointId(99))), (2, 1, 2));
}

#[test]
fn threads_share_an_index() {
    let index = PrefixIndex::new();
    for number in 0..6 {
        index.set_capacity(EndpointId(number), 300);
    }
    std::thread::scope(|scope| {
        for thread in 0u64..4 {
            let index = &index;
            scope.spawn(move || {
                let mut matches = Matches::default();
                for round in 0..1_500 {
                    let random = hash(thread << 32 | round);
                    let endpoint = EndpointId(u32::try_from(random % 6).unwrap());
                    let from = random >> 8 & 0x3f;
                    let prompt = hashes(from * 10..from * 10 + 40);
                    match random >> 24 & 0x1f {
                        0 => index.forget(endpoint),
                        1 => index.set_capacity(endpoint, 200 + (random >> 40 & 0x7f) as usize),
                        2..12 => index.record(endpoint, &prompt),
                        _ => {
                            index.matches(&prompt, &mut matches);
                            assert!(matches.iter().all(|(endpoint, blocks)| endpoint.0 < 6 && (1..=40).contains(&blocks)));
                        }
                    }
                }
            });
        }
    });
    audit(&index);
    for number in 0..6 {
        index.forget(EndpointId(number));
    }
    assert!(index.is_empty());
    audit(&index);
}

#[test]
fn memory_is_bounded() {
    assert_eq!(size_of::<super::table::Slot>(), 16);
    let index = PrefixIndex::new();
    let empty = index.memory();
    assert!(empty < 128 << 10, "{empty}");
    for number in 0..8 {
        index.set_capacity(EndpointId(number), 5_000);
    }
    for batch in 0..10_000 {
        index.record(EndpointId(batch % 8), &hashes(u64::from(batch) * 100..u64::from(batch) * 100 + 100));
    }
    assert_eq!(index.len(), 40_000);
    let used = index.memory() - empty;
    assert!(used <= 40_000 * 38, "{used}");
    audit(&index);
    // All have the same blocks, so only the queues are separate.
    for number in 0..8 {
        index.record(EndpointId(number), &hashes(0..5_000));
    }
    assert_eq!(index.len(), 40_000);
    let shared = index.memory() - empty;
    assert!(shared < 40_000 * 24, "{shared}");
    for number in 0..8 {
        index.forget(EndpointId(number));
    }
    let forgotten = index.memory() - empty;
    assert!(forgotten <= 256 * 16 * 16 + 8 * 128, "{forgotten}");
}
