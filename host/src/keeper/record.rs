//! The record of the active set: one object in the cluster, from which every host loads its set. It names revisions and freezes their
//! bindings, so that a restarted host finds the last good state regardless of the sources.

use super::pending::ChangeKey;
use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use pointsman_crds::policy::{
    plugin::{PluginSignature, UpdateStrategy},
    set::{PolicySetPlugin, PolicySetRule},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the ConfigMap that holds the record.
pub const NAME: &str = "pointsman-active";

const KEY: &str = "set.json";

/// The maximum size of a record that fits into a ConfigMap with everything around it.
pub const MAX_RECORD_BYTES: usize = 900 << 10;

/// The maximum number of previous sets that stay loadable for subjects that may still be on them. A subject on an older set stays unchanged
/// until its restart.
const FORMERS: usize = 8;

/// The active set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRecord {
    /// The digest of the set.
    pub digest: String,
    /// The number of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// The newest version of a host that has written the record: an older host's built-ins are no update.
    pub host: String,
    /// Since when this set is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The digests of the previous sets that subjects may still be on, newest first; at least one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formers: Vec<String>,
    /// The plugins, by name.
    pub plugins: BTreeMap<String, Recorded>,
    /// The rules, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, RecordedRule>,
}

/// A rule in the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRule {
    /// The active version.
    pub active: PolicySetRule,
    /// The strategy of its ValidationRule, which is needed after that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpdateStrategy>,
    /// The set and the field manager that introduced it.
    #[serde(default)]
    pub origin: Origin,
}

/// The set and the field manager that introduced a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The number of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<i64>,
    /// The field manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A plugin in the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// The active version.
    pub active: PolicySetPlugin,
    /// Since when these bytes are active.
    pub at: Time,
    /// The signature of the bytes, which a host that requires signatures checks again when it loads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<PluginSignature>,
    /// The strategy of its PolicyPlugin, which is needed after that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpdateStrategy>,
    /// The previous version, which had other bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousSet>,
    /// The set and the field manager that introduced it.
    #[serde(default)]
    pub origin: Origin,
}

/// A previous version of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviousSet {
    /// Its binding.
    pub plugin: PolicySetPlugin,
    /// Since when it was active.
    pub at: Time,
    /// The signature of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<PluginSignature>,
}

impl Recorded {
    /// The signature of active or previous bytes.
    pub fn signature_of(&self, digest: &str) -> Option<PluginSignature> {
        if self.active.digest == digest {
            return self.signature.clone();
        }
        self.previous.as_ref().filter(|former| former.plugin.digest == digest).and_then(|former| former.signature.clone())
    }
}

impl ActiveRecord {
    /// Replaces a plugin by name. The old version becomes the previous one only if its bytes differ.
    pub fn promote(&mut self, active: PolicySetPlugin, signature: Option<PluginSignature>, strategy: Option<UpdateStrategy>, now: Time) {
        let former = self.plugins.remove(&active.name);
        let recorded = match former {
            Some(former) if former.active.digest == active.digest => Recorded { active, signature, strategy, ..former },
            Some(former) => {
                let previous = PreviousSet { plugin: former.active, at: former.at, signature: former.signature };
                Recorded { active, at: now, signature, strategy, previous: Some(previous), origin: Origin::default() }
            }
            None => Recorded { active, at: now, signature, strategy, previous: None, origin: Origin::default() },
        };
        self.plugins.insert(recorded.active.name.clone(), recorded);
    }

    /// Records the origin of a plugin or a rule.
    pub(super) fn set_origin(&mut self, key: &ChangeKey, origin: Origin) {
        let place = match key {
            ChangeKey::Plugin(name) => self.plugins.get_mut(name).map(|recorded| &mut recorded.origin),
            ChangeKey::Rule(name) => self.rules.get_mut(name).map(|recorded| &mut recorded.origin),
        };
        if let Some(place) = place {
            *place = origin;
        }
    }

