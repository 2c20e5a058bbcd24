//! The settings for the metrics of endpoints.

use super::{
    ConfigError, MAX_PLUGINS, ScrapeSettings,
    fields::{Fields, Part, Shown},
    plugins::{Context, Instance, Plugin, Plugins},
    reading::Remarks,
};
use crate::engine_metrics::Engine;

/// The settings of the extractor.
#[derive(Clone, Debug)]
pub(super) struct ExtractorSettings {
    engine_label: Option<String>,
    default_engine: Engine,
}

/// `metrics-data-source`.
pub(super) fn source(parameters: &mut Fields<'_>) -> Result<ScrapeSettings, ConfigError> {
    let default = ScrapeSettings::default();
    let https = match parameters.get("scheme") {
        Some(part) => match part.text()? {
            "http" => false,
            "https" => true,
            other => return Err(part.error(format_args!("is `{}`: set `http` or `https`", Shown(other)))),
        },
        None => default.https,
    };
    let port = match parameters.get("port") {
        Some(part) => {
            let port = part.integer()?;
            let valid = u16::try_from(port).ok().filter(|port| *port > 0);
            Some(valid.ok_or_else(|| part.error(format_args!("is {port}: set a port from 1 to 65535")))?)
        }
        None => None,
    };
    let interval = match parameters.get("interval") {
        Some(part) if !part.text()?.is_empty() => Some(part.duration()?).filter(|interval| !interval.is_zero()),
        _ => None,
    };
    let certificate = parameters.text("clientCertPath")?;
    let key = parameters.text("clientKeyPath")?;
    let client_files = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.to_owned(), key.to_owned())),
        (None, None) => None,
        (Some(_), None) => return Err(parameters.missing("clientKeyPath")),
        (None, Some(_)) => return Err(parameters.missing("clientCertPath")),
    };
    Ok(ScrapeSettings {
        https,
        path: parameters.text("path")?.map_or(default.path, ToOwned::to_owned),
        port,
        verify: parameters.boolean("insecureSkipVerify")?.map_or(default.verify, |skip| !skip),
        ca_file: parameters.text("caCertPath")?.map(ToOwned::to_owned),
        client_files,
        interval: interval.unwrap_or(default.interval),
        ..ScrapeSettings::default()
    })
}

/// `core-metrics-extractor`.
pub(super) fn extractor(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<ExtractorSettings, ConfigError> {
    let engine_label = parameters.text("engineLabelKey")?.map(ToOwned::to_owned);
    let names_metrics = parameters.names().any(|name| name == "engineConfigs" || name.ends_with("Spec"));
    if names_metrics {
        let engines = Engine::ALL.map(Engine::as_str).join(", ");
        context.remark(format!("Pointsman reads the metrics that engines have by default ({engines}), under no other names: remove them"));
    }
    let default_engine = match parameters.get("defaultEngine") {
        Some(part) => match (part.text()?, Engine::parse(part.text()?)) {
            (_, Some(engine)) => engine,
            ("", None) => Engine::Vllm,
            // An engine that `engineConfigs` describes; there is a remark about that field.
            _ if names_metrics => Engine::Vllm,
            (other, None) => {
                return Err(part.error(format_args!("is `{}`: set one of {}", Shown(other), Engine::ALL.map(Engine::as_str).join(", "))));
            }
        },
        None => Engine::Vllm,
    };
    if names_metrics {
        parameters.ignore_all();
    }
    Ok(ExtractorSettings { engine_label, default_engine })
}

/// The section `dataLayer`, formerly `data`.
pub(super) fn read(fields: &mut Fields<'_>, plugins: &Plugins, remarks: &mut Remarks) -> Result<ScrapeSettings, ConfigError> {
    let old = fields.get("data");
    let mut found = Sources::default();
    if let Some(part) = fields.get("dataLayer").or(old) {
        found = read_section(part.fields()?, plugins, remarks)?;
    }
    let first = |matching: fn(&Plugin) -> bool| plugins.list.iter().find(|plugin| matching(plugin));
    let source = found.source.or_else(|| first(|plugin| matches!(plugin.instance, Instance::MetricsSource(_))));
    let extractor = found.extractor.or_else(|| first(|plugin| matches!(plugin.instance, Instance::MetricsExtractor(_))));
    let mut scrape = match source.map(|plugin| &plugin.instance) {
        Some(Instance::MetricsSource(scrape)) => scrape.clone(),
        _ => ScrapeSettings::default(),
    };
    if let Some(Instance::MetricsExtractor(settings)) = extractor.map(|plugin| &plugin.instance) {
        scrape.engine_label.clone_from(&settings.engine_label);
        scrape.default_engine = settings.default_engine;
    }
    Ok(scrape)
}

/// The plugins for metrics in a section.
#[derive(Debug, Default)]
struct Sources<'p> {
    source: Option<&'p Plugin>,
    extractor: Option<&'p Plugin>,
}

fn read_section<'p>(mut section: Fields<'_>, plugins: &'p Plugins, remarks: &mut Remarks) -> Result<Sources<'p>, ConfigError> {
    let mut found = Sources::default();
    for part in section.list("sources", MAX_PLUGINS)? {
        let mut source = part.fields()?;
        let (part, name) = source.required_text("pluginRef")?;
        let plugin = plugins.resolve(&part, name)?;
        let mut extractors = Vec::new();
        for part in source.list("extractors", MAX_PLUGINS)? {
            let mut extractor = part.fields()?;
            let (part, name) = extractor.required_text("pluginRef")?;
            extractors.push(plugins.resolve(&part, name)?);
            extractor.finish()?;
        }
        source.finish()?;
        if !matches!(plugin.instance, Instance::MetricsSource(_)) {
            // A plugin without a counterpart already has a remark.
            continue;
        }
        if found.source.is_some() {
            remarks.add(part.node.place, part.path, "Pointsman reads metrics from one source, the first: remove the others");
            continue;
        }
        found.source = Some(plugin);
        found.extractor = extractors.into_iter().find(|plugin| matches!(plugin.instance, Instance::MetricsExtractor(_)));
    }
    if let Some(part) = section.get("injectDefaults")
        && !part.boolean()?
        && found.source.is_none()
    {
        remarks.add(part.node.place, part.path, "Pointsman reads the metrics of endpoints nevertheless: remove it");
    }
    if let Some(part) = section.get("discovery") {
        return Err(part.error("has no counterpart: remove it if requests may go to the endpoints of the InferencePool"));
    }
    for name in ["peerDiscovery", "crossReplicaSyncerPluginRef", "crossReplicaSyncInterval"] {
        if let Some(Part { node, path }) = section.get(name) {
            remarks.add(node.place, path, "Pointsman shares no state between its replicas: remove it");
        }
    }
    section.finish()?;
    Ok(found)
}
