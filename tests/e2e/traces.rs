//! Traces of reconciles, as a collector receives them from a host.

use crate::services::{Space, fixed, home, own_cluster, with_model};
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post, serve::Listener};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::Span,
};
use pointsman_core::resource::{DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER};
use pointsman_harness::log_lines;
use pointsman_tests::{Host, PolicyCluster, TestCluster, eventually};
use prost::Message;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    future, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};

/// A span with its attributes and those of its resource.
#[derive(Clone, Debug)]
struct Taken {
    span: Span,
    attributes: BTreeMap<String, Value>,
    resource: BTreeMap<String, Value>,
}

impl Taken {
    fn is(&self, key: &str, value: impl Into<Value>) -> bool {
        self.attributes.get(key) == Some(&value.into())
    }
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let number = list.len();
    let value = |attribute: KeyValue| match attribute.value.and_then(|value| value.value) {
        Some(Any::StringValue(text)) => text.into(),
        Some(Any::IntValue(number)) => number.into(),
        Some(Any::BoolValue(is)) => is.into(),
        other => panic!("{} is {other:?}", attribute.key),
    };
    let attributes: BTreeMap<String, Value> = list.into_iter().map(|attribute| (attribute.key.clone(), value(attribute))).collect();
    assert_eq!(attributes.len(), number, "each attribute is there once: {attributes:?}");
    attributes
}

/// A collector.
#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<Taken>>>);

impl Collector {
    /// Starts it, and returns its URL too.
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let url = serve(Router::new().route("/v1/traces", post(take)).with_state(collector.clone())).await;
        (collector, url)
    }

    /// Starts it with TLS, and returns its certificate as PEM too.
    async fn start_with_tls() -> (Self, String, String) {
        let collector = Self::default();
        let routes = Router::new().route("/v1/traces", post(take)).with_state(collector.clone());
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let listener = TlsListener(listener, Arc::new(config).into());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (collector, url, made.cert.pem())
    }

    /// The complete traces of a subject, ordered by start time: the root span is the last one to end.
    fn traces(&self, subject: &str) -> Vec<Vec<Taken>> {
        let all = self.0.lock().unwrap().clone();
        let mut roots: Vec<&Taken> = all.iter().filter(|taken| taken.span.name == "reconcile" && taken.is("subject", subject)).collect();
        roots.sort_by_key(|root| root.span.start_time_unix_nano);
        let trace = |root: &Taken| all.iter().filter(|taken| taken.span.trace_id == root.span.trace_id).cloned().collect();
        roots.into_iter().map(trace).collect()
    }
}

struct TlsListener(TcpListener, TlsAcceptor);

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, peer) = self.0.accept().await.unwrap();
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

async fn serve(routes: Router) -> String {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

async fn take(State(Collector(taken)): State<Collector>, body: Bytes) -> (StatusCode, Vec<u8>) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    for of_resource in request.resource_spans {
        let resource = attributes(of_resource.resource.unwrap().attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let attributes = attributes(span.attributes.clone());
            taken.lock().unwrap().push(Taken { span, attributes, resource: resource.clone() });
        }
    }
    (StatusCode::OK, ExportTraceServiceResponse::default().encode_to_vec())
}

/// The parent of a span.
fn parent<'t>(trace: &'t [Taken], below: &Taken) -> Option<&'t Taken> {
    trace.iter().find(|taken| taken.span.span_id == below.span.parent_span_id)
}

/// The only span with a name.
fn only<'t>(trace: &'t [Taken], name: &str) -> &'t Taken {
    let spans: Vec<&Taken> = trace.iter().filter(|taken| taken.span.name == name).collect();
    let names: Vec<&str> = trace.iter().map(|taken| taken.span.name.as_str()).collect();
    let [span] = spans[..] else { panic!("{} spans {name} among {names:?}", spans.len()) };
    span
}

/// Stops a host, which must exit with 0. Returns the last lines of its log.
fn end(cluster: &TestCluster, host: Host<'_>) -> Vec<String> {
    let (part, log) = (host.part.clone(), host.log());
    host.stop();
    let messages: Vec<String> = log_lines(&log).iter().filter_map(|line| Some(line["message"].as_str()?.to_owned())).collect();
    let last = messages[messages.len().saturating_sub(20)..].to_vec();
    let parts = cluster.control(&json!({"do": "status"})).unwrap();
    let stopped = parts["parts"].as_array().unwrap().iter().find(|status| status["name"] == *part).unwrap();
    assert_eq!(stopped["exit"], 0, "{stopped}: {last:#?}");
    last
}

