mod frames;
mod streams;

use super::{
    messages::{
        Answer, BodySendMode, HeaderMap, HeaderValue, HttpBody, HttpHeaders, HttpTrailers, ListValue, Metadata, ProcessingRequest,
        ProcessingResponse, ProtocolConfiguration, Struct, Value, request::Part as From, response::Part as To, value::Kind,
    },
    *,
};
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use prost::Message;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let raw = |(name, value): &(&str, &str)| HeaderValue {
        key: (*name).to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    HeaderMap { headers: pairs.iter().map(raw).collect() }
}

fn message(part: From) -> ProcessingRequest {
    ProcessingRequest { part: Some(part), ..ProcessingRequest::default() }
}

fn request_headers(end_of_stream: bool) -> ProcessingRequest {
    let headers = headers(&[(":path", "/v1/chat/completions?x=1"), ("content-type", "application/json"), ("x-request-id", "r1")]);
    message(From::RequestHeaders(HttpHeaders { headers: Some(headers), end_of_stream }))
}

fn response_headers(end_of_stream: bool) -> ProcessingRequest {
    message(From::ResponseHeaders(HttpHeaders {
        headers: Some(headers(&[(":status", "200"), ("content-type", "text/event-stream")])),
        end_of_stream,
    }))
}

fn chunk(body: &[u8], end_of_stream: bool) -> HttpBody {
    HttpBody { body: Bytes::copy_from_slice(body), end_of_stream }
}

fn noted(namespace: &str, key: &str, kind: Kind) -> Metadata {
    let noted = Struct { fields: [(key.to_owned(), Value { kind: Some(kind) })].into() };
    Metadata { filter_metadata: [(namespace.to_owned(), noted)].into() }
}

fn placement() -> Placement {
    Placement { endpoints: vec!["10.0.0.1:8000".to_owned(), "10.0.0.2:8000".to_owned()], ..Placement::default() }
}

/// The parts of one direction that a proxy has received: headers, body, the end of the body, trailers.
#[derive(Debug, Default, PartialEq)]
struct Sent {
    headers: bool,
    body: Vec<u8>,
    ended: bool,
    trailers: bool,
}

/// A proxy that fails on any message that it would reject.
#[derive(Debug, Default)]
struct Proxy {
    request: Sent,
    response: Sent,
    destination: Option<String>,
    immediate: Option<i32>,
    /// Whether it doesn't send the headers of responses.
    skips_headers: bool,
}

impl Proxy {
    fn take(&mut self, messages: Vec<ProcessingResponse>) {
        for message in messages {
            assert_eq!(self.immediate, None, "nothing follows an immediate response");
            // Encoded and decoded as on the wire.
            let message = ProcessingResponse::decode(&*message.encode_to_vec()).unwrap();
            let metadata = message.dynamic_metadata;
            match message.part.unwrap() {
                To::RequestHeaders(answer) => {
                    assert!(!std::mem::replace(&mut self.request.headers, true), "headers are answered once");
                    let set = answer.response.unwrap().header_mutation.unwrap().set_headers;
                    let value = |name: &str| {
                        set.iter()
                            .filter_map(|set| set.header.as_ref())
                            .find(|header| header.key == name)
                            .map(|header| header.raw_value.clone())
                    };
                    let destination = String::from_utf8(value(DESTINATION).unwrap().to_vec()).unwrap();
                    assert_eq!(
                        metadata,
                        noted(LOAD_BALANCER, DESTINATION, Kind::Text(destination.clone()))
                            .filter_metadata
                            .remove(LOAD_BALANCER)
                            .map(|inner| Struct { fields: [(LOAD_BALANCER.to_owned(), Value { kind: Some(Kind::Struct(inner)) })].into() })
                    );
                    self.destination = Some(destination);
                }
                To::ResponseHeaders(_) => {
                    assert!(self.response == Sent::default(), "headers are answered once, and first: {:?}", self.response);
                    self.response.headers = true;
                }
                To::RequestBody(answer) => take_body(&mut self.request, &streamed(answer), false),
                To::ResponseBody(answer) => take_body(&mut self.response, &streamed(answer), self.skips_headers),
                To::RequestTrailers(_) => take_trailers(&mut self.request, false),
                To::ResponseTrailers(_) => take_trailers(&mut self.response, self.skips_headers),
                To::Immediate(answer) => self.immediate = Some(answer.status.unwrap().code),
            }
        }
    }
}

