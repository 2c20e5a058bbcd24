//! Which kinds the cluster serves, kept up to date: ours and the neighbours' come and go while we run.

use futures::StreamExt;
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
use pointsman_crds::KINDS;
use pointsman_sandbox::text::sentence;
use std::{collections::BTreeSet, pin::pin, time::Duration};
use tokio::{sync::watch, time::timeout};

/// The group that holds what decides. Without it nothing can.
const POLICY_GROUP: &str = "policy.pointsman.dev";

/// After a change of CRDs the API server needs a moment until discovery tells of it.
const DISCOVERY_DELAY: Duration = Duration::from_secs(2);

/// The kinds that the cluster serves, of all groups that aren't Kubernetes' own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apis {
    /// Whether the API server has been asked at all.
    known: bool,
    /// group, version, plural name.
    served: BTreeSet<(String, String, String)>,
}

impl Apis {
    /// Whether the API server has been asked at all.
    pub fn known(&self) -> bool {
        self.known
    }

    /// Whether a kind can be read and written.
    pub fn serves(&self, group: &str, version: &str, plural: &str) -> bool {
        self.served.contains(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Our kinds that the cluster doesn't serve, as `plural.group/version`.
    pub fn missing(&self) -> Vec<String> {
        our_kinds().filter(|kind| !self.serves(&kind.group, &kind.version, &kind.plural)).map(|kind| name(&kind)).collect()
    }

    /// Why we can't work, if so.
    pub fn obstacle(&self) -> Option<String> {
        if !self.known {
            return Some("the API server hasn't answered yet".to_owned());
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

/// Keeps `served` up to date. It ends only when it can't go on.
pub async fn keep(client: Client, served: watch::Sender<Apis>) {
    // Only that something changed matters, so the metadata is enough: a CRD of ours is up to a megabyte.
    let crds = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone());
    let changes = watcher::watcher(crds, watcher::Config::default()).default_backoff().filter_map(notable);
    // An installation touches a dozen of them at once.
    let mut changes = pin!(changes.ready_chunks(64));
    let mut settled = false;
    loop {
        settled = match if settled { Ok(changes.next().await) } else { timeout(DISCOVERY_DELAY, changes.next()).await } {
            Ok(Some(_)) => false,
            Ok(None) => return,
            Err(_) => true,
        };
        match discover(&client).await {
            Ok(now) => {
                served.send_if_modified(|before| {
                    let differs = *before != now;
                    if differs {
                        tracing::info!(missing = now.missing().join(", "), "the kinds that the cluster serves have changed");
                        *before = now;
                    }
                    differs
                });
            }
            Err(error) => {
                tracing::warn!(error = sentence(&error), "asking the API server what it serves; trying again");
                settled = false;
            }
        }
    }
}

/// Passes on what may change the kinds that are served.
async fn notable<K>(event: watcher::Result<Event<K>>) -> Option<()> {
    match event {
        Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => Some(()),
        Ok(Event::Init | Event::InitApply(_)) => None,
        Err(error) => {
            tracing::warn!(error = sentence(&error), "watching CustomResourceDefinitions; trying again");
            None
        }
    }
}

/// Asks the API server once.
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
    Ok(Apis { known: true, served })
}
