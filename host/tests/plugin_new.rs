//! `pointsman plugin new`: projects as their authors get them, outside of the checkout, built and tested with their golden cases.

use crate::program::{pointsman, text};
use pointsman_harness::{
    FULL, forget_our_package,
    plugins::{WASM, build_arguments, plugin_file},
    target_dir, workspace,
};
use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

const POINTS: [&str; 4] = ["runtime-selection", "pod-templating", "metadata-propagation", "scheduling-scoring"];

fn is_full() -> bool {
    env::var_os(FULL).is_some()
}

/// The output of a command that must succeed.
fn succeeds(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}{}", text(&stdout), text(&stderr));
    text(&stdout)
}

fn new(folder: &Path, language: &str, point: &str, more: &[&str]) -> String {
    let words = ["plugin", "new", "my-policy", "--language", language, "--point", point];
    succeeds(pointsman(&words).args(more).current_dir(folder))
}

/// A new project in a temporary folder, and the output of the command.
fn project(language: &str, point: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    assert!(!folder.path().starts_with(workspace()), "{folder:?} isn't outside of the checkout");
    let printed = new(folder.path(), language, point, &["--dir", "."]);
    (folder, printed)
}

/// The commands of its README up to those that need a cluster: the ones that build it, and the one that tests it.
fn commands(project: &Path) -> (Vec<String>, String) {
    let readme = fs::read_to_string(project.join("README.md")).unwrap();
    let lines = readme.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned);
    let mut build: Vec<String> = lines.take_while(|line| !line.starts_with("pointsman plugin diff")).collect();
    let test = build.pop().unwrap();
    (build, test)
}

/// A command of a README, run by a shell.
fn shell(project: &Path, command: &str) -> Command {
    let mut shell = Command::new("sh");
    forget_our_package(&mut shell);
    shell.args(["-c", command]).current_dir(project).env("GOFLAGS", "").env_remove("CARGO_TARGET_DIR");
    shell
}

/// The output of `pointsman plugin test` for the project's plugin.
fn tested(project: &Path, plugin: &Path) -> Output {
    pointsman(&["plugin", "test"]).args([plugin, Path::new("cases.yaml")]).current_dir(project).output().unwrap()
}

fn passes(project: &Path, plugin: &Path) {
    let output = tested(project, plugin);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.ends_with(" passed, 0 failed\n"), "{told}{}", text(&output.stderr));
}

/// Builds a project with the commands of its README, and runs its plugin's cases.
fn builds_as_its_readme_says(language: &str, point: &str) -> TempDir {
    let (project, _) = project(language, point);
    let (build, test) = commands(project.path());
    for command in build {
        succeeds(&mut shell(project.path(), &command));
    }
    let words: Vec<&str> = test.split(' ').collect();
    let ["pointsman", "plugin", "test", plugin, "cases.yaml"] = words[..] else { panic!("{test}") };
    passes(project.path(), Path::new(plugin));
    project
}

#[test]
fn a_new_project_has_its_files_and_overwrites_nothing() {
    for (language, source) in [("rust", "src/lib.rs"), ("go", "policy.go"), ("javascript", "policy.js"), ("python", "policy.py")] {
        for point in POINTS {
            let (project, printed) = project(language, point);
            for file in [source, "cases.yaml", "policy-plugin.yaml", "README.md"] {
                assert!(project.path().join(file).is_file(), "{language} {point} {file}");
            }
            let from = [("rust", "in no registry"), ("go", "standard library"), ("javascript", "npm gets"), ("python", "pip gets")];
            let from = from.iter().find(|(of, _)| *of == language).unwrap().1;
            assert!(printed.contains(from) && fs::read_to_string(project.path().join("README.md")).unwrap().contains(from), "{printed}");
            assert_eq!(printed.contains("ConfigMaps for each stored version"), matches!(language, "javascript" | "python"), "{printed}");
            assert_eq!(project.path().join("wit/types.wit").is_file(), matches!(language, "javascript" | "python"), "{language}");
        }
    }
    let (project, _) = project("rust", "runtime-selection");
    let again = pointsman(&["plugin", "new", "my-policy", "--language", "rust", "--point", "runtime-selection", "--dir", "."])
        .current_dir(project.path())
        .output()
        .unwrap();
    assert!(!again.status.success() && text(&again.stderr).contains("exists, and nothing is overwritten"), "{again:?}");
}

