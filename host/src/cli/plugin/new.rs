//! `pointsman plugin new`.

use crate::cli::output::print;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use pointsman_core::point::name;
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::words::service_name;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// The plugin's name: lowercase letters, digits and hyphens.
    #[arg(value_parser = plugin_name)]
    name: String,
    /// What it is written in.
    #[arg(long, value_enum)]
    language: Language,
    /// The policy point that it answers: runtime-selection, pod-templating, metadata-propagation or scheduling-scoring.
    #[arg(long, value_parser = super::point)]
    point: PolicyPoint,
    /// The project's folder; by default one of its name.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// The folder plugins/sdk of a checkout of Pointsman, for Rust; by default that of the checkout around the project's folder.
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    Rust,
    Go,
    #[value(name = "javascript")]
    JavaScript,
    Python,
}

fn plugin_name(text: &str) -> Result<String, String> {
    if service_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a plugin's name has up to 63 lowercase letters, digits and hyphens, a letter first and no hyphen last".to_owned())
    }
}

/// A text for each policy point.
macro_rules! by_point {
    ($point:expr, $folder:literal, $ending:literal) => {
        match $point {
            PolicyPoint::RuntimeSelection => include_str!(concat!("templates/", $folder, "/runtime-selection", $ending)),
            PolicyPoint::PodTemplating => include_str!(concat!("templates/", $folder, "/pod-templating", $ending)),
            PolicyPoint::MetadataPropagation => include_str!(concat!("templates/", $folder, "/metadata-propagation", $ending)),
            PolicyPoint::SchedulingScoring => include_str!(concat!("templates/", $folder, "/scheduling-scoring", $ending)),
        }
    };
}

/// The published interfaces, for the languages whose toolchain reads them. Rust's SDK speaks the draft of the next ones, too.
const WIT: [(&str, &str); 8] = [
    ("wit/log.wit", include_str!("../../../../wit/0.1.0/log.wit")),
    ("wit/metadata-propagation.wit", include_str!("../../../../wit/0.1.0/metadata-propagation.wit")),
    ("wit/plugin.wit", include_str!("../../../../wit/0.1.0/plugin.wit")),
    ("wit/pod-templating.wit", include_str!("../../../../wit/0.1.0/pod-templating.wit")),
    ("wit/runtime-selection.wit", include_str!("../../../../wit/0.1.0/runtime-selection.wit")),
    ("wit/scheduling-scoring.wit", include_str!("../../../../wit/0.1.0/scheduling-scoring.wit")),
    ("wit/types.wit", include_str!("../../../../wit/0.1.0/types.wit")),
    ("wit/worlds.wit", include_str!("../../../../wit/0.1.0/worlds.wit")),
];

impl Language {
    /// A project's files with their templates.
    fn files(self, point: PolicyPoint) -> Vec<(&'static str, &'static str)> {
        let mut files = vec![("cases.yaml", by_point!(point, "cases", ".yaml.tmpl"))];
        files.extend(match self {
            Self::Rust => vec![
                ("Cargo.toml", include_str!("templates/rust/Cargo.toml.tmpl")),
                ("src/lib.rs", by_point!(point, "rust", ".rs.tmpl")),
                ("README.md", include_str!("templates/rust/README.md.tmpl")),
                (".gitignore", "/target\n"),
            ],
            Self::Go => vec![
                ("go.mod", include_str!("templates/go/go.mod.tmpl")),
                ("main.go", include_str!("templates/go/main.go.tmpl")),
                ("policy.go", by_point!(point, "go", ".go.tmpl")),
                ("README.md", include_str!("templates/go/README.md.tmpl")),
                (".gitignore", "*.wasm\n"),
            ],
            Self::JavaScript => vec![
                ("package.json", include_str!("templates/javascript/package.json.tmpl")),
                ("build.js", include_str!("templates/javascript/build.js.tmpl")),
                ("policy.js", by_point!(point, "javascript", ".js.tmpl")),
                ("README.md", include_str!("templates/javascript/README.md.tmpl")),
                (".gitignore", "/node_modules\n*.wasm\n"),
            ],
            Self::Python => vec![
                ("requirements.txt", include_str!("templates/python/requirements.txt.tmpl")),
                ("policy.py", by_point!(point, "python", ".py.tmpl")),
                ("README.md", include_str!("templates/python/README.md.tmpl")),
                (".gitignore", "/venv\n__pycache__\n*.wasm\n"),
            ],
        });
        if matches!(self, Self::JavaScript | Self::Python) {
            files.extend(WIT);
        }
        files
    }

