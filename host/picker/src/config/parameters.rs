//! Parses the parameters of each type of plugin.

use super::{
    ConfigError, Decider, Filter, LabelRequirement, LabelRule, OutputEstimate, Picker, PickerKind, PrefixAffinity, ScorerKind, data_layer,
    fields::{Fields, Shown},
    flow_control,
    plugin_types::PluginType,
    plugins::{Context, Instance},
    prefix_parameters, scheduling, session,
};
use crate::flow::{Fairness, Order};
use std::{collections::BTreeSet, time::Duration};

/// The maximum number of values in a filter.
const MAX_VALUES: usize = 1_000;

/// The types of producers that a plugin may name without a declaration.
pub(super) const PREFIX_PRODUCERS: [&str; 3] =
    ["approx-prefix-cache-producer", "precise-prefix-cache-producer", "burst-prefix-cache-producer"];
pub(super) const LOAD_PRODUCERS: [&str; 1] = ["inflight-load-producer"];
const LATENCY_PRODUCERS: [&str; 1] = ["predicted-latency-producer"];

/// The label with the range of context lengths.
const CONTEXT_LENGTH_LABEL: &str = "llm-d.ai/context-length-range";

pub(super) fn read(kind: PluginType, parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Instance, ConfigError> {
    let scorer = match kind {
        PluginType::RoleFilter(role) => return Ok(unused(parameters, context, Instance::Filter(Filter::Role(role)))),
        PluginType::LabelSelectorFilter => return label_selector(parameters),
        PluginType::ByLabelFilter => return by_label(parameters),
        PluginType::PrefixAffinityFilter => return prefix_affinity(parameters, context),
        PluginType::QueueScorer => return Ok(unused(parameters, context, Instance::Scorer(ScorerKind::Queue))),
        PluginType::RunningRequestsScorer => return Ok(unused(parameters, context, Instance::Scorer(ScorerKind::RunningRequests))),
        PluginType::KvCacheScorer => return Ok(unused(parameters, context, Instance::Scorer(ScorerKind::KvCacheUtilization))),
        PluginType::LoraScorer => return Ok(unused(parameters, context, Instance::Scorer(ScorerKind::LoraAffinity))),
        PluginType::PrefixScorer => prefix_scorer(parameters, context)?,
        PluginType::PrecisePrefixScorer => {
            context.remark("Pointsman scores by the prefixes that it has sent, and reads no KV events: use `prefix-cache-scorer`");
            // All of its parameters are about KV events.
            parameters.ignore_all();
            ScorerKind::PREFIX_CACHE
        }
        PluginType::TokenLoadScorer => token_load(parameters, context)?,
        PluginType::ActiveRequestScorer => active_request(parameters, context)?,
        PluginType::LoadAwareScorer => ScorerKind::LoadAware { threshold: parameters.positive("threshold")?.unwrap_or(128) },
        PluginType::SessionScorer => return session::scorer(parameters, context),
        PluginType::NoHitLruScorer => no_hit_lru(parameters, context)?,
        PluginType::ContextLength => return context_length(parameters),
        PluginType::Picker(kind) => return picker(kind, parameters),
        PluginType::SingleHandler
        | PluginType::DataParallelHandler
        | PluginType::DisaggregatedHandler
        | PluginType::PrefillDecodeHandler => {
            return scheduling::read_handler(kind, parameters, context).map(Instance::Handler);
        }
        PluginType::PrefixDecider => return prefix_decider(parameters),
        PluginType::AlwaysDecider => return Ok(unused(parameters, context, Instance::Decider(Decider::Always))),
        PluginType::Parser(parser) => return Ok(unused(parameters, context, Instance::Parser(parser))),
        _ => return read_other(kind, parameters, context),
    };
    Ok(Instance::Scorer(scorer))
}

/// Plugins that don't pick endpoints themselves.
fn read_other(kind: PluginType, parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Instance, ConfigError> {
    Ok(match kind {
        PluginType::Fairness(fairness) => unused(parameters, context, Instance::Fairness(fairness)),
        PluginType::ProgramFairness => {
            context.remark(
                "Pointsman has no such strategies, and gives each flow the same share of tokens: use `round-robin-fairness-policy`",
            );
            parameters.ignore_all();
            Instance::Fairness(Fairness::Work)
        }
        PluginType::FirstCome => unused(parameters, context, Instance::Order { order: Order::FirstCome, slo: false }),
        PluginType::ExpiryOrder => unused(parameters, context, Instance::Order { order: Order::Deadline, slo: false }),
        PluginType::SloOrder => unused(parameters, context, Instance::Order { order: Order::Deadline, slo: true }),
        PluginType::UsageLimit => Instance::UsageLimit(parameters.number_within("threshold", 0.0, f64::MAX)?.unwrap_or(1.0)),
        PluginType::UtilizationDetector => Instance::Detector(flow_control::utilization(parameters)?),
        PluginType::ConcurrencyDetector => Instance::Detector(flow_control::concurrency(parameters, context)?),
        PluginType::MetricsSource => Instance::MetricsSource(data_layer::source(parameters)?),
        PluginType::MetricsExtractor => Instance::MetricsExtractor(data_layer::extractor(parameters, context)?),
        PluginType::PrefixProducer => {
            context.prefix = Some(prefix_parameters::producer(parameters, context)?);
            Instance::Producer
        }
        PluginType::LoadProducer => load_producer(parameters, context)?,
        PluginType::TokenProducer => {
            if !parameters.is_empty() {
                context.remark("Pointsman estimates four bytes of a prompt as a token, and asks no tokenizer: remove `parameters`");
                parameters.ignore_all();
            }
            Instance::Producer
        }
        // Read earlier, because scorers refer to them.
        _ => Instance::Producer,
    })
}

/// Adds a remark about parameters of a plugin that has none. Upstream ignores them.
fn unused(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>, instance: Instance) -> Instance {
    if !parameters.is_empty() {
        context.remark("it takes no parameters: remove `parameters`");
        parameters.ignore_all();
    }
    instance
}

fn label_selector(parameters: &mut Fields<'_>) -> Result<Instance, ConfigError> {
    let mut requirements = Vec::new();
    if let Some(labels) = parameters.fields("matchLabels")? {
        for (key, value) in labels.entries() {
            let values = BTreeSet::from([value.text()?.to_owned()]);
            requirements.push(LabelRequirement { key: key.to_owned(), rule: LabelRule::In(values) });
        }
    }
    for part in parameters.list("matchExpressions", MAX_VALUES)? {
        let mut expression = part.fields()?;
        let (_, key) = expression.required_text("key")?;
        let (part, operator) = expression.required_text("operator")?;
        let values = texts(&mut expression, "values")?;
        let rule = match (operator, values.is_empty()) {
            ("In", false) => LabelRule::In(values),
            ("NotIn", false) => LabelRule::NotIn(values),
            ("Exists", true) => LabelRule::Exists,
            ("DoesNotExist", true) => LabelRule::DoesNotExist,
            ("In" | "NotIn", true) => return Err(part.error(format_args!("is `{operator}` without `values`: set them"))),
            ("Exists" | "DoesNotExist", false) => return Err(part.error(format_args!("is `{operator}` with `values`: remove them"))),
            _ => return Err(part.error(format_args!("is `{}`: set `In`, `NotIn`, `Exists` or `DoesNotExist`", Shown(operator)))),
        };
        requirements.push(LabelRequirement { key: key.to_owned(), rule });
        expression.finish()?;
    }
    Ok(Instance::Filter(Filter::Labels(requirements)))
}

/// The old plugin `by-label`.
fn by_label(parameters: &mut Fields<'_>) -> Result<Instance, ConfigError> {
    let (_, key) = parameters.required_text("label")?;
    let values = texts(parameters, "validValues")?;
    let rule = match (parameters.boolean("allowsNoLabel")?.unwrap_or(false), values.is_empty()) {
        (false, true) => return Err(parameters.missing("validValues")),
        (false, false) => LabelRule::In(values),
        (true, _) => LabelRule::InOrAbsent(values),
    };
    Ok(Instance::Filter(Filter::Labels(vec![LabelRequirement { key: key.to_owned(), rule }])))
}

fn texts(fields: &mut Fields<'_>, name: &'static str) -> Result<BTreeSet<String>, ConfigError> {
    fields.list(name, MAX_VALUES)?.iter().map(|part| part.text().map(ToOwned::to_owned)).collect()
}

fn prefix_affinity(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Instance, ConfigError> {
    let default = PrefixAffinity::default();
    let threshold = parameters.number_within("affinityThreshold", 0.0, 1.0)?.unwrap_or(default.threshold);
    let exploration = parameters.number_within("explorationProbability", 0.0, 1.0)?.unwrap_or(default.exploration);
    let max_penalty = match parameters.number_within("maxTTFTPenaltyMs", 0.0, 1e12)? {
        None => default.max_penalty,
        Some(milliseconds) => (milliseconds > 0.0).then(|| Duration::from_secs_f64(milliseconds / 1e3)),
    };
    let source = parameters.get("ttftSource");
    let throughput = parameters.get("peakPrefillThroughput");
    let prefill_throughput =
        throughput.as_ref().map(|part| part.number_within(0.0, f64::MAX)).transpose()?.unwrap_or(default.prefill_throughput);
    context.prefix_producer = context.producer(parameters, "prefixMatchInfoProducerName", &PREFIX_PRODUCERS)?.map(ToOwned::to_owned);
    context.producer(parameters, "inFlightLoadProducerName", &LOAD_PRODUCERS)?;
    context.producer(parameters, "latencyPredictionInfoProducerName", &LATENCY_PRODUCERS)?;
    if let Some(part) = source {
        match part.text()? {
            "prefillThroughput" | "" => {}
            "latencyPredictor" => {
                context.remark(
                    "Pointsman predicts no latencies, and no profile that runs uses this filter: set `ttftSource: prefillThroughput`",
                );
                return Ok(Instance::LostFilter);
            }
            other => return Err(part.error(format_args!("is `{}`: set `prefillThroughput`", Shown(other)))),
        }
    }
    if let (Some(part), Some(_)) = (throughput, max_penalty)
        && prefill_throughput <= 0.0
    {
        return Err(part.error("is 0: set a number above 0, or set `maxTTFTPenaltyMs: 0`"));
    }
    Ok(Instance::Filter(Filter::PrefixAffinity(PrefixAffinity { threshold, exploration, max_penalty, prefill_throughput })))
}

fn prefix_scorer(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<ScorerKind, ConfigError> {
    context.prefix_producer = context.producer(parameters, "prefixMatchInfoProducerName", &PREFIX_PRODUCERS)?.map(ToOwned::to_owned);
    let match_length_weight = parameters.number_within("matchLengthWeight", 0.0, 1.0)?.unwrap_or(0.0);
    let match_length_scale = parameters.at_least("matchLengthScaleTokens", u32::from(match_length_weight > 0.0))?.unwrap_or(8_192);
    context.prefix = prefix_parameters::old_scorer(parameters, context)?;
    Ok(ScorerKind::PrefixCache { match_length_weight, match_length_scale })
}

fn token_load(parameters: &mut Fields<'_>, context: &Context<'_, '_>) -> Result<ScorerKind, ConfigError> {
    context.producer(parameters, "inFlightLoadProducerName", &LOAD_PRODUCERS)?;
    Ok(ScorerKind::TokenLoad { threshold: parameters.positive("queueThresholdTokens")?.unwrap_or(4 << 20) })
}

fn active_request(parameters: &mut Fields<'_>, context: &Context<'_, '_>) -> Result<ScorerKind, ConfigError> {
    context.producer(parameters, "inFlightLoadProducerName", &LOAD_PRODUCERS)?;
    // Upstream also ignores it.
    parameters.text("requestTimeout")?;
    let idle_threshold = parameters.positive("idleThreshold")?.unwrap_or(0);
    let max_busy_score = parameters.number_within("maxBusyScore", 0.0, 1.0)?.unwrap_or(1.0);
    Ok(ScorerKind::ActiveRequest { idle_threshold, max_busy_score })
}

fn no_hit_lru(parameters: &mut Fields<'_>, context: &Context<'_, '_>) -> Result<ScorerKind, ConfigError> {
    context.producer(parameters, "prefixMatchInfoProducerName", &PREFIX_PRODUCERS)?;
    // Upstream also ignores both.
    parameters.text("prefixPluginType")?;
    parameters.text("prefixPluginName")?;
    Ok(ScorerKind::NoHitLru { size: parameters.positive("lruSize")?.unwrap_or(1_024) })
}

fn context_length(parameters: &mut Fields<'_>) -> Result<Instance, ConfigError> {
    let label = match parameters.get("label") {
        Some(part) if part.text()?.is_empty() => return Err(part.error("is empty: set it, or remove it")),
        Some(part) => part.text()?.to_owned(),
        None => CONTEXT_LENGTH_LABEL.to_owned(),
    };
    let scorer = ScorerKind::ContextLength { label: label.clone() };
    let filters = parameters.boolean("enableFiltering")?.unwrap_or(false);
    Ok(if filters { Instance::FilterAndScorer(Filter::ContextLength { label }, scorer) } else { Instance::Scorer(scorer) })
}

fn picker(kind: PickerKind, parameters: &mut Fields<'_>) -> Result<Instance, ConfigError> {
    let wanted = parameters.positive("maxNumOfEndpoints")?.unwrap_or(1);
    Ok(Instance::Picker(Picker { kind, max_endpoints: usize::try_from(wanted).unwrap_or(usize::MAX) }))
}

fn prefix_decider(parameters: &mut Fields<'_>) -> Result<Instance, ConfigError> {
    let prompt_tokens = parameters.at_least("promptTokens", 0)?.unwrap_or(0);
    let uncached_tokens = parameters.at_least("nonCachedTokens", 0)?.unwrap_or(0);
    Ok(Instance::Decider(Decider::PrefixBased { prompt_tokens, uncached_tokens }))
}

fn load_producer(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Instance, ConfigError> {
    context.producer(parameters, "prefixMatchInfoProducerName", &PREFIX_PRODUCERS)?;
    if parameters.boolean("syncCrossReplicaState")? == Some(true) {
        context.remark("Pointsman doesn't share load between its replicas: remove `syncCrossReplicaState`");
    }
    let enabled = parameters.boolean("addEstimatedOutputTokens")?.unwrap_or(false);
    let ratio = parameters.number_within("outputRatio", 0.0, f64::MAX)?.unwrap_or(1.5);
    let max_tokens = parameters.at_least("maxEstimatedOutputTokens", 0)?;
    Ok(Instance::LoadProducer(enabled.then_some(OutputEstimate { ratio, max_tokens })))
}
