//! Parts from other nodes, in place of the source.

use super::{Job, target::Target};
use crate::{
    checksum::Checksum,
    error::Failure,
    peers::{PartRequest, PeerError, PeerPart, reader},
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
    pub(super) fn peer(&self, target: &Target, range: &Range<u64>) -> Option<String> {
        let nodes = self.peers.as_ref().filter(|_| !target.alone && target.file.ranges)?;
        let others = nodes.others.lock().unwrap_or_else(PoisonError::into_inner);
        let part = range.start / self.shared.limits.part_size(target.file.size);
        let own = nodes.peers.is_reader().then(|| nodes.peers.own());
        let names = others.iter().map(String::as_str).chain(own);
        reader(names, &nodes.version, &target.file.path, part).filter(|name| *name != nodes.peers.own()).map(str::to_owned)
    }

    /// Reads a part from the node that has it to read, or from the source. Returns the node, too.
    pub(super) async fn read(
        &self,
        target: &Target,
        part: &Range<u64>,
        requested: Range<u64>,
    ) -> Result<(Reading, Option<String>), Failure> {
        while let Some(node) = self.peer(target, part) {
            if let Some(reading) = self.read_peer(&node, &target.file, requested.clone()).await {
                return Ok((reading, Some(node)));
            }
        }
        Ok((self.source.read(&target.file, requested).await?, None))
    }

    /// A node isn't asked any more: another, or this one, reads in its place.
    pub(super) fn give_up(&self, node: &str, why: &dyn Display) {
        let Some(nodes) = &self.peers else { return };
        tracing::debug!(node, source = self.source.name(), error = %why, "another node doesn't send its parts: they are read elsewhere");
        nodes.others.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != node);
    }

    async fn read_peer(&self, node: &str, file: &SourceFile, range: Range<u64>) -> Option<Reading> {
        let nodes = self.peers.as_ref()?;
        let part = PartRequest { version: nodes.version.clone(), path: file.path.clone(), start: range.start, end: range.end };
        let (mut waits, mut absences) = (0, 0);
        let why = loop {
            match nodes.peers.read(node, &part).await {
                Ok(PeerPart { body, sha256 }) => {
                    let body = body.map(|chunk| chunk.map_err(Failure::transient)).boxed();
                    return Some(Reading { body, checksum: sha256.map(Checksum::Sha256) });
                }
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
