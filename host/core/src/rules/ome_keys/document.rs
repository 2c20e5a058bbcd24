//! Compares the tables of docs/labels-and-annotations.md with those of the code. `cargo xtask generate` runs this test to write them.

use super::{ANNOTATIONS, Annotation, LABELS, Label, TRAINING_ANNOTATIONS, TRAINING_LABELS, is_on_the_page};
use std::{env, fmt::Write as _, fs, path::Path};

/// xtask sets this variable to update the page (`xtask/src/build.rs`).
const UPDATE: &str = "POINTSMAN_UPDATE_LABELS_PAGE";

fn yes(carried: bool) -> &'static str {
    if carried { "yes" } else { "no" }
}

fn labels(labels: &[Label]) -> String {
    let mut table = "| label | objects | pods | jobs | |\n|---|---|---|---|---|\n".to_owned();
    for label in labels {
        let (objects, pods, jobs) = (yes(label.objects), yes(label.pods), yes(label.jobs));
        writeln!(table, "| `{}` | {objects} | {pods} | {jobs} | {} |", label.key, label.about).unwrap();
    }
    table
}

fn annotations(annotations: &[Annotation]) -> String {
    let mut table = "| annotation | value | objects | pods | jobs | |\n|---|---|---|---|---|---|\n".to_owned();
    for annotation in annotations.iter().filter(|annotation| is_on_the_page(annotation)) {
        let (objects, pods, jobs) = (yes(annotation.objects), yes(annotation.pods), yes(annotation.jobs));
        writeln!(table, "| `{}` | {} | {objects} | {pods} | {jobs} | {} |", annotation.key, annotation.what(), annotation.about).unwrap();
    }
    table
}

/// The page, with the table between the markers of this name replaced.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- {name}: written by `cargo xtask generate` -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page has no {begin}"));
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap_or_else(|| panic!("the table of {name} has no end"));
    format!("{before}{begin}\n{table}\n<!-- end -->\n{after}")
}

#[test]
fn the_page_has_the_tables_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/labels-and-annotations.md");
    let page = fs::read_to_string(&path).unwrap();
    let tables = [
        ("labels", labels(&LABELS)),
        ("annotations", annotations(&ANNOTATIONS)),
        ("labels of training jobs", labels(&TRAINING_LABELS)),
        ("annotations of training jobs", annotations(&TRAINING_ANNOTATIONS)),
    ];
    let expected = tables.iter().fold(page.clone(), |page, (name, table)| with_table(&page, name, table));
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, expected).unwrap();
        return;
    }
    assert!(page == expected, "docs/labels-and-annotations.md differs from the code: run `cargo xtask generate`");
}

#[test]
fn an_example_is_accepted_and_a_wrong_value_is_not() {
    for annotation in ANNOTATIONS.iter().chain(&TRAINING_ANNOTATIONS) {
        let (example, _) = annotation.example;
        assert!(annotation.accepts(example), "{} {example:?}", annotation.key);
        assert!(annotation.wrong.is_none_or(|wrong| !annotation.accepts(wrong)), "{}", annotation.key);
    }
}

#[test]
fn a_format_with_a_guard_has_one_annotation_in_its_practice() {
    for guarded in ANNOTATIONS.iter().filter(|annotation| annotation.guard.is_some()) {
        let (practice, format) = guarded.format.unwrap();
        let same = ANNOTATIONS.iter().filter(|other| other.format.is_some_and(|(in_, other)| in_ == practice && other.name == format.name));
        assert_eq!(same.count(), 1, "the guard of {} would also apply to other annotations", guarded.key);
    }
}
