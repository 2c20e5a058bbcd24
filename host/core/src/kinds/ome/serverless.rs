//! The settings of a component that Knative runs: its scaling, and its traffic split.

use super::{
    PlanBuilder, PlanError,
    component::{Annotation, Annotations, ComponentKind, DeployedComponent, NOT_HONOURED, Note, OVERRIDDEN, invalid, refused},
    scaling::{MAX_REPLICAS, METRIC, MIN_REPLICAS, PERCENT_IS, Scaling, TARGET, UTILIZATION, metric_name},
};
use crate::{objects::knative::ScalingRequest, rules::ome_keys::percent, world::ome::Component};
use std::collections::BTreeMap;

/// The prefix of Knative's own annotations.
const KNATIVE: &str = "autoscaling.knative.dev/";

/// Knative's autoscaler for metrics that it doesn't measure itself.
const BY_RESOURCES: &str = "hpa.autoscaling.knative.dev";

/// Alternative names of Knative's annotations.
const OTHER_NAMES: [(&str, &str); 3] =
    [("minScale", "min-scale"), ("maxScale", "max-scale"), ("targetUtilizationPercentage", "target-utilization-percentage")];

/// The settings for Knative, and notes on ignored settings.
struct KnativeSettings<'a> {
    part: ComponentKind,
    told: BTreeMap<String, String>,
    notes: &'a mut Vec<Note>,
}

impl KnativeSettings<'_> {
    /// Sets a value in order of precedence: a field of the service, Knative's own annotation, OME's annotation, the default.
    fn settle(&mut self, name: &str, (field, of_field): (&str, Option<String>), ome: Option<(String, Annotation)>, other: Option<String>) {
        let theirs = self.told.remove(name);
        let part = self.part.name();
        if let (Some(said), Some(theirs)) = (&of_field, &theirs)
            && said != theirs
        {
            let text = format!("spec.{part}.{field} is {said}, so the annotation {KNATIVE}{name} ({theirs}) is ignored.");
            self.notes.push((OVERRIDDEN, text));
        }
        if let (None, Some(theirs), Some((said, annotation))) = (&of_field, &theirs, &ome)
            && said != theirs
        {
            let text = format!("The annotation {KNATIVE}{name} is {theirs}, so {} ({said}) is ignored.", annotation.place);
            self.notes.push((OVERRIDDEN, text));
        }
        if let Some(value) = of_field.or(theirs).or(ome.map(|(said, _)| said)).or(other) {
            self.told.insert(name.to_owned(), value);
        }
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.told.get(name)?.trim().parse().ok()
    }
}

