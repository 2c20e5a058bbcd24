//! A web server of the test: files with ranges and ETags, and faults on demand.

use futures::stream;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
type Handler = dyn Fn(&Request<Incoming>, &Site) -> Option<Response<Body>> + Send + Sync;

/// What happens to the next request for a part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Status(u16),
    /// A status with `Retry-After: 1`.
    Busy(u16),
    /// The connection ends after so many bytes.
    Reset(usize),
    /// An answer for fewer bytes than requested, whole in itself.
    Short,
    /// One byte differs.
    Wrong,
    /// Other bytes than requested, by the answer's own word.
    Shifted,
}

#[derive(Clone)]
struct Stored {
    bytes: Bytes,
    etag: String,
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

pub(crate) struct Site {
    files: Mutex<HashMap<String, Stored>>,
    faults: Mutex<VecDeque<Fault>>,
    pub(crate) seen: Mutex<Vec<Seen>>,
    /// Bytes of bodies that were handed to connections.
    pub(crate) sent: Arc<AtomicU64>,
    /// Bytes a second of each answer; 0 doesn't limit them.
    pub(crate) per_second: AtomicU64,
    pub(crate) ignore_ranges: std::sync::atomic::AtomicBool,
    handler: Box<Handler>,
}

pub(crate) struct Server {
    pub(crate) site: Arc<Site>,
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_, _| None).await
    }

    /// A server that asks this first.
    pub(crate) async fn with(handler: impl Fn(&Request<Incoming>, &Site) -> Option<Response<Body>> + Send + Sync + 'static) -> Self {
        let site = Arc::new(Site {
            files: Mutex::default(),
            faults: Mutex::default(),
            seen: Mutex::default(),
            sent: Arc::default(),
            per_second: AtomicU64::new(0),
            ignore_ranges: false.into(),
            handler: Box::new(handler),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = site.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let site = served.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let site = site.clone();
                        async move { Ok::<_, io::Error>(site.answer(&request)) }
                    });
                    // A fault ends the connection with an error.
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { site, url, task }
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

impl Site {
    pub(crate) fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        let etag = format!("\"{}\"", &super::support::sha256(&bytes)[..16]);
        self.files.lock().unwrap().insert(path.to_owned(), Stored { bytes, etag });
    }

    pub(crate) fn remove(&self, path: &str) {
        self.files.lock().unwrap().remove(path);
    }

    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    pub(crate) fn faults_left(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub(crate) fn requests(&self, path: &str) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.path == path).cloned().collect()
    }

    fn answer(self: &Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.seen.lock().unwrap().push(Seen { path: request.uri().path().to_owned(), authorization: text(header::AUTHORIZATION) });
        (self.handler)(request, self).unwrap_or_else(|| self.file(request, request.uri().path()))
    }

    /// A file as a server of static files has it.
    pub(crate) fn file(&self, request: &Request<Incoming>, path: &str) -> Response<Body> {
        let Some(stored) = self.files.lock().unwrap().get(path).cloned() else { return status(404) };
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let size = stored.bytes.len();
        let unchanged = header(header::IF_RANGE).is_none_or(|etag| etag == stored.etag);
        let range = header(header::RANGE).filter(|_| unchanged && !self.ignore_ranges.load(Relaxed)).map(|range| {
            let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            (start.parse::<usize>().unwrap(), (end.parse::<usize>().unwrap() + 1).min(size))
        });
        let response = Response::builder().header(header::ETAG, &stored.etag);
        let Some((mut start, mut end)) = range else {
            return response.header(header::CONTENT_LENGTH, size).body(self.stream(stored.bytes, None)).unwrap();
        };
        if start >= size {
            return response.status(416).header(header::CONTENT_RANGE, format!("bytes */{size}")).body(empty()).unwrap();
        }
        let fault = if end - start > 1 { self.faults.lock().unwrap().pop_front() } else { None };
        let mut cut = None;
        let mut bytes = stored.bytes.clone();
        match fault {
            Some(Fault::Status(code)) => return status(code),
            Some(Fault::Busy(code)) => {
                return Response::builder().status(code).header(header::RETRY_AFTER, "1").body(empty()).unwrap();
            }
            Some(Fault::Reset(after)) => cut = Some(after),
            Some(Fault::Short) => end = start + (end - start) / 2,
            Some(Fault::Wrong) => {
                let mut wrong = bytes.to_vec();
                wrong[start + (end - start) / 2] ^= 1;
                bytes = wrong.into();
            }
            Some(Fault::Shifted) => start += 1,
            None => {}
        }
        response
            .status(StatusCode::PARTIAL_CONTENT)
            .header(header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end - 1))
            .header(header::CONTENT_LENGTH, end - start)
            .body(self.stream(bytes.slice(start..end), cut))
            .unwrap()
    }

    fn stream(&self, bytes: Bytes, cut: Option<usize>) -> Body {
        const CHUNK: usize = 32 << 10;
        let per_second = self.per_second.load(Relaxed);
        let sent = self.sent.clone();
        let end = cut.unwrap_or(bytes.len()).min(bytes.len());
        let chunks = stream::unfold(0, move |at| {
            let (bytes, sent) = (bytes.clone(), sent.clone());
            async move {
                if at >= end {
                    let reset = cut.is_some() && at == end;
                    return reset.then(|| (Err(io::Error::from(io::ErrorKind::ConnectionReset)), usize::MAX));
                }
                let next = (at + CHUNK).min(end);
                if let Some(delay) = ((next - at) as u64 * 1_000_000).checked_div(per_second) {
                    tokio::time::sleep(Duration::from_micros(delay)).await;
                }
                sent.fetch_add((next - at) as u64, Relaxed);
                Some((Ok(Frame::data(bytes.slice(at..next))), next))
            }
        });
        BodyExt::boxed_unsync(StreamBody::new(chunks))
    }
}

fn empty() -> Body {
    body("")
}

pub(crate) fn body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).body(empty()).unwrap()
}

pub(crate) fn json(text: impl Into<Bytes>) -> Response<Body> {
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(body(text)).unwrap()
}

pub(crate) fn redirect(location: &str) -> Response<Body> {
    Response::builder().status(302).header(header::LOCATION, location).body(empty()).unwrap()
}