#[test]
fn a_new_rust_project_can_take_the_sdk_of_a_checkout() {
    let folder = tempfile::tempdir().unwrap();
    let sdk = workspace().join("plugins/sdk");
    let printed = new(folder.path(), "rust", "pod-templating", &["--sdk", sdk.to_str().unwrap()]);
    assert!(printed.contains("takes the SDK from"), "{printed}");
    let project = folder.path().join("my-policy");
    assert!(!project.join("pointsman-sdk").exists());
    assert!(fs::read_to_string(project.join("Cargo.toml")).unwrap().contains("plugins/sdk\" }"));
}

/// Follows its README except for the dependencies' versions and the profile, which are those of existing builds.
fn builds_and_passes(project: &Path) {
    fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    forget_our_package(&mut cargo);
    cargo.args(build_arguments(WASM)).args(["--quiet", "--config", "profile.plugin.inherits='release'", "--target-dir"]);
    succeeds(cargo.arg(target_dir()).current_dir(project));
    passes(project, &plugin_file("my-policy", WASM));
}

/// The content of a file that docs/first-policy.md creates.
fn file_of_the_first_policy(path: &str) -> String {
    let page = include_str!("../../docs/first-policy.md");
    let (_, content) = page.split_once(&format!("cat > team-env/{path} <<'EOF'\n")).unwrap();
    content.split_once("EOF\n").unwrap().0.to_owned()
}

#[test]
fn a_new_rust_plugin_builds_outside_of_the_checkout_and_passes_its_cases() {
    for point in if is_full() { &POINTS[..] } else { &POINTS[2..3] } {
        let (project, _) = project("rust", point);
        builds_and_passes(project.path());
    }
    // In the same test, because the plugins have the same name.
    let (first_policy, _) = project("rust", "pod-templating");
    for path in ["src/lib.rs", "cases.yaml"] {
        fs::write(first_policy.path().join(path), file_of_the_first_policy(path)).unwrap();
    }
    builds_and_passes(first_policy.path());
    if is_full() {
        builds_as_its_readme_says("rust", POINTS[0]);
    }
}

#[test]
fn a_new_go_plugin_builds_and_passes_its_cases() {
    if !is_full() && Command::new("go").arg("version").output().is_err() {
        eprintln!("there is no Go here, so nothing is shown");
        return;
    }
    for point in if is_full() { &POINTS[..] } else { &POINTS[3..] } {
        builds_as_its_readme_says("go", point);
    }
}

/// Asserts that a bug in the policy is reported with its exception.
fn reports_exceptions(project: &Path, source: &str, (before, bug): (&str, &str), expected: &str) {
    let policy = fs::read_to_string(project.join(source)).unwrap();
    assert!(policy.contains(before), "{policy}");
    fs::write(project.join(source), policy.replace(before, &format!("{before}\n{bug}"))).unwrap();
    let (build, _) = commands(project);
    succeeds(&mut shell(project, build.last().unwrap()));
    let output = tested(project, Path::new("my-policy.wasm"));
    let told = text(&output.stdout);
    assert!(!output.status.success() && told.contains(expected), "{told}");
}

/// Asserts that the README names the right number of ConfigMaps.
fn config_maps_are_as_told(project: &Path) {
    let readme = fs::read_to_string(project.join("README.md")).unwrap();
    let push = ["plugin", "push", "my-policy.wasm", "--name", "my-policy", "--dry-run"];
    let printed = succeeds(pointsman(&push).current_dir(project));
    let maps = printed.lines().filter(|line| line.contains("ConfigMap")).count();
    assert!(readme.contains(&format!(": {maps} ConfigMaps for each stored version")), "{maps}: {readme}");
}

#[test]
fn a_new_javascript_plugin_builds_passes_its_cases_and_reports_exceptions() {
    if !is_full() {
        return;
    }
    for point in POINTS {
        let project = builds_as_its_readme_says("javascript", point);
        config_maps_are_as_told(project.path());
        if point == "metadata-propagation" {
            let bug = ("propagate({ target, labels, annotations }) {", "    null.why;");
            reports_exceptions(project.path(), "policy.js", bug, "TypeError");
        }
    }
}

#[test]
fn a_new_python_plugin_builds_passes_its_cases_and_reports_exceptions() {
    if !is_full() {
        return;
    }
    for point in POINTS {
        let project = builds_as_its_readme_says("python", point);
        config_maps_are_as_told(project.path());
        if point == "metadata-propagation" {
            let bug = (r#""""Returns all labels and annotations that the target gets.""""#, "        [][7]");
            reports_exceptions(project.path(), "policy.py", bug, "IndexError: list index out of range");
        }
    }
}
