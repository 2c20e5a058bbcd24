//! Debian's docker-registry: a ModelPack, an artifact of ORAS and a modelcar.

use crate::support::{Node, bytes, message, sha256};
use flate2::{Compression, write::GzEncoder};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};
use tempfile::TempDir;

const SIZE: usize = (3 << 20) + 1;
const ADVICE: &str =
    "docker-registry is needed: install it (Debian and Ubuntu have it in the package docker-registry), or put it on the PATH";

/// The program: that of the PATH, or of Debian's package.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap();
        let mut on_path = std::env::split_paths(&path).map(|dir| dir.join("docker-registry"));
        if let Some(found) = on_path.find(|path| path.exists()) {
            return found;
        }
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docker-registry");
        let program = place.join("usr/bin/docker-registry");
        if program.exists() {
            return program;
        }
        fs::create_dir_all(&place).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            Command::new(program).args(arguments).current_dir(&place).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        // The lists of a machine that is new may be empty.
        let downloaded = run("apt-get", &["download", "docker-registry"])
            || run("apt-get", &["update", "--quiet=2"]) && run("apt-get", &["download", "docker-registry"]);
        assert!(downloaded, "{ADVICE}");
        let mut entries = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
        let package = entries.find(|path| path.extension().is_some_and(|extension| extension == "deb")).expect(ADVICE);
        assert!(run("dpkg-deb", &["--extract", package.to_str().unwrap(), "."]), "{ADVICE}");
        program
    })
}

/// A media type, an annotation, and bytes.
type Layer<'a> = (&'a str, Option<(&'a str, &'a str)>, Vec<u8>);

