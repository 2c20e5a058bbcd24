//! Fields by readable paths.

use super::{
    super::select::{FieldPath, FoundPart, MissingPart},
    *,
};

/// A Deployment with its decisions, by two plugins.
fn planned() -> (Object, Vec<Decided>) {
    let question = ome([("runtime", runner(&json!({"args": ["--a"], "env": [{"name": "A", "value": "1"}]})))]);
    let containers = json!([
        {"name": "ome-container", "image": "vllm:1", "args": ["--a", "--b"], "env": [{"name": "A", "value": "1"}], "command": ["serve", "it"]},
        {"name": "log", "image": "log:1"},
    ]);
    let template = json!({"metadata": {"labels": {"example.com/team": "a"}}, "spec": {"containers": containers}});
    let steps = vec![
        step("first", Action::Add, "/metadata/labels", &json!({"example.com/team": "a"})),
        step(
            "first",
            Action::Add,
            "/spec/containers",
            &json!([{"name": "ome-container", "image": "vllm:1", "args": ["--a"], "env": [{"name": "A", "value": "1"}]}]),
        ),
        step("second", Action::Add, "/spec/containers/0/args/-", &json!("--b")),
        step("second", Action::Add, "/spec/containers/0/command", &json!(["serve", "it"])),
        step("second", Action::Add, "/spec/containers/-", &json!({"name": "log", "image": "log:1"})),
    ];
    let key = key("chat-engine");
    let body = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"replicas": 2, "template": template}});
    (Object::new(key.clone(), body), vec![question.decided(&key, &template, steps)])
}

fn path(written: &str) -> FieldPath {
    written.parse().unwrap()
}

fn in_object(written: &str) -> Result<Vec<FoundPart>, MissingPart> {
    let (object, decisions) = planned();
    path(written).in_object(&object, &decisions, &[])
}

fn in_pods(written: &str) -> Result<Vec<FoundPart>, Option<MissingPart>> {
    let (object, decisions) = planned();
    path(written).in_pods(&object, &decisions, &[])
}

/// The fields of the only part: each with its provenance and its writer.
fn fields(parts: Vec<FoundPart>) -> Vec<(String, String, String)> {
    assert_eq!(parts.len(), 1, "{parts:?}");
    let fields = parts.into_iter().flat_map(|part| part.fields);
    fields.map(|found| (found.field.field, found.field.by.join(","), found.writer.unwrap_or_default())).collect()
}

#[test]
fn a_field_is_found_from_the_root_of_the_object_and_of_its_pods_however_its_items_are_named() {
    let args = "spec.template.spec.containers[name=ome-container].args";
    let expected = [(format!("{args}[0]"), "runtime", "first"), (format!("{args}[1]"), "", "second")];
    let expected = expected.map(|(field, by, writer)| (field, by.to_owned(), writer.to_owned()));
    for written in [
        "spec.template.spec.containers[0].args",
        "spec.template.spec.containers[ome-container].args",
        "spec.template.spec.containers[name=ome-container].args",
        "/spec/template/spec/containers/0/args",
    ] {
        assert_eq!(fields(in_object(written).unwrap()), expected, "{written}");
    }
    for written in ["spec.containers[0].args", "spec.containers[ome-container].args", "/spec/containers/0/args"] {
        assert!(in_object(written).is_err(), "{written}");
        assert_eq!(fields(in_pods(written).unwrap()), expected, "{written}");
    }
    let images = in_pods("spec.containers[].image").unwrap();
    assert_eq!(
        images.iter().map(|part| part.path.rsplit_once('.').unwrap().0).collect::<Vec<_>>(),
        ["spec.template.spec.containers[name=ome-container]", "spec.template.spec.containers[name=log]"]
    );
}

#[test]
fn what_the_host_sets_no_plugin_has_set() {
    let found = |written: &str| fields(in_object(written).unwrap()).remove(0);
    let told = |field: &str, by: &str, writer: &str| (field.to_owned(), by.to_owned(), writer.to_owned());
    assert_eq!(found("spec.replicas"), told("spec.replicas", "host", ""));
    assert_eq!(found("metadata.name"), told("metadata.name", "host", ""));
    let label = "metadata.labels[example.com/team]";
    assert_eq!(fields(in_pods(label).unwrap()), [told("spec.template.metadata.labels.\"example.com/team\"", "host", "")]);
    assert_eq!(in_pods(r#"metadata.labels."example.com/team""#), in_pods(label));
}

#[test]
fn a_command_counts_as_a_whole_and_a_number_is_the_place_of_an_item() {
    let command = fields(in_pods("spec.containers[0].command[1]").unwrap());
    assert_eq!(command.len(), 1);
    assert!(command[0].0.ends_with("[name=ome-container].command"), "{command:?}");
    assert_eq!(fields(in_pods("spec.containers[1].image").unwrap())[0].2, "second");
    assert_eq!(fields(in_pods("spec.containers[0].env[A].value").unwrap())[0].1, "runtime");
}

#[test]
fn what_is_not_there_is_told_with_what_is_there_instead() {
    let MissingPart { path, name, known, .. } = in_pods("spec.containers[0].arg").unwrap_err().unwrap();
    assert_eq!((path.as_str(), name.as_str()), ("spec.template.spec.containers[name=ome-container]", "arg"));
    assert_eq!(known, ["name", "image", "args", "env", "command"]);
    let missing = in_pods("spec.containers[main].args").unwrap_err().unwrap();
    assert_eq!((missing.name.as_str(), missing.known), ("main", vec!["ome-container".to_owned(), "log".to_owned()]));
    assert_eq!(in_object("spec.replica").unwrap_err().known, ["replicas", "template"]);
    for text in ["", "a..b", "a[", "a[]b", ".a", "a[b", "a[=b]", "/"] {
        let parsed = text.parse::<FieldPath>();
        assert!(text == "/" || parsed.is_err(), "{text}: {parsed:?}");
    }
}
