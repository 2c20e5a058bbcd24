//! Guides whose commands are run as they stand there.

use crate::{CommandOutput, TestCluster, command::helm_folders, helm, pointsman};
use std::{path::Path, process::Command};

/// A block of commands, and what is said of their output.
#[derive(Debug)]
pub struct Step {
    /// As they stand in the block.
    pub commands: String,
    /// What they print; a line `...` stands for any lines.
    pub output: Option<String>,
}

/// The steps of a guide: `sh` blocks, each with the `text` block that follows it.
pub fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // Every second part is within a block.
    for block in guide.split("\n```").skip(1).step_by(2) {
        let (language, content) = block.split_once('\n').expect("a block names its language");
        match language {
            "sh" => steps.push(Step { commands: content.to_owned(), output: None }),
            "text" => steps.last_mut().expect("output follows commands").output = Some(content.to_owned()),
            other => panic!("a block of {other:?} is neither commands nor their output"),
        }
    }
    steps
}

/// The commands below a heading of a guide, up to the next of its level.
pub fn section(guide: &str, heading: &str) -> Vec<String> {
    let heading = format!("\n## {heading}\n");
    let (_, text) = guide.split_once(&heading).unwrap_or_else(|| panic!("no heading{heading}"));
    let text = text.split_once("\n## ").map_or(text, |(section, _)| section);
    steps(text).into_iter().map(|step| step.commands).collect()
}

/// Whether these lines are printed in this order. A line `...` stands for any lines, and at the end of one for its rest.
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

/// Runs commands, with `pointsman` and `helm` as ours.
pub fn shell(cluster: &TestCluster, folder: &Path, commands: &str) -> CommandOutput {
    let commands = format!("pointsman() {{ \"$POINTSMAN\" \"$@\"; }}\nhelm() {{ \"$HELM\" \"$@\"; }}\n{commands}");
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &commands]).current_dir(folder);
    bash.env("KUBECONFIG", &cluster.kubeconfig).env("POINTSMAN", pointsman()).env("HELM", helm());
    CommandOutput::by(helm_folders(&mut bash, &cluster.dir))
}
