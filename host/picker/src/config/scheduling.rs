//! Profiles, and the handler that runs them.

use super::{
    ConfigError, Decider, Filter, MAX_PLUGINS, MAX_PROFILES, Picker, Place, Profile, Profiles, Scorer,
    fields::{Fields, Part, Shown},
    plugin_types::{PluginType, Without},
    plugins::{Context, Instance, Plugin, Plugins},
    reading::Remarks,
};
use std::collections::BTreeSet;

/// The maximum weight. With it, the sum of the maximum number of scores is still finite.
const MAX_WEIGHT: f64 = 1e12;

/// The profiles that run.
#[derive(Debug)]
pub(super) enum Handler {
    /// The only one.
    Single,
    /// One per stage.
    Disaggregated(Stages),
}

/// The profile of each stage, by name, and the deciders.
#[derive(Debug)]
pub(super) struct Stages {
    decode: String,
    prefill: String,
    prefill_first: bool,
    decider: Option<Reference>,
}

/// The name of a plugin and its position.
#[derive(Debug)]
struct Reference {
    name: String,
    place: Place,
    path: String,
}

impl Reference {
    fn new(part: &Part<'_>) -> Result<Option<Self>, ConfigError> {
        let name = part.text()?;
        Ok((!name.is_empty()).then(|| Self { name: name.to_owned(), place: part.node.place, path: part.path.clone() }))
    }

    fn error(&self, message: &str) -> ConfigError {
        ConfigError::Invalid { place: self.place, message: format!("`{}` names `{}`, {message}", self.path, Shown(&self.name)) }
    }
}

