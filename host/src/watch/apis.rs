//! The kinds that the cluster serves, kept up to date: our CRDs and others' may be installed and removed at any time.

use super::outdated::InstalledCrds;
use crate::problem::sentence;
use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::ApiResource,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use pointsman_core::resource::{PICKER_KINDS, Resource};
use pointsman_crds::KINDS;
use std::{collections::BTreeSet, pin::pin, time::Duration};
use tokio::{sync::watch, time::timeout};

/// The group of the policies. Without it, no policy is active.
const POLICY_GROUP: &str = "policy.pointsman.dev";

/// How long the API server may need after a change of CRDs until discovery shows it.
const DISCOVERY_DELAY: Duration = Duration::from_secs(2);

/// The kinds that the cluster serves, of all groups except for Kubernetes' own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apis {
    /// Whether discovery has ever succeeded.
    known: bool,
    /// Why discovery fails, until it has succeeded.
    failure: Option<String>,
    /// group, version, plural name.
    served: BTreeSet<(String, String, String)>,
    /// The fields that our older CRDs lack, one sentence per CRD.
    outdated: Vec<String>,
}

impl Apis {
    /// Whether discovery has ever succeeded.
    pub fn known(&self) -> bool {
        self.known
    }

    /// Whether a kind can be read and written.
    pub fn serves(&self, group: &str, version: &str, plural: &str) -> bool {
        self.served.contains(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Whether a kind can be read and written in any version.
    pub fn serves_any_version(&self, group: &str, plural: &str) -> bool {
        self.served.iter().any(|(its_group, _, its_plural)| its_group == group && its_plural == plural)
    }

    /// Our kinds that the cluster doesn't serve, as `plural.group/version`.
    pub fn missing(&self) -> Vec<String> {
        self.missing_kinds().map(|kind| name(&kind)).collect()
    }

    fn missing_kinds(&self) -> impl Iterator<Item = ApiResource> {
        our_kinds().filter(|kind| !self.serves(&kind.group, &kind.version, &kind.plural))
    }

    /// Our kinds that the cluster serves only in versions that this host doesn't read, one sentence per kind.
    fn unread(&self) -> Vec<String> {
        let sentence = |ApiResource { group, version, plural, kind, .. }: ApiResource| {
            let others = self.served.iter().filter(|(its_group, _, its_plural)| *its_group == group && *its_plural == plural);
            let others = others.map(|(_, version, _)| version.as_str()).collect::<Vec<_>>().join(" and ");
            (!others.is_empty()).then(|| {
                format!(
                    "the cluster serves {plural}.{group} only in {others}, and this host reads {version}: it serves no {kind}. Let the CRD \
                     serve {plural}.{group} in {version}, too, or install a newer host"
                )
            })
        };
        self.missing_kinds().filter_map(sentence).collect()
    }

    /// The fields that our older CRDs lack, one sentence per CRD. The host works with the fields they have.
    pub fn outdated(&self) -> impl Iterator<Item = &str> {
        self.outdated.iter().map(String::as_str)
    }

    /// The reason why this host can't work, if any.
    pub fn obstacle(&self) -> Option<String> {
        if !self.known {
            let failure = self.failure.as_ref().map(|failure| format!(": {failure}")).unwrap_or_default();
            return Some(format!("the API server hasn't answered yet{failure}"));
        }
        let missing: Vec<_> = self.missing().into_iter().filter(|kind| kind.contains(POLICY_GROUP)).collect();
        (!missing.is_empty())
            .then(|| format!("the cluster doesn't serve {}: `pointsman crds install` installs the CRDs", missing.join(", ")))
    }
}

fn our_kinds() -> impl Iterator<Item = ApiResource> {
    KINDS.iter().filter(|kind| !kind.optional).map(|kind| (kind.resource)())
}

fn name(kind: &ApiResource) -> String {
    format!("{}.{}/{}", kind.plural, kind.group, kind.version)
}

/// Keeps `served` up to date. It ends only when it can't continue.
pub async fn keep(client: Client, served: watch::Sender<Apis>) {
    // Only the fact of a change matters, so the metadata is enough: one of our CRDs has up to a megabyte.
    let crds = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone());
    let changes = watcher::watcher(crds, watcher::Config::default()).default_backoff();
    // An installation changes a dozen of them at once.
    let mut changes = pin!(changes.ready_chunks(64));
    let mut installed = InstalledCrds::default();
    let (mut settled, mut is_watched, mut last_failure) = (false, true, None);
    loop {
        let change = next_notable(&mut changes, &mut installed, &mut is_watched);
        settled = match if settled { Ok(change.await) } else { timeout(DISCOVERY_DELAY, change).await } {
            Ok(Some(())) => false,
            Ok(None) => return,
            Err(_) => true,
        };
        let discovered = discover(&client).await.map(|now| publish(&served, now));
        // Afterwards, so that the kinds are published before each of our CRDs is read.
        let compared = match discovered {
            Ok(()) => installed.outdated(&client).await,
            Err(error) => Err(error),
        };
        match compared {
            Ok(outdated) => {
                last_failure = None;
                served.send_if_modified(|apis| std::mem::replace(&mut apis.outdated, outdated.clone()) != outdated);
            }
            Err(error) => {
                let failure = describe(&error);
                // Discovery is retried every two seconds.
                if last_failure.as_ref() != Some(&failure) {
                    tracing::warn!(error = failure, "asking the API server what it serves; trying again");
                }
                served.send_if_modified(|apis| !apis.known && apis.failure.replace(failure.clone()).as_ref() != Some(&failure));
                last_failure = Some(failure);
                settled = false;
            }
        }
    }
}

/// The error, and the remedy for the one failure that isn't transient.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => format!(
            "it rejects the host's token ({}): if the ServiceAccount was deleted and created again, delete the host's pods, whose tokens are \
             those of the old one",
            sentence(error)
        ),
        error => sentence(error),
    }
}

