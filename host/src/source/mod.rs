//! Where a plugin's bytes come from, and how they are packed on the way.

pub mod config_map;
pub mod file;
pub mod unpack;

use pointsman_sandbox::{digest::Digest, limits::LARGEST_BINARY};

/// Why a source gives no bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A namespace that the host doesn't read from.
    #[error(
        "ConfigMaps of the namespace {namespace} aren't read: the host takes plugins from {allowed}; put the ConfigMap there, or allow the namespace in the host's configuration"
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
    #[error("it has more than {LARGEST_BINARY} bytes{0}, and no more are accepted")]
    TooLarge(&'static str),
    /// It can't be decompressed.
    #[error("it begins like gzip and can't be decompressed: {0}; store it again, as it is or compressed with gzip")]
    Gzip(String),
    /// It doesn't fit into as many ConfigMaps as a source can name.
    #[error("compressed it has {0} bytes, and a source of ConfigMaps holds at most {most}: bring it as a file", most = pointsman_sandbox::limits::PART * pointsman_sandbox::limits::MAX_CONFIG_MAP_PARTS)]
    TooManyParts(usize),
    /// A part doesn't tell what it is a part of.
    #[error(
        "the ConfigMap {map} doesn't tell in the annotation {annotation} what it is a part of ({found}): store the component with pointsman plugin push, which writes it"
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
        "the ConfigMap {map} announces {told} in its annotation {annotation}, and the bytes are {found}: they were changed afterwards; store the component again",
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
