//! The Go-style templates of presets and configurations: fields of the service, the Gateway, and names of planned objects.
//!
//! KServe supports Go's complete template language. Its users and presets use only this subset. Anything else is an error, so that no pod
//! starts with an unresolved template.

use crate::settings::Settings;
use serde_json::Value;
use std::cell::Cell;

/// The maximum length of a text: that of all annotations of an object together, because a template may repeat one many times.
const LONGEST_TEXT: usize = 256 << 10;

/// The maximum total length of a service's texts.
const LONGEST_TEXTS: usize = 1 << 20;

/// The data for templates.
pub(super) struct Scope<'a> {
    /// The service: its `metadata`, and its `spec` merged with the configurations.
    object: &'a Value,
    settings: &'a Settings,
    /// The total length of the texts so far.
    length: Cell<usize>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(object: &'a Value, settings: &'a Settings) -> Self {
        Self { object, settings, length: Cell::new(0) }
    }
}

impl Scope<'_> {
    /// Resolves all templates in a value. The error contains the place and the reason.
    pub(super) fn fill(&self, value: &mut Value, place: &str) -> Result<(), String> {
        match value {
            Value::String(text) if text.contains("{{") => {
                *text = self.filled(text).map_err(|error| format!("{place}: {error}"))?;
                self.length.set(self.length.get() + text.len());
                if self.length.get() > LONGEST_TEXTS {
                    return Err(format!("{place}: with this text, the rendered texts exceed 1 MiB: shorten them"));
                }
                Ok(())
            }
            Value::Array(items) => {
                items.iter_mut().enumerate().try_for_each(|(number, item)| self.fill(item, &format!("{place}[{number}]")))
            }
            Value::Object(fields) => fields.iter_mut().try_for_each(|(name, value)| self.fill(value, &format!("{place}.{name}"))),
            _ => Ok(()),
        }
    }

    fn filled(&self, text: &str) -> Result<String, String> {
        let (mut done, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let (inside, after) = after.split_once("}}").ok_or("a {{ has no }}")?;
            // A dash next to the braces trims the whitespace on that side, as in Go.
            let (inside, before) = inside.strip_prefix('-').map_or((inside, before), |inside| (inside, before.trim_end()));
            let (inside, after) = inside.strip_suffix('-').map_or((inside, after), |inside| (inside, after.trim_start()));
            done.push_str(before);
            let value = self.value(inside.trim())?;
            if done.len() + value.len() > LONGEST_TEXT {
                return Err("the rendered text exceeds 256 KiB: shorten the values of its placeholders".to_owned());
            }
            done.push_str(&value);
            rest = after;
        }
        done.push_str(rest);
        Ok(done)
    }

    fn value(&self, expression: &str) -> Result<String, String> {
        if let Some(path) = expression.strip_prefix('.').filter(|path| !path.contains(char::is_whitespace)) {
            return self.field(path);
        }
        let words: Vec<&str> = expression.split_whitespace().collect();
        if let ["ChildName", path, suffix] = words[..]
            && let Some(path) = path.strip_prefix('.')
            && let Some(suffix) = quoted(suffix)
        {
            return Ok(format!("{}{suffix}", self.field(path)?));
        }
        Err(format!(
            "{{{{ {expression} }}}} can't be rendered: use a field of the service, such as {{{{ .Spec.Model.Name }}}}, or \
             {{{{ ChildName .ObjectMeta.Name \"-suffix\" }}}}"
        ))
    }

    /// A field by its Go path: the first word names the object, the others are field names in upper camel case.
    fn field(&self, path: &str) -> Result<String, String> {
        let gateway = self.settings.gateway.as_ref();
        let global = match path {
            "GlobalConfig.IngressGatewayName" => gateway.map(|gateway| gateway.name.clone()),
            "GlobalConfig.IngressGatewayNamespace" => gateway.map(|gateway| gateway.namespace.clone()),
            "GlobalConfig.SystemNamespace" => Some(self.settings.config_namespace.clone()),
            _ => None,
        };
        if let Some(text) = global {
            return Ok(text);
        }
        let mut words = path.split('.');
        let (mut at, rest): (Option<&Value>, _) = match words.next() {
            Some("Spec") => (self.object.get("spec"), words),
            Some("ObjectMeta") => (self.object.get("metadata"), words),
            // In Go, metadata fields are also fields of the object.
            _ => (self.object.get("metadata"), path.split('.')),
        };
        for word in rest {
            at = at.and_then(Value::as_object).and_then(|fields| {
                let exact = fields.get(word);
                exact.or_else(|| fields.iter().find_map(|(name, value)| name.eq_ignore_ascii_case(word).then_some(value)))
            });
        }
        match at {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            Some(Value::Bool(flag)) => Ok(flag.to_string()),
            _ => Err(format!("{{{{ .{path} }}}} names no field that the service sets")),
        }
    }
}

fn quoted(word: &str) -> Option<&str> {
    ['"', '`'].into_iter().find_map(|quote| word.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filled(text: &str) -> Result<Value, String> {
        let object =
            json!({"metadata": {"name": "llama", "namespace": "chat"}, "spec": {"model": {"uri": "hf://a/b", "name": "a"}, "replicas": 2}});
        let mut value = json!({"args": [text]});
        Scope::new(&object, &Settings::default()).fill(&mut value, "template")?;
        Ok(value["args"][0].clone())
    }

    #[test]
    fn fields_and_names_are_filled_in() {
        for (text, expected) in [
            ("--name={{ .Spec.Model.Name }}", "--name=a"),
            ("{{.ObjectMeta.Namespace}}/{{ .Name }}", "chat/llama"),
            ("{{ ChildName .ObjectMeta.Name `-epp-service` }}", "llama-epp-service"),
            ("{{ ChildName .ObjectMeta.Name \"-x\" }}", "llama-x"),
            ("a {{- .Spec.Replicas -}} b", "a2b"),
            ("{{ .Spec.Model.URI }}", "hf://a/b"),
            ("$(VAR) {not} a template", "$(VAR) {not} a template"),
        ] {
            assert_eq!(filled(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_told_with_its_place() {
        for (text, says) in [
            ("{{ .Spec.Model.Nmae }}", "template.args[0]: {{ .Spec.Model.Nmae }} names no field"),
            ("{{ if .Spec.Prefill }}x{{ end }}", "can't be rendered"),
            ("{{ .Spec.Model.Name", "a {{ has no }}"),
            ("{{ .Spec.Model }}", "names no field"),
        ] {
            let error = filled(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn placeholders_repeat_a_text_no_longer_than_its_bound() {
        let note = "x".repeat(200 << 10);
        let object = json!({"metadata": {"name": "llama", "annotations": {"note": note}}, "spec": {}});
        let settings = Settings::default();
        let fill = |mut value: Value| Scope::new(&object, &settings).fill(&mut value, "spec");
        let long = fill(json!({"args": ["{{ .Annotations.note }}".repeat(2)]})).unwrap_err();
        assert_eq!(long, "spec.args[0]: the rendered text exceeds 256 KiB: shorten the values of its placeholders");
        let many = fill(json!({"args": vec!["{{ .Annotations.note }}"; 2000]})).unwrap_err();
        assert_eq!(many, "spec.args[5]: with this text, the rendered texts exceed 1 MiB: shorten them");
        fill(json!({"args": vec!["{{ .Annotations.note }}"; 5]})).unwrap();
    }
}
