use super::*;

/// Blocks of four tokens, which are sixteen bytes.
fn engine() -> ModelEngine {
    let settings =
        EngineSettings { max_num_seqs: 2, blocks: 8, block_size: 4, prefill_us_per_token: 10, decode_us: 100, decode_us_per_running: 10 };
    ModelEngine::new(settings)
}

fn request<P>(id: u64, prompt: P, max_tokens: usize) -> EngineRequest<P> {
    EngineRequest { id, model: 0, prompt, max_tokens }
}

fn blocks(hashes: &[u64], tokens: usize) -> PromptBlocks {
    PromptBlocks { hashes: hashes.into(), tokens }
}

/// Runs an engine until no events remain.
fn drain(engine: &mut ModelEngine) -> Vec<EngineEvent> {
    std::iter::from_fn(|| engine.next_event().map(|at| engine.advance(at))).flatten().collect()
}

/// The number of cached tokens of each prompt when its request started.
fn cached(events: &[EngineEvent]) -> Vec<(u64, usize)> {
    let started = |event: &EngineEvent| match event.progress {
        Progress::Started { cached_tokens, .. } => Some((event.id, cached_tokens)),
        Progress::Token { .. } => None,
    };
    events.iter().filter_map(started).collect()
}

#[test]
fn text_and_its_blocks_take_the_same_time() {
    let texts = ["0123456789abcdef0123456789abcdefone", "0123456789abcdef0123456789abcdeftwo", "0123456789abcdef"];
    let (mut of_text, mut of_blocks) = (engine(), engine());
    for (id, (text, hashes)) in (0..).zip(texts.into_iter().zip([&[1, 2][..], &[1, 2], &[1]])) {
        of_text.arrive(id * 1000, request(id, text.as_bytes().to_vec(), 2)).unwrap();
        of_blocks.arrive(id * 1000, request(id, blocks(hashes, text.len().div_ceil(BYTES_PER_TOKEN)), 2)).unwrap();
    }
    let events = drain(&mut of_text);
    assert_eq!(cached(&events), [(0, 0), (1, 8), (2, 0)], "the last token of a prompt is always computed, and so is its block");
    assert_eq!(events, drain(&mut of_blocks));
    assert_eq!(of_text.counts(), of_blocks.counts());
}

#[test]
fn a_block_that_is_not_full_is_not_shared_and_an_empty_prompt_has_a_token() {
    let mut engine = engine();
    for id in 0..2 {
        engine.arrive(id * 1000, request(id, blocks(&[1, 2], 7), 1)).unwrap();
    }
    engine.arrive(2000, request(2, PromptBlocks::default(), 1)).unwrap();
    assert_eq!(cached(&drain(&mut engine)), [(0, 0), (1, 4), (2, 0)]);
    let counts = engine.counts();
    assert_eq!((counts.prefix_queries, counts.prefix_hits, counts.cache_usage), (7 + 7 + 1, 4, 0.0));
    let refused = engine.arrive(3000, request(3, blocks(&[], 32), 1)).unwrap_err();
    assert_eq!((refused.tokens, refused.limit), (33, 32));
}