    /// Sets the digest of the active set. Previous sets that subjects may still be on are retained.
    pub fn set_active(&mut self, digest: String, in_use: bool, now: Time) {
        if digest == self.digest {
            return;
        }
        let former = std::mem::replace(&mut self.digest, digest);
        let older = if in_use { std::mem::take(&mut self.formers) } else { Vec::new() };
        self.formers = [former].into_iter().chain(older).filter(|former| !former.is_empty() && *former != self.digest).collect();
        let mut seen = BTreeSet::new();
        self.formers.retain(|former| seen.insert(former.clone()));
        self.formers.truncate(FORMERS);
        self.since = Some(now);
    }

    /// The digests that must stay loadable for a plugin.
    pub fn digests(&self, plugin: &str) -> impl Iterator<Item = &str> {
        let recorded = self.plugins.get(plugin);
        let previous = recorded.and_then(|recorded| recorded.previous.as_ref()).map(|former| former.plugin.digest.as_str());
        recorded.map(|recorded| recorded.active.digest.as_str()).into_iter().chain(previous)
    }

    /// The ConfigMap to write. With a resource version, the write fails if another writer was faster.
    pub fn to_config_map(&self, namespace: &str, resource_version: Option<String>) -> serde_json::Result<ConfigMap> {
        Ok(ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(namespace.to_owned()),
                resource_version,
                labels: Some([("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), serde_json::to_string(self)?)].into()),
            ..ConfigMap::default()
        })
    }

    /// The record's size in bytes.
    pub fn size(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |text| text.len())
    }

    /// Parses the record from a ConfigMap.
    pub fn from_config_map(config_map: &ConfigMap) -> Result<Self, String> {
        let text = config_map.data.as_ref().and_then(|data| data.get(KEY)).ok_or_else(|| format!("it has no data[{KEY}]"))?;
        serde_json::from_str(text).map_err(|error| format!("its {KEY} can't be parsed: {error}"))
    }
}

/// Whether a version is newer than another, by its numbers.
pub(super) fn newer(version: &str, other: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        let release = version.split(['-', '+']).next().unwrap_or_default();
        release.split('.').map(|number| number.parse().unwrap_or_default()).collect()
    };
    numbers(version) > numbers(other)
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
        record.promote(plugin("one", 1), None, None, time(1));
        record.promote(plugin("two", 1), None, None, time(2));
        record.promote(plugin("two", 2), None, None, time(3));
        let recorded = &record.plugins["a"];
        assert_eq!((recorded.active.order, &recorded.at), (2, &time(2)));
        let former = recorded.previous.as_ref().unwrap();
        assert_eq!((former.plugin.digest.as_str(), &former.at), ("one", &time(1)));
        assert_eq!(record.digests("a").collect::<Vec<_>>(), ["two", "one"]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = ActiveRecord { digest: "d".to_owned(), host: "1".to_owned(), ..ActiveRecord::default() };
        record.promote(plugin("one", 1), None, None, time(1));
        record.promote(plugin("two", 1), None, None, time(2));
        assert_eq!(ActiveRecord::from_config_map(&record.to_config_map("ns", None).unwrap()), Ok(record));
        assert!(ActiveRecord::from_config_map(&ConfigMap::default()).unwrap_err().contains("set.json"));
    }

    #[test]
    fn former_sets_stay_while_somebody_may_be_on_them() {
        let mut record = ActiveRecord::default();
        for (digest, in_use) in [("a", false), ("b", false), ("c", true), ("b", true)] {
            record.set_active(digest.to_owned(), in_use, time(1));
        }
        assert_eq!((record.digest.as_str(), &record.formers[..]), ("b", &["c".to_owned(), "a".to_owned()][..]));
        record.set_active("d".to_owned(), false, time(2));
        assert_eq!((&record.formers[..], record.since), (&["b".to_owned()][..], Some(time(2))));
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(newer("0.10.0", "0.9.1") && newer("1.0.0", "") && newer("1.0.1-rc.1", "1.0.0"));
        assert!(!newer("0.9.1", "0.9.1") && !newer("0.9.1", "0.10.0") && !newer("0.9.1+b", "0.9.1+a"));
    }
}
