//! The parameters of session affinity.

use super::{
    ConfigError, MAX_PLUGINS, ScorerKind, SessionAffinity, SessionBinding, SessionSource,
    fields::{Fields, Part, Shown},
    plugins::{Context, Instance, undeclared},
};
use std::time::Duration;

/// The default header with a session.
pub const SESSION_HEADER: &str = "x-session-token";
const DEFAULT_IDENTIFIER_HEADER: &str = "x-session-id";
const DEFAULT_TTL_SECONDS: f64 = 300.0;

/// The maximum duration of a session. Times this far in the future don't overflow.
const MAX_TTL_SECONDS: f64 = 3e9;

/// `session-id-producer`.
pub(super) fn producer(mut parameters: Fields<'_>) -> Result<SessionSource, ConfigError> {
    let header = parameters.text("headerName")?.map(header);
    let cookie = parameters.text("cookieName")?.map(|cookie| cookie.trim().to_owned());
    let place = parameters.place;
    let path = parameters.path.clone();
    parameters.finish()?;
    match (header, cookie) {
        (Some(header), None) => Ok(SessionSource::Header(header)),
        (None, Some(cookie)) => Ok(SessionSource::Cookie(cookie)),
        _ => Err(ConfigError::Invalid { place, message: format!("`{path}` needs `headerName` or `cookieName`: set one of them") }),
    }
}

/// `session-affinity-scorer`.
pub(super) fn scorer(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Instance, ConfigError> {
    let profile = parameters.text("profileName")?.map(ToOwned::to_owned);
    let token = parameters.fields("encodedEndpointHeaderConfig")?.map(token).transpose()?;
    let identifier = parameters.get("sessionIdConfig");
    let strategy = parameters.get("strategy");
    let binding = match strategy.as_ref().map(Part::text).transpose()? {
        None | Some("encoded_endpoint_header") => token.unwrap_or_else(|| SessionBinding::Token { header: SESSION_HEADER.to_owned() }),
        Some("session_id") => {
            let Some(binding) = read_identifier(identifier, context)? else {
                context.remark("Pointsman has no counterpart of its sources, and picks without it: set a `header`, or remove it");
                return Ok(Instance::LostScorer);
            };
            binding
        }
        Some(other) => {
            let part = strategy.ok_or_else(|| parameters.missing("strategy"))?;
            return Err(part.error(format_args!("is `{}`: set `encoded_endpoint_header` or `session_id`", Shown(other))));
        }
    };
    Ok(Instance::Scorer(ScorerKind::SessionAffinity(SessionAffinity { binding, profile })))
}

fn token(mut config: Fields<'_>) -> Result<SessionBinding, ConfigError> {
    let name = config.text("header")?.map_or_else(|| SESSION_HEADER.to_owned(), header);
    config.finish()?;
    Ok(SessionBinding::Token { header: name })
}

/// The identifier's sources; none if none of them has a counterpart.
fn read_identifier(config: Option<Part<'_>>, context: &mut Context<'_, '_>) -> Result<Option<SessionBinding>, ConfigError> {
    let mut sources = Vec::new();
    let mut has_sources = false;
    let mut seconds = DEFAULT_TTL_SECONDS;
    if let Some(config) = config {
        let mut config = config.fields()?;
        for part in config.list("sources", MAX_PLUGINS)? {
            has_sources = true;
            sources.extend(read_source(part, context)?);
        }
        let ttl = config.number_within("evictionTtlSeconds", 0.0, MAX_TTL_SECONDS)?;
        seconds = ttl.filter(|ttl| *ttl > 0.0).unwrap_or(DEFAULT_TTL_SECONDS);
        // The interval between sweeps has no visible effect.
        config.number_within("evictionSweepSeconds", 0.0, MAX_TTL_SECONDS)?;
        config.finish()?;
    }
    if !has_sources {
        sources.push(SessionSource::Header(DEFAULT_IDENTIFIER_HEADER.to_owned()));
    }
    let ttl = Duration::from_secs_f64(seconds);
    Ok((!sources.is_empty()).then_some(SessionBinding::Identifier { sources, ttl }))
}

fn read_source(part: Part<'_>, context: &mut Context<'_, '_>) -> Result<Option<SessionSource>, ConfigError> {
    let (place, path) = (part.node.place, part.path.clone());
    let mut source = part.fields()?;
    let name = source.text("header")?.map(header);
    let attribute = source.text("attribute")?;
    let producer = source.get("producer");
    source.finish()?;
    match (name, attribute) {
        (Some(name), None) => Ok(Some(SessionSource::Header(name))),
        (None, Some(attribute)) => {
            let Some(producer) = producer else {
                context.remarks.add(place, path, format!("Pointsman has no attribute `{}`: set a `header`", Shown(attribute)));
                return Ok(None);
            };
            let name = producer.text()?;
            if !context.names.contains(name) {
                return Err(undeclared(&producer, name));
            }
            let found = context.sessions.get(name).cloned();
            if found.is_none() {
                context.remarks.add(place, path, format!("Pointsman has no attribute of `{}`: set a `header`", Shown(name)));
            }
            Ok(found)
        }
        _ => Err(ConfigError::Invalid { place, message: format!("`{path}` needs `header` or `attribute`: set one of them") }),
    }
}

/// Header names are compared in lower case.
fn header(name: &str) -> String {
    name.trim().to_ascii_lowercase()
}