struct Registry {
    child: Child,
    host: String,
    client: Client<HttpConnector, Full<Bytes>>,
    _folder: TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    /// A registry, with a user `robot` whose password is `pw` if it has users.
    async fn start(with_users: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let host = format!("127.0.0.1:{port}");
        let users = folder.path().join("htpasswd");
        // `htpasswd -nbB robot pw`
        fs::write(&users, "robot:$2y$05$GvvLTmpe7RHCKM4T1JwvDu0y2L2dgOa2XDu0Cwfl9FJTjqrfZlecW\n").unwrap();
        let auth = if with_users { format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", users.display()) } else { String::new() };
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{host}\"}}\n{auth}",
            folder.path().join("data").display()
        );
        let config_path = folder.path().join("config.yml");
        fs::write(&config_path, config).unwrap();
        let child = Command::new(program())
            .args(["serve".as_ref(), config_path.as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect(ADVICE);
        let mut registry = Self { child, host, client: Client::builder(TokioExecutor::new()).build_http(), _folder: folder };
        loop {
            assert!(registry.child.try_wait().unwrap().is_none(), "docker-registry ended");
            if tokio::net::TcpStream::connect(&registry.host).await.is_ok() {
                return registry;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, bytes: Vec<u8>) -> http::Response<Bytes> {
        let url = if path.starts_with("http") { path.to_owned() } else { format!("http://{}{path}", self.host) };
        let request = Request::builder().method(method).uri(url).header(header::CONTENT_TYPE, kind);
        // Always with the user: a registry without users ignores it.
        let request = request.header(header::AUTHORIZATION, "Basic cm9ib3Q6cHc=").body(Full::new(bytes.into())).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        assert!(head.status.is_success(), "{method} {path}: {}", head.status);
        http::Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    }

    async fn blob(&self, repository: &str, bytes: Vec<u8>) -> String {
        let begun = self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), "application/octet-stream", Vec::new()).await;
        let location = begun.headers()[header::LOCATION].to_str().unwrap().to_owned();
        let digest = format!("sha256:{}", sha256(&bytes));
        let mark = if location.contains('?') { '&' } else { '?' };
        self.send("PUT", &format!("{location}{mark}digest={digest}"), "application/octet-stream", bytes).await;
        digest
    }

    /// Pushes layers, and returns the manifest's digest.
    async fn push(&self, repository: &str, tag: &str, layers: &[Layer<'_>]) -> String {
        let config = self.blob(repository, b"{}".to_vec()).await;
        let mut listed = Vec::new();
        for (kind, annotation, content) in layers {
            let digest = self.blob(repository, content.clone()).await;
            let annotations = annotation.map(|(name, value)| format!(",\"annotations\":{{\"{name}\":\"{value}\"}}")).unwrap_or_default();
            listed.push(format!("{{\"mediaType\":\"{kind}\",\"digest\":\"{digest}\",\"size\":{}{annotations}}}", content.len()));
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"{kind}\",\"config\":{{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\
             \"digest\":\"{config}\",\"size\":2}},\"layers\":[{}]}}",
            listed.join(",")
        );
        self.send("PUT", &format!("/v2/{repository}/manifests/{tag}"), kind, manifest.clone().into_bytes()).await;
        format!("sha256:{}", sha256(manifest.as_bytes()))
    }

    fn uri(&self, rest: &str) -> String {
        format!("oci://{}/{rest}", self.host)
    }
}

fn layer(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

const PLAIN: [(&str, &str); 1] = [("plain_http", "true")];

#[tokio::test(flavor = "multi_thread")]
async fn a_model_pack_is_its_files() {
    let (registry, node) = (Registry::start(false).await, Node::new());
    let path = "org.cncf.model.filepath";
    let digest = registry
        .push(
            "team/llama",
            "v1",
            &[
                ("application/vnd.cncf.model.weight.v1.raw", Some((path, "w/model.safetensors")), bytes(1, SIZE)),
                ("application/vnd.cncf.model.weight.config.v1.raw", Some((path, "config.json")), b"{}".to_vec()),
            ],
        )
        .await;
    let outcome = node.fetch_with("llama", &registry.uri("team/llama:v1"), &PLAIN).await.unwrap();
    assert_eq!(format!("sha256:{}", outcome.version), digest);
    assert_eq!((node.read("llama/w/model.safetensors"), node.read("llama/config.json")), (bytes(1, SIZE), b"{}".to_vec()));
    let pinned = node.fetch_with("pinned", &registry.uri(&format!("team/llama@{digest}")), &PLAIN).await.unwrap();
    assert_eq!(pinned.downloaded_bytes, 0, "equal files are shared");
    let text = message(node.fetch_with("none", &registry.uri("team/llama:v2"), &PLAIN).await);
    assert!(text.contains("team/llama:v2 doesn't exist: check the repository and the tag"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modelcar_is_its_folder_models() {
    let (registry, node) = (Registry::start(false).await, Node::new());
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    registry
        .push(
            "car",
            "latest",
            &[
                (kind, None, layer(&[("bin/sh", b"x"), ("models/old.bin", b"1"), ("models/w/model.bin", &bytes(2, SIZE))])),
                (kind, None, layer(&[("models/.wh.old.bin", b""), ("models/config.json", b"{}")])),
            ],
        )
        .await;
    let outcome = node.fetch_with("car", &registry.uri("car"), &PLAIN).await.unwrap();
    assert_eq!(outcome.files, 2);
    assert_eq!((node.read("car/w/model.bin"), node.read("car/config.json")), (bytes(2, SIZE), b"{}".to_vec()));
    assert!(!node.path("car/old.bin").exists() && !node.path("car/bin").exists());
    let again = node.fetch_with("car", &registry.uri("car"), &PLAIN).await.unwrap();
    assert!(!again.changed && again.downloaded_bytes == 0);

    registry.push("car", "empty", &[(kind, None, layer(&[("bin/sh", b"x")]))]).await;
    let text = message(node.fetch_with("empty", &registry.uri("car:empty"), &PLAIN).await);
    assert!(text.contains("has no file below /models"), "{text}");
    registry.push("car", "evil", &[("application/vnd.cncf.model.weight.v1.tar+gzip", None, layer(&[("ok", b"x")]))]).await;
    node.fetch_with("tar", &registry.uri("car:evil"), &PLAIN).await.unwrap();
    assert_eq!(node.read("tar/ok"), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_with_users_wants_one() {
    let (registry, node) = (Registry::start(true).await, Node::new());
    let title = "org.opencontainers.image.title";
    registry.push("m", "1", &[("application/octet-stream", Some((title, "model.gguf")), bytes(3, SIZE))]).await;
    let uri = registry.uri("m:1");
    let text = message(node.fetch_with("m", &uri, &PLAIN).await);
    assert!(text.contains("refuses the credentials (401): set `username` and `password`, or `.dockerconfigjson`"), "{text}");
    let text = message(node.fetch_with("m", &uri, &[PLAIN[0], ("username", "robot"), ("password", "guessed")]).await);
    assert!(text.contains("refuses the credentials (401)") && !text.contains("guessed"), "{text}");
    let config = format!("{{\"auths\":{{\"{}\":{{\"username\":\"robot\",\"password\":\"pw\"}}}}}}", registry.host);
    node.fetch_with("m", &uri, &[PLAIN[0], (".dockerconfigjson", &config)]).await.unwrap();
    assert!(node.read("m/model.gguf") == bytes(3, SIZE), "other bytes");
}
