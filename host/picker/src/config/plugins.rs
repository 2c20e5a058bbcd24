//! The plugins that a configuration declares.

use super::{
    ConfigError, Decider, Filter, OutputEstimate, Parser, Picker, Place, PrefixSettings, ScorerKind, ScrapeSettings, SessionSource,
    data_layer::ExtractorSettings,
    fields::{Fields, Part, Shown},
    flow_control::DetectorSettings,
    parameters,
    plugin_types::{PluginType, Without},
    reading::Remarks,
    scheduling::Handler,
    session,
};
use crate::flow::{Fairness, Order};
use std::collections::{BTreeMap, BTreeSet};

/// A plugin with its parsed parameters.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) name: String,
    pub(super) place: Place,
    /// Its path and its type, for remarks.
    pub(super) subject: String,
    pub(super) instance: Instance,
    /// Its settings for prefixes, if it has any.
    pub(super) prefix: Option<PrefixSettings>,
    /// The name of the prefix producer that it uses.
    pub(super) prefix_producer: Option<String>,
}

/// The kind of a plugin.
#[derive(Debug)]
pub(super) enum Instance {
    Filter(Filter),
    Scorer(ScorerKind),
    FilterAndScorer(Filter, ScorerKind),
    /// A scorer of a known type whose parameters have no counterpart.
    LostScorer,
    /// A filter of a known type whose parameters have no counterpart.
    LostFilter,
    Picker(Picker),
    Handler(Handler),
    Decider(Decider),
    Parser(Parser),
    Fairness(Fairness),
    Order {
        order: Order,
        slo: bool,
    },
    UsageLimit(f64),
    Detector(DetectorSettings),
    MetricsSource(ScrapeSettings),
    MetricsExtractor(ExtractorSettings),
    LoadProducer(Option<OutputEstimate>),
    /// A producer whose data is available without it, or whose parameters were already read for others.
    Producer,
    Without(Without),
}

/// The context for a plugin's parameters.
#[derive(Debug)]
pub(super) struct Context<'c, 'n> {
    /// The names of all plugins.
    pub(super) names: &'c BTreeSet<&'n str>,
    /// The sources of session identifiers, by the name of their producer.
    pub(super) sessions: &'c BTreeMap<&'n str, SessionSource>,
    pub(super) place: Place,
    pub(super) subject: &'c str,
    pub(super) remarks: &'c mut Remarks,
    pub(super) prefix: Option<PrefixSettings>,
    pub(super) prefix_producer: Option<String>,
}

impl Context<'_, '_> {
    pub(super) fn remark(&mut self, message: impl Into<String>) {
        self.remarks.add(self.place, self.subject, message);
    }

    /// A field with the name of a producer, which must be declared or be the name of a type.
    pub(super) fn producer<'n>(
        &self,
        parameters: &mut Fields<'n>,
        field: &'static str,
        types: &[&str],
    ) -> Result<Option<&'n str>, ConfigError> {
        let Some(part) = parameters.get(field) else { return Ok(None) };
        let name = part.text()?;
        if name.is_empty() || self.names.contains(name) || types.contains(&name) {
            return Ok((!name.is_empty()).then_some(name));
        }
        Err(undeclared(&part, name))
    }
}

/// A plugin whose parameters haven't been parsed.
#[derive(Debug)]
struct Declared<'n> {
    name: &'n str,
    kind: PluginType,
    type_name: &'n str,
    path: String,
    place: Place,
    parameters: Option<Fields<'n>>,
}

/// All plugins, in the order of the text.
#[derive(Debug)]
pub(super) struct Plugins {
    pub(super) list: Vec<Plugin>,
}

impl Plugins {
    pub(super) fn read(parts: Vec<Part<'_>>, remarks: &mut Remarks) -> Result<Self, ConfigError> {
        let mut declared = Vec::new();
        let mut names = BTreeSet::new();
        for part in parts {
            let (path, place) = (part.path.clone(), part.node.place);
            let mut fields = part.fields()?;
            let (part, type_name) = fields.required_text("type")?;
            let name = fields.text("name")?.unwrap_or(type_name);
            if !names.insert(name) {
                return Err(ConfigError::Invalid {
                    place: part.node.place,
                    message: format!("`{path}` has the name `{}`, which another plugin has: set another `name`", Shown(name)),
                });
            }
            let parameters = fields.get("parameters");
            fields.finish()?;
            let kind = PluginType::parse(type_name);
            // The parameters of a plugin without a counterpart aren't read.
            let parameters = if matches!(kind, PluginType::Without(_)) { None } else { parameters.map(Part::fields).transpose()? };
            declared.push(Declared { name, kind, type_name, path, place, parameters });
        }
        let mut sessions = BTreeMap::new();
        for plugin in declared.iter_mut().filter(|plugin| plugin.kind == PluginType::SessionProducer) {
            let parameters = plugin.parameters.take().unwrap_or_else(|| no_parameters(&plugin.path, plugin.place));
            sessions.insert(plugin.name, session::producer(parameters)?);
        }
        let mut list = Vec::new();
        for plugin in declared {
            list.push(plugin.instantiate(&names, &sessions, remarks)?);
        }
        Ok(Self { list })
    }

