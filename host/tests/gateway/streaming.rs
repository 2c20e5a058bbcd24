//! The data between a client and a backend, in both directions.

use super::{
    backend::Backend,
    rig::{ClientBody, Rig, Setup, bytes, chat, error, full, json, open, over_http2, until},
};
use crate::tenants::peak_from_now;
use futures::stream;
use http::{Request, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use pointsman::gateway::{limits::Limits, resolve::Resolver};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use tokio::{net::TcpListener, sync::mpsc};

/// The maximum memory of a client, a gateway and a backend together for a body, in bytes.
const MAX_HELD: isize = 8 << 20;

/// A body whose chunks the test sends.
fn by_hand() -> (mpsc::UnboundedSender<Bytes>, ClientBody) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let frames =
        stream::poll_fn(move |context| receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)))));
    (sender, BodyExt::boxed(StreamBody::new(frames)))
}

#[tokio::test]
async fn a_request_goes_to_its_model_s_backend_unchanged_but_for_what_belongs_to_the_connection() {
    let (one, other) = (Backend::start().await, Backend::start().await);
    let rig = Rig::with(&one).await;
    rig.set("org/b", open(&format!("{}/base", other.url())));
    let form = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nRIFF\r\n--x\r\nContent-Disposition: form-data; \
                name=\"model\"\r\n\r\norg/b\r\n--x--\r\n";
    let json_body = r#"{"messages":[{"role":"user","content":"\"model\":\"x\""}],"model":"org/b" }"#;
    for (path, content_type, body) in [
        ("/v1/chat/completions?a=b&c=%20", "application/json", json_body),
        ("/v1/completions", "application/json", json_body),
        ("/v1/embeddings", "application/json; charset=utf-8", json_body),
        ("/v1/responses", "application/json", json_body),
        ("/v1/rerank", "application/json", json_body),
        ("/v1/audio/transcriptions", "multipart/form-data; boundary=x", form),
    ] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let request = Request::post(path)
                .header("host", "gateway")
                .header("content-type", content_type)
                .header("authorization", "Bearer sk")
                .header("x-own", "1")
                .header("accept-encoding", "gzip");
            let request = request.body(full(body)).unwrap();
            let response = rig.send(if version == Version::HTTP_2 { over_http2(request) } else { request }).await;
            assert_eq!(response.status(), 200, "{path}");
            assert!(!response.headers().contains_key("keep-alive") && response.headers().contains_key("x-request-id"));
            assert_eq!(json(response).await["bytes"], body.len());
            let seen = other.seen().pop().unwrap();
            assert_eq!((seen.line, seen.body.as_deref()), (format!("POST /base{path}"), Some(body.as_bytes())));
            assert_eq!(seen.headers["host"], other.address.to_string());
            assert_eq!((&seen.headers["authorization"], &seen.headers["x-own"]), (&"Bearer sk".parse().unwrap(), &"1".parse().unwrap()));
            assert_eq!(seen.headers["content-length"], body.len().to_string());
            assert!(!seen.headers.contains_key("accept-encoding") && !seen.headers.contains_key("transfer-encoding"));
        }
    }
    assert!(one.seen().is_empty());
}

