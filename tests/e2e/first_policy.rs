//! The page about a first policy: runs its blocks in order, in the cluster of the page about a first service, and compares what they print.

use crate::{first_service::run_the_page, services::own_cluster};
use pointsman_tests::guide::{page, printed, shell, steps};

/// Precedes the commands: the project is built as users build it, without the settings of this workspace.
const OUTSIDE: &str = "unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS CARGO_TARGET_DIR CARGO_MANIFEST_DIR RUSTFLAGS";

/// The commands that fail or wait on purpose, in order, each with a part of its block and its exit code.
const FAILING: [(&str, i32); 4] = [("plugin diff", 2), ("plugin push", 2), ("containers/9{number}", 1), ("plugin push", 2)];

/// A text without what differs between runs: digests, sizes, ages, names of pods, and the widths of columns.
fn without_variables(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().map(without_variable).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn without_variable(word: &str) -> String {
    let after =
        |start: &str| word.split_once(start).map(|(before, rest)| (before, rest.trim_start_matches(|c: char| c.is_ascii_hexdigit())));
    if let Some((before, rest)) = after("sha256:") {
        // The page shortens digests.
        return format!("{before}sha256:DIGEST{}", rest.trim_start_matches("..."));
    }
    if let Some((before, rest)) = after("set-").filter(|(before, _)| before.trim_start_matches('`').is_empty()) {
        return format!("{before}set-NAME{rest}");
    }
    let is_age = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || b"ms".contains(&byte));
    match word {
        word if word.starts_with("qwen-engine-") => "POD".to_owned(),
        word if word.len() > 4 && word.bytes().all(|byte| byte.is_ascii_digit()) => "SIZE".to_owned(),
        word if word.ends_with(['m', 's']) && is_age(word) => "AGE".to_owned(),
        word => word.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_page_about_a_first_policy_prints_what_it_says() {
    let cluster = own_cluster(Some(&[]));
    tokio::task::block_in_place(|| {
        run_the_page(&cluster, |folder| {
            let mut failing = FAILING.iter().peekable();
            let project = folder.join("team-env");
            let mut is_inside = false;
            for step in steps(&page("first-policy.md")) {
                let expected = failing.next_if(|(part, _)| step.commands.contains(part)).map_or(0, |(_, code)| *code);
                let result = shell(&cluster, if is_inside { &project } else { folder }, &format!("{OUTSIDE}\n{}", step.commands));
                assert_eq!(result.code, Some(expected), "{}\n{}{}", step.commands, result.stdout, result.stderr);
                let [said, expected] =
                    [&result.stdout, &step.output.unwrap_or_else(|| "...".to_owned())].map(|text| without_variables(text));
                assert!(printed(&said, &expected), "{}\nprints\n{}\nand the page says\n{expected}", step.commands, result.stdout);
                is_inside |= step.commands.contains("\ncd team-env\n");
            }
            assert_eq!(failing.next(), None);
        });
    });
}
