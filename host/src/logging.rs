//! Logging: its format, and its filter, which can change while the host runs.

use crate::missing_rights::MissingRights;
use clap::ValueEnum;
use pointsman_core::spans::TARGET;
use pointsman_sandbox::sync::locked;
use std::{
    fmt,
    sync::{Arc, Mutex},
};
use tracing::{
    Event, Level, Metadata,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt, LevelFilter},
    fmt::layer,
    layer::{Context, Filter, SubscriberExt},
    reload,
    util::SubscriberInitExt,
};

/// The format of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Readable text.
    Text,
}

/// An invalid filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a level (error, warn, info, debug, trace or off) nor TARGET=LEVEL, such as pointsman=debug")]
pub struct FilterError(String);

/// The target of kube's watches.
const WATCHER: &str = "kube_runtime::watcher";

type Replace = dyn Fn(EnvFilter) + Send + Sync;

/// The current filter of the log.
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

/// Parses a filter. `EnvFilter` interprets a misspelt level as a target of that name, and logs nothing.
fn parse(filter: &str) -> Result<EnvFilter, FilterError> {
    let directives: Vec<&str> = filter.split(',').map(str::trim).collect();
    for &directive in &directives {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(FilterError(directive.to_owned()));
        }
    }
    // The client logs each response after which it retries as an error; the caller logs the final result. A watch logs each refusal in
    // debug form; its caller logs it too. Spans of traces are for a collector.
    let whole = format!("kube_client::client::builder=off,{WATCHER}=error,{TARGET}=off,{}", directives.join(","));
    EnvFilter::try_new(whole).map_err(|_| FilterError(filter.to_owned()))
}

/// Omits warnings and errors that only repeat that a right is missing.
struct Repetitions(Option<Arc<MissingRights>>);

impl<S> Filter<S> for Repetitions {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let Some(rights) = self.0.as_ref().filter(|_| *event.metadata().level() <= Level::WARN) else { return true };
        let mut search = Search { rights, is_repetition: false };
        event.record(&mut search);
        !search.is_repetition
    }
}

/// Searches the fields of an event for a repetition.
struct Search<'r> {
    rights: &'r MissingRights,
    is_repetition: bool,
}

impl Visit for Search<'_> {
    fn record_str(&mut self, _: &Field, value: &str) {
        self.is_repetition |= self.rights.repeats(value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl LogLevel {
    /// Starts logging to stderr, and passes spans to `traces`, which has its own filter. Failures for a right in `missing_rights` aren't
    /// logged again.
    pub fn start(
        filter: &str,
        format: LogFormat,
        traces: Option<Box<dyn Layer<Registry> + Send + Sync>>,
        missing_rights: Option<Arc<MissingRights>>,
    ) -> Result<Self, FilterError> {
        let (level, handle) = reload::Layer::new(parse(filter)?);
        let subscriber = tracing_subscriber::registry().with(traces);
        let lines = layer().with_writer(std::io::stderr);
        let level = level.and(Repetitions(missing_rights));
        match format {
            LogFormat::Json => subscriber.with(lines.json().flatten_event(true).with_span_list(false).with_filter(level)).init(),
            LogFormat::Text => subscriber.with(lines.with_filter(level)).init(),
        }
        // It fails only after the subscriber is dropped.
        let replace = Arc::new(move |filter| _ = handle.reload(filter));
        Ok(Self { filter: Arc::new(Mutex::new(filter.to_owned())), replace })
    }

    /// The current filter.
    pub fn filter(&self) -> String {
        locked(&self.filter).clone()
    }

    /// Replaces the filter.
    pub fn change(&self, filter: &str) -> Result<(), FilterError> {
        let parsed = parse(filter)?;
        let previous = std::mem::replace(&mut *locked(&self.filter), filter.to_owned());
        (self.replace)(parsed);
        tracing::info!(previous, filter, "log level changed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::missing_rights::Right;

    /// The log, as text.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            locked(&self.0).write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn who_lacks_a_right_that_is_known_to_be_missing_logs_nothing_about_it() {
        let said = "pods is forbidden: User \"me\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
        let rights = Arc::new(MissingRights::new("home", std::collections::BTreeSet::new()));
        let log = Log::default();
        let out = log.clone();
        let lines = layer::<Registry>().with_ansi(false).with_writer(move || out.clone());
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(Repetitions(Some(Arc::clone(&rights)))));
        let logged = tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(error = said, "before it is known");
            let right = Right { verb: "list".to_owned(), group: String::new(), resource: "pods".to_owned(), namespace: None };
            rights.refused(right, None, said);
            tracing::warn!(error = said, "trying again");
            tracing::error!("the list failed: {said}");
            tracing::warn!(error = said.replace("list", "watch"), "another right");
            tracing::warn!(error = "no answer", "another failure");
            String::from_utf8_lossy(&locked(&log.0)).into_owned()
        });
        let missing: Vec<&str> = ["before it", "trying", "the list", "another right", "another failure"]
            .into_iter()
            .filter(|said| !logged.contains(said))
            .collect();
        assert_eq!(missing, ["trying", "the list"], "{logged}");
    }

    #[test]
    fn of_a_refused_watch_only_the_caller_s_line_is_logged_unless_the_filter_names_kube_s() {
        for (filter, expected) in [("info", false), ("debug,kube_runtime=debug", false), ("info,kube_runtime::watcher=warn", true)] {
            let log = Log::default();
            let out = log.clone();
            let lines = layer::<Registry>().with_ansi(false).with_writer(move || out.clone());
            let subscriber = tracing_subscriber::registry().with(lines.with_filter(parse(filter).unwrap()));
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(target: WATCHER, "watch list error with 403: Api(Status {{ status: Some(Failure) }})");
                tracing::warn!(target: "pointsman::watch", "watching; trying again");
            });
            let logged = String::from_utf8_lossy(&locked(&log.0)).into_owned();
            assert_eq!((logged.contains("403"), logged.contains("trying again")), (expected, true), "{filter}: {logged}");
        }
    }

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
