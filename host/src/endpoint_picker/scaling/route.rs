//! `GET /scaling` for all pools, and `GET /scaling/NAMESPACE/NAME` for one role of a pool, as a flat object: KEDA's `metrics-api` reads a
//! field by name. KEDA drops the query if it calls each pod behind a Service, so the role may also be the end of the path.

use super::{DECODE, PoolScaling, RoleScaling};
use crate::endpoint_picker::pool::Pool;
use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The path.
pub const PATH: &str = "/scaling";

/// The response for all pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScalingAnswer {
    /// One entry for each pool of the process.
    pub pools: Vec<PoolAnswer>,
}

/// A picker's values of one of its pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolAnswer {
    /// The namespace of the pool.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Why there are no values yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// The values, if it is ready.
    #[serde(flatten)]
    pub scaling: Option<PoolScaling>,
}

impl PoolAnswer {
    fn new(pool: &Pool) -> Self {
        let (namespace, name) = pool.name().split_once('/').unwrap_or_default();
        let not_ready = pool.obstacle();
        let scaling = not_ready.is_none().then(|| pool.scaling());
        Self { namespace: namespace.to_owned(), name: name.to_owned(), not_ready, scaling }
    }
}

/// Why there is no response.
type Refusal = (StatusCode, String);

/// The routes.
pub fn routes(pools: Vec<Arc<Pool>>) -> Router {
    Router::new()
        .route(PATH, get(all))
        .route("/scaling/{namespace}/{name}", get(one))
        .route("/scaling/{namespace}/{name}/{role}", get(one_by_path))
        .with_state(Arc::<[Arc<Pool>]>::from(pools))
}

async fn all(State(pools): State<Arc<[Arc<Pool>]>>) -> Response {
    answer(of_all(pools.iter().map(|pool| PoolAnswer::new(pool)).collect()))
}

async fn one(
    State(pools): State<Arc<[Arc<Pool>]>>,
    Path((namespace, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let known = pools.iter().map(|pool| PoolAnswer::new(pool)).collect();
    answer(parse_role(query.as_deref().unwrap_or_default()).and_then(|role| of_role(known, &namespace, &name, &role)))
}

async fn one_by_path(State(pools): State<Arc<[Arc<Pool>]>>, Path((namespace, name, role)): Path<(String, String, String)>) -> Response {
    answer(of_role(pools.iter().map(|pool| PoolAnswer::new(pool)).collect(), &namespace, &name, &role))
}

fn answer(answer: Result<impl Serialize, Refusal>) -> Response {
    match answer.map(|answer| serde_json::to_vec(&answer)) {
        Ok(Ok(json)) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("writing the answer failed: {error}\n")).into_response(),
        Err((status, sentence)) => (status, sentence + "\n").into_response(),
    }
}

/// Autoscalers shouldn't use a response without values: if no pool is ready, it is an error.
fn of_all(pools: Vec<PoolAnswer>) -> Result<ScalingAnswer, Refusal> {
    match pools.iter().find_map(|pool| pool.not_ready.clone()) {
        Some(why) if pools.iter().all(|pool| pool.scaling.is_none()) => Err((StatusCode::SERVICE_UNAVAILABLE, why)),
        _ => Ok(ScalingAnswer { pools }),
    }
}

fn of_role(pools: Vec<PoolAnswer>, namespace: &str, name: &str, role: &str) -> Result<RoleScaling, Refusal> {
    let found = pools.into_iter().find(|pool| pool.namespace == namespace && pool.name == name);
    let not_here =
        || (StatusCode::NOT_FOUND, "this picker has no such pool: write /scaling/NAMESPACE/NAME of its InferencePool".to_owned());
    match found.ok_or_else(not_here)? {
        PoolAnswer { scaling: Some(scaling), .. } => scaling.roles.get(role).copied().ok_or_else(|| {
            let known: Vec<&str> = scaling.roles.keys().map(String::as_str).collect();
            (StatusCode::NOT_FOUND, format!("the pool's endpoints have no such role: set role to {}", known.join(" or ")))
        }),
        PoolAnswer { not_ready, .. } => Err((StatusCode::SERVICE_UNAVAILABLE, not_ready.unwrap_or_default())),
    }
}

fn parse_role(query: &str) -> Result<String, Refusal> {
    let mut role = DECODE.to_owned();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name != "role" {
            return Err((StatusCode::BAD_REQUEST, "role is the only parameter: remove the others".to_owned()));
        }
        role = value.into_owned();
    }
    Ok(role)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_picker::scaling::PREFILL;
    use serde_json::json;

    fn pool(name: &str) -> PoolAnswer {
        let decode = RoleScaling { endpoints: 3, saturation: 0.8, demand: 2.8, waiting_demand: 0.4, waiting: 2, queued: 12, running: 30 };
        let scaling = PoolScaling { roles: [(DECODE.to_owned(), decode)].into(), waiting: 2, running: 30 };
        PoolAnswer { namespace: "models".to_owned(), name: name.to_owned(), not_ready: None, scaling: Some(scaling) }
    }

    fn unready() -> PoolAnswer {
        let not_ready = Some("the InferencePool models/later doesn't exist: create it".to_owned());
        PoolAnswer { not_ready, scaling: None, ..pool("later") }
    }

    #[test]
    fn the_answer_has_each_pool_with_its_numbers_or_why_it_has_none() {
        let written = serde_json::to_value(of_all(vec![pool("llama"), unready()]).unwrap()).unwrap();
        let decode =
            json!({"endpoints": 3, "saturation": 0.8, "demand": 2.8, "waitingDemand": 0.4, "waiting": 2, "queued": 12, "running": 30});
        let expected = json!({"pools": [
            {"namespace": "models", "name": "llama", "roles": {"decode": decode}, "waiting": 2, "running": 30},
            {"namespace": "models", "name": "later", "notReady": "the InferencePool models/later doesn't exist: create it"},
        ]});
        assert_eq!(written, expected);
        let read: ScalingAnswer = serde_json::from_value(written).unwrap();
        assert_eq!(read.pools, [pool("llama"), unready()]);
    }

    #[test]
    fn without_a_pool_that_is_ready_there_is_no_answer() {
        let (status, why) = of_all(vec![unready()]).unwrap_err();
        assert_eq!((status, why.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "the InferencePool models/later doesn't exist: create it"));
        let (status, _) = of_role(vec![pool("llama"), unready()], "models", "later", DECODE).unwrap_err();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn one_role_of_a_pool_is_asked_for_by_its_name() {
        let demand = of_role(vec![unready(), pool("llama")], "models", "llama", &parse_role("").unwrap()).unwrap().demand;
        assert!((demand - 2.8).abs() < 1e-9);
        assert_eq!(parse_role("role=prefill"), Ok(PREFILL.to_owned()));
        assert_eq!(parse_role("rolle=prefill").unwrap_err().0, StatusCode::BAD_REQUEST);
        let (status, why) = of_role(vec![pool("llama")], "models", "llama", PREFILL).unwrap_err();
        assert_eq!((status, why.as_str()), (StatusCode::NOT_FOUND, "the pool's endpoints have no such role: set role to decode"));
        for (namespace, name) in [("models", "other"), ("other", "llama")] {
            assert_eq!(of_role(vec![pool("llama")], namespace, name, DECODE).unwrap_err().0, StatusCode::NOT_FOUND);
        }
    }
}