fn streamed(answer: Answer) -> HttpBody {
    answer.response.unwrap().body_mutation.unwrap().streamed_response.unwrap()
}

fn take_body(sent: &mut Sent, body: &HttpBody, skips_headers: bool) {
    assert!((sent.headers || skips_headers) && !sent.ended && !sent.trailers, "{sent:?}");
    assert!(body.body.len() <= MAX_CHUNK);
    sent.body.extend_from_slice(&body.body);
    sent.ended = body.end_of_stream;
}

fn take_trailers(sent: &mut Sent, skips_headers: bool) {
    assert!((sent.headers || skips_headers) && !sent.ended && !std::mem::replace(&mut sent.trailers, true), "{sent:?}");
}

/// Sends messages. Picks once the request is complete, or `delay` messages later. Returns the number of picks that were requested.
fn exchange(proxy: &mut Proxy, messages: Vec<ProcessingRequest>, delay: usize) -> usize {
    let mut exchange = Exchange::new(Limits::default());
    let (mut picks, mut due) = (0, None);
    for message in messages {
        // Encoded and decoded as on the wire.
        let message = ProcessingRequest::decode(&*message.encode_to_vec()).unwrap();
        match exchange.receive(message) {
            Step::Wait => {}
            Step::Pick => {
                picks += 1;
                due = Some(delay);
            }
            Step::Response => match exchange.accept_response(&[]) {
                Step::Send(messages) | Step::End(messages) => proxy.take(messages),
                other => panic!("{other:?}"),
            },
            Step::Chunk(body) => match exchange.pass_on(vec![body.body], body.end_of_stream) {
                Step::Send(messages) | Step::End(messages) => proxy.take(messages),
                other => panic!("{other:?}"),
            },
            Step::Trailers => match exchange.pass_on_trailers(Vec::new()) {
                Step::End(messages) => proxy.take(messages),
                other => panic!("{other:?}"),
            },
            Step::Send(messages) | Step::End(messages) => proxy.take(messages),
        }
        if due == Some(0) {
            proxy.take(exchange.place(placement()));
        }
        due = due.and_then(|due| due.checked_sub(1));
    }
    if due.is_some() {
        proxy.take(exchange.place(placement()));
    }
    picks
}

/// All forms of the messages of one direction, with the body and how it ends.
fn forms(
    begin: &[ProcessingRequest; 2],
    body: fn(HttpBody) -> From,
    trailers: fn(HttpTrailers) -> From,
) -> Vec<(Vec<ProcessingRequest>, Sent)> {
    let [open, closed] = begin;
    let of = |chunks: &[(&[u8], bool)], with_trailers: bool| {
        let mut messages = vec![open.clone()];
        messages.extend(chunks.iter().map(|(bytes, end)| message(body(chunk(bytes, *end)))));
        messages.extend(with_trailers.then(|| message(trailers(HttpTrailers::default()))));
        let bytes = chunks.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
        (messages, Sent { headers: true, body: bytes, ended: !with_trailers, trailers: with_trailers })
    };
    vec![
        (vec![closed.clone()], Sent { headers: true, ..Sent::default() }),
        of(&[(b"{}", true)], false),
        of(&[(b"", true)], false),
        of(&[(b"{", false), (b"}", true)], false),
        of(&[(b"{", false), (b"", false), (b"}", false), (b"", true)], false),
        of(&[(&vec![b'x'; 200_000], true)], false),
        of(&[(b"{}", false)], true),
        of(&[(b"", false)], true),
        of(&[], true),
        of(&[(&vec![b'x'; 62_000], false), (b"y", false)], true),
    ]
}

