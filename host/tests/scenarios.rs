//! The plans of services: each folder of `tests/scenarios` is a case, read like `pointsman render` and `pointsman explain` read it. `cargo
//! xtask scenarios --update` writes the expected files again.

use crate::policies;
use clap::Parser;
use pointsman::{
    cli::{
        offline::{Offline, OfflineArgs, Planned},
        placement::{PlacementArgs, predict},
        render::{Form, clashes, rendered},
    },
    load::Loader,
};
use pointsman_core::explain;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env,
    fmt::Write,
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// Set by `cargo xtask scenarios --update`.
const UPDATE: &str = "POINTSMAN_UPDATE_SCENARIOS";

/// Set by `cargo xtask scenarios NAME`.
const ONLY: &str = "POINTSMAN_SCENARIO";

/// The files of a case that aren't input.
const PLAN: &str = "plan.yaml";
const EXPLAIN: &str = "explain.json";

/// The example policies that a case may use as source.file.
const EXAMPLES: [&str; 2] = ["rust-cost", "rust-labels"];

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    offline: OfflineArgs,
    #[command(flatten)]
    placement: PlacementArgs,
}

/// The flags whose values are files of the case.
const FILE_FLAGS: [&str; 3] = ["-f", "--nodes", "--placement-config"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/scenarios")
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// The file `show` of a case, which selects the objects and decisions for its golden files.
struct Show {
    plan: bool,
    /// Whether labels and annotations are left out.
    bare: bool,
    explain: bool,
    /// The kinds of objects; empty for all.
    kinds: BTreeSet<String>,
    /// The points of the decisions, and `conditions`; empty for all.
    points: BTreeSet<String>,
}

impl Show {
    fn read(case: &Path) -> Self {
        let mut show = Self { plan: false, bare: false, explain: false, kinds: BTreeSet::new(), points: BTreeSet::new() };
        let lines = lines(&case.join("show"));
        for line in &lines {
            let mut words = line.split_whitespace();
            let set = match words.next() {
                Some(word @ ("plan" | "specs")) => {
                    (show.plan, show.bare) = (true, word == "specs");
                    &mut show.kinds
                }
                Some("explain") => {
                    show.explain = true;
                    &mut show.points
                }
                _ => panic!("{}/show: a line begins with plan, specs or explain: {line}", case.display()),
            };
            set.extend(words.map(str::to_owned));
        }
        if lines.is_empty() {
            (show.plan, show.explain) = (true, true);
        }
        show
    }
}

/// The actual texts of a case's golden files; `None` for those that it doesn't have.
struct Given {
    plan: Option<String>,
    explain: Option<String>,
}

fn give(case: &Path, loader: &Loader, plugins: &Path) -> Result<Given, String> {
    let mut words = vec!["scenario".to_owned(), "--plugin-dir".to_owned(), plugins.display().to_string()];
    let mut files: Vec<PathBuf> = fs::read_dir(case).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "yaml") && !file.ends_with(PLAN)) {
        words.extend(["-f".to_owned(), file.display().to_string()]);
    }
    for line in lines(&case.join("args")) {
        let mut parts = line.splitn(2, ' ');
        let (flag, value) = (parts.next().unwrap_or_default().to_owned(), parts.next());
        let value =
            value.map(|value| if FILE_FLAGS.contains(&flag.as_str()) { case.join(value).display().to_string() } else { value.to_owned() });
        words.push(flag);
        words.extend(value);
    }
    let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
    let show = Show::read(case);
    let mut offline = match Offline::read(&args.offline, loader) {
        Ok(offline) => offline,
        Err(error) => {
            let said = format!("# error: {error:#}\n").replace(&format!("{}/", case.display()), "");
            let said = said.replace(&format!("{}", plugins.display()), "plugins");
            return Ok(Given { plan: Some(said), explain: None });
        }
    };
    // A new version of ours must not change all golden files.
    "v0.0.0".clone_into(&mut offline.settings.version);
    let plans = offline.plans();
    let predicted = predict(&offline, &plans, &args.placement, loader).map_err(|error| format!("{error:#}"))?;
    offline.notes.extend(predicted);
    let plan = show.plan.then(|| plan(&offline, &plans, &show, case));
    let explain = show.explain.then(|| plans.iter().map(|planned| explained(planned, &show.points)).collect::<String>());
    Ok(Given { plan, explain })
}

