//! Files of Kubernetes objects: which there are, and the objects in them, each with its place.

use crate::cli::yaml::{as_written, said};
use anyhow::{Context, Result, anyhow, bail};
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
    sync::Arc,
};

/// How a file of objects ends, where a folder is given.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// What standard input is called in messages.
const STDIN: &str = "stdin";

/// A file that was read, or standard input.
#[derive(Debug)]
pub(super) struct File {
    title: String,
    pub(super) text: String,
    /// What paths in it are relative to.
    pub(super) folder: PathBuf,
    /// Whether it was given by name, rather than found in a folder.
    pub(super) named: bool,
}

/// Where an object stands.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) file: Arc<File>,
    pub(super) line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.title, self.line)
    }
}

/// A document that is a map, or an entry of a list of them.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) place: Place,
    pub(super) object: Map<String, Value>,
}

/// Everything in these files and folders, in order. What is named twice is read once.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        if path.as_os_str() == "-" {
            if seen.insert(path.clone()) {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).context("reading standard input")?;
                let file = File { title: STDIN.to_owned(), text, folder: PathBuf::from("."), named: true };
                parse(&Arc::new(file), &mut documents)?;
            }
            continue;
        }
        let reading = |path: &Path| format!("reading {}", path.display());
        let found = fs::metadata(path).with_context(|| reading(path))?;
        let mut files = Vec::new();
        if found.is_dir() {
            below(path, &mut files).with_context(|| reading(path))?;
            if files.is_empty() {
                bail!("there is no file *.{} in {}", ENDINGS.join(", *."), path.display());
            }
        } else {
            files.push(path.clone());
        }
        for file in files {
            if !seen.insert(fs::canonicalize(&file).with_context(|| reading(&file))?) {
                continue;
            }
            let text = fs::read_to_string(&file).with_context(|| reading(&file))?;
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
            let file = File { title: file.display().to_string(), text, folder, named: !found.is_dir() };
            parse(&Arc::new(file), &mut documents)?;
        }
    }
    Ok(documents)
}

/// The files in a folder and those below it, by name. Links to folders aren't followed: they may go round in circles.
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

/// The objects of one file. A List stands for what is in it.
fn parse(file: &Arc<File>, documents: &mut Vec<Document>) -> Result<()> {
    let written: Vec<Spanned<Written>> = serde_saphyr::from_multiple_with_options(&file.text, as_written!()).map_err(|error| {
        let line = error.location().map(|at| format!(":{}", at.line())).unwrap_or_default();
        anyhow!("{}{line}: {}", file.title, said(&error))
    })?;
    for Spanned { value, referenced, .. } in written {
        let place = Place { file: Arc::clone(file), line: referenced.line() };
        match value {
            Written::Nothing => {}
            Written::Other if file.named => bail!("{place}: this is no Kubernetes object: an object has apiVersion, kind and metadata"),
            Written::Other => documents.push(Document { place, object: Map::new() }),
            Written::Object(object) => documents.push(Document { place, object }),
            Written::List(items) => {
                for Spanned { value, referenced, .. } in items {
                    let place = Place { file: Arc::clone(file), line: referenced.line() };
                    let Value::Object(object) = value else { bail!("{place}: an entry of the list is no object") };
                    documents.push(Document { place, object });
                }
            }
        }
    }
    Ok(())
}

/// One document.
enum Written {
    Nothing,
    Object(Map<String, Value>),
    List(Vec<Spanned<Value>>),
    Other,
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes object, or a list of them")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Written, M::Error> {
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
                Ok(items.filter(|_| list).map_or(Written::Object(object), Written::List))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Written, S::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Written::List(items))
            }

            fn visit_unit<E>(self) -> Result<Written, E> {
                Ok(Written::Nothing)
            }

            fn visit_none<E>(self) -> Result<Written, E> {
                Ok(Written::Nothing)
            }

            fn visit_str<E>(self, text: &str) -> Result<Written, E> {
                Ok(if text.trim().is_empty() { Written::Nothing } else { Written::Other })
            }

            fn visit_bool<E>(self, _: bool) -> Result<Written, E> {
                Ok(Written::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Written, E> {
                Ok(Written::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Written, E> {
                Ok(Written::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Written, E> {
                Ok(Written::Other)
            }
        }
        from.deserialize_any(Any)
    }
}
