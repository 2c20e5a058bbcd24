//! The simulated model server: its engine in simulated time, and its API for clients and endpoint pickers.

use pointsman_harness::{http_get, http_request};
use pointsman_tests::{
    eventually,
    model_server::{EngineEvent, EngineRequest, EngineSettings, ModelEngine, ModelServer, Progress, Settings},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

const CHAT: &str = "/v1/chat/completions";

/// Blocks of four tokens with sixteen bytes each, and two concurrent requests.
fn small() -> EngineSettings {
    EngineSettings { max_num_seqs: 2, blocks: 8, block_size: 4, prefill_us_per_token: 10, decode_us: 100, decode_us_per_running: 10 }
}

fn engine_request(id: u64, prompt: &str, max_tokens: usize) -> EngineRequest {
    EngineRequest { id, model: 0, prompt: prompt.as_bytes().to_vec(), max_tokens }
}

/// Runs an engine until it is idle.
fn drain(engine: &mut ModelEngine) -> Vec<EngineEvent> {
    let mut events = Vec::new();
    while let Some(at) = engine.next_event() {
        events.extend(engine.advance(at));
    }
    events
}

/// The number of cached tokens of a request's prompt.
fn cached(events: &[EngineEvent], id: u64) -> Option<usize> {
    events.iter().filter(|event| event.id == id).find_map(|event| match event.progress {
        Progress::Started { cached_tokens, .. } => Some(cached_tokens),
        Progress::Token { .. } => None,
    })
}

#[test]
fn prefills_follow_each_other_and_running_requests_share_steps() {
    let mut engine = ModelEngine::new(small());
    for (id, prompt) in ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc"].into_iter().enumerate() {
        engine.arrive(0, engine_request(id as u64, prompt, 2)).unwrap();
    }
    assert_eq!((engine.counts().running, engine.counts().waiting), (1, 2));
    let events = drain(&mut engine);
    let times: Vec<(u64, u64)> = events.iter().map(|event| (event.at, event.id)).collect();
    // The first request gets its first token after its prefill, and the second one after its own. The first one's next token comes from a
    // step that began without the second one, whose next token comes from the step after that. Until then the third request is queued.
    assert_eq!(times, [(0, 0), (40, 0), (40, 1), (80, 1), (150, 0), (150, 2), (190, 2), (260, 1), (370, 2)]);
    assert!(matches!(events.last().unwrap().progress, Progress::Token { number: 1, is_last: true }));
    assert_eq!((engine.counts().running, engine.counts().cache_usage), (0, 0.0));
}

#[test]
fn prefixes_are_cached_for_their_model_until_the_room_is_needed() {
    let mut engine = ModelEngine::new(small());
    let shared = "0123456789abcdef0123456789abcdeF";
    engine.arrive(0, engine_request(0, &format!("{shared}one"), 1)).unwrap();
    drain(&mut engine);
    engine.arrive(1000, engine_request(1, &format!("{shared}two"), 1)).unwrap();
    engine.arrive(1000, EngineRequest { model: 1, ..engine_request(2, &format!("{shared}one"), 1) }).unwrap();
    // The last token is always computed, so its block isn't taken from the cache.
    engine.arrive(1000, engine_request(3, shared, 1)).unwrap();
    let events = drain(&mut engine);
    assert_eq!([1, 2, 3].map(|id| cached(&events, id)), [Some(8), Some(0), Some(4)]);
    assert_eq!((engine.counts().prefix_queries, engine.counts().prefix_hits), (9 + 9 + 9 + 8, 12));
    // This request needs all eight blocks, so the cache is evicted.
    engine.arrive(5000, engine_request(4, &"x".repeat(7 * 16), 4)).unwrap();
    drain(&mut engine);
    engine.arrive(9000, engine_request(5, &format!("{shared}two"), 1)).unwrap();
    let events = drain(&mut engine);
    assert_eq!(cached(&events, 5), Some(0));
}

