//! `pointsman model-agent`: it downloads models to nodes, services use them there, and it deletes them.

use crate::services::{Space, condition, fixed, home, own_cluster, simple_runtime};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use pointsman::permissions::{MODEL_AGENT_ACCOUNT, MODEL_AGENT_NAMESPACE};
use pointsman_core::{
    resource::{BASE_MODEL, DEPLOYMENT, POD, SERVING_RUNTIME},
    settings::HOST_NAMESPACE,
};
use pointsman_tests::{FileServer, Host, ModelAgent, TestCluster, eventually, measure::taken_by_part, pointsman};
use serde_json::{Value, json};
use std::{
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const NODES: [&str; 3] = ["l4-0", "l4-1", "cpu-1"];

/// The size of a file of a large model in bytes.
const SHARD: usize = 2 << 20;

/// The number of further files. Each is a part that one of the nodes reads from the source.
const SHARDS: u8 = 23;

/// The maximum memory of an agent in bytes.
const MAX_MEMORY: u64 = 64 << 20;

/// A small model: a configuration, and weights with a header.
fn files(seed: u8, weights: usize) -> Vec<(&'static str, Vec<u8>)> {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.0",
    });
    let header = json!({"model.embed_tokens.weight": {"dtype": "BF16", "shape": [weights / 2], "data_offsets": [0, weights]}}).to_string();
    let mut tensors = (header.len() as u64).to_le_bytes().to_vec();
    tensors.extend(header.bytes());
    tensors.extend((0..weights).map(|at| u8::try_from(at % 251).unwrap() ^ seed));
    vec![("config.json", config.to_string().into_bytes()), ("model.safetensors", tensors)]
}

/// A model with many files.
fn large_files(seed: u8) -> Vec<(String, Vec<u8>)> {
    let further = (0..SHARDS).map(|at| (format!("shard-{at}.bin"), vec![at ^ seed << 5; SHARD]));
    files(seed, SHARD).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).chain(further).collect()
}

/// Serves it, and returns its URL and size.
fn put(server: &FileServer, folder: &str, files: &[(String, Vec<u8>)]) -> (String, u64) {
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(name, bytes)| (&**name, bytes.clone())).collect();
    (server.put_folder(folder, &files), files.iter().map(|(_, bytes)| bytes.len() as u64).sum())
}

/// Waits until the message of a model's condition `Ready` contains this text.
async fn says(space: &Space<'_>, name: &str, text: &str) -> Value {
    let is_said = |model: &Value| condition(model, "Ready")["message"].as_str().is_some_and(|message| message.contains(text));
    space.becomes(&BASE_MODEL, name, text, is_said).await
}

async fn label(client: &kube::Client, node: &str, key: &str) -> Option<String> {
    let node = Api::<Node>::all(client.clone()).get_opt(node).await.unwrap()?;
    node.labels().get(key).cloned()
}

fn storage(name: &str, uri: &str) -> Value {
    json!({"storageUri": uri, "path": format!("/mnt/models/{name}"), "nodeSelector": {"models": "yes"}})
}

/// A cluster with three nodes for models.
async fn start(cluster: &TestCluster) -> (Host<'_>, Space<'_>) {
    home(cluster).await;
    ModelAgent::install(cluster);
    let host = Host::start(cluster, &["--model-agent-namespace", MODEL_AGENT_NAMESPACE]).await;
    host.ready().await;
    let space = Space::on(cluster, "agents").await;
    for node in NODES {
        cluster.kubectl(&["label", "node", node, "models=yes"]).ok();
    }
    (host, space)
}

/// Three agents download a model, which is then deleted.
async fn three_nodes_read_a_source_about_once(space: &Space<'_>, server: &FileServer) {
    let (url, size) = put(server, "/shared", &large_files(2));
    server.limit(4 << 20);
    let inspected = inspected(&url);
    assert_eq!((&inspected["modelArchitecture"], &inspected["maxTokens"]), (&json!("LlamaForCausalLM"), &json!(2048)));
    let before = server.sent();
    space.create(&BASE_MODEL, "shared", json!({"spec": {"storage": storage("shared", &url)}})).await;
    says(space, "shared", "3 of 3 selected nodes hold the model").await;
    let percent = (server.sent() - before) * 100 / size;
    println!("the source sends {percent} % of the size for three nodes");
    assert!(percent <= 150, "{percent}");
    space.delete(&BASE_MODEL, "shared").await;
    space.goes(&BASE_MODEL, "shared").await;
}

