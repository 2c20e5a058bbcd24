//! Guides whose commands are run as written.

use crate::{CommandOutput, TestCluster, command::helm_folders, helm, pointsman};
use pointsman_harness::workspace;
use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

/// A block of commands, and their expected output.
#[derive(Debug)]
pub struct Step {
    /// The text of the block.
    pub commands: String,
    /// The output; a line `...` matches any lines.
    pub output: Option<String>,
}

/// The steps of a guide: its `sh` blocks, each with the `text` block after it.
pub fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (language, content) in fenced(guide) {
        match language {
            "sh" => steps.push(Step { commands: content.to_owned(), output: None }),
            "text" => steps.last_mut().expect("output follows commands").output = Some(content.to_owned()),
            other => panic!("a block of {other:?} is neither commands nor their output"),
        }
    }
    steps
}

/// A block of a guide's commands. A test that reads it must run it, and fails otherwise.
#[derive(Debug)]
pub struct Block {
    commands: String,
    ran: AtomicBool,
}

impl Block {
    /// The text of the block.
    pub fn commands(&self) -> &str {
        &self.commands
    }

    /// Runs them.
    pub fn run(&self, cluster: &TestCluster, folder: &Path) -> CommandOutput {
        self.run_with(cluster, folder, "")
    }

    /// Runs them after commands that replace containers and the kubelet.
    pub fn run_with(&self, cluster: &TestCluster, folder: &Path, before: &str) -> CommandOutput {
        self.ran.store(true, Ordering::Relaxed);
        shell(cluster, folder, &format!("{before}\n{}", self.commands))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        assert!(*self.ran.get_mut() || std::thread::panicking(), "no test runs\n{}", self.commands);
    }
}

/// The text of a page of `docs`.
pub fn page(name: &str) -> String {
    let file = workspace().join("docs").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The command blocks below a heading of a page in `docs`, up to the next heading of the same level.
pub fn blocks(name: &str, heading: &str) -> Vec<Block> {
    let page = page(name);
    let section = sections(&page).into_iter().find_map(|(its, text)| (its == heading).then_some(text));
    let section = section.unwrap_or_else(|| panic!("{name} has no heading {heading}"));
    let is_run =
        |(language, text): (&str, &str)| (language == "sh").then(|| Block { commands: text.to_owned(), ran: AtomicBool::default() });
    fenced(section).into_iter().filter_map(is_run).collect()
}

/// The headings of a page with the text below each. The text before the first heading has an empty one.
pub fn sections(page: &str) -> Vec<(&str, &str)> {
    let mut parts = page.split("\n## ");
    let first = parts.next().map(|text| ("", text));
    first.into_iter().chain(parts.map(|part| part.split_once('\n').unwrap_or((part, "")))).collect()
}

/// The fenced blocks of a text, each with its language.
pub fn fenced(text: &str) -> Vec<(&str, &str)> {
    // Every second part is inside a block.
    text.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').expect("a block names its language")).collect()
}

/// Whether the expected lines are printed in this order. A line `...` matches any lines, and `...` at the end of a line matches its rest.
pub fn printed(said: &str, expected: &str) -> bool {
    let mut lines = said.lines().map(str::trim_end).filter(|line| !line.is_empty()).peekable();
    let mut gap = false;
    for expected in expected.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if expected == "..." {
            gap = true;
            continue;
        }
        let same = |line: &&str| expected.strip_suffix("...").map_or(*line == expected, |start| line.starts_with(start));
        let found = if gap { lines.any(|line| same(&line)) } else { lines.next().is_some_and(|line| same(&line)) };
        if !found {
            return false;
        }
        gap = false;
    }
    gap || lines.peek().is_none()
}

/// Runs commands with our own `pointsman` and `helm`.
pub fn shell(cluster: &TestCluster, folder: &Path, commands: &str) -> CommandOutput {
    let commands = format!("pointsman() {{ \"$POINTSMAN\" \"$@\"; }}\nhelm() {{ \"$HELM\" \"$@\"; }}\n{commands}");
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &commands]).current_dir(folder);
    // By default, kubectl would use the cached API discovery of an earlier cluster at the same port.
    bash.env("KUBECACHEDIR", cluster.dir.join("kube-cache"));
    bash.env("KUBECONFIG", &cluster.kubeconfig).env("POINTSMAN", pointsman()).env("HELM", helm());
    CommandOutput::by(helm_folders(&mut bash, &cluster.dir))
}
