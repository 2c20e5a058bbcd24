//! The flags of llm-d's endpoint picker without a counterpart here: arguments that were written for it continue to work, and the log
//! describes their missing effects. Flags that would change which clients are served, or where requests go, aren't among them.

use clap::Args;

#[derive(Args, Debug)]
pub(super) struct UpstreamArgs {
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    ha_enable_leader_election: Option<bool>,
    #[arg(long, hide = true, value_name = "FORMAT")]
    zap_encoder: Option<String>,
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_log_level: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    zap_devel: Option<bool>,
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    #[arg(long, hide = true, value_name = "FORMAT")]
    zap_time_encoding: Option<String>,
    #[arg(short = 'v', long = "v", hide = true, value_name = "LEVEL")]
    verbosity: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    tracing: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    health_checking: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_pprof: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_cert_reload: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_grpc_stream_metrics: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    allow_experimental_plugins: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    metrics_endpoint_auth: Option<bool>,
    #[arg(long, hide = true, value_name = "DURATION")]
    refresh_metrics_interval: Option<String>,
    #[arg(long, hide = true, value_name = "DURATION")]
    refresh_prometheus_metrics_interval: Option<String>,
    #[arg(long, hide = true, value_name = "DURATION")]
    metrics_staleness_threshold: Option<String>,
    #[arg(long, hide = true, value_name = "SIZE")]
    grpc_max_recv_msg_size: Option<String>,
    #[arg(long, hide = true, value_name = "SIZE")]
    grpc_max_send_msg_size: Option<String>,
}

impl UpstreamArgs {
    /// A sentence about each given flag that requests something unsupported.
    pub(super) fn notes(&self) -> Vec<String> {
        let limits = "a message has 4 MiB at most";
        let asks = |flag: Option<bool>| flag == Some(true);
        [
            (asks(self.ha_enable_leader_election), "ha-enable-leader-election", "all replicas answer, and none leads"),
            (self.zap_encoder.is_some(), "zap-encoder", "use --log-format"),
            (self.zap_log_level.is_some(), "zap-log-level", "use --log-level"),
            (asks(self.zap_devel), "zap-devel", "use --log-level"),
            (self.zap_stacktrace_level.is_some(), "zap-stacktrace-level", "the log has no stack traces"),
            (self.zap_time_encoding.is_some(), "zap-time-encoding", "the log's times are RFC 3339"),
            (self.verbosity.is_some(), "v", "use --log-level"),
            (asks(self.tracing), "tracing", "use --otlp-endpoint"),
            (self.health_checking == Some(false), "health-checking", "probes are always answered"),
            (asks(self.enable_pprof), "enable-pprof", "there are no Go profiles"),
            (self.enable_cert_reload == Some(false), "enable-cert-reload", "certificates are read again when they change"),
            (asks(self.enable_grpc_stream_metrics), "enable-grpc-stream-metrics", "there are no such metrics"),
            (asks(self.metrics_endpoint_auth), "metrics-endpoint-auth", "limit the port for metrics by a NetworkPolicy"),
            (
                self.refresh_metrics_interval.is_some(),
                "refresh-metrics-interval",
                "set the interval of metrics-data-source in the configuration",
            ),
            (self.refresh_prometheus_metrics_interval.is_some(), "refresh-prometheus-metrics-interval", "metrics are always current"),
            (
                self.metrics_staleness_threshold.is_some(),
                "metrics-staleness-threshold",
                "set it in the utilization-detector of the configuration",
            ),
            (self.grpc_max_recv_msg_size.is_some(), "grpc-max-recv-msg-size", limits),
            (self.grpc_max_send_msg_size.is_some(), "grpc-max-send-msg-size", limits),
        ]
        .into_iter()
        .filter(|(given, ..)| *given)
        .map(|(_, flag, instead)| format!("--{flag} has no effect: {instead}"))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Picker {
        #[command(flatten)]
        upstream: UpstreamArgs,
    }

    fn notes(words: &[&str]) -> Vec<String> {
        Picker::try_parse_from(["picker"].iter().chain(words)).unwrap().upstream.notes()
    }

    #[test]
    fn arguments_for_the_other_picker_go_on_working_and_the_log_says_what_they_do_not_do() {
        // As in llm-d's preset and charts.
        assert_eq!(
            notes(&["--zap-encoder=json", "--tracing=false", "-v=4"]),
            ["--zap-encoder has no effect: use --log-format", "--v has no effect: use --log-level",]
        );
        assert_eq!(
            notes(&["--ha-enable-leader-election", "--v", "2", "--enable-pprof=false"]),
            ["--ha-enable-leader-election has no effect: all replicas answer, and none leads", "--v has no effect: use --log-level",]
        );
        assert!(notes(&[]).is_empty());
    }

    #[test]
    fn what_changes_where_requests_go_is_an_error() {
        for words in [["--endpoint-selector", "app=a"], ["--metrics-cert-dir", "/certs"], ["--disable-endpoint-subset-filter", "true"]] {
            assert!(Picker::try_parse_from(["picker"].iter().chain(&words)).is_err(), "{words:?}");
        }
    }
}
