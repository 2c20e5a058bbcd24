//! Real OpenAI clients, for Python and for JavaScript, through the gateway.

use super::{Pool, shared_space};
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
};
use pointsman_harness::{clients_dir, workspace};
use pointsman_tests::{CommandOutput, GatewayProcess};
use serde_json::{Value, json};
use std::process::Command;
use tokio::net::TcpListener;

fn json_answer(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Responds like a model server: with a whole response, in parts, never, or with its own error.
async fn chat(body: String) -> Response {
    let request: Value = serde_json::from_str(&body).unwrap();
    let said = request["messages"][0]["content"].as_str();
    if said == Some("slow") {
        return std::future::pending().await;
    }
    if said.is_none() {
        let error = json!({"error": {"message": "There are no messages.", "type": "invalid_request_error", "param": "messages", "code": "no_messages"}});
        return json_answer(StatusCode::BAD_REQUEST, &error);
    }
    let usage = json!({"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4});
    let common = |object: &str, choices: Value, usage: &Value| json!({"id": "1", "object": object, "created": 1, "model": request["model"], "choices": choices, "usage": usage});
    if request["stream"] != true {
        let choices = json!([{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello there"}}]);
        return json_answer(StatusCode::OK, &common("chat.completion", choices, &usage));
    }
    let part = |text: &str| common("chat.completion.chunk", json!([{"index": 0, "delta": {"content": text}}]), &Value::Null);
    let parts = [part("Hello"), part(" there"), common("chat.completion.chunk", json!([]), &usage)];
    let events = parts.map(|part| part.to_string()).into_iter().chain(["[DONE]".to_owned()]);
    let events: Vec<String> = events.map(|event| format!("data: {event}\n\n")).collect();
    ([(CONTENT_TYPE, "text/event-stream")], events.concat()).into_response()
}

async fn embed(body: String) -> Response {
    let request: Value = serde_json::from_str(&body).unwrap();
    let data = json!([{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}]);
    let usage = json!({"prompt_tokens": 1, "total_tokens": 1});
    json_answer(StatusCode::OK, &json!({"object": "list", "model": request["model"], "data": data, "usage": usage}))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openai_clients_work_with_streams_errors_and_timeouts() {
    let router = Router::new().route("/v1/chat/completions", post(chat)).route("/v1/embeddings", post(embed));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let space = shared_space("clients").await;
    let pool = Pool { space: &space, name: space.0.name.clone() };
    pool.create("outside", "1Gi", json!({"containerImage": ""})).await;
    pool.ready("outside").await;
    let flags =
        ["--allow-loopback".to_owned(), "--resolve".to_owned(), format!("outside.{}.svc.cluster.local:8000:{backend}", space.0.name)];
    let gateway = GatewayProcess::start(space.0.cluster, 9, &flags).await;
    let model = pool.model_name("outside");
    let clients = [
        ("python/venv/bin/python", workspace().join("tests/clients/python/ask.py"), "Python"),
        ("node", clients_dir().join("javascript/ask.js"), "JavaScript"),
    ];
    for (program, script, language) in clients {
        let program = if program == "node" { program.into() } else { clients_dir().join(program) };
        assert!(script.exists(), "{} isn't there: `cargo xtask test the_openai_clients` installs it", script.display());
        let asked = CommandOutput::by(Command::new(program).arg(script).args([&gateway.address, &model]));
        assert_eq!(asked.stdout, format!("the client for {language} is served\n"), "{}", asked.stderr);
    }
    let line = |line: &&Value| line["target"] == "pointsman::access" && line["model"] == *model && line["output_tokens"] == 2;
    assert!(gateway.log().iter().filter(line).count() >= 6, "what answers have used is in the access log: {:#?}", gateway.log());
    gateway.stop();
}
