use super::*;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// The response of an API whose controller reaches no API server.
async fn get_json(path: &str) -> (StatusCode, Value) {
    let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let answer = routes(client).oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    assert_eq!(head.headers["content-type"], "application/json");
    (head.status, serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap())
}

#[tokio::test]
async fn discovery_lists_the_metrics() {
    let (status, groups) = get_json("/apis").await;
    assert_eq!((status, &groups["kind"]), (StatusCode::OK, &json!("APIGroupList")));
    assert_eq!(groups["groups"][0]["preferredVersion"]["groupVersion"], "external.metrics.k8s.io/v1beta1");
    let (_, group) = get_json("/apis/external.metrics.k8s.io").await;
    assert_eq!((&group["kind"], &group["name"]), (&json!("APIGroup"), &json!(GROUP)));
    let (_, resources) = get_json("/apis/external.metrics.k8s.io/v1beta1").await;
    let names: Vec<&str> = resources["resources"].as_array().unwrap().iter().map(|resource| resource["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pointsman_pool_demand", "pointsman_pool_saturation", "pointsman_pool_requests"]);
}

#[tokio::test]
async fn what_has_no_answer_has_a_status_with_the_reason() {
    let metric = |query: &str| format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/models/pointsman_pool_demand{query}");
    for (path, code, reason, says) in [
        ("/openapi/v2".to_owned(), 404, "NotFound", "nothing is served at this path"),
        (metric(""), 400, "BadRequest", "the selector has no label inference_pool"),
        (metric("?labelSelector=inference_pool%3Dllama"), 503, "ServiceUnavailable", "can't read the InferencePool models/llama"),
    ] {
        let (status, body) = get_json(&path).await;
        assert_eq!((status.as_u16(), &body["kind"], &body["reason"]), (code, &json!("Status"), &json!(reason)), "{body}");
        assert_eq!(body["code"], code);
        assert!(body["message"].as_str().unwrap().contains(says), "{body}");
    }
}
