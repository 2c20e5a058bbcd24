//! The metrics of this host, and their page in the format that the client accepts.
//!
//! A metric is either counted where something happens ([`Reconciles`]), or read from the host's state while the page is written
//! ([`HostState`]).

use crate::{
    leader::Leadership,
    pace::{Pacer, Progress},
};
use pointsman_core::{
    decide::{
        Policies,
        latency::{BUCKETS, Latency},
    },
    point::name as point_name,
};
use pointsman_sandbox::{isolate, sync::locked};
use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
        text::{encode, encode_registry},
    },
    metrics::{
        MetricType, TypedMetric,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
    time::Instant,
};

/// Labels whose names and values are all known at compile time.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The upper bounds of the buckets of a reconcile's duration, in seconds.
const RECONCILE_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// The controller's counts.
#[derive(Debug)]
pub struct Reconciles {
    done: Family<Labels<2>, Counter>,
    seconds: Family<Labels<1>, Histogram>,
    taken_away: Family<Labels<1>, Counter>,
    depth: Family<Labels<1>, Gauge>,
}

impl Default for Reconciles {
    fn default() -> Self {
        let reconciles = Self {
            done: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS)),
            taken_away: Family::default(),
            depth: Family::default(),
        };
        reconciles.depth(0);
        reconciles
    }
}

impl Reconciles {
    /// Counts a reconcile of a subject of a kind.
    pub fn done(&self, kind: &'static str, well: bool, seconds: f64) {
        // A counter that begins at 0 shows its first increase.
        for (result, count) in [("success", well), ("error", !well)] {
            self.done.get_or_create(&[("controller", kind), ("result", result)]).inc_by(count.into());
        }
        self.taken_away.get_or_create(&[("controller", kind)]).inc_by(0);
        self.seconds.get_or_create(&[("controller", kind)]).observe(seconds);
    }

    /// Counts that another writer has removed the condition of a contested subject.
    pub fn taken_away(&self, kind: &'static str) {
        self.taken_away.get_or_create(&[("controller", kind)]).inc();
    }

    /// Sets the number of queued subjects.
    pub fn depth(&self, depth: usize) {
        self.depth.get_or_create(&[("name", "subjects")]).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// Adds these metrics to the page.
    pub fn register(&self, registry: &mut Registry) {
        let Self { done, seconds, taken_away, depth } = self;
        registry.register("controller_runtime_reconcile", "Reconciles, by kind of subject and result", done.clone());
        registry.register("controller_runtime_reconcile_time_seconds", "Duration of a reconcile, by kind of subject", seconds.clone());
        let help = "Reconciles that found the condition Contested of a subject removed by another writer";
        registry.register("pointsman_contested_taken_away", help, taken_away.clone());
        registry.register("workqueue_depth", "Subjects in the queue", depth.clone());
    }
}

/// The state that is read while the page is written.
#[derive(Debug)]
pub struct HostState {
    /// The active policy set, and the number of state changes of each policy set.
    pub policies: Arc<Policies>,
    /// The restarts of pods.
    pub pacer: Arc<Pacer>,
    /// Whether this host is the leader.
    pub leadership: Leadership,
}

impl Collector for HostState {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut page;
        let set = self.policies.active();

        let calls = set.members().iter().flat_map(|member| {
            let (answered, failed) = member.health.counts();
            let count = |outcome, count| ([("plugin", member.name()), ("outcome", outcome)], ConstCounter::new(count));
            [count("answered", answered), count("failed", failed)]
        });
        family(page, "pointsman_policy_calls", "Calls of a plugin under its current settings, by outcome.", calls)?;

        let latencies = set.members().iter().flat_map(|member| {
            let points = member.bound.points.iter();
            points.map(|point| ([("plugin", member.name()), ("point", point_name(*point))], CallDurations(member.health.latency(*point))))
        });
        let help = "Duration of a call of a plugin under its current settings, by policy point, whether it answered or failed.";
        family(page, "pointsman_policy_call_duration_seconds", help, latencies)?;

        let now = Instant::now();
        let quarantined = set.members().iter().map(|member| {
            let (_, for_all) = member.health.quarantines(now);
            ([("plugin", member.name())], ConstGauge::new(u64::from(for_all)))
        });
        let help = "1 while a plugin isn't called because it failed too often, else 0.";
        family(page, "pointsman_policy_quarantined", help, quarantined)?;

