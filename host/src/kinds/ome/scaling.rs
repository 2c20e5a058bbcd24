//! How many replicas a component has, and who says so.

use super::{
    Making, Stop,
    component::{Annotation, Annotations, Mode, Part, invalid},
};
use crate::{
    objects::scaling::Query,
    world::{
        ome::Component,
        resource::{HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT},
    },
};
use pointsman_crds::ome::component::{KedaConfig, ScaleMetric};

const MIN_REPLICAS: &str = "ome.io/min-replicas";
const MAX_REPLICAS: &str = "ome.io/max-replicas";
const UTILIZATION: &str = "ome.io/target-utilization";
const CLASS: &str = "ome.io/autoscalerClass";
const ENABLE_KEDA: &str = "autoscaling.ome.io/enable-keda";
const METRIC: &str = "autoscaling.ome.io/metric";
const TARGET: &str = "autoscaling.ome.io/target";

/// The most replicas where nobody says a number, and the share of CPU that is aimed at.
const MOST: i64 = 3;
const PERCENT: i64 = 80;

/// What one replica is worth to KEDA where nobody says it.
const THRESHOLD: &str = "10";

/// Who says how many replicas there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// We: so many.
    Fixed(i64),
    /// A HorizontalPodAutoscaler: at least, at most, by what, at how many percent.
    Horizontal(i64, i64, &'static str, i64),
    /// KEDA: at least, at most, by which query.
    Keda(i64, i64, Query),
    /// Somebody else, from so many on.
    External(i64),
}

/// Notes that a field of the spec and an annotation say different things.
fn conflict<T: PartialEq + std::fmt::Display>(
    notes: &mut Vec<String>,
    part: Part,
    field: &str,
    said: Option<T>,
    annotation: Option<&(T, Annotation)>,
) {
    if let (Some(said), Some((value, annotation))) = (said, annotation)
        && said != *value
    {
        notes.push(format!("spec.{}.{field} is {said}, so {} ({value}) counts for nothing.", part.name(), annotation.place));
    }
}

impl Making<'_> {
    /// Who says it, and whether the most that there may be was derived.
    pub(super) fn scaling(
        &self,
        part: Part,
        mode: Mode,
        (user, runtime): (&Component, &Component),
        annotations: &Annotations<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Scaling, bool), Box<Stop>> {
        let whole = |text: &str| text.trim().parse::<i64>().ok().filter(|number| (0..=i64::from(i32::MAX)).contains(number));
        let (ours, theirs) = (&user.settings, &runtime.settings);
        let some = |number: Option<i32>| number.map(i64::from);
        // 0 counts as absent, as upstream's clients write it.
        let most_of = |number: Option<i32>| some(number).filter(|most| *most > 0);

        let noted = annotations.read(MIN_REPLICAS, whole, "a whole number from 0 on")?;
        conflict(notes, part, "minReplicas", some(ours.min_replicas), noted.as_ref());
        let least = some(ours.min_replicas).or(noted.map(|(least, _)| least)).or(some(theirs.min_replicas)).unwrap_or(1);
        let noted = annotations.read(MAX_REPLICAS, whole, "a whole number from 0 on")?;
        conflict(notes, part, "maxReplicas", most_of(ours.max_replicas), noted.as_ref());
        let most = most_of(ours.max_replicas).or(noted.map(|(most, _)| most).filter(|most| *most > 0)).or(most_of(theirs.max_replicas));
        if let Some(most) = most
            && most < least
        {
            return Err(invalid(format!(
                "The {} is to have at least {least} and at most {most} replicas: lower minReplicas or raise maxReplicas.",
                part.name()
            )));
        }
        let class = annotations.read(
            CLASS,
            |text| ["hpa", "keda", "external"].iter().find(|class| **class == text).copied(),
            "hpa, keda or external",
        )?;
        let class = class.map(|(class, _)| class);
        if class == Some("external") {
            return Ok((Scaling::External(least), false));
        }
        let keda = self.keda(part, (user, runtime), class, annotations, notes)?;
        let live = self.live_replicas(part, mode);
        // Once derived it never falls: else what was scaled down at night couldn't come back in the morning.
        let kept = |resource| {
            let scaler = self.snapshot.child(resource, &format!("{}-{}", self.service.name, part.name()));
            scaler.and_then(|scaler| scaler.observed.derived_most).unwrap_or_default()
        };
        let ceiling = |resource| most.unwrap_or_else(|| MOST.max(least).max(live).max(kept(resource)));
        if let Some(query) = keda {
            return Ok((Scaling::Keda(least, ceiling(&SCALED_OBJECT), query), most.is_none()));
        }
        if least == 0 {
            return Err(invalid(format!(
                "The {} is to have 0 replicas at the least, which takes KEDA or the mode Serverless: give 1, or set kedaConfig.enableKeda.",
                part.name()
            )));
        }
        // A group of nodes is scaled only where a range is asked for: another replica is another group of GPUs.
        let ranged = most.is_some_and(|most| most > least);
        if most == Some(least) || (matches!(mode, Mode::MultiNode(_)) && !ranged) {
            return Ok((Scaling::Fixed(least), false));
        }
        let (metric, percent) = metric(part, (user, runtime), annotations, notes)?;
        Ok((Scaling::Horizontal(least, ceiling(&HORIZONTAL_POD_AUTOSCALER), metric, percent), most.is_none()))
    }

    /// The replicas that there are, whoever says so.
    fn live_replicas(&self, part: Part, mode: Mode) -> i64 {
        let (resource, name) = part.workload(mode, &self.service.name);
        let live = self.snapshot.child(resource, &name);
        live.and_then(|child| child.observed.replicas).unwrap_or_default()
    }

    /// KEDA's query, if KEDA scales.
    fn keda(
        &self,
        part: Part,
        (user, runtime): (&Component, &Component),
        class: Option<&str>,
        annotations: &Annotations<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Option<Query>, Box<Stop>> {
        let none = KedaConfig::default();
        let (ours, theirs) = (user.settings.keda_config.as_ref().unwrap_or(&none), runtime.settings.keda_config.as_ref().unwrap_or(&none));
        // A router isn't what the service's own kedaConfig speaks of: it has no model to count requests of.
        let common = if part == Part::Router { &none } else { &self.service.keda };
        let layers = [ours, common, theirs];
        let said = ours.enable_keda.or(common.enable_keda);
        let noted = annotations.read(ENABLE_KEDA, |text| text.parse::<bool>().ok(), "true or false")?;
        conflict(notes, part, "kedaConfig.enableKeda", said, noted.as_ref());
        let by_class = class.map(|class| class == "keda");
        let enabled = said.or(noted.map(|(enabled, _)| enabled)).or(by_class).or(theirs.enable_keda).unwrap_or_default();
        if !enabled {
            return Ok(None);
        }
        let text = |field: fn(&KedaConfig) -> &Option<String>| {
            layers.iter().find_map(|layer| field(layer).as_ref().filter(|text| !text.is_empty())).cloned()
        };
        let missing = |field: &str| {
            invalid(format!("KEDA is to scale the {}, and kedaConfig.{field} is missing in the service and in the runtime.", part.name()))
        };
        let server = text(|keda| &keda.prom_server_address).ok_or_else(|| missing("promServerAddress"))?;
        let query = text(|keda| &keda.custom_prom_query).ok_or_else(|| missing("customPromQuery"))?;
        let threshold = text(|keda| &keda.scaling_threshold).unwrap_or_else(|| THRESHOLD.to_owned());
        if threshold.parse::<f64>().is_ok_and(|number| number.is_finite() && number > 0.0) {
            let operator = text(|keda| &keda.scaling_operator);
            Ok(Some(Query { server, query: turned(operator.as_deref(), query, &threshold, part)?, threshold }))
        } else {
            Err(invalid(format!("kedaConfig.scalingThreshold of the {} is {threshold:?}: it must be a number above 0.", part.name())))
        }
    }
}

