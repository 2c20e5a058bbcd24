//! Reads the document as a whole.

use super::{
    ConfigError, MAX_PLUGINS, Parser, PickerConfig, Place, Remark, data_layer,
    fields::{Fields, Part, Shown},
    flow_control,
    plugins::{Instance, Plugins, undeclared},
    scheduling,
    yaml::Node,
};

/// The current group of upstream's configuration, and the old one.
const GROUPS: [&str; 2] = ["llm-d.ai", "inference.networking.x-k8s.io"];
const VERSION: &str = "v1alpha1";
const KIND: &str = "EndpointPickerConfig";

/// The parts without a counterpart.
#[derive(Debug, Default)]
pub(super) struct Remarks(Vec<Remark>);

impl Remarks {
    pub(super) fn add(&mut self, place: Place, subject: impl Into<String>, message: impl Into<String>) {
        self.0.push(Remark { place, subject: subject.into(), message: message.into() });
    }

    fn sorted(mut self) -> Vec<Remark> {
        self.0.sort_by_key(|remark| remark.place);
        self.0
    }
}

pub(super) fn read(document: &Node) -> Result<(PickerConfig, Vec<Remark>), ConfigError> {
    let mut fields = Part { node: document, path: String::new() }.fields().map_err(|_| ConfigError::Invalid {
        place: document.place,
        message: format!("this is {}: write an `{KIND}`", document.value.kind()),
    })?;
    check_kind(&mut fields)?;
    let mut remarks = Remarks::default();
    let plugins = Plugins::read(fields.list("plugins", MAX_PLUGINS)?, &mut remarks)?;
    let gate = read_feature_gates(&mut fields, &mut remarks)?;
    let (flow_control, saturation) = flow_control::read(&mut fields, gate, &plugins, &mut remarks)?;
    let mut scrape = data_layer::read(&mut fields, &plugins, &mut remarks)?;
    scrape.staleness = saturation.staleness.unwrap_or(scrape.staleness);
    let config = PickerConfig {
        profiles: scheduling::read(&mut fields, &plugins, &mut remarks)?,
        parsers: read_parsers(&mut fields, &plugins)?,
        flow_control,
        saturation: saturation.detector,
        scrape,
        prefix: plugins.prefix_settings(&mut remarks),
        output_estimate: plugins.output_estimate(&mut remarks),
    };
    fields.finish()?;
    Ok((config, remarks.sorted()))
}

fn check_kind(fields: &mut Fields<'_>) -> Result<(), ConfigError> {
    let (part, version) = fields.required_text("apiVersion")?;
    if !GROUPS.iter().any(|group| version.strip_prefix(group).is_some_and(|rest| rest.strip_prefix('/') == Some(VERSION))) {
        return Err(part.error(format_args!("is `{}`: set `{}/{VERSION}`", Shown(version), GROUPS[0])));
    }
    let (part, kind) = fields.required_text("kind")?;
    if kind == KIND { Ok(()) } else { Err(part.error(format_args!("is `{}`: set `{KIND}`", Shown(kind)))) }
}

/// Whether flow control is enabled, which is the only gate with a counterpart.
fn read_feature_gates(fields: &mut Fields<'_>, remarks: &mut Remarks) -> Result<bool, ConfigError> {
    let mut flow_control = false;
    for part in fields.list("featureGates", MAX_PLUGINS)? {
        let text = part.text()?;
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        // As Go parses booleans, but case-insensitive.
        let enabled = match value.map(|value| value.trim().to_ascii_lowercase()).as_deref() {
            None | Some("true" | "t" | "1") => true,
            Some("false" | "f" | "0") => false,
            Some(_) => return Err(part.error(format_args!("is `{}`: set `{}=true` or `{1}=false`", Shown(text), Shown(name)))),
        };
        if name == "flowControl" {
            flow_control = enabled;
        } else {
            let subject = format!("{} {}", part.path, Shown(name));
            remarks.add(part.node.place, subject, "Pointsman has no such feature gate: remove it");
        }
    }
    Ok(flow_control)
}

fn read_parsers(fields: &mut Fields<'_>, plugins: &Plugins) -> Result<Vec<Parser>, ConfigError> {
    let mut parsers = Vec::new();
    let old = fields.fields("parser")?;
    let mut references = Vec::new();
    if let Some(mut handler) = fields.fields("requestHandler")? {
        for part in handler.list("parsers", MAX_PLUGINS)? {
            references.push(part.fields()?);
        }
        handler.finish()?;
    }
    if references.is_empty() {
        references.extend(old);
    }
    for mut reference in references {
        let (part, name) = reference.required_text("pluginRef")?;
        let declared = plugins.find(name);
        // Parsers may be used without a declaration.
        let parser = match declared.map(|plugin| &plugin.instance) {
            Some(Instance::Parser(parser)) => Some(*parser),
            Some(Instance::Without(_)) => None,
            Some(_) => {
                return Err(part.error(format_args!("names `{}`, which isn't a parser: name one, such as `openai-parser`", Shown(name))));
            }
            None => Some(Parser::parse(name).ok_or_else(|| undeclared(&part, name))?),
        };
        parsers.extend(parser);
        reference.finish()?;
    }
    Ok(if parsers.is_empty() { Parser::DEFAULT.to_vec() } else { parsers })
}