    /// The command that builds the project, and what it makes.
    fn build(self, name: &str, point: PolicyPoint) -> (String, String) {
        let here = format!("{name}.wasm");
        match self {
            Self::Rust => (
                "cargo build --release --target wasm32-unknown-unknown".to_owned(),
                format!("target/wasm32-unknown-unknown/release/{}.wasm", snake(name)),
            ),
            Self::Go => (format!("GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -ldflags \"-s -w\" -o {here} ."), here),
            Self::JavaScript => ("npm install --ignore-scripts && npm run build".to_owned(), here),
            Self::Python => {
                (format!("componentize-py --wit-path wit --world {} componentize --stub-wasi policy --output {here}", world(point)), here)
            }
        }
    }
}

fn snake(name: &str) -> String {
    name.replace('-', "_")
}

/// The world of wit/worlds.wit that answers one point.
fn world(point: PolicyPoint) -> &'static str {
    match point {
        PolicyPoint::RuntimeSelection => "runtime-selector",
        PolicyPoint::PodTemplating => "pod-templater",
        PolicyPoint::MetadataPropagation => "metadata-propagator",
        PolicyPoint::SchedulingScoring => "scheduling-scorer",
    }
}

pub(super) fn run(args: &NewArgs) -> Result<ExitCode> {
    let NewArgs { name, language, point, .. } = args;
    let dir = args.dir.clone().unwrap_or_else(|| name.into());
    let sdk = match (language, &args.sdk) {
        (Language::Rust, Some(given)) => Some(sdk_in(given)?),
        (Language::Rust, None) => sdk_around(&dir),
        (_, Some(_)) => bail!("--sdk is for Rust alone: the other languages need no SDK"),
        (_, None) => None,
    };
    let files = language.files(*point);
    if let Some((there, _)) = files.iter().find(|(file, _)| dir.join(file).exists()) {
        bail!("{} is there already, and nothing is overwritten: name another folder with --dir", dir.join(there).display());
    }
    for (file, template) in files {
        let file = dir.join(file);
        let writing = || format!("writing {}", file.display());
        fs::create_dir_all(file.parent().unwrap_or(&dir)).with_context(writing)?;
        fs::write(&file, filled(template, name, *point, sdk.as_deref())).with_context(writing)?;
    }
    print(&next_steps(args, &dir, sdk.is_some()));
    Ok(ExitCode::SUCCESS)
}

fn filled(template: &str, name: &str, point: PolicyPoint, sdk: Option<&Path>) -> String {
    // A TOML string takes what a Rust one does, of all that a path has.
    let sdk = match sdk {
        Some(folder) => format!("pointsman-plugin = {{ path = {:?} }}", folder.display().to_string()),
        None => {
            "# The SDK isn't published yet: put the folder plugins/sdk of a checkout of Pointsman in the version's place, such as\n\
                 # pointsman-plugin = { path = \"../pointsman/plugins/sdk\" }\n"
                .to_owned()
                + &format!("pointsman-plugin = \"{}\"", env!("CARGO_PKG_VERSION"))
        }
    };
    let point_name = self::name(point);
    let values = [("name", name), ("snake", &snake(name)), ("point", point_name), ("world", world(point)), ("sdk", &sdk)];
    values.into_iter().fold(template.to_owned(), |text, (field, value)| text.replace(&format!("{{{{{field}}}}}"), value))
}

