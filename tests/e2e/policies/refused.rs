//! Malicious or broken plugins and files, applied to a live host: it survives each of them, and its status and an event contain a sentence
//! with the reason.

use super::{
    digest,
    text::{DESCRIPTION, Module, component_exporting, described_by, plugin},
};
use flate2::{Compression, write::GzEncoder};
use pointsman_tests::{Host, PolicyCluster, eventually, plugin_bytes};
use serde_json::{Value, json};
use std::io::Write;

fn gzip_bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..200 {
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
    }
    encoder.finish().unwrap()
}

fn module(module: &Module) -> Vec<u8> {
    plugin(module)
}

/// The name, the content of the ConfigMap, the PolicyPlugin's spec without its source, the reason, and a part of the message.
fn cases() -> Vec<(&'static str, Vec<u8>, Value, &'static str, &'static str)> {
    let labels = plugin_bytes("pointsman-example-rust-labels");
    let half = labels[..labels.len() / 2].to_vec();
    let wat = |text: &str| wat::parse_str(text).unwrap();
    let trap = |configure: &'static str| module(&Module { configure, data: DESCRIPTION, ..Module::default() });
    vec![
        ("text", b"apiVersion: v1".to_vec(), json!({}), "NoPlugin", "it is not WebAssembly"),
        ("truncated", half, json!({}), "NoPlugin", "not valid WebAssembly"),
        (
            "random",
            (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
            json!({}),
            "NoPlugin",
            "it is not WebAssembly",
        ),
        ("core", wat("(module (func (export \"f\")))"), json!({}), "NoPlugin", "neither built from the interfaces"),
        ("nonsense", described_by(b"nonsense"), json!({}), "NoPlugin", "can't be turned into a component"),
        ("empty-component", wat("(component)"), json!({}), "NoPlugin", "doesn't export pointsman:policy/plugin@0.1.0"),
        ("other-version", component_exporting(&["pointsman:policy/plugin@0.2.0"]), json!({}), "NoPlugin", "this host speaks 0.1.0"),
        ("no-point", component_exporting(&["pointsman:policy/plugin@0.1.0"]), json!({}), "NoPlugin", "no policy point"),
        (
            "socket",
            wat("(component (import \"wasi:sockets/tcp@9.0.0\" (instance (export \"connect\" (func)))))"),
            json!({}),
            "NoPlugin",
            "imports wasi:sockets/tcp@9.0.0",
        ),
        ("host-function", wat("(component (import \"run\" (func (param \"command\" string))))"), json!({}), "NoPlugin", "imports run"),
        ("memory64", wat("(module (memory i64 1))"), json!({}), "NoPlugin", "memory64"),
        ("gzip-bomb", gzip_bomb(), json!({}), "TooLarge", "bytes"),
        ("gzip-cut", gzip_bomb()[..1000].to_vec(), json!({}), "BrokenGzip", "gzip"),
        ("empty", Vec::new(), json!({}), "Empty", "empty"),
        ("start-loop", module(&Module { start: "(loop (br 0))", ..Module::default() }), json!({}), "OutOfFuel", "units of fuel"),
        ("start-trap", module(&Module { start: "unreachable", ..Module::default() }), json!({}), "Trapped", "unreachable"),
        ("undescribed", module(&Module::default()), json!({}), "InvalidDescription", "no policy point"),
        ("configure-trap", trap("unreachable"), json!({}), "Trapped", "unreachable"),
        ("configure-loop", trap("(loop (br 0)) (unreachable)"), json!({}), "DeadlineExceeded", "200 ms"),
        ("wrong-point", labels.clone(), json!({"points": ["runtime-selection"]}), "PointNotAnswered", "supports metadata-propagation"),
        ("config-unknown", labels.clone(), json!({"config": {"x": 1}}), "InvalidConfig", "x"),
        ("config-type", labels.clone(), json!({"config": {"label": {"deep": [1]}}}), "InvalidConfig", "label"),
        ("config-bomb", labels.clone(), json!({"config": {"label": "x".repeat(200_000)}}), "InvalidSpec", "the limit is 65536"),
        ("wrong-digest", labels.clone(), json!({"digest": digest(b"other")}), "RevisionNotFound", "sha256:"),
        (
            "bad-signature",
            labels.clone(),
            json!({"signature": {"ed25519": format!("{}==", "A".repeat(86))}}),
            "NoTrustedKeys",
            "trusts no key",
        ),
        ("limits", labels.clone(), json!({"limits": {"memory": "64Gi"}}), "InvalidSpec", "spec.limits.memory"),
        (
            "cel",
            labels.clone(),
            json!({"matchConditions": [{"name": "a", "expression": "objekt.kind == 'A'"}]}),
            "InvalidSpec",
            "spec.matchConditions[a].expression",
        ),
        (
            "selector",
            labels.clone(),
            json!({"match": {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}}}),
            "InvalidSpec",
            "is not an operator",
        ),
    ]
}

#[tokio::test]
async fn whatever_is_applied_the_host_survives_and_says_what_is_wrong() {
    let cluster = PolicyCluster::start().await;
    // Before the host creates its own PolicyPlugin of that name.
    cluster.plugin_of_config_map("pod-templating", json!({})).await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let cases = cases();
    assert!(cases.len() >= 25, "{}", cases.len());
    for (name, bytes, more, ..) in &cases {
        cluster.config_map(name, bytes).await;
        cluster.plugin_of_config_map(name, more.clone()).await;
    }
    cluster.plugin("missing", json!({"source": {"configMap": {"name": "nowhere"}}})).await;
    cluster.plugin("foreign", json!({"source": {"configMap": {"namespace": "kube-system", "name": "x"}}})).await;
    cluster.plugin("no-directory", json!({"source": {"file": {"path": "x.wasm"}}})).await;
    cluster.plugin("no-builtin", json!({"source": {"builtin": {"name": "magic"}}})).await;
    let others = [
        ("missing", "ConfigMapNotFound", "nowhere"),
        ("foreign", "NamespaceNotAllowed", "kube-system"),
        ("no-directory", "NoPluginDirectory", "--plugin-dir"),
        ("no-builtin", "BuiltinNotFound", "runtime-selection"),
        ("pod-templating", "NameReserved", "another name"),
    ];
    let all = cases.iter().map(|(name, _, _, reason, says)| (*name, *reason, *says)).chain(others);
    for (name, wanted, says) in all {
        let (reason, message) = cluster.refused(name).await;
        // This loop ends at the first limit that it reaches: on a busy machine, that is the deadline.
        let is_late = name == "start-loop" && reason == "DeadlineExceeded";
        let (wanted, says) = if is_late { ("DeadlineExceeded", "2000 ms") } else { (wanted, says) };
        assert_eq!(reason, wanted, "{name}: {message}");
        assert!(message.contains(says), "{name}: {message}");
        assert!(message.len() < 600 && !message.contains('\n') && message.ends_with('.'), "{name}: {message}");
        let told =
            eventually(&format!("{name}: an event"), async || cluster.events(name).await.into_iter().find(|(reason, _)| reason == wanted))
                .await;
        assert_eq!(told.1, message, "{name}");
    }
    assert_eq!(host.get("/readyz").unwrap().0, 200);

    // A valid plugin is still accepted.
    let good = plugin_bytes("pointsman-example-rust-labels");
    cluster.config_map("good", &good).await;
    cluster.plugin_of_config_map("good", json!({})).await;
    cluster.active("good", &digest(&good)).await;
    host.stop();
}