#[tokio::test]
async fn a_trace_leads_from_what_the_watch_saw_through_each_policy_to_each_write() {
    let cluster = PolicyCluster::start().await;
    let (collector, url) = Collector::start().await;
    let host = Host::start(&cluster, &["--otlp-endpoint", &url, "--log-level", "debug"]).await;
    host.ready().await;
    let space = Space::on(&cluster, "traced").await;
    let before = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
    space.service("chat", with_model(json!({"engine": {"minReplicas": 1, "maxReplicas": 3}}))).await;
    space.becomes(&HORIZONTAL_POD_AUTOSCALER, "chat-engine", "it is there", |_| true).await;
    let subject = format!("InferenceService {}/chat", space.0.name);
    let writes = |trace: &[Taken]| trace.iter().any(|taken| taken.span.name == "create Deployment");
    let trace = async || collector.traces(&subject).into_iter().find(|trace| writes(trace));
    let trace = eventually("the trace of the first writes has come", trace).await;

    let root = only(&trace, "reconcile");
    assert!(root.span.parent_span_id.is_empty() && root.span.start_time_unix_nano >= before, "{root:?}");
    let set = root.attributes["set"].as_str().unwrap();
    // In a fresh cluster, the host may decide before it has written the PolicySet.
    let sets = || cluster.kubectl(&["get", "policysets", "-o", "name"]).ok();
    eventually("the set is an object", async || sets().contains(set).then_some(())).await;
    assert!(root.is("result", "Done") && root.attributes["decisions"].as_str().unwrap().len() == 12, "{root:?}");
    for (key, value) in
        [("service.name", "pointsman"), ("service.version", env!("CARGO_PKG_VERSION")), ("k8s.namespace.name", "pointsman-system")]
    {
        assert_eq!(root.resource[key], value);
    }
    assert!(root.resource["service.instance.id"].as_str().unwrap().len() > 1);
    for taken in trace.iter().filter(|taken| taken.span.span_id != root.span.span_id) {
        let above = parent(&trace, taken).unwrap_or_else(|| panic!("{taken:?} is below nothing"));
        let (outer, inner) = (&above.span, &taken.span);
        assert!(
            outer.start_time_unix_nano <= inner.start_time_unix_nano
                && inner.start_time_unix_nano <= inner.end_time_unix_nano
                && inner.end_time_unix_nano <= outer.end_time_unix_nano,
            "{taken:?} isn't within {above:?}"
        );
    }
    assert_eq!(only(&trace, "queue").span.start_time_unix_nano, root.span.start_time_unix_nano, "the wait in the queue is part of it");
    let (plan, apply) = (only(&trace, "plan"), only(&trace, "apply"));
    for below in ["queue", "snapshot", "plan", "pace", "apply"] {
        assert_eq!(only(&trace, below).span.parent_span_id, root.span.span_id, "{below}");
    }
    assert!(plan.is("set", set) && only(&trace, "pace").is("permission", "GoOn"));
    for stage in ["rules Input", "rules Output"] {
        assert_eq!(only(&trace, stage).span.parent_span_id, plan.span.span_id, "{stage}");
    }
    // An earlier trace may have ended before the host saw the runtime: it checked the service, and created no objects.
    let first = &collector.traces(&subject)[0];
    assert!(only(first, "rules Input").is("cached", false) && only(&trace, "rules Output").is("cached", false), "{first:?}");
    for plugin in ["runtime-selection", "pod-templating", "metadata-propagation"] {
        let call = trace.iter().find(|taken| taken.span.name == format!("call {plugin}")).unwrap_or_else(|| panic!("no call of {plugin}"));
        assert!(call.is("plugin", plugin) && call.is("point", plugin) && call.is("outcome", "Answered"), "{call:?}");
        assert!(call.attributes["digest"].as_str().unwrap().starts_with("sha256:") && call.attributes["fuel"].as_i64().unwrap() > 0);
        let decided = parent(&trace, call).unwrap();
        assert!(decided.span.name == format!("decide {plugin}") && decided.is("cached", false) && decided.is("outcome", "Decided"));
        assert_eq!(decided.span.parent_span_id, plan.span.span_id);
    }
    let created = trace.iter().filter(|taken| taken.is("operation", "create"));
    let written: BTreeSet<String> = created
        .map(|taken| {
            assert_eq!(taken.span.parent_span_id, apply.span.span_id);
            let object = taken.attributes["object"].as_str().unwrap().replace(&format!("{}/", space.0.name), "");
            assert!(taken.span.name == format!("create {}", object.split(' ').next().unwrap()) && taken.span.kind == 3, "{taken:?}");
            object
        })
        .collect();
    assert!(written.len() > 2 && written == space.made().await, "{written:?}");
    let written = || collector.traces(&subject).iter().flatten().any(|taken| taken.span.name == "status InferenceService");
    eventually("a status is written within a trace", async || written().then_some(())).await;

    // The Deployment's status doesn't affect any question.
    space.patch_status(&DEPLOYMENT, "chat-engine", json!({"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1})).await;
    let cached = |trace: &Vec<Taken>| {
        let mut decided = trace.iter().filter(|taken| taken.span.name.starts_with("decide ")).peekable();
        decided.peek().is_some() && decided.all(|taken| taken.is("cached", true))
    };
    let later = |trace: &Vec<Taken>| only(trace, "reconcile").span.start_time_unix_nano > root.span.start_time_unix_nano;
    let again = async || collector.traces(&subject).into_iter().filter(later).find(cached);
    let again = eventually("another reconcile asks nobody", again).await;
    assert!(!again.iter().any(|taken| taken.span.name.starts_with("call ") || taken.is("operation", "create")), "{again:?}");
    let (first, second) = (&root.attributes["decisions"], &only(&again, "reconcile").attributes["decisions"]);
    assert_eq!(first, second, "equal questions have an equal digest");

    // At level debug, the log has other spans too, and none of these.
    let ours = host.logged().into_iter().filter(|line| line["span"]["subject"] == *subject).collect::<Vec<_>>();
    let fields: BTreeSet<&String> = ours.iter().flat_map(|line| line["span"].as_object().unwrap().keys()).collect();
    assert_eq!(fields.into_iter().collect::<Vec<_>>(), ["decisions", "name", "set", "subject"]);
    let names: BTreeSet<String> = host.logged().iter().filter_map(|line| line["span"]["name"].as_str().map(str::to_owned)).collect();
    assert!(names.contains("reconcile") && names.is_subset(&["reconcile", "HTTP"].map(str::to_owned).into()), "{names:?}");
    end(&cluster, host);

    let (collector, url, certificate) = Collector::start_with_tls().await;
    let file = cluster.folder("collector").join("ca.pem");
    std::fs::write(&file, certificate).unwrap();
    let host = Host::start_in(&cluster, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url), ("SSL_CERT_FILE", file.to_str().unwrap())]).await;
    eventually("a trace has come over TLS", async || collector.traces(&subject).pop()).await;
    end(&cluster, host);
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_collector_that_is_absent_or_hangs_costs_no_service_anything_and_is_logged_once() {
    let cluster = own_cluster(Some(&[]));
    home(&cluster).await;
    let space = Space::on(&cluster, "untraced").await;
    let failures = |host: &Host<'_>| {
        host.logged()
            .into_iter()
            .filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with("traces can't be sent")))
            .collect::<Vec<_>>()
    };
    let dropped = |host: &Host<'_>| host.metric(r#"pointsman_trace_spans_total{outcome="dropped"}"#).unwrap_or_default();

    // A port that nothing listens on.
    let gone = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let host = Host::start(&cluster, &["--otlp-endpoint", &url]).await;
    host.ready().await;
    let mut before = 0.0;
    for name in ["first", "second"] {
        space.serves(name, with_model(json!({"engine": fixed(1)}))).await;
        before = eventually("spans are dropped", async || Some(dropped(&host)).filter(|dropped| *dropped > before)).await;
    }
    let lines = failures(&host);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0]["error"].as_str().unwrap().contains("onnection refused"), "{lines:?}");
    end(&cluster, host);

    let url = serve(Router::new().fallback(future::pending::<StatusCode>)).await;
    let host = Host::start(&cluster, &["--otlp-endpoint", &url]).await;
    host.ready().await;
    space.serves("third", with_model(json!({"engine": fixed(1)}))).await;
    // By then, the host has sent a request to the collector.
    eventually("the host logs that the collector hangs", async || (!failures(&host).is_empty()).then_some(())).await;
    space.serves("fourth", with_model(json!({"engine": fixed(1)}))).await;
    let messages = end(&cluster, host);
    let at = |text: &str| messages.iter().position(|message| message.starts_with(text));
    let (released, given_up) = (at("released the lease"), at("the collector takes longer"));
    assert!(released.is_some() && given_up.is_none_or(|given_up| released < Some(given_up)), "{messages:?}");
}
