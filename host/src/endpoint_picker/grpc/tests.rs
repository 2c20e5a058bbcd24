use super::*;
use crate::endpoint_picker::threads::Threads;
use futures::{FutureExt, StreamExt, channel::mpsc};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    client::conn::http2,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pointsman_picker::protocol::{
    Placement, Refusal, RequestHead, ResponseHead,
    framing::{self, Framing},
    messages::{HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest, ProcessingResponse, request::Part as From, response::Part as To},
};
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
};

/// Places requests at one endpoint, as soon as a test provides capacity.
#[derive(Debug)]
struct OneEndpoint {
    room: tokio::sync::Semaphore,
    waiting: Arc<AtomicUsize>,
    in_flight: Arc<AtomicUsize>,
    changed: Arc<Notify>,
}

/// Counts while it exists.
struct Counted(Arc<AtomicUsize>, Arc<Notify>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, changed: &Arc<Notify>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        changed.notify_waiters();
        Self(Arc::clone(count), Arc::clone(changed))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        self.1.notify_waiters();
    }
}

impl OneEndpoint {
    fn new(room: usize) -> Arc<Self> {
        let (waiting, in_flight, changed) = Default::default();
        Arc::new(Self { room: tokio::sync::Semaphore::new(room), waiting, in_flight, changed })
    }

    async fn until(&self, what: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if what(self) {
                return;
            }
            changed.await;
        }
    }
}

impl Health for OneEndpoint {
    fn health(&self, service: &str) -> Option<bool> {
        service.is_empty().then_some(true)
    }
}

impl Picks for OneEndpoint {
    type Placed = Counted;

    async fn pick(self: Arc<Self>, _: RequestHead, body: Vec<Bytes>) -> Result<(Placement, Counted), Refusal> {
        assert!(body.concat() != b"panic", "as the test wants it");
        if body.concat() == b"refuse" {
            return Err(Refusal { status: 429, body: Bytes::from_static(b"full"), ..Refusal::default() });
        }
        let waits = Counted::new(&self.waiting, &self.changed);
        self.room.acquire().await.unwrap().forget();
        drop(waits);
        let placement = Placement { endpoints: vec!["10.0.0.1:8000".to_owned()], ..Placement::default() };
        Ok((placement, Counted::new(&self.in_flight, &self.changed)))
    }

    fn response(&self, _: &mut Counted, _: &ResponseHead) -> Vec<(String, String)> {
        vec![("x-seen".to_owned(), "1".to_owned())]
    }

    fn chunk(&self, _: &mut Counted, chunk: HttpBody) -> (Vec<Bytes>, bool) {
        (vec![chunk.body], chunk.end_of_stream)
    }
}

/// A server with a connection to it.
struct Running {
    client: http2::SendRequest<http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

async fn running(picks: Arc<OneEndpoint>) -> Running {
    let (stop, stopped) = oneshot::channel();
    connected(Some(stop), |listener| {
        serve(picks, listener, None, Settings::default(), Arc::new(Threads::start("proxies").unwrap()), async { _ = stopped.await })
    })
    .await
}

async fn connected<F: Future<Output = ()> + Send + 'static>(
    stop: Option<oneshot::Sender<()>>,
    serve: impl FnOnce(TcpListener) -> F,
) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener));
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Running { client, stop, server }
}

/// A stream of a proxy.
struct Stream {
    sender: mpsc::UnboundedSender<Frame<Bytes>>,
    answer: Incoming,
    framing: Framing,
    trailers: Option<HeaderMap>,
}

impl Stream {
    async fn open(running: &mut Running) -> Self {
        let (sender, receiver) = mpsc::unbounded();
        let body = StreamBody::new(receiver.map(Ok::<_, Infallible>)).boxed_unsync();
        let request = Request::post(PROCESS).header("content-type", "application/grpc").header("te", "trailers").body(body).unwrap();
        let answer = running.client.send_request(request).await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        Self { sender, answer: answer.into_body(), framing: Framing::new(1 << 20), trailers: None }
    }

    fn send(&self, part: From) {
        let message = ProcessingRequest { part: Some(part), ..ProcessingRequest::default() };
        self.sender.unbounded_send(Frame::data(framing::encode(&[message]))).unwrap();
    }

