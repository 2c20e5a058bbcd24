//! The admission webhook of a real host, with requests at a steady rate, as the API server sends them: first with only the shipped rules,
//! then with 50 more that match each object. Every response is checked.
//!
//! Each request is due at a fixed time, regardless of those before it, and its latency is measured from then: a webhook that doesn't keep
//! up is slow for all requests that had to wait, not only for the one that it was processing.
#![allow(clippy::unwrap_used)]

use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use pointsman::permissions::WEBHOOK_SECRET;
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_crds::policy::rule::ValidationRule;
use pointsman_tests::{
    Host, PolicyCluster, eventually,
    measure::{goal, is_quick, keep, leads, quantile, taken},
    rules::{RULES, expression, object},
};
use serde_json::{Value, json};
use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

/// The interval between requests: 200 per second.
const PACE: Duration = Duration::from_millis(5);

/// The duration of one round.
const LASTS: Duration = Duration::from_secs(30);
const LASTS_QUICK: Duration = Duration::from_secs(10);

/// The number of idle connections that an API server keeps open to a webhook.
const CONNECTIONS: u32 = 25;

/// The maximum of the 99th percentile.
const GOAL: Duration = Duration::from_millis(10);

/// The timeout of a response, as in our manifest for the API server.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() {
    tokio::runtime::Runtime::new().unwrap().block_on(measure());
}

async fn measure() {
    let cluster = PolicyCluster::start().await;
    cluster.pointsman(&["crds", "install"]).ok();
    let cache = cluster.folder("cache");
    let flags = ["--webhook", "127.0.0.1:0", "--webhook-host", "127.0.0.1", "--cache", &cache.to_string_lossy()];
    let host = Host::start(&cluster, &flags).await;
    leads(&host).await;
    let webhook = Webhook { address: host.webhook().await, config: trusting(&cluster).await };
    let (good, bad) = (Question::about(&object()), Question::about(&broken()));

    // The shipped rules only warn.
    let first = eventually("the webhook responds", async || webhook.answer(&bad).ok()).await;
    assert_eq!(first["allowed"], true, "{first}");
    let without = webhook.at_pace(&cluster, &host, &good);

    make_rules(&cluster).await;
    let denied = webhook.answer(&bad).unwrap();
    let said = denied["status"]["message"].as_str().unwrap_or_default();
    let all_say_so = (0..RULES).all(|number| said.contains(&format!("{}: failed expression: ", rule_name(number))));
    assert!(denied["allowed"] == false && denied["status"]["code"] == 422 && all_say_so, "{denied}");
    let with = webhook.at_pace(&cluster, &host, &good);
    host.stop();
    tell(&without, &with);
}

/// The TLS configuration that trusts the webhook, when its certificate exists.
async fn trusting(cluster: &PolicyCluster) -> Arc<ClientConfig> {
    let secrets = Api::<k8s_openapi::api::core::v1::Secret>::namespaced(cluster.client().await, HOST_NAMESPACE);
    let bundle = eventually("the host has created its certificates", async || {
        let found = secrets.get_opt(WEBHOOK_SECRET).await.unwrap()?;
        found.data?.remove("ca.crt")
    })
    .await;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle.0).flatten());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Arc::new(builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth())
}

fn rule_name(number: usize) -> String {
    format!("rule-{number:02}")
}

/// Creates the rules, and waits until all of them are active.
async fn make_rules(cluster: &PolicyCluster) {
    let api = Api::<ValidationRule>::all(cluster.client().await);
    for number in 0..RULES {
        let rule = json!({
            "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "ValidationRule", "metadata": {"name": rule_name(number)},
            "spec": {
                "match": {"kinds": [{"group": "ome.io", "kind": "InferenceService"}]}, "strategy": {"type": "Immediate"},
                "validations": [{"expression": expression(number)}],
            },
        });
        api.patch(&rule_name(number), &PatchParams::apply("bench").force(), &Patch::Apply(&rule)).await.unwrap();
    }
    let counts = |rule: &ValidationRule| {
        let status = rule.status.as_ref().filter(|status| status.observed_generation == rule.metadata.generation);
        status.is_some_and(|status| status.conditions.iter().any(|condition| condition.type_ == "Active" && condition.status == "True"))
    };
    eventually("all rules are active", async || {
        let rules = api.list(&ListParams::default()).await.unwrap();
        let counting =
            rules.items.iter().filter(|rule| rule.metadata.name.as_deref().is_some_and(|name| name.starts_with("rule-")) && counts(rule));
        (counting.count() == RULES).then_some(())
    })
    .await;
}

