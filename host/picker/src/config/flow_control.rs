//! The settings for queueing.

use super::{
    ConfigError, FlowControl, MAX_BANDS,
    fields::{Fields, Part, Shown},
    parameters::LOAD_PRODUCERS,
    plugins::{Context, Instance, Plugin, Plugins, undeclared},
    reading::Remarks,
};
use crate::flow::{BandSettings, Fairness, FlowSettings, Limit, Order, saturation::Detector};
use std::{collections::BTreeMap, time::Duration};

/// Upstream's default detector.
const UTILIZATION_DETECTOR: &str = "utilization-detector";

/// The default band: upstream isn't fair between flows unless a band names a policy.
const DEFAULT_BAND: BandSettings =
    BandSettings { limit: Limit { requests: 5_000, bytes: 1_000_000_000 }, fairness: Fairness::None, order: Order::FirstCome };

/// The settings of a saturation detector.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DetectorSettings {
    pub(super) detector: Detector,
    /// The same with its headroom, as a filter in a profile that names it.
    pub(super) filter: Detector,
    /// The time without a report after which an endpoint is full.
    pub(super) staleness: Option<Duration>,
}

/// `utilization-detector`.
pub(super) fn utilization(parameters: &mut Fields<'_>) -> Result<DetectorSettings, ConfigError> {
    let queue_depth = read_threshold(parameters, "queueDepthThreshold", 5.0)?;
    let kv_usage = match parameters.get("kvCacheUtilThreshold") {
        Some(part) => match part.number_within(0.0, 1.0)? {
            usage if usage > 0.0 => usage,
            _ => return Err(part.error("is 0: set a number above 0, up to 1")),
        },
        None => 0.8,
    };
    let staleness = match parameters.get("metricsStalenessThreshold") {
        Some(part) if part.duration()?.is_zero() => return Err(part.error("is 0: set a duration above 0")),
        Some(part) => Some(part.duration()?),
        None => None,
    };
    let headroom = 1.0 + parameters.number_within("headroom", 0.0, f64::MAX)?.unwrap_or(0.0);
    Ok(DetectorSettings {
        detector: Detector::Utilization { queue_depth, kv_usage },
        filter: Detector::Utilization { queue_depth: queue_depth * headroom, kv_usage: kv_usage * headroom },
        staleness,
    })
}

