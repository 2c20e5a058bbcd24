//! Revisions: each plugin's bytes under one digest, stored in the cluster for rollbacks.
//!
//! A revision is one or more immutable ConfigMaps. The first part is its head, which is written last and deleted first: if there is a head,
//! the other parts were once complete. None of it is trusted: bytes are used only if they have the digest.

use super::source::{
    SourceError,
    config_map::{DIGEST, Namespaces, PART_OF, assemble, part_name, parts_of, split},
};
use crate::leader::fence::FenceError;
use futures::future::try_join_all;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PartialObjectMeta, PostParams},
};
use pointsman_crds::policy::plugin::ConfigMapSource;
use pointsman_sandbox::digest::Digest;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The label with the first digits of the digest; a label's value is too short for all of them.
pub const REVISION: &str = "policy.pointsman.dev/revision";

/// The label that distinguishes a plugin's revisions from others': the first digits of the digest of the plugin's name, because a name may
/// be longer than a label's value.
pub const OF: &str = "policy.pointsman.dev/revision-of";

/// The label that only heads have.
pub const HEAD: &str = "policy.pointsman.dev/revision-head";

/// The annotation with the plugin's name.
pub const PLUGIN: &str = "policy.pointsman.dev/plugin";

/// The annotation with the plugin's version, from its description.
pub const VERSION: &str = "policy.pointsman.dev/version";

/// The key of the bytes in each part.
const BYTES_KEY: &str = "plugin.wasm";

/// The number of attempts to write a part if the API server doesn't respond in time.
const WRITE_TRIES: u32 = 3;

/// The number of ConfigMaps in a page of a list.
const PAGE: u32 = 500;

/// One revision of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The digest of the bytes.
    pub digest: Digest,
    /// The plugin's version, from its description.
    pub version: String,
    /// The time at which it was stored.
    pub created: Time,
}

/// Why a revision can't be stored or loaded.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// The API server refuses or doesn't respond.
    #[error("{doing}: {error}")]
    Cluster {
        /// The operation.
        doing: String,
        /// The error.
        #[source]
        error: Box<kube::Error>,
    },
    /// It isn't stored.
    #[error("no revision of {0} is stored in the namespace {1}: it was deleted, or never loaded by this host; push the plugin again")]
    Missing(Box<Digest>, String),
    /// The stored bytes are damaged.
    #[error("the revision of {digest} is damaged: {why}; delete its ConfigMaps and push the plugin again")]
    Damaged {
        /// The requested digest.
        digest: Box<Digest>,
        /// The damage.
        why: String,
    },
    /// The bytes don't have the digest.
    #[error("the bytes to store have the digest {found} rather than {digest}")]
    OtherBytes {
        /// The expected digest.
        digest: Box<Digest>,
        /// The bytes' digest.
        found: Box<Digest>,
    },
    /// The bytes don't fit into ConfigMaps.
    #[error("the revision can't be stored: {0}")]
    Split(#[from] SourceError),
    /// The task that compresses the bytes was ended.
    #[error("the revision can't be stored: its compression was interrupted")]
    Interrupted,
}

impl RevisionError {
    /// A CamelCase reason for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Cluster { .. } => "RevisionsUnreachable",
            Self::Missing(..) => "RevisionNotFound",
            Self::Damaged { .. } => "RevisionDamaged",
            Self::OtherBytes { .. } => "DigestMismatch",
            Self::Split(error) => error.reason(),
            Self::Interrupted => "Interrupted",
        }
    }
}

