//! The versions of the interfaces: plugins that were built for 0.1.0, in `tests/fixtures/plugins-0.1.0`, still decide in the same way,
//! separately and in one set with current plugins.

use crate::{policies, text};
use flate2::read::GzDecoder;
use pointsman::load::{LoadError, Loader};
use pointsman_core::decide::{Policies, Standing, Unheard, member::Member, propagation::Inputs, set::ActiveSet};
use pointsman_crds::policy::set::PolicySetPlugin;
use pointsman_sandbox::{
    binary::{Exported, Version, accept},
    digest::{Digest, Digested},
    engine::Use,
    limits::Limits,
    point::{
        FailureKind, Question, Role, Subject,
        propagation::{Answer, Place, Target},
        scoring::{RequestRef, Term},
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The plugins that propagate a label, built for 0.1.0 in four languages.
const LABELS: [&str; 4] = ["go-labels", "javascript-labels", "python-labels", "rust-labels"];

/// The plugins that are called. The interpreters of JavaScript and Python take minutes to compile on a fresh machine, so only `--full`
/// includes them.
fn asked() -> Vec<&'static str> {
    let is_full = env::var_os("POINTSMAN_TEST_FULL").is_some();
    LABELS.into_iter().filter(move |name| is_full || !["javascript-labels", "python-labels"].contains(name)).collect()
}

/// A plugin that was built for 0.1.0.
fn fixture(name: &str) -> Vec<u8> {
    let file = workspace().join("tests/fixtures/plugins-0.1.0").join(format!("{name}.wasm.gz"));
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(file).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn loader(drafts: bool) -> Loader {
    Loader::new(Arc::clone(policies::engines()), policies::compilers().with_drafts(drafts))
}

fn member(loader: &Loader, name: &str, config: &Value, bytes: &[u8]) -> Member {
    let digest = Digest::hash(bytes).to_string();
    let bound = PolicySetPlugin { name: name.to_owned(), digest, config: Some(config.to_string()), ..PolicySetPlugin::default() };
    loader.load(bound, bytes).unwrap()
}

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Value,
    request: Inputs,
    answer: Answer,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../plugins/examples/labels-cases.json")).unwrap()
}

/// The answer of a single plugin.
fn answer(member: &Member, inputs: &Inputs) -> String {
    let plugin = member.plugin(Use::ControlPlane).unwrap();
    let (answer, _) = plugin.propagate(inputs.request(&inputs.labels, &inputs.annotations)).unwrap();
    serde_json::to_string(&answer).unwrap()
}

#[test]
fn the_interfaces_of_0_1_0_never_change() {
    let mut files: Vec<_> = fs::read_dir(workspace().join("wit/0.1.0")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let text: Vec<u8> = files.iter().flat_map(|file| fs::read(file).unwrap()).collect();
    // If this fails: 0.1.0 is published, so make the change in the draft instead.
    assert_eq!(Digest::hash(&text).hex(), "75001df515ae10ea9540731812c307872dea0ffb63ddc2faa879ec04001a93ca");
}

#[test]
fn plugins_for_0_1_0_answer_all_cases_byte_for_byte_beside_one_of_today() {
    let (published, drafts) = (loader(false), loader(true));
    let today = policies::module("pointsman-example-rust-labels");
    let cases = cases();
    assert!(cases.len() > 10);
    for Case { name, config, request, answer: expected } in &cases {
        let expected = serde_json::to_string(expected).unwrap();
        for language in asked() {
            let bytes = fixture(language);
            // Drafts don't affect plugins that don't use them.
            for loader in [&published, &drafts] {
                assert_eq!(answer(&member(loader, language, config, &bytes), request), expected, "{language}: {name}");
            }
        }
        for loader in [&published, &drafts] {
            assert_eq!(answer(&member(loader, "today", config, &today), request), expected, "today: {name}");
        }
    }
}

#[test]
fn plugins_of_both_versions_decide_in_one_set() {
    let loader = loader(true);
    let config = |name: &str| json!({"label": format!("label-{name}")});
    let mut members: Vec<_> = asked().iter().map(|name| member(&loader, name, &config(name), &fixture(name))).collect();
    let today = policies::module("pointsman-example-rust-labels");
    assert_eq!(loader.describe(&today, Limits::DEFAULT).unwrap().version, Version::Draft);
    members.push(member(&loader, "today", &config("today"), &today));
    let policies = Policies::new(ActiveSet::new(members.into_iter().map(Arc::new).collect()), Arc::new(Unheard));

    let names = || asked().into_iter().chain(["today"]);
    let namespace_labels = names().map(|name| (format!("label-{name}"), format!("value-{name}")).into()).collect();
    let subject = Subject { namespace_labels, ..Subject::default() };
    // 0.1.0 doesn't have this role.
    let target = Target { place: Place::PodTemplate, role: Some(Role::Launcher), ..Target::default() };
    let inputs = Inputs { subject: Digested::new(subject).unwrap(), target: Digested::new(target).unwrap(), ..Inputs::default() };
    let decision = policies.pin(Standing::New).propagate(&inputs).unwrap();
    let mut seen: Vec<_> = decision.answer.labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect();
    seen.sort();
    let expected: Vec<_> = names().map(|name| (format!("label-{name}"), format!("value-{name}"))).collect();
    assert_eq!(seen, expected);
    assert_eq!(decision.plugins.len(), names().count());
    assert!(decision.failed.is_empty());
}

#[test]
fn verdicts_of_0_1_0_are_those_of_today() {
    let loader = loader(true);
    let (old, new) = (fixture("rust-cost"), policies::module("pointsman-example-rust-cost"));
    let priced = json!({"name": "cheap", "annotations": [{"key": "cost.example.com/per-hour", "value": "3"}]});
    let request = json!({"subject": {}, "model": {}, "candidates": [priced, {"name": "unpriced", "protocols": ["openAI"]}]});
    let inputs: pointsman_core::decide::selection::Inputs = serde_json::from_value(request).unwrap();
    let verdicts = |bytes: &[u8]| {
        let member = member(&loader, "cost", &json!({}), bytes);
        let (verdicts, _) = member.plugin(Use::ControlPlane).unwrap().judge(inputs.request()).unwrap();
        serde_json::to_string(&verdicts).unwrap()
    };
    assert!(verdicts(&old).contains("\"score\":2.5"), "{}", verdicts(&old));
    assert_eq!(verdicts(&old), verdicts(&new));
}

#[test]
fn scores_of_0_1_0_are_those_of_today_and_today_s_terms_have_numbers() {
    let loader = loader(true);
    let (old, new) = (fixture("rust-balance"), policies::module("pointsman-example-rust-balance"));
    let matrix: Vec<f64> = (0..24).map(f64::from).collect();
    let request = RequestRef { question: Question::EndpointPick, columns: 8, matrix: &matrix, facts: &[] };
    let ask = |bytes: &[u8]| {
        let member = member(&loader, "balance", &json!({}), bytes);
        let plugin = member.plugin(Use::Hot).unwrap();
        (plugin.score(request).unwrap().0, plugin.explain(request, 2).unwrap().0)
    };
    let ((old_scores, old_terms), (new_scores, new_terms)) = (ask(&old), ask(&new));
    assert_eq!(old_scores, new_scores);
    // The plugin for 0.1.0 was built before its message was reworded.
    let sentences = |terms: &[Term]| terms.iter().map(|term| term.message.replace(", and counts ", ", weight ")).collect::<Vec<_>>();
    assert_eq!(sentences(&old_terms), sentences(&new_terms));
    assert!(old_terms.iter().all(|term| term.value.is_none()));
    let sum: f64 = new_terms.iter().filter_map(|term| term.value).sum();
    assert!((sum - new_scores[2]).abs() < 1e-9, "{sum} is {}", new_scores[2]);
}

#[test]
fn a_plugin_is_asked_by_the_newest_version_that_it_may_be_asked_by() {
    let module = policies::module("pointsman-example-rust-labels");
    for (drafts, version) in [(false, Version::V0_1), (true, Version::Draft)] {
        assert_eq!(loader(drafts).describe(&module, Limits::DEFAULT).unwrap().version, version);
        assert_eq!(loader(drafts).describe(&fixture("rust-labels"), Limits::DEFAULT).unwrap().version, Version::V0_1);
    }
    // A built-in policy was built together with the host.
    let builtin = pointsman_sandbox::builtin::BUILTINS[0].bytes;
    assert_eq!(loader(false).describe(builtin, Limits::DEFAULT).unwrap().version, Version::Draft);
}

#[test]
fn what_speaks_no_version_of_ours_is_refused_with_those_that_are_spoken() {
    let refused = |drafts: bool, names: &[&str]| {
        let bytes = text::component_exporting(names);
        match loader(drafts).describe(&bytes, Limits::DEFAULT) {
            Err(error @ LoadError::Compile(_)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let draft = ["pointsman:policy/plugin@0.2.0-draft", "pointsman:policy/pod-templating@0.2.0-draft"];
    let said = refused(false, &draft);
    assert!(
        said.contains("0.2.0-draft, a draft that may change") && said.contains("build it for 0.1.0, or start this host with"),
        "{said}"
    );
    let future = ["pointsman:policy/plugin@0.9.0"];
    for drafts in [false, true] {
        let said = refused(drafts, &future);
        let expected = "it is built for pointsman:policy@0.9.0, and this host speaks 0.1.0 (and 0.2.0-draft with --draft-interfaces)";
        assert!(said.contains(expected), "{said}");
    }
    // With the flag, it is accepted up to the point that it has no functions.
    let bytes = text::component_exporting(&draft);
    let Err(error) = loader(true).describe(&bytes, Limits::DEFAULT) else { panic!("it has no functions") };
    assert!(!error.to_string().contains("a draft that may change"), "{error}");
}

#[test]
fn versions_that_a_host_does_not_know_do_not_disturb_it() {
    let names = ["pointsman:policy/plugin@0.1.0", "pointsman:policy/pod-templating@0.1.0", "pointsman:policy/plugin@7.0.0"];
    let accepted = accept(&text::component_exporting(&names)).unwrap();
    assert_eq!(accepted.exports, [Exported { version: Version::V0_1, points: vec!["pod-templating"] }]);
    let types = r#"(component (import "pointsman:policy/types@7.0.0" (instance)) (component $nothing)
        (instance $empty (instantiate $nothing))
        (export "pointsman:policy/plugin@0.1.0" (instance $empty)) (export "pointsman:policy/pod-templating@0.1.0" (instance $empty)))"#;
    assert!(accept(&wat::parse_str(types).unwrap()).is_ok());
}

#[test]
fn a_command_says_which_versions_it_speaks() {
    let described = |interfaces: &str| {
        let stdout = format!(r#"{{"ok": {{"name": "any", "points": ["pod-templating"]{interfaces}}}}}"#);
        text::command(stdout.as_bytes(), "(call $answer)")
    };
    let version = |drafts: bool, interfaces: &str| loader(drafts).describe(&described(interfaces), Limits::DEFAULT).map(|it| it.version);
    let draft = r#", "interfaces": ["0.2.0-draft"]"#;
    let both = r#", "interfaces": ["0.1.0", "0.2.0-draft", "7.0.0"]"#;
    assert_eq!(version(true, "").unwrap(), Version::V0_1);
    assert_eq!(version(true, both).unwrap(), Version::Draft);
    assert_eq!(version(false, both).unwrap(), Version::V0_1);
    assert!(version(false, draft).unwrap_err().to_string().contains("a draft that may change"));
    let said = version(true, r#", "interfaces": ["7.0.0"]"#).unwrap_err().to_string();
    assert!(said.contains("built for pointsman:policy@7.0.0, and this host speaks 0.1.0"), "{said}");
}

#[test]
fn a_refusal_is_no_fault_and_names_its_field() {
    use pointsman_sandbox::{call::CallError, point::Failure};
    let refusal = CallError::from(Failure::refusal("there are too many arguments").at("spec.engine.runner.args"));
    assert_eq!(refusal, CallError::Failed("spec.engine.runner.args: there are too many arguments".to_owned()));
    let fault = CallError::from(Failure { kind: FailureKind::Fault, message: "no".to_owned(), field: None });
    assert_eq!(fault, CallError::Faulted("no".to_owned()));
}