/// `concurrency-detector`.
pub(super) fn concurrency(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<DetectorSettings, ConfigError> {
    context.producer(parameters, "inFlightLoadProducerName", &LOAD_PRODUCERS)?;
    let max_in_flight = read_threshold(parameters, "maxConcurrency", 100.0)?;
    let headroom = 1.0 + parameters.number_within("headroom", 0.0, f64::MAX)?.unwrap_or(0.0);
    parameters.at_least("maxTokenConcurrency", 1)?;
    if let Some(part) = parameters.get("concurrencyMode") {
        match part.text()? {
            "requests" | "" => {}
            "tokens" | "hybrid" => {
                context.remark(format!(
                    "Pointsman counts requests and not tokens, of which {max_in_flight} fill an endpoint: set `maxConcurrency`"
                ));
            }
            other => return Err(part.error(format_args!("is `{}`: set `requests`", Shown(other)))),
        }
    }
    Ok(DetectorSettings {
        detector: Detector::Concurrency { max_in_flight },
        filter: Detector::Concurrency { max_in_flight: max_in_flight * headroom },
        staleness: None,
    })
}

fn read_threshold(parameters: &mut Fields<'_>, name: &'static str, default: f64) -> Result<f64, ConfigError> {
    match parameters.get(name) {
        Some(part) if part.integer()? < 1 => Err(part.error(format_args!("is {}: set an integer that is at least 1", part.integer()?))),
        Some(part) => part.number(),
        None => Ok(default),
    }
}

/// The section `flowControl`, and `saturationDetector` in its old position.
pub(super) fn read(
    fields: &mut Fields<'_>,
    gate: bool,
    plugins: &Plugins,
    remarks: &mut Remarks,
) -> Result<(Option<FlowControl>, DetectorSettings), ConfigError> {
    let old = fields.fields("saturationDetector")?.map(|section| read_detector(section, plugins)).transpose()?;
    let part = fields.get("flowControl");
    let place = part.as_ref().map(|part| part.node.place);
    let mut section = match part {
        Some(part) => part.fields()?,
        None => Fields::none(fields.place, "flowControl".to_owned()),
    };
    let own = section.fields("saturationDetector")?.map(|section| read_detector(section, plugins)).transpose()?;
    let is_set = section.names().any(|name| name != "saturationDetector");
    let default = || plugins.find(UTILIZATION_DETECTOR).and_then(detector_settings);
    let detector = own.or(old).flatten().or_else(default).unwrap_or_default();
    let flow_control = read_section(&mut section, plugins, remarks)?;
    section.finish()?;
    if let Some(place) = place.filter(|_| is_set && !gate) {
        let message =
            "it has no effect except for `saturationDetector`, because the feature gate is off: add `flowControl` to `featureGates`";
        remarks.add(place, "flowControl", message);
    }
    Ok((gate.then_some(flow_control), detector))
}

fn detector_settings(plugin: &Plugin) -> Option<DetectorSettings> {
    if let Instance::Detector(settings) = plugin.instance { Some(settings) } else { None }
}

/// The detector that a section names. Before there were detectors, the section itself had the thresholds.
fn read_detector(mut section: Fields<'_>, plugins: &Plugins) -> Result<Option<DetectorSettings>, ConfigError> {
    let settings = match section.get("pluginRef") {
        None if section.names().any(|name| name != "pluginRef") => Some(utilization(&mut section)?),
        None => None,
        Some(part) => match part.text()? {
            "" => None,
            name => match plugins.find(name) {
                None if name == UTILIZATION_DETECTOR => None,
                None => return Err(undeclared(&part, name)),
                Some(Plugin { instance: Instance::Without(_), .. }) => None,
                Some(plugin) => Some(detector_settings(plugin).ok_or_else(|| {
                    part.error(format_args!(
                        "names `{}`, which isn't a saturation detector: name one, such as `{UTILIZATION_DETECTOR}`",
                        Shown(name)
                    ))
                })?),
            },
        },
    };
    section.finish()?;
    Ok(settings)
}

fn read_section(section: &mut Fields<'_>, plugins: &Plugins, remarks: &mut Remarks) -> Result<FlowControl, ConfigError> {
    let mut slo_deadlines = false;
    let limit = read_limit(section, Limit::NONE)?;
    let request_ttl = section.duration("defaultRequestTTL")?;
    let no_endpoint_ttl = section.duration("noEndpointRequestTTL")?.or(request_ttl);
    let mut band = |part: Part<'_>| read_band(part, plugins, remarks, &mut slo_deadlines);
    let default_band = section.get("defaultPriorityBand").map(&mut band).transpose()?.map_or(DEFAULT_BAND, |(_, band)| band);
    let negative = section.get("defaultNegativePriorityBand").map(&mut band).transpose()?;
    let default_negative_band = negative.map_or_else(|| default_band.clone(), |(_, band)| band);
    let mut bands = BTreeMap::new();
    for part in section.list("priorityBands", MAX_BANDS)? {
        let here = part.clone();
        let (priority, settings) = band(part)?;
        if bands.insert(priority, settings).is_some() {
            return Err(here.error(format_args!("has the priority {priority} of another band: set another `priority`")));
        }
    }
    let ceiling = match section.get("usageLimitPolicyPluginRef") {
        Some(part) => read_ceiling(&part, plugins)?,
        None => 1.0,
    };
    if let Some(part) = section.get("enableEviction")
        && part.boolean()?
    {
        remarks.add(part.node.place, part.path, "Pointsman ends no request that an endpoint has: remove it");
    }
    let limited = |ttl: Option<Duration>| Some(ttl.unwrap_or(FlowControl::DEFAULT_TTL)).filter(|ttl| !ttl.is_zero());
    Ok(FlowControl {
        settings: FlowSettings { limit, default_band, default_negative_band, bands },
        request_ttl: limited(request_ttl),
        no_endpoint_ttl: limited(no_endpoint_ttl),
        slo_deadlines,
        ceiling,
    })
}

/// The limits of a section; 0 is treated as absent.
fn read_limit(section: &mut Fields<'_>, default: Limit) -> Result<Limit, ConfigError> {
    let bytes = section.quantity("maxBytes")?.filter(|bytes| *bytes > 0).unwrap_or(default.bytes);
    let requests = section.quantity("maxRequests")?.filter(|requests| *requests > 0);
    Ok(Limit { bytes, requests: requests.map_or(default.requests, |requests| usize::try_from(requests).unwrap_or(usize::MAX)) })
}

fn read_band(
    part: Part<'_>,
    plugins: &Plugins,
    remarks: &mut Remarks,
    slo_deadlines: &mut bool,
) -> Result<(i64, BandSettings), ConfigError> {
    let mut section = part.fields()?;
    let priority = section.integer("priority")?.unwrap_or(0);
    let limit = read_limit(&mut section, DEFAULT_BAND.limit)?;
    let fairness = match section.get("fairnessPolicyRef") {
        Some(part) => read_fairness(&part, plugins)?,
        None => DEFAULT_BAND.fairness,
    };
    let (order, slo) = match section.get("orderingPolicyRef") {
        Some(part) => {
            let (order, slo) = read_order(&part, plugins)?;
            if slo {
                let message = "Pointsman drops a request whose time to first token has passed while it waits: use `edf-ordering-policy` if it mustn't";
                remarks.add(part.node.place, part.path, message);
            }
            (order, slo)
        }
        None => (DEFAULT_BAND.order, false),
    };
    *slo_deadlines |= slo;
    section.finish()?;
    Ok((priority, BandSettings { limit, fairness, order }))
}

fn read_fairness(part: &Part<'_>, plugins: &Plugins) -> Result<Fairness, ConfigError> {
    let name = part.text()?;
    match plugins.find(name).map(|plugin| &plugin.instance) {
        Some(Instance::Fairness(fairness)) => Ok(*fairness),
        Some(Instance::Without(_)) => Ok(DEFAULT_BAND.fairness),
        None if matches!(name, "" | "global-strict-fairness-policy") => Ok(Fairness::None),
        None => Err(undeclared(part, name)),
        Some(_) => Err(part.error(format_args!(
            "names `{}`, which isn't a fairness policy: name one, such as `round-robin-fairness-policy`",
            Shown(name)
        ))),
    }
}

/// The order, and whether it depends on the time to the first token.
fn read_order(part: &Part<'_>, plugins: &Plugins) -> Result<(Order, bool), ConfigError> {
    let name = part.text()?;
    match plugins.find(name).map(|plugin| &plugin.instance) {
        Some(Instance::Order { order, slo }) => Ok((*order, *slo)),
        Some(Instance::Without(_)) => Ok((DEFAULT_BAND.order, false)),
        None if matches!(name, "" | "fcfs-ordering-policy") => Ok((Order::FirstCome, false)),
        None => Err(undeclared(part, name)),
        Some(_) => {
            Err(part
                .error(format_args!("names `{}`, which isn't an ordering policy: name one, such as `fcfs-ordering-policy`", Shown(name))))
        }
    }
}

fn read_ceiling(part: &Part<'_>, plugins: &Plugins) -> Result<f64, ConfigError> {
    let name = part.text()?;
    match plugins.find(name).map(|plugin| &plugin.instance) {
        Some(Instance::UsageLimit(ceiling)) => Ok(*ceiling),
        Some(Instance::Without(_)) => Ok(1.0),
        None if matches!(name, "" | "static-usage-limit-policy") => Ok(1.0),
        None => Err(undeclared(part, name)),
        Some(_) => {
            Err(part
                .error(format_args!("names `{}`, which isn't a usage limit: name one, such as `static-usage-limit-policy`", Shown(name))))
        }
    }
}