    /// The next message, or none at the end.
    async fn next(&mut self) -> Option<To> {
        loop {
            if let Some(message) = self.framing.next_message().unwrap() {
                return Some(framing::decode::<ProcessingResponse>(message).unwrap().part.unwrap());
            }
            match self.answer.frame().await?.unwrap().into_data() {
                Ok(data) => self.framing.push(data),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// The status after the last message, once the proxy ends the stream.
    async fn status(&mut self) -> String {
        self.sender.close_channel();
        assert_eq!(self.next().await, None);
        self.trailers.take().unwrap()["grpc-status"].to_str().unwrap().to_owned()
    }
}

fn body(bytes: &'static [u8], end_of_stream: bool) -> HttpBody {
    HttpBody { body: Bytes::from_static(bytes), end_of_stream }
}

#[tokio::test]
async fn a_request_is_placed_its_response_passed_on_and_what_went_along_is_dropped() {
    let picks = OneEndpoint::new(1);
    let mut running = running(Arc::clone(&picks)).await;
    let mut stream = Stream::open(&mut running).await;
    stream.send(From::RequestHeaders(HttpHeaders::default()));
    stream.send(From::RequestBody(body(b"{}", true)));
    assert!(matches!(stream.next().await, Some(To::RequestHeaders(_))));
    assert!(matches!(stream.next().await, Some(To::RequestBody(_))));
    assert_eq!(picks.in_flight.load(Ordering::SeqCst), 1);
    stream.send(From::ResponseHeaders(HttpHeaders::default()));
    let Some(To::ResponseHeaders(answer)) = stream.next().await else { panic!() };
    assert_eq!(answer.response.unwrap().header_mutation.unwrap().set_headers.len(), 1);
    stream.send(From::ResponseBody(body(b"data: a\n\n", false)));
    assert!(matches!(stream.next().await, Some(To::ResponseBody(_))));
    stream.send(From::ResponseBody(body(b"", false)));
    stream.send(From::ResponseTrailers(HttpTrailers::default()));
    assert!(matches!(stream.next().await, Some(To::ResponseTrailers(_))));
    assert_eq!(stream.status().await, "0");
    picks.until(|picks| picks.in_flight.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_stream_ends_after_the_proxy_has_ended_it() {
    let picks = OneEndpoint::new(9);
    let mut running = running(Arc::clone(&picks)).await;
    let mut first = Stream::open(&mut running).await;
    first.send(From::RequestHeaders(HttpHeaders::default()));
    first.send(From::RequestBody(body(b"refuse", true)));
    assert!(matches!(first.next().await, Some(To::Immediate(_))));
    // Earlier data arrives earlier on the same connection.
    let mut second = Stream::open(&mut running).await;
    second.send(From::RequestHeaders(HttpHeaders::default()));
    second.send(From::RequestBody(body(b"refuse", true)));
    assert!(matches!(second.next().await, Some(To::Immediate(_))));
    assert_eq!(second.status().await, "0");
    // A proxy may still be sending the body of a refused request.
    assert!(first.answer.frame().now_or_never().is_none(), "it ends before the proxy has");
    first.send(From::RequestBody(body(b"more", false)));
    assert_eq!(first.status().await, "0");
}

#[tokio::test]
async fn a_request_that_waits_leaves_when_its_client_goes_and_others_go_on() {
    let picks = OneEndpoint::new(0);
    let mut running = running(Arc::clone(&picks)).await;
    let gone = Stream::open(&mut running).await;
    gone.send(From::RequestHeaders(HttpHeaders { end_of_stream: true, ..HttpHeaders::default() }));
    let mut waits = Stream::open(&mut running).await;
    waits.send(From::RequestHeaders(HttpHeaders { end_of_stream: true, ..HttpHeaders::default() }));
    picks.until(|picks| picks.waiting.load(Ordering::SeqCst) == 2).await;
    drop(gone);
    picks.until(|picks| picks.waiting.load(Ordering::SeqCst) == 1).await;
    picks.room.add_permits(1);
    assert!(matches!(waits.next().await, Some(To::RequestHeaders(_))));
    // A stream that the proxy closes ends successfully.
    waits.sender.close_channel();
    assert_eq!(waits.status().await, "0");
    picks.until(|picks| picks.in_flight.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_refusal_ends_the_stream_and_a_panic_ends_no_other() {
    let picks = OneEndpoint::new(9);
    let mut running = running(Arc::clone(&picks)).await;
    let mut refused = Stream::open(&mut running).await;
    refused.send(From::RequestHeaders(HttpHeaders::default()));
    refused.send(From::RequestBody(body(b"refuse", true)));
    let Some(To::Immediate(answer)) = refused.next().await else { panic!() };
    assert_eq!((answer.status.unwrap().code, &*answer.body), (429, &b"full"[..]));
    assert_eq!(refused.status().await, "0");
    let mut other = Stream::open(&mut running).await;
    other.send(From::RequestHeaders(HttpHeaders::default()));
    let mut panics = Stream::open(&mut running).await;
    panics.send(From::RequestHeaders(HttpHeaders::default()));
    panics.send(From::RequestBody(body(b"panic", true)));
    assert!(panics.answer.frame().await.is_none_or(|frame| frame.is_err()), "the stream is reset");
    other.send(From::RequestBody(body(b"{}", true)));
    assert!(matches!(other.next().await, Some(To::RequestHeaders(_))));
}

#[tokio::test]
async fn streams_that_have_begun_end_after_a_stop_and_none_begin() {
    let picks = OneEndpoint::new(9);
    let mut running = running(Arc::clone(&picks)).await;
    let mut stream = Stream::open(&mut running).await;
    stream.send(From::RequestHeaders(HttpHeaders { end_of_stream: true, ..HttpHeaders::default() }));
    assert!(matches!(stream.next().await, Some(To::RequestHeaders(_))));
    running.stop.take().unwrap().send(()).unwrap();
    stream.send(From::ResponseHeaders(HttpHeaders { end_of_stream: true, ..HttpHeaders::default() }));
    assert!(matches!(stream.next().await, Some(To::ResponseHeaders(_))));
    assert_eq!(stream.status().await, "0");
    running.server.await.unwrap();
}

/// The status and the body of a call with one message.
async fn ask(running: &mut Running, path: &str, bytes: Bytes) -> (String, Bytes) {
    let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    let request = Request::post(path).header("content-type", "application/grpc").body(body).unwrap();
    let answer = running.client.send_request(request).await.unwrap();
    let headers = answer.headers().clone();
    let collected = answer.into_body().collect().await.unwrap();
    let status = collected.trailers().unwrap_or(&headers)["grpc-status"].to_str().unwrap().to_owned();
    (status, collected.to_bytes())
}

#[tokio::test]
async fn health_is_answered_and_what_is_wrong_has_its_code() {
    let mut running = running(OneEndpoint::new(1)).await;
    let (empty, unknown) = (Bytes::from_static(&[0, 0, 0, 0, 0]), Bytes::from_static(&[0, 0, 0, 0, 3, 0x0a, 1, b'x']));
    assert_eq!(ask(&mut running, HEALTH, empty.clone()).await, ("0".to_owned(), Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1])));
    for (path, bytes, code) in [
        (HEALTH, unknown, "5"),
        (HEALTH, Bytes::new(), "3"),
        ("/other/Call", empty, "12"),
        (PROCESS, Bytes::from_static(&[1, 0, 0, 0, 0]), "12"),
        (PROCESS, Bytes::from_static(&[0, 0xff, 0, 0, 0]), "8"),
        (PROCESS, Bytes::from_static(&[0, 0, 0, 0, 9]), "3"),
        (PROCESS, Bytes::from_static(&[0, 0, 0, 0, 1, 0xff]), "3"),
    ] {
        assert_eq!(ask(&mut running, path, bytes.clone()).await.0, code, "{path} {bytes:?}");
    }
}

#[tokio::test]
async fn where_probes_are_answered_no_request_is_placed() {
    let picks = OneEndpoint::new(1);
    let mut running = connected(None, |listener| serve_probes(picks, listener)).await;
    let empty = Bytes::from_static(&[0, 0, 0, 0, 0]);
    assert_eq!(ask(&mut running, HEALTH, empty.clone()).await, ("0".to_owned(), Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1])));
    assert_eq!(ask(&mut running, PROCESS, empty).await.0, "12");
    running.server.abort();
}
