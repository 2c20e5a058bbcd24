//! The program's command line.

use crate::program::{empty_folder, pointsman, text};
use std::{fs, process::Command};

#[test]
fn completions_are_printed_for_a_shell() {
    let output = pointsman(&["completions", "bash"]).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("_pointsman()"));
}

#[test]
fn every_subcommand_has_a_man_page() {
    let pages = empty_folder("man").join("man1");
    let output = pointsman(&["man", pages.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    for name in ["pointsman.1", "pointsman-controller.1", "pointsman-policy-approve.1"] {
        assert!(page(name).contains("SYNOPSIS"), "{name}");
    }
    assert!(page("pointsman-controller.1").contains("webhook\\-client\\-ca"));
}

#[cfg(unix)]
#[test]
fn kubectl_s_plugin_names_itself_as_the_user_typed_it() {
    let plugin = empty_folder("kubectl").join("kubectl-pointsman");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pointsman"), &plugin).unwrap();
    let by_kubectl = Command::new(&plugin).args(["policy", "--help"]).output().unwrap();
    assert!(text(&by_kubectl.stdout).contains("Usage: kubectl pointsman policy "), "{}", text(&by_kubectl.stdout));
    let by_name = pointsman(&["policy", "--help"]).output().unwrap();
    assert!(text(&by_name.stdout).contains("Usage: pointsman policy "), "{}", text(&by_name.stdout));
}
