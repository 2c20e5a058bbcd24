//! Where a plugin's bytes come from, and how they are packed on the way.
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

/// How long reading a source may take: a set is put together only when all sources have been read, so that one that hangs holds up others.
const READ_DEADLINE: Duration = Duration::from_secs(30);

/// One way for a plugin's bytes to reach a host.
pub trait Source: Debug + Send + Sync {
    /// Its field in `spec.source`.
    fn field(&self) -> &'static str;

    /// What the field names, as the status shows it, or none where the field is absent.
    fn title(&self, source: &PluginSource) -> Option<String>;

    /// The ConfigMaps that it takes bytes from. The host watches them, and reads the source again when one changes.
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

    /// How long reading may take. What isn't there by then is tried again later.
    fn deadline(&self) -> Duration {
        READ_DEADLINE
    }

    /// The component's bytes, unpacked, or none while not all of them have been seen. The future runs beside everything else: it may take
    /// its time, and what keeps a processor or a disk busy goes through [`off_the_runtime`].
    fn read(&self, source: PluginSource, from: SourceView) -> BoxFuture<'static, Result<Option<Vec<u8>>, Problem>>;
}

/// What a host allows its sources.
#[derive(Clone, Debug, Default)]
pub struct SourceSettings {
    /// The host's namespace, where a source that names none looks for ConfigMaps.
    pub namespace: String,
    /// The namespaces that ConfigMaps may be in.
    pub namespaces: Namespaces,
    /// The directory of plugin files.
    pub directory: Option<PathBuf>,
}

/// What a source reads from, as it was when reading began.
#[derive(Clone, Debug, Default)]
pub struct SourceView {
    /// What the host allows.
    pub settings: SourceSettings,
    /// The ConfigMaps that were looked for: there, or not. One that is missing here hasn't been looked for yet.
    pub config_maps: BTreeMap<ConfigMapKey, Option<Arc<ConfigMap>>>,
    /// Why one of them, which was never seen, can't be read.
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

/// Runs what keeps a processor or a disk busy where it stalls no task.
pub async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::new("LoadingFailed", &error)))
}

/// Reads a source and waits for it, as the offline commands do. The thread is one of its own, since the caller's may belong to a runtime.
pub fn read_offline(source: &'static dyn Source, wanted: &PluginSource, view: SourceView) -> Result<Option<Vec<u8>>, Problem> {
    let read = source.read(wanted.clone(), view);
    let wait = || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(read),
        Err(error) => Err(Problem::new("LoadingFailed", &error)),
    };
    thread::scope(|scope| scope.spawn(wait).join()).unwrap_or_else(|_| Err(Problem::new("LoadingFailed", &"reading the source panicked")))
}

/// Why a source gives no bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A namespace that the host doesn't read from.
    #[error(
        "ConfigMaps of the namespace {namespace} aren't read: the host reads plugins from {allowed}; put the ConfigMap there, or allow \
         the namespace in the host's configuration"
    )]
    NamespaceNotAllowed {
        /// The namespace that was asked for.
        namespace: String,
        /// Those that are read, in words.
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
        /// The key that was asked for.
        key: String,
        /// The keys of its binaryData, in words.
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
    /// It doesn't fit into as many ConfigMaps as a source can name.
    #[error("compressed it has {0} bytes; the limit of a ConfigMap source is {most}: use a file source", most = pointsman_sandbox::limits::PART * pointsman_sandbox::limits::MAX_CONFIG_MAP_PARTS)]
    TooManyParts(usize),
    /// A part doesn't tell what it is a part of.
    #[error(
        "the ConfigMap {map} lacks the annotation {annotation}, which identifies its component ({found}): store the component with \
         `pointsman plugin push`"
    )]
    Unmarked {
        /// Namespace and name.
        map: String,
        /// The annotation that is missing or wrong.
        annotation: &'static str,
        /// What it has.
        found: String,
    },
    /// The parts are of different components.
    #[error(
        "the ConfigMap {first} is a part of {first_digest} and {other} of {other_digest}: nothing is used until all parts belong together, which they do once an update is written completely"
    )]
    Mixed {
        /// The first part's namespace and name.
        first: String,
        /// The digest that it tells.
        first_digest: Box<Digest>,
        /// Namespace and name of one that differs.
        other: String,
        /// The digest that it tells.
        other_digest: Box<Digest>,
    },
    /// A part stands at another's place, or parts are missing.
    #[error(
        "the ConfigMap {map} is part {told} of {digest}, and the source names it as part {named}: name all parts, in order, in source.configMap.name and source.configMap.parts"
    )]
    OutOfOrder {
        /// Namespace and name.
        map: String,
        /// The part that it tells to be, such as 2/5.
        told: String,
        /// The part that the source makes it.
        named: String,
        /// The digest that it tells.
        digest: Box<Digest>,
    },
    /// The bytes aren't those that were announced.
    #[error(
        "the ConfigMap {map} has {told} in its annotation {annotation}, but its bytes have {found}: store the component again",
        annotation = config_map::DIGEST
    )]
    OtherBytes {
        /// Namespace and name.
        map: String,
        /// What the annotation tells.
        told: Box<Digest>,
        /// What the bytes are.
        found: Box<Digest>,
    },
}

impl SourceError {
    /// One CamelCase word for it, for a condition.
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
