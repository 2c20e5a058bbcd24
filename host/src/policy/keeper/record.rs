//! The record of what decides: one object in the cluster, from which every host takes its active set. It names revisions and
//! freezes how they are bound, so that a restart finds the last good state whatever has become of the sources meanwhile.

use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use pointsman_crds::policy::{plugin::PluginSignature, set::PolicySetPlugin};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of the ConfigMap that holds the record.
pub const NAME: &str = "pointsman-active";

const KEY: &str = "set.json";

/// What decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRecord {
    /// The digest of the set.
    pub digest: String,
    /// The version of the host that wrote it.
    pub host: String,
    /// The plugins, by name.
    pub plugins: BTreeMap<String, Recorded>,
}

/// One plugin in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// What decides.
    pub active: PolicySetPlugin,
    /// Since when these bytes do.
    pub at: Time,
    /// The signature over them, which a host that demands one checks again when it loads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<PluginSignature>,
    /// What decided before it, under other bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<Former>,
}

/// What decided before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Former {
    /// How it was bound.
    pub plugin: PolicySetPlugin,
    /// Since when it did.
    pub at: Time,
    /// The signature over its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<PluginSignature>,
}

impl ActiveRecord {
    /// With a plugin put in the place of the one of its name. Whether other bytes decide now is what makes the former ones previous.
    pub fn promote(&mut self, active: PolicySetPlugin, signature: Option<PluginSignature>, now: Time) {
        let former = self.plugins.remove(&active.name);
        let recorded = match former {
            Some(former) if former.active.digest == active.digest => Recorded { active, signature, ..former },
            Some(former) => {
                let previous = Former { plugin: former.active, at: former.at, signature: former.signature };
                Recorded { active, at: now, signature, previous: Some(previous) }
            }
            None => Recorded { active, at: now, signature, previous: None },
        };
        self.plugins.insert(recorded.active.name.clone(), recorded);
    }

    /// The digests that must stay loadable for a plugin.
    pub fn digests(&self, plugin: &str) -> impl Iterator<Item = &str> {
        let recorded = self.plugins.get(plugin);
        let previous = recorded.and_then(|recorded| recorded.previous.as_ref()).map(|former| former.plugin.digest.as_str());
        recorded.map(|recorded| recorded.active.digest.as_str()).into_iter().chain(previous)
    }

    /// As it is written. The resource version, where there is one, makes the write fail if somebody else has written meanwhile.
    pub fn to_config_map(&self, namespace: &str, resource_version: Option<String>) -> serde_json::Result<ConfigMap> {
        Ok(ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(namespace.to_owned()),
                resource_version,
                labels: Some([("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), serde_json::to_string_pretty(self)?)].into()),
            ..ConfigMap::default()
        })
    }

    /// As it is read.
    pub fn of(config_map: &ConfigMap) -> Result<Self, String> {
        let text = config_map.data.as_ref().and_then(|data| data.get(KEY)).ok_or_else(|| format!("it has no data[{KEY}]"))?;
        serde_json::from_str(text).map_err(|error| format!("its {KEY} can't be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn plugin(digest: &str, order: i32) -> PolicySetPlugin {
        PolicySetPlugin { name: "a".to_owned(), digest: digest.to_owned(), order, ..PolicySetPlugin::default() }
    }

    fn time(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn other_bytes_make_the_former_ones_previous_and_another_binding_does_not() {
        let mut record = ActiveRecord::default();
        record.promote(plugin("one", 1), None, time(1));
        record.promote(plugin("two", 1), None, time(2));
        record.promote(plugin("two", 2), None, time(3));
        let recorded = &record.plugins["a"];
        assert_eq!((recorded.active.order, &recorded.at), (2, &time(2)));
        let former = recorded.previous.as_ref().unwrap();
        assert_eq!((former.plugin.digest.as_str(), &former.at), ("one", &time(1)));
        assert_eq!(record.digests("a").collect::<Vec<_>>(), ["two", "one"]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = ActiveRecord { digest: "d".to_owned(), host: "1".to_owned(), ..ActiveRecord::default() };
        record.promote(plugin("one", 1), None, time(1));
        record.promote(plugin("two", 1), None, time(2));
        assert_eq!(ActiveRecord::of(&record.to_config_map("ns", None).unwrap()), Ok(record));
        assert!(ActiveRecord::of(&ConfigMap::default()).unwrap_err().contains("set.json"));
    }
}
