//! Requests through real gateways to a real backend, while models wake and sleep: none is lost, and none is served twice.

use super::Pool;
use crate::services::{Space, condition, home, own_cluster};
use axum::{Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::post};
use pointsman_core::resource::INFERENCE_MODEL;
use pointsman_tests::{GatewayProcess, Host, eventually, is_full};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// The number of concurrent clients.
const CLIENTS: usize = 16;

/// The number of consecutive requests for one model.
const IN_A_ROW: usize = 125;

/// The number of requests that a backend has served, by the requests' identifiers.
type Answered = Arc<Mutex<BTreeMap<String, usize>>>;

async fn answer(State(answered): State<Answered>, body: String) -> impl IntoResponse {
    let request: Value = serde_json::from_str(&body).unwrap();
    *answered.lock().unwrap().entry(request["user"].as_str().unwrap().to_owned()).or_default() += 1;
    let completion = json!({
        "object": "chat.completion", "model": request["model"], "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    });
    ([(CONTENT_TYPE, "application/json")], completion.to_string())
}

/// A server that acts as the servers of all models: kwok's pods run nothing.
async fn backend() -> (String, Answered) {
    let answered = Answered::default();
    let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::clone(&answered));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, answered)
}

/// The status and the body of a response, or an error if the connection breaks.
async fn ask(address: &str, model: &str, id: &str) -> std::io::Result<(u16, String)> {
    let body = json!({"model": model, "user": id, "messages": [{"role": "user", "content": "Hello"}]}).to_string();
    let mut connection = TcpStream::connect(address).await?;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let broken = || std::io::Error::other("no whole answer");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    Ok((status, body.to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wake_models_and_none_is_lost_or_doubled_though_a_gateway_is_killed() {
    let cluster = own_cluster(Some(&[]));
    home(&cluster).await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let space = Space::bare(&cluster, "served").await;
    let pool = Pool::new(&space, &["100Gi"]);
    let (backend, answered) = backend().await;
    let names = ["llama", "mistral"];
    let mut flags = vec!["--allow-loopback".to_owned()];
    for name in names {
        flags.extend(["--resolve".to_owned(), format!("{name}.{}.svc.cluster.local:8000:{backend}", space.0.name)]);
        pool.create(name, "60Gi", json!({})).await;
    }
    let gateways = [GatewayProcess::start(&cluster, 0, &flags).await, GatewayProcess::start(&cluster, 1, &flags).await];
    // Both gateways reject an unknown model name at once.
    for gateway in &gateways {
        let (status, body) = ask(&gateway.address, "nobody", "none").await.unwrap();
        assert!(status == 404 && body.contains("model_not_found"), "{status} {body}");
    }

    let total = if is_full() { 10_000 } else { 400 };
    let mut outcomes: BTreeMap<String, (usize, std::io::Result<(u16, String)>)> = BTreeMap::new();
    let mut asking = JoinSet::new();
    for at in 0..total {
        if asking.len() == CLIENTS
            && let Some(done) = asking.join_next().await
        {
            let (id, gateway, outcome) = done.unwrap();
            outcomes.insert(id, (gateway, outcome));
        }
        if at == total * 2 / 3 {
            gateways[1].kill();
        }
        let (model, gateway) = (pool.model_name(names[at / IN_A_ROW % 2]), at % 2);
        let address = gateways[gateway].address.clone();
        asking.spawn(async move {
            let id = format!("request-{at}");
            let outcome = ask(&address, &model, &id).await;
            (id, gateway, outcome)
        });
    }
    while let Some(done) = asking.join_next().await {
        let (id, gateway, outcome) = done.unwrap();
        outcomes.insert(id, (gateway, outcome));
    }
    let answered = answered.lock().unwrap().clone();
    for (id, (gateway, outcome)) in &outcomes {
        let times = answered.get(id).copied().unwrap_or_default();
        match (gateway, outcome) {
            (_, Ok((200, body))) => assert!(times == 1 && body.contains("Hello"), "{id} was answered {times} times: {body}"),
            (0, outcome) => panic!("{id} is lost, though its gateway lived: {outcome:?}"),
            (_, outcome) => assert!(times <= 1, "{id} was answered {times} times: {outcome:?}"),
        }
    }
    let lost = outcomes.values().filter(|(_, outcome)| !matches!(outcome, Ok((200, _)))).count();
    println!("{} requests, {lost} to the gateway that was killed have no answer", outcomes.len());
    assert_eq!(outcomes.len(), total);
    let series = |name: &str| format!("pointsman_gateway_requests_total{{model=\"{}\",code=\"200\"}}", pool.model_name(name));
    let counted: f64 = names.iter().filter_map(|name| gateways[0].metric(&series(name))).sum();
    assert!(counted >= f64::from(u32::try_from(total / 2 - CLIENTS).unwrap()), "{counted} are counted");

    // The model of the last requests is awake, the other one sleeps.
    let last = names[(total - 1) / IN_A_ROW % 2];
    let ready = |model: &Value| condition(model, "Ready")["status"] == "True";
    space.becomes(&INFERENCE_MODEL, last, "it is awake", ready).await;
    gateways[0].stop();
    eventually("the gateway has taken its ConfigMap with it", async || {
        let maps = cluster.kubectl(&["get", "configmaps", "-n", "pointsman-system", "-l", "pointsman.dev/gateway-activity", "-o", "name"]);
        (!maps.stdout.contains("pointsman-gateway-0")).then_some(())
    })
    .await;
}
