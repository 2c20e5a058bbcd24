//! Clients that keep their connections, and do as little as possible: what they take of the machine is missing to what they measure.

use pointsman_tests::measure::quantile;
use serde_json::Value;
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

/// What ends the head of an answer.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// What ends an answer in chunks. No answer of the backend has it elsewhere.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A request, as it is sent.
#[derive(Clone)]
pub(crate) struct Question(Arc<[u8]>);

impl Question {
    pub(crate) fn new(path: &str, body: &Value) -> Self {
        let body = body.to_string();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        Self((head + &body).into_bytes().into())
    }
}

/// A connection with one request at a time.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends a request, and reads until so much of the answer has come. It must be a success.
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

    /// Reads the whole answer.
    pub(crate) async fn ask(&mut self, question: &Question) -> io::Result<()> {
        self.ask_until(question, |head, body| match length(head) {
            Some(length) => body.len() == length,
            None => body.ends_with(LAST_CHUNK),
        })
        .await
    }

    /// Reads the beginning of an answer that doesn't end.
    pub(crate) async fn begin(&mut self, question: &Question) -> io::Result<()> {
        self.ask_until(question, |_, body| body.windows(5).any(|window| window == b"data:")).await
    }

    /// How often the last answer has this.
    fn count(&self, text: &[u8]) -> usize {
        self.read.windows(text.len()).filter(|window| *window == text).count()
    }
}

fn length(head: &[u8]) -> Option<usize> {
    let lines = head.split(|byte| *byte == b'\n');
    let mut lengths = lines.filter_map(|line| {
        let (name, value) = line.split_at_checked("content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:").then(|| std::str::from_utf8(value).ok()?.trim().parse().ok())?
    });
    lengths.next()
}

/// What clients ask, and how.
pub(crate) struct Scenario {
    pub(crate) question: Question,
    /// What each answer has so many times.
    pub(crate) answer: (&'static str, usize),
    pub(crate) connections: usize,
}

/// What was seen in a round.
pub(crate) struct Round {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) answers: u32,
    pub(crate) lasted: Duration,
}

impl Scenario {
    /// Asks for so long, over connections that are new and then kept. Each of them has one request first that doesn't count.
    pub(crate) fn round(&self, address: SocketAddr, lasts: Duration) -> Round {
        thread::scope(|scope| scope.spawn(|| runtime().block_on(self.ask(address, lasts))).join()).unwrap()
    }

    async fn ask(&self, address: SocketAddr, lasts: Duration) -> Round {
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            let mut connection = Connection::open(address).await.unwrap();
            connection.ask(&self.question).await.unwrap();
            let (text, times) = self.answer;
            assert_eq!(connection.count(text.as_bytes()), times, "{}", String::from_utf8_lossy(&connection.read));
            connections.push(connection);
        }
        let begun = Instant::now();
        let mut asking = JoinSet::new();
        for mut connection in connections {
            let question = self.question.clone();
            asking.spawn(async move {
                let mut latencies = Vec::new();
                while begun.elapsed() < lasts {
                    let asked = Instant::now();
                    connection.ask(&question).await.unwrap();
                    latencies.push(asked.elapsed());
                }
                latencies
            });
        }
        let latencies = asking.join_all().await.concat();
        let (lasted, answers) = (begun.elapsed(), u32::try_from(latencies.len()).unwrap());
        Round { p50: quantile(&latencies, 0.5), p99: quantile(&latencies, 0.99), answers, lasted }
    }
}

/// One thread, as clients and backend have one each: tasks that move between threads would take more of the machine.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
