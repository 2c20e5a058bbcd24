//! When files may be removed: files that no model needs any more stay for a while, because pods may use them and a node's label may come
//! back.

use pointsman_download::StoredModel;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Files that are removed together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Removal {
    /// Everything at a path.
    Model(PathBuf),
    /// The versions of a path to which it no longer leads, except for these.
    Versions { path: PathBuf, retained: BTreeSet<String> },
}

impl Removal {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Model(path) | Self::Versions { path, .. } => path,
        }
    }
}

/// The use of the paths on the disk.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// The paths that models need.
    pub(super) wanted: BTreeSet<PathBuf>,
    /// The paths of models that are being deleted, which no other model needs.
    pub(super) deleted: BTreeSet<PathBuf>,
    /// The paths that stay even if no model needs them.
    pub(super) kept: BTreeSet<PathBuf>,
}

/// Since when each path, and each version of one, has not been needed.
#[derive(Debug, Default)]
pub(super) struct Retention {
    since: BTreeMap<(PathBuf, Option<String>), Instant>,
    expired: bool,
}

impl Retention {
    /// Whether there are files that no model needs.
    pub(super) fn is_any(&self) -> bool {
        !self.since.is_empty()
    }

    /// Ends the wait for files that aren't needed now: their space is needed.
    pub(super) fn expire(&mut self) {
        self.expired = true;
    }

    /// The removals that are due now, and the time of the next one.
    pub(super) fn due(
        &mut self,
        stored: &[StoredModel],
        wishes: &Wishes,
        delay: Duration,
        now: Instant,
    ) -> (Vec<Removal>, Option<Instant>) {
        let mut unwanted = BTreeSet::new();
        for StoredModel { path, current, versions, .. } in stored {
            if wishes.wanted.contains(path) {
                let others = versions.iter().filter(|version| Some(*version) != current.as_ref());
                unwanted.extend(others.map(|version| (path.clone(), Some(version.clone()))));
            } else if !wishes.kept.contains(path) {
                unwanted.insert((path.clone(), None));
            }
        }
        self.since.retain(|thing, _| unwanted.contains(thing));
        for thing in unwanted {
            self.since.entry(thing).or_insert(now);
        }
        let expired = std::mem::take(&mut self.expired);
        let is_due = |path: &PathBuf, since: &Instant| expired || wishes.deleted.contains(path) || now.duration_since(*since) >= delay;
        let (mut due, mut next): (BTreeMap<PathBuf, Removal>, Option<Instant>) = (BTreeMap::new(), None);
        for ((path, version), since) in &self.since {
            if !is_due(path, since) {
                let at = *since + delay;
                next = Some(next.map_or(at, |next| next.min(at)));
                continue;
            }
            match version {
                None => _ = due.insert(path.clone(), Removal::Model(path.clone())),
                Some(_) => {
                    _ = due.entry(path.clone()).or_insert_with(|| Removal::Versions { path: path.clone(), retained: BTreeSet::new() });
                }
            }
        }
        for ((path, version), since) in &self.since {
            if let (Some(Removal::Versions { retained, .. }), Some(version), false) = (due.get_mut(path), version, is_due(path, since)) {
                retained.insert(version.clone());
            }
        }
        (due.into_values().collect(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_hours(1);

    fn model(path: &str, versions: &[&str]) -> StoredModel {
        let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
        StoredModel { path: path.into(), note: None, current: versions.last().cloned(), versions }
    }

    fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn what_nobody_wants_goes_after_a_while_and_at_once_if_its_model_is_deleted() {
        let (mut retention, begun) = (Retention::default(), Instant::now());
        let stored = [model("/m/wanted", &["1"]), model("/m/left", &["1"]), model("/m/deleted", &["1"]), model("/m/kept", &["1"])];
        let wishes = Wishes { wanted: paths(&["/m/wanted"]), deleted: paths(&["/m/deleted"]), kept: paths(&["/m/kept"]) };
        let (due, next) = retention.due(&stored, &wishes, DELAY, begun);
        assert_eq!((due, next), (vec![Removal::Model("/m/deleted".into())], Some(begun + DELAY)));
        let (due, next) = retention.due(&stored[..2], &wishes, DELAY, begun + DELAY);
        assert_eq!((due, next), (vec![Removal::Model("/m/left".into())], None));
    }

    #[test]
    fn what_is_wanted_again_begins_anew() {
        let (mut retention, begun) = (Retention::default(), Instant::now());
        let (stored, nobody) = ([model("/m/a", &["1"])], Wishes::default());
        retention.due(&stored, &nobody, DELAY, begun);
        let wanted = Wishes { wanted: paths(&["/m/a"]), ..Wishes::default() };
        assert_eq!(retention.due(&stored, &wanted, DELAY, begun + DELAY / 2), (vec![], None));
        assert!(!retention.is_any());
        assert_eq!(retention.due(&stored, &nobody, DELAY, begun + DELAY), (vec![], Some(begun + DELAY * 2)));
    }

    #[test]
    fn each_former_version_stays_as_long_as_any() {
        let (mut retention, begun) = (Retention::default(), Instant::now());
        let wishes = Wishes { wanted: paths(&["/m/a"]), ..Wishes::default() };
        assert_eq!(retention.due(&[model("/m/a", &["1", "2"])], &wishes, DELAY, begun).0, []);
        assert_eq!(retention.due(&[model("/m/a", &["1", "2", "3"])], &wishes, DELAY, begun + DELAY / 2).0, []);
        let (due, next) = retention.due(&[model("/m/a", &["1", "2", "3"])], &wishes, DELAY, begun + DELAY);
        let retained = BTreeSet::from(["2".to_owned()]);
        assert_eq!((due, next), (vec![Removal::Versions { path: "/m/a".into(), retained }], Some(begun + DELAY * 3 / 2)));
    }

    #[test]
    fn nothing_unwanted_stays_if_its_space_is_needed() {
        let (mut retention, now) = (Retention::default(), Instant::now());
        let stored = [model("/m/a", &["1", "2"]), model("/m/b", &["1"])];
        let wishes = Wishes { wanted: paths(&["/m/a"]), ..Wishes::default() };
        assert_eq!(retention.due(&stored, &wishes, DELAY, now).0, []);
        retention.expire();
        let versions = Removal::Versions { path: "/m/a".into(), retained: BTreeSet::new() };
        assert_eq!(retention.due(&stored, &wishes, DELAY, now).0, [versions, Removal::Model("/m/b".into())]);
        assert_eq!(retention.due(&stored, &wishes, DELAY, now).0, []);
    }
}