/// KEDA gives more replicas to a value that grows. Where few is what asks for more, the query is mirrored at the threshold.
fn turned(operator: Option<&str>, query: String, threshold: &str, part: Part) -> Result<String, Box<Stop>> {
    match operator {
        None | Some("GreaterThanOrEqual" | "GreaterThan") => Ok(query),
        Some("LessThanOrEqual" | "LessThan") => Ok(format!("2 * {threshold} - ({query})")),
        Some(other) => Err(invalid(format!(
            "kedaConfig.scalingOperator of the {} is {other:?}: it must be GreaterThanOrEqual, GreaterThan, LessThanOrEqual or LessThan.",
            part.name()
        ))),
    }
}

/// What a HorizontalPodAutoscaler watches, and at how many percent.
fn metric(
    part: Part,
    (user, runtime): (&Component, &Component),
    annotations: &Annotations<'_>,
    notes: &mut Vec<String>,
) -> Result<(&'static str, i64), Box<Stop>> {
    let (ours, theirs) = (&user.settings, &runtime.settings);
    let name = |metric: ScaleMetric| match metric {
        ScaleMetric::Cpu => "cpu",
        ScaleMetric::Memory => "memory",
        ScaleMetric::Concurrency => "concurrency",
        ScaleMetric::Rps => "rps",
    };
    let known = ["cpu", "memory", "concurrency", "rps", "gpu-utilization"];
    let noted = annotations.read(
        METRIC,
        |text| known.iter().find(|metric| **metric == text).copied(),
        "cpu, memory, concurrency, rps or gpu-utilization",
    )?;
    conflict(notes, part, "scaleMetric", ours.scale_metric.map(name), noted.as_ref());
    let metric = ours.scale_metric.map(name).or(noted.map(|(metric, _)| metric)).or(theirs.scale_metric.map(name)).unwrap_or("cpu");
    let metric = match metric {
        "cpu" => "cpu",
        "memory" => "memory",
        other => {
            return Err(invalid(format!(
                "The {} is to be scaled by {other}, which a HorizontalPodAutoscaler can't see: give cpu or memory, or let KEDA scale by a \
                 query (kedaConfig).",
                part.name()
            )));
        }
    };
    let percent = |text: &str| text.trim().parse::<i64>().ok().filter(|percent| *percent > 0);
    let what = "a whole number above 0, in percent";
    let target = annotations.read(TARGET, percent, what)?;
    let utilization = annotations.read(UTILIZATION, percent, what)?;
    conflict(notes, part, "scaleTarget", ours.scale_target.map(i64::from), target.as_ref().or(utilization.as_ref()));
    let noted = target.or(utilization).map(|(percent, _)| percent);
    let percent = ours.scale_target.map(i64::from).or(noted).or(theirs.scale_target.map(i64::from)).unwrap_or(PERCENT);
    if percent < 1 {
        return Err(invalid(format!("scaleTarget of the {} is {percent}: it must be {what}.", part.name())));
    }
    Ok((metric, percent))
}
