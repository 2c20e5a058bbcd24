//! Paths that a source gives its files, checked before anything is opened by them.

use serde::{Deserialize, Serialize};
use std::{fmt, path::Path};

/// The longest path below a model's folder, in bytes: with the folder's own it stays below Linux' limit for a path.
pub(crate) const MAX_PATH_BYTES: usize = 1024;
/// The longest part of a path, in bytes: what file systems store.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// The deepest path.
pub(crate) const MAX_DEPTH: usize = 32;

/// Names that mean a device on some systems, whatever extension follows.
const DEVICES: [&str; 4] = ["CON", "PRN", "AUX", "NUL"];

/// A relative path with `/` between its parts, which stays below the folder that it is relative to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

impl RelativePath {
    /// Checks a path; the error completes "a file whose path ...".
    pub fn parse(path: &str) -> Result<Self, String> {
        if path.is_empty() {
            return Err("is empty".to_owned());
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(format!("has {} bytes, and the limit is {MAX_PATH_BYTES}", path.len()));
        }
        if path.starts_with('/') {
            return Err("is absolute".to_owned());
        }
        if let Some(bad) = path.chars().find(|c| c.is_control() || *c == '\\') {
            return Err(format!("has the character {bad:?}"));
        }
        let mut depth = 0;
        for part in path.split('/') {
            depth += 1;
            if part.is_empty() || part == "." || part == ".." {
                return Err(format!("has the part {part:?}"));
            }
            if part.len() > MAX_NAME_BYTES {
                return Err(format!("has a part of {} bytes, and the limit is {MAX_NAME_BYTES}", part.len()));
            }
            let stem = part.split('.').next().unwrap_or(part).to_ascii_uppercase();
            let numbered = stem.len() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT")) && stem.ends_with(char::is_numeric);
            if DEVICES.contains(&stem.as_str()) || numbered {
                return Err(format!("has the part {part:?}, which is the name of a device"));
            }
        }
        if depth > MAX_DEPTH {
            return Err(format!("has {depth} parts, and the limit is {MAX_DEPTH}"));
        }
        Ok(Self(path.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The folders on the way, and the file's own name.
    pub(crate) fn split(&self) -> (impl Iterator<Item = &str>, &str) {
        let (folders, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (folders.split('/').filter(|part| !part.is_empty()), name)
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RelativePath {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        Self::parse(&path)
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    #[test]
    fn paths_that_leave_the_folder_or_mean_something_else_are_refused() {
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            "a/./b",
            "a\0b",
            "a\nb",
            "a\\b",
            "NUL",
            "x/con.txt",
            "lpt1.bin",
        ] {
            assert!(RelativePath::parse(path).is_err(), "{path:?}");
        }
        assert!(RelativePath::parse(&"a/".repeat(40)).is_err());
        assert!(RelativePath::parse(&"a".repeat(256)).is_err());
        assert!(RelativePath::parse(&format!("{}a", "a/".repeat(32))).is_err());
    }

    #[test]
    fn ordinary_paths_are_taken_as_they_are() {
        for path in ["config.json", "a/b/c.safetensors", ".gitattributes", "...", "console", "modèle/ß.bin", "a b"] {
            assert_eq!(RelativePath::parse(path).unwrap().as_str(), path);
        }
    }

    proptest! {
        #[test]
        fn a_path_that_is_taken_has_only_names(path in "([a-z.]{0,3}[/\\\\]?){0,6}|.{0,40}") {
            if let Ok(path) = RelativePath::parse(&path) {
                prop_assert!(path.as_path().components().all(|part| matches!(part, Component::Normal(_))));
                let (folders, name) = path.split();
                let again = folders.chain([name]).collect::<Vec<_>>().join("/");
                prop_assert_eq!(&again, path.as_str());
            }
        }
    }
}
