//! The flags of traces.

use crate::traces::{Endpoint, Origin, Traces};
use anyhow::{Context, Result};
use clap::Args;
use opentelemetry_sdk::trace::SdkTracer;

#[derive(Args, Debug)]
pub(super) struct TracesArgs {
    /// Collector that traces are sent to by OTLP over HTTP, such as http://collector.monitoring:4318; the path /v1/traces is added.
    /// Default: no traces
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// Ratio of traces that are sent: 1, the default, is all, and 0.1 one in ten. For a trace that has begun elsewhere, that decision
    /// applies
    #[arg(long, value_name = "RATIO", env = "OTEL_TRACES_SAMPLER_ARG")]
    otlp_sample: Option<String>,
}

fn ratio(text: &str) -> Result<f64> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.with_context(|| format!("{text:?} is not a ratio: use a number from 0 to 1"))
}

impl TracesArgs {
    /// Starts to send traces, if there is a collector.
    pub(super) fn start(&self, origin: Origin<'_>) -> Result<Option<(Traces, SdkTracer)>> {
        // Variables of these names may be set for other programs. An empty one counts as unset, and without a collector an invalid ratio is
        // not an error.
        let given = |value: &'_ Option<String>| value.clone().filter(|value| !value.is_empty());
        let Some(url) = given(&self.otlp_endpoint) else { return Ok(None) };
        let endpoint: Endpoint = url.parse().context("--otlp-endpoint")?;
        let sample = given(&self.otlp_sample).as_deref().map_or(Ok(1.0), ratio).context("--otlp-sample")?;
        Traces::start(&endpoint, sample, origin).map(Some).context("--otlp-endpoint")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_a_number_from_0_to_1() {
        for (text, number) in [("0", 0.0), ("0.25", 0.25), ("1", 1.0)] {
            assert!((ratio(text).unwrap() - number).abs() < f64::EPSILON);
        }
        for wrong in ["", "-0.1", "1.1", "NaN", "10%"] {
            assert!(ratio(wrong).unwrap_err().to_string().ends_with("use a number from 0 to 1"), "{wrong}");
        }
    }
}