/// Idle agents send no requests except their watches, and use little memory.
async fn agents_rest(cluster: &TestCluster, agents: &[ModelAgent<'_>]) {
    let of_agents = format!("system:serviceaccount:{MODEL_AGENT_NAMESPACE}:{MODEL_AGENT_ACCOUNT}");
    eventually("agents ask nothing while the host renews its lease three times", async || {
        let requests = cluster.requests();
        let asks = |request: &Arc<Value>| request["user"]["username"] == *of_agents && request["verb"] != "watch";
        let last = requests.iter().rposition(asks)?;
        let renewals =
            requests[last..].iter().filter(|request| request["objectRef"]["resource"] == "leases" && request["verb"] == "update");
        (renewals.filter(|request| request["objectRef"]["namespace"] == HOST_NAMESPACE).count() >= 3).then_some(())
    })
    .await;
    for agent in agents {
        // Not the pages of the program itself, which are many in a debug build.
        let allocated = taken_by_part(cluster, &agent.part).allocated;
        println!("an agent that has downloaded 48 MiB has allocated {} MiB", allocated >> 20);
        assert!(allocated <= MAX_MEMORY, "{allocated}");
    }
}

/// The metadata of a model, inspected at its source.
fn inspected(url: &str) -> Value {
    let arguments = ["model", "inspect", url, "--allow-loopback", "-o", "json"];
    let output = Command::new(pointsman()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_model_comes_to_its_nodes_serves_there_and_goes() {
    let cluster = own_cluster(Some(&[]));
    let (_host, space) = start(&cluster).await;
    let client = space.0.client.clone();
    let server = FileServer::start().await;
    let large = large_files(1);
    let (url, size) = put(&server, "/llama", &large);
    let mut agents = Vec::new();
    for node in NODES {
        agents.push(ModelAgent::start(&cluster, node, &["--parallel-parts=2"]).await);
    }
    three_nodes_read_a_source_about_once(&space, &server).await;
    agents_rest(&cluster, &agents).await;

    // Slow enough to observe the progress, and to kill an agent during the download.
    server.limit(256 << 10);
    let path = agents[0].root.join("llama");
    let sent = server.sent();
    let spec = json!({"spec": {"storage": storage("llama", &url)}});
    space.create(&BASE_MODEL, "llama", spec).await;
    // Only the metadata from the files matches this runtime.
    let framework = json!({"name": "transformers", "version": "4.50.0", "operator": "GreaterThanOrEqual"});
    let mut runtime = simple_runtime();
    runtime["supportedModelFormats"] = json!([{
        "modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelFramework": framework, "modelArchitecture": "LlamaForCausalLM", "autoSelect": true,
    }]);
    space.create(&SERVING_RUNTIME, "by-files", json!({ "spec": runtime })).await;
    let key = format!("models.ome.io/{}.basemodel.llama", space.0.name);
    let entry = format!("{}.basemodel.llama", space.0.name);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), MODEL_AGENT_NAMESPACE);
    let report = async |node: &str| -> Option<Value> {
        let map = maps.get_opt(node).await.unwrap()?;
        serde_json::from_str(map.data?.get(&entry)?).ok()
    };
    // During the download, the report contains the progress, and the label doesn't mark the node as ready.
    eventually("the progress is reported", async || {
        let report = report(NODES[0]).await?;
        (report["progress"]["totalBytes"].as_u64()? > 2 << 20 && report["status"] == "Updating").then_some(())
    })
    .await;
    assert_eq!(label(&client, NODES[0], &key).await.as_deref(), Some("Updating"));
    assert!(!path.exists());
    agents.remove(0).kill();
    server.limit(4 << 20);
    let first = ModelAgent::start(&cluster, NODES[0], &[]).await;
    let ready = says(&space, "llama", "3 of 3 selected nodes hold the model").await;
    assert_eq!((&ready["status"]["state"], &ready["status"]["nodesReady"]), (&json!("Ready"), &json!(["cpu-1", "l4-0", "l4-1"])));
    for root in [&first.root, &agents[0].root, &agents[1].root] {
        for (name, bytes) in &large {
            assert!(fs::read(root.join("llama").join(name)).unwrap() == *bytes, "{name} in {}", root.display());
        }
    }
    // The other nodes also read the parts of the killed agent, but no node reads all parts.
    let percent = (server.sent() - sent) * 100 / size;
    println!("the source sends {percent} % of the size for three nodes, one of which was killed");
    assert!(percent < 200, "{percent}");
    server.limit(0);
    eventually("the label follows", async || (label(&client, NODES[0], &key).await.as_deref() == Some("Ready")).then_some(())).await;
    let filled = space
        .becomes(&BASE_MODEL, "llama", "its files answer what the spec leaves out", |model| !model["spec"]["modelArchitecture"].is_null())
        .await;
    assert_eq!(
        (&filled["spec"]["modelArchitecture"], &filled["spec"]["modelFormat"]["name"], &filled["spec"]["maxTokens"]),
        (&json!("LlamaForCausalLM"), &json!("safetensors"), &json!(2048))
    );

    // Pods of a service only run on nodes that hold the model.
    space.service("chat", json!({"model": {"name": "llama"}, "engine": fixed(1)})).await;
    space.ready("chat").await;
    let deployment = space.becomes(&DEPLOYMENT, "chat-engine", "it is there", |_| true).await;
    let pod = &deployment["spec"]["template"]["spec"];
    assert!(pod.to_string().contains(&key), "{pod:#}");
    eventually("its pod is on one of the nodes", async || {
        let pods = space.api(&POD).list(&kube::api::ListParams::default()).await.unwrap();
        pods.iter().any(|pod| NODES.iter().any(|node| pod.data["spec"]["nodeName"] == *node)).then_some(())
    })
    .await;

    // A restarted agent reuses the files on its disk, without the source.
    first.kill();
    server.put("/llama/SHA256SUMS", "");
    let before = server.sent();
    let first = ModelAgent::start(&cluster, NODES[0], &[]).await;
    first.ready().await;
    eventually("it is Ready", async || (report(NODES[0]).await?["status"] == "Ready").then_some(())).await;
    assert_eq!(server.sent(), before);

    // A file that was changed on the disk is downloaded again.
    put(&server, "/llama", &large);
    let version = fs::canonicalize(&path).unwrap();
    fs::write(version.join("model.safetensors"), "changed").unwrap();
    first.kill();
    let first = ModelAgent::start(&cluster, NODES[0], &[]).await;
    eventually("the files are whole again", async || {
        (fs::read(path.join("model.safetensors")).ok()? == files(1, SHARD)[1].1).then_some(())
    })
    .await;

    // A node that is no longer selected gets no pods. Its files stay for a while.
    cluster.kubectl(&["label", "node", NODES[0], "models-"]).ok();
    eventually("its label is gone", async || label(&client, NODES[0], &key).await.is_none().then_some(())).await;
    assert!(path.exists());
    cluster.kubectl(&["label", "node", NODES[0], "models=yes"]).ok();
    eventually("it is back", async || (label(&client, NODES[0], &key).await.as_deref() == Some("Ready")).then_some(())).await;

    // The files are deleted with the model, and nothing else is.
    let foreign = first.root.join("foreign");
    fs::write(&foreign, "somebody else's").unwrap();
    space.delete(&BASE_MODEL, "llama").await;
    space.goes(&BASE_MODEL, "llama").await;
    assert!(!path.exists() && fs::symlink_metadata(&path).is_err());
    assert_eq!(fs::read_dir(first.root.join(".pointsman/models")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "somebody else's");
    assert_eq!((label(&client, NODES[0], &key).await, report(NODES[0]).await), (None, None));

    // The report is deleted with the node.
    Api::<Node>::all(client.clone()).delete(NODES[0], &DeleteParams::default()).await.unwrap();
    eventually("the report is gone", async || maps.get_opt(NODES[0]).await.unwrap().is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn what_fails_is_said_and_passes_once_it_is_repaired() {
    let cluster = own_cluster(Some(&[]));
    let (_host, space) = start(&cluster).await;
    let client = space.0.client.clone();
    let server = FileServer::start().await;
    let agent = ModelAgent::start(&cluster, NODES[0], &["--max-model-size=64Mi"]).await;
    let url = server.put_folder("/m", &files(2, 1 << 20));
    let path = |name: &str| agent.root.join(name);
    let secrets = Api::<Secret>::namespaced(client.clone(), &space.0.name);
    let token = |token: &str| json!({"metadata": {"name": "source"}, "stringData": {"token": token}});

    // First the agent may not read the Secret, then it doesn't exist, then its token is wrong.
    server.require(Some("Bearer right"));
    let mut spec = json!({"spec": {"storage": storage("secret", &url)}});
    spec["spec"]["storage"]["key"] = "source".into();
    space.create(&BASE_MODEL, "secret", spec).await;
    let refused = says(&space, "secret", "may not read the Secret").await;
    let message = condition(&refused, "Ready")["message"].as_str().unwrap().to_owned();
    let command = message.split('`').nth(1).unwrap_or_else(|| panic!("{message}"));
    let arguments: Vec<&str> = command.strip_prefix("kubectl ").unwrap().split_whitespace().collect();
    cluster.kubectl(&arguments).ok();
    says(&space, "secret", "of spec.storage.key doesn't exist: create it").await;
    secrets.create(&PostParams::default(), &serde_json::from_value(token("wrong")).unwrap()).await.unwrap();
    says(&space, "secret", "refuses the credentials (401)").await;
    let params = PatchParams::default();
    secrets.patch("source", &params, &Patch::Merge(token("right"))).await.unwrap();
    says(&space, "secret", "1 of 3 selected nodes hold the model").await;
    server.require(None);

    // A source that disconnects, one whose file doesn't match its checksum, and a model that is too large.
    server.break_after(Some(100_000));
    space.create(&BASE_MODEL, "gone", json!({"spec": {"storage": storage("gone", &server.put_folder("/gone", &files(3, 1 << 20)))}})).await;
    let wrong = server.put_folder("/wrong", &files(4, 1000));
    server.put("/wrong/config.json", "{}");
    space.create(&BASE_MODEL, "wrong", json!({"spec": {"storage": storage("wrong", &wrong)}})).await;
    let large = server.put_folder("/large", &[("weights.bin", vec![0; 65 << 20])]);
    space.create(&BASE_MODEL, "large", json!({"spec": {"storage": storage("large", &large)}})).await;
    says(&space, "wrong", "in two downloads: upload the file to the source again").await;
    says(&space, "large", "bytes of facts; the limit is").await;
    server.break_after(None);
    says(&space, "gone", "1 of 3 selected nodes hold the model").await;
    server.put_folder("/wrong", &files(4, 1000));
    says(&space, "wrong", "1 of 3 selected nodes hold the model").await;
    let retained = json!({"metadata": {"labels": {"models.ome/reserve-model-artifact": "true"}}});
    space.patch(&BASE_MODEL, "wrong", retained).await;
    space.delete(&BASE_MODEL, "wrong").await;
    space.goes(&BASE_MODEL, "wrong").await;
    assert!(path("wrong").join("config.json").exists(), "its label keeps the files");
}

#[tokio::test]
async fn a_token_of_one_node_s_agent_writes_nothing_of_another_node() {
    let cluster = own_cluster(Some(&[]));
    home(&cluster).await;
    ModelAgent::install(&cluster);
    let pod = eventually("the DaemonSet has a pod there", async || {
        let field = format!("--field-selector=spec.nodeName={}", NODES[0]);
        let name = cluster.kubectl(&["get", "pods", "-n", MODEL_AGENT_NAMESPACE, &field, "-o", "name"]).ok();
        name.trim().strip_prefix("pod/").map(str::to_owned)
    })
    .await;
    let kubeconfig = pointsman_tests::model_agent::kubeconfig(&cluster, NODES[0], &pod);
    let agent = pointsman_tests::client(&kubeconfig).await;
    let patch = async |client: &kube::Client, node: &str, patch: Value| {
        let patched = Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let label = |value: usize| json!({"metadata": {"labels": {"models.ome.io/clusterbasemodel.a": value.to_string()}}});
    // A policy takes effect a moment after it is created.
    let attempts = AtomicUsize::new(0);
    eventually("the policy holds", async || {
        let refused = patch(&agent, NODES[1], label(attempts.fetch_add(1, Ordering::Relaxed))).await;
        refused.contains("writes only that node").then_some(())
    })
    .await;
    assert_eq!(patch(&agent, NODES[0], label(0)).await, "");
    for change in [
        json!({"metadata": {"labels": {"kubernetes.io/hostname": "another"}}}),
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["a.example.com/b"]}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    ] {
        let refused = patch(&agent, NODES[0], change.clone()).await;
        assert!(refused.contains("writes only labels of its node"), "{change}: {refused}");
    }
    let maps = Api::<ConfigMap>::namespaced(agent.clone(), MODEL_AGENT_NAMESPACE);
    let map = async |name: &str| {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(map(NODES[1]).await.contains("writes only that node and the ConfigMap of that name"));
    assert_eq!(map(NODES[0]).await, "");
    let unbound = cluster.kubeconfig_of_service_account(MODEL_AGENT_NAMESPACE, MODEL_AGENT_ACCOUNT).unwrap();
    let unbound = pointsman_tests::client(&unbound).await;
    assert!(patch(&unbound, NODES[0], label(1)).await.contains("names no node"));
}