fn requests() -> Vec<(Vec<ProcessingRequest>, Sent)> {
    forms(&[request_headers(false), request_headers(true)], From::RequestBody, From::RequestTrailers)
}

fn responses() -> Vec<(Vec<ProcessingRequest>, Sent)> {
    forms(&[response_headers(false), response_headers(true)], From::ResponseBody, From::ResponseTrailers)
}

#[test]
fn in_100_orders_headers_bodies_and_trailers_go_on_whole_and_in_order() {
    let mut orders = 0;
    for (request, goes_on) in requests() {
        for (response, comes_back) in responses() {
            let mut proxy = Proxy::default();
            let picks = exchange(&mut proxy, [request.clone(), response.clone()].concat(), 0);
            assert_eq!((picks, &proxy.request, &proxy.response), (1, &goes_on, &comes_back));
            assert_eq!(proxy.destination.as_deref(), Some("10.0.0.1:8000,10.0.0.2:8000"));
            orders += 1;
        }
    }
    assert_eq!(orders, 100);
}

#[test]
fn a_response_that_comes_before_the_request_has_ended_or_gone_on_is_passed_on() {
    for (request, _) in requests() {
        for (response, comes_back) in responses() {
            for cut in 1..=request.len() {
                let mut proxy = Proxy::default();
                let begun = request[..cut].to_vec();
                let rest = request[cut..].to_vec();
                exchange(&mut proxy, [begun, response.clone(), rest].concat(), usize::MAX);
                assert_eq!((&proxy.response, &proxy.request), (&comes_back, &Sent::default()), "cut at {cut}");
            }
        }
    }
}

#[test]
fn a_request_is_placed_once_and_nothing_follows_a_refusal() {
    let mut exchange = Exchange::new(Limits::default());
    assert_eq!(exchange.receive(request_headers(true)), Step::Pick);
    assert_eq!(exchange.place(placement()).len(), 1);
    assert!(exchange.place(placement()).is_empty());
    let mut exchange = Exchange::new(Limits::default());
    assert_eq!(exchange.receive(request_headers(false)), Step::Wait);
    assert_eq!(exchange.receive(message(From::RequestBody(chunk(b"{}", true)))), Step::Pick);
    let refusal = Refusal {
        status: 429,
        headers: vec![("retry-after".to_owned(), "1".to_owned())],
        body: Bytes::from_static(b"full"),
        details: "full".to_owned(),
    };
    let Step::End(messages) = exchange.refuse(&refusal) else { panic!() };
    let mut proxy = Proxy::default();
    proxy.take(messages);
    assert_eq!(proxy.immediate, Some(429));
    assert!(exchange.place(placement()).is_empty() && exchange.body().is_empty());
}

#[test]
fn another_body_has_its_own_length_and_comes_in_chunks_that_fit() {
    let mut exchange = Exchange::new(Limits::default());
    exchange.receive(request_headers(false));
    exchange.receive(message(From::RequestBody(chunk(b"old", true))));
    let body = vec![Bytes::from(vec![b'a'; 100_000]), Bytes::new(), Bytes::from_static(b"end")];
    let messages = exchange.place(Placement { body: Some(body), headers: vec![("x-a".to_owned(), "b".to_owned())], ..placement() });
    let Some(To::RequestHeaders(answer)) = &messages[0].part else { panic!() };
    let set: Vec<_> = answer
        .response
        .iter()
        .flat_map(|response| &response.header_mutation.as_ref().unwrap().set_headers)
        .map(|set| {
            let header = set.header.clone().unwrap();
            (header.key, String::from_utf8(header.raw_value.to_vec()).unwrap())
        })
        .collect();
    assert!(
        set.contains(&("content-length".to_owned(), "100003".to_owned())) && set.contains(&("x-a".to_owned(), "b".to_owned())),
        "{set:?}"
    );
    let mut proxy = Proxy::default();
    proxy.take(messages);
    assert_eq!((proxy.request.body.len(), proxy.request.ended), (100_003, true));
}

