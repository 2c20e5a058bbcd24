//! Checks a PolicyPlugin's configuration against the JSON Schema of the plugin.
//!
//! The schema is untrusted. It may refer to itself without end, grow with every alternative, or be huge. Another process (`pointsman
//! check-config`) therefore does the check, with a deadline and a memory limit. It never fetches anything.

mod violations;

use super::limits::{CHECK_WITHIN, CHECKER_MEMORY, LARGEST_CONFIG};
use crate::{
    process::{self, Ended},
    text::printable_line,
};
use boon::{CompileError, Compiler, Draft, Schemas, SchemeUrlLoader};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{borrow::Cow, io, path::Path, thread, time::Duration};
use violations::{loops, violations};

/// The hidden subcommand that checks a configuration.
pub const SUBCOMMAND: &str = "check-config";

/// The name of the schema inside the library.
const NAME: &str = "urn:pointsman:schema";

/// The maximum number of violations in a report.
const MAX_VIOLATIONS_REPORTED: usize = 3;

/// The stack of a check. Only the part that it uses takes memory.
const STACK: usize = 64 << 20;

/// The exit code for a configuration that doesn't match the schema.
const REFUSED: u8 = 1;
/// The exit code for a broken schema. 2 is the code of the command line's own errors.
const BROKEN: u8 = 3;

/// Why a configuration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration doesn't match the schema.
    #[error("the configuration doesn't fit the plugin: {0}")]
    Refused(String),
    /// The schema itself is broken.
    #[error("the plugin's configuration schema is invalid; its author must fix it: {0}")]
    Schema(String),
    /// The check took too long.
    #[error(
        "checking the configuration against the plugin's schema takes longer than {} s: the schema has too many alternatives, or one of the two is too large",
        .0.as_secs()
    )]
    TooLong(Duration),
    /// The check crashed its process.
    #[error(
        "checking the configuration against the plugin's schema crashes the checker ({0}), so one of the two is too large or malicious"
    )]
    Crash(String),
    /// The process can't be run.
    #[error("the configuration can't be checked: {0}")]
    Process(#[from] io::Error),
}

impl ConfigError {
    /// The error as one CamelCase word, for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "InvalidConfig",
            Self::Schema(_) => "InvalidSchema",
            Self::TooLong(_) | Self::Crash(_) => "UncheckableConfig",
            Self::Process(_) => "CheckFailed",
        }
    }

    /// The sentences that the other process writes to stderr, one per line.
    pub fn sentences(&self) -> Cow<'_, str> {
        match self {
            Self::Refused(sentences) | Self::Schema(sentences) => sentences.into(),
            other => other.to_string().into(),
        }
    }

    /// The exit code of the other process.
    pub fn code(&self) -> u8 {
        match self {
            Self::Refused(_) => REFUSED,
            Self::Schema(_) => BROKEN,
            _ => 101,
        }
    }
}

/// The input of the other process. Both fields are strings, so that neither can break out of its place.
#[derive(Serialize, Deserialize)]
struct Question<'a> {
    schema: Cow<'a, str>,
    config: Cow<'a, str>,
}

/// Checks a configuration in JSON, in another process that runs `program`. An empty configuration equals `{}`. An empty schema means that
/// the plugin has no configuration. Blocks until the check is done.
pub fn check_config(program: &Path, schema: &str, config: &str) -> Result<(), ConfigError> {
    check_config_within(program, schema, config, CHECK_WITHIN, CHECKER_MEMORY)
}

/// The same with other limits.
pub fn check_config_within(program: &Path, schema: &str, config: &str, within: Duration, memory: u64) -> Result<(), ConfigError> {
    let (schema, config) = (schema.trim(), config.trim());
    if schema.is_empty() {
        return if is_empty(config) {
            Ok(())
        } else {
            Err(ConfigError::Refused("it has nothing to configure: remove spec.config".to_owned()))
        };
    }
    if schema.len() > LARGEST_CONFIG {
        return Err(ConfigError::Schema(format!("it has {} bytes; the limit is {LARGEST_CONFIG}", schema.len())));
    }
    if config.len() > LARGEST_CONFIG {
        return Err(ConfigError::Refused(format!("it has {} bytes; the limit is {LARGEST_CONFIG}", config.len())));
    }
    let config = if config.is_empty() { "{}" } else { config };
    let question = Question { schema: schema.into(), config: config.into() };
    let question = serde_json::to_vec(&question).map_err(io::Error::from)?;
    let Ended { complaint, status, .. } = process::run(program, &[SUBCOMMAND, "--memory", &memory.to_string()], &question, within)?;
    let Some(status) = status else { return Err(ConfigError::TooLong(within)) };
    let sentences = || complaint.lines().take(MAX_VIOLATIONS_REPORTED + 1).map(printable_line).collect::<Vec<_>>().join("; ");
    match status.code().map(u8::try_from) {
        Some(Ok(0)) => Ok(()),
        Some(Ok(REFUSED)) => Err(ConfigError::Refused(sentences())),
        Some(Ok(BROKEN)) => Err(ConfigError::Schema(sentences())),
        _ => Err(ConfigError::Crash(status.to_string())),
    }
}

