//! Other nodes that have a version, or download it at the same time: each part is read from the source by one of them, and by the others from
//! that one. So the source is read about once, whatever the number of nodes.

use crate::{checksum::sha256_hex, path::RelativePath};
use async_trait::async_trait;
use futures::stream::BoxStream;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use std::{fmt, io, sync::Arc};

/// A part of a file of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRequest {
    pub version: String,
    pub path: RelativePath,
    pub start: u64,
    pub end: u64,
    /// Whether a part that isn't there yet is refused at once.
    #[serde(default)]
    pub at_once: bool,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub name: String,
    /// Of the process there: one that starts anew is asked again, whatever the former did.
    pub identity: String,
}

/// Its bytes, as they come.
pub struct PeerPart {
    pub body: BoxStream<'static, io::Result<Bytes>>,
    /// That of the whole file, if it is complete there.
    pub sha256: Option<String>,
}

impl fmt::Debug for PeerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerPart").field("sha256", &self.sha256).finish_non_exhaustive()
    }
}

/// Why a node doesn't send a part.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It downloads the version, and the part isn't there yet. It has waited a moment before it said so.
    #[error("the part isn't there yet")]
    NotYet,
    /// It neither has nor downloads the version.
    #[error("it doesn't have the version")]
    Absent,
    /// It can't be asked, or can't send.
    #[error("{0}")]
    Failed(String),
}

/// The nodes that are asked for parts.
#[async_trait]
pub trait Peers: fmt::Debug + Send + Sync {
    /// What this node is called among them.
    fn own(&self) -> &str;
    /// Whether this node reads some parts from the source. In a large cluster, only some do.
    fn is_reader(&self) -> bool {
        true
    }
    /// The others that do, as far as is known by now. All nodes had better have about the same list.
    fn others(&self) -> Arc<[Peer]>;
    /// Asks one of them for a part.
    async fn read(&self, node: &str, part: &PartRequest) -> Result<PeerPart, PeerError>;
}

/// The node that reads a part from the source, by names and numbers alone, so that all nodes find the same one.
pub(crate) fn reader<'n>(nodes: impl Iterator<Item = &'n str>, version: &str, path: &RelativePath, part: u64) -> Option<&'n str> {
    nodes.max_by_key(|node| sha256_hex(format!("{node}\n{version}\n{path}\n{part}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn parts_are_spread_over_nodes_and_move_only_if_theirs_is_gone() {
        let nodes: Vec<String> = (0..8).map(|at| format!("node-{at}")).collect();
        let path = RelativePath::parse("model.safetensors").unwrap();
        let find = |nodes: &[String]| -> BTreeMap<u64, String> {
            (0..800).map(|part| (part, reader(nodes.iter().map(String::as_str), "v", &path, part).unwrap().to_owned())).collect()
        };
        let all = find(&nodes);
        for node in &nodes {
            let count = all.values().filter(|reader| *reader == node).count();
            assert!((60..=140).contains(&count), "{node} reads {count} of 800 parts");
        }
        let rest = find(&nodes[1..]);
        let moved: BTreeSet<&String> = all.iter().filter(|(part, reader)| rest[part] != **reader).map(|(_, reader)| reader).collect();
        assert_eq!(moved, [&nodes[0]].into());
    }
}
