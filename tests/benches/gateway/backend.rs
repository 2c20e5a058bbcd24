//! A model server with prepared responses: it competes with the measured processes for the CPU.

use pointsman_tests::load::{answer, completion, runtime};
use serde_json::json;
use std::{io, net::SocketAddr, sync::Arc, thread};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::yield_now,
};

/// The path with one chat completion as the response.
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// The same response, for larger requests.
pub(crate) const EMBEDDINGS: &str = "/v1/embeddings";

/// The path with a response of events.
pub(crate) const EVENTS: &str = "/v1/completions";

/// The path with a response of one event, which doesn't end.
pub(crate) const IDLE: &str = "/v1/responses";

/// The number of events in a response.
pub(crate) const EVENT_COUNT: usize = 50;

const EVENTS_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A model server on its own thread.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    /// The number of open responses that don't end.
    pub(crate) idle: watch::Receiver<usize>,
}

struct Answers {
    chat: Vec<u8>,
    event: Vec<u8>,
    idle: watch::Sender<usize>,
}

impl Backend {
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (idle, receiver) = watch::channel(0);
        let answers = Arc::new(Answers { chat: answer("application/json", &completion()), event: chunk(&event()), idle });
        thread::spawn(|| runtime().block_on(serve(listener, answers)));
        Self { address, idle: receiver }
    }
}

async fn serve(listener: std::net::TcpListener, answers: Arc<Answers>) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let answers = Arc::clone(&answers);
        // A proxy may close connections at any time.
        tokio::spawn(async move { connection(stream, &answers).await.ok() });
    }
}

fn event() -> String {
    let choice = json!({"index": 0, "text": " word", "finish_reason": null});
    format!("data: {}\n\n", json!({"id": "cmpl-0123456789abcdef", "object": "text_completion", "model": "llama", "choices": [choice]}))
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// Serves one request after the other.
async fn connection(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    loop {
        read.reserve(16 << 10);
        let head = loop {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
            if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
                let body = read.split_off(end + 4);
                break String::from_utf8(std::mem::replace(&mut read, body)).map_err(io::Error::other)?;
            }
        };
        let mut left = length(&head)?;
        loop {
            left = left.checked_sub(read.len()).ok_or_else(|| io::Error::other("more than its length"))?;
            read.clear();
            if left == 0 {
                break;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        match head.split(' ').nth(1) {
            Some(CHAT | EMBEDDINGS) => stream.write_all(&answers.chat).await?,
            Some(EVENTS) => events(&mut stream, answers).await?,
            Some(IDLE) => return begin(&mut stream, answers).await,
            _ => return Err(io::Error::other(head)),
        }
    }
}

fn length(head: &str) -> io::Result<usize> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length")).and_then(|(_, length)| length.parse().ok());
    length.ok_or_else(|| io::Error::other(format!("a request without a length: {head}")))
}

/// Sends each event separately, because a model generates one after the other.
async fn events(stream: &mut TcpStream, answers: &Answers) -> io::Result<()> {
    stream.write_all(EVENTS_HEAD.as_bytes()).await?;
    for _ in 0..EVENT_COUNT {
        stream.write_all(&answers.event).await?;
        yield_now().await;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// Begins a response, and waits until the client disconnects.
async fn begin(stream: &mut TcpStream, answers: &Answers) -> io::Result<()> {
    stream.write_all(EVENTS_HEAD.as_bytes()).await?;
    stream.write_all(&answers.event).await?;
    answers.idle.send_modify(|idle| *idle += 1);
    let ended = stream.read_u8().await;
    answers.idle.send_modify(|idle| *idle -= 1);
    ended.map(drop)
}
