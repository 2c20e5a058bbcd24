//! The corpus of `tests/fixtures/doors`: objects, the rules that judge them, and what each door says of them. The README of the fixtures
//! tells the format.
//!
//! What can't be read ends the test.
#![allow(clippy::panic, clippy::missing_panics_doc)]

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// How the names of the corpus' rules begin.
pub const RULES: &str = "doors-";

/// How the names of those begin that read `oldObject` or `request`.
pub const RULES_OF_ADMISSION: &str = "doors-admission-";

/// What a condition says before the sentences of rules that are broken.
const BEFORE: [&str; 2] = ["No object is created: ", "Existing objects stay unchanged: "];

/// What becomes of an object, and at which doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A rule stands against it.
    Denied,
    /// A rule speaks against it.
    Warned,
    /// The audit log tells of it.
    Noted,
    /// A rule can't be evaluated on it, and doesn't count then.
    Ignored,
    /// A rule stands against it that only admission evaluates.
    DeniedAtAdmission,
    /// A rule speaks against it that only admission evaluates.
    WarnedAtAdmission,
    /// Its schema stands against it: the field, and what is wrong.
    Refused,
    /// `check` refuses one of its fields, as a client that validates does. Without that field the object stands.
    Unknown,
}

impl Word {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "denied" => Self::Denied,
            "warned" => Self::Warned,
            "noted" => Self::Noted,
            "ignored" => Self::Ignored,
            "denied at admission" => Self::DeniedAtAdmission,
            "warned at admission" => Self::WarnedAtAdmission,
            "refused" => Self::Refused,
            "unknown" => Self::Unknown,
            _ => return None,
        })
    }
}

/// What a door says of an object, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// What stands against it.
    pub denied: Vec<String>,
    /// What its user is told.
    pub warned: Vec<String>,
    /// What the audit log is told.
    pub noted: Vec<String>,
}

impl Said {
    /// What the sentences of a denial, and warnings, say. Rules that the host brings may warn too, which is no matter of the corpus.
    pub fn of_admission(denial: Option<&str>, warnings: &[String]) -> Self {
        let denied = denial.map(|denial| denial.split("; ").map(str::to_owned).collect());
        Self {
            denied: denied.unwrap_or_default(),
            warned: warnings.iter().filter(|warning| is_ours(warning)).cloned().collect(),
            ..Self::default()
        }
    }

    /// What a condition `Valid` says; none where it says nothing for good.
    pub fn of_condition(status: Option<bool>, reason: &str, message: &str) -> Option<Self> {
        let sentences = |message: &str| message.trim_end_matches('.').split(". ").map(str::to_owned).collect::<Vec<_>>();
        match (status?, reason) {
            (false, _) => {
                let broken = BEFORE.iter().find_map(|before| message.strip_prefix(before))?;
                Some(Self { denied: sentences(broken), ..Self::default() })
            }
            (true, "Warned") => {
                let warned = sentences(message).into_iter().filter(|sentence| is_ours(sentence)).collect();
                Some(Self { warned, ..Self::default() })
            }
            (true, _) => Some(Self::default()),
        }
    }
}

/// Whether a sentence is one of the corpus' rules.
pub fn is_ours(sentence: &str) -> bool {
    sentence.starts_with(RULES)
}

/// An object of the corpus.
#[derive(Clone, Debug)]
pub struct Row {
    /// As it is written.
    pub object: Value,
    /// What is written beside it, in the order of the rules.
    pub says: Vec<(Word, String)>,
}

impl Row {
    fn read(file: &Path, text: &str) -> Self {
        let at = file.display();
        let object: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{at}: {error}"));
        // What begins with a capital is for people.
        let comments =
            text.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        let says = comments.map(|line| {
            let said = line.split_once(": ").and_then(|(word, sentence)| Some((Word::parse(word)?, sentence.to_owned())));
            let (word, sentence) = said.unwrap_or_else(|| panic!("{at}: {line:?} begins with no word that is known"));
            // Or nobody could tell two of them apart.
            let one = !sentence.contains(". ") && !sentence.contains("; ") && !sentence.ends_with('.');
            assert!(
                matches!(word, Word::Refused | Word::Unknown) || one && is_ours(&sentence),
                "{at}: {line:?} is no sentence of one rule of the corpus"
            );
            (word, sentence)
        });
        Self { says: says.collect(), object }
    }

    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The version of its API.
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// Its namespace; empty where it is in none.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// What people call it.
    pub fn called(&self) -> String {
        format!("{} {}/{}", self.kind(), self.namespace(), self.name())
    }

    /// Whether both are states of one object.
    pub fn is_of(&self, other: &Self) -> bool {
        self.called() == other.called()
    }

    /// Whether it is a service, so that a condition speaks of it.
    pub fn is_service(&self) -> bool {
        ["InferenceService", "LLMInferenceService"].contains(&self.kind())
    }

    /// Whether it says that it is to be left alone.
    pub fn is_left_alone(&self) -> bool {
        self.object["metadata"]["annotations"]["pointsman.dev/control"] == "false"
    }

    /// What is written with one of these words.
    pub fn said(&self, words: &[Word]) -> Vec<String> {
        self.says.iter().filter(|(word, _)| words.contains(word)).map(|(_, sentence)| sentence.clone()).collect()
    }

    /// What admission says.
    pub fn at_admission(&self) -> Said {
        Said {
            denied: self.said(&[Word::Denied, Word::DeniedAtAdmission]),
            warned: self.said(&[Word::Warned, Word::WarnedAtAdmission]),
            noted: self.said(&[Word::Noted]),
        }
    }

    /// What `pointsman check` says. What it has told once isn't told for the audit log again.
    pub fn by_check(&self) -> Said {
        let (denied, warned) = (self.said(&[Word::Unknown, Word::Denied]), self.said(&[Word::Warned]));
        let mut noted = self.said(&[Word::Noted]);
        noted.retain(|sentence| !denied.contains(sentence) && !warned.contains(sentence));
        Said { denied, warned, noted }
    }

    /// What the condition says. Beside what stands against a service it doesn't tell what only speaks against it.
    pub fn by_condition(&self) -> Said {
        let denied = self.said(&[Word::Denied]);
        let warned = if denied.is_empty() { self.said(&[Word::Warned]) } else { Vec::new() };
        Said { denied, warned, ..Said::default() }
    }
}

/// Where the corpus is.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/doors")
}

/// The objects of one of its folders: `objects`, `updates`, which are later states of some of them, and `refused`.
pub fn rows(name: &str) -> Vec<Row> {
    let folder = folder().join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().flat_map(|file| documents(file)).collect()
}

/// The rules.
pub fn rules() -> Vec<Value> {
    objects("rules.yaml")
}

/// What the rules and the objects refer to.
pub fn context() -> Vec<Value> {
    objects("context.yaml")
}

fn objects(file: &str) -> Vec<Value> {
    documents(&folder().join(file)).into_iter().map(|row| row.object).collect()
}

fn documents(file: &Path) -> Vec<Row> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.split("\n---\n").map(|document| Row::read(file, document)).collect()
}
