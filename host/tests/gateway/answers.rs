//! Invalid responses of backends: a client gets an error or a broken response, and never bytes that another request's response left behind.

use super::rig::{Rig, Setup, chat, open};
use http_body_util::BodyExt;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

/// A backend that responds to each request with these bytes, and then closes the connection if `ends`.
async fn answering(bytes: Vec<u8>, ends: bool) -> (String, Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let bytes = bytes.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                let mut read = [0; 4096];
                loop {
                    // Each request ends with its body.
                    while !request.ends_with(b"}") {
                        match stream.read(&mut read).await {
                            Ok(0) | Err(_) => return,
                            Ok(length) => request.extend_from_slice(&read[..length]),
                        }
                    }
                    request.clear();
                    if stream.write_all(&bytes).await.is_err() || ends {
                        return;
                    }
                }
            });
        }
    });
    (url, connections, serving)
}

/// The client's view of a response: its status, unless it breaks off before that, and its body, unless it breaks off within it.
async fn answer(rig: &Rig) -> (Option<u16>, Option<String>) {
    let Ok(response) = rig.http1().await.send_request(chat("a", &[])).await else { return (None, None) };
    let status = response.status().as_u16();
    let is_framed_twice = response.headers().contains_key("content-length") && response.headers().contains_key("transfer-encoding");
    assert!(!is_framed_twice, "{response:?}");
    let body = response.into_body().collect().await.ok();
    (Some(status), body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

#[tokio::test]
async fn an_answer_that_isn_t_valid_is_an_error_or_breaks_off() {
    let long = format!("HTTP/1.1 200 OK\r\nX-A: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(200_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X-A: b\r\n".repeat(500));
    // The response, whether the backend closes the connection, the status, and the body. An error has its own body.
    let cases: &[(&str, bool, u16, Option<&str>)] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", false, 200, Some("{}")),
        ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}", false, 200, Some("{}")),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            false,
            200,
            Some("{}"),
        ),
        ("HTTP/1.1 200 OK\r\n\r\n{}", true, 200, Some("{}")),
        ("HTTP/1.0 200 OK\r\n\r\n{}", true, 200, Some("{}")),
        ("HTTP/1.1 204 No Content\r\n\r\n", false, 204, Some("")),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2\r\n{}\r\n0\r\n\r\n", false, 200, Some("{}")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", false, 200, Some("{}")),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", true, 502, None),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", true, 502, None),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}", true, 502, None),
        ("HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}", true, 502, None),
        ("HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 2\r\n\r\n{}", true, 502, None),
        ("HTTP/1.1 200 OK\r\nX-A: \0\r\nContent-Length: 2\r\n\r\n{}", true, 502, None),
        ("HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}", true, 502, None),
        ("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", true, 502, None),
        ("{}", true, 502, None),
        ("\r\n\r\n", true, 502, None),
        ("", true, 502, None),
        ("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", false, 502, None),
        (&long, true, 502, None),
        (&many, true, 502, None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", true, 200, None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}", true, 200, None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nx\r\n", true, 200, None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}", true, 200, None),
    ];
    let mut wrong = Vec::new();
    for (bytes, ends, status, body) in cases {
        let (url, _, serving) = answering(bytes.as_bytes().to_vec(), *ends).await;
        let rig = Rig::start(Setup::default()).await;
        rig.set("a", open(&url));
        let (got, text) = answer(&rig).await;
        serving.abort();
        let is_expected =
            if *status == 502 { text.as_ref().is_some_and(|text| text.contains("backend_unavailable")) } else { text.as_deref() == *body };
        // A response that breaks off at once may do so before its head is sent.
        let is_broken = body.is_none() && *status == 200 && got.is_none();
        if (got != Some(*status) && !is_broken) || !is_expected {
            wrong.push(format!("{:?}: {got:?} with {text:?}", &bytes[..bytes.len().min(100)]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn what_a_backend_sends_behind_an_answer_is_nobody_s_answer() {
    let poisoned = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let (url, connections, serving) = answering(poisoned.as_bytes().to_vec(), false).await;
    let rig = Rig::start(Setup::default()).await;
    rig.set("a", open(&url));
    let mut client = rig.http1().await;
    for _ in 0..20 {
        client.ready().await.unwrap();
        let response = client.send_request(chat("a", &[])).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!body.starts_with(b"poison"), "{body:?}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 20, "none of the connections is used again");
    serving.abort();
}
