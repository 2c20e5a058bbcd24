//! `pointsman plugin inspect`.

use super::{
    file::{FileArgs, PluginUnderTest},
    none_or,
};
use crate::cli::output::{OutputArgs, pairs};
use anyhow::Result;
use clap::Args;
use pointsman_core::point::{answered, name};
use pointsman_sandbox::{limits::PART, point::describe::FeatureSet};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeSet, process::ExitCode};
use wasmparser::{Encoding, Parser, Payload};

#[derive(Args, Debug)]
pub(super) struct InspectArgs {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The properties of a plugin.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Inspected {
    name: String,
    pub(super) version: String,
    pub(super) points: Vec<&'static str>,
    form: Form,
    /// The version of the interfaces by which it is called.
    interface: &'static str,
    digest: String,
    size: usize,
    packed_size: usize,
    compressed: bool,
    imports: BTreeSet<String>,
    exports: BTreeSet<String>,
    config_schema: Value,
    features: Vec<FeatureSet>,
    wants_time: bool,
}

/// The form of the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    Component,
    CoreModule,
    Command,
}

pub(super) fn run(args: &InspectArgs) -> Result<ExitCode> {
    let inspected = inspect(&PluginUnderTest::new(&args.file)?)?;
    args.output.print(&inspected, || inspected.table())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn inspect(bench: &PluginUnderTest) -> Result<Inspected> {
    let description = &bench.described.description;
    let Interface { form, imports, exports } = outside(&bench.plugin.bytes)?;
    let schema = description.config_schema.as_str();
    Ok(Inspected {
        name: description.name.clone(),
        version: description.version.clone(),
        points: answered(description).into_iter().map(name).collect(),
        form,
        interface: bench.described.version.number(),
        digest: bench.plugin.digest().to_string(),
        size: bench.plugin.bytes.len(),
        packed_size: bench.plugin.packed_size()?,
        compressed: bench.plugin.compressed,
        imports,
        exports,
        config_schema: if schema.is_empty() { Value::Null } else { serde_json::from_str(schema).unwrap_or_else(|_| schema.into()) },
        features: description.features.clone(),
        wants_time: description.wants_time,
    })
}

impl Inspected {
    fn table(&self) -> String {
        let list = |names: &BTreeSet<String>| none_or(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let form = match self.form {
            Form::Component => "component",
            Form::CoreModule => "core module that embeds its interfaces",
            Form::Command => "command",
        };
        let features = self.features.iter().map(|set| {
            let question = serde_json::to_value(set.question).unwrap_or_default();
            format!("{}: {}", question.as_str().unwrap_or_default(), set.features.join(", "))
        });
        pairs(&[
            ("name", self.name.clone()),
            ("version", self.version.clone()),
            ("points", self.points.join(", ")),
            ("form", form.to_owned()),
            ("interface", self.interface.to_owned()),
            ("digest", self.digest.clone()),
            ("size", format!("{} bytes, {} with gzip: {}", self.size, self.packed_size, config_maps(self.packed_size))),
            ("imports", list(&self.imports)),
            ("exports", list(&self.exports)),
            ("config", short(&self.config_schema)),
            ("features", none_or(&features.collect::<Vec<_>>())),
            ("needs time", if self.wants_time { "yes" } else { "no" }.to_owned()),
        ])
    }
}

/// The number of ConfigMaps that a push writes for this size.
fn config_maps(packed: usize) -> String {
    match packed.div_ceil(PART) {
        1 => "1 ConfigMap".to_owned(),
        several => format!("{several} ConfigMaps"),
    }
}

/// A configuration's fields with their types.
fn short(schema: &Value) -> String {
    if schema.is_null() {
        return "none".to_owned();
    }
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let fields: Vec<String> = fields.map(|(name, field)| format!("{name}: {}", type_of(field))).collect();
    if fields.is_empty() { "a schema without properties".to_owned() } else { fields.join(", ") }
}

fn type_of(field: &Value) -> String {
    match &field["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ if field.get("enum").is_some() => "enum".to_owned(),
        _ => "any".to_owned(),
    }
}

/// The imports and exports of a binary.
#[derive(Debug)]
struct Interface {
    form: Form,
    imports: BTreeSet<String>,
    exports: BTreeSet<String>,
}

/// The compiler's process has already accepted the binary; nothing here recurses by its content.
fn outside(bytes: &[u8]) -> Result<Interface> {
    let mut outside = Interface { form: Form::CoreModule, imports: BTreeSet::new(), exports: BTreeSet::new() };
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { encoding, .. } => {
                depth += 1;
                if depth == 1 && encoding == Encoding::Component {
                    outside.form = Form::Component;
                }
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    outside.imports.insert(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if depth == 1 => {
                for export in exports {
                    outside.exports.insert(export?.name.name.to_owned());
                }
            }
            Payload::ImportSection(imports) if depth == 1 => {
                for import in imports.into_imports() {
                    outside.imports.insert(import?.module.to_owned());
                }
            }
            Payload::ExportSection(exports) if depth == 1 => {
                for export in exports {
                    let name = export?.name;
                    if name == "_start" {
                        outside.form = Form::Command;
                    }
                    // A function of an interface; a module's other exports are for its wrapper.
                    outside
                        .exports
                        .extend(name.split_once('#').map(|(interface, _)| interface.to_owned()).filter(|i| !i.starts_with("cabi_")));
                }
            }
            _ => {}
        }
    }
    Ok(outside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_told_in_a_line() {
        let schema = json!({"properties": {"a": {"type": "string"}, "b": {"type": ["number", "null"]}, "c": {"enum": [1]}, "d": true}});
        assert_eq!(short(&schema), "a: string, b: number or null, c: enum, d: any");
        assert_eq!(short(&Value::Null), "none");
        assert_eq!(short(&json!({})), "a schema without properties");
    }

    #[test]
    fn a_size_is_also_a_number_of_config_maps() {
        assert_eq!([1, PART, PART + 1].map(config_maps), ["1 ConfigMap", "1 ConfigMap", "2 ConfigMaps"]);
    }

    #[test]
    fn only_the_outermost_imports_and_exports_count() {
        let component = wat::parse_str(
            r#"(component
                (core module (import "inner" "f" (func)) (export "_start" (func 0)))
                (import "a:b/c" (instance $i))
                (export "d:e/f" (instance $i)))"#,
        );
        let outside = outside(&component.unwrap()).unwrap();
        assert_eq!(outside.form, Form::Component);
        assert_eq!((outside.imports, outside.exports), (BTreeSet::from(["a:b/c".to_owned()]), BTreeSet::from(["d:e/f".to_owned()])));
    }

    #[test]
    fn a_module_s_interfaces_are_in_its_functions_names() {
        let module = wat::parse_str(
            r#"(module (import "log" "write" (func)) (func (export "a:b/c#f")) (func (export "a:b/c#g")) (func (export "cabi_post_a:b/c#g")) (func (export "helper")))"#,
        );
        let outside = outside(&module.unwrap()).unwrap();
        assert_eq!((outside.form, outside.imports), (Form::CoreModule, BTreeSet::from(["log".to_owned()])));
        assert_eq!(outside.exports, BTreeSet::from(["a:b/c".to_owned()]));
        let command = super::outside(&wat::parse_str(r#"(module (func (export "_start")))"#).unwrap()).unwrap();
        assert_eq!(command.form, Form::Command);
    }
}
