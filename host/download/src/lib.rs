//! Brings the files of a model from its source into a folder of a node: in parallel parts, whole or not at all.
//!
//! [`Downloader`] has the models of one root. [`Downloader::download`] makes a [`Download`] of a [`Request`]; its `run` returns an
//! [`Outcome`] once the model's path leads to a complete version, whose files all have the checksums that the source publishes. A process
//! that is killed, or a future that is dropped, leaves what it has: the next `run` continues.
//!
//! A root has one link for each model, which pods mount, and all else in `ROOT/.pointsman`: `docs/model-storage.md` describes both.

mod access;
mod checksum;
mod error;
mod folder;
mod http;
mod limits;
mod path;
mod peers;
mod source;
mod text;
mod transfer;
mod unpack;
mod uri;

pub use access::Access;
pub use checksum::Checksum;
pub use error::Error;
pub use folder::{Damage, Manifest, ManifestFile, Problem, StoredModel, Usage, Verification};
pub use limits::Limits;
pub use path::RelativePath;
pub use peers::{PartRequest, Peer, PeerError, PeerPart, Peers};
pub use source::{Listing, SourceFile};
pub use transfer::{Download, Downloader, Outcome, Phase, Progress, RemoteModel, Request, Watcher};
pub use uri::{Reference, StorageUri};
