//! Converts a PolicyPlugin into its frozen form in a policy set.

use crate::source::{SOURCES, Source};
use pointsman_crds::policy::{
    plugin::{BuiltinSource, PluginSource, PolicyPlugin, PolicyPluginSpec},
    set::PolicySetPlugin,
};
use pointsman_sandbox::{builtin::Builtin, digest::sorted};
use serde_json::Value;

/// How a PolicyPlugin binds its plugin, regardless of the plugin's bytes.
pub fn binding(name: &str, spec: &PolicyPluginSpec) -> PolicySetPlugin {
    let mut points = spec.points.clone();
    points.sort();
    PolicySetPlugin {
        name: name.to_owned(),
        digest: String::new(),
        version: None,
        points,
        mode: spec.mode,
        order: spec.order,
        weight: spec.weight,
        selection: spec.selection.clone(),
        match_conditions: spec.match_conditions.clone(),
        config: spec
            .config
            .as_ref()
            .filter(|config| !config.0.is_empty())
            .map(|config| sorted(&Value::Object(config.0.clone())).to_string()),
        limits: spec.limits.clone(),
        instances: spec.instances,
        failure_policy: spec.failure_policy,
    }
}

/// The PolicyPlugin of a built-in: the host creates it if it is missing, and never changes an existing one.
pub fn of_builtin(builtin: &Builtin) -> PolicyPlugin {
    let source = PluginSource { builtin: Some(BuiltinSource { name: builtin.name.to_owned() }), ..PluginSource::default() };
    PolicyPlugin::new(builtin.name, PolicyPluginSpec { source, order: 0, ..PolicyPluginSpec::default() })
}

/// The source of the bytes, as a short text.
pub fn source(source: &PluginSource) -> String {
    let title = |candidate: &&dyn Source| candidate.title(source).map(|title| format!("{}/{title}", candidate.field()));
    SOURCES.iter().find_map(title).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::RawObject;
    use serde_json::json;

    #[test]
    fn two_ways_to_write_a_configuration_bind_alike() {
        let config = |value: Value| {
            let config = value.as_object().cloned().map(RawObject);
            binding("a", &PolicyPluginSpec { config, ..PolicyPluginSpec::default() }).config
        };
        assert_eq!(config(json!({"b": [{"d": 1, "c": 2}], "a": 1})).as_deref(), Some(r#"{"a":1,"b":[{"c":2,"d":1}]}"#));
        assert_eq!(config(json!({"a": 1, "b": [{"c": 2, "d": 1}]})), config(json!({"b": [{"d": 1, "c": 2}], "a": 1})));
        assert_eq!(config(json!({})), None);
    }
}
