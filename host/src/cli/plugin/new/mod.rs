//! `pointsman plugin new`.

mod language;
mod sdk;

use crate::cli::output::print;
use anyhow::{Context, Result, bail};
use clap::Args;
use language::{Language, Words};
use pointsman_core::point::name;
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::words::service_name;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// Name of the plugin: lowercase letters, digits and hyphens
    #[arg(value_parser = plugin_name)]
    name: String,
    /// Language of the project
    #[arg(long, value_enum)]
    language: Language,
    /// Policy point of the plugin: runtime-selection, pod-templating, metadata-propagation or scheduling-scoring
    #[arg(long, value_parser = super::point)]
    point: PolicyPoint,
    /// Folder of the project; default: the plugin's name
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// For Rust: use the SDK in plugins/sdk of a checkout of Pointsman, instead of a copy of it in the project
    #[arg(long, value_name = "FOLDER")]
    sdk: Option<PathBuf>,
}

fn plugin_name(text: &str) -> Result<String, String> {
    if service_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a plugin's name has up to 63 lowercase letters, digits and hyphens, a letter first and no hyphen last".to_owned())
    }
}

/// A project to write.
struct Project<'a> {
    name: &'a str,
    language: Language,
    point: PolicyPoint,
    /// The folder of the SDK, unless the project has a copy.
    sdk: Option<String>,
}

pub(super) fn run(args: &NewArgs) -> Result<ExitCode> {
    let NewArgs { name, language, point, .. } = args;
    let dir = args.dir.clone().unwrap_or_else(|| name.into());
    let sdk = match (language, &args.sdk) {
        (Language::Rust, Some(folder)) => Some(sdk_in(folder)?.display().to_string()),
        (_, Some(_)) => bail!("--sdk is for Rust: the other languages need no SDK"),
        (_, None) => None,
    };
    let project = Project { name, language: *language, point: *point, sdk };
    let files = project.files();
    if let Some((there, _)) = files.iter().find(|(file, _)| dir.join(file).exists()) {
        bail!("{} exists, and nothing is overwritten: specify another folder with --dir", dir.join(there).display());
    }
    for (file, text) in files {
        let file = dir.join(file);
        let writing = || format!("writing {}", file.display());
        fs::create_dir_all(file.parent().unwrap_or(&dir)).with_context(writing)?;
        fs::write(&file, text).with_context(writing)?;
    }
    print(&project.next_steps(&dir));
    Ok(ExitCode::SUCCESS)
}

impl Project<'_> {
    /// Its files by path.
    fn files(&self) -> Vec<(String, String)> {
        let mut files: Vec<_> =
            self.language.templates(self.point).into_iter().map(|(path, template)| (path.to_owned(), self.filled(template))).collect();
        if self.sdk.is_none() {
            let version = |text: &str| text.replace("{{version}}", env!("CARGO_PKG_VERSION"));
            files.extend(self.language.copied().into_iter().map(|(path, text)| (path, version(text))));
        }
        files
    }

    fn filled(&self, template: &str) -> String {
        let Self { name, language, point, sdk } = self;
        let Words { world, interface, class, config } = Words::new(*point);
        // TOML strings allow the same escapes as Rust for all characters of a path.
        let sdk_path = format!("{:?}", sdk.as_deref().unwrap_or("pointsman-sdk/plugins/sdk"));
        let needs = [Some(language.needs(sdk.as_deref())), language.reference().map(str::to_owned), language.size().map(str::to_owned)];
        let values = [
            ("name", *name),
            ("point", self::name(*point)),
            ("world", world),
            ("interface", interface),
            ("class", class),
            ("config", config),
            ("language", language.title()),
            ("source", language.source()),
            ("needs", &needs.into_iter().flatten().collect::<Vec<_>>().join("\n")),
            ("build", &language.build(name, *point).join("\n    ")),
            ("plugin", &language.plugin(name)),
            ("sdk", &sdk_path),
        ];
        values.into_iter().fold(template.to_owned(), |text, (field, value)| text.replace(&format!("{{{{{field}}}}}"), value))
    }

    fn next_steps(&self, dir: &Path) -> String {
        let Self { name, language, point, sdk } = self;
        let (dir, plugin) = (dir.display(), language.plugin(name));
        let mut lines = vec![format!("wrote   {dir}: the policy is in {}, and all commands are in README.md", language.source())];
        lines.push(format!("needs   {}", language.needs(sdk.as_deref())));
        lines.extend(language.reference().map(|reference| format!("docs    {reference}")));
        lines.extend(language.size().map(|size| format!("size    {size}")));
        lines.push(format!("build   cd {dir} && {}", language.build(name, *point).join(" && ")));
        lines.push(format!("test    pointsman plugin test {plugin} cases.yaml"));
        lines.push(format!("push    pointsman plugin push {plugin} --name {name}"));
        lines.push("approve pointsman policy approve SET, if the push waits for an approval and names the PolicySet SET".to_owned());
        lines.push(format!("status  pointsman plugin status {name}"));
        lines.join("\n")
    }
}

