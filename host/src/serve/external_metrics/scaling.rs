//! The combined values of a pool's pickers, cached for a second.

use super::{Unanswered, pickers};
use crate::{
    endpoint_picker::scaling::{
        PoolScaling, RoleScaling,
        route::{PATH, ScalingAnswer},
    },
    outbound::{self, OutboundError},
    problem::sentence,
};
use axum::http::StatusCode;
use futures::future::join_all;
use http::{Request, Uri};
use hyper::body::Bytes;
use kube::Client;
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Instant, timeout},
};

/// How long a result is cached: all autoscalers of a pool share it.
const FRESH: Duration = Duration::from_secs(1);

/// The maximum number of cached pools.
const MAX_POOLS: usize = 1024;

/// The timeout of finding the pickers, and of a picker's response.
const FIND_WITHIN: Duration = Duration::from_secs(4);
const PICKER_WITHIN: Duration = Duration::from_millis(1500);

/// The maximum size of a picker's response.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A result and its time.
type Answered = (Instant, Result<PoolScaling, Unanswered>);

/// The last result for a pool. Concurrent requests wait for it.
type LastAnswer = Arc<AsyncMutex<Option<Answered>>>;

/// The results for all pools, by namespace and name.
type LastAnswers = BTreeMap<(String, String), LastAnswer>;

/// Reads the pickers' values.
pub(super) struct PoolReader {
    client: Client,
    answers: Mutex<LastAnswers>,
}

impl PoolReader {
    pub(super) fn new(client: Client) -> Self {
        Self { client, answers: Mutex::default() }
    }

    /// The values of a pool, as of now or a moment ago.
    pub(super) async fn read(&self, namespace: &str, pool: &str) -> Result<PoolScaling, Unanswered> {
        shared(&self.answers, (namespace.to_owned(), pool.to_owned()), || self.ask(namespace, pool)).await
    }

    async fn ask(&self, namespace: &str, pool: &str) -> Result<PoolScaling, Unanswered> {
        let unavailable = |message: String| Unanswered::new(StatusCode::SERVICE_UNAVAILABLE, message);
        let late = || unavailable("the API server doesn't answer in time: check its load".to_owned());
        let addresses = timeout(FIND_WITHIN, pickers::find(&self.client, namespace, pool)).await.unwrap_or_else(|_| Err(late()))?;
        let asked = addresses.into_iter().map(|address| async move {
            let late = || Err(format!("it takes longer than {} ms", PICKER_WITHIN.as_millis()).into());
            let answer = timeout(PICKER_WITHIN, ask_picker(address, namespace, pool)).await.unwrap_or_else(|_| late());
            answer.map_err(|error| format!("{address}: {}", sentence(&*error)))
        });
        let (mut known, mut failed) = (Vec::new(), None);
        for answer in join_all(asked).await {
            match answer {
                Ok(scaling) => known.push(scaling),
                Err(why) => _ = failed.get_or_insert(why),
            }
        }
        combine(&known).ok_or_else(|| {
            let why = failed.unwrap_or_default();
            let remedy = "check the picker's pods, and that NetworkPolicies let the controller reach their metrics port";
            unavailable(format!("no picker of the InferencePool {namespace}/{pool} reports its demand ({why}): {remedy}"))
        })
    }
}

/// The cached result while it is fresh, otherwise a new one.
async fn shared<A: Future<Output = Result<PoolScaling, Unanswered>>>(
    answers: &Mutex<LastAnswers>,
    key: (String, String),
    ask: impl FnOnce() -> A,
) -> Result<PoolScaling, Unanswered> {
    let last = {
        let mut answers = locked(answers);
        // A request in progress holds its entry.
        answers.retain(|_, last| Arc::strong_count(last) > 1 || last.try_lock().is_ok_and(|last| last.as_ref().is_some_and(is_fresh)));
        let is_full = answers.len() >= MAX_POOLS;
        match answers.entry(key) {
            Entry::Occupied(known) => Some(Arc::clone(known.get())),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(place) => Some(Arc::clone(place.insert(Arc::default()))),
        }
    };
    let Some(last) = last else { return ask().await };
    let mut last = last.lock().await;
    if let Some((_, answer)) = last.as_ref().filter(|answered| is_fresh(answered)) {
        return answer.clone();
    }
    let answer = ask().await;
    *last = Some((Instant::now(), answer.clone()));
    answer
}

fn is_fresh((at, _): &Answered) -> bool {
    at.elapsed() < FRESH
}

async fn ask_picker(address: SocketAddr, namespace: &str, pool: &str) -> Result<PoolScaling, OutboundError> {
    let server: Uri = format!("http://{address}/").parse()?;
    let client = outbound::client(&server)?;
    let answer = outbound::send(&client, Request::get(PATH).body(Bytes::new())?, MAX_ANSWER_BYTES).await?;
    if !answer.status().is_success() {
        // The response's text isn't trusted.
        return Err(format!("{PATH} answers with status {}", answer.status().as_u16()).into());
    }
    pick_pool(answer.body(), namespace, pool)
}

