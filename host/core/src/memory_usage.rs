//! The measured memory usage of a model: stored in an annotation of its Deployment, so that it survives restarts, and reported in the
//! status.

use crate::{allocation::memory_text, quantity};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The annotation of a model's Deployment with its memory usage, as JSON: [`MemoryUsage`].
pub const MEMORY_USAGE: &str = "pointsman.dev/memory-usage";

/// The growth of the peak, in percent, after which it is written before the next refresh.
const GROWTH_PERCENT: i64 = 1;

/// How often it is written without growth: the status reports when the memory was last measured.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// The minimum observation time before less memory is recommended: a model that has just started takes little.
const MIN_OBSERVATION: SignedDuration = SignedDuration::from_hours(1);

/// The percentage of `spec.memory` below which less is recommended.
const WELL_USED_PERCENT: i128 = 90;

/// The recommended memory, in percent of the peak.
const RECOMMENDED_PERCENT: i128 = 110;

const MEBIBYTE: i128 = 1 << 20;
const GIBIBYTE: i128 = 1 << 30;

/// The measured memory usage of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryUsage {
    /// The peak, in bytes.
    pub peak: i64,
    /// The image of the measured container. With another image, the peak starts from scratch.
    pub image: String,
    /// The time of the first measurement.
    pub since: Timestamp,
    /// The time of the last measurement, or up to [`REFRESH_INTERVAL`] earlier.
    pub last: Timestamp,
}

impl MemoryUsage {
    /// Parses the annotation. An unreadable one counts as absent, and is replaced.
    pub fn from_annotation(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|usage: &Self| usage.peak > 0)
    }

    /// The usage to write after a measurement; none if the stored one suffices.
    pub fn after(known: Option<&Self>, bytes: i64, image: &str, now: Timestamp) -> Option<Self> {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let Some(known) = known.filter(|known| known.image == image) else {
            return (bytes > 0).then(|| Self { peak: bytes, image: image.to_owned(), since: now, last: now });
        };
        let has_grown = bytes > known.peak.saturating_add(known.peak / 100 * GROWTH_PERCENT);
        let is_due = now.duration_since(known.last) >= REFRESH_INTERVAL;
        (has_grown || is_due).then(|| Self { peak: known.peak.max(bytes), last: now, ..known.clone() })
    }

    /// The fields of the status. Without a measurement they are removed.
    pub fn fields(usage: Option<&Self>, declared: &str) -> [(&'static str, Value); 4] {
        let bytes = quantity::rounded_up(declared, quantity::WHOLE).filter(|bytes| *bytes > 0);
        let percent = usage.zip(bytes).map(|(usage, bytes)| {
            let percent = (i128::from(usage.peak) * 100 + i128::from(bytes) / 2) / i128::from(bytes);
            percent.clamp(0, 100)
        });
        let recommendation = usage.zip(bytes).and_then(|(usage, bytes)| usage.recommendation(declared, bytes));
        [
            ("observedPeakMemory", usage.map_or(Value::Null, |usage| usage.peak_text().into())),
            ("utilizationPercent", json!(percent)),
            ("recommendation", json!(recommendation)),
            ("lastObservation", usage.map_or(Value::Null, |usage| usage.last.to_string().into())),
        ]
    }

    fn peak_text(&self) -> String {
        memory_text(up_to(i128::from(self.peak), MEBIBYTE))
    }

    /// The recommended change of `spec.memory`, if any.
    fn recommendation(&self, declared: &str, bytes: i64) -> Option<String> {
        let (peak, bytes) = (i128::from(self.peak), i128::from(bytes));
        let wanted = (peak * RECOMMENDED_PERCENT + 99) / 100;
        let wanted = up_to(wanted, if wanted >= 10 * GIBIBYTE { GIBIBYTE } else { MEBIBYTE });
        let (peak_text, wanted_text, since) = (self.peak_text(), memory_text(wanted), self.since);
        if peak > bytes {
            return Some(format!("Consider increasing memory from {declared} to {wanted_text} (observed peak {peak_text} since {since})"));
        }
        let would_do = peak * 100 < bytes * WELL_USED_PERCENT && i128::from(wanted) < bytes;
        (would_do && self.last.duration_since(self.since) >= MIN_OBSERVATION).then(|| {
            let surplus = 100 - peak * 100 / bytes;
            format!(
                "Consider reducing memory from {declared} to {wanted_text} (observed peak {peak_text} since {since}, {surplus}% overprovisioned)"
            )
        })
    }
}