#[tokio::test]
async fn an_event_arrives_before_the_backend_has_the_next() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    for request in [chat("a", &[("x-behave", "events")]), over_http2(chat("a", &[("x-behave", "events")]))] {
        backend.step(1);
        let mut response = rig.send(request).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        for number in 0..3 {
            let frame = response.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(frame, format!("data: {{\"number\":{number}}}\n\n"));
            assert_eq!(rig.activity("a").unwrap().in_flight, 1);
            backend.step(1);
        }
        assert!(bytes(response).await.is_empty());
        until("nothing is in flight", || rig.activity("a").unwrap().in_flight == 0).await;
    }
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions_and_aren_t_buffered() {
    // With --full, it exceeds a gateway's default limit.
    let size: usize = if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 1 << 30 } else { 64 << 20 };
    let backend = Backend::start().await;
    let limits = Limits { body_bytes: 2 << 30, ..Limits::default() };
    let rig = Rig::start(Setup { limits, ..Setup::default() }).await;
    rig.set("a", open(&backend.url()));
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let head = Bytes::from_static(br#"{"model":"a","input":""#);
        let chunk = Bytes::from(vec![b'x'; 64 << 10]);
        let chunks = std::iter::once(head.clone())
            .chain(std::iter::repeat_n(chunk.clone(), size / chunk.len()))
            .chain(std::iter::once(Bytes::from_static(b"\"}")));
        let mut sent = Sha256::new();
        chunks.clone().for_each(|chunk| sent.update(chunk));
        let frames = stream::iter(chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))));
        let request = Request::post("/v1/embeddings").header("host", "gateway").header("x-behave", "echo");
        let mut request = request.body(BodyExt::boxed(StreamBody::new(frames))).unwrap();
        if version == Version::HTTP_2 {
            request = over_http2(request);
        }
        let mut response = rig.send(request).await;
        let (mut received, mut length, mut buffered) = (Sha256::new(), 0, 0);
        // The client, the gateway and the backend run on this thread.
        let held = peak_from_now();
        while let Some(frame) = response.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            length += data.len();
            buffered = buffered.max(rig.proxy.buffered.bytes());
            received.update(&data);
        }
        assert_eq!((length, received.finalize()), (size + head.len() + 2, sent.finalize()));
        assert!(buffered < 1 << 20, "{buffered} bytes were buffered");
        assert!(held() < MAX_HELD, "{} bytes were held, {version:?}", held());
    }
    assert_eq!(rig.proxy.buffered.bytes(), 0);
}

#[tokio::test]
async fn trailers_pass_to_clients_that_take_them() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    let request = || chat("a", &[("x-behave", "trailers"), ("te", "trailers")]);
    for request in [request(), over_http2(request())] {
        let collected = rig.send(request).await.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["x-checksum"], "abc");
        assert_eq!(collected.to_bytes(), "body");
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request_at_the_backend() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    for behave in ["events", "wait"] {
        for http2 in [false, true] {
            let request = chat("a", &[("x-behave", behave)]);
            let request = if http2 { over_http2(request) } else { request };
            if behave == "events" {
                backend.step(1);
                let mut response = rig.send(request).await;
                response.frame().await.unwrap().unwrap();
                drop(response);
            } else {
                let mut sending = Box::pin(rig.send(request));
                tokio::select! {
                    _ = &mut sending => panic!("there is no answer"),
                    () = backend.opened(1) => {}
                }
            }
            // Dropping the future has dropped the client's handle, which closes the connection.
            backend.opened(0).await;
            until("nothing is in flight", || rig.activity("a").unwrap().in_flight == 0).await;
        }
    }
}

#[tokio::test]
async fn a_backend_that_fails_is_an_error_before_the_answer_and_a_broken_answer_within_it() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    assert_eq!(error(rig.chat("a", &[("x-behave", "refuse")]).await).await, (502, "backend_unavailable".to_owned()));
    assert_eq!(error(rig.chat("a", &[("x-behave", "switch")]).await).await, (502, "backend_unavailable".to_owned()));
    for request in [chat("a", &[("x-behave", "truncate")]), over_http2(chat("a", &[("x-behave", "truncate")]))] {
        let response = rig.send(request).await;
        let version = response.version();
        backend.step(1);
        let collected = response.into_body().collect().await;
        assert!(collected.is_err(), "a part of an answer must not look like a whole one: {version:?} {collected:?}");
    }
    let passed = rig.chat("a", &[("x-behave", "error")]).await;
    assert_eq!(passed.status(), 418);
    assert_eq!(bytes(passed).await, r#"{"error":{"code":"teapot"}}"#);
    let redirect = rig.chat("a", &[("x-behave", "redirect")]).await;
    assert_eq!(redirect.status(), 302, "it passes, and nobody follows it");
}

