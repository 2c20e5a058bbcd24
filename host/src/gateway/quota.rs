//! The quotas of callers: requests and tokens per minute, and tokens per day, by key and by namespace. Each gateway counts for itself.

use super::{callers::Caller, error::GatewayError, model::now};
use pointsman_sandbox::sync::locked;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, RwLock},
    time::Duration,
};
use tokio::time::Instant;

/// The maximum number of callers whose usage is remembered; those without recent usage are forgotten first.
const MAX_KNOWN: usize = 10_000;

const DAY: u64 = 24 * 60 * 60;

/// The quota of one key or namespace; none means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Quota {
    /// Requests per minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens per minute, of requests and responses.
    pub tokens_per_minute: Option<u64>,
    /// Tokens per day, which begins at midnight UTC.
    pub tokens_per_day: Option<u64>,
}

/// Refills over time, up to its size, and may be overdrawn: the usage of a request is known only after it.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(size: f64, at: Instant) -> Self {
        Self { left: size, at }
    }

    fn fill(&mut self, size: f64, now: Instant) {
        self.left = size.min(self.left + size * now.duration_since(self.at).as_secs_f64() / 60.0);
        self.at = now;
    }

    /// The time until it has this amount.
    fn wait(&self, size: f64, wanted: f64) -> Option<Duration> {
        (self.left < wanted).then(|| Duration::from_secs_f64(((wanted - self.left) * 60.0 / size.max(f64::MIN_POSITIVE)).min(3600.0)))
    }
}

#[derive(Debug)]
struct Used {
    requests: Bucket,
    tokens: Bucket,
    day: u64,
    day_tokens: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Key(String),
    Namespace(String),
}

/// The quotas, and their usage.
#[derive(Debug, Default)]
pub struct Quotas {
    namespaces: RwLock<BTreeMap<String, Quota>>,
    known: Mutex<KnownCallers>,
}

/// The usage of callers.
#[derive(Debug, Default)]
struct KnownCallers {
    used: HashMap<Who, Used>,
    /// The number of callers at which those without current usage are removed.
    next_cleanup: usize,
}

#[allow(clippy::cast_precision_loss)] // Quotas are far below 2^52.
fn size(quota: Option<u64>) -> f64 {
    quota.unwrap_or(u64::MAX) as f64
}

impl Quotas {
    /// Sets the quotas of namespaces. The usage stays.
    pub fn set_namespaces(&self, quotas: BTreeMap<String, Quota>) {
        *self.namespaces.write().unwrap_or_else(std::sync::PoisonError::into_inner) = quotas;
    }

    fn of_caller(&self, caller: &Caller) -> Vec<(Who, Quota)> {
        let namespaces = self.namespaces.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let namespace = caller.namespace.as_ref();
        let of_namespace = namespace.and_then(|name| Some((Who::Namespace(name.clone()), *namespaces.get(name)?)));
        let of_key = (caller.quota != Quota::default()).then(|| (Who::Key(caller.name.clone()), caller.quota));
        of_key.into_iter().chain(of_namespace).collect()
    }

