//! Byte streams as proxies send them, most of them legal or nearly so. The output must be in order and complete, and the memory limited.

use super::{
    framing::{self, Framing},
    *,
};
use proptest::sample::{Index, select};

/// The maximum length of a message.
const MAX_MESSAGE: usize = 1 << 18;

/// The maximum number of pieces of a body with this length. Shorter pieces are joined.
fn max_pieces(length: usize) -> usize {
    2 * (length / 1024) + 2
}

/// The behaviour of a generated picker.
#[derive(Clone, Debug)]
struct Plan {
    /// The number of messages between the complete request and the pick.
    delay: usize,
    refuses: bool,
    /// The body to send on instead.
    edited: Option<Vec<u8>>,
    /// Whether the picker appends a byte to each chunk of the response, and one at the end.
    edits_response: bool,
    max_body: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    let limits = prop_oneof![3 => Just(1 << 20), 1 => 0..400_usize];
    (
        prop_oneof![3 => Just(0), 2 => 0..6_usize],
        prop::bool::weighted(0.15),
        proptest::option::of(vec(any::<u8>(), 0..80)),
        any::<bool>(),
        limits,
    )
        .prop_map(|(delay, refuses, edited, edits_response, max_body)| Plan { delay, refuses, edited, edits_response, max_body })
}

fn header_map() -> impl Strategy<Value = HeaderMap> {
    let names: &'static [&str] = &[
        ":path",
        ":status",
        "content-type",
        "prefer",
        "x-llm-d-inference-objective",
        "x-gateway-inference-fairness-id",
        "x-llm-d-model-name-rewrite",
        "x-slo-ttft-ms",
        "x-session-token",
        "x-other",
    ];
    let value = prop_oneof![
        3 => select(&["/v1/chat/completions", "200", "text/event-stream", "if-available", "1e400", "-0", "NaN", "", " a, b "][..])
            .prop_map(|text| text.as_bytes().to_vec()),
        2 => vec(any::<u8>(), 0..20),
        1 => (500..600_usize).prop_map(|length| vec![b'n'; length]),
    ];
    let header = (select(names), value, any::<bool>()).prop_map(|(key, value, is_older)| match String::from_utf8(value) {
        Ok(value) if is_older => HeaderValue { key: key.to_owned(), value, raw_value: Bytes::new() },
        Ok(value) => HeaderValue { key: key.to_owned(), value: String::new(), raw_value: value.into() },
        Err(error) => HeaderValue { key: key.to_owned(), value: String::new(), raw_value: error.into_bytes().into() },
    });
    vec(header, 0..5).prop_map(|headers| HeaderMap { headers })
}

/// The messages of one direction.
fn direction(
    headers: fn(HttpHeaders) -> From,
    body: fn(HttpBody) -> From,
    trailers: fn(HttpTrailers) -> From,
) -> impl Strategy<Value = Vec<From>> {
    let chunk = prop_oneof![
        8 => vec(any::<u8>(), 0..40),
        2 => vec(any::<u8>(), 1_000..1_100),
        1 => (60_000..130_000_usize).prop_map(|length| vec![b'x'; length]),
    ];
    (header_map(), vec(chunk, 0..7), 0..8_u8).prop_map(move |(map, chunks, form)| {
        let has_body = form > 0;
        let mut all = vec![headers(HttpHeaders { headers: Some(map.clone()), end_of_stream: !has_body })];
        if !has_body {
            return all;
        }
        // It ends with the last chunk, with an empty one, with trailers, or not at all.
        let last = chunks.len();
        let ends_within = form < 4 && last > 0;
        all.extend(
            chunks
                .into_iter()
                .enumerate()
                .map(|(at, bytes)| body(HttpBody { body: bytes.into(), end_of_stream: ends_within && at + 1 == last })),
        );
        match form {
            1..4 if ends_within => {}
            1..5 => all.push(body(HttpBody { body: Bytes::new(), end_of_stream: true })),
            5 | 6 => all.push(trailers(HttpTrailers { trailers: Some(map) })),
            _ => {}
        }
        all
    })
}

fn metadata() -> impl Strategy<Value = Option<Metadata>> {
    let text = prop_oneof![Just("10.0.0.1:8000,10.0.0.2".to_owned()), ".{0,12}", Just(",a".repeat(5_000))].prop_map(Kind::Text);
    let leaf = prop_oneof![3 => text, 1 => any::<f64>().prop_map(Kind::Number), 1 => any::<bool>().prop_map(Kind::Bool)];
    let list = |of: Vec<Kind>| Kind::List(ListValue { values: of.into_iter().map(|kind| Value { kind: Some(kind) }).collect() });
    let kind = prop_oneof![2 => leaf.clone(), 1 => vec(leaf, 0..4).prop_map(list)];
    let noted = (select(&[(SUBSET_HINT, SUBSET), (LOAD_BALANCER, SERVED), ("other", "key")][..]), kind)
        .prop_map(|((namespace, key), kind)| noted(namespace, key, kind));
    prop_oneof![5 => Just(None), 1 => noted.prop_map(Some)]
}