fn next_steps(args: &NewArgs, dir: &Path, sdk: bool) -> String {
    let NewArgs { name, language, point, .. } = args;
    let (build, plugin) = language.build(name, *point);
    let missing = if *language == Language::Rust && !sdk {
        "The SDK isn't published yet: name its folder in Cargo.toml before you build.\n"
    } else {
        ""
    };
    format!(
        "{missing}build:  cd {} && {build}\ntest:   pointsman plugin test {plugin} cases.yaml\npush:   pointsman plugin push {plugin} --name {name}",
        dir.display()
    )
}

fn sdk_in(folder: &Path) -> Result<PathBuf> {
    if !is_sdk(folder) {
        bail!("--sdk {}: there is no SDK; it is the folder plugins/sdk of a checkout of Pointsman", folder.display());
    }
    fs::canonicalize(folder).with_context(|| format!("--sdk {}", folder.display()))
}

/// The SDK of the checkout that the project lies in.
fn sdk_around(dir: &Path) -> Option<PathBuf> {
    let dir = env::current_dir().ok()?.join(dir);
    dir.ancestors().map(|folder| folder.join("plugins/sdk")).find(|folder| is_sdk(folder))
}

fn is_sdk(folder: &Path) -> bool {
    fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|manifest| manifest.contains("name = \"pointsman-plugin\""))
}

#[cfg(test)]
mod tests {
    use super::super::cases::PluginCase;
    use super::*;
    use crate::cli::golden;
    use pointsman_core::point::POINTS;
    use pointsman_sandbox::binary::Version;

    const LANGUAGES: [Language; 4] = [Language::Rust, Language::Go, Language::JavaScript, Language::Python];

    #[test]
    fn nothing_of_a_template_stays_unfilled_and_a_readme_is_short() {
        for language in LANGUAGES {
            for point in POINTS {
                for (file, template) in language.files(point) {
                    let text = filled(template, "my-policy", point, None);
                    assert!(!text.contains("{{") || file == "policy.go", "{language:?} {point:?} {file}");
                    assert!(!text.contains("{{name") && !text.contains("{{point"), "{language:?} {point:?} {file}");
                    assert!(file != "README.md" || text.lines().count() <= 40, "{language:?}");
                    assert!(file == ".gitignore" || text.ends_with('\n'), "{file}");
                }
            }
        }
    }

    #[test]
    fn the_first_cases_can_be_read() {
        for point in POINTS {
            let file = env::temp_dir().join(format!("pointsman-cases-{}-{}.yaml", std::process::id(), name(point)));
            let (_, template) = Language::Go.files(point)[0];
            fs::write(&file, filled(template, "a", point, None)).unwrap();
            let read: Result<Vec<PluginCase>> = golden::read(std::slice::from_ref(&file));
            fs::remove_file(&file).unwrap();
            assert!(read.unwrap().iter().all(|case| case.question.point() == point && case.expected.is_some()));
        }
    }

    #[test]
    fn all_interfaces_are_written() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit").join(Version::PUBLISHED.number());
        let mut there: Vec<_> = fs::read_dir(folder).unwrap().map(|file| format!("wit/{}", file.unwrap().file_name().display())).collect();
        there.sort();
        assert_eq!(there, WIT.map(|(file, _)| file.to_owned()));
    }

    #[test]
    fn a_name_is_one_for_kubernetes_and_for_a_crate() {
        for name in ["a", "my-policy", "x2"] {
            assert_eq!(plugin_name(name).as_deref(), Ok(name));
        }
        for wrong in ["", "2x", "-a", "a-", "A", "a_b", "a/b", "é", &"a".repeat(64)] {
            assert!(plugin_name(wrong).is_err(), "{wrong}");
        }
    }
}