/// The values of a pool in a response.
fn pick_pool(answer: &[u8], namespace: &str, pool: &str) -> Result<PoolScaling, OutboundError> {
    let answer: ScalingAnswer = serde_json::from_slice(answer).map_err(|_| format!("{PATH} has no answer of a Pointsman picker"))?;
    let found = answer.pools.into_iter().find(|known| known.namespace == namespace && known.name == pool);
    let found = found.ok_or("it serves other pools: check its flags")?;
    let scaling = found.scaling.ok_or("it isn't ready for this pool: /readyz reports why")?;
    let is_number = |role: &RoleScaling| [role.saturation, role.demand, role.waiting_demand].iter().all(|number| *number >= 0.0);
    if scaling.roles.values().all(is_number) { Ok(scaling) } else { Err(format!("{PATH} has a negative number").into()) }
}

/// Combines the pickers' values. All see the same endpoints, so the maximum of each value is used; queued requests are added up, because
/// each waits in one picker. None if there are no pickers.
fn combine(pickers: &[PoolScaling]) -> Option<PoolScaling> {
    let (first, others) = pickers.split_first()?;
    let mut together = first.clone();
    for other in others {
        together.waiting = together.waiting.saturating_add(other.waiting);
        together.running = together.running.max(other.running);
        for (name, role) in &other.roles {
            together.roles.entry(name.clone()).and_modify(|known| *known = of_both(known, role)).or_insert(*role);
        }
    }
    Some(together)
}

fn of_both(one: &RoleScaling, other: &RoleScaling) -> RoleScaling {
    let at_endpoints = |role: &RoleScaling| role.demand - role.waiting_demand;
    let waiting_demand = one.waiting_demand + other.waiting_demand;
    RoleScaling {
        endpoints: one.endpoints.max(other.endpoints),
        saturation: one.saturation.max(other.saturation),
        demand: at_endpoints(one).max(at_endpoints(other)) + waiting_demand,
        waiting_demand,
        waiting: one.waiting.saturating_add(other.waiting),
        queued: one.queued.max(other.queued),
        running: one.running.max(other.running),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_picker::scaling::{DECODE, PREFILL};
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn role(endpoints: u64, at_endpoints: f64, waiting: u64) -> RoleScaling {
        #[allow(clippy::cast_precision_loss)]
        let waiting_demand = waiting as f64 / 5.0;
        let demand = at_endpoints + waiting_demand;
        RoleScaling { endpoints, saturation: at_endpoints, demand, waiting_demand, waiting, queued: 7, running: 3 }
    }

    fn picker(roles: &[(&str, RoleScaling)], waiting: u64) -> PoolScaling {
        PoolScaling { roles: roles.iter().map(|(name, role)| ((*name).to_owned(), *role)).collect(), waiting, running: 3 }
    }

    #[test]
    fn endpoints_count_once_and_what_waits_at_each_picker() {
        let one = picker(&[(DECODE, role(3, 2.0, 5))], 5);
        let other = picker(&[(DECODE, role(2, 2.4, 10)), (PREFILL, role(1, 0.5, 10))], 10);
        assert_eq!(combine(&[]), None);
        assert_eq!(combine(std::slice::from_ref(&one)), Some(one.clone()));
        for pickers in [[one.clone(), other.clone()], [other, one]] {
            let together = combine(&pickers).unwrap();
            assert_eq!((together.waiting, together.running), (15, 3));
            let decode = together.roles[DECODE];
            assert!((decode.demand - (2.4 + 3.0)).abs() < 1e-9 && (decode.waiting_demand - 3.0).abs() < 1e-9, "{decode:?}");
            assert!((decode.saturation - 2.4).abs() < 1e-9, "{decode:?}");
            assert_eq!((decode.endpoints, decode.requests()), (3, 15 + 7 + 3));
            assert_eq!(together.roles[PREFILL].endpoints, 1);
        }
    }

    #[test]
    fn an_answer_counts_only_with_numbers_of_the_pool() {
        let pool = |role: Value| json!({"namespace": "models", "name": "llama", "roles": {"decode": role}, "waiting": 0, "running": 3});
        let good = serde_json::to_value(role(3, 2.0, 0)).unwrap();
        let picked = |answer: Value| pick_pool(answer.to_string().as_bytes(), "models", "llama").map_err(|error| error.to_string());
        assert_eq!(picked(json!({"pools": [pool(good.clone())]})), Ok(picker(&[(DECODE, role(3, 2.0, 0))], 0)));
        let negative = json!({"pools": [pool({ let mut role = good.clone(); role["demand"] = json!(-1.0); role })]});
        let null = json!({"pools": [pool({ let mut role = good; role["demand"] = Value::Null; role })]});
        let unready = json!({"pools": [{"namespace": "models", "name": "llama", "notReady": "..."}]});
        for (answer, says) in [
            (json!({"pools": []}), "it serves other pools"),
            (json!({}), "no answer of a Pointsman picker"),
            (unready, "it isn't ready for this pool"),
            (negative, "a negative number"),
            (null, "isn't ready"),
        ] {
            let said = picked(answer).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_within_a_second_share_an_answer_and_others_get_another() {
        let (answers, asked) = (Mutex::default(), AtomicUsize::new(0));
        let key = |pool: &str| ("models".to_owned(), pool.to_owned());
        let ask = |pool: &'static str| {
            shared(&answers, key(pool), || async {
                asked.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(picker(&[], 0))
            })
        };
        let (one, other, different) = tokio::join!(ask("llama"), ask("llama"), ask("phi"));
        assert!(one.is_ok() && other.is_ok() && different.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 2, "one for each pool");
        ask("llama").await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        tokio::time::advance(FRESH).await;
        ask("llama").await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        assert_eq!(locked(&answers).len(), 1, "what isn't asked for any more is forgotten");
    }
}
