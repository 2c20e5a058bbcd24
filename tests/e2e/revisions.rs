//! Revisions on a real API server, which enforces their immutability and their maximum size.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams},
};
use pointsman::revision::{RevisionError, Revisions};
use pointsman_sandbox::{digest::Digest, limits::PART};
use pointsman_tests::{TestCluster, TestNamespace};
use serde_json::json;
use std::collections::BTreeSet;

/// Data that can't be compressed.
fn noise(seed: u8, length: usize) -> Vec<u8> {
    (0_u64..).flat_map(|n| Digest::hash(&[&[seed][..], &n.to_be_bytes()].concat()).0).take(length).collect()
}

/// Data that needs three parts.
fn large(seed: u8) -> Vec<u8> {
    noise(seed, 2 * PART)
}

struct RevisionStore<'a> {
    namespace: TestNamespace<'a>,
    revisions: Revisions,
}

impl RevisionStore<'_> {
    async fn new(what: &str) -> RevisionStore<'static> {
        let namespace = TestCluster::shared().namespace(what).await;
        RevisionStore { revisions: Revisions::new(namespace.client.clone(), &namespace.name), namespace }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.namespace.client.clone(), &self.namespace.name)
    }

    async fn stored(&self) -> ObjectList<ConfigMap> {
        self.maps().list(&ListParams::default().labels("policy.pointsman.dev/revision")).await.unwrap()
    }

    async fn keep(&self, plugin: &str, bytes: &[u8]) -> Digest {
        let digest = Digest::hash(bytes);
        self.revisions.keep(plugin, "1.0.0", &digest, bytes).await.unwrap();
        digest
    }
}

#[tokio::test]
async fn what_is_kept_is_loaded_again_and_keeping_it_again_writes_nothing() {
    let place = RevisionStore::new("revisions-kept").await;
    let digest = place.keep("a", &large(1)).await;
    let stored = place.stored().await;
    assert_eq!(stored.items.len(), 3);
    assert_eq!(place.revisions.load(&digest).await.unwrap(), large(1));
    place.keep("a", &large(1)).await;
    assert_eq!(place.stored().await.items, stored.items);

    let other = Digest::hash(b"other");
    assert!(matches!(place.revisions.load(&other).await, Err(RevisionError::Missing(..))));
    assert!(matches!(place.revisions.keep("a", "1", &other, b"x").await, Err(RevisionError::OtherBytes { .. })));
}

#[tokio::test]
async fn what_is_kept_cant_be_changed_and_what_is_damaged_is_told_and_repaired() {
    let place = RevisionStore::new("revisions-damaged").await;
    let digest = place.keep("a", &large(1)).await;
    let part = place.stored().await.items.iter().map(ResourceExt::name_any).find(|name| name.ends_with("-2")).unwrap();
    let change = Patch::Merge(json!({"binaryData": {"plugin.wasm": "AAAA"}}));
    let refusal = place.maps().patch(&part, &PatchParams::default(), &change).await.unwrap_err();
    assert!(refusal.to_string().contains("immutable"), "{refusal}");

    // A client with the rights to delete and create can change it nevertheless.
    let mut changed = place.maps().get(&part).await.unwrap();
    changed.metadata.resource_version = None;
    changed.binary_data.as_mut().unwrap().get_mut("plugin.wasm").unwrap().0[100] ^= 1;
    place.maps().delete(&part, &DeleteParams::default()).await.unwrap();
    let missing = place.revisions.load(&digest).await.unwrap_err();
    assert!(missing.to_string().contains(&format!("is damaged: there is no ConfigMap {}/{part}", place.namespace.name)), "{missing}");
    place.maps().create(&PostParams::default(), &changed).await.unwrap();
    let damaged = place.revisions.load(&digest).await.unwrap_err();
    assert_eq!(damaged.reason(), "RevisionDamaged", "{damaged}");

    // Another plugin's revision with the same bytes is used instead.
    place.keep("b", &large(1)).await;
    assert_eq!(place.revisions.load(&digest).await.unwrap(), large(1));
    place.revisions.prune("b", &BTreeSet::new(), 0).await.unwrap();
    assert!(place.revisions.load(&digest).await.is_err());

    place.keep("a", &large(1)).await;
    assert_eq!(place.revisions.load(&digest).await.unwrap(), large(1));
}

#[tokio::test]
async fn the_oldest_revisions_are_deleted_with_all_their_parts() {
    let place = RevisionStore::new("revisions-pruned").await;
    let mut digests = Vec::new();
    for seed in 0..4 {
        digests.push(place.keep("a", &large(seed)).await);
    }
    place.keep("b", &large(0)).await;
    let listed = place.revisions.list("a").await.unwrap();
    assert_eq!(listed.iter().map(|revision| revision.digest).rev().collect::<Vec<_>>(), digests);
    assert!(listed.iter().all(|revision| revision.version == "1.0.0"));

    place.revisions.prune("a", &BTreeSet::from([digests[0]]), 1).await.unwrap();
    let left = place.revisions.list("a").await.unwrap();
    assert_eq!(left.iter().map(|revision| revision.digest).collect::<Vec<_>>(), [digests[3], digests[0]]);
    // Three parts of each, and those of the other plugin.
    assert_eq!(place.stored().await.items.len(), 9);
    assert_eq!(place.revisions.list("b").await.unwrap().len(), 1);
}
