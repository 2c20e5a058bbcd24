//! Requests for a sleeping model: they wait in order, and no longer than necessary.

use super::{
    backend::Backend,
    rig::{Rig, Setup, bytes, chat, closed, error, full, json, open, over_http2, until},
};
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use pointsman::gateway::limits::Limits;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinHandle;

/// Sends a request in a task, so that several can wait.
fn spawn(rig: &Arc<Rig>, headers: &'static [(&'static str, &'static str)]) -> JoinHandle<Response<Incoming>> {
    let rig = Arc::clone(rig);
    tokio::spawn(async move { rig.chat("a", headers).await })
}

async fn waiting(rig: &Rig, count: u64) {
    until(&format!("{count} wait"), || rig.activity("a").is_some_and(|activity| activity.waiting == count)).await;
}

#[tokio::test]
async fn a_request_waits_until_its_model_wakes() {
    let backend = Backend::start().await;
    let rig = Arc::new(Rig::start(Setup::default()).await);
    rig.set("a", closed(None));
    let (one, other) = (spawn(&rig, &[]), spawn(&rig, &[]));
    rig.proxy.models.shared().urgent().await;
    waiting(&rig, 2).await;
    let activity = rig.activity("a").unwrap();
    assert!(activity.waiting_since.is_some() && activity.in_flight == 0);
    rig.set("a", open(&backend.url()));
    for response in [one.await.unwrap(), other.await.unwrap()] {
        assert_eq!(json(response).await["bytes"], 27);
    }
    let activity = rig.activity("a").unwrap();
    assert_eq!((activity.waiting, activity.waiting_since), (0, None));
    assert_eq!(rig.proxy.buffered.bytes(), 0);
}

#[tokio::test]
async fn more_important_requests_go_first_and_older_ones_among_equals() {
    let backend = Backend::start().await;
    let setup = Setup { limits: Limits { concurrency: 1, ..Limits::default() }, ..Setup::default() };
    let rig = Arc::new(Rig::start(setup).await);
    rig.set("a", closed(None));
    let mut all = Vec::new();
    let requests: [&'static [(&'static str, &'static str)]; 5] = [
        &[("x-own", "0")],
        &[("x-own", "1"), ("x-pointsman-priority", "-1")],
        &[("x-own", "2"), ("x-pointsman-priority", "5")],
        &[("x-own", "3")],
        &[("x-own", "4"), ("x-pointsman-priority", "5")],
    ];
    for (number, headers) in requests.into_iter().enumerate() {
        all.push(spawn(&rig, headers));
        waiting(&rig, number as u64 + 1).await;
    }
    rig.set("a", open(&backend.url()));
    for sent in all {
        bytes(sent.await.unwrap()).await;
    }
    let order: Vec<String> = backend.seen().iter().map(|seen| seen.headers["x-own"].to_str().unwrap().to_owned()).collect();
    assert_eq!(order, ["2", "4", "0", "3", "1"]);
    assert_eq!(error(rig.chat("a", &[("x-pointsman-priority", "high")]).await).await.0, 400);
}

#[tokio::test]
async fn a_request_whose_client_has_left_leaves_at_once() {
    let rig = Rig::start(Setup::default()).await;
    rig.set("a", closed(None));
    let large = vec![("x-padding", "x")];
    for request in [chat("a", &[]), over_http2(chat("a", &[])), chat("a", &large)] {
        let mut sending = Box::pin(rig.send(request));
        tokio::select! {
            _ = &mut sending => panic!("the model sleeps"),
            () = waiting(&rig, 1) => {}
        }
        drop(sending);
        waiting(&rig, 0).await;
        assert_eq!(rig.proxy.models.shared().held(), 0);
    }
}

#[tokio::test]
async fn a_request_that_has_waited_long_enough_is_answered_with_what_keeps_the_model() {
    let limits = Limits { hold_timeout: Duration::from_millis(50), ..Limits::default() };
    let rig = Rig::start(Setup { limits, ..Setup::default() }).await;
    rig.set("a", closed(None));
    let response = rig.chat("a", &[]).await;
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(error(response).await, (503, "model_not_ready".to_owned()));
    assert_eq!(rig.activity("a").unwrap().waiting, 0);
}