pub(super) fn read_handler(kind: PluginType, parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Handler, ConfigError> {
    match kind {
        PluginType::DisaggregatedHandler => read_stages(parameters, context).map(Handler::Disaggregated),
        PluginType::PrefillDecodeHandler => read_old_stages(parameters, context).map(Handler::Disaggregated),
        PluginType::DataParallelHandler => {
            parameters.integer("primaryPort")?;
            context.remark(
                "Pointsman sends requests to the port of the rank, without `x-data-parallel-host-port`: use `single-profile-handler`",
            );
            Ok(Handler::Single)
        }
        _ => {
            if !parameters.is_empty() {
                context.remark("it takes no parameters: remove `parameters`");
                parameters.ignore_all();
            }
            Ok(Handler::Single)
        }
    }
}

fn read_stages(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Stages, ConfigError> {
    const OLD: [&str; 6] =
        ["decodeProfile", "prefillProfile", "encodeProfile", "prefillDeciderPluginName", "encodeDeciderPluginName", "deciderPluginName"];
    let is_old = parameters.names().any(|name| OLD.contains(&name));
    let order = parameters.get("stageOrder");
    let prefill_first =
        match order.as_ref().map(Part::text).transpose()?.unwrap_or_default().to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "" | "decodefirst" | "decode" => false,
            "prefillfirst" | "prefill" => true,
            _ => {
                return order.map_or_else(
                    || Err(parameters.missing("stageOrder")),
                    |part| Err(part.error("is neither `decode-first` nor `prefill-first`: set one of them")),
                );
            }
        };
    // There are two forms of the fields; a configuration may use only one.
    let (decode, prefill, decider, encode_decider);
    if is_old {
        decode = parameters.text("decodeProfile")?;
        prefill = parameters.text("prefillProfile")?;
        parameters.text("encodeProfile")?;
        encode_decider = parameters.get("encodeDeciderPluginName");
        let oldest = parameters.get("deciderPluginName");
        decider = parameters.get("prefillDeciderPluginName").or(oldest);
    } else {
        let mut profiles = parameters.fields("profiles")?;
        decode = profiles.as_mut().map(|fields| fields.text("decode")).transpose()?.flatten();
        prefill = profiles.as_mut().map(|fields| fields.text("prefill")).transpose()?.flatten();
        profiles.as_mut().map(|fields| fields.text("encode")).transpose()?;
        profiles.map(Fields::finish).transpose()?;
        let mut deciders = parameters.fields("deciders")?;
        decider = deciders.as_mut().and_then(|fields| fields.get("prefill"));
        encode_decider = deciders.as_mut().and_then(|fields| fields.get("encode"));
        deciders.map(Fields::finish).transpose()?;
    }
    let decider = decider.as_ref().map(Reference::new).transpose()?.flatten();
    if let Some(decider) = decider.as_ref().filter(|_| prefill_first) {
        return Err(decider.error("but with `stageOrder: prefill-first` no decider is asked: remove it"));
    }
    if let Some(encode) = encode_decider {
        let path = encode.path.clone();
        context.remarks.add(encode.node.place, path, "Pointsman has no encode stage, and lets other endpoints encode: remove it");
    }
    Ok(Stages { decode: decode.unwrap_or("decode").to_owned(), prefill: prefill.unwrap_or("prefill").to_owned(), prefill_first, decider })
}

/// The old plugin `pd-profile-handler`.
fn read_old_stages(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Stages, ConfigError> {
    let decode = parameters.text("decodeProfile")?.unwrap_or("decode").to_owned();
    let prefill = parameters.text("prefillProfile")?.unwrap_or("prefill").to_owned();
    // Upstream also ignores both.
    parameters.text("prefixPluginType")?;
    parameters.text("prefixPluginName")?;
    context.prefix_producer =
        context.producer(parameters, "prefixMatchInfoProducerName", &super::parameters::PREFIX_PRODUCERS)?.map(ToOwned::to_owned);
    if parameters.integer("primaryPort")?.is_some_and(|port| port != 0) {
        context.remark("Pointsman sends requests to the port of the rank, without `x-data-parallel-host-port`: remove `primaryPort`");
    }
    let (place, path) = (parameters.place, format!("{}.deciderPluginName", parameters.path));
    let decider = match parameters.get("deciderPluginName") {
        Some(part) => Reference::new(&part)?.ok_or_else(|| part.error("is empty: set it, or remove it"))?,
        None => Reference { name: "prefix-based-pd-decider".to_owned(), place, path },
    };
    Ok(Stages { decode, prefill, prefill_first: false, decider: Some(decider) })
}

/// A profile whose references are resolved.
#[derive(Debug)]
struct Declared<'p> {
    name: String,
    place: Place,
    path: String,
    references: Vec<Resolved<'p>>,
}

#[derive(Debug)]
struct Resolved<'p> {
    place: Place,
    path: String,
    plugin: &'p Plugin,
    weight: Option<f64>,
}

pub(super) fn read(fields: &mut Fields<'_>, plugins: &Plugins, remarks: &mut Remarks) -> Result<Profiles, ConfigError> {
    let mut declared = Vec::new();
    let mut names = BTreeSet::new();
    let place = fields.get("schedulingProfiles").map_or(fields.place, |part| part.node.place);
    for part in fields.list("schedulingProfiles", MAX_PROFILES)? {
        let (path, place) = (part.path.clone(), part.node.place);
        let mut profile = part.fields()?;
        let (part, name) = profile.required_text("name")?;
        if !names.insert(name) {
            return Err(part.error(format_args!("is `{}`, as of another profile: set another name", Shown(name))));
        }
        let mut references = Vec::new();
        for part in profile.list("plugins", MAX_PLUGINS)? {
            references.push(read_reference(part, plugins)?);
        }
        profile.finish()?;
        declared.push(Declared { name: name.to_owned(), place, path, references });
    }
    if declared.is_empty() {
        declared.push(default_profile(plugins));
    }
    let mut handlers = plugins.list.iter().filter_map(|plugin| match &plugin.instance {
        Instance::Handler(handler) => Some((plugin, handler)),
        _ => None,
    });
    let handler = handlers.next().map(|(_, handler)| handler);
    if let Some((plugin, _)) = handlers.next() {
        let message = format!("`{}` is a second profile handler: remove one", plugin.subject);
        return Err(ConfigError::Invalid { place: plugin.place, message });
    }
    match handler {
        Some(Handler::Disaggregated(stages)) => disaggregated(declared, place, stages, plugins, remarks),
        Some(Handler::Single) | None => {
            if let Some(second) = declared.get(1) {
                let message =
                    format!("`{}` is a second profile, and only one runs: add `disagg-profile-handler`, or remove a profile", second.path);
                return Err(ConfigError::Invalid { place: second.place, message });
            }
            let profiles = declared.first().map(|profile| profile.build(plugins, remarks));
            profiles.transpose().map(|profile| profile.map_or_else(|| super::PickerConfig::default().profiles, Profiles::Single))
        }
    }
}