    pub(super) fn find(&self, name: &str) -> Option<&Plugin> {
        self.list.iter().find(|plugin| plugin.name == name)
    }

    /// The plugin that a reference names.
    pub(super) fn resolve(&self, part: &Part<'_>, name: &str) -> Result<&Plugin, ConfigError> {
        self.find(name).ok_or_else(|| undeclared(part, name))
    }

    /// The settings for prefixes: those of the producer that a scorer names, or else the first.
    pub(super) fn prefix_settings(&self, remarks: &mut Remarks) -> PrefixSettings {
        let preferred = self.list.iter().find_map(|plugin| plugin.prefix_producer.as_deref()).and_then(|name| self.find(name));
        let first = || self.list.iter().find(|plugin| plugin.prefix.is_some());
        let Some(chosen) = preferred.filter(|plugin| plugin.prefix.is_some()).or_else(first) else { return PrefixSettings::default() };
        for plugin in self.list.iter().filter(|plugin| plugin.prefix.is_some() && plugin.prefix != chosen.prefix) {
            let message = format!("Pointsman remembers prefixes once, by the settings of `{}`: remove these", Shown(&chosen.name));
            remarks.add(plugin.place, plugin.subject.as_str(), message);
        }
        chosen.prefix.unwrap_or_default()
    }

    /// The expected output, from the first producer of load.
    pub(super) fn output_estimate(&self, remarks: &mut Remarks) -> Option<OutputEstimate> {
        let mut estimates = self.list.iter().filter_map(|plugin| match plugin.instance {
            Instance::LoadProducer(estimate) => Some((plugin, estimate)),
            _ => None,
        });
        let (chosen, estimate) = estimates.next()?;
        for (plugin, _) in estimates.filter(|(_, other)| *other != estimate) {
            let message = format!("Pointsman counts load once, by the settings of `{}`: remove these", Shown(&chosen.name));
            remarks.add(plugin.place, plugin.subject.as_str(), message);
        }
        estimate
    }
}

impl<'n> Declared<'n> {
    fn instantiate(
        self,
        names: &BTreeSet<&'n str>,
        sessions: &BTreeMap<&'n str, SessionSource>,
        remarks: &mut Remarks,
    ) -> Result<Plugin, ConfigError> {
        let subject = format!("{} {}", self.path, Shown(self.type_name));
        let mut context = Context { names, sessions, place: self.place, subject: &subject, remarks, prefix: None, prefix_producer: None };
        let instance = if let PluginType::Without(without) = self.kind {
            without_counterpart(without, self.type_name, &self.path, &mut context)?;
            Instance::Without(without)
        } else {
            let mut parameters = self.parameters.unwrap_or_else(|| no_parameters(&self.path, self.place));
            let instance = parameters::read(self.kind, &mut parameters, &mut context)?;
            parameters.finish()?;
            instance
        };
        let (prefix, prefix_producer) = (context.prefix, context.prefix_producer);
        Ok(Plugin { name: self.name.to_owned(), place: self.place, subject, instance, prefix, prefix_producer })
    }
}

fn no_parameters<'n>(path: &str, place: Place) -> Fields<'n> {
    Fields::none(place, format!("{path}.parameters"))
}

pub(super) fn undeclared(part: &Part<'_>, name: &str) -> ConfigError {
    part.error(format_args!("names `{}`, which `plugins` doesn't have: add it there, or remove the reference", Shown(name)))
}

/// Adds a remark about a plugin without a counterpart, or rejects it if it restricts the allowed endpoints.
fn without_counterpart(without: Without, type_name: &str, path: &str, context: &mut Context<'_, '_>) -> Result<(), ConfigError> {
    let refuse = |message: &str| {
        let message = format!("`{path}` is `{}`, which has no counterpart: {message}", Shown(type_name));
        Err(ConfigError::Invalid { place: context.place, message })
    };
    let message = match without {
        Without::Screener => return refuse("remove it if requests may go to the endpoints that it excludes"),
        Without::Handler => return refuse("use `single-profile-handler` or `disagg-profile-handler`"),
        Without::Filter => "Pointsman has no counterpart, and no profile that runs uses it: remove it",
        Without::Unknown => "the type is unknown, and Pointsman picks without it: remove it, or fix the type",
        Without::Scorer => "Pointsman has no counterpart, and picks without it: remove it",
        Without::Other => match type_name {
            "precise-prefix-cache-producer" | "burst-prefix-cache-producer" => {
                "Pointsman has no counterpart, and scores by the prefixes that it has sent: remove it"
            }
            "disagg-headers-handler" | "prefill-header-handler" => "Pointsman sets the headers without it: remove it",
            "latency-slo-admitter" | "probabilistic-admitter" => "Pointsman has no counterpart, and admits requests without it: remove it",
            "priority-holdback-policy" | "soft-reflective-ceiling-policy" => {
                "Pointsman has no counterpart, and lets all priorities wait at the same saturation: use `static-usage-limit-policy`"
            }
            _ => "Pointsman has no counterpart, and picks without it: remove it",
        },
    };
    context.remark(message);
    Ok(())
}
