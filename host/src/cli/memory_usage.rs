//! The flags for the measurement of InferenceModels' memory.

use super::gateway::duration;
use crate::memory_usage::{DEFAULT_METRIC, DEFAULT_QUERY, Source};
use anyhow::{Context, Result};
use clap::Args;
use std::{str::FromStr, time::Duration};

#[derive(Args, Debug)]
pub(super) struct MemoryUsageArgs {
    /// Source of the memory usage of InferenceModels: metrics-api, the API metrics.k8s.io; prometheus or prometheus:QUERY, the server of
    /// --prometheus; pods or pods:METRIC, /metrics of each pod; or none
    #[arg(long, value_name = "SOURCE", default_value = "metrics-api")]
    memory_usage: SourceFlag,
    /// Time between two measurements
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = interval)]
    memory_usage_interval: Duration,
}

/// A source in the form of the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SourceFlag {
    None,
    MetricsApi,
    Prometheus(String),
    Pods(String),
}

impl FromStr for SourceFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, detail) = text.split_once(':').map_or((text, None), |(kind, detail)| (kind, Some(detail)));
        match (kind, detail) {
            ("none", None) => Ok(Self::None),
            ("metrics-api", None) => Ok(Self::MetricsApi),
            ("prometheus", None) => Ok(Self::Prometheus(DEFAULT_QUERY.to_owned())),
            ("prometheus", Some(query)) if !query.trim().is_empty() => Ok(Self::Prometheus(query.to_owned())),
            ("pods", None) => Ok(Self::Pods(DEFAULT_METRIC.to_owned())),
            ("pods", Some(metric)) if !metric.is_empty() && metric.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c)) => {
                Ok(Self::Pods(metric.to_owned()))
            }
            _ => Err("expected metrics-api, prometheus, prometheus:QUERY, pods, pods:METRIC or none".to_owned()),
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|interval| {
        if interval < Duration::from_secs(1) { Err("expected a duration of at least 1s".to_owned()) } else { Ok(interval) }
    })
}

impl MemoryUsageArgs {
    /// The source of the measurements, if any, and the interval.
    pub(super) fn source(&self, prometheus: Option<&str>) -> Result<Option<(Source, Duration)>> {
        let source = match &self.memory_usage {
            SourceFlag::None => return Ok(None),
            SourceFlag::MetricsApi => Source::MetricsApi,
            SourceFlag::Pods(metric) => Source::Pods { metric: metric.clone() },
            SourceFlag::Prometheus(query) => {
                let url = prometheus.context("--memory-usage prometheus needs the server's URL: set --prometheus URL")?;
                Source::Prometheus { url: url.parse().context("--prometheus")?, query: query.clone() }
            }
        };
        Ok(Some((source, self.memory_usage_interval)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_have_a_query_or_a_metric() {
        let parse = |text: &str| text.parse::<SourceFlag>();
        assert_eq!(
            parse("prometheus:max by (namespace, pod) (a:b)"),
            Ok(SourceFlag::Prometheus("max by (namespace, pod) (a:b)".to_owned()))
        );
        assert_eq!(parse("pods:vllm:memory_bytes"), Ok(SourceFlag::Pods("vllm:memory_bytes".to_owned())));
        assert_eq!(parse("pods"), Ok(SourceFlag::Pods(DEFAULT_METRIC.to_owned())));
        for wrong in ["", "metrics", "metrics-api:x", "none:", "prometheus:", "pods:", "pods:a{b}"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(interval("500ms").is_err() && interval("15s") == Ok(Duration::from_secs(15)));
    }

    #[test]
    fn prometheus_needs_a_url() {
        let args = MemoryUsageArgs { memory_usage: "prometheus".parse().unwrap(), memory_usage_interval: Duration::from_mins(1) };
        assert!(args.source(None).unwrap_err().to_string().contains("set --prometheus URL"));
        assert!(args.source(Some("http://prometheus:9090")).unwrap().is_some());
    }
}