fn read_reference<'p>(part: Part<'_>, plugins: &'p Plugins) -> Result<Resolved<'p>, ConfigError> {
    let (place, path) = (part.node.place, part.path.clone());
    let mut fields = part.fields()?;
    let (part, name) = fields.required_text("pluginRef")?;
    let plugin = plugins.resolve(&part, name)?;
    let weight = fields.number_within("weight", 0.0, MAX_WEIGHT)?;
    fields.finish()?;
    Ok(Resolved { place, path, plugin, weight })
}

/// Without profiles, there is one with all filters, scorers and pickers.
fn default_profile(plugins: &Plugins) -> Declared<'_> {
    let takes_part = |plugin: &&Plugin| match &plugin.instance {
        Instance::Filter(_)
        | Instance::Scorer(_)
        | Instance::FilterAndScorer(..)
        | Instance::LostFilter
        | Instance::Picker(_)
        | Instance::Detector(_) => true,
        Instance::Without(without) => matches!(without, Without::Filter | Without::Unknown),
        _ => false,
    };
    let resolved = |plugin: &'_ Plugin| (plugin.place, plugin.subject.split(' ').next().unwrap_or_default().to_owned());
    let references = plugins.list.iter().filter(takes_part).map(|plugin| {
        let (place, path) = resolved(plugin);
        Resolved { place, path, plugin, weight: None }
    });
    Declared {
        name: "default".to_owned(),
        place: Place::default(),
        path: "schedulingProfiles".to_owned(),
        references: references.collect(),
    }
}

fn disaggregated(
    declared: Vec<Declared<'_>>,
    place: Place,
    stages: &Stages,
    plugins: &Plugins,
    remarks: &mut Remarks,
) -> Result<Profiles, ConfigError> {
    let decider = match &stages.decider {
        // The order matters only to plugins without a counterpart, except that no decider is asked if prefill is first.
        None => stages.prefill_first.then_some(Decider::Always),
        Some(reference) => match plugins.find(&reference.name).map(|plugin| &plugin.instance) {
            Some(Instance::Decider(decider)) => Some(*decider),
            Some(_) => return Err(reference.error("which isn't a decider of prefilling: name one, such as `prefix-based-pd-decider`")),
            None => return Err(reference.error("which `plugins` doesn't have: add it there, or name another decider")),
        },
    };
    let (mut decode, mut prefill) = (None, None);
    for profile in declared {
        if profile.name == stages.decode {
            decode = Some(profile.build(plugins, remarks)?);
        } else if profile.name == stages.prefill && decider.is_some() {
            prefill = Some(profile.build(plugins, remarks)?);
        } else {
            let subject = format!("{} {}", profile.path, Shown(&profile.name));
            let message = if profile.name == stages.prefill {
                "it doesn't run, because the profile handler has no decider: set `deciders.prefill`, or remove it"
            } else {
                "it doesn't run, because Pointsman runs only those that decode and prefill: remove it"
            };
            remarks.add(profile.place, subject, message);
        }
    }
    let Some(decode) = decode else {
        let message = format!("`schedulingProfiles` has no `{}`, which the profile handler runs: add it", Shown(&stages.decode));
        return Err(ConfigError::Invalid { place, message });
    };
    match (prefill, decider) {
        (Some(prefill), Some(decider)) => Ok(Profiles::Disaggregated { decode, prefill, decider }),
        (None, Some(_)) => {
            let message = format!("no endpoint prefills for another, because there is no profile `{}`: add it", Shown(&stages.prefill));
            remarks.add(place, "schedulingProfiles", message);
            Ok(Profiles::Single(decode))
        }
        (_, None) => Ok(Profiles::Single(decode)),
    }
}