fn sdk_in(folder: &Path) -> Result<PathBuf> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml"));
    if !manifest.is_ok_and(|manifest| manifest.contains("name = \"pointsman-plugin\"")) {
        bail!("--sdk {}: the folder has no SDK: specify plugins/sdk of a checkout of Pointsman", folder.display());
    }
    fs::canonicalize(folder).with_context(|| format!("--sdk {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::super::cases::PluginCase;
    use super::*;
    use crate::cli::golden;
    use pointsman_core::point::POINTS;
    use pointsman_crds::policy::plugin::PolicyPlugin;
    use std::env;

    const LANGUAGES: [Language; 4] = [Language::Rust, Language::Go, Language::JavaScript, Language::Python];

    fn project(language: Language, point: PolicyPoint) -> Project<'static> {
        Project { name: "my-policy", language, point, sdk: None }
    }

    #[test]
    fn every_field_of_a_template_is_filled_and_a_readme_is_short() {
        const FIELDS: [&str; 13] =
            ["name", "point", "world", "interface", "class", "config", "language", "source", "needs", "build", "plugin", "sdk", "version"];
        for language in LANGUAGES {
            for point in POINTS {
                for (file, text) in project(language, point).files() {
                    let unfilled = FIELDS.iter().find(|field| text.contains(&format!("{{{{{field}}}}}")));
                    assert_eq!(unfilled, None, "{language:?} {point:?} {file}");
                    assert!(file != "README.md" || (10..=18).contains(&text.lines().count()), "{text}");
                    assert!(file == ".gitignore" || text.ends_with('\n'), "{file}");
                }
            }
        }
    }

    #[test]
    fn the_readme_and_the_next_steps_end_with_an_active_plugin() {
        for language in LANGUAGES {
            let new = project(language, PolicyPoint::PodTemplating);
            let (_, readme) = new.files().into_iter().find(|(file, _)| file == "README.md").unwrap();
            for text in [readme, new.next_steps(Path::new("my-policy"))] {
                for command in ["pointsman policy approve SET", "pointsman plugin status my-policy"] {
                    assert!(text.contains(command), "{command}: {text}");
                }
                assert_eq!(text.contains("cargo doc --open --package pointsman-plugin"), language == Language::Rust, "{text}");
            }
        }
    }

    #[test]
    fn the_cases_can_be_read_and_the_manifest_binds_the_plugin() {
        for point in POINTS {
            let file = env::temp_dir().join(format!("pointsman-cases-{}-{}.yaml", std::process::id(), name(point)));
            let files = project(Language::Go, point).files();
            let text = |path: &str| &files.iter().find(|(file, _)| file == path).unwrap().1;
            fs::write(&file, text("cases.yaml")).unwrap();
            let read: Result<Vec<PluginCase>> = golden::read(std::slice::from_ref(&file));
            fs::remove_file(&file).unwrap();
            let cases = read.unwrap();
            assert!(cases.len() >= 3 && cases.iter().all(|case| case.question.point() == point && case.expected.is_some()));
            let plugin: PolicyPlugin = serde_saphyr::from_str(text("policy-plugin.yaml")).unwrap();
            let source = plugin.spec.source.config_map.unwrap();
            assert_eq!((plugin.metadata.name.as_deref(), source.name.as_str()), (Some("my-policy"), "my-policy"));
            assert_eq!((plugin.spec.points, plugin.spec.order), (vec![point], 100));
        }
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
