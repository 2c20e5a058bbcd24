//! Brings the files of a model from its source into a folder of a node.

mod access;
mod checksum;
mod error;
mod http;
mod limits;
mod path;
mod source;
mod text;
mod uri;
pub use access::Access;
pub use checksum::Checksum;
pub use error::Error;
pub use limits::Limits;
pub use path::RelativePath;
pub use source::{Listing, SourceFile};
pub use uri::{Reference, StorageUri};
