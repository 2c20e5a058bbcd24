//! Requests that are too large, too slow or too many. Tests wait until a time limit is enforced, and don't assert when.

use super::{
    backend::Backend,
    rig::{Rig, Setup, bytes, chat, closed, error, full, open, over_http2, until},
};
use http::{Request, Version};
use http_body_util::BodyExt;
use pointsman::gateway::limits::Limits;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const SOON: Duration = Duration::from_millis(100);

async fn rig(backend: &Backend, limits: Limits) -> Rig {
    let rig = Rig::start(Setup { limits, ..Setup::default() }).await;
    rig.set("a", open(&backend.url()));
    rig
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_neither_the_backend_nor_a_connection_for_long() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits { stall_timeout: SOON, ..Limits::default() }).await;
    let over_http1 = rig.chat("a", &[("x-behave", "flood")]).await;
    backend.opened(0).await;
    assert!(over_http1.into_body().collect().await.is_err());
    let over_http2 = rig.send(over_http2(chat("a", &[("x-behave", "flood")]))).await;
    backend.opened(0).await;
    until("nothing is in flight", || rig.activity("a").unwrap().in_flight == 0).await;
    assert!(over_http2.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_answered_or_broken_off() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits { body_timeout: SOON, ..Limits::default() }).await;
    for (begin, reaches_backend) in [("{", false), (r#"{"model":"a","#, true)] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n";
        stream.write_all(format!("{head}{begin}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("request_timeout"), "{answer}");
        backend.opened(0).await;
        assert_eq!(!backend.seen().is_empty(), reaches_backend);
        assert!(backend.seen().iter().all(|seen| seen.body.is_none()));
    }
}

#[tokio::test]
async fn a_connection_on_which_nothing_happens_ends() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits { idle_timeout: SOON, header_timeout: SOON, ..Limits::default() }).await;
    let request = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"model\":\"a\"}";
    for (begin, answer) in [("", ""), ("POST", ""), ("PRI * HTTP/2.0", ""), (request, "HTTP/1.1 200 ")] {
        let read = rig.raw(begin.as_bytes(), false).await;
        assert!(read.starts_with(answer) && read.is_empty() == answer.is_empty(), "{begin}: {read}");
    }
    let mut http2 = rig.http2().await;
    bytes(http2.send_request(over_http2(chat("a", &[]))).await.unwrap()).await;
    until("the connection has ended", || http2.is_closed()).await;
}

#[tokio::test]
async fn a_connection_may_be_idle_for_longer_than_a_head_may_take_to_come() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits { header_timeout: SOON, ..Limits::default() }).await;
    let mut idle = rig.http1().await;
    bytes(idle.send_request(chat("a", &[])).await.unwrap()).await;
    let mut slow = TcpStream::connect(rig.address).await.unwrap();
    let request = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"model\":\"a\"}";
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    // The head of a second request begins and never ends.
    slow.write_all(b"POST").await.unwrap();
    slow.read_to_end(&mut Vec::new()).await.unwrap();
    assert!(!idle.is_closed());
    assert_eq!(idle.send_request(chat("a", &[])).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_backend_that_doesn_t_answer_in_time_or_pauses_for_too_long_is_given_up() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits { backend_timeout: SOON, ..Limits::default() }).await;
    assert_eq!(error(rig.chat("a", &[("x-behave", "wait")]).await).await, (504, "backend_timeout".to_owned()));
    backend.opened(0).await;
    backend.step(1);
    let response = rig.chat("a", &[("x-behave", "events")]).await;
    assert!(response.into_body().collect().await.is_err());
    backend.opened(0).await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_in_all_is_broken_off() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits { request_timeout: SOON, ..Limits::default() }).await;
    let response = rig.chat("a", &[("x-behave", "flood")]).await;
    assert!(response.into_body().collect().await.is_err());
    backend.opened(0).await;
}

