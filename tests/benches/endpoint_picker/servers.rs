//! Model servers with prepared responses, each at its own loopback address, and all on one thread: they compete with the measured processes
//! for the CPU.

use pointsman_tests::load::{answer, completion, content_length, runtime};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    thread,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The path of the requests.
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// The third byte of their addresses.
const SUBNET: u8 = 77;

/// The end of a chunked body.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// The metrics page of each server. Its prefix cache holds 1,024 blocks of 64 tokens, so that the picker soon stores its maximum of
/// prefixes.
const PAGE: &str = r#"# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="llama"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="llama"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="llama"} 0.25
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="llama"} 1.834992e+06
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="llama"} 1.102304e+06
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="4096"} 1.0
"#;

struct Answers {
    chat: Vec<u8>,
    metrics: Vec<u8>,
}

/// Starts this number of servers, on one port, and returns their addresses. They end with this process.
pub(crate) fn start(number: u8) -> Vec<SocketAddr> {
    let mut port = 0;
    let listeners: Vec<TcpListener> = (1..=number)
        .map(|server| {
            let listener = TcpListener::bind((Ipv4Addr::new(127, 0, SUBNET, server), port)).unwrap();
            listener.set_nonblocking(true).unwrap();
            port = listener.local_addr().unwrap().port();
            listener
        })
        .collect();
    let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let chat = answer("application/json", &completion());
    let answers = Arc::new(Answers { chat, metrics: answer("text/plain; version=0.0.4; charset=utf-8", PAGE) });
    thread::spawn(move || {
        runtime().block_on(async {
            for listener in listeners {
                tokio::spawn(serve(listener, Arc::clone(&answers)));
            }
            std::future::pending::<()>().await;
        });
    });
    addresses
}

async fn serve(listener: TcpListener, answers: Arc<Answers>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            // A proxy may close connections at any time, but must not send invalid data.
            if let Err(error) = connection(stream, &answers).await {
                assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            }
        });
    }
}

/// Serves one request after the other: a client sends the next one only after the response.
async fn connection(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::with_capacity(16 << 10);
    loop {
        read.clear();
        let mut head = None;
        while head.is_none_or(|head| !is_whole(&read, head)) {
            if stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
            head = head.or_else(|| read.windows(4).position(|window| window == b"\r\n\r\n").map(|end| end + 4));
        }
        let answer = if read.starts_with(b"POST /v1/chat/completions ") {
            &answers.chat
        } else if read.starts_with(b"GET /metrics ") {
            &answers.metrics
        } else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, String::from_utf8_lossy(&read).into_owned()));
        };
        stream.write_all(answer).await?;
    }
}

/// Whether a request with a head of this many bytes has its complete body. Envoy sends bodies that went through the picker in chunks.
fn is_whole(read: &[u8], head: usize) -> bool {
    let body = read.len() - head;
    match content_length(&read[..head]) {
        Some(length) => body >= length,
        None => read.starts_with(b"GET ") || read.ends_with(LAST_CHUNK),
    }
}
