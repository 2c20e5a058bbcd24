//! The scaling of a component: its number of replicas, and which controller sets it.

use super::{
    PlanBuilder, PlanError,
    component::{Annotation, Annotations, ComponentKind, Mode, Note, OVERRIDDEN, invalid, refused},
    serverless,
};
use crate::{
    objects::scaling::Query,
    resource::{HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT},
    rules::ome_keys::{self, percent, replicas},
    world::ome::Component,
};
use pointsman_crds::ome::component::{KedaConfig, ScaleMetric};
use std::collections::BTreeMap;

pub(super) const MIN_REPLICAS: &str = ome_keys::MIN_REPLICAS.key;
pub(super) const MAX_REPLICAS: &str = ome_keys::MAX_REPLICAS.key;
pub(super) const UTILIZATION: &str = ome_keys::UTILIZATION.key;
const CLASS: &str = ome_keys::AUTOSCALER_CLASS.key;
const ENABLE_KEDA: &str = ome_keys::ENABLE_KEDA.key;
pub(super) const METRIC: &str = ome_keys::METRIC.key;
pub(super) const TARGET: &str = ome_keys::TARGET.key;

/// The default maximum number of replicas, and the default CPU target in percent.
const DEFAULT_MAX_REPLICAS: i64 = 3;
const PERCENT: i64 = 80;

/// KEDA's default threshold per replica.
const THRESHOLD: &str = "10";

/// How the number of replicas is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// By us, to this number.
    Fixed(i64),
    /// By a HorizontalPodAutoscaler: minimum, maximum, metric, target in percent.
    Horizontal(i64, i64, &'static str, i64),
    /// By KEDA: minimum, maximum, query.
    Keda(i64, i64, Query),
    /// By another controller, with this initial number.
    External(i64),
    /// By Knative, with these annotations of its revisions.
    Knative(BTreeMap<String, String>),
}

impl Scaling {
    /// The maximum number of replicas.
    pub(super) fn most(&self) -> i64 {
        match self {
            Self::Fixed(most) | Self::External(most) | Self::Horizontal(_, most, ..) | Self::Keda(_, most, _) => *most,
            // Knative reads 0 and a missing value as no limit.
            Self::Knative(told) => {
                let most = told.get("autoscaling.knative.dev/max-scale").and_then(|most| most.parse().ok());
                most.filter(|most| *most > 0).unwrap_or(i64::MAX)
            }
        }
    }
}

/// Notes that a field of the spec takes precedence over a different annotation.
pub(super) fn conflict<T: PartialEq + std::fmt::Display>(
    notes: &mut Vec<Note>,
    part: ComponentKind,
    field: &str,
    said: Option<T>,
    annotation: Option<&(T, Annotation)>,
) {
    if let (Some(said), Some((value, annotation))) = (said, annotation)
        && said != *value
    {
        let text = format!("spec.{}.{field} is {said}, so {} ({value}) is ignored.", part.name(), annotation.place);
        notes.push((OVERRIDDEN, text));
    }
}

/// The minimum number of replicas.
pub(super) fn least(user: &Component, runtime: &Component, annotations: &Annotations<'_>) -> Result<i64, Box<PlanError>> {
    let noted = annotations.read(MIN_REPLICAS, replicas, &ome_keys::MIN_REPLICAS.what())?.map(|(least, _)| least);
    let (ours, theirs) = (user.settings.min_replicas, runtime.settings.min_replicas);
    Ok(ours.map(i64::from).or(noted).or(theirs.map(i64::from)).unwrap_or(1))
}