#[tokio::test]
async fn a_connection_that_can_t_be_made_is_tried_again_and_nothing_is_sent_twice() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let rig = Rig::start(Setup::default()).await;
    rig.set("a", open(&format!("http://{address}")));
    let mut sending = Box::pin(rig.chat("a", &[]));
    tokio::select! {
        _ = &mut sending => panic!("nobody listens yet"),
        () = until("it is tried again", || rig.proxy.backends.retries() > 0) => {}
    }
    let backend = Backend::on(TcpListener::bind(address).await.unwrap());
    assert_eq!(sending.await.status(), 200);
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn a_backend_that_nobody_can_connect_to_is_left_in_peace_after_a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let rig = Rig::start(Setup::default()).await;
    rig.set("a", open(&url));
    let all = (0..5).map(|_| rig.chat("a", &[]));
    for response in futures::future::join_all(all).await {
        assert_eq!(error(response).await, (502, "backend_unavailable".to_owned()));
    }
    let retries = rig.proxy.backends.retries();
    let response = rig.chat("a", &[]).await;
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(error(response).await.0, 502);
    assert_eq!(rig.proxy.backends.retries(), retries, "it wasn't tried");
}

#[tokio::test]
async fn connections_to_backends_are_used_again_unless_the_backend_closes_them() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    let mut client = rig.http1().await;
    for _ in 0..10 {
        client.ready().await.unwrap();
        let response = client.send_request(chat("a", &[])).await.unwrap();
        bytes(response).await;
    }
    assert!(backend.connections() <= 3, "{} connections", backend.connections());
    for _ in 0..5 {
        client.ready().await.unwrap();
        let response = client.send_request(chat("a", &[("x-behave", "close")])).await.unwrap();
        assert_eq!(json(response).await["bytes"], 27);
    }
}

#[tokio::test]
async fn a_loopback_address_is_refused_unless_it_is_allowed() {
    let backend = Backend::start().await;
    let rig = Rig::start(Setup { resolver: Resolver::default(), ..Setup::default() }).await;
    let port = backend.address.port();
    for url in [backend.url(), format!("http://[::ffff:127.0.0.1]:{port}"), "http://169.254.169.254/".to_owned()] {
        rig.set("a", open(&url));
        assert_eq!(error(rig.chat("a", &[]).await).await, (502, "backend_unavailable".to_owned()), "{url}");
    }
    assert_eq!(backend.connections(), 0);
}

#[tokio::test]
async fn a_second_model_in_what_is_already_under_way_spoils_the_request() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    let (sender, body) = by_hand();
    let request = Request::post("/v1/chat/completions").header("host", "gateway").body(body).unwrap();
    sender.send(Bytes::from_static(br#"{"model":"a","#)).unwrap();
    let mut sending = Box::pin(rig.send(request));
    tokio::select! {
        _ = &mut sending => panic!("its body isn't complete"),
        () = backend.opened(1) => {}
    }
    sender.send(Bytes::from_static(br#""model":"b"}"#)).unwrap();
    let response = sending.await;
    assert_eq!(error(response).await, (400, "invalid_request".to_owned()));
    backend.opened(0).await;
    assert!(backend.seen().iter().all(|seen| seen.body.is_none()), "the backend never has the whole body");
}

#[tokio::test]
async fn models_are_listed() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    rig.set("org/b", open(&backend.url()));
    let get = |path: &str| Request::get(path).header("host", "gateway").body(full("")).unwrap();
    let list = json(rig.send(get("/v1/models")).await).await;
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0], serde_json::json!({"id": "a", "object": "model", "created": 1, "owned_by": "ml"}));
    for path in ["/v1/models/org/b", "/v1/models/org%2Fb"] {
        assert_eq!(json(rig.send(get(path)).await).await["id"], "org/b");
    }
    assert_eq!(error(rig.send(get("/v1/models/c")).await).await, (404, "model_not_found".to_owned()));
    assert_eq!(error(rig.chat("c", &[]).await).await, (404, "model_not_found".to_owned()));
    assert!(backend.seen().is_empty());
}
