//! Writes the reservations: one ConfigMap per node. Each is replaced as a whole and only in the known version, so that of two hosts that
//! both believe they are the leader one fails.

use super::{requests::some_at_once, stores::ReservedOnNode};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::params::Preconditions,
};
use pointsman_core::{
    allocation::records::{NODE, PLACES, RESERVATIONS, Reservations},
    objects::label_value,
};
use std::collections::{BTreeMap, BTreeSet};

/// The field manager of reservations and of models' histories.
pub(super) const MANAGER: &str = "pointsman/allocation";

/// The reservations as last written or read.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub(super) struct Places {
    api: Api<ConfigMap>,
    /// By name of the ConfigMap.
    known: BTreeMap<String, ReservedOnNode>,
    /// The deleted ConfigMaps with their last known version: the watch may be behind.
    gone: BTreeMap<String, u64>,
}

/// The name of a node's ConfigMap.
fn config_map_name(node: &str) -> String {
    label_value(&format!("pointsman-node-{node}")).into_owned()
}

impl Places {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), known: BTreeMap::new(), gone: BTreeMap::new() }
    }

    /// Reads all reservations from the API server, because the watch may be behind.
    pub(super) async fn load(&mut self) -> kube::Result<()> {
        let list = self.api.list(&ListParams::default().labels(RESERVATIONS)).await?;
        self.gone.clear();
        self.known = list.iter().filter_map(|map| Some((map.name_any(), ReservedOnNode::from_config_map(map)?))).collect();
        Ok(())
    }

    /// Takes newer versions from the watch.
    pub(super) fn note(&mut self, seen: &BTreeMap<String, ReservedOnNode>) {
        for (name, object) in seen {
            let is_old = self.gone.get(name).is_some_and(|version| object.version <= *version)
                || self.known.get(name).is_some_and(|known| object.version <= known.version);
            if !is_old {
                self.known.insert(name.clone(), object.clone());
            }
        }
    }

    /// Whether one of these ConfigMaps is known.
    pub(super) fn knows(&self, names: &BTreeSet<String>) -> bool {
        names.iter().any(|name| self.known.contains_key(name))
    }

    /// The reservations by node.
    pub(super) fn by_node(&self) -> BTreeMap<&str, &Reservations> {
        self.known.values().map(|known| (known.node.as_str(), &known.places)).collect()
    }

    /// Writes the reservations of nodes. If one write fails, the others are still made, and the reservations must be read again.
    pub(super) async fn write(&mut self, nodes: BTreeMap<String, Reservations>) -> kube::Result<()> {
        let requests = nodes.into_iter().map(|(node, places)| {
            let name = config_map_name(&node);
            let version = self.known.get(&name).map(|known| known.version);
            let api = self.api.clone();
            async move { write(&api, &node, &name, version, &places).await.map(|written| (name, version, written)) }
        });
        for answer in some_at_once(requests.collect()).await {
            let (name, version, written) = answer?;
            if let Some(written) = written {
                self.known.insert(name, written);
            } else {
                self.known.remove(&name);
                self.gone.extend(version.map(|version| (name, version)));
            }
        }
        Ok(())
    }
}

/// Writes one ConfigMap, which has a known version or doesn't exist yet. Returns none if the node has no reservations any more.
async fn write(
    api: &Api<ConfigMap>,
    node: &str,
    name: &str,
    version: Option<u64>,
    places: &Reservations,
) -> kube::Result<Option<ReservedOnNode>> {
    let version = version.map(|version| version.to_string());
    if places.is_empty() {
        if version.is_some() {
            let preconditions = Some(Preconditions { resource_version: version, uid: None });
            api.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await?;
        }
        return Ok(None);
    }
    let places = serde_json::to_string(places).map_err(kube::Error::SerdeError)?;
    let is_new = version.is_none();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(RESERVATIONS.to_owned(), "true".to_owned())].into()),
            resource_version: version,
            ..ObjectMeta::default()
        },
        data: Some([(NODE.to_owned(), node.to_owned()), (PLACES.to_owned(), places)].into()),
        ..ConfigMap::default()
    };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let written = if is_new { api.create(&params, &map).await? } else { api.replace(name, &params, &map).await? };
    Ok(ReservedOnNode::from_config_map(&written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_name_of_any_length_gives_the_name_of_a_config_map() {
        assert_eq!(config_map_name("gpu-1.example"), "pointsman-node-gpu-1.example");
        let (long, longer) = (config_map_name(&"n".repeat(250)), config_map_name(&"n".repeat(251)));
        assert!(long.len() <= 63 && long != longer);
    }
}
