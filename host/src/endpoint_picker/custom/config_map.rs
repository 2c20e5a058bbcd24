//! A policy in ConfigMaps of a pool's namespace.

use super::{Complaints, from_bytes};
use crate::{
    endpoint_picker::{policy::ScoringPolicy, pool::Pool},
    load::Loader,
    problem::sentence,
    source::config_map::{Namespaces, assemble},
    watch::config_map::states,
};
use futures::{StreamExt, stream::select_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use pointsman_crds::policy::plugin::ConfigMapSource;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// The keys of the plugin and of its configuration. The first ConfigMap may have the latter.
pub const KEY: &str = "plugin.wasm";
const CONFIG_KEY: &str = "config.yaml";

/// The ConfigMaps with a policy.
#[derive(Debug)]
struct Maps {
    namespace: String,
    /// Several if the policy is too large for one.
    names: Vec<String>,
    /// Their current versions, in the order of the names.
    found: Vec<Option<Arc<ConfigMap>>>,
    /// Whether each has been listed.
    listed: Vec<bool>,
}

impl Maps {
    /// The plugin and its configuration, or why there are none.
    fn read(&self) -> Result<(Vec<u8>, Value), String> {
        let source = ConfigMapSource {
            name: self.names[0].clone(),
            parts: self.names[1..].to_vec(),
            key: KEY.to_owned(),
            ..ConfigMapSource::default()
        };
        let get = |_: &str, name: &str| {
            let at = self.names.iter().position(|known| known == name)?;
            self.found[at].clone()
        };
        let bytes = assemble(&source, &self.namespace, &Namespaces::Own, get).map_err(|error| error.to_string())?;
        let data = self.found[0].as_ref().and_then(|map| map.data.as_ref());
        let config = match data.and_then(|data| data.get(CONFIG_KEY)) {
            None => json!({}),
            Some(text) => serde_saphyr::from_str(text).map_err(|error| format!("{CONFIG_KEY}: {error}"))?,
        };
        Ok((bytes, config))
    }
}

/// Sets the policy of ConfigMaps in pools, as soon as they exist. It never ends by itself.
pub async fn follow(client: Client, namespace: String, names: Vec<String>, loader: Arc<Loader>, pools: Vec<Arc<Pool>>) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let watch = |(at, name): (usize, &String)| states(api.clone(), name).map(move |state| (at, state)).boxed();
    let mut changes = select_all(names.iter().enumerate().map(watch));
    let mut maps = Maps { namespace, found: vec![None; names.len()], listed: vec![false; names.len()], names };
    let mut complaints = Complaints::new(pools);
    let mut is_cut_off = false;
    while let Some((at, state)) = changes.next().await {
        match state {
            Ok(map) => (maps.found[at], maps.listed[at]) = (map, true),
            Err(error) => {
                if !std::mem::replace(&mut is_cut_off, true) {
                    let name = &maps.names[at];
                    tracing::warn!(name, error = sentence(&error), "watching the ConfigMap of the policy; trying again");
                }
                continue;
            }
        }
        is_cut_off = false;
        if maps.listed.iter().all(|is_listed| *is_listed) {
            complaints.take(load(&maps, &loader).await);
        }
    }
}

async fn load(maps: &Maps, loader: &Arc<Loader>) -> Result<ScoringPolicy, String> {
    let (bytes, config) = maps.read()?;
    let (loader, name) = (Arc::clone(loader), maps.names[0].clone());
    let loading = spawn_blocking(move || from_bytes(&loader, &name, &bytes, &config));
    loading.await.unwrap_or_else(|error| Err(error.to_string()))
}
