//! Permissions and quotas.

use super::{
    backend::Backend,
    rig::{Rig, Setup, bytes, error, full, json, open, until},
};
use arc_swap::ArcSwap;
use http::Request;
use pointsman::gateway::{
    callers::{Authentication, Keys},
    catalog::AllowList,
    quota::Quotas,
};
use std::{collections::BTreeSet, sync::Arc};

const KEYS: &str = "
keys:
- {name: one, token: sk-one, namespace: team-a}
- {name: two, token: sk-two, namespace: labelled, models: [a, labelled]}
- {name: few, token: sk-few, quota: {requestsPerMinute: 2}}
- {name: little, token: sk-little, quota: {tokensPerMinute: 10}}
";

async fn rig(backend: &Backend) -> Rig {
    let keys = Keys::parse([("keys.yaml", KEYS)]).unwrap();
    let authentication = Authentication::new(Some(Arc::new(ArcSwap::from_pointee(keys))), None);
    let rig = Rig::start(Setup { authentication, quotas: Quotas::default(), ..Setup::default() }).await;
    rig.set("a", open(&backend.url()));
    rig
}

#[tokio::test]
async fn only_known_callers_are_served_and_backends_never_see_their_keys() {
    let backend = Backend::start().await;
    let rig = rig(&backend).await;
    for headers in [&[][..], &[("authorization", "Bearer sk-none")], &[("authorization", "Basic c2stb25l")]] {
        let response = rig.chat("a", headers).await;
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert_eq!(error(response).await, (401, "invalid_api_key".to_owned()));
    }
    assert!(backend.seen().is_empty());
    assert_eq!(rig.chat("a", &[("authorization", "Bearer sk-one")]).await.status(), 200);
    assert!(!backend.seen()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_model_that_a_caller_may_not_use_doesn_t_exist_for_it() {
    let backend = Backend::start().await;
    let rig = rig(&backend).await;
    let of_namespace = AllowList { namespaces: Some(BTreeSet::from(["team-a".to_owned()])), selector: None };
    rig.define("own", open(&backend.url()), of_namespace);
    let selector = serde_json::from_value(serde_json::json!({"matchLabels": {"team": "ml"}})).unwrap();
    rig.define("labelled", open(&backend.url()), AllowList { namespaces: None, selector: Some(selector) });
    for (key, expected) in [("Bearer sk-one", vec!["a", "own"]), ("Bearer sk-two", vec!["a", "labelled"]), ("Bearer sk-few", vec!["a"])] {
        let request = Request::get("/v1/models").header("host", "gateway").header("authorization", key).body(full("")).unwrap();
        let list = json(rig.send(request).await).await;
        let names: Vec<&str> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{key}");
    }
    assert_eq!(rig.chat("own", &[("authorization", "Bearer sk-one")]).await.status(), 200);
    let refused = rig.chat("own", &[("authorization", "Bearer sk-two")]).await;
    let absent = rig.chat("gone", &[("authorization", "Bearer sk-two")]).await;
    let (refused, absent) = (bytes(refused).await, bytes(absent).await);
    assert_eq!(String::from_utf8_lossy(&refused).replace("own", "gone"), String::from_utf8_lossy(&absent));
}

#[tokio::test]
async fn a_quota_counts_requests_and_the_tokens_that_answers_report() {
    let backend = Backend::start().await;
    let rig = rig(&backend).await;
    for (key, allowed) in [("Bearer sk-few", 2), ("Bearer sk-little", 1)] {
        for _ in 0..allowed {
            bytes(rig.chat("a", &[("authorization", key)]).await).await;
        }
        until("its use is counted", || rig.proxy.models.catalog().find("a").unwrap().model.is_idle()).await;
        let response = rig.chat("a", &[("authorization", key)]).await;
        assert!(response.headers().contains_key("retry-after"));
        assert_eq!(error(response).await, (429, "rate_limit_exceeded".to_owned()), "{key}");
    }
    assert_eq!(rig.chat("a", &[("authorization", "Bearer sk-one")]).await.status(), 200);
}
