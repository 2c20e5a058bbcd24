//! Clients that reuse their connections and do as little as possible, so that they take little CPU from the measured process.

use crate::measure::quantile;
use serde_json::{Value, json};
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

/// The end of a response's head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The end of a chunked response. The backend's responses contain it only there.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A request, as it is sent.
#[derive(Clone, Debug)]
pub struct Question(Arc<[u8]>);

impl Question {
    /// A request with a JSON body.
    pub fn new(path: &str, body: &Value) -> Self {
        Self::with_headers(path, &[], body)
    }

    /// A request with further headers.
    pub fn with_headers(path: &str, headers: &[(&str, &str)], body: &Value) -> Self {
        let (body, mut request) = (body.to_string(), format!("POST {path} HTTP/1.1\r\nHost: gateway\r\n"));
        for (name, value) in headers {
            request.extend([*name, ": ", *value, "\r\n"]);
        }
        let length = body.len().to_string();
        request.extend(["Content-Type: application/json\r\nContent-Length: ", &*length, "\r\n\r\n", &*body]);
        Self(request.into_bytes().into())
    }
}

/// A connection with one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends a request, and reads until a given part of the response has arrived. The response must be a success.
    async fn ask_until(&mut self, question: &Question, has_come: impl Fn(&[u8], &[u8]) -> bool) -> io::Result<()> {
        self.stream.write_all(&question.0).await?;
        self.read.clear();
        self.read.reserve(16 << 10);
        loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(end) = self.read.windows(HEAD_END.len()).position(|window| window == HEAD_END) else { continue };
            let (head, body) = self.read.split_at(end + HEAD_END.len());
            if !head.starts_with(b"HTTP/1.1 200 ") {
                return Err(io::Error::other(String::from_utf8_lossy(&self.read).into_owned()));
            }
            if has_come(head, body) {
                return Ok(());
            }
        }
    }

    /// Sends a request and reads the whole response.
    pub async fn ask(&mut self, question: &Question) -> io::Result<()> {
        self.ask_until(question, |head, body| match content_length(head) {
            Some(length) => body.len() == length,
            None => body.ends_with(LAST_CHUNK),
        })
        .await
    }

    /// Sends a request and reads the beginning of a response that doesn't end.
    pub async fn begin(&mut self, question: &Question) -> io::Result<()> {
        self.ask_until(question, |_, body| body.windows(5).any(|window| window == b"data:")).await
    }

    /// The body of the last response, as received.
    pub fn body(&self) -> &[u8] {
        let Some(end) = self.read.windows(HEAD_END.len()).position(|window| window == HEAD_END) else { return &[] };
        &self.read[end + HEAD_END.len()..]
    }

    /// How often the last response contains this.
    fn count(&self, text: &[u8]) -> usize {
        self.read.windows(text.len()).filter(|window| *window == text).count()
    }
}

/// The content length in a head, if there is one.
pub fn content_length(head: &[u8]) -> Option<usize> {
    let lines = head.split(|byte| *byte == b'\n');
    let mut lengths = lines.filter_map(|line| {
        let (name, value) = line.split_at_checked("content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:").then(|| std::str::from_utf8(value).ok()?.trim().parse().ok())?
    });
    lengths.next()
}

/// The requests of clients.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The requests, which are repeated in this order. Each connection starts at a different one.
    pub questions: Arc<[Question]>,
    /// A text, and how often each response must contain it.
    pub answer: (&'static str, usize),
    /// The number of concurrent connections.
    pub connections: usize,
}

/// The results of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The median latency.
    pub p50: Duration,
    /// The 99th percentile of latency.
    pub p99: Duration,
    /// The number of responses.
    pub answers: u32,
    /// From the first request to the last response.
    pub lasted: Duration,
}

impl Round {
    /// A round with these latencies, from `begun` until now.
    pub fn new(latencies: &[Duration], begun: Instant) -> Self {
        // Before the latencies are sorted.
        let lasted = begun.elapsed();
        let answers = u32::try_from(latencies.len()).expect("a round has fewer answers");
        Self { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99), answers, lasted }
    }
}

impl Scenario {
    /// Sends requests for this long, over new connections that are reused. The first request of each isn't measured.
    pub fn round(&self, address: SocketAddr, lasts: Duration) -> Round {
        on_a_thread(self.ask(address, lasts))
    }

    async fn ask(&self, address: SocketAddr, lasts: Duration) -> Round {
        let mut connections = Vec::new();
        for number in 0..self.connections {
            let mut connection = Connection::open(address).await.expect("connecting");
            let first = number * self.questions.len() / self.connections;
            connection.ask(&self.questions[first]).await.expect("the first answer");
            let (text, times) = self.answer;
            assert_eq!(connection.count(text.as_bytes()), times, "{}", String::from_utf8_lossy(&connection.read));
            connections.push((connection, first));
        }
        let begun = Instant::now();
        let mut asking = JoinSet::new();
        for (mut connection, first) in connections {
            let questions = Arc::clone(&self.questions);
            asking.spawn(async move {
                let mut latencies = Vec::new();
                for question in questions.iter().cycle().skip(first) {
                    if begun.elapsed() >= lasts {
                        break;
                    }
                    let asked = Instant::now();
                    connection.ask(question).await.expect("an answer");
                    latencies.push(asked.elapsed());
                }
                latencies
            });
        }
        let latencies = asking.join_all().await.concat();
        Round::new(&latencies, begun)
    }
}

/// The body of a chat completion of about 1 KiB.
pub fn completion() -> String {
    json!({
        "id": "chatcmpl-0123456789abcdef", "object": "chat.completion", "created": 1_764_000_000, "model": "llama",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "word ".repeat(150)}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 60, "completion_tokens": 150, "total_tokens": 210},
    })
    .to_string()
}

/// A successful response with a body, as bytes.
pub fn answer(content_type: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Runs a future on its own thread, with its own runtime.
pub fn on_a_thread<T: Send>(work: impl Future<Output = T> + Send) -> T {
    thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join()).expect("it didn't panic")
}

/// A single-threaded runtime; clients and backend have one each, because tasks that move between threads would take more CPU.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}