fn cluster(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> RevisionError {
    let doing = doing.into();
    |error| RevisionError::Cluster { doing, error: Box::new(error) }
}

/// The revisions in one namespace, which is the host's own.
#[derive(Clone)]
pub struct Revisions {
    client: Client,
    namespace: String,
}

impl std::fmt::Debug for Revisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Revisions").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Revisions {
    /// The revisions in a namespace.
    pub fn new(client: Client, namespace: impl Into<String>) -> Self {
        Self { client, namespace: namespace.into() }
    }

    /// Stores a plugin's bytes. Does nothing if they are stored and intact. The parts from earlier attempts stay, so that even a slow API
    /// server stores a large plugin, a few parts per attempt; damaged parts are written again.
    pub async fn keep(&self, plugin: &str, version: &str, digest: &Digest, bytes: &[u8]) -> Result<(), RevisionError> {
        let found = Digest::hash(bytes);
        if found != *digest {
            return Err(RevisionError::OtherBytes { digest: Box::new(*digest), found: Box::new(found) });
        }
        let head = head_name(plugin, digest);
        let doing = || format!("looking for the revision {}/{head}", self.namespace);
        let there = self.maps().get_metadata_opt(&head).await.map_err(cluster(doing()))?;
        if let Some(head) = there
            && head.annotations().get(PLUGIN).map(String::as_str) == Some(plugin)
            && self.whole(&head, digest).await?.is_ok()
        {
            return Ok(());
        }

        let (bytes, plugin, version) = (bytes.to_vec(), plugin.to_owned(), version.to_owned());
        let packing = tokio::task::spawn_blocking(move || maps(&plugin, &version, &bytes));
        let mut parts = packing.await.map_err(|_| RevisionError::Interrupted)??;
        // The head is also deleted first in a repair, because it marks the parts as complete.
        self.delete(&head).await?;
        parts.reverse();
        for part in &parts {
            self.write(part).await?;
        }
        Ok(())
    }

    /// Creates a part, and replaces an object with its name unless that is the same.
    async fn write(&self, part: &ConfigMap) -> Result<(), RevisionError> {
        let name = part.name_any();
        let doing = || format!("writing the revision {}/{name}", self.namespace);
        match self.create(part).await {
            Err(kube::Error::Api(refusal)) if refusal.is_already_exists() => {}
            written => return written.map_err(cluster(doing())),
        }
        let there = self.maps().get_opt(&name).await.map_err(cluster(format!("reading the revision {}/{name}", self.namespace)))?;
        if there.is_some_and(|there| is_same_part(&there, part)) {
            return Ok(());
        }
        self.delete(&name).await?;
        self.create(part).await.map_err(cluster(doing()))
    }

    /// Creates a part. If the response is late, the part may exist: the next attempt finds it.
    async fn create(&self, part: &ConfigMap) -> kube::Result<()> {
        for _ in 1..WRITE_TRIES {
            match self.maps().create(&PostParams::default(), part).await {
                Err(error) if matches!(FenceError::find(&error), Some(FenceError::TimedOut(_))) => {
                    tracing::debug!(part = part.name_any(), "writing a revision: {error}; trying again");
                }
                written => return written.map(|_| ()),
            }
        }
        self.maps().create(&PostParams::default(), part).await.map(|_| ())
    }

    async fn delete(&self, name: &str) -> Result<(), RevisionError> {
        match self.maps().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(refusal)) if refusal.is_not_found() => Ok(()),
            deleted => deleted.map(|_| ()).map_err(cluster(format!("deleting the revision {}/{name}", self.namespace))),
        }
    }

    /// The bytes of a digest, regardless of the plugin they were stored for.
    pub async fn load(&self, digest: &Digest) -> Result<Vec<u8>, RevisionError> {
        let heads = self.metadata(&format!("{HEAD}=true,{REVISION}={}", label(digest))).await?;
        let mut damage = None;
        for head in heads.iter().filter(|head| digest_in_metadata(head) == Some(*digest)) {
            match self.whole(head, digest).await? {
                Ok(bytes) => return Ok(bytes),
                Err(why) => damage = Some(why),
            }
        }
        Err(match damage {
            Some(why) => RevisionError::Damaged { digest: Box::new(*digest), why: why.to_string() },
            None => RevisionError::Missing(Box::new(*digest), self.namespace.clone()),
        })
    }

    /// The bytes of a digest that were stored for a plugin. This needs no right to list ConfigMaps.
    pub async fn load_for(&self, plugin: &str, digest: &Digest) -> Result<Vec<u8>, RevisionError> {
        let name = head_name(plugin, digest);
        let head = self.maps().get_metadata_opt(&name).await.map_err(cluster(format!("reading the revision {}/{name}", self.namespace)))?;
        let Some(head) = head else { return Err(RevisionError::Missing(Box::new(*digest), self.namespace.clone())) };
        let read = self.whole(&head, digest).await?;
        read.map_err(|why| RevisionError::Damaged { digest: Box::new(*digest), why: why.to_string() })
    }

    /// The bytes of a head's revision, or their damage.
    async fn whole(&self, head: &PartialObjectMeta<ConfigMap>, digest: &Digest) -> Result<Result<Vec<u8>, SourceError>, RevisionError> {
        let (first, maps) = (head.name_any(), self.maps());
        let names: Vec<_> = (1..=count(head)).map(|number| part_name(&first, number)).collect();
        let read = try_join_all(names.iter().map(|name| maps.get_opt(name))).await;
        let read = read.map_err(cluster(format!("reading the revision {}/{first}", self.namespace)))?;
        let found = names.iter().cloned().zip(read).filter_map(|(name, map)| Some((name, Arc::new(map?)))).collect();
        Ok(joined(&self.namespace, names, &found, digest))
    }

    /// The revisions of a plugin, newest first.
    pub async fn list(&self, plugin: &str) -> Result<Vec<Revision>, RevisionError> {
        let heads = self.metadata(&format!("{HEAD}=true,{OF}={}", hash(plugin))).await?;
        Ok(newest_first(plugin, &heads))
    }

    /// Deletes a plugin's oldest revisions except those in use and the `limit` newest others, and the parts of revisions without a head. A
    /// revision that is being stored at the same time must be among those in use.
    pub async fn prune(&self, plugin: &str, in_use: &BTreeSet<Digest>, limit: usize) -> Result<(), RevisionError> {
        let all = self.metadata(&format!("{OF}={}", hash(plugin))).await?;
        for name in surplus(plugin, &all, in_use, limit) {
            self.delete(&name).await?;
        }
        Ok(())
    }

    /// The plugins with stored revisions.
    pub async fn plugins(&self) -> Result<BTreeSet<String>, RevisionError> {
        let all = self.metadata(OF).await?;
        Ok(all.iter().filter_map(|map| annotation(&map.metadata, PLUGIN)).map(str::to_owned).collect())
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The metadata of the selected ConfigMaps, without the bytes.
    async fn metadata(&self, selector: &str) -> Result<Vec<PartialObjectMeta<ConfigMap>>, RevisionError> {
        let (mut all, mut params) = (Vec::new(), ListParams::default().labels(selector).limit(PAGE));
        loop {
            let page = self.maps().list_metadata(&params).await;
            let page = page.map_err(cluster(format!("listing the revisions in the namespace {}", self.namespace)))?;
            all.extend(page.items);
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(all),
            }
        }
    }
}