        let namespaces = set.members().iter().map(|member| {
            let (namespaces, _) = member.health.quarantines(now);
            ([("plugin", member.name())], ConstGauge::new(u64::try_from(namespaces).unwrap_or(u64::MAX)))
        });
        let help = "Namespaces in which a plugin is quarantined because it failed too often there.";
        family(page, "pointsman_policy_quarantined_namespaces", help, namespaces)?;

        let digest = set.digest().to_string();
        let info = [([("digest", digest.as_str())], ConstGauge::new(1_u64))];
        family(page, "pointsman_policy_set_info", "The digest of the policy set that is active on this host.", info)?;

        let turns = self.policies.turns();
        let turns = turns.iter().map(|(turn, count)| ([("turn", *turn)], ConstCounter::new(*count)));
        let help = "State changes of policy sets, such as nominated, waiting (for an approval), promoted or abandoned. \
            Only the leader counts them.";
        family(page, "pointsman_policy_set_turns", help, turns)?;

        let help = "1 while a policy set waits for an approval, else 0. Only the leader knows.";
        single(page, "pointsman_policy_set_awaits_approval", help, self.policies.awaits_approval().into())?;

        let plugins = set.members().iter().map(|member| {
            let version = member.bound.version.as_deref().unwrap_or_default();
            let labels = [("plugin", member.name()), ("digest", &member.bound.digest), ("version", version)];
            (labels, ConstGauge::new(u64::from(member.missing().is_none())))
        });
        let help = "The digest and version of each plugin in the active policy set; 0 for a plugin that can't be loaded.";
        family(page, "pointsman_policy_plugin_info", help, plugins)?;

        single(page, "pointsman_policy_cached_decisions", "Decisions in the cache.", self.policies.cached() as u64)?;
        let help = "Internal errors, each limited to one subject or request; find them in the log by the number in the subject's message.";
        let errors = ConstCounter::new(isolate::count());
        errors.encode(page.encode_descriptor("pointsman_internal_errors", help, None, errors.metric_type())?)?;
        single(page, "pointsman_leader", "1 on the leader, which alone writes, else 0.", self.leadership.held().into())?;

        let Progress { at_it, waiting, stopped, .. } = self.pacer.progress().borrow().clone();
        let subjects = [("restarting", at_it), ("waiting", waiting)];
        let subjects = subjects.map(|(state, count)| ([("state", state)], ConstGauge::new(count as u64)));
        family(page, "pointsman_pace_subjects", "Subjects whose pods restart now, and those that are queued for a restart.", subjects)?;
        let help = "1 while no further subject may restart its pods because a restart failed or the rollout is paused, else 0.";
        single(page, "pointsman_pace_stopped", help, stopped.is_some().into())
    }
}

/// The duration of a plugin's calls, as a metric.
struct CallDurations<'l>(&'l Latency);

impl EncodeMetric for CallDurations<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let buckets: Vec<(f64, u64)> = BUCKETS.into_iter().chain([f64::INFINITY]).zip(counts).collect();
        encoder.encode_histogram::<NoLabelSet>(self.0.total().as_secs_f64(), counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for CallDurations<'_> {
    const TYPE: MetricType = MetricType::Histogram;
}

/// A metric with labels. The name of a counter is given without `_total`.
pub(crate) fn family<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
    page: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metrics: impl IntoIterator<Item = (L, M)>,
) -> fmt::Result {
    let mut family = page.encode_descriptor(name, help, None, M::TYPE)?;
    metrics.into_iter().try_for_each(|(labels, metric)| metric.encode(family.encode_family(&labels)?))
}

/// The label of all names without their own series.
pub(crate) const OTHERS: &str = "others";

/// The label under which a name is counted: the first `most` names keep their own, so that no client can add series without end.
pub(crate) fn bounded(known: &Mutex<BTreeSet<String>>, name: &str, most: usize) -> String {
    let mut known = locked(known);
    if known.contains(name) || known.len() < most && known.insert(name.to_owned()) { name.to_owned() } else { OTHERS.to_owned() }
}

