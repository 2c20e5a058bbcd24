//! Checks that the table of features in docs/node-placement.md matches the code.

use pointsman_core::placement::features::FEATURES;
use std::{env, fmt::Write as _, fs, path::Path};

/// The variable that xtask sets (`xtask/src/build.rs`).
const UPDATE: &str = "POINTSMAN_UPDATE_PLACEMENT_PAGE";

fn table() -> String {
    let mut table = "| feature | unit | |\n|---|---|---|\n".to_owned();
    for feature in FEATURES {
        writeln!(table, "| `{}` | {} | {} |", feature.name, feature.unit, feature.about).unwrap();
    }
    table
}

#[test]
fn the_page_has_the_features_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/node-placement.md");
    let page = fs::read_to_string(&path).unwrap();
    let begin = "<!-- features: written by `cargo xtask generate` -->\n";
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap();
    let expected = format!("{before}{begin}\n{}\n<!-- end -->\n{after}", table());
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, expected).unwrap();
        return;
    }
    assert!(page == expected, "docs/node-placement.md isn't that of the code: run `cargo xtask generate`");
}
