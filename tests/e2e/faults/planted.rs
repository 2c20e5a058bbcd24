//! Checks that a run with faults notices bugs: each bug that is planted in a host here must be caught.

use pointsman_harness::FULL;
use pointsman_harness::{forget_our_package, target_dir, workspace};
use pointsman_tests::{CommandOutput, is_full};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A bug, as an edit of the host's source.
struct Planted {
    what: &'static str,
    file: &'static str,
    was: &'static str,
    is: &'static str,
    /// A part of the failure message of the run that catches it.
    caught: &'static str,
}

const PLANTED: [Planted; 3] = [
    Planted {
        what: "a host believes that it leads long after its lease has run out",
        file: "host/src/leader.rs",
        was: "self.publish(leads.then(|| sent + self.timing.renew));",
        is: "self.publish(leads.then(|| sent + self.timing.renew * 1000));",
        caught: "writes while host",
    },
    Planted {
        what: "one of five events of a watch is lost",
        file: "host/src/watch.rs",
        was: "            Ok(Event::Apply(seen)) => {\n",
        is: "            Ok(Event::Apply(seen)) => {\n                static SEEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);\n                \
             if SEEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 5 == 0 {\n                    continue;\n                }\n",
        caught: "it never happened: all is applied",
    },
    Planted {
        what: "what isn't planned any more stays",
        file: "host/src/apply.rs",
        was: "        for child in last {\n",
        is: "        for child in last.into_iter().filter(|child| child.key.resource.kind != \"Service\") {\n",
        caught: "these aren't what they are without faults",
    },
];

/// A copy of the host's source in its own folder.
fn source() -> PathBuf {
    let folder = target_dir().join("planted/source");
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(workspace()).unwrap().flatten() {
        if entry.path() != target_dir() && entry.file_name() != ".git" && entry.file_name() != "target" {
            // Preserve the timestamps, so that cargo only builds what has changed.
            CommandOutput::by(Command::new("cp").arg("-a").arg(entry.path()).arg(&folder)).ok();
        }
    }
    folder
}

fn built(source: &Path) -> PathBuf {
    let target = target_dir().join("planted/target");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_our_package(&mut cargo);
    cargo.args(["build", "--quiet", "--package", "pointsman", "--target-dir"]).arg(&target).current_dir(source);
    CommandOutput::by(&mut cargo).ok();
    target.join("debug/pointsman")
}

/// Builds a host per bug, which takes minutes.
#[tokio::test]
async fn a_bug_that_is_planted_in_a_host_is_caught() {
    if !is_full() {
        return;
    }
    let source = source();
    for Planted { what, file, was, is, caught } in PLANTED {
        let path = source.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(was).count(), 1, "{what}: in {file} there is one place for it");
        fs::write(&path, text.replace(was, is)).unwrap();
        let mut run = Command::new(std::env::current_exe().unwrap());
        run.args(["faults::whatever_fails_between", "--nocapture"]).env_remove(FULL).env("POINTSMAN_BINARY", built(&source));
        let said = CommandOutput::by(&mut run);
        let words = said.stdout + &said.stderr;
        assert!(!said.success && words.contains(caught), "{what}: it isn't caught\n{words}");
        println!("{what}: caught");
        fs::write(&path, text).unwrap();
    }
}
