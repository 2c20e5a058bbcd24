//! A web server for files, with ranges and ETags, and with faults on request.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, Response, StatusCode, header},
};
use futures::stream;
use pointsman_sandbox::{digest::Digest, sync::locked};
use std::{
    collections::BTreeMap,
    fmt::Write,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle};

/// The size of the chunks that it sends.
const CHUNK: usize = 64 << 10;

/// The state of the server.
#[derive(Debug, Default)]
struct Site {
    /// The files by path, each with its ETag.
    files: Mutex<BTreeMap<String, (Bytes, String)>>,
    /// The required `Authorization`, if any.
    authorization: Mutex<Option<String>>,
    /// The number of bytes after which each response breaks off.
    breaks_after: Mutex<Option<u64>>,
    /// The maximum bytes per second of each response; 0 is unlimited.
    per_second: AtomicU64,
    sent: AtomicU64,
}

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct FileServer {
    site: Arc<Site>,
    task: JoinHandle<io::Result<()>>,
    url: String,
}

impl Drop for FileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FileServer {
    /// Starts it on loopback.
    pub async fn start() -> Self {
        let site = Arc::<Site>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listening on loopback");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&site));
        Self { site, task: tokio::spawn(async move { axum::serve(listener, routes).await }), url }
    }

    /// The URL of a path.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Serves these files below a folder, with their checksums. Returns the URL of the folder.
    pub fn put_folder(&self, folder: &str, files: &[(&str, Vec<u8>)]) -> String {
        let mut sums = String::new();
        for (name, bytes) in files {
            writeln!(sums, "{}  {name}", Digest::hash(bytes).hex()).ok();
            self.put(&format!("{folder}/{name}"), bytes.clone());
        }
        self.put(&format!("{folder}/SHA256SUMS"), sums);
        self.at(&format!("{folder}/"))
    }

    /// Serves a file.
    pub fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        let etag = format!("\"{}\"", &Digest::hash(&bytes).hex()[..16]);
        locked(&self.site.files).insert(path.to_owned(), (bytes, etag));
    }

    /// Requires this `Authorization` of requests.
    pub fn require(&self, authorization: Option<&str>) {
        *locked(&self.site.authorization) = authorization.map(str::to_owned);
    }

    /// Breaks each response off after this many bytes.
    pub fn break_after(&self, bytes: Option<u64>) {
        *locked(&self.site.breaks_after) = bytes;
    }

    /// Limits each response to this many bytes per second; 0 is unlimited.
    pub fn limit(&self, per_second: u64) {
        self.site.per_second.store(per_second, Ordering::Relaxed);
    }

    /// The number of bytes of files that it has sent.
    pub fn sent(&self) -> u64 {
        self.site.sent.load(Ordering::Relaxed)
    }
}

async fn answer(State(site): State<Arc<Site>>, request: Request) -> Response<Body> {
    let header = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let status = |status: StatusCode| Response::builder().status(status).body(Body::empty()).expect("an answer");
    if locked(&site.authorization).as_deref().is_some_and(|wanted| header(header::AUTHORIZATION) != Some(wanted)) {
        return status(StatusCode::UNAUTHORIZED);
    }
    let Some((bytes, etag)) = locked(&site.files).get(request.uri().path()).cloned() else { return status(StatusCode::NOT_FOUND) };
    let response = Response::builder().header(header::ETAG, &etag).header(header::ACCEPT_RANGES, "bytes");
    let range = header(header::RANGE).filter(|_| header(header::IF_RANGE).is_none_or(|known| known == etag));
    let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let range = range.and_then(|(start, end)| Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()?)));
    let size = bytes.len();
    let (response, part) = match range {
        Some((start, _)) if start >= size => return status(StatusCode::RANGE_NOT_SATISFIABLE),
        Some((start, end)) => {
            let end = end.min(size - 1);
            let place = format!("bytes {start}-{end}/{size}");
            (response.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, place), bytes.slice(start..=end))
        }
        None => (response, bytes),
    };
    let response = response.header(header::CONTENT_LENGTH, part.len());
    let breaks_after = *locked(&site.breaks_after);
    let chunks = stream::unfold((site, part, breaks_after), |(site, mut part, left)| async move {
        if part.is_empty() {
            return None;
        }
        if left == Some(0) {
            return Some((Err(io::Error::from(io::ErrorKind::ConnectionReset)), (site, Bytes::new(), None)));
        }
        let next = part.split_to(part.len().min(CHUNK).min(left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX))));
        let length = next.len() as u64;
        if let Some(micros) = (length * 1_000_000).checked_div(site.per_second.load(Ordering::Relaxed)) {
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
        site.sent.fetch_add(length, Ordering::Relaxed);
        Some((Ok(next), (site, part, left.map(|left| left - length))))
    });
    response.body(Body::from_stream(chunks)).expect("an answer")
}
