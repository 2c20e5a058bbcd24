//! The check of a configuration runs in another process, with limits, and the host survives any outcome.

use pointsman_sandbox::{
    limits::CHECKER_MEMORY,
    schema::{ConfigError, check_config, check_config_within},
};
use serde_json::{Value, json};
use std::{net::TcpListener, path::Path, time::Duration};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pointsman"))
}

fn check(schema: &Value, config: &Value) -> Result<(), ConfigError> {
    check_config(program(), &schema.to_string(), &config.to_string())
}

#[test]
fn a_configuration_that_fits_is_accepted_and_an_absent_one_is_empty() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    assert!(check(&schema, &json!({"a": 1})).is_ok());
    assert!(check_config(program(), &schema.to_string(), "").is_ok());
    let required = json!({"required": ["a"]}).to_string();
    let refused = check_config(program(), &required, "").unwrap_err();
    assert_eq!(refused.to_string(), "the configuration doesn't fit the plugin: config lacks \"a\"");
}

#[test]
fn what_doesnt_fit_is_told_and_so_is_whose_fault_it_is() {
    let schema = json!({"properties": {"a": {"type": "integer"}}, "additionalProperties": false});
    let refused = check(&schema, &json!({"a": "x", "b": 1})).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the configuration doesn't fit the plugin: config.a must be integer, but is string; config has an unknown property \"b\": did you mean \"a\"?"
    );
    assert_eq!(refused.reason(), "InvalidConfig");
    let broken = check(&json!({"type": 1}), &json!({})).unwrap_err();
    assert!(broken.to_string().starts_with("the plugin's configuration schema is invalid; its author must fix it: schema.type "));
    assert_eq!(broken.reason(), "InvalidSchema");
}

#[test]
fn a_schema_cant_break_out_of_its_place() {
    for text in ["{}, \"config\": {}", "{}\", \"config\": \"{}", "{}}", "", "{\"a\": "] {
        let checked = check_config(program(), "{\"type\": \"array\"}", text);
        assert!(matches!(checked, Err(ConfigError::Refused(_))), "{text} {checked:?}");
        if !text.is_empty() {
            let checked = check_config(program(), text, "{}");
            assert!(matches!(checked, Err(ConfigError::Schema(_))), "{text} {checked:?}");
        }
    }
}

#[test]
fn a_schema_that_loops_is_the_schemas_fault() {
    for schema in [json!({"$ref": "#"}), json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})] {
        let checked = check(&schema, &json!({}));
        assert!(matches!(checked, Err(ConfigError::Schema(_))), "{checked:?}");
    }
}

#[test]
fn nothing_is_fetched() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/schema.json", listener.local_addr().unwrap());
    for schema in [json!({"$ref": url}), json!({"$schema": url}), json!({"$dynamicRef": url}), json!({"$id": url, "$ref": "other.json"})] {
        let checked = check(&schema, &json!({}));
        assert!(matches!(checked, Err(ConfigError::Schema(_))), "{checked:?}");
    }
    assert!(listener.accept().is_err());
}

#[test]
fn a_pattern_takes_no_more_time_than_its_text_is_long() {
    let schema = json!({"properties": {"a": {"pattern": "(a+)+$"}}});
    let checked = check(&schema, &json!({"a": "a".repeat(100_000) + "!"}));
    assert!(matches!(checked, Err(ConfigError::Refused(_))), "{checked:?}");
}

#[test]
fn nesting_without_end_is_no_json() {
    let bomb = "[".repeat(1 << 20);
    assert!(matches!(check_config(program(), "true", &bomb), Err(ConfigError::Refused(_))));
    assert!(matches!(check_config(program(), &bomb, "{}"), Err(ConfigError::Schema(_))));
    let closed = format!("{}{}", "[".repeat(1 << 18), "]".repeat(1 << 18));
    assert!(matches!(check_config(program(), "true", &closed), Err(ConfigError::Refused(_))));
}

#[test]
fn a_hundred_thousand_properties_are_checked() {
    let many: serde_json::Map<_, _> = (0..100_000).map(|n| (format!("p{n}"), json!(n))).collect();
    let many = Value::Object(many);
    assert!(check(&json!({"additionalProperties": {"type": "integer"}}), &many).is_ok());
    for schema in [json!({"additionalProperties": {"type": "string"}}), json!({"additionalProperties": false}), json!({"maxProperties": 1})]
    {
        let Err(ConfigError::Refused(sentences)) = check(&schema, &many) else { panic!("{schema}") };
        assert!(sentences.len() < 1000, "{sentences}");
    }
}

/// Each definition refers twice to the previous one.
fn doubling(times: u32) -> Value {
    let mut schema = json!({"$defs": {"d0": {"type": "string"}}, "$ref": format!("#/$defs/d{times}")});
    for n in 1..=times {
        let before = json!({"$ref": format!("#/$defs/d{}", n - 1)});
        schema["$defs"][format!("d{n}")] = json!({"anyOf": [before, before]});
    }
    schema
}

#[test]
fn a_schema_that_takes_too_long_is_ended() {
    // It needs little memory: evaluating it repeatedly produces no errors.
    let mut schema = doubling(40);
    schema["$defs"]["d0"] = json!({"not": {"not": {"type": "string"}}});
    let checked = check_config_within(program(), &schema.to_string(), "{}", Duration::from_millis(300), 1 << 40);
    assert!(matches!(checked, Err(ConfigError::TooLong(_))), "{checked:?}");
}

#[test]
fn a_schema_that_takes_too_much_memory_is_ended() {
    let checked = check_config_within(program(), &doubling(40).to_string(), "{}", Duration::from_mins(5), CHECKER_MEMORY);
    assert!(matches!(checked, Err(ConfigError::Crash(_))), "{checked:?}");
}
