//! The files that a project copies from this release: the interfaces, and the SDK for Rust, which is in no registry.

macro_rules! files {
    ($($path:literal,)+) => {
        &[$(($path, include_str!(concat!("../../../../../", $path)))),+]
    };
}

/// Files by their path in a checkout.
pub(super) const FILES: &[(&str, &str)] = files![
    "plugins/interface/Cargo.toml",
    "plugins/interface/src/declare.rs",
    "plugins/interface/src/image.rs",
    "plugins/interface/src/images.rs",
    "plugins/interface/src/lib.rs",
    "plugins/interface/src/metadata_propagation.rs",
    "plugins/interface/src/plugin.rs",
    "plugins/interface/src/pod_templating.rs",
    "plugins/interface/src/runtime_selection.rs",
    "plugins/interface/src/scheduling_scoring.rs",
    "plugins/interface/src/types.rs",
    "plugins/interface/src/version.rs",
    "plugins/sdk/Cargo.toml",
    "plugins/sdk/build.rs",
    "plugins/sdk/src/bindings/draft.rs",
    "plugins/sdk/src/bindings/mod.rs",
    "plugins/sdk/src/bindings/v0_1.rs",
    "plugins/sdk/src/bindings/v0_1_records.rs",
    "plugins/sdk/src/export.rs",
    "plugins/sdk/src/lib.rs",
    "plugins/sdk/src/log.rs",
    "plugins/sdk/src/matrix.rs",
    "plugins/sdk/src/panics.rs",
    "plugins/sdk/src/policy.rs",
    "wit/0.1.0/log.wit",
    "wit/0.1.0/metadata-propagation.wit",
    "wit/0.1.0/plugin.wit",
    "wit/0.1.0/pod-templating.wit",
    "wit/0.1.0/runtime-selection.wit",
    "wit/0.1.0/scheduling-scoring.wit",
    "wit/0.1.0/types.wit",
    "wit/0.1.0/worlds.wit",
    "wit/0.2.0-draft/log.wit",
    "wit/0.2.0-draft/metadata-propagation.wit",
    "wit/0.2.0-draft/plugin.wit",
    "wit/0.2.0-draft/pod-templating.wit",
    "wit/0.2.0-draft/runtime-selection.wit",
    "wit/0.2.0-draft/scheduling-scoring.wit",
    "wit/0.2.0-draft/types.wit",
    "wit/0.2.0-draft/worlds.wit",
];

/// The published interfaces, for languages whose toolchain reads them. Rust's SDK also supports the draft of the next ones.
pub(super) const PUBLISHED: &str = "wit/0.1.0/";

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sandbox::binary::Version;
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    fn checkout() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn all_below(folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(checkout().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().display());
            if entry.file_type().unwrap().is_dir() {
                found.extend(all_below(&path));
            } else {
                found.push(path);
            }
        }
        found
    }

    #[test]
    fn all_of_the_sdk_is_there_but_its_tests() {
        let mut there = [all_below("plugins/interface"), all_below("plugins/sdk"), all_below("wit")].concat();
        there.retain(|path| !path.starts_with("plugins/sdk/tests/"));
        there.sort();
        assert_eq!(FILES.iter().map(|(path, _)| *path).collect::<Vec<_>>(), there);
        assert_eq!(PUBLISHED, format!("wit/{}/", Version::PUBLISHED.number()));
    }

    #[test]
    fn the_sdk_s_workspace_has_what_it_takes_from_ours() {
        let ours = fs::read_to_string(checkout().join("Cargo.toml")).unwrap();
        let template = include_str!("../templates/rust/sdk.toml.tmpl").replace("{{version}}", env!("CARGO_PKG_VERSION"));
        for line in template.lines().filter(|line| line.contains(" = ") && !line.starts_with("members")) {
            assert!(ours.lines().any(|own| own == line), "{line}");
        }
    }
}