impl Declared<'_> {
    fn build(&self, plugins: &Plugins, remarks: &mut Remarks) -> Result<Profile, ConfigError> {
        let (mut filters, mut scorers, mut picker) = (Vec::new(), Vec::new(), None);
        for reference in &self.references {
            let weighted = |kind| Scorer { kind, weight: reference.weight.unwrap_or(1.0) };
            let mut is_scorer = false;
            match &reference.plugin.instance {
                Instance::Filter(filter) => filters.push(filter.clone()),
                Instance::Detector(settings) => filters.push(Filter::Unsaturated(settings.filter)),
                Instance::Scorer(scorer) => {
                    is_scorer = true;
                    scorers.push(weighted(scorer.clone()));
                }
                Instance::FilterAndScorer(filter, scorer) => {
                    is_scorer = true;
                    filters.push(filter.clone());
                    scorers.push(weighted(scorer.clone()));
                }
                Instance::Picker(_) if picker.is_some() => {
                    let message = format!("`{}` is a second picker of its profile: remove one", reference.path);
                    return Err(ConfigError::Invalid { place: reference.place, message });
                }
                Instance::Picker(found) => picker = Some(*found),
                Instance::LostFilter | Instance::Without(Without::Filter | Without::Unknown) => return Err(reference.refuse()),
                // The plugin already has a remark.
                Instance::LostScorer | Instance::Without(_) => is_scorer = true,
                _ => remarks.add(reference.place, reference.subject(), "it has no effect in a profile: remove it there"),
            }
            if reference.weight.is_some() && !is_scorer {
                remarks.add(reference.place, reference.subject(), "only scorers have a weight: remove `weight`");
            }
        }
        let picker = picker.unwrap_or_else(|| self.default_picker(plugins, remarks));
        Ok(Profile { name: self.name.clone(), filters, scorers, picker })
    }

    /// A profile without a picker uses one that the configuration declares.
    fn default_picker(&self, plugins: &Plugins, remarks: &mut Remarks) -> Picker {
        let mut pickers = plugins.list.iter().filter_map(|plugin| match plugin.instance {
            Instance::Picker(picker) => Some((plugin, picker)),
            _ => None,
        });
        let Some((plugin, picker)) = pickers.next() else { return Picker::default() };
        if pickers.next().is_some() {
            let subject = format!("{} {}", self.path, Shown(&self.name));
            remarks.add(self.place, subject, format!("it names no picker, and gets `{}`: add the one that you want", Shown(&plugin.name)));
        }
        picker
    }
}

impl Resolved<'_> {
    fn subject(&self) -> String {
        format!("{} {}", self.path, Shown(&self.plugin.name))
    }

    /// If a filter weren't applied, requests could go to endpoints that it forbids.
    fn refuse(&self) -> ConfigError {
        let what = if matches!(self.plugin.instance, Instance::Without(Without::Unknown)) {
            "is of an unknown type and may be a filter"
        } else {
            "is a filter without counterpart"
        };
        let (path, name) = (&self.path, Shown(&self.plugin.name));
        ConfigError::Invalid {
            place: self.place,
            message: format!("`{path}` {name} {what}: remove it if requests may go to the endpoints that it excludes"),
        }
    }
}
