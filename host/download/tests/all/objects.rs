//! An S3 server (`s3s` on a folder), by S3's own and OCI Object Storage's addresses; servers that answer as GCS and Azure do.

use crate::{
    site::{Server, body, status},
    support::{Node, bytes, limits, message, until},
};
use http::{Response, header};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use pointsman_download::Limits;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};

const SIZE: usize = (5 << 20) + 9;

struct S3 {
    folder: TempDir,
    url: String,
    task: JoinHandle<()>,
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl S3 {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("id", "secret"));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = service.clone();
                connections.spawn(async move {
                    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { folder, url, task }
    }

    fn put(&self, path: &str, content: &[u8]) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    async fn fetch(
        &self,
        node: &Node,
        name: &str,
        uri: &str,
        secret: &str,
    ) -> Result<pointsman_download::Outcome, pointsman_download::Error> {
        let parameters = [("endpoint", self.url.as_str()), ("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", secret)];
        node.fetch_with(name, uri, &parameters).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_of_a_bucket_is_a_model() {
    let (s3, node) = (S3::start().await, Node::new());
    s3.put("bucket/models/llama/config.json", b"{}");
    s3.put("bucket/models/llama/w/model.safetensors", &bytes(1, SIZE));
    s3.put("bucket/models/llama-other/x", b"x");
    let outcome = s3.fetch(&node, "llama", "s3://bucket@eu-west-1/models/llama/", "secret").await.unwrap();
    assert_eq!(outcome.files, 2);
    assert!(node.read("llama/w/model.safetensors") == bytes(1, SIZE), "other bytes");
    let same = s3.fetch(&node, "llama", "s3://bucket/models/llama", "secret").await.unwrap();
    assert!(!same.changed && same.downloaded_bytes == 0);
    // The same bucket by OCI Object Storage's address.
    s3.fetch(&node, "oci", "oci://n/tenancy/b/bucket/o/models/llama", "secret").await.unwrap();
    assert_eq!(node.read("oci/config.json"), b"{}");
    // One object.
    s3.fetch(&node, "one", "s3://bucket/models/llama/config.json", "secret").await.unwrap();
    assert_eq!(node.read("one/config.json"), b"{}");

    s3.put("bucket/models/llama/config.json", b"{\"a\":1}");
    let changed = s3.fetch(&node, "llama", "s3://bucket/models/llama", "secret").await.unwrap();
    assert!(changed.changed && changed.downloaded_bytes < 100, "{changed:?}");
    assert_eq!(node.read("llama/config.json"), b"{\"a\":1}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_places_are_messages() {
    let (s3, node) = (S3::start().await, Node::new());
    s3.put("bucket/models/llama/config.json", b"{}");
    let text = message(s3.fetch(&node, "a", "s3://bucket/models/llama", "guessed").await);
    assert_eq!(
        text,
        "s3://bucket/models/llama refuses the credentials (403): set credentials that may list and read the bucket in the Secret of storage.key"
    );
    let text = message(s3.fetch(&node, "a", "s3://bucket/nothing", "secret").await);
    assert_eq!(text, "s3://bucket/nothing doesn't exist: check the bucket, the prefix and the region");
    let text = message(node.fetch_with("a", "s3://bucket/x", &[("aws_access_key_id", "id")]).await);
    assert!(text.contains("aws_access_key_id of the storage and aws_secret_access_key belong together"), "{text}");
    let text = message(node.fetch_with("a", "oci://n/ns/b/bucket/o/x", &[]).await);
    assert!(text.contains("region of the storage is missing"), "{text}");
    let text = message(node.fetch_with("a", "oci://n/ns/b/bucket/o/x", &[("region", "eu"), ("auth", "InstancePrincipal")]).await);
    assert!(text.contains("make a customer secret key"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_changes_in_the_middle_is_begun_again() {
    let (s3, node) = (S3::start().await, Node::with(Limits { bytes_per_second: Some(4 << 20), parallel_parts_per_model: 2, ..limits() }));
    s3.put("bucket/m/a", &bytes(1, SIZE));
    let access = pointsman_download::Access::new(
        [("endpoint", s3.url.as_str())],
        [("aws_access_key_id", "id"), ("aws_secret_access_key", "secret")],
    );
    let download = node.downloader.download(node.request("m", "s3://bucket/m", access));
    let watcher = download.watcher();
    let running = tokio::spawn(download.run());
    until(|| watcher.progress().completed_bytes > 0).await;
    // As an upload does: whole and at once.
    s3.put("draft", &bytes(2, SIZE + 5));
    std::fs::rename(s3.folder.path().join("draft"), s3.folder.path().join("bucket/m/a")).unwrap();
    let outcome = running.await.unwrap().unwrap();
    assert!(node.read("m/a") == bytes(2, SIZE + 5), "other bytes");
    assert_eq!(outcome.source_changes, 1);
}

/// An object as another store serves it, with a header that has its checksum.
async fn store(list: &'static str, list_path: &'static str, object_path: &'static str, checksum: (&'static str, String)) -> Server {
    let server = Server::with(move |request, site| {
        let query = request.uri().query().unwrap_or_default();
        if request.uri().path() == list_path && query.contains("list") {
            return Some(Response::builder().header(header::CONTENT_TYPE, "application/xml").body(body(list)).unwrap());
        }
        if request.uri().path() != object_path {
            return Some(status(404));
        }
        let mut response = site.file(request, object_path);
        response.headers_mut().insert(checksum.0, checksum.1.parse().unwrap());
        response.headers_mut().insert(header::LAST_MODIFIED, "Wed, 01 Jan 2025 00:00:00 GMT".parse().unwrap());
        Some(response)
    })
    .await;
    server.site.put(object_path, bytes(1, 3 << 20));
    server
}

fn md5() -> String {
    use base64::Engine;
    use md5::Digest;
    base64::prelude::BASE64_STANDARD.encode(md5::Md5::digest(bytes(1, 3 << 20)))
}

const GCS_LIST: &str = "<?xml version='1.0'?><ListBucketResult><Name>bucket</Name><Prefix>m/</Prefix><Contents><Key>m/a</Key>\
    <LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>\"x\"</ETag><Size>3145728</Size></Contents></ListBucketResult>";
const AZURE_LIST: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Prefix>m/</Prefix><Blobs><Blob><Name>m/a</Name>\
    <Properties><Last-Modified>Wed, 01 Jan 2025 00:00:00 GMT</Last-Modified><Content-Length>3145728</Content-Length>\
    <Content-Type>a/b</Content-Type><Etag>\"x\"</Etag></Properties></Blob></Blobs><NextMarker/></EnumerationResults>";

#[tokio::test(flavor = "multi_thread")]
async fn googles_checksum_is_compared() {
    let node = Node::new();
    for (hash, is_right) in [(format!("crc32c=AAAAAA==,md5={}", md5()), true), ("crc32c=AAAAAA==".to_owned(), false)] {
        let server = store(GCS_LIST, "/bucket", "/bucket/m%2Fa", ("x-goog-hash", hash)).await;
        let outcome = node.fetch_with(&format!("m{is_right}"), "gs://bucket/m", &[("endpoint", &server.url)]).await;
        if is_right {
            outcome.unwrap();
            assert!(node.read("mtrue/a") == bytes(1, 3 << 20), "other bytes");
        } else {
            let text = message(outcome);
            assert!(text.contains("a of gs://bucket/m has the CRC-32C ") && text.contains("publishes 00000000"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn azures_checksum_is_compared() {
    let node = Node::new();
    for (hash, is_right) in [(md5(), true), ("AAAAAAAAAAAAAAAAAAAAAA==".to_owned(), false)] {
        let server = store(AZURE_LIST, "/container", "/container/m/a", ("x-ms-blob-content-md5", hash)).await;
        let outcome = node.fetch_with(&format!("m{is_right}"), "az://account/container/m", &[("endpoint", &server.url)]).await;
        if is_right {
            outcome.unwrap();
            assert!(node.read("mtrue/a") == bytes(1, 3 << 20), "other bytes");
        } else {
            let text = message(outcome);
            assert!(text.contains("a of az://account/container/m has the MD5 "), "{text}");
        }
    }
}