/// A gauge without labels.
pub(crate) fn single(page: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(page.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// The format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every client reads.
    Prometheus,
}

impl Format {
    /// The best format for what a request accepts.
    pub fn for_accept(accept: &str) -> Self {
        let mut accepted = accept.split(',').filter_map(|range| range.split(';').next());
        if accepted.any(|kind| kind.trim().eq_ignore_ascii_case("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The page's media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// All metrics as they are now.
    pub fn page(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut page = String::new();
        match self {
            Self::OpenMetrics => encode(&mut page, registry)?,
            Self::Prometheus => {
                encode_registry(&mut page, registry)?;
                page = with_totals(&page);
            }
        }
        Ok(page)
    }
}

/// In OpenMetrics the family of a counter is named without `_total`; in Prometheus' own format it is named like its samples.
fn with_totals(page: &str) -> String {
    let counters: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let line = |line: &str| {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|head| {
            let (name, rest) = line.strip_prefix(head)?.split_once(' ')?;
            counters.contains(name).then(|| format!("{head}{name}_total {rest}\n"))
        });
        described.unwrap_or_else(|| format!("{line}\n"))
    };
    page.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn page(format: Format) -> String {
        let reconciles = Reconciles::default();
        reconciles.done("InferenceService", true, 0.002);
        reconciles.done("InferenceService", true, 60.0);
        let odd: Family<[(&str, String); 1], Gauge> = Family::default();
        odd.get_or_create(&[("text", "x\"} 1\n\\".to_owned())]).set(2);
        let mut registry = Registry::default();
        reconciles.register(&mut registry);
        registry.register("odd", "A label with every character that must be escaped", odd);
        format.page(&registry).unwrap()
    }

    #[test]
    fn both_formats_have_the_same_samples() {
        let (open, classic) = (page(Format::OpenMetrics), page(Format::Prometheus));
        for line in [
            "controller_runtime_reconcile_total{controller=\"InferenceService\",result=\"success\"} 2",
            "controller_runtime_reconcile_total{controller=\"InferenceService\",result=\"error\"} 0",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"0.005\",controller=\"InferenceService\"} 1",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"30.0\",controller=\"InferenceService\"} 1",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"+Inf\",controller=\"InferenceService\"} 2",
            "controller_runtime_reconcile_time_seconds_sum{controller=\"InferenceService\"} 60.002",
            "controller_runtime_reconcile_time_seconds_count{controller=\"InferenceService\"} 2",
            "pointsman_contested_taken_away_total{controller=\"InferenceService\"} 0",
            "workqueue_depth{name=\"subjects\"} 0",
            "odd{text=\"x\\\"} 1\\n\\\\\"} 2",
        ] {
            for page in [&open, &classic] {
                assert!(page.lines().any(|written| written == line), "{line} is not in\n{page}");
            }
        }
    }

    #[test]
    fn calls_are_a_histogram_of_all_buckets_up_to_the_last() {
        #[derive(Debug)]
        struct Plugin(Latency);
        impl Collector for Plugin {
            fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
                family(&mut page, "calls_seconds", "Calls.", [([("plugin", "a")], CallDurations(&self.0))])
            }
        }
        let latency = Latency::default();
        for milliseconds in [1, 7, 2_000] {
            latency.record(Duration::from_millis(milliseconds));
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Plugin(latency)));
        let page = Format::Prometheus.page(&registry).unwrap();
        for line in [
            "# TYPE calls_seconds histogram",
            "calls_seconds_bucket{le=\"0.001\",plugin=\"a\"} 1",
            "calls_seconds_bucket{le=\"0.01\",plugin=\"a\"} 2",
            "calls_seconds_bucket{le=\"1.0\",plugin=\"a\"} 2",
            "calls_seconds_bucket{le=\"+Inf\",plugin=\"a\"} 3",
            "calls_seconds_sum{plugin=\"a\"} 2.008",
            "calls_seconds_count{plugin=\"a\"} 3",
        ] {
            assert!(page.lines().any(|written| written == line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn a_counter_s_family_has_the_name_that_the_format_demands() {
        let (open, classic) = (page(Format::OpenMetrics), page(Format::Prometheus));
        assert!(open.contains("# TYPE controller_runtime_reconcile counter\n") && open.ends_with("\n# EOF\n"), "{open}");
        let head = "# HELP controller_runtime_reconcile_total Reconciles, by kind of subject and result.\n\
            # TYPE controller_runtime_reconcile_total counter\ncontroller_runtime_reconcile_total{";
        assert!(classic.contains(head) && !classic.contains("# EOF"), "{classic}");
        assert!(classic.contains("# TYPE controller_runtime_reconcile_time_seconds histogram\n"), "{classic}");
    }

    #[test]
    fn whoever_asks_for_open_metrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::for_accept(prometheus), Format::OpenMetrics);
        assert_eq!(Format::for_accept("text/plain, application/openmetrics-text"), Format::OpenMetrics);
        for accept in ["", "*/*", "text/plain;version=0.0.4", "application/json"] {
            assert_eq!(Format::for_accept(accept), Format::Prometheus, "{accept}");
        }
    }
}