/// Both directions in one stream. Most responses begin after the end of their requests.
fn legal() -> impl Strategy<Value = Vec<ProcessingRequest>> {
    let modes = prop_oneof![4 => Just(None), 4 => Just(Some(BodySendMode::FullDuplexStreamed as i32)), 1 => (-1..8).prop_map(Some)];
    (
        direction(From::RequestHeaders, From::RequestBody, From::RequestTrailers),
        direction(From::ResponseHeaders, From::ResponseBody, From::ResponseTrailers),
        prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(Some)],
        vec(metadata(), 20),
        (modes, prop::bool::weighted(0.05)),
    )
        .prop_map(|(mut request, response, early, notes, (mode, observability_mode))| {
            // The response begins early, and the rest of the request is interleaved with it.
            let rest = early.map_or_else(Vec::new, |early| request.split_off(early.index(request.len()) + 1));
            let mut later = rest.into_iter();
            let response: Vec<From> = response.into_iter().flat_map(|part| [Some(part), later.next()]).flatten().collect();
            let parts = request.into_iter().chain(response).chain(later);
            let config = mode.map(|mode| ProtocolConfiguration { request_body_mode: mode, response_body_mode: mode });
            parts
                .zip(notes.into_iter().chain(std::iter::repeat(None)))
                .enumerate()
                .map(|(at, (part, metadata_context))| ProcessingRequest {
                    part: Some(part),
                    metadata_context,
                    observability_mode,
                    protocol_config: config.filter(|_| at == 0),
                })
                .collect()
        })
}

/// The faults of a stream: lost, repeated or reordered messages, and changed bytes.
#[derive(Clone, Debug, Default)]
struct Harm {
    messages: Vec<(u8, Index, Index)>,
    bytes: Vec<(Index, u8)>,
}

fn harm() -> impl Strategy<Value = Harm> {
    let messages = || vec((0..3_u8, any::<Index>(), any::<Index>()), 1..4);
    let bytes = || vec((any::<Index>(), any::<u8>()), 1..6);
    prop_oneof![
        4 => Just(Harm::default()),
        2 => messages().prop_map(|messages| Harm { messages, bytes: Vec::new() }),
        2 => bytes().prop_map(|bytes| Harm { messages: Vec::new(), bytes }),
        1 => (messages(), bytes()).prop_map(|(messages, bytes)| Harm { messages, bytes }),
    ]
}

impl Harm {
    fn is_none(&self) -> bool {
        self.messages.is_empty() && self.bytes.is_empty()
    }

    /// The stream with its faults.
    fn stream(&self, messages: &[ProcessingRequest]) -> Vec<u8> {
        let mut messages = messages.to_vec();
        for (how, one, other) in &self.messages {
            if messages.is_empty() {
                break;
            }
            let (one, other) = (one.index(messages.len()), other.index(messages.len()));
            match how {
                0 => drop(messages.remove(one)),
                1 => messages.insert(other, messages[one].clone()),
                _ => messages.swap(one, other),
            }
        }
        let mut stream = framing::encode(&messages).to_vec();
        for (place, byte) in &self.bytes {
            if !stream.is_empty() {
                let at = place.index(stream.len());
                stream[at] = *byte;
            }
        }
        stream
    }
}

/// A stream and its results, processed as in the gRPC server.
struct Run {
    plan: Plan,
    exchange: Exchange,
    proxy: Proxy,
    /// The number of messages before the pick.
    pick: Option<usize>,
    /// The part of the request's body that arrived while it was expected.
    came: Option<Vec<u8>>,
    /// The body to send on.
    goes_on: Vec<u8>,
    /// The body to send back.
    comes_back: Vec<u8>,
    picks: usize,
    has_ended: bool,
}

impl Run {
    fn new(plan: Plan) -> Self {
        Self {
            exchange: Exchange::new(Limits { max_body: plan.max_body }),
            plan,
            proxy: Proxy { skips_headers: true, ..Proxy::default() },
            pick: None,
            came: None,
            goes_on: Vec::new(),
            comes_back: Vec::new(),
            picks: 0,
            has_ended: false,
        }
    }

    fn receive(&mut self, message: ProcessingRequest) {
        match &message.part {
            Some(From::RequestHeaders(_)) if self.came.is_none() => self.came = Some(Vec::new()),
            Some(From::RequestBody(body)) if self.picks == 0 => {
                if let Some(came) = &mut self.came {
                    came.extend_from_slice(&body.body);
                }
            }
            _ => {}
        }
        let step = self.exchange.receive(message.clone());
        self.take(step, message);
        let held: usize = self.exchange.body().iter().map(Bytes::len).sum();
        assert!(held <= self.plan.max_body && self.exchange.body().len() <= max_pieces(held));
        assert!(self.exchange.request().subset.as_ref().is_none_or(|subset| subset.capacity() <= 8_192));
        if self.pick == Some(0) && !self.has_ended {
            self.decide();
        }
        self.pick = self.pick.and_then(|delay| delay.checked_sub(1));
    }

