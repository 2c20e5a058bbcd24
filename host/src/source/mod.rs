//! The sources of a plugin's bytes, and their packing.
//!
//! A further source is a file in this folder, its line in [`SOURCES`], and its field in the PolicyPlugin's `spec.source`.

pub mod builtin;
pub mod config_map;
pub mod file;
pub mod unpack;

use crate::problem::Problem;
use config_map::{ConfigMapKey, Namespaces};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use pointsman_crds::policy::plugin::PluginSource;
use pointsman_sandbox::{digest::Digest, limits::LARGEST_BINARY};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{runtime::Builder, task::spawn_blocking};

/// Every source, in the order in which messages name them.
pub const SOURCES: &[&dyn Source] = &[&builtin::Builtin, &file::File, &config_map::ConfigMaps];

/// The timeout of reading a source: a set is built only after all sources were read, so one that hangs delays the others.
const READ_DEADLINE: Duration = Duration::from_secs(30);

/// A kind of source of a plugin's bytes.
pub trait Source: Debug + Send + Sync {
    /// Its field in `spec.source`.
    fn field(&self) -> &'static str;

    /// The source as the status shows it, or none if the field is absent.
    fn title(&self, source: &PluginSource) -> Option<String>;

    /// The ConfigMaps with the bytes. The host watches them, and reads the source again when one changes.
    fn config_maps(&self, _source: &PluginSource, _settings: &SourceSettings) -> BTreeSet<ConfigMapKey> {
        BTreeSet::new()
    }

    /// Whether a change in the host's plugin directory may change the bytes.
    fn is_in_directory(&self) -> bool {
        false
    }

    /// Whether the bytes are part of the host itself: they need no signature, and an older host's are no update.
    fn is_part_of_host(&self) -> bool {
        false
    }

    /// The timeout of reading. Bytes that aren't there by then are retried later.
    fn deadline(&self) -> Duration {
        READ_DEADLINE
    }

    /// The component's bytes, uncompressed, or none while not all of them are known. The future runs in a separate task and may take long;
    /// work that blocks a processor or a disk uses [`off_the_runtime`].
    fn read(&self, source: PluginSource, from: SourceView) -> BoxFuture<'static, Result<Option<Vec<u8>>, Problem>>;
}

/// The host's settings for its sources.
#[derive(Clone, Debug, Default)]
pub struct SourceSettings {
    /// The host's namespace, in which a source without a namespace finds its ConfigMaps.
    pub namespace: String,
    /// The namespaces that ConfigMaps may be in.
    pub namespaces: Namespaces,
    /// The directory of plugin files.
    pub directory: Option<PathBuf>,
}

/// The inputs of a source, as they were when reading began.
#[derive(Clone, Debug, Default)]
pub struct SourceView {
    /// The host's settings.
    pub settings: SourceSettings,
    /// The states of the ConfigMaps, which may not exist. A ConfigMap without an entry isn't known yet.
    pub config_maps: BTreeMap<ConfigMapKey, Option<Arc<ConfigMap>>>,
    /// Why one of them, which has never been read, can't be read.
    pub unreadable: Option<String>,
}

/// The source that a PolicyPlugin names.
pub fn find<'s>(sources: &[&'s dyn Source], source: &PluginSource) -> Result<&'s dyn Source, Problem> {
    let mut given = sources.iter().filter(|candidate| candidate.title(source).is_some());
    if let (Some(one), None) = (given.next(), given.next()) {
        return Ok(*one);
    }
    let fields: Vec<_> = sources.iter().map(|source| source.field()).collect();
    let (last, others) = fields.split_last().map_or(("", Vec::new()), |(last, others)| (*last, others.to_vec()));
    let message = format!("spec.source needs exactly one of {} and {last}: keep one and remove the others.", others.join(", "));
    Err(Problem { reason: "InvalidSpec".to_owned(), message })
}

/// Runs work that blocks a processor or a disk in a thread of its own, so that it delays no task.
pub async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::new("LoadingFailed", &error)))
}

/// Reads a source and waits for it, for the offline commands. It uses a separate thread, because the caller's may belong to a runtime.
pub fn read_offline(source: &'static dyn Source, wanted: &PluginSource, view: SourceView) -> Result<Option<Vec<u8>>, Problem> {
    let read = source.read(wanted.clone(), view);
    let wait = || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(read),
        Err(error) => Err(Problem::new("LoadingFailed", &error)),
    };
    thread::scope(|scope| scope.spawn(wait).join()).unwrap_or_else(|_| Err(Problem::new("LoadingFailed", &"reading the source panicked")))
}