fn plan(offline: &Offline, plans: &[Planned], show: &Show, case: &Path) -> String {
    let mut text = String::new();
    for note in &offline.notes {
        writeln!(text, "# note: {}", note.replace(&format!("{}/", case.display()), "")).unwrap();
    }
    for held in plans.iter().filter_map(Planned::held).chain(clashes(plans)) {
        writeln!(text, "# {held}").unwrap();
    }
    if show.kinds.is_empty() && !show.bare {
        return text + &rendered(plans, Form::Yaml).unwrap();
    }
    let objects = plans.iter().filter_map(|planned| planned.plan.objects.as_ref()).flatten();
    let objects = objects.filter(|object| show.kinds.is_empty() || show.kinds.contains(object.key.resource.kind));
    let documents: Vec<String> = objects
        .map(|object| {
            let mut whole = object.manifest();
            if show.bare {
                bare(&mut whole);
            }
            serde_saphyr::to_string(&whole).unwrap()
        })
        .collect();
    text + &documents.join("---\n")
}

/// Removes the labels and annotations of an object and of its pods.
fn bare(value: &mut Value) {
    for (name, value) in value.as_object_mut().into_iter().flatten() {
        if name == "metadata" {
            value.as_object_mut().unwrap().retain(|field, _| field != "labels" && field != "annotations");
        }
        bare(value);
    }
}

fn explained(planned: &Planned, points: &BTreeSet<String>) -> String {
    let mut told = explain::json(&planned.subject, &planned.plan, &[]);
    // Only subjects of a cluster have any.
    assert_eq!(told.as_object_mut().and_then(|told| told.remove("storedConditions")), Some(json!([])));
    let shown = |point: &str| points.is_empty() || points.contains(point);
    if let Some(decisions) = told["decisions"].as_array_mut() {
        decisions.retain(|decision| decision["point"].as_str().is_some_and(shown));
        for plugin in decisions.iter_mut().filter_map(|decision| decision["plugins"].as_array_mut()).flatten() {
            plugin["digest"] = json!("(digest)");
        }
    }
    if !shown("conditions") {
        told["conditions"] = Value::from(Vec::<Value>::new());
    }
    format!("{told:#}\n")
}

/// The first line in which two texts differ, with the lines around it.
fn difference(expected: &str, given: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), given.lines().collect());
    let at = old.iter().zip(&new).position(|(old, new)| old != new).unwrap_or_else(|| old.len().min(new.len()));
    let mut text = format!("    first in line {}\n", at + 1);
    for line in &old[at.saturating_sub(3)..at] {
        writeln!(text, "      {line}").unwrap();
    }
    for (mark, lines) in [('-', &old), ('+', &new)] {
        for line in lines.iter().skip(at).take(4) {
            writeln!(text, "    {mark} {line}").unwrap();
        }
    }
    text
}

#[test]
fn every_scenario_gives_what_is_expected() {
    let (update, only) = (env::var_os(UPDATE).is_some(), env::var(ONLY).unwrap_or_default());
    let loader = Loader::new(Arc::clone(policies::engines()), policies::compilers());
    let plugins = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenario-plugins");
    fs::create_dir_all(&plugins).unwrap();
    for name in EXAMPLES {
        fs::write(plugins.join(format!("{name}.wasm")), policies::module(&format!("pointsman-example-{name}"))).unwrap();
    }
    let mut cases: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.is_dir() && !case.ends_with("shared") && case.file_name().unwrap().to_string_lossy().contains(&only));
    cases.sort();
    assert!(!cases.is_empty(), "there is no scenario with {only:?} in its name");
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let given: Vec<Result<Given, String>> = thread::scope(|scope| {
        let (loader, plugins) = (&loader, &plugins);
        let mut parts = Vec::new();
        for cases in cases.chunks(cases.len().div_ceil(threads)) {
            parts.push(scope.spawn(move || cases.iter().map(|case| give(case, loader, plugins)).collect::<Vec<_>>()));
        }
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let mut failed = Vec::new();
    for (case, given) in cases.iter().zip(given) {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let mut problems = String::new();
        match given {
            Err(error) => problems = format!("    {error}\n"),
            Ok(Given { plan, explain }) => {
                for (file, given) in [(PLAN, plan), (EXPLAIN, explain)] {
                    let path = case.join(file);
                    let expected = fs::read_to_string(&path).ok();
                    if expected == given {
                        continue;
                    }
                    match &given {
                        _ if !update => {
                            let (expected, given) = (expected.unwrap_or_default(), given.unwrap_or_default());
                            write!(problems, "    {file}:\n{}", difference(&expected, &given)).unwrap();
                        }
                        Some(given) => fs::write(&path, given).unwrap(),
                        None => fs::remove_file(&path).unwrap(),
                    }
                }
            }
        }
        if !problems.is_empty() {
            eprintln!("{name}\n{problems}");
            failed.push(name);
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} scenarios give something else: {}; `cargo xtask scenarios --update` takes it as expected",
        failed.len(),
        cases.len(),
        failed.join(", ")
    );
}