    fn take(&mut self, step: Step, message: ProcessingRequest) {
        match step {
            Step::Wait => {}
            Step::Pick => {
                self.picks += 1;
                self.pick = Some(self.plan.delay);
                assert_eq!(Some(self.exchange.body().concat()), self.came, "the body that came");
                assert_eq!(self.exchange.body_len(), self.came.as_ref().map_or(0, Vec::len));
            }
            Step::Response => {
                self.pick = None;
                let step = self.exchange.accept_response(&[("x-a".to_owned(), "b".to_owned())]);
                self.send(step);
            }
            Step::Chunk(chunk) => {
                let Some(From::ResponseBody(body)) = message.part else { panic!("a chunk of {message:?}") };
                assert_eq!(chunk, body);
                let is_last = chunk.end_of_stream;
                let mut pieces = vec![chunk.body];
                if self.plan.edits_response {
                    pieces.extend([Bytes::new(), Bytes::from_static(b"+")]);
                }
                self.comes_back.extend(pieces.concat());
                let step = self.exchange.pass_on(pieces, is_last);
                assert_eq!(matches!(step, Step::End(_)), is_last);
                self.send(step);
            }
            Step::Trailers => {
                let rest = if self.plan.edits_response { vec![Bytes::from_static(b".")] } else { Vec::new() };
                self.comes_back.extend(rest.concat());
                let step = self.exchange.pass_on_trailers(rest);
                assert!(matches!(step, Step::End(_)));
                self.send(step);
            }
            Step::Send(_) | Step::End(_) => self.send(step),
        }
    }

    fn decide(&mut self) {
        if self.plan.refuses {
            let step = self.exchange.refuse(&Refusal { status: 429, ..Refusal::default() });
            return self.send(step);
        }
        let edited = self.plan.edited.clone();
        let body = edited.map(|body| body.chunks(7).map(Bytes::copy_from_slice).collect());
        let came = self.exchange.body().concat();
        let messages = self.exchange.place(Placement { body, ..placement() });
        let has_body = messages.iter().any(|message| matches!(message.part, Some(To::RequestBody(_) | To::RequestTrailers(_))));
        if has_body {
            self.goes_on = self.plan.edited.clone().unwrap_or(came);
        }
        self.proxy.take(messages);
    }

    fn send(&mut self, step: Step) {
        assert!(!self.has_ended, "nothing follows the end");
        match step {
            Step::Send(messages) => self.proxy.take(messages),
            Step::End(messages) => {
                self.proxy.take(messages);
                self.has_ended = true;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The expected response for a legal stream that is passed on completely.
fn response(messages: &[ProcessingRequest], edits: bool) -> Sent {
    let mut sent = Sent::default();
    for part in messages.iter().filter_map(|message| message.part.as_ref()) {
        match part {
            From::ResponseHeaders(headers) => (sent.headers, sent.ended) = (true, headers.end_of_stream),
            From::ResponseBody(body) => {
                sent.body.extend_from_slice(&body.body);
                sent.body.extend(edits.then_some(b'+'));
                sent.ended = body.end_of_stream;
            }
            From::ResponseTrailers(_) => {
                sent.body.extend(edits.then_some(b'.'));
                sent.trailers = true;
            }
            _ => {}
        }
    }
    // If headers end a response, there is no chunk that ends it.
    sent.ended &= messages.iter().any(|message| matches!(message.part, Some(From::ResponseBody(_))));
    sent
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_stream_is_answered_in_order_and_whole_and_takes_bounded_memory(
        messages in legal(),
        harm in harm(),
        plan in plan(),
        sizes in prop_oneof![vec(1..60_usize, 1..5), vec(900..70_000_usize, 1..4)],
    ) {
        let stream = harm.stream(&messages);
        let mut framing = Framing::new(MAX_MESSAGE);
        let mut run = Run::new(plan);
        let (mut rest, mut pending, mut is_broken) = (&stream[..], 0, false);
        for size in sizes.iter().cycle() {
            if rest.is_empty() || run.has_ended || is_broken {
                break;
            }
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            framing.push(Bytes::copy_from_slice(chunk));
            (rest, pending) = (after, pending + chunk.len());
            while !run.has_ended && !is_broken {
                match framing.next_message() {
                    Ok(None) => break,
                    Ok(Some(message)) => {
                        pending -= 5 + message.len();
                        match framing::decode::<ProcessingRequest>(message) {
                            Ok(message) => run.receive(message),
                            Err(_) => is_broken = true,
                        }
                    }
                    Err(_) => is_broken = true,
                }
            }
            prop_assert!(run.has_ended || is_broken || pending < 5 + MAX_MESSAGE, "less than a message waits to be whole");
        }
        prop_assert!(run.picks <= 1);
        prop_assert_eq!(&run.proxy.request.body, &run.goes_on);
        if !run.exchange.is_silent() {
            prop_assert_eq!(&run.proxy.response.body, &run.comes_back);
        }
        if harm.is_none() {
            prop_assert!(!is_broken && (run.has_ended || framing.finish().is_ok()));
            if run.proxy.immediate.is_none() && !run.exchange.is_silent() {
                prop_assert_eq!(run.proxy.response, response(&messages, run.plan.edits_response));
            }
        }
    }
}