fn is_empty(config: &str) -> bool {
    let inside = config.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    config.is_empty() || inside.is_some_and(|inside| inside.trim().is_empty())
}

/// Runs in the other process: reads a question from stdin and returns no error if the configuration matches.
pub fn serve(memory: u64) -> Result<(), ConfigError> {
    process::bound(memory)?;
    let question = process::read(Some(io::stdin().lock()));
    let Question { schema, config } = serde_json::from_slice(&question).map_err(io::Error::from)?;
    // Each level of nesting takes many frames, and several schemas can be involved in each.
    thread::scope(|scope| {
        let checking = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || check(&schema, &config))?;
        checking.join().unwrap_or_else(|_| Err(io::Error::other("the checker panicked").into()))
    })
}

fn check(schema: &str, config: &str) -> Result<(), ConfigError> {
    let schema: Value = serde_json::from_str(schema).map_err(|error| ConfigError::Schema(format!("it is not JSON: {error}")))?;
    let config: Value = serde_json::from_str(config).map_err(|error| ConfigError::Refused(format!("it is not JSON: {error}")))?;
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    compiler.set_default_draft(Draft::V2020_12);
    // The default loader reads files; this one has no scheme and loads nothing.
    compiler.use_loader(Box::new(SchemeUrlLoader::new()));
    let broken = |error: CompileError| ConfigError::Schema(broken(&error, &schema));
    compiler.add_resource(NAME, schema.clone()).map_err(broken)?;
    let index = compiler.compile(NAME, &mut schemas).map_err(broken)?;
    let Err(error) = schemas.validate(&config, index) else { return Ok(()) };
    if let Some(sentence) = loops(&error) {
        return Err(ConfigError::Schema(sentence));
    }
    Err(ConfigError::Refused(violations(&error, "config", &schema)))
}