    /// Counts a request, or returns when the next one may come. It counts only if all quotas allow it.
    pub fn take(&self, caller: &Caller) -> Result<(), GatewayError> {
        let quotas = self.of_caller(caller);
        if quotas.is_empty() {
            return Ok(());
        }
        let (instant, second) = (Instant::now(), now());
        let mut known = locked(&self.known);
        let KnownCallers { used, next_cleanup } = &mut *known;
        if used.len() >= (*next_cleanup).max(MAX_KNOWN) {
            // Buckets are full again after a minute; the tokens of the day count until midnight.
            used.retain(|_, used| {
                let counts_today = used.day == second / DAY && used.day_tokens > 0;
                counts_today || instant.duration_since(used.requests.at) < Duration::from_mins(1)
            });
            *next_cleanup = 2 * used.len();
        }
        for (who, quota) in &quotas {
            let (requests, tokens) = (size(quota.requests_per_minute.map(u64::from)), size(quota.tokens_per_minute));
            let used = used.entry(who.clone()).or_insert_with(|| Used {
                requests: Bucket::full(requests, instant),
                tokens: Bucket::full(tokens, instant),
                day: second / DAY,
                day_tokens: 0,
            });
            used.requests.fill(requests, instant);
            used.tokens.fill(tokens, instant);
            if used.day != second / DAY {
                (used.day, used.day_tokens) = (second / DAY, 0);
            }
            let refused = |what: String, wait: Duration| {
                let whose = match who {
                    Who::Key(name) => format!("The key {name}"),
                    Who::Namespace(name) => format!("The namespace {name}"),
                };
                let seconds = wait.as_secs() + 1;
                Err(GatewayError::rate_limited(format!("{whose} has used its {what}: try again in {seconds} s."), seconds))
            };
            if let (Some(quota), Some(wait)) = (quota.requests_per_minute, used.requests.wait(requests, 1.0)) {
                return refused(format!("{quota} requests per minute"), wait);
            }
            if let (Some(quota), Some(wait)) = (quota.tokens_per_minute, used.tokens.wait(tokens, 1.0)) {
                return refused(format!("{quota} tokens per minute"), wait);
            }
            if let Some(quota) = quota.tokens_per_day.filter(|quota| used.day_tokens >= *quota) {
                return refused(format!("{quota} tokens per day"), Duration::from_secs(DAY - second % DAY));
            }
        }
        for (who, _) in &quotas {
            if let Some(used) = used.get_mut(who) {
                used.requests.left -= 1.0;
            }
        }
        Ok(())
    }

    /// Counts the tokens of a response.
    pub fn use_tokens(&self, caller: &Caller, tokens: u64) {
        let quotas = self.of_caller(caller);
        let used = &mut locked(&self.known).used;
        for (who, _) in quotas {
            if let Some(used) = used.get_mut(&who) {
                #[allow(clippy::cast_precision_loss)] // Far below 2^52.
                let tokens_float = tokens as f64;
                used.tokens.left -= tokens_float;
                used.day_tokens = used.day_tokens.saturating_add(tokens);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(quota: Quota) -> Caller {
        Caller { name: "a".to_owned(), namespace: Some("ml".to_owned()), quota, ..Caller::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_come_back_with_time() {
        let (quotas, caller) = (Quotas::default(), caller(Quota { requests_per_minute: Some(2), ..Quota::default() }));
        assert!(quotas.take(&caller).is_ok() && quotas.take(&caller).is_ok());
        let error = quotas.take(&caller).unwrap_err();
        assert_eq!((error.code, error.retry_after), ("rate_limit_exceeded", Some(31)));
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(quotas.take(&caller).is_ok() && quotas.take(&caller).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_may_be_overdrawn_once_and_count_for_the_namespace_too() {
        let (quotas, caller) = (Quotas::default(), caller(Quota { tokens_per_minute: Some(60), ..Quota::default() }));
        quotas.set_namespaces(BTreeMap::from([("ml".to_owned(), Quota { tokens_per_day: Some(100), ..Quota::default() })]));
        quotas.take(&caller).unwrap();
        quotas.use_tokens(&caller, 90);
        let error = quotas.take(&caller).unwrap_err();
        assert!(error.message.contains("60 tokens per minute"), "{error:?}");
        assert_eq!(error.retry_after, Some(32));
        tokio::time::advance(Duration::from_secs(32)).await;
        quotas.take(&caller).unwrap();
        quotas.use_tokens(&caller, 10);
        tokio::time::advance(Duration::from_mins(1)).await;
        let error = quotas.take(&caller).unwrap_err();
        assert!(error.message.starts_with("The namespace ml has used its 100 tokens per day"), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokens_of_a_day_are_counted_however_many_callers_are_known() {
        let quotas = Quotas::default();
        let with_name = |name: String| Caller { name, ..caller(Quota { tokens_per_day: Some(100), ..Quota::default() }) };
        let heavy = with_name("heavy".to_owned());
        quotas.take(&heavy).unwrap();
        quotas.use_tokens(&heavy, 100);
        for round in 0..3 {
            tokio::time::advance(Duration::from_mins(2)).await;
            for number in 0..MAX_KNOWN {
                quotas.take(&with_name(format!("{round}-{number}"))).unwrap();
            }
        }
        assert!(quotas.take(&heavy).is_err());
        let known = locked(&quotas.known).used.len();
        assert!(known <= 2 * MAX_KNOWN, "{known}");
    }
}
