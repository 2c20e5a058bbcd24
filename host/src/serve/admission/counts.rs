//! What /metrics tells of admission.

use pointsman_sandbox::sync::locked;
use std::{collections::BTreeMap, fmt::Write as _, sync::Mutex};

/// The bounds of the histogram of how long an answer takes, in seconds. The goal for the slowest in a hundred is 10 ms.
const BOUNDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// What admission counts.
#[derive(Debug, Default)]
pub struct Counts {
    requests: Mutex<BTreeMap<(&'static str, bool), u64>>,
    latencies: Mutex<BTreeMap<&'static str, Latency>>,
}

#[derive(Debug, Default)]
struct Latency {
    within: [u64; BOUNDS.len()],
    all: u64,
    seconds: f64,
}

impl Counts {
    /// Counts an answer of a door, to what was to be done with an object.
    pub fn answered(&self, door: &'static str, operation: &'static str, allowed: bool, seconds: f64) {
        *locked(&self.requests).entry((operation, allowed)).or_default() += 1;
        let mut latencies = locked(&self.latencies);
        let latency = latencies.entry(door).or_default();
        latency.all += 1;
        latency.seconds += seconds;
        for (within, bound) in latency.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(seconds <= bound);
        }
    }

    /// Adds it all to a page of metrics.
    pub fn text(&self, text: &mut String) {
        // Writing into a String can't fail.
        self.write(text).ok();
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let name = "pointsman_admission_requests_total";
        writeln!(text, "# HELP {name} Requests that the admission webhook has answered, by operation and answer.\n# TYPE {name} counter")?;
        for ((operation, allowed), count) in &*locked(&self.requests) {
            writeln!(text, "{name}{{operation=\"{operation}\",allowed=\"{allowed}\"}} {count}")?;
        }
        let name = "controller_runtime_webhook_latency_seconds";
        writeln!(text, "# HELP {name} How long an answer of the admission webhook takes.\n# TYPE {name} histogram")?;
        for (door, Latency { within, all, seconds }) in &*locked(&self.latencies) {
            for (count, bound) in within.iter().zip(BOUNDS) {
                writeln!(text, "{name}_bucket{{webhook=\"{door}\",le=\"{bound}\"}} {count}")?;
            }
            writeln!(text, "{name}_bucket{{webhook=\"{door}\",le=\"+Inf\"}} {all}")?;
            writeln!(text, "{name}_sum{{webhook=\"{door}\"}} {seconds}\n{name}_count{{webhook=\"{door}\"}} {all}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_operation_and_their_time_by_door() {
        let counts = Counts::default();
        counts.answered("/validate", "CREATE", true, 0.002);
        counts.answered("/validate", "CREATE", false, 0.02);
        let mut text = String::new();
        counts.text(&mut text);
        for line in [
            "pointsman_admission_requests_total{operation=\"CREATE\",allowed=\"false\"} 1",
            "controller_runtime_webhook_latency_seconds_bucket{webhook=\"/validate\",le=\"0.001\"} 0",
            "controller_runtime_webhook_latency_seconds_bucket{webhook=\"/validate\",le=\"0.0025\"} 1",
            "controller_runtime_webhook_latency_seconds_bucket{webhook=\"/validate\",le=\"+Inf\"} 2",
            "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate\"} 2",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
        }
    }
}