/// Waits for an event that may change the served kinds, and records all events before it.
async fn next_notable(
    changes: &mut (impl Stream<Item = Vec<watcher::Result<Event<PartialObjectMeta<CustomResourceDefinition>>>>> + Unpin),
    installed: &mut InstalledCrds,
    is_watched: &mut bool,
) -> Option<()> {
    loop {
        let events = changes.next().await?;
        for event in &events {
            installed.record(event);
            match event {
                // This event comes before each list, even one that fails.
                Ok(Event::Init) => {}
                Ok(_) => *is_watched = true,
                Err(error) if std::mem::replace(is_watched, false) => {
                    tracing::warn!(error = sentence(error), "watching CustomResourceDefinitions; trying again");
                }
                Err(_) => {}
            }
        }
        if events.iter().any(is_notable) {
            return Some(());
        }
    }
}

/// Publishes the kinds if they have changed.
fn publish(served: &watch::Sender<Apis>, now: Apis) {
    served.send_if_modified(|before| {
        let now = Apis { outdated: before.outdated.clone(), ..now };
        let differs = *before != now;
        if differs {
            tracing::info!(missing = now.missing().join(", "), "the kinds that the cluster serves have changed");
            for problem in now.obstacle().into_iter().chain(now.unread()) {
                tracing::warn!("{problem}");
            }
            *before = now;
        }
        differs
    });
}

/// Whether an event may change the served kinds.
fn is_notable<K>(event: &watcher::Result<Event<K>>) -> bool {
    matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone))
}

/// Queries the API server once.
///
/// An API server that has just started includes a custom resource in discovery only once it has read the CRD again. Until then, the CRD
/// itself is authoritative: if its kind seemed absent, every service that needs it would change.
pub async fn discover(client: &Client) -> kube::Result<Apis> {
    let groups = client.list_api_groups_aggregated().await?;
    let mut served = BTreeSet::new();
    for group in groups.items {
        let group_name = group.metadata.and_then(|m| m.name).unwrap_or_default();
        for version in group.versions {
            let version_name = version.version.unwrap_or_default();
            for resource in version.resources {
                served.insert((group_name.clone(), version_name.clone(), resource.resource.unwrap_or_default()));
            }
        }
    }
    let watched = super::watched().map(|(resource, _)| resource).chain(PICKER_KINDS.iter().copied());
    let neighbours = watched.filter(|resource| resource.neighbour.is_some()).map(Resource::api_resource);
    let unlisted: BTreeSet<_> =
        our_kinds().chain(neighbours).map(|kind| (kind.group, kind.version, kind.plural)).filter(|kind| !served.contains(kind)).collect();
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let asked = unlisted.into_iter().map(async |kind| match crds.get_opt(&format!("{}.{}", kind.2, kind.0)).await {
        Ok(crd) => Ok(crd.is_some_and(|crd| is_established(&crd, &kind.1)).then_some(kind)),
        // A command line user may have no right to read CRDs.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    });
    served.extend(futures::future::try_join_all(asked).await?.into_iter().flatten());
    Ok(Apis { known: true, failure: None, served, outdated: Vec::new() })
}

/// Whether the API server has accepted a CRD, and serves this version of it.
fn is_established(crd: &CustomResourceDefinition, version: &str) -> bool {
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    crd.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        && crd.spec.versions.iter().any(|served| served.name == version && served.served)
}

#[cfg(test)]
mod tests {
    use super::{Apis, is_established};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde_json::{Value, json};

    fn crd(established: &str, served: bool, deleted: &Value) -> CustomResourceDefinition {
        let text = json!({
            "metadata": {"deletionTimestamp": deleted},
            "spec": {"group": "ray.io", "names": {"kind": "RayCluster", "plural": "rayclusters"}, "scope": "Namespaced",
                "versions": [{"name": "v1alpha1", "served": true, "storage": false}, {"name": "v1", "served": served, "storage": true}]},
            "status": {"conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": established}]},
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_crd_stands_for_its_kind_once_it_is_established_and_until_it_is_deleted() {
        assert!(is_established(&crd("True", true, &Value::Null), "v1"));
        assert!(!is_established(&crd("False", true, &Value::Null), "v1"), "its names are taken, or not yet accepted");
        assert!(!is_established(&crd("True", false, &Value::Null), "v1"), "only another version is served");
        assert!(!is_established(&crd("True", true, &Value::Null), "v2"));
        assert!(!is_established(&crd("True", true, &json!("2026-01-01T00:00:00Z")), "v1"), "the API server removes it");
    }

    #[test]
    fn a_kind_that_is_served_only_in_a_newer_version_is_reported_with_both_versions() {
        let served = |versions: &[&str]| {
            let name = |version: &&str| ("serving.kserve.io".to_owned(), (*version).to_owned(), "llminferenceservices".to_owned());
            Apis { known: true, served: versions.iter().map(name).collect(), ..Apis::default() }.unread()
        };
        let expected = "the cluster serves llminferenceservices.serving.kserve.io only in v8 and v9, and this host reads v1alpha1: it serves no \
                        LLMInferenceService. Let the CRD serve llminferenceservices.serving.kserve.io in v1alpha1, too, or install a newer host";
        assert_eq!(served(&["v9", "v8"]), [expected]);
        assert!(served(&["v1alpha1", "v9"]).is_empty() && served(&[]).is_empty());
    }
}