impl PlanBuilder<'_> {
    /// The scaling, and whether the maximum was derived. `least` is the minimum number of replicas.
    pub(super) fn scaling(
        &self,
        part: ComponentKind,
        (mode, (least, wants_keda)): (Mode, (i64, bool)),
        (user, runtime): (&Component, &Component),
        annotations: &Annotations<'_>,
        notes: &mut Vec<Note>,
    ) -> Result<(Scaling, bool), Box<PlanError>> {
        let (ours, theirs) = (&user.settings, &runtime.settings);
        let some = |number: Option<i32>| number.map(i64::from);
        // 0 counts as absent: upstream's clients write it.
        let most_of = |number: Option<i32>| some(number).filter(|most| *most > 0);

        let noted = annotations.read(MIN_REPLICAS, replicas, &ome_keys::MIN_REPLICAS.what())?;
        conflict(notes, part, "minReplicas", some(ours.min_replicas), noted.as_ref());
        let noted = annotations.read(MAX_REPLICAS, replicas, &ome_keys::MAX_REPLICAS.what())?;
        conflict(notes, part, "maxReplicas", most_of(ours.max_replicas), noted.as_ref());
        let most = most_of(ours.max_replicas).or(noted.map(|(most, _)| most).filter(|most| *most > 0)).or(most_of(theirs.max_replicas));
        if let Some(most) = most
            && most < least
        {
            return Err(invalid(format!(
                "The {} has the minimum {least} and the maximum {most} of replicas: lower minReplicas or raise maxReplicas.",
                part.name()
            )));
        }
        let class = annotations.read(CLASS, |text| ome_keys::AUTOSCALER_CLASS.word(text), &ome_keys::AUTOSCALER_CLASS.what())?;
        let class = class.map(|(class, _)| class);
        // Invalid values are reported even if nothing uses them.
        metric_name(part, (user, runtime), annotations, METRIC, &mut Vec::new())?;
        for key in [TARGET, UTILIZATION] {
            annotations.read(key, percent, PERCENT_IS)?;
        }
        match mode {
            Mode::Serverless => {
                if class.is_some_and(|class| class != "hpa") || wants_keda {
                    let text = format!(
                        "Knative scales the {} in the mode Serverless, so settings of other autoscalers (kedaConfig, {ENABLE_KEDA}, \
                         {CLASS}) are ignored.",
                        part.name()
                    );
                    notes.push((OVERRIDDEN, text));
                }
                // The current number isn't considered: a derived maximum is always the same.
                let most = (most.unwrap_or_else(|| DEFAULT_MAX_REPLICAS.max(least)), most.is_some());
                return Ok((serverless::knative(part, (user, runtime), annotations, (least, most), notes)?, false));
            }
            Mode::Ray(_) if least != 1 => {
                return Err(refused(format!(
                    "minReplicas of the {} is {least}, but on Ray it has one replica: set 1, create several services, or set the mode \
                     MultiNode.",
                    part.name()
                )));
            }
            Mode::Ray(_) => {
                if most.is_some_and(|most| most > 1) || class.is_some() || wants_keda {
                    notes.push((OVERRIDDEN, format!("On Ray the {} has one replica and isn't scaled.", part.name())));
                }
                return Ok((Scaling::Fixed(1), false));
            }
            Mode::Raw | Mode::MultiNode(_) => {}
        }
        if class == Some("external") {
            return Ok((Scaling::External(least), false));
        }
        let keda = self.keda(part, wants_keda, (user, runtime), annotations, notes)?;
        let live = self.live_replicas(part, mode);
        // A derived maximum never decreases: otherwise a service that was scaled down at night couldn't scale up again in the morning.
        let kept = |resource| {
            let scaler = self.snapshot.child(resource, &format!("{}-{}", self.service.name, part.name()));
            scaler.and_then(|scaler| scaler.observed.derived_most).unwrap_or_default()
        };
        let ceiling = |resource| most.unwrap_or_else(|| DEFAULT_MAX_REPLICAS.max(least).max(live).max(kept(resource)));
        if let Some(query) = keda {
            return Ok((Scaling::Keda(least, ceiling(&SCALED_OBJECT), query), most.is_none()));
        }
        if least == 0 {
            return Err(invalid(format!(
                "minReplicas of the {} is 0, which requires KEDA or the mode Serverless: set 1, or set kedaConfig.enableKeda.",
                part.name()
            )));
        }
        // Groups of nodes are only scaled if a range is requested, because each replica needs another group of GPUs.
        let ranged = most.is_some_and(|most| most > least);
        if most == Some(least) || (matches!(mode, Mode::MultiNode(_)) && !ranged) {
            return Ok((Scaling::Fixed(least), false));
        }
        let (metric, percent) = metric(part, (user, runtime), annotations, notes)?;
        Ok((Scaling::Horizontal(least, ceiling(&HORIZONTAL_POD_AUTOSCALER), metric, percent), most.is_none()))
    }

    /// Whether KEDA is requested by any setting.
    pub(super) fn wants_keda(
        &self,
        part: ComponentKind,
        (user, runtime): (&Component, &Component),
        annotations: &Annotations<'_>,
    ) -> Result<bool, Box<PlanError>> {
        let enabled = |config: Option<&KedaConfig>| config.and_then(|config| config.enable_keda);
        // The service's kedaConfig doesn't apply to a router, which has no model whose requests could be counted.
        let common = Some(&self.service.keda).filter(|_| part != ComponentKind::Router);
        let said = enabled(user.settings.keda_config.as_ref()).or(enabled(common));
        let noted = annotations.read(ENABLE_KEDA, |text| text.parse::<bool>().ok(), "true or false")?.map(|(enabled, _)| enabled);
        let by_class = annotations.get(CLASS).map(|class| class.value == "keda");
        Ok(said.or(noted).or(by_class).or(enabled(runtime.settings.keda_config.as_ref())).unwrap_or_default())
    }

    /// The current number of replicas, regardless of who set it.
    fn live_replicas(&self, part: ComponentKind, mode: Mode) -> i64 {
        let (resource, name) = part.workload(mode, &self.service.name);
        let live = self.snapshot.child(resource, &name);
        live.and_then(|child| child.observed.replicas).unwrap_or_default()
    }

    /// KEDA's query, if KEDA scales.
    fn keda(
        &self,
        part: ComponentKind,
        wanted: bool,
        (user, runtime): (&Component, &Component),
        annotations: &Annotations<'_>,
        notes: &mut Vec<Note>,
    ) -> Result<Option<Query>, Box<PlanError>> {
        let none = KedaConfig::default();
        let (ours, theirs) = (user.settings.keda_config.as_ref().unwrap_or(&none), runtime.settings.keda_config.as_ref().unwrap_or(&none));
        // The service's kedaConfig doesn't apply to a router, which has no model whose requests could be counted.
        let common = if part == ComponentKind::Router { &none } else { &self.service.keda };
        let layers = [ours, common, theirs];
        let said = ours.enable_keda.or(common.enable_keda);
        let noted = annotations.read(ENABLE_KEDA, |text| text.parse::<bool>().ok(), "true or false")?;
        conflict(notes, part, "kedaConfig.enableKeda", said, noted.as_ref());
        if !wanted {
            return Ok(None);
        }
        let text = |field: fn(&KedaConfig) -> &Option<String>| {
            layers.iter().find_map(|layer| field(layer).as_ref().filter(|text| !text.is_empty())).cloned()
        };
        let missing = |field: &str| {
            invalid(format!(
                "KEDA scales the {}, but kedaConfig.{field} is missing in the service and in the runtime: set it.",
                part.name()
            ))
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

/// KEDA adds replicas if a value rises. If a low value must add replicas, the query is mirrored at the threshold.
fn turned(operator: Option<&str>, query: String, threshold: &str, part: ComponentKind) -> Result<String, Box<PlanError>> {
    match operator {
        None | Some("GreaterThanOrEqual" | "GreaterThan") => Ok(query),
        Some("LessThanOrEqual" | "LessThan") => Ok(format!("2 * {threshold} - ({query})")),
        Some(other) => Err(invalid(format!(
            "kedaConfig.scalingOperator of the {} is {other:?}: it must be GreaterThanOrEqual, GreaterThan, LessThanOrEqual or LessThan.",
            part.name()
        ))),
    }
}

/// The requested metric, from the field or an annotation.
pub(super) fn metric_name(
    part: ComponentKind,
    (user, runtime): (&Component, &Component),
    annotations: &Annotations<'_>,
    annotation: &str,
    notes: &mut Vec<Note>,
) -> Result<Option<&'static str>, Box<PlanError>> {
    let name = |metric: ScaleMetric| match metric {
        ScaleMetric::Cpu => "cpu",
        ScaleMetric::Memory => "memory",
        ScaleMetric::Concurrency => "concurrency",
        ScaleMetric::Rps => "rps",
    };
    let noted = annotations.read(annotation, |text| ome_keys::METRIC.word(text), &ome_keys::METRIC.what())?;
    let (ours, theirs) = (user.settings.scale_metric.map(name), runtime.settings.scale_metric.map(name));
    conflict(notes, part, "scaleMetric", ours, noted.as_ref());
    Ok(ours.or(noted.map(|(metric, _)| metric)).or(theirs))
}

/// The description of the values that [`percent`] accepts.
pub(super) const PERCENT_IS: &str = "a whole number above 0";

/// The metric of a HorizontalPodAutoscaler, and its target in percent.
fn metric(
    part: ComponentKind,
    (user, runtime): (&Component, &Component),
    annotations: &Annotations<'_>,
    notes: &mut Vec<Note>,
) -> Result<(&'static str, i64), Box<PlanError>> {
    let (ours, theirs) = (&user.settings, &runtime.settings);
    let metric = match metric_name(part, (user, runtime), annotations, METRIC, notes)?.unwrap_or("cpu") {
        "cpu" => "cpu",
        "memory" => "memory",
        other => {
            return Err(invalid(format!(
                "A HorizontalPodAutoscaler can't scale the {} by {other}: set cpu or memory, or let KEDA scale by a query (kedaConfig).",
                part.name()
            )));
        }
    };
    let target = annotations.read(TARGET, percent, PERCENT_IS)?;
    let utilization = annotations.read(UTILIZATION, percent, PERCENT_IS)?;
    conflict(notes, part, "scaleTarget", ours.scale_target.map(i64::from), target.as_ref().or(utilization.as_ref()));
    let noted = target.or(utilization).map(|(percent, _)| percent);
    let share = ours.scale_target.map(i64::from).or(noted).or(theirs.scale_target.map(i64::from)).unwrap_or(PERCENT);
    if share < 1 {
        return Err(invalid(format!("scaleTarget of the {} is {share}: it must be {PERCENT_IS}.", part.name())));
    }
    Ok((metric, share))
}
