//! Files of Kubernetes objects: finds the files, and the objects in them with their places.

use super::fields::Node;
use crate::cli::{
    exit::{InputErrors, InputResult},
    yaml::{as_written, parse_error_message},
};
use anyhow::{Context, Error, Result, anyhow, bail};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;
use std::{
    collections::BTreeSet,
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// The extensions of files of objects in a folder.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The name of standard input in messages.
const STDIN: &str = "stdin";

/// A file that was read, or standard input.
#[derive(Debug)]
pub(in crate::cli) struct File {
    pub(in crate::cli) title: String,
    pub(in crate::cli) text: String,
    /// The folder that its paths are relative to.
    pub(in crate::cli) folder: PathBuf,
    /// Whether it was specified by name, rather than found in a folder.
    pub(in crate::cli) named: bool,
    /// The places of its parts, once requested.
    pub(super) outline: OnceLock<Vec<Spanned<Node>>>,
}

/// The place of an object.
#[derive(Clone, Debug)]
pub(in crate::cli) struct SourceLocation {
    pub(in crate::cli) file: Arc<File>,
    pub(in crate::cli) line: u64,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.title, self.line)
    }
}

/// A document that is a map, or an entry of a list of maps.
#[derive(Debug)]
pub(in crate::cli) struct Document {
    pub(in crate::cli) place: SourceLocation,
    pub(in crate::cli) object: Map<String, Value>,
}

/// All objects in these files and folders, in order. A file that is specified twice is read once.
pub(in crate::cli) fn read(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let (documents, problems) = read_on(paths);
    InputErrors::check(problems)?;
    Ok(documents)
}

/// Like `read`, but returns errors and continues.
pub(in crate::cli) fn read_on(paths: &[PathBuf]) -> (Vec<Document>, Vec<Error>) {
    let (mut documents, mut problems) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for path in paths {
        match sources(path).readable() {
            Ok(sources) => {
                problems.extend(sources.into_iter().filter_map(|source| source.read(&mut seen, &mut documents).readable().err()));
            }
            Err(problem) => problems.push(problem),
        }
    }
    (documents, problems)
}

/// The origin of a text.
struct Origin {
    path: PathBuf,
    named: bool,
}

/// The files of a path.
fn sources(path: &Path) -> Result<Vec<Origin>> {
    let reading = || format!("reading {}", path.display());
    if path.as_os_str() == "-" || !fs::metadata(path).with_context(reading)?.is_dir() {
        return Ok(vec![Origin { path: path.to_owned(), named: true }]);
    }
    let mut files = Vec::new();
    below(path, &mut files).with_context(reading)?;
    if files.is_empty() {
        bail!("there is no file *.{} in {}", ENDINGS.join(", *."), path.display());
    }
    Ok(files.into_iter().map(|path| Origin { path, named: false }).collect())
}

impl Origin {
    /// Reads it, unless it was read before.
    fn read(self, seen: &mut BTreeSet<PathBuf>, documents: &mut Vec<Document>) -> Result<()> {
        let Self { path, named } = self;
        let file = if path.as_os_str() == "-" {
            if !seen.insert(path) {
                return Ok(());
            }
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("reading standard input")?;
            File { title: STDIN.to_owned(), text, folder: PathBuf::from("."), named, outline: OnceLock::new() }
        } else {
            let reading = || format!("reading {}", path.display());
            if !seen.insert(fs::canonicalize(&path).with_context(reading)?) {
                return Ok(());
            }
            let text = fs::read_to_string(&path).with_context(reading)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
            File { title: path.display().to_string(), text, folder, named, outline: OnceLock::new() }
        };
        parse(&Arc::new(file), documents)
    }
}

/// The files in a folder and its subfolders, by name. Links to folders aren't followed, because they may form cycles.
fn below(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            below(&path, files)?;
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) && path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// The objects of one file. A List is replaced by its items.
fn parse(file: &Arc<File>, documents: &mut Vec<Document>) -> Result<()> {
    let written: Vec<Spanned<ParsedDocument>> = serde_saphyr::from_multiple_with_options(&file.text, as_written!()).map_err(|error| {
        let line = error.location().map(|at| format!(":{}", at.line())).unwrap_or_default();
        anyhow!("{}{line}: {}", file.title, parse_error_message(&error))
    })?;
    for Spanned { value, referenced, .. } in written {
        let place = SourceLocation { file: Arc::clone(file), line: referenced.line() };
        match value {
            ParsedDocument::Nothing => {}
            ParsedDocument::Other if file.named => {
                bail!("{place}: this is not a Kubernetes object: set apiVersion, kind and metadata, or remove the document")
            }
            ParsedDocument::Other => documents.push(Document { place, object: Map::new() }),
            ParsedDocument::Object(object) => documents.push(Document { place, object }),
            ParsedDocument::List(items) => {
                for Spanned { value, referenced, .. } in items {
                    let place = SourceLocation { file: Arc::clone(file), line: referenced.line() };
                    let Value::Object(object) = value else { bail!("{place}: an entry of the list is no object") };
                    documents.push(Document { place, object });
                }
            }
        }
    }
    Ok(())
}

/// One document.
enum ParsedDocument {
    Nothing,
    Object(Map<String, Value>),
    List(Vec<Spanned<Value>>),
    Other,
}

impl<'de> Deserialize<'de> for ParsedDocument {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = ParsedDocument;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes object, or a list of them")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ParsedDocument, M::Error> {
                let mut object = Map::new();
                let mut items = None;
                while let Some(field) = map.next_key::<String>()? {
                    if field == "items" {
                        items = Some(map.next_value::<Vec<Spanned<Value>>>()?);
                    } else {
                        object.insert(field, map.next_value()?);
                    }
                }
                let list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
                Ok(items.filter(|_| list).map_or(ParsedDocument::Object(object), ParsedDocument::List))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<ParsedDocument, S::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(ParsedDocument::List(items))
            }

            fn visit_unit<E>(self) -> Result<ParsedDocument, E> {
                Ok(ParsedDocument::Nothing)
            }

            fn visit_none<E>(self) -> Result<ParsedDocument, E> {
                Ok(ParsedDocument::Nothing)
            }

            fn visit_str<E>(self, text: &str) -> Result<ParsedDocument, E> {
                Ok(if text.trim().is_empty() { ParsedDocument::Nothing } else { ParsedDocument::Other })
            }

            fn visit_bool<E>(self, _: bool) -> Result<ParsedDocument, E> {
                Ok(ParsedDocument::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<ParsedDocument, E> {
                Ok(ParsedDocument::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<ParsedDocument, E> {
                Ok(ParsedDocument::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<ParsedDocument, E> {
                Ok(ParsedDocument::Other)
            }
        }
        from.deserialize_any(Any)
    }
}