#[tokio::test]
async fn no_more_requests_are_held_than_there_is_room_for() {
    let rig = Arc::new(Rig::start(Setup { limits: Limits { held: 2, ..Limits::default() }, ..Setup::default() }).await);
    rig.set("a", closed(None));
    let held = [spawn(&rig, &[]), spawn(&rig, &[])];
    waiting(&rig, 2).await;
    let response = rig.chat("a", &[]).await;
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(error(response).await, (503, "overloaded".to_owned()));
    held.iter().for_each(JoinHandle::abort);
    waiting(&rig, 0).await;
}

#[tokio::test]
async fn a_client_of_events_gets_comments_while_it_waits_and_then_the_events() {
    let backend = Backend::start().await;
    let limits = Limits { comment_interval: Duration::from_millis(20), ..Limits::default() };
    let rig = Rig::start(Setup { limits, ..Setup::default() }).await;
    rig.set("a", closed(None));
    let streaming = r#"{"model":"a","stream":true}"#;
    for (behave, ends_with) in [
        ("events", "data: {\"number\":0}\n\ndata: {\"number\":1}\n\ndata: {\"number\":2}\n\n"),
        ("error", "data: {\"error\":{\"code\":\"teapot\"}}\n\n"),
        ("refuse", "\"code\":\"backend_unavailable\"}}\n\n"),
    ] {
        // One client accepts events, and the others request a stream, as OpenAI's clients do.
        let mut request = chat("a", &[("accept", "text/event-stream"), ("x-behave", behave)]);
        if behave != "error" {
            *request.body_mut() = full(streaming);
            request.headers_mut().remove("accept");
        }
        let mut response = rig.send(request).await;
        assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (200, &"text/event-stream".parse().unwrap()));
        for _ in 0..3 {
            let comment = response.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(comment.starts_with(b": ") && comment.ends_with(b"\n\n"), "{comment:?}");
        }
        assert_eq!(rig.activity("a").unwrap().waiting, 1);
        rig.set("a", open(&backend.url()));
        if behave == "events" {
            backend.step(4);
        }
        let rest = bytes(response).await;
        let rest = std::str::from_utf8(&rest).unwrap();
        assert!(rest.ends_with(ends_with), "{rest}");
        rig.set("a", closed(None));
    }
}

#[tokio::test]
async fn a_draining_is_confirmed_by_every_gateway_once_its_last_answer_has_ended() {
    let backend = Backend::start().await;
    let (rig, other) = (Arc::new(Rig::with(&backend).await), Rig::with(&backend).await);
    backend.step(1);
    let mut response = rig.chat("a", &[("x-behave", "events")]).await;
    response.frame().await.unwrap().unwrap();
    for gateway in [&*rig, &other] {
        gateway.set("a", closed(Some(42)));
    }
    // The other gateway never had a request, and confirms nevertheless.
    assert_eq!(other.activity("a").unwrap().drained, Some(42));
    assert_eq!(rig.activity("a").unwrap().drained, None);
    let next = spawn(&rig, &[]);
    waiting(&rig, 1).await;
    assert_eq!(rig.activity("a").unwrap().drained, None);
    backend.step(3);
    bytes(response).await;
    until("it is confirmed", || rig.activity("a").unwrap().drained == Some(42)).await;
    let activity = rig.activity("a").unwrap();
    assert_eq!((activity.in_flight, activity.waiting), (0, 1));
    rig.set("a", closed(None));
    assert_eq!(rig.activity("a").unwrap().drained, None);
    rig.set("a", open(&backend.url()));
    assert_eq!(next.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_gateway_that_ends_answers_what_it_has_begun_and_takes_nothing_new() {
    let backend = Backend::start().await;
    let mut rig = Rig::with(&backend).await;
    backend.step(1);
    let mut response = rig.chat("a", &[("x-behave", "events")]).await;
    response.frame().await.unwrap().unwrap();
    rig.stop();
    until("nobody listens", || std::net::TcpStream::connect(rig.address).is_err()).await;
    assert!(!rig.serving.is_finished());
    backend.step(3);
    let rest = bytes(response).await;
    assert!(rest.ends_with(b"data: {\"number\":2}\n\n"));
    (&mut rig.serving).await.unwrap();
}
