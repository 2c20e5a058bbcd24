//! The tests that docs/security.md names as evidence exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_test_that_the_security_page_names_is_there() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(workspace.join("docs/security.md")).unwrap();
    let mut files = Vec::new();
    for folder in ["host", "plugins", "tests", "crds"] {
        sources(&workspace.join(folder), &mut files);
    }
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    // The name of a test is a sentence.
    let quoted: BTreeSet<&str> = page.split('`').skip(1).step_by(2).filter(|quoted| quoted.matches('_').count() > 3).collect();
    assert!(quoted.len() > 30, "{quoted:#?}");
    let gone: Vec<&str> = quoted.into_iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(gone.is_empty(), "docs/security.md names tests that don't exist: {gone:#?}");
    let scenarios = page.split("scenario `").skip(1).filter_map(|rest| rest.split('`').next());
    for scenario in scenarios {
        assert!(workspace.join("tests/scenarios").join(scenario).is_dir(), "docs/security.md names the scenario {scenario}");
    }
}