/// Why a source has no bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The host doesn't read from the namespace.
    #[error(
        "ConfigMaps of the namespace {namespace} aren't read: the host reads plugins from {allowed}; put the ConfigMap there, or run \
         the host with `--plugin-namespace {namespace}`"
    )]
    NamespaceNotAllowed {
        /// The requested namespace.
        namespace: String,
        /// The allowed namespaces, as text.
        allowed: String,
    },
    /// There is no such ConfigMap.
    #[error("there is no ConfigMap {0}: create it, or correct the source")]
    NotFound(String),
    /// The ConfigMap has other keys.
    #[error("the ConfigMap {map} has no binaryData[{key:?}]; it has {there}")]
    NoKey {
        /// Namespace and name.
        map: String,
        /// The requested key.
        key: String,
        /// The keys of its binaryData, as text.
        there: String,
    },
    /// The key holds text.
    #[error(
        "the ConfigMap {map} has {key:?} in data, which holds text, and a component must be in binaryData: kubectl create configmap --from-file puts a binary file there"
    )]
    Text {
        /// Namespace and name.
        map: String,
        /// The key.
        key: String,
    },
    /// There are no bytes.
    #[error("{0} is empty")]
    Empty(String),
    /// There are too many bytes.
    #[error("it has more than the limit of {LARGEST_BINARY} bytes{0}")]
    TooLarge(&'static str),
    /// It can't be decompressed.
    #[error("it starts like gzip but can't be decompressed: {0}; store it again, uncompressed or compressed with gzip")]
    Gzip(String),
    /// It needs more ConfigMaps than a source can name.
    #[error("compressed it has {0} bytes; the limit of a ConfigMap source is {most}: use a file source", most = pointsman_sandbox::limits::PART * pointsman_sandbox::limits::MAX_CONFIG_MAP_PARTS)]
    TooManyParts(usize),
    /// A part doesn't identify its component.
    #[error(
        "the ConfigMap {map} lacks the annotation {annotation}, which identifies its component ({found}): store the component with \
         `pointsman plugin push`"
    )]
    Unmarked {
        /// Namespace and name.
        map: String,
        /// The annotation that is missing or wrong.
        annotation: &'static str,
        /// The annotation's value.
        found: String,
    },
    /// The parts are of different components.
    #[error(
        "the ConfigMap {first} is a part of {first_digest} and {other} of {other_digest}: nothing is used until all parts belong together, which they do once an update is written completely"
    )]
    Mixed {
        /// The first part's namespace and name.
        first: String,
        /// The digest in its annotation.
        first_digest: Box<Digest>,
        /// Namespace and name of one that differs.
        other: String,
        /// The digest in its annotation.
        other_digest: Box<Digest>,
    },
    /// A part is in another's position, or parts are missing.
    #[error(
        "the ConfigMap {map} is part {told} of {digest}, and the source names it as part {named}: name all parts, in order, in source.configMap.name and source.configMap.parts"
    )]
    OutOfOrder {
        /// Namespace and name.
        map: String,
        /// The position in its annotation, such as 2/5.
        told: String,
        /// Its position in the source.
        named: String,
        /// The digest in its annotation.
        digest: Box<Digest>,
    },
    /// The bytes don't have the announced digest.
    #[error(
        "the ConfigMap {map} has {told} in its annotation {annotation}, but its bytes have {found}: store the component again",
        annotation = config_map::DIGEST
    )]
    OtherBytes {
        /// Namespace and name.
        map: String,
        /// The digest in the annotation.
        told: Box<Digest>,
        /// The digest of the bytes.
        found: Box<Digest>,
    },
}

impl SourceError {
    /// A CamelCase reason for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NamespaceNotAllowed { .. } => "NamespaceNotAllowed",
            Self::NotFound(_) => "ConfigMapNotFound",
            Self::NoKey { .. } => "KeyNotFound",
            Self::Text { .. } => "NotBinaryData",
            Self::Empty(_) => "Empty",
            Self::TooLarge(_) => "TooLarge",
            Self::Gzip(_) => "BrokenGzip",
            Self::TooManyParts(_) => "TooManyParts",
            Self::Unmarked { .. } => "UnmarkedPart",
            Self::Mixed { .. } => "WaitingForParts",
            Self::OutOfOrder { .. } => "PartsOutOfOrder",
            Self::OtherBytes { .. } => "DigestMismatch",
        }
    }
}
