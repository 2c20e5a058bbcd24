//! Identifies a caller: by one of the gateway's keys, or by a token that the API server checks.

use super::{error::GatewayError, quota::Quota};
use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{HeaderMap, header::AUTHORIZATION};
use pointsman_sandbox::{digest::Digest, sync::locked};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

/// The maximum length of a token, in bytes.
const MAX_TOKEN: usize = 16 << 10;

/// The maximum number of keys.
const MAX_KEYS: usize = 10_000;

/// The maximum number of cached results of the API server's checks.
const MAX_REVIEWED: usize = 10_000;

/// How long a valid token is cached.
const KNOWN_FOR: Duration = Duration::from_mins(1);

/// How long an invalid token is cached.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// The maximum number of concurrent checks.
const REVIEWS: usize = 16;

/// How long a check waits for others.
const REVIEW_WAIT: Duration = Duration::from_secs(10);

/// A caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caller {
    /// The name of a key, or of a user.
    pub name: String,
    /// The namespace whose models it may use.
    pub namespace: Option<String>,
    /// The models of the key; none if the key is for all models that its namespace may use.
    pub models: Option<BTreeSet<String>>,
    /// The quota of the key.
    pub quota: Quota,
    /// The default priority of its requests.
    pub priority: i32,
    /// The maximum priority of its requests.
    pub max_priority: i32,
}

/// A key in the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyFile {
    name: String,
    token: Option<String>,
    token_sha256: Option<String>,
    namespace: Option<String>,
    models: Option<BTreeSet<String>>,
    #[serde(default)]
    quota: Quota,
    #[serde(default)]
    priority: i32,
    max_priority: Option<i32>,
}

/// A file of keys and quotas.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct AccessFile {
    keys: Vec<KeyFile>,
    namespaces: BTreeMap<String, Quota>,
}

/// Keys, by the digests of their tokens, and the quotas of namespaces.
#[derive(Debug, Default)]
pub struct Keys {
    by_digest: HashMap<Digest, Caller>,
    /// The quotas of namespaces.
    pub namespaces: BTreeMap<String, Quota>,
}

impl Keys {
    /// Parses files, each YAML with `keys` and `namespaces`. An error names the file and the key, never a token.
    pub fn parse<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> Result<Self, String> {
        let mut keys = Self::default();
        let mut names = BTreeSet::new();
        for (file, text) in files {
            // The parser's own message would include the line, which may be a token.
            let read: AccessFile = serde_saphyr::from_str(text)
                .map_err(|_| format!("{file} isn't a file of keys: it is YAML with `keys` and `namespaces`, see docs/gateway.md"))?;
            for key in read.keys {
                let name = key.name.clone();
                let wrong = |what: &str| format!("{file}: the key {name:?} {what}");
                let digest = match (&key.token, &key.token_sha256) {
                    (Some(token), None) if !token.is_empty() && token.len() <= MAX_TOKEN => Digest::hash(token.as_bytes()),
                    (None, Some(hex)) => {
                        format!("sha256:{hex}").parse().map_err(|_| wrong("has a tokenSha256 that isn't 64 hexadecimal digits"))?
                    }
                    _ => return Err(wrong("needs either `token` or `tokenSha256`")),
                };
                if !names.insert(name.clone()) {
                    return Err(wrong("is listed twice"));
                }
                let caller = Caller {
                    name: key.name,
                    namespace: key.namespace,
                    models: key.models,
                    quota: key.quota,
                    priority: key.priority,
                    max_priority: key.max_priority.unwrap_or(key.priority).max(key.priority),
                };
                if keys.by_digest.insert(digest, caller).is_some() {
                    return Err(wrong("has the token of another key"));
                }
            }
            for (namespace, quota) in read.namespaces {
                if keys.namespaces.insert(namespace.clone(), quota).is_some() {
                    return Err(format!("{file}: the namespace {namespace} is in another file too"));
                }
            }
        }
        if keys.by_digest.len() > MAX_KEYS {
            return Err(format!("there are more than {MAX_KEYS} keys"));
        }
        Ok(keys)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.by_digest.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.by_digest.is_empty()
    }
}

/// Returns the owner of a token: none if it is invalid, an error if that can't be checked now.
pub type Review = dyn Fn(String) -> BoxFuture<'static, Result<Option<Caller>, String>> + Send + Sync;

/// The expiry of a cached result, and the result.
type Reviewed = (Instant, Option<Caller>);

/// The methods to identify callers.
pub struct Authentication {
    /// The keys, if callers may use keys.
    keys: Option<Arc<ArcSwap<Keys>>>,
    review: Option<Arc<Review>>,
    reviewed: Mutex<HashMap<Digest, Reviewed>>,
    reviews: Semaphore,
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication").field("keys", &self.keys.is_some()).field("review", &self.review.is_some()).finish_non_exhaustive()
    }
}

impl Authentication {
    /// Identifies callers by keys, by reviews, by both, or not at all.
    pub fn new(keys: Option<Arc<ArcSwap<Keys>>>, review: Option<Arc<Review>>) -> Self {
        Self { keys, review, reviewed: Mutex::default(), reviews: Semaphore::new(REVIEWS) }
    }