/// Knative's scaling. Its own annotations are used unchanged, unless a field of the service takes precedence.
pub(super) fn knative(
    part: ComponentKind,
    (user, runtime): (&Component, &Component),
    annotations: &Annotations<'_>,
    (least, (most, most_is_said)): (i64, (i64, bool)),
    notes: &mut Vec<Note>,
) -> Result<Scaling, Box<PlanError>> {
    let mut told = annotations.beginning(KNATIVE);
    for (other, name) in OTHER_NAMES {
        if let Some(value) = told.remove(other) {
            told.entry(name.to_owned()).or_insert(value);
        }
    }
    let mut telling = KnativeSettings { part, told, notes };
    let (ours, theirs) = (&user.settings, &runtime.settings);
    let noted = |key: &str, value: i64| annotations.get(key).map(|annotation| (value.to_string(), annotation));
    let field = ours.min_replicas.map(|least| least.to_string());
    telling.settle("min-scale", ("minReplicas", field), noted(MIN_REPLICAS, least), Some(least.to_string()));
    let field = ours.max_replicas.filter(|most| *most > 0).map(|most| most.to_string());
    // A derived maximum is raised to the other numbers that are set for Knative.
    let begin = [telling.number("min-scale"), telling.number("activation-scale"), telling.number("initial-scale")];
    let most = if most_is_said { most } else { begin.into_iter().flatten().fold(most, i64::max) };
    telling.settle("max-scale", ("maxReplicas", field), noted(MAX_REPLICAS, most).filter(|_| most_is_said), Some(most.to_string()));
    if let (Some(least), Some(most)) = (telling.number("min-scale"), telling.number("max-scale"))
        && most > 0
        && most < least
    {
        return Err(invalid(format!(
            "The {} has the minimum {least} and the maximum {most} of replicas: lower minReplicas or raise maxReplicas.",
            part.name()
        )));
    }
    let asleep = telling.number("min-scale") == Some(0);

    let ome = metric_name(part, (user, runtime), annotations, METRIC, telling.notes)?;
    let of_field = ours.scale_metric.and(ome).map(str::to_owned);
    let by_annotation =
        annotations.get(METRIC).filter(|_| of_field.is_none()).zip(ome).map(|(annotation, metric)| (metric.to_owned(), annotation));
    let by_runtime = of_field.is_none() && by_annotation.is_none();
    let by_runtime = by_runtime && !telling.told.contains_key("metric");
    telling.settle("metric", ("scaleMetric", of_field), by_annotation, ome.map(str::to_owned));
    let metric = telling.told.get("metric").cloned();
    let by_resources = matches!(metric.as_deref(), Some("cpu" | "memory"));
    if metric.as_deref() == Some("gpu-utilization") {
        return Err(refused(format!("Knative can't scale the {} by gpu-utilization: set concurrency, rps, cpu or memory.", part.name())));
    }
    if by_resources && asleep && by_runtime {
        telling.told.remove("metric");
        let text = format!("The runtime's scaleMetric of the {} is ignored: it can't be measured at zero replicas.", part.name());
        telling.notes.push((NOT_HONOURED, text));
    } else if by_resources && asleep {
        return Err(refused(format!(
            "The {} scales to zero, where its CPU and memory can't be measured: set concurrency or rps.",
            part.name()
        )));
    } else if by_resources {
        telling.told.entry("class".to_owned()).or_insert_with(|| BY_RESOURCES.to_owned());
    }

    let noted = annotations.read(TARGET, percent, PERCENT_IS)?.map(|(target, annotation)| (target.to_string(), annotation));
    let share = annotations.read(UTILIZATION, |text| percent(text).filter(|share| *share <= 100), "a whole number from 1 to 100")?;
    let share = share.map(|(share, _)| share.to_string());
    let other = theirs.scale_target.map(|target| target.to_string()).or(share.clone().filter(|_| by_resources));
    telling.settle("target", ("scaleTarget", ours.scale_target.map(|target| target.to_string())), noted, other);
    if let Some(share) = share.filter(|_| !by_resources) {
        telling.told.entry("target-utilization-percentage".to_owned()).or_insert(share);
    }
    Ok(Scaling::Knative(telling.told.into_iter().map(|(name, value)| (format!("{KNATIVE}{name}"), value)).collect()))
}

impl PlanBuilder<'_> {
    /// The traffic share of the latest revision, and the previously rolled out revision, which keeps the rest. None if both are the same:
    /// there is nothing to split.
    pub(super) fn canary(&self, component: &DeployedComponent, revision: &str) -> Option<(i64, String)> {
        let percent = component.either(|side| side.settings.canary_traffic_percent).unwrap_or(100);
        let before = self.before["components"][component.part.name()]["latestRolledoutRevision"].as_str()?;
        let live = self.snapshot.child(component.workload.0, &component.workload.1)?;
        let serving = live.observed.serving.as_ref()?;
        let gets = |name: &str| serving.traffic.iter().any(|traffic| traffic.revision_name == name);
        // Traffic can only go to revisions that Knative knows: after a change of mode, the name is one of ours.
        let known = serving.ready.as_deref() == Some(before) || gets(before);
        // Until Knative has created a revision for the last write, its latest one isn't ours.
        let settled = live.observed.current_generation() && serving.configured && live.observed.revision.as_deref() == Some(revision);
        if percent < 100 {
            let newer = !settled || serving.created.as_deref() != Some(before);
            return (known && newer).then(|| (percent, before.to_owned()));
        }
        // The latest revision's share goes to the latest ready one. If that is a canary that is being withdrawn, it must not get all
        // traffic while its replacement starts.
        let shared =
            serving.traffic.iter().any(|traffic| traffic.revision_name == before && !traffic.latest_revision && traffic.percent > 0);
        let works = settled && serving.created == serving.ready;
        (shared && !works).then(|| (0, before.to_owned()))
    }
}

/// The limits for requests to a replica.
pub(super) fn scaling_request(component: &DeployedComponent) -> ScalingRequest {
    ScalingRequest {
        concurrency: component.either(|side| side.settings.container_concurrency).filter(|most| *most > 0),
        seconds: component.either(|side| side.settings.timeout_seconds),
    }
}