#[test]
fn requests_wait_for_blocks_and_leave_when_they_are_cancelled() {
    let mut engine = ModelEngine::new(small());
    let refused = engine.arrive(0, engine_request(9, &"x".repeat(8 * 16), 1)).unwrap_err();
    assert_eq!((refused.tokens, refused.limit), (33, 32));
    engine.arrive(0, engine_request(0, &"x".repeat(16), 20)).unwrap();
    engine.arrive(0, engine_request(1, &"y".repeat(16), 4)).unwrap();
    engine.arrive(0, engine_request(2, &"z".repeat(16), 12)).unwrap();
    engine.advance(90);
    // The first request holds six blocks and the second one the others. The third one gets its slot and its blocks only later.
    assert_eq!((engine.counts().running, engine.counts().waiting, engine.counts().cache_usage), (2, 1, 1.0));
    engine.cancel(100, 1);
    assert_eq!((engine.counts().running, engine.counts().waiting), (1, 1));
    engine.cancel(110, 0);
    assert_eq!((engine.counts().running, engine.counts().waiting, engine.counts().cache_usage), (1, 0, 0.5));
    engine.cancel(120, 2);
    assert_eq!((engine.counts().running, engine.counts().cache_usage), (0, 0.0));
    assert!(drain(&mut engine).iter().all(|event| event.id != 9));
}

/// Requests of many sizes that share prefixes. Some of them are cancelled.
fn random_run(seed: u64) -> Vec<EngineEvent> {
    let mut state = seed;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut engine = ModelEngine::new(EngineSettings { max_num_seqs: 4, blocks: 24, ..small() });
    let (mut now, mut events, mut wanted) = (0, Vec::new(), BTreeMap::new());
    for id in 0..500 {
        now += below(300);
        let (group, length, max_tokens) = (below(4), below(160), 1 + below(8));
        let prompt = group.to_string().repeat(usize::try_from(length).unwrap());
        wanted.insert(id, max_tokens);
        engine.arrive(now, engine_request(id, &prompt, usize::try_from(max_tokens).unwrap())).unwrap();
        if below(5) == 0 {
            let cancelled = id - below(10).min(id);
            events.extend(engine.advance(now));
            engine.cancel(now, cancelled);
            wanted.remove(&cancelled);
        }
        let counts = engine.counts();
        assert!(counts.running <= 4 && (0.0..=1.0).contains(&counts.cache_usage), "{counts:?}");
    }
    events.extend(drain(&mut engine));
    assert_eq!((engine.counts().running, engine.counts().waiting, engine.counts().cache_usage), (0, 0, 0.0));
    for (id, max_tokens) in wanted {
        let tokens = events.iter().filter(|event| event.id == id && matches!(event.progress, Progress::Token { .. })).count();
        assert_eq!(tokens as u64, max_tokens, "request {id}");
    }
    assert!(events.is_sorted_by_key(|event| event.at));
    events
}

#[test]
fn every_request_gets_its_tokens_and_equal_runs_are_equal() {
    for seed in 0..20 {
        assert_eq!(random_run(seed), random_run(seed));
    }
}

fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let (status, answer) = http_request(&address.to_string(), "POST", path, &body.to_string()).unwrap();
    (status, serde_json::from_str(&answer).unwrap())
}

