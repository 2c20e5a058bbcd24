//! A registry's token, by the challenge that it answers with.

use crate::{
    access::{Access, invalid},
    error::{Error, Failure},
    http::{Answer, Http, Place, protocol, secret_header},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderValue, header};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};
use url::Url;

pub(super) struct Token {
    scope: String,
    /// `Basic`, with the user's name and password.
    basic: Option<HeaderValue>,
    current: Mutex<Option<HeaderValue>>,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

#[derive(Deserialize)]
struct Granted {
    #[serde(alias = "access_token")]
    token: String,
}

impl Token {
    pub(super) fn new(registry: &str, repository: &str, access: &Access) -> Result<Self, Error> {
        let basic = match super::super::web::basic(access)? {
            Some(basic) => Some(basic),
            None => access.find(&["dockerconfigjson"]).map(|config| docker(config, registry)).transpose()?.flatten(),
        };
        Ok(Self { scope: format!("repository:{repository}:pull"), basic, current: Mutex::default() })
    }

    pub(super) fn current(&self) -> Option<HeaderValue> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What to send after a 401, if there is anything else than before.
    pub(super) async fn fetch(&self, http: &Http, place: &Place, refusal: &Answer) -> Result<Option<HeaderValue>, Failure> {
        let challenge = refusal.header(header::WWW_AUTHENTICATE).unwrap_or_default();
        let (scheme, parameters) = challenge.split_once(' ').unwrap_or((challenge, ""));
        let token = if scheme.eq_ignore_ascii_case("basic") {
            self.basic.clone().filter(|basic| self.current().as_ref() != Some(basic))
        } else if scheme.eq_ignore_ascii_case("bearer") {
            Some(self.bearer(http, place, &refusal.url, parameters).await?)
        } else {
            None
        };
        if token.is_some() {
            self.current.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&token);
        }
        Ok(token)
    }

    async fn bearer(&self, http: &Http, place: &Place, registry: &Url, parameters: &str) -> Result<HeaderValue, Failure> {
        let parameters: BTreeMap<&str, &str> = parameters
            .split("\",")
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let realm = parameters.get("realm").and_then(|realm| realm.parse::<Url>().ok());
        // A password is never sent without TLS, unless the registry itself has none.
        let Some(mut url) = realm.filter(|realm| realm.scheme() == "https" || realm.scheme() == registry.scheme()) else {
            return Err(protocol(&place.name, "the registry's challenge has no usable realm"));
        };
        if let Some(service) = parameters.get("service") {
            url.query_pairs_mut().append_pair("service", service);
        }
        url.query_pairs_mut().append_pair("scope", &self.scope);
        let mut headers = HeaderMap::new();
        headers.extend(self.basic.clone().map(|basic| (header::AUTHORIZATION, basic)));
        let (granted, _): (Granted, _) = http.json(place, &url, &headers).await?;
        Ok(secret_header("token", &format!("Bearer {}", granted.token))?)
    }
}

/// The credentials of a registry in the form of `docker login`.
fn docker(config: &str, registry: &str) -> Result<Option<HeaderValue>, Error> {
    let malformed = || invalid(".dockerconfigjson", "isn't what `kubectl create secret docker-registry` writes");
    let config: DockerConfig = serde_json::from_str(config).map_err(|_| malformed())?;
    let is_ours = |name: &str| {
        let name = name.trim_start_matches("https://").trim_start_matches("http://");
        let host = name.split('/').next().unwrap_or_default();
        host == registry || registry == "docker.io" && host == "index.docker.io"
    };
    let Some((_, entry)) = config.auths.into_iter().find(|(name, _)| is_ours(name)) else { return Ok(None) };
    let encoded = match (entry.auth, entry.username, entry.password) {
        (_, Some(name), Some(password)) => BASE64_STANDARD.encode(format!("{name}:{password}")),
        (Some(auth), _, _) => auth,
        _ => return Err(malformed()),
    };
    secret_header(".dockerconfigjson", &format!("Basic {encoded}")).map(Some)
}