/// Rounds up to a multiple of a unit.
fn up_to(bytes: i128, unit: i128) -> i64 {
    i64::try_from((bytes + unit - 1) / unit * unit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: i64 = 1 << 30;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + minute * 60).unwrap()
    }

    /// A peak that was observed for this many minutes.
    fn observed(peak: i64, minutes: i64) -> MemoryUsage {
        MemoryUsage { peak, image: "vllm:1".to_owned(), since: at(0), last: at(minutes) }
    }

    fn recommendation(peak: i64, minutes: i64, declared: &str) -> Option<String> {
        let [_, _, (_, recommendation), _] = MemoryUsage::fields(Some(&observed(peak, minutes)), declared);
        recommendation.as_str().map(str::to_owned)
    }

    #[test]
    fn a_peak_is_written_when_it_grows_and_once_an_hour() {
        let first = MemoryUsage::after(None, 60 * GI, "vllm:1", at(0)).unwrap();
        assert_eq!(first, observed(60 * GI, 0));
        let after = |bytes: i64, minute: i64| MemoryUsage::after(Some(&first), bytes, "vllm:1", at(minute));
        assert_eq!(after(60 * GI + GI / 2, 1), None);
        assert_eq!(after(61 * GI, 1), Some(observed(61 * GI, 1)));
        assert_eq!(after(GI, 59), None);
        assert_eq!(after(GI, 60), Some(observed(60 * GI, 60)));
        assert_eq!(after(GI, -600), None, "a clock that goes back writes nothing");
        assert_eq!(MemoryUsage::after(None, 0, "vllm:1", at(0)), None);
    }

    #[test]
    fn another_image_starts_from_scratch() {
        let next = MemoryUsage::after(Some(&observed(60 * GI, 90)), 5 * GI, "vllm:2", at(91)).unwrap();
        assert_eq!((next.peak, next.since, &*next.image), (5 * GI, at(91), "vllm:2"));
    }

    #[test]
    fn the_annotation_is_read_as_it_was_written_and_nonsense_counts_as_absent() {
        let usage = observed(60 * GI, 90);
        assert_eq!(MemoryUsage::from_annotation(&serde_json::to_string(&usage).unwrap()), Some(usage));
        for text in ["", "60Gi", "{}", r#"{"peak":-1,"image":"a","since":"2026-01-01T00:00:00Z","last":"2026-01-01T00:00:00Z"}"#] {
            assert_eq!(MemoryUsage::from_annotation(text), None, "{text}");
        }
    }

    #[test]
    fn the_status_has_the_peak_and_its_share() {
        let fields = |peak: i64, declared: &str| MemoryUsage::fields(Some(&observed(peak, 90)), declared).map(|(_, value)| value);
        let [peak, percent, recommendation, last] = fields(75 * GI, "80Gi");
        assert_eq!((peak, percent, recommendation), (json!("75Gi"), json!(94), Value::Null));
        assert_eq!(last, "2025-11-24T17:30:00Z");
        let [peak, percent, ..] = fields(75 * GI + 1, "70Gi");
        assert_eq!((peak, percent), (json!("76801Mi"), json!(100)));
        assert_eq!(fields(GI, "0Gi")[1], Value::Null);
        assert!(MemoryUsage::fields(None, "80Gi").iter().all(|(_, value)| value.is_null()));
    }

    #[test]
    fn less_is_recommended_below_90_percent_after_an_hour_and_more_above_100_at_once() {
        let less = "Consider reducing memory from 80Gi to 66Gi (observed peak 60Gi since 2025-11-24T16:00:00Z, 25% overprovisioned)";
        assert_eq!(recommendation(60 * GI, 60, "80Gi").as_deref(), Some(less));
        assert_eq!(recommendation(60 * GI, 59, "80Gi"), None);
        assert_eq!(recommendation(72 * GI, 60, "80Gi"), None);
        let more = "Consider increasing memory from 80Gi to 93Gi (observed peak 84Gi since 2025-11-24T16:00:00Z)";
        assert_eq!(recommendation(84 * GI, 0, "80Gi").as_deref(), Some(more));
        // Rounded up, it would be the current value.
        assert_eq!(recommendation(GI * 107 / 10, 60, "12Gi"), None);
        let small = recommendation(100 << 20, 60, "1Gi").unwrap();
        assert!(small.starts_with("Consider reducing memory from 1Gi to 110Mi (observed peak 100Mi since"), "{small}");
    }
}