#[test]
fn a_body_is_bounded_and_other_modes_are_refused_with_what_to_set() {
    let mut exchange = Exchange::new(Limits { max_body: 4 });
    exchange.receive(request_headers(false));
    exchange.receive(message(From::RequestBody(chunk(b"1234", false))));
    let Step::End(messages) = exchange.receive(message(From::RequestBody(chunk(b"5", false)))) else { panic!() };
    let mut proxy = Proxy::default();
    proxy.take(messages);
    assert_eq!(proxy.immediate, Some(413));
    assert_eq!(exchange.receive(message(From::RequestBody(chunk(b"6", true)))), Step::Wait, "what was on its way");

    for (mode, code) in [(BodySendMode::Buffered, Some(500)), (BodySendMode::Streamed, Some(500)), (BodySendMode::FullDuplexStreamed, None)]
    {
        let config = ProtocolConfiguration { request_body_mode: mode.into(), response_body_mode: mode.into() };
        let begin = ProcessingRequest { protocol_config: Some(config), ..request_headers(false) };
        let step = Exchange::new(Limits::default()).receive(begin);
        let mut proxy = Proxy::default();
        if let Step::End(messages) = step {
            let Some(To::Immediate(answer)) = &messages[0].part else { panic!() };
            assert!(answer.details.ends_with("set request_body_mode to FULL_DUPLEX_STREAMED"), "{}", answer.details);
            proxy.take(messages);
        }
        assert_eq!(proxy.immediate, code, "{mode:?}");
    }
    // Without a body, any mode is accepted. If bodies aren't sent, the headers are enough.
    let config = |mode: BodySendMode| Some(ProtocolConfiguration { request_body_mode: mode.into(), response_body_mode: 0 });
    for (mode, end) in [(BodySendMode::Buffered, true), (BodySendMode::None, false)] {
        let begin = ProcessingRequest { protocol_config: config(mode), ..request_headers(end) };
        assert_eq!(Exchange::new(Limits::default()).receive(begin), Step::Pick);
    }
}