#[test]
fn answers_are_openais_and_metrics_are_vllms() {
    let server = ModelServer::start(ANY_PORT, Settings::new("one", &["llama", "sql", "chat"]));
    let prompt = "0123456789abcdef".repeat(16);
    let asked = json!({"model": "sql", "prompt": prompt, "max_tokens": 3});
    let (status, first) = post(server.address(), "/v1/completions", &asked);
    assert_eq!((status, &first["model"], &first["choices"][0]["text"]), (200, &json!("sql"), &json!("one-0 one-1 one-2")));
    let (_, second) = post(server.address(), "/v1/completions", &asked);
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let usage = json!({"prompt_tokens": 64, "total_tokens": 67, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 48}});
    assert_eq!(second["usage"], usage);
    let (status, unknown) = post(server.address(), CHAT, &json!({"model": "nobody's", "messages": [{"role": "user", "content": "a"}]}));
    assert_eq!((status, &unknown["error"]["message"]), (404, &json!("The model `nobody's` does not exist.")));
    assert_eq!(post(server.address(), CHAT, &json!({"model": "llama"})).0, 400);
    let address = server.address().to_string();
    let (_, models) = http_get(&address, "/v1/models").unwrap();
    let models: Value = serde_json::from_str(&models).unwrap();
    assert_eq!((&models["data"][0]["id"], &models["data"][2]["parent"]), (&json!("llama"), &json!("llama")));
    assert_eq!(http_get(&address, "/health").unwrap(), (200, String::new()));
    let (_, page) = http_get(&address, "/metrics").unwrap();
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"llama\"} 0",
        "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"llama\"} 128",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"llama\"} 48",
        "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",engine=\"0\",num_gpu_blocks=\"4096\"} 1.0",
        "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} ",
    ] {
        assert!(page.lines().any(|found| found.starts_with(line)), "{line}\n{page}");
    }
    let seen = server.seen();
    assert_eq!((seen.requests, seen.last[0].model.as_deref(), seen.last[2].model.as_deref()), (5, Some("sql"), Some("nobody's")));
    assert_eq!((&*seen.last[0].body, seen.last[0].headers["host"].as_bytes()), (asked.to_string().as_bytes(), address.as_bytes()));
}

/// Sends a request for a stream that doesn't end, and waits for its first event.
fn begin_stream(address: SocketAddr, model: &str) -> BufReader<TcpStream> {
    let body = json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "a"}]}).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut reader = BufReader::new(stream);
    let first = reader.by_ref().lines().map(Result::unwrap).find(|line| line.starts_with("data: "));
    assert!(first.is_some());
    reader
}

#[tokio::test]
async fn a_server_shows_its_load_and_ends_with_its_connections() {
    let mut settings = Settings::new("one", &["llama", "sql"]);
    settings.engine = EngineSettings { max_num_seqs: 1, decode_us: u64::from(u32::MAX), ..settings.engine };
    let server = ModelServer::start(ANY_PORT, settings.clone());
    let mut running = begin_stream(server.address(), "llama");
    let address = server.address();
    let waits = std::thread::spawn(move || post_quietly(address));
    eventually("a request waits", async || (server.counts().waiting == 1).then_some(())).await;
    let (_, page) = http_get(&address.to_string(), "/metrics").unwrap();
    assert!(page.contains("running_lora_adapters=\"\",waiting_lora_adapters=\"sql\""), "{page}");
    drop(server);
    let mut rest = Vec::new();
    running.read_to_end(&mut rest).ok();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the answer breaks off");
    assert!(!waits.join().unwrap());
    assert!(TcpStream::connect(address).is_err());
    let again = ModelServer::start(address, settings);
    assert_eq!(http_get(&again.address().to_string(), "/health").unwrap().0, 200);
}

/// Whether a request to the adapter succeeds.
fn post_quietly(address: SocketAddr) -> bool {
    http_request(&address.to_string(), "POST", "/v1/completions", r#"{"model": "sql", "prompt": "a"}"#).is_ok()
}

/// A process that is killed at the end of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_server_is_a_process_that_a_test_can_kill() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_model-server"));
    command.args(["--until-stdin-closes", "--name", "one", "--model", "llama", "--decode-us", "4000000000"]);
    let mut process = Killed(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let address = said["address"].as_str().unwrap().parse().unwrap();
    let mut running = begin_stream(address, "llama");
    drop(process);
    running.read_to_end(&mut Vec::new()).ok();
    assert!(TcpStream::connect(address).is_err());
}