#[tokio::test]
async fn a_body_or_what_must_be_buffered_of_it_may_be_too_large() {
    let backend = Backend::start().await;
    let limits = Limits { body_bytes: 1 << 20, buffered_bytes: 64 << 10, ..Limits::default() };
    let rig = rig(&backend, limits).await;
    let padded =
        |before: usize, behind: usize| format!("{{\"x\":\"{}\",\"model\":\"a\",\"y\":\"{}\"}}", "x".repeat(before), "x".repeat(behind));
    for (body, expected) in [(padded(1000, 500 << 10), 200), (padded(100 << 10, 0), 413), (padded(0, 2 << 20), 413)] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let request = Request::post("/v1/embeddings").header("host", "x").body(full(body.clone())).unwrap();
            let response = rig.send(if version == Version::HTTP_2 { over_http2(request) } else { request }).await;
            assert_eq!(response.status(), expected, "{} bytes, {version:?}", body.len());
        }
    }
    until("nothing is buffered", || rig.proxy.buffered.bytes() == 0).await;
    assert!(backend.seen().iter().all(|seen| seen.body.as_ref().is_some_and(|body| body.len() < 1 << 20)));
}

#[tokio::test]
async fn requests_that_wait_buffer_no_more_than_there_is_room_for_and_arrive_whole() {
    let backend = Backend::start().await;
    let limits = Limits { buffered_bytes: 64 << 10, all_buffered_bytes: 100 << 10, ..Limits::default() };
    let rig = rig(&backend, limits).await;
    rig.set("a", closed(None));
    let body = format!("{{\"model\":\"a\",\"x\":\"{}\"}}", "x".repeat(1 << 20));
    let request = || Request::post("/v1/embeddings").header("host", "x").body(full(body.clone())).unwrap();
    let mut sending = Box::pin(futures::future::join(rig.send(request()), rig.send(request())));
    tokio::select! {
        _ = &mut sending => panic!("the model sleeps"),
        () = until("both wait", || rig.activity("a").is_some_and(|activity| activity.waiting == 2)) => {}
    }
    // The last chunk may exceed the limit.
    assert!(rig.proxy.buffered.bytes() <= 1 << 20, "{}", rig.proxy.buffered.bytes());
    rig.set("a", open(&backend.url()));
    let (one, other) = sending.await;
    assert_eq!((one.status().as_u16(), other.status().as_u16()), (200, 200));
    assert!(backend.seen().iter().all(|seen| seen.body.as_deref() == Some(body.as_bytes())));
}

#[tokio::test]
async fn a_body_in_tiny_parts_arrives_whole_whether_its_model_comes_early_or_late() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits::default()).await;
    let padding = "x".repeat(9000);
    for body in [format!("{{\"model\":\"a\",\"x\":\"{padding}\"}}"), format!("{{\"x\":\"{padding}\",\"model\":\"a\"}}")] {
        let chunks: String = body.chars().fold(String::new(), |all, c| all + "1\r\n" + &c.to_string() + "\r\n");
        let head = "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = rig.raw(format!("{head}{chunks}0\r\n\r\n").as_bytes(), false).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(backend.seen().pop().unwrap().body.as_deref(), Some(body.as_bytes()));
    }
    assert_eq!(rig.proxy.buffered.bytes(), 0);
}

#[tokio::test]
async fn the_answer_to_a_large_request_for_an_unknown_model_can_be_read() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits::default()).await;
    let body = format!("{{\"model\":\"b\",\"x\":\"{}\"}}", "x".repeat(4 << 20));
    let head = format!("POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer = rig.raw(format!("{head}{body}").as_bytes(), false).await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("model_not_found"), "{answer:?}");
}

#[tokio::test]
async fn further_connections_wait_for_a_place() {
    let backend = Backend::start().await;
    let rig = rig(&backend, Limits { connections: 1, ..Limits::default() }).await;
    let mut first = rig.http1().await;
    bytes(first.send_request(chat("a", &[])).await.unwrap()).await;
    let mut second = Box::pin(rig.chat("a", &[("x-own", "second")]));
    tokio::select! {
        _ = &mut second => panic!("there is one place"),
        response = async {
            first.ready().await.unwrap();
            first.send_request(chat("a", &[])).await
        } => drop(bytes(response.unwrap()).await),
    }
    drop(first);
    assert_eq!(second.await.status(), 200);
}
