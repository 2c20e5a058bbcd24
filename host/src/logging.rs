//! What is logged and how. What is logged may change while the host runs.

use clap::ValueEnum;
use pointsman_core::spans::TARGET;
use pointsman_sandbox::sync::locked;
use std::{
    fmt,
    sync::{Arc, Mutex},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::LevelFilter, fmt::layer, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

/// How it is logged.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Why a filter isn't one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a level (error, warn, info, debug, trace or off) nor TARGET=LEVEL, such as pointsman=debug")]
pub struct FilterError(String);

type Replace = dyn Fn(EnvFilter) + Send + Sync;

/// What is logged now.
#[derive(Clone)]
pub struct LogLevel {
    filter: Arc<Mutex<String>>,
    replace: Arc<Replace>,
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLevel").field("filter", &self.filter).finish_non_exhaustive()
    }
}

/// Reads a filter. `EnvFilter` takes a misspelt level for a target of that name, and logs nothing.
fn parse(filter: &str) -> Result<EnvFilter, FilterError> {
    let directives: Vec<&str> = filter.split(',').map(str::trim).collect();
    for &directive in &directives {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(FilterError(directive.to_owned()));
        }
    }
    // The client logs each answer that it tries again as an error. What comes of a request in the end is logged by whoever has sent it.
    // And spans of traces are for a collector.
    let whole = format!("kube_client::client::builder=off,{TARGET}=off,{}", directives.join(","));
    EnvFilter::try_new(whole).map_err(|_| FilterError(filter.to_owned()))
}

impl LogLevel {
    /// Begins to log to stderr, and to give spans to whatever makes traces. That has a filter of its own.
    pub fn start(filter: &str, format: LogFormat, traces: Option<Box<dyn Layer<Registry> + Send + Sync>>) -> Result<Self, FilterError> {
        let (level, handle) = reload::Layer::new(parse(filter)?);
        let subscriber = tracing_subscriber::registry().with(traces);
        let lines = layer().with_writer(std::io::stderr);
        match format {
            LogFormat::Json => subscriber.with(lines.json().flatten_event(true).with_span_list(false).with_filter(level)).init(),
            LogFormat::Text => subscriber.with(lines.with_filter(level)).init(),
        }
        // It fails once there is nothing that logs any more.
        let replace = Arc::new(move |filter| _ = handle.reload(filter));
        Ok(Self { filter: Arc::new(Mutex::new(filter.to_owned())), replace })
    }

    /// The filter that counts.
    pub fn filter(&self) -> String {
        locked(&self.filter).clone()
    }

    /// Logs by another filter from now on.
    pub fn change(&self, filter: &str) -> Result<(), FilterError> {
        let parsed = parse(filter)?;
        let former = std::mem::replace(&mut *locked(&self.filter), filter.to_owned());
        (self.replace)(parsed);
        tracing::info!(former, filter, "another log level");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_refused_by_its_name() {
        for filter in ["info", "off", "DEBUG", "info,pointsman=debug", "warn, pointsman::plugin=trace", "info,kube_runtime[{a=b}]=debug"] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
        for (filter, wrong) in
            [("inof", "inof"), ("info,pointsman", "pointsman"), ("pointsman=loud", "pointsman=loud"), ("", ""), ("info,", "")]
        {
            assert_eq!(parse(filter).unwrap_err(), FilterError(wrong.to_owned()));
        }
    }
}