fn broken(error: &CompileError, schema: &Value) -> String {
    match error {
        // The library stops at the first error in the schema.
        CompileError::ValidationError { src, .. } => violations(src, "schema", schema),
        CompileError::LoadUrlError { url, .. } | CompileError::UnsupportedUrlScheme { url } => {
            format!("it refers to {url}, which isn't fetched: copy that schema into $defs")
        }
        CompileError::Bug(cause) => printable_line(&cause.to_string()),
        other => printable_line(&format!("{other:#}").replace(NAME, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(schema: &Value, config: &Value) -> String {
        match check(&schema.to_string(), &config.to_string()) {
            Err(ConfigError::Refused(sentences)) => sentences,
            other => panic!("{other:?}"),
        }
    }

    fn broken(schema: &Value) -> String {
        match check(&schema.to_string(), "{}") {
            Err(ConfigError::Schema(sentences)) => sentences,
            other => panic!("{other:?}"),
        }
    }

    fn autoscaling() -> Value {
        json!({
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "minimum": 1},
                "zones": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
                "mode": {"enum": ["spread", "pack"]},
            },
            "additionalProperties": false,
        })
    }

    #[test]
    fn a_configuration_that_fits_is_accepted() {
        let config = json!({"replicas": 2, "zones": [{"name": "a"}], "mode": "pack"});
        assert!(check(&autoscaling().to_string(), &config.to_string()).is_ok());
        assert!(check("true", "[1]").is_ok());
    }

    #[test]
    fn what_doesnt_fit_is_told_with_its_place() {
        let told = |config| refused(&autoscaling(), &config);
        assert_eq!(told(json!({"replicas": "2"})), "config.replicas must be integer, but is string");
        assert_eq!(told(json!({"zones": [{"name": "a"}, {}]})), "config.zones[1] lacks \"name\"");
        assert_eq!(told(json!({"mode": "x"})), "config.mode must be one of \"spread\", \"pack\"");
        assert_eq!(told(json!({"replicas": 0})), "config.replicas: must be >=1, but got 0");
        assert_eq!(told(json!([])), "config must be object, but is array");
        assert_eq!(
            told(json!({"replicas": "2", "mode": 1})),
            "config.replicas must be integer, but is string\nconfig.mode must be one of \"spread\", \"pack\""
        );
    }

    #[test]
    fn an_unknown_property_is_told_with_the_one_that_was_meant() {
        let told = |config| refused(&autoscaling(), &config);
        assert_eq!(told(json!({"replcias": 1})), "config has an unknown property \"replcias\": did you mean \"replicas\"?");
        assert_eq!(told(json!({"x.y": 1})), "config has an unknown property \"x.y\": known are \"replicas\", \"zones\", \"mode\"");
        let nothing = json!({"properties": {"a b": {"additionalProperties": false}}});
        assert_eq!(refused(&nothing, &json!({"a b": {"c": 1, "d": 1}})), "config[\"a b\"] has an unknown property \"c\", and 1 more");
    }

    #[test]
    fn only_the_first_violations_are_told() {
        let many: serde_json::Map<_, _> = (0..1000).map(|n| (format!("p{n}"), json!("x"))).collect();
        let told = refused(&json!({"additionalProperties": {"type": "integer"}}), &many.into());
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), MAX_VIOLATIONS_REPORTED + 1, "{told}");
        assert_eq!(lines[0], "config.p0 must be integer, but is string");
        assert_eq!(lines[3], "and 997 more");
    }

    #[test]
    fn of_alternatives_each_is_told_with_what_it_lacks() {
        let schema = json!({"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "object", "required": ["b"]}]}}});
        assert_eq!(
            refused(&schema, &json!({"a": {}})),
            "config.a matches none of its alternatives: config.a must be string, but is object, or config.a lacks \"b\""
        );
        let both = json!({"oneOf": [{"type": "object"}, {"maxProperties": 1}]});
        assert_eq!(refused(&both, &json!({})), "config: oneOf failed, subschemas 0, 1 matched");
    }

    #[test]
    fn no_sentence_is_endless_and_none_has_control_characters() {
        let told = refused(&json!({"additionalProperties": false}), &json!({"a\n\u{1b}".repeat(10_000): 1}));
        assert!(told.len() < 400 && !told.contains(char::is_control), "{told}");
        let deep = (0..20).fold(json!(1), |inner, _| json!({"property": inner}));
        let schema = json!({"$defs": {"d": {"type": "object", "properties": {"property": {"$ref": "#/$defs/d"}}}}, "$ref": "#/$defs/d"});
        let told = refused(&schema, &deep);
        assert!(told.len() < 200 && told.ends_with(".property must be object, but is number"), "{told}");
    }

    #[test]
    fn a_schema_that_refers_to_itself_is_followed_and_one_that_loops_is_broken() {
        let tree = json!({"properties": {"children": {"items": {"$ref": "#"}}, "n": {"type": "integer"}}});
        assert_eq!(
            refused(&tree, &json!({"children": [{"children": [{"n": 1.5}]}]})),
            "config.children[0].children[0].n must be integer, but is number"
        );
        for schema in [
            json!({"$ref": "#"}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "anyOf": [{"$ref": "#/$defs/a"}]}),
            json!({"$dynamicAnchor": "x", "$dynamicRef": "#x"}),
        ] {
            let told = broken(&schema);
            assert!(told.contains("leads to itself without end"), "{told}");
        }
    }

    #[test]
    fn a_schema_that_refers_elsewhere_is_broken() {
        for url in ["https://example.com/x.json", "file:///etc/passwd", "http://169.254.169.254/"] {
            let expected = format!("it refers to {url}, which isn't fetched: copy that schema into $defs");
            assert_eq!(broken(&json!({"$ref": url})), expected);
            assert_eq!(broken(&json!({"$schema": url})), expected);
        }
        assert!(
            broken(&json!({"$id": "https://example.com/a/", "$ref": "b.json"})).starts_with("it refers to https://example.com/a/b.json,")
        );
    }

    #[test]
    fn what_is_wrong_with_a_schema_is_told_with_its_place() {
        assert_eq!(
            broken(&json!({"properties": {"a": {"type": "strin"}}})).lines().next().unwrap_or_default(),
            "schema.properties.a.type matches none of its alternatives: schema.properties.a.type must be one of \"array\", \"boolean\", \"integer\", \"null\", \"number\", \"object\", \"string\", or schema.properties.a.type must be array, but is string"
        );
        let look_around = broken(&json!({"properties": {"a": {"pattern": "(?=x)"}}}));
        assert!(look_around.starts_with("schema.properties.a.pattern: ") && look_around.contains("look-ahead"), "{look_around}");
        assert!(broken(&json!({"$ref": "#/$defs/gone"})).contains("/$defs/gone"));
        assert_eq!(broken(&json!([])), "schema must be boolean or object, but is array");
        assert!(matches!(check("{", "{}"), Err(ConfigError::Schema(sentence)) if sentence.starts_with("it is not JSON: ")));
        assert!(matches!(check("{}", "{"), Err(ConfigError::Refused(sentence)) if sentence.starts_with("it is not JSON: ")));
    }

    #[test]
    fn without_a_schema_there_is_nothing_to_configure_and_no_process_is_run() {
        let none = Path::new("/nonexistent");
        for empty in ["", " ", "{}", " { } "] {
            assert!(check_config(none, "", empty).is_ok(), "{empty:?}");
        }
        for full in ["{\"a\": 1}", "null", "[]", "0"] {
            let error = check_config(none, " ", full).unwrap_err();
            assert_eq!(error.to_string(), "the configuration doesn't fit the plugin: it has nothing to configure: remove spec.config");
            assert_eq!(error.reason(), "InvalidConfig");
        }
        assert!(matches!(check_config(none, "{}", "{}"), Err(ConfigError::Process(_))));
    }

    #[test]
    fn what_is_too_large_is_refused_at_once() {
        let (none, large) = (Path::new("/nonexistent"), " 1".repeat(LARGEST_CONFIG / 2 + 1));
        assert!(matches!(check_config(none, &large, "{}"), Err(ConfigError::Schema(_))));
        assert!(matches!(check_config(none, "{}", &large), Err(ConfigError::Refused(_))));
    }
}
