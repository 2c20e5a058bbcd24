//! Parts from other nodes, in place of the source.

use super::{Job, target::Target};
use crate::{
    checksum::Checksum,
    error::Failure,
    peers::{PartRequest, Peer, PeerError, PeerPart, reader},
    source::{Reading, SourceFile},
};
use futures::StreamExt;
use std::{fmt::Display, ops::Range, sync::PoisonError, time::Duration};

/// How often a node is asked that downloads the version, and doesn't have the part. It waits before it answers.
const MAX_WAITS: u32 = 8;

/// How often a node is asked that doesn't download the version: it may be about to begin.
const MAX_ABSENCES: u32 = 5;

/// How long to wait between two of these.
const ABSENCE_DELAY: Duration = Duration::from_secs(1);

impl Job {
    /// The node that reads a part from the source, unless it is this one.
    pub(super) fn peer(&self, target: &Target, range: &Range<u64>) -> Option<Peer> {
        self.reader(target, range, true)
    }

    /// The other node that reads a part from the source: in spite of this one, or if this one weren't there.
    fn reader(&self, target: &Target, range: &Range<u64>, is_there: bool) -> Option<Peer> {
        let nodes = self.peers.as_ref().filter(|_| !target.alone && target.file.ranges)?;
        let others = nodes.peers.others();
        let failed = nodes.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let part = range.start / self.shared.limits.part_size(target.file.size);
        let own = (is_there && nodes.peers.is_reader()).then(|| nodes.peers.own());
        let asked = || others.iter().filter(|other| !failed.contains(other));
        let found = reader(asked().map(|other| &*other.name).chain(own), &nodes.version, &target.file.path, part)?;
        asked().find(|other| other.name == found).cloned()
    }

    /// Reads a part from the node that has it to read, or from the source. Returns the node, too.
    pub(super) async fn read(&self, target: &Target, part: &Range<u64>, requested: Range<u64>) -> Result<(Reading, Option<Peer>), Failure> {
        while let Some(node) = self.peer(target, part) {
            if let Some(reading) = self.read_peer(&node, &target.file, requested.clone(), false).await {
                return Ok((reading, Some(node)));
            }
        }
        // Without this node that one would read it: perhaps it has, before this one began, or while it was gone.
        if let Some(node) = self.reader(target, part, false)
            && let Some(reading) = self.read_peer(&node, &target.file, requested.clone(), true).await
        {
            return Ok((reading, Some(node)));
        }
        Ok((self.source.read(&target.file, requested).await?, None))
    }

    /// A node isn't asked any more: another, or this one, reads in its place.
    pub(super) fn give_up(&self, node: &Peer, why: &dyn Display) {
        let Some(nodes) = &self.peers else { return };
        tracing::debug!(node = node.name, source = self.source.name(), error = %why, "another node doesn't send its parts: they are read elsewhere");
        nodes.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone());
    }

    /// Reads a part from a node: once it is there, or only if it is there already.
    async fn read_peer(&self, node: &Peer, file: &SourceFile, range: Range<u64>, at_once: bool) -> Option<Reading> {
        let nodes = self.peers.as_ref()?;
        let part = PartRequest { version: nodes.version.clone(), path: file.path.clone(), start: range.start, end: range.end, at_once };
        let (mut waits, mut absences) = (0, 0);
        let why = loop {
            match nodes.peers.read(&node.name, &part).await {
                Ok(PeerPart { body, sha256 }) => {
                    let body = body.map(|chunk| chunk.map_err(Failure::transient)).boxed();
                    return Some(Reading { body, checksum: sha256.map(Checksum::Sha256) });
                }
                Err(PeerError::NotYet | PeerError::Absent) if at_once => return None,
                Err(PeerError::NotYet) if waits < MAX_WAITS => waits += 1,
                Err(PeerError::Absent) if absences < MAX_ABSENCES => {
                    absences += 1;
                    tokio::time::sleep(ABSENCE_DELAY).await;
                }
                Err(error) => break error,
            }
        };
        self.give_up(node, &why);
        None
    }
}
