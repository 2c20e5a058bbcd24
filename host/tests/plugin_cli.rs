//! `pointsman plugin`, run as a plugin's author runs it, on plugins built as they are shipped.

use crate::program::{empty_folder, pointsman, text};
use flate2::{Compression, write::GzEncoder};
use pointsman_harness::plugins::plugin;
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

fn runtime_selection() -> PathBuf {
    plugin("pointsman-runtime-selection")
}

fn pod_templating() -> PathBuf {
    plugin("pointsman-pod-templating")
}

fn metadata_propagation() -> PathBuf {
    plugin("pointsman-metadata-propagation")
}

fn rust_labels() -> PathBuf {
    plugin("pointsman-example-rust-labels")
}

/// The stdout of a command that must succeed.
fn printed(words: &[&str]) -> String {
    let output = pointsman(&["plugin"]).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The one-line error of a command that must exit with 1.
fn refused(words: &[&str]) -> String {
    refused_with(1, words)
}

/// The same, with another exit code.
fn refused_with(code: i32, words: &[&str]) -> String {
    let output = pointsman(&["plugin"]).args(words).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    assert!(said.starts_with("error: ") && said.trim_end().lines().count() == 1, "{said}");
    said
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn inspect_tells_what_a_plugin_is() {
    let plugin = runtime_selection();
    let table = printed(&["inspect", path(&plugin)]);
    for part in
        ["pointsman-runtime-selection", "core module", "formatWeight: integer", "imports      pointsman:policy/log@0.1.0", "sha256:"]
    {
        assert!(table.contains(part), "{part} in {table}");
    }
    let json: Value = serde_json::from_str(&printed(&["inspect", path(&plugin), "-o", "json"])).unwrap();
    assert_eq!(json["points"], serde_json::json!(["runtime-selection"]));
    assert_eq!((&json["form"], &json["compressed"]), (&"core-module".into(), &false.into()));
    assert_eq!(json["size"], fs::metadata(&plugin).unwrap().len());
    assert!(json["configSchema"]["properties"]["formatWeight"].is_object(), "{json:#}");
    let exports = json["exports"].as_array().unwrap();
    assert!(exports.contains(&"pointsman:policy/runtime-selection@0.1.0".into()), "{exports:?}");
}

#[test]
fn a_compressed_plugin_is_the_same_plugin() {
    let (plugin, folder) = (rust_labels(), empty_folder("plugin-cli/gzip"));
    let mut gzip = GzEncoder::new(fs::File::create(folder.join("labels.wasm.gz")).unwrap(), Compression::best());
    gzip.write_all(&fs::read(&plugin).unwrap()).unwrap();
    gzip.finish().unwrap();
    let inspected = |file: &Path| -> Value { serde_json::from_str(&printed(&["inspect", path(file), "-o", "json"])).unwrap() };
    let (plain, packed) = (inspected(&plugin), inspected(&folder.join("labels.wasm.gz")));
    assert_eq!((&plain["digest"], &plain["size"]), (&packed["digest"], &packed["size"]));
    assert_eq!(packed["compressed"], true);
}

#[test]
fn what_is_no_plugin_is_told_in_a_sentence() {
    let said = refused(&["inspect", path(&checkout("README.md"))]);
    assert!(said.contains("README.md is not a plugin: it is not WebAssembly"), "{said}");
    let said = refused_with(3, &["inspect", "/nowhere/a.wasm"]);
    assert!(said.contains("reading the plugin /nowhere/a.wasm: No such file"), "{said}");
}

#[test]
fn the_golden_cases_of_the_policies_hold() {
    let policies = [
        (runtime_selection(), "plugins/runtime-selection"),
        (pod_templating(), "plugins/pod-templating"),
        (metadata_propagation(), "plugins/metadata-propagation"),
        (rust_labels(), "plugins/examples/rust-labels"),
    ];
    for (plugin, cases) in policies {
        let told = printed(&["test", path(&plugin), path(&checkout(cases).join("cases.yaml"))]);
        assert!(told.ends_with(" passed, 0 failed\n") && !told.contains("FAILED"), "{told}");
    }
}

#[test]
fn a_case_that_fails_shows_what_differs_and_where() {
    let (plugin, cases) = (rust_labels(), empty_folder("plugin-cli/failing").join("cases.yaml"));
    let golden = fs::read_to_string(checkout("plugins/examples/rust-labels/cases.yaml")).unwrap();
    fs::write(&cases, golden.replace(r#"value: "4711", layer: namespace"#, r#"value: "4712", layer: namespace"#)).unwrap();
    let output = pointsman(&["plugin", "test", path(&plugin), path(&cases)]).output().unwrap();
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let parts = [
        "FAILED  pods get the namespace's label (",
        "cases.yaml:3)",
        "first at labels[0].value",
        "- ",
        "4712",
        "+ ",
        "4711",
        "5 passed, 2 failed",
    ];
    for part in parts {
        assert!(told.contains(part), "{part} in {told}");
    }

    let output = pointsman(&["plugin", "test", path(&plugin), path(&cases), "--filter", "pods get", "-o", "json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["passed"], &json["failed"]), (&0.into(), &1.into()));
    let case = &json["cases"][0];
    assert_eq!((&case["expected"]["labels"][0]["value"], &case["actual"]["labels"][0]["value"]), (&"4712".into(), &"4711".into()));
    assert!(refused(&["test", path(&plugin), path(&cases), "--filter", "nothing like it"]).contains("no case has a name"));
}

#[test]
fn a_case_that_the_plugin_panics_at_shows_the_message() {
    let (plugin, cases) = (plugin("pointsman-hostile"), empty_folder("plugin-cli/panics").join("cases.yaml"));
    let annotation = r#"{key: hostile.example.com/panic, value: "no container is called main"}"#;
    let case = format!(
        "name: a\npoint: pod-templating\nrequest: {{subject: {{annotations: [{annotation}]}}, role: engine, layers: [], template: {{}}}}\n"
    );
    fs::write(&cases, case + "answer: {}\n").unwrap();
    let output = pointsman(&["plugin", "test", path(&plugin), path(&cases)]).output().unwrap();
    let told = text(&output.stdout);
    assert!(
        told.contains("but it trapped: panicked at tests/hostile/src/lib.rs:") && told.contains(": no container is called main"),
        "{told}"
    );
}

#[test]
fn wrong_yaml_is_told_with_its_file_and_line() {
    let (plugin, cases) = (rust_labels(), empty_folder("plugin-cli/wrong").join("cases.yaml"));
    for (yaml, says) in [
        ("- name: a\n  point: metadata-propagation\n  request:\n    subjekt: {}\n", "cases.yaml:4: unknown field `subjekt`"),
        ("- name: a\n  point: nowhere\n", "cases.yaml:2: there is no policy point \"nowhere\""),
        ("- name: a\n  point: metadata-propagation\n", "cases.yaml:1: the case \"a\" has no request"),
        ("", "there are no cases in"),
    ] {
        fs::write(&cases, yaml).unwrap();
        let said = refused(&["test", path(&plugin), path(&cases)]);
        assert!(said.contains(says), "{says} in {said}");
    }
    let said = refused_with(3, &["test", path(&plugin), "/nowhere/cases.yaml"]);
    assert!(said.contains("reading the cases /nowhere/cases.yaml: No such file"), "{said}");
}

#[test]
fn bench_measures_each_case() {
    let (plugin, cases) = (rust_labels(), checkout("plugins/examples/rust-labels/cases.yaml"));
    let table = printed(&["bench", path(&plugin), path(&cases), "--calls", "5"]);
    assert!(table.starts_with("CASE") && table.contains("another label can be configured"), "{table}");
    let one = ["bench", path(&plugin), path(&cases), "--calls", "5", "--case", "another label can be configured", "-o", "json"];
    let json: Value = serde_json::from_str(&printed(&one)).unwrap();
    let [case] = &json.as_array().unwrap()[..] else { panic!("{json:#}") };
    assert_eq!((&case["calls"], &case["instances"]), (&5.into(), &"Fresh".into()));
    assert!(["min", "p50", "p90", "p99", "max", "fuel", "memory"].iter().all(|field| case[field].is_number()), "{case:#}");
    assert!(refused(&["bench", path(&plugin), path(&cases), "--case", "none"]).contains("there is no case \"none\""));
}

#[test]
fn a_push_that_is_only_tried_shows_its_objects_and_needs_no_cluster() {
    let plugin = rust_labels();
    let words = ["push", path(&plugin), "--name", "labels", "--dry-run"];
    let tried = |more: &[&'static str]| [&words[..], more].concat();
    let told = printed(&tried(&[]));
    assert!(
        told.contains("would apply   ConfigMap pointsman-system/labels,") && told.contains("would apply   PolicyPlugin labels, sha256:"),
        "{told}"
    );
    let yaml = printed(&tried(&["-o", "yaml", "--order", "7", "--config", r#"{"label": "team"}"#]));
    for part in ["kind: ConfigMap", "policy.pointsman.dev/digest", "kind: PolicyPlugin", "order: 7", "label: team"] {
        assert!(yaml.contains(part), "{part} in {yaml}");
    }
    assert!(refused(&tried(&["--point", "pod-templating"])).contains("doesn't support this point; it supports metadata-propagation"));
    assert!(refused(&tried(&["--config", r#"{"lable": "team"}"#])).contains("can't be used like this"));
    assert!(refused_with(3, &tried(&["--config", "/nowhere/a.json"])).contains("nor a readable file"));
}
