//! The default policies, which are embedded in the host. `build.rs` builds them from `plugins/`.

use crate::{digest::Digest, point::describe::Point};
use std::{collections::BTreeMap, fmt, sync::LazyLock};

/// The CEL evaluator's WebAssembly, which `build.rs` builds from `plugins/cel`.
pub static EVALUATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cel.wasm"));

/// A default policy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its name in `spec.source.builtin.name` of a PolicyPlugin.
    pub name: &'static str,
    /// The policy point at which it answers.
    pub point: Point,
    /// Its WebAssembly.
    pub bytes: &'static [u8],
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Builtin {{ {}, {} bytes }}", self.name, self.bytes.len())
    }
}

/// All default policies.
pub static BUILTINS: [Builtin; 4] = [
    Builtin {
        name: "runtime-selection",
        point: Point::RuntimeSelection,
        bytes: include_bytes!(concat!(env!("OUT_DIR"), "/runtime-selection.wasm")),
    },
    Builtin {
        name: "pod-templating",
        point: Point::PodTemplating,
        bytes: include_bytes!(concat!(env!("OUT_DIR"), "/pod-templating.wasm")),
    },
    Builtin {
        name: "metadata-propagation",
        point: Point::MetadataPropagation,
        bytes: include_bytes!(concat!(env!("OUT_DIR"), "/metadata-propagation.wasm")),
    },
    Builtin {
        name: "scheduling-scoring",
        point: Point::SchedulingScoring,
        bytes: include_bytes!(concat!(env!("OUT_DIR"), "/scheduling-scoring.wasm")),
    },
];

/// The default policy with this name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

/// The built-in policies of earlier releases, by their digests.
static RELEASED: LazyLock<BTreeMap<Digest, &'static str>> = LazyLock::new(|| {
    let lines = include_str!("builtin/released.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).filter_map(|(digest, what)| Some((digest.parse().ok()?, what))).collect()
});

/// Whether a component is a built-in policy of an earlier release.
pub fn is_released(digest: &Digest) -> bool {
    RELEASED.contains_key(digest)
}

/// All built-in policies of earlier releases, with names and releases.
pub fn released() -> impl Iterator<Item = (&'static Digest, &'static str)> {
    RELEASED.iter().map(|(digest, what)| (digest, *what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{Version, accept};
    use std::{env, fs, path::Path};

    #[test]
    fn each_default_policy_is_a_plugin_for_its_point_and_no_other() {
        for builtin in &BUILTINS {
            let accepted = accept(builtin.bytes).unwrap();
            assert_eq!(accepted.form, crate::binary::BinaryForm::Module, "{}", builtin.name);
            let exported = accepted.exports.iter().map(|exported| (exported.version, exported.points.clone()));
            let all = Version::ALL.map(|version| (version, vec![builtin.point.name()]));
            assert!(exported.eq(all), "{}", builtin.name);
        }
    }

    #[test]
    fn a_default_policy_is_found_by_its_name() {
        assert_eq!(find("pod-templating").map(|builtin| builtin.point), Some(Point::PodTemplating));
        assert_eq!(find("pod"), None);
    }

    #[test]
    fn each_line_about_a_former_release_says_a_digest_a_name_and_the_release() {
        // Set by `cargo xtask generate --release`.
        if env::var_os("POINTSMAN_RELEASE").is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/builtin/released.txt");
            let now = BUILTINS.iter().map(|builtin| (Digest::hash(builtin.bytes), builtin.name)).filter(|(digest, _)| !is_released(digest));
            let now = now.map(|(digest, name)| format!("{digest} {name} {}\n", env!("CARGO_PKG_VERSION")));
            return fs::write(file, include_str!("builtin/released.txt").to_owned() + &now.collect::<String>()).unwrap();
        }
        let lines: Vec<_> = include_str!("builtin/released.txt").lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), released().count(), "each digest stands there once");
        for (digest, what) in released() {
            let (name, release) = what.split_once(' ').unwrap();
            assert!(find(name).is_some() && !release.is_empty() && is_released(digest), "{what}");
        }
        assert!(!is_released(&Digest::hash(b"other")));
    }

    /// Otherwise, the same source would have a different digest on each machine.
    #[test]
    fn the_bytes_tell_nothing_of_the_machine_that_built_them() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_str().unwrap();
        let home = env::home_dir().unwrap();
        let mut telling = vec![workspace, "/registry/src/", "/.cargo/", "/.rustup/", "/home/", "/Users/"];
        // The home of root in a container may be only a slash.
        telling.extend(home.to_str().filter(|home| home.len() > 2));
        for builtin in &BUILTINS {
            for telling in &telling {
                let found = builtin.bytes.windows(telling.len()).any(|part| part == telling.as_bytes());
                assert!(!found, "{} contains {telling}", builtin.name);
            }
        }
    }
}