#[test]
fn a_body_of_single_bytes_takes_no_more_memory_than_one_in_a_chunk() {
    let mut exchange = Exchange::new(Limits::default());
    exchange.receive(request_headers(false));
    let body: Vec<u8> = (0..10_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    for byte in &body {
        assert_eq!(exchange.receive(message(From::RequestBody(chunk(&[*byte], false)))), Step::Wait);
    }
    // A long chunk isn't copied, and stays after the earlier ones.
    let long = Bytes::from(vec![b'x'; 5_000]);
    exchange.receive(message(From::RequestBody(HttpBody { body: long.clone(), end_of_stream: false })));
    assert_eq!(exchange.receive(message(From::RequestBody(chunk(b"end", true)))), Step::Pick);
    let pieces = exchange.body();
    assert!(pieces.len() <= 12 && pieces.iter().any(|piece| piece.as_ptr() == long.as_ptr()), "{}", pieces.len());
    assert_eq!((pieces.concat(), exchange.body_len()), ([&body, &long[..], b"end"].concat(), 15_003));
}

#[test]
fn what_is_held_back_of_a_response_goes_before_its_trailers() {
    let mut exchange = Exchange::new(Limits::default());
    exchange.receive(request_headers(true));
    let mut proxy = Proxy::default();
    proxy.take(exchange.place(placement()));
    assert_eq!(exchange.receive(response_headers(false)), Step::Response);
    for step in [exchange.accept_response(&[]), exchange.pass_on(vec![Bytes::from_static(b"{")], false)] {
        let Step::Send(messages) = step else { panic!("{step:?}") };
        proxy.take(messages);
    }
    assert_eq!(exchange.receive(message(From::ResponseTrailers(HttpTrailers::default()))), Step::Trailers);
    let Step::End(messages) = exchange.pass_on_trailers(vec![Bytes::from_static(b"}")]) else { panic!() };
    proxy.take(messages);
    assert_eq!(proxy.response, Sent { headers: true, body: b"{}".to_vec(), ended: false, trailers: true });
    // Messages that arrive twice or too late are ignored.
    for late in
        [response_headers(false), message(From::ResponseBody(chunk(b"x", true))), message(From::ResponseTrailers(HttpTrailers::default()))]
    {
        assert_eq!(exchange.receive(late), Step::Wait);
    }
}

#[test]
fn a_proxy_that_only_lets_others_watch_is_sent_nothing() {
    let begin = ProcessingRequest { observability_mode: true, ..request_headers(true) };
    let mut exchange = Exchange::new(Limits::default());
    assert_eq!(exchange.receive(begin), Step::Pick);
    assert!(exchange.is_silent() && exchange.place(placement()).is_empty());
    assert_eq!(exchange.receive(response_headers(true)), Step::Response);
    assert_eq!(exchange.accept_response(&[]), Step::End(Vec::new()));
}

#[test]
fn headers_count_under_both_names_and_the_newer_wins() {
    let of = |pairs: &[(&str, &str)]| {
        let mut exchange = Exchange::new(Limits::default());
        exchange.receive(message(From::RequestHeaders(HttpHeaders { headers: Some(headers(pairs)), end_of_stream: true })));
        exchange.request().clone()
    };
    let head = of(&[
        (":path", "/v1/completions"),
        ("x-gateway-inference-objective", "old"),
        ("x-llm-d-inference-objective", "new"),
        ("x-gateway-inference-fairness-id", "team-a"),
        ("x-gateway-model-name-rewrite", "llama-b"),
        ("x-slo-ttft-ms", "250"),
        ("x-llm-d-slo-tpot-ms", "20.5"),
        ("prefer", "respond-async, if-available"),
    ]);
    let text = |text: &str| Some(text.to_owned());
    assert_eq!((head.objective, head.fairness_id, head.model_rewrite), (text("new"), text("team-a"), text("llama-b")));
    assert_eq!((head.ttft_ms, head.tpot_ms, head.if_available), (Some(250), Some(20), true));
    let odd = of(&[("x-gateway-inference-objective", &"a".repeat(600)), ("x-slo-ttft-ms", "-1"), ("x-slo-tpot-ms", "NaN")]);
    assert_eq!(odd, RequestHead::default());
    // Older proxies send values as text.
    let older = HeaderMap { headers: vec![HeaderValue { key: ":path".to_owned(), value: "/a".to_owned(), raw_value: Bytes::new() }] };
    assert_eq!(header(&older, ":PATH"), Some("/a"));
}

#[test]
fn the_hint_and_the_endpoint_that_served_are_read_with_any_message() {
    let list = |items: &[&str]| {
        Kind::List(ListValue { values: items.iter().map(|item| Value { kind: Some(Kind::Text((*item).to_owned())) }).collect() })
    };
    for (kind, expected) in [
        (list(&["10.0.0.1:80", "10.0.0.2"]), &["10.0.0.1:80", "10.0.0.2"][..]),
        (Kind::Text("10.0.0.1:80, 10.0.0.2".to_owned()), &["10.0.0.1:80", "10.0.0.2"]),
        (list(&[]), &[]),
    ] {
        let hint = Some(noted(SUBSET_HINT, SUBSET, kind));
        for at in 0..2 {
            let mut exchange = Exchange::new(Limits::default());
            let messages = [request_headers(false), message(From::RequestBody(chunk(b"{}", true)))];
            for (number, message) in messages.into_iter().enumerate() {
                exchange.receive(ProcessingRequest { metadata_context: hint.clone().filter(|_| number == at), ..message });
            }
            assert_eq!(exchange.request().subset.as_deref().unwrap(), expected);
        }
    }
    let many = Kind::Text("10.0.0.1:80,,".repeat(10_000));
    let mut exchange = Exchange::new(Limits::default());
    exchange.receive(ProcessingRequest { metadata_context: Some(noted(SUBSET_HINT, SUBSET, many)), ..request_headers(true) });
    assert!(exchange.request().subset.as_ref().is_some_and(|subset| subset.len() == 4_096 && subset.capacity() < 10_000));
    let mut exchange = Exchange::new(Limits::default());
    exchange.receive(request_headers(true));
    assert_eq!(exchange.request().subset, None);
    let served = noted(LOAD_BALANCER, SERVED, Kind::Text("10.0.0.2:8000".to_owned()));
    exchange.receive(ProcessingRequest { metadata_context: Some(served), ..response_headers(false) });
    let head = exchange.response();
    assert_eq!((head.status, head.served.as_deref()), (Some(200), Some("10.0.0.2:8000")));
}

fn any_message() -> impl Strategy<Value = ProcessingRequest> {
    let pair = (prop_oneof![Just(":path".to_owned()), Just(":status".to_owned()), "[a-z-]{0,12}"], vec(any::<u8>(), 0..20));
    let map = vec(pair, 0..4).prop_map(|pairs| HeaderMap {
        headers: pairs.into_iter().map(|(key, value)| HeaderValue { key, value: String::new(), raw_value: value.into() }).collect(),
    });
    let part = (0..6_u8, map, vec(any::<u8>(), 0..200), any::<bool>()).prop_map(|(kind, map, body, end_of_stream)| {
        let headers = HttpHeaders { headers: Some(map.clone()), end_of_stream };
        let body = HttpBody { body: body.into(), end_of_stream };
        match kind {
            0 => From::RequestHeaders(headers),
            1 => From::ResponseHeaders(headers),
            2 => From::RequestBody(body),
            3 => From::ResponseBody(body),
            4 => From::RequestTrailers(HttpTrailers { trailers: Some(map) }),
            _ => From::ResponseTrailers(HttpTrailers { trailers: Some(map) }),
        }
    });
    (proptest::option::of(part), 0..7_i32, proptest::option::of(vec(any::<u8>(), 0..8))).prop_map(|(part, mode, hint)| ProcessingRequest {
        part,
        metadata_context: hint.map(|hint| noted(SUBSET_HINT, SUBSET, Kind::Text(String::from_utf8_lossy(&hint).into_owned()))),
        observability_mode: mode == 6,
        protocol_config: (mode == 5).then_some(ProtocolConfiguration { request_body_mode: mode, response_body_mode: mode }),
    })
}

/// Few cases by default, many with `--full`.
fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 100_000 } else { 300 })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn whatever_comes_nothing_panics_and_no_more_is_held_than_may_be(messages in vec(any_message(), 0..30), max_body in 0..500_usize, refuse: bool) {
        let mut exchange = Exchange::new(Limits { max_body });
        let mut placed = 0;
        for message in messages {
            match exchange.receive(message) {
                Step::Pick if refuse => drop(exchange.refuse(&Refusal { status: 429, ..Refusal::default() })),
                Step::Pick => placed += usize::from(!exchange.place(placement()).is_empty()),
                Step::Response => drop(exchange.accept_response(&[])),
                Step::Chunk(body) => drop(exchange.pass_on(vec![body.body], body.end_of_stream)),
                Step::Trailers => drop(exchange.pass_on_trailers(Vec::new())),
                Step::Wait | Step::Send(_) | Step::End(_) => {}
            }
            prop_assert!(exchange.body().iter().map(Bytes::len).sum::<usize>() <= max_body);
        }
        prop_assert!(placed <= 1);
    }

    #[test]
    fn arbitrary_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(message) = ProcessingRequest::decode(&*bytes) {
            drop(Exchange::new(Limits::default()).receive(message));
        }
    }
}