fn hash(plugin: &str) -> String {
    Digest::hash(plugin.as_bytes()).short()
}

fn label(digest: &Digest) -> String {
    digest.hex()[..40].to_owned()
}

/// A name of limited length, regardless of the plugin's name.
fn head_name(plugin: &str, digest: &Digest) -> String {
    format!("pointsman-revision-{}-{}", hash(plugin), &digest.hex()[..24])
}

/// The ConfigMaps of a revision, the head first.
fn maps(plugin: &str, version: &str, bytes: &[u8]) -> Result<Vec<ConfigMap>, SourceError> {
    let digest = Digest::hash(bytes);
    let mut parts = split(&head_name(plugin, &digest), BYTES_KEY, bytes)?;
    for (part, index) in parts.iter_mut().zip(0_usize..) {
        let labels = part.metadata.labels.get_or_insert_default();
        labels.insert(REVISION.to_owned(), label(&digest));
        labels.insert(OF.to_owned(), hash(plugin));
        if index == 0 {
            labels.insert(HEAD.to_owned(), "true".to_owned());
        }
        let annotations = part.metadata.annotations.get_or_insert_default();
        annotations.insert(PLUGIN.to_owned(), plugin.to_owned());
        annotations.insert(VERSION.to_owned(), version.to_owned());
        part.immutable = Some(true);
    }
    Ok(parts)
}

/// Whether an existing ConfigMap equals a part.
fn is_same_part(there: &ConfigMap, part: &ConfigMap) -> bool {
    let marks = |map: &ConfigMap| (map.labels().clone(), map.annotations().clone(), map.immutable);
    there.binary_data == part.binary_data && there.data == part.data && marks(there) == marks(part)
}