    /// Whether any client may send requests.
    pub fn is_open(&self) -> bool {
        self.keys.is_none() && self.review.is_none()
    }

    /// The caller with these headers.
    pub async fn caller(&self, headers: &HeaderMap) -> Result<Caller, GatewayError> {
        if self.is_open() {
            return Ok(Caller { max_priority: i32::MAX, ..Caller::default() });
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (value, other) = (values.next(), values.next());
        let token = value.filter(|_| other.is_none()).and_then(|value| bearer(value.to_str().ok()?));
        let Some(token) = token.filter(|token| token.len() <= MAX_TOKEN) else {
            return Err(GatewayError::unauthorized("You didn't provide an API key: send it as `Authorization: Bearer KEY`."));
        };
        let digest = Digest::hash(token.as_bytes());
        if let Some(caller) = self.keys.as_ref().and_then(|keys| keys.load().by_digest.get(&digest).cloned()) {
            return Ok(caller);
        }
        let reviewed = match &self.review {
            Some(review) => self.review(&**review, token, digest).await?,
            None => None,
        };
        reviewed.ok_or_else(|| GatewayError::unauthorized("The API key is unknown or has expired."))
    }

    async fn review(&self, review: &Review, token: &str, digest: Digest) -> Result<Option<Caller>, GatewayError> {
        let find = || locked(&self.reviewed).get(&digest).filter(|(until, _)| *until > Instant::now()).map(|(_, caller)| caller.clone());
        if let Some(known) = find() {
            return Ok(known);
        }
        let place = timeout(REVIEW_WAIT, self.reviews.acquire()).await.ok().and_then(Result::ok);
        let Some(_place) = place else { return Err(GatewayError::authentication_unavailable()) };
        if let Some(known) = find() {
            return Ok(known);
        }
        let caller = review(token.to_owned()).await.map_err(|error| {
            tracing::warn!(error, "a token can't be checked");
            GatewayError::authentication_unavailable()
        })?;
        let now = Instant::now();
        let mut reviewed = locked(&self.reviewed);
        if reviewed.len() >= MAX_REVIEWED {
            reviewed.retain(|_, (until, _)| *until > now);
        }
        if reviewed.len() < MAX_REVIEWED {
            let valid = if caller.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
            reviewed.insert(digest, (now + valid, caller.clone()));
        }
        Ok(caller)
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, token.parse().unwrap())])
    }

    fn authentication(text: &str, review: Option<Arc<Review>>) -> Authentication {
        let keys = Keys::parse([("keys.yaml", text)]).unwrap();
        Authentication::new(Some(Arc::new(ArcSwap::from_pointee(keys))), review)
    }

    #[tokio::test]
    async fn a_key_is_known_by_its_token_or_by_the_digest_of_it() {
        let digest = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";
        let text = format!(
            "keys:\n- {{name: a, token: one, namespace: ml, quota: {{requestsPerMinute: 3}}, priority: 2}}\n- {{name: b, tokenSha256: {digest}}}\n"
        );
        let authentication = authentication(&text, None);
        let a = authentication.caller(&with("Bearer one")).await.unwrap();
        assert_eq!((a.name.as_str(), a.namespace.as_deref(), a.max_priority), ("a", Some("ml"), 2));
        assert_eq!(authentication.caller(&with("bearer two")).await.unwrap().name, "b");
        for wrong in ["Bearer three", "Basic one", "one", "Bearer ", "Bearer"] {
            assert_eq!(authentication.caller(&with(wrong)).await.unwrap_err().status, 401, "{wrong}");
        }
        assert!(authentication.caller(&HeaderMap::new()).await.is_err());
        let mut twice = with("Bearer one");
        twice.append(AUTHORIZATION, "Bearer two".parse().unwrap());
        assert!(authentication.caller(&twice).await.is_err());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_reported_without_its_tokens() {
        for text in [
            "keys: [{name: a}]",
            "keys: [{name: a, token: secret, tokenSha256: aa}]",
            "keys: [{name: a, tokenSha256: secret}]",
            "keys: [{name: a, token: secret}, {name: b, token: secret}]",
            "keys: [{name: a, token: secret}, {name: a, token: secret2}]",
            "keys: [{name: a, token: secret, qouta: {}}]",
            "- secret",
        ] {
            let error = Keys::parse([("keys.yaml", text)]).unwrap_err();
            assert!(error.contains("keys.yaml") && !error.contains("secret"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_reviewed_is_remembered_for_a_while() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let review: Arc<Review> = Arc::new(move |token| {
            count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { Ok((token == "good").then(|| Caller { name: "sa".to_owned(), ..Caller::default() })) })
        });
        let authentication = authentication("keys: []", Some(review));
        for (token, is_known, wait) in [("Bearer good", true, KNOWN_FOR), ("Bearer bad", false, UNKNOWN_FOR)] {
            let before = asked.load(Ordering::Relaxed);
            for _ in 0..3 {
                assert_eq!(authentication.caller(&with(token)).await.is_ok(), is_known);
            }
            assert_eq!(asked.load(Ordering::Relaxed), before + 1);
            tokio::time::advance(wait).await;
            assert_eq!(authentication.caller(&with(token)).await.is_ok(), is_known);
            assert_eq!(asked.load(Ordering::Relaxed), before + 2);
        }
    }
}