/// The same service, changed so that it breaks every rule.
fn broken() -> Value {
    let mut object = object();
    let metadata = &mut object["metadata"];
    metadata["name"] = "7".into();
    metadata["labels"].as_object_mut().unwrap().values_mut().for_each(|value| *value = "other".into());
    for number in 0..RULES / 10 {
        metadata["annotations"][format!("evil-{number}")] = "".into();
    }
    let engine = &mut object["spec"]["engine"];
    engine["minReplicas"] = 1000.into();
    engine["containers"][0]["image"] = "elsewhere.example.com/any".into();
    engine["runner"]["env"] = json!([]);
    engine["runner"]["resources"]["limits"]["nvidia.com/gpu"] = 1000.into();
    engine["runner"]["securityContext"]["privileged"] = true.into();
    let decoder = &mut object["spec"]["decoder"];
    decoder["maxReplicas"] = 1000.into();
    decoder["runner"]["resources"]["requests"]["memory"] = "0".into();
    object
}

/// The API server's request for the CREATE of an object: the parts before and after the number that identifies the request.
struct Question {
    before: String,
    after: String,
}

impl Question {
    fn about(object: &Value) -> Self {
        const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";
        let kind = json!({"group": "ome.io", "version": "v1beta1", "kind": "InferenceService"});
        let resource = json!({"group": "ome.io", "version": "v1beta1", "resource": "inferenceservices"});
        let user = json!({"username": "system:serviceaccount:team:deployer", "groups": ["system:serviceaccounts", "system:authenticated"]});
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": UID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
                "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"], "operation": "CREATE", "userInfo": user,
                "object": object, "oldObject": null, "dryRun": false,
                "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "fieldManager": "kubectl-client-side-apply"},
            },
        });
        let review = review.to_string();
        let (before, after) = review.split_once(UID).unwrap();
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    /// The HTTP request with a number.
    fn request(&self, address: &str, uid: &str) -> String {
        let Self { before, after } = self;
        let length = before.len() + uid.len() + after.len();
        let head =
            format!("POST /validate?timeout=5s HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}");
        format!("{head}\r\n\r\n{before}{uid}{after}")
    }
}

/// The address of the webhook, and the TLS configuration of its clients.
struct Webhook {
    address: String,
    config: Arc<ClientConfig>,
}

/// The results of many requests.
struct Seen {
    /// From the due time of each to the end of its response.
    latencies: Vec<Duration>,
    /// The maximum lateness of a request: its connection was waiting for another response, or the machine was busy. It is part of the
    /// latency.
    late: Duration,
    /// The host's CPU for one request.
    cpu: Duration,
}

impl Webhook {
    /// Sends one request, and checks the response.
    fn answer(&self, question: &Question) -> io::Result<Value> {
        let uid = "first";
        let answer = Connection::open(self)?.ask(&question.request(&self.address, uid))?;
        Ok(response(&answer, uid))
    }