/// The joined bytes of a revision's parts, if they have the digest.
fn joined(
    namespace: &str,
    mut names: Vec<String>,
    found: &BTreeMap<String, Arc<ConfigMap>>,
    digest: &Digest,
) -> Result<Vec<u8>, SourceError> {
    let parts = names.split_off(1.min(names.len()));
    let name = names.pop().unwrap_or_default();
    let title = format!("{namespace}/{name}");
    let source = ConfigMapSource { namespace: None, name, key: BYTES_KEY.to_owned(), parts };
    let bytes = assemble(&source, namespace, &Namespaces::Own, |_, name| found.get(name).cloned())?;
    // Somebody may have changed all annotations to those of another digest.
    let is = Digest::hash(&bytes);
    if is == *digest { Ok(bytes) } else { Err(SourceError::OtherBytes { map: title, told: Box::new(*digest), found: Box::new(is) }) }
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

fn digest_in_metadata(map: &PartialObjectMeta<ConfigMap>) -> Option<Digest> {
    annotation(&map.metadata, DIGEST)?.parse().ok()
}

/// The number of parts in a head's annotation, or 1.
fn count(head: &PartialObjectMeta<ConfigMap>) -> usize {
    annotation(&head.metadata, PART_OF).and_then(parts_of).unwrap_or(1)
}

fn newest_first(plugin: &str, heads: &[PartialObjectMeta<ConfigMap>]) -> Vec<Revision> {
    let mut revisions: Vec<_> = heads.iter().filter_map(|head| Some((age(head), revision(plugin, head)?))).collect();
    revisions.sort_by(|(one, _), (other, _)| other.cmp(one));
    revisions.into_iter().map(|(_, revision)| revision).collect()
}

/// The revision of a head, unless the head isn't one of the plugin's.
fn revision(plugin: &str, head: &PartialObjectMeta<ConfigMap>) -> Option<Revision> {
    let meta = &head.metadata;
    let ours = meta.labels.as_ref().is_some_and(|labels| labels.contains_key(HEAD)) && annotation(meta, PLUGIN) == Some(plugin);
    let created = meta.creation_timestamp.clone().filter(|_| ours)?;
    let version = annotation(meta, VERSION).unwrap_or_default().to_owned();
    Some(Revision { digest: digest_in_metadata(head)?, version, created })
}

/// The sort key of revisions. Times have whole seconds; within a second, the resource version decides which is newer.
fn age(map: &PartialObjectMeta<ConfigMap>) -> (Option<Time>, u128) {
    let version = map.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    (map.metadata.creation_timestamp.clone(), version.unwrap_or_default())
}

/// The names of a plugin's ConfigMaps to delete, heads before their parts.
fn surplus(plugin: &str, all: &[PartialObjectMeta<ConfigMap>], in_use: &BTreeSet<Digest>, limit: usize) -> Vec<String> {
    let kept: BTreeSet<Digest> = newest_first(plugin, all)
        .into_iter()
        .map(|revision| revision.digest)
        .filter(|digest| !in_use.contains(digest))
        .take(limit)
        .chain(in_use.iter().copied())
        .collect();
    let ours = all.iter().filter(|map| annotation(&map.metadata, PLUGIN) == Some(plugin));
    let mut surplus: Vec<_> = ours.filter(|map| digest_in_metadata(map).is_none_or(|digest| !kept.contains(&digest))).collect();
    surplus.sort_by_key(|map| !map.labels().contains_key(HEAD));
    surplus.into_iter().map(ResourceExt::name_any).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sandbox::limits::PART;

    fn meta(map: &ConfigMap, created: &str, version: &str) -> PartialObjectMeta<ConfigMap> {
        let metadata = ObjectMeta {
            creation_timestamp: Some(Time(created.parse().unwrap())),
            resource_version: Some(version.to_owned()),
            ..map.metadata.clone()
        };
        PartialObjectMeta { types: None, metadata, _phantom: std::marker::PhantomData }
    }

    /// The head, without other parts, of a revision that was created at this minute.
    fn head(plugin: &str, bytes: &[u8], minute: u8) -> PartialObjectMeta<ConfigMap> {
        meta(&maps(plugin, "1.0.0", bytes).unwrap()[0], &format!("2026-11-21T11:{minute:02}:00Z"), "1")
    }

    /// Bytes that don't fit into one part.
    fn large() -> Vec<u8> {
        (0_u64..).flat_map(|n| Digest::hash(&n.to_be_bytes()).0).take(2 * PART).collect()
    }

    fn found(parts: &[ConfigMap]) -> (Vec<String>, BTreeMap<String, Arc<ConfigMap>>) {
        let names = parts.iter().map(ResourceExt::name_any).collect();
        (names, parts.iter().map(|part| (part.name_any(), Arc::new(part.clone()))).collect())
    }

    #[test]
    fn a_revision_is_immutable_and_tells_whose_and_what_it_is() {
        let name = format!("plugin.{}", "a".repeat(240));
        let large = large();
        let digest = Digest::hash(&large);
        let parts = maps(&name, "1.2.3", &large).unwrap();
        assert_eq!(parts.len(), 3);
        for (part, number) in parts.iter().zip(1..) {
            assert_eq!(part.immutable, Some(true));
            assert_eq!(part.name_any(), part_name(&head_name(&name, &digest), number));
            assert!(part.name_any().len() <= 63, "{}", part.name_any());
            assert!(part.labels().values().all(|value| value.len() <= 63));
            assert_eq!(part.labels()[REVISION], digest.hex()[..40]);
            assert_eq!(part.labels().contains_key(HEAD), number == 1);
            assert_eq!(part.annotations()[PLUGIN], name);
            assert_eq!(part.annotations()[VERSION], "1.2.3");
            assert_eq!(part.annotations()[DIGEST], digest.to_string());
            assert_eq!(part.annotations()[PART_OF], format!("{number}/3"));
        }
        assert_ne!(maps("other", "1.2.3", &large).unwrap()[0].name_any(), parts[0].name_any());
    }

    #[test]
    fn a_revision_is_joined_again_only_if_it_is_whole() {
        let large = large();
        let digest = Digest::hash(&large);
        let parts = maps("a", "1", &large).unwrap();
        let (names, all) = found(&parts);
        assert_eq!(joined("ours", names.clone(), &all, &digest).unwrap(), large);
        for missing in &names {
            let mut rest = all.clone();
            rest.remove(missing);
            assert_eq!(joined("ours", names.clone(), &rest, &digest).unwrap_err(), SourceError::NotFound(format!("ours/{missing}")));
        }
        // Even an immutable ConfigMap's metadata can be changed.
        let other = Digest::hash(b"other");
        let (names, all) = found(&maps("a", "1", b"other").unwrap());
        assert_eq!(joined("ours", names.clone(), &all, &other).unwrap(), b"other");
        let told = SourceError::OtherBytes { map: format!("ours/{}", names[0]), told: Box::new(digest), found: Box::new(other) };
        assert_eq!(joined("ours", names, &all, &digest).unwrap_err(), told);
    }

    #[test]
    fn revisions_are_listed_from_the_newest_on_and_within_a_second_by_the_servers_count() {
        let at = |bytes: &[u8], version: &str| meta(&maps("a", "1", bytes).unwrap()[0], "2026-11-21T11:30:00Z", version);
        let heads = [head("a", b"1", 1), at(b"nine", "9"), head("a", b"3", 3), at(b"ten", "10"), head("a", b"2", 2)];
        let listed: Vec<_> = newest_first("a", &heads).into_iter().map(|revision| revision.digest).collect();
        assert_eq!(listed, [&b"ten"[..], b"nine", b"3", b"2", b"1"].map(Digest::hash));
        assert_eq!(newest_first("a", &heads[..1])[0].version, "1.0.0");
    }

    #[test]
    fn another_plugins_revisions_are_neither_listed_nor_deleted() {
        // As if both names had the same hash.
        let heads = [head("a", b"1", 1), head("b", b"2", 2)];
        assert_eq!(newest_first("a", &heads).len(), 1);
        assert_eq!(surplus("a", &heads, &BTreeSet::new(), 0), [heads[0].name_any()]);
        let mut nonsense = head("a", b"3", 3);
        nonsense.annotations_mut().insert(DIGEST.to_owned(), "x".to_owned());
        assert_eq!(newest_first("a", std::slice::from_ref(&nonsense)), []);
        assert_eq!(surplus("a", std::slice::from_ref(&nonsense), &BTreeSet::new(), 5), [nonsense.name_any()]);
    }

    #[test]
    fn the_oldest_beyond_the_limit_are_deleted_but_none_that_is_in_use() {
        let heads: Vec<_> = (0..6_u8).map(|n| head("a", &[b'a' + n], n)).collect();
        let name = |n: usize| heads[n].name_any();
        let in_use = BTreeSet::from([Digest::hash(b"a"), Digest::hash(b"f")]);
        assert_eq!(surplus("a", &heads, &in_use, 4), Vec::<String>::new());
        assert_eq!(surplus("a", &heads, &in_use, 2), [name(1), name(2)]);
        assert_eq!(surplus("a", &heads, &in_use, 0), [name(1), name(2), name(3), name(4)]);
        assert_eq!(surplus("a", &heads, &BTreeSet::new(), 5), [name(0)]);
    }

    #[test]
    fn a_revision_is_deleted_with_all_its_parts_and_head_first() {
        let large: Vec<_> = maps("a", "1", &large()).unwrap().iter().rev().map(|part| meta(part, "2026-11-21T11:00:00Z", "1")).collect();
        let deleted = surplus("a", &large, &BTreeSet::new(), 0);
        assert_eq!(deleted.len(), 3);
        assert_eq!(deleted[0], large[2].name_any());
        // Without the head, these parts are from a revision that was only partly written or deleted.
        assert_eq!(surplus("a", &large[..2], &BTreeSet::new(), 5).len(), 2);
        let in_use = BTreeSet::from([digest_in_metadata(&large[0]).unwrap()]);
        assert_eq!(surplus("a", &large[..2], &in_use, 0), Vec::<String>::new());
    }
}