    /// Sends requests at a steady rate, for an object that must be admitted.
    fn at_pace(&self, cluster: &PolicyCluster, host: &Host<'_>, question: &Question) -> Seen {
        let lasts = if is_quick() { LASTS_QUICK } else { LASTS };
        let number = u32::try_from(lasts.as_nanos() / PACE.as_nanos()).unwrap();
        let connections: Vec<Connection> = (0..CONNECTIONS).map(|_| Connection::open(self).unwrap()).collect();
        let cpu = || taken(cluster, host).cpu();
        let (next, before) = (AtomicU32::new(0), cpu());
        // By then all threads are waiting.
        let begun = Instant::now() + PACE * CONNECTIONS;
        let asking = |mut connection: Connection| {
            let mut seen = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= number {
                    return seen;
                }
                let (uid, due) = (format!("{at:08}"), begun + PACE * at);
                let request = question.request(&self.address, &uid);
                // A timer of the runtime would be a millisecond late.
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let late = due.elapsed();
                let answer = connection.ask(&request).unwrap();
                seen.push((due.elapsed(), late));
                assert_eq!(response(&answer, &uid)["allowed"], true);
            }
        };
        let seen: Vec<(Duration, Duration)> = thread::scope(|scope| {
            let clients: Vec<_> = connections.into_iter().map(|connection| scope.spawn(|| asking(connection))).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        assert_eq!(seen.len(), usize::try_from(number).unwrap());
        let late = seen.iter().map(|(_, late)| *late).max().unwrap_or_default();
        Seen { latencies: seen.into_iter().map(|(took, _)| took).collect(), late, cpu: (cpu().saturating_sub(before)) / number }
    }
}

/// The response in an AdmissionReview.
fn response(review: &str, uid: &str) -> Value {
    let review: Value = serde_json::from_str(review).unwrap();
    assert!(review["kind"] == "AdmissionReview" && review["response"]["uid"] == uid, "{review}");
    review["response"].clone()
}

/// A persistent connection, with one request at a time: the API server uses HTTP/1.1 for webhooks.
struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl Connection {
    /// Connects, with the TLS handshake.
    fn open(webhook: &Webhook) -> io::Result<Self> {
        let mut stream = TcpStream::connect(&webhook.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from("127.0.0.1").map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(Arc::clone(&webhook.config), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Self(StreamOwned::new(connection, stream)))
    }

    /// The body of the response, which must be complete.
    fn ask(&mut self, request: &str) -> io::Result<String> {
        self.0.write_all(request.as_bytes())?;
        self.0.flush()?;
        let mut read: Vec<u8> = Vec::new();
        let head = loop {
            self.read_more(&mut read)?;
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                let body = read.split_off(end + 4);
                break String::from_utf8(std::mem::replace(&mut read, body)).map_err(io::Error::other)?;
            }
        };
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length")).and_then(|(_, length)| length.parse().ok());
        let length: usize = length.ok_or_else(|| io::Error::other(format!("an answer without a length: {head}")))?;
        while read.len() < length {
            self.read_more(&mut read)?;
        }
        let body = String::from_utf8(read).map_err(io::Error::other)?;
        if head.starts_with("HTTP/1.1 200 ") && body.len() == length { Ok(body) } else { Err(io::Error::other(format!("{head}{body}"))) }
    }

    fn read_more(&mut self, read: &mut Vec<u8>) -> io::Result<()> {
        let mut piece = [0; 4096];
        match self.0.read(&mut piece)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                read.extend(&piece[..length]);
                Ok(())
            }
        }
    }
}

fn tell(without: &Seen, with: &Seen) {
    println!("\nthe webhook at {} requests per second, each with an object of 10 KiB", Duration::from_secs(1).as_nanos() / PACE.as_nanos());
    for (what, seen) in [("without", without), ("with", with)] {
        let told = |of: f64| format!("{:.2?}", quantile(&seen.latencies, of));
        println!(
            "  {what} {RULES} rules: p50 {}, p99 {}, slowest {}; {} requests, sent at most {:.2?} late; {:.2?} of the host's CPU each",
            told(0.5),
            told(0.99),
            told(1.0),
            seen.latencies.len(),
            seen.late,
            seen.cpu
        );
    }
    let of = |seen: &Seen, of: f64| quantile(&seen.latencies, of);
    let (p99, p99_without) = (of(with, 0.99), of(without, 0.99));
    println!("  p99 with the rules / without: {:.2}", p99.as_secs_f64() / p99_without.as_secs_f64());
    goal("p99 with the rules", &format!("{p99:.2?}"), &format!("<= {GOAL:?}"), p99 <= GOAL);
    keep("webhook at 200 requests per second", &[("p50", of(with, 0.5)), ("p99", p99), ("slowest", of(with, 1.0))]);
    keep("the p99 of the webhook", &[("native", p99_without), ("with 50 rules", p99)]);
    keep("a request to the webhook", &[("CPU without rules", without.cpu), ("CPU with 50 rules", with.cpu)]);
}
