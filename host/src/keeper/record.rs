//! The record of what decides: one object in the cluster, from which every host takes its active set. It names revisions and
//! freezes how they are bound, so that a restart finds the last good state whatever has become of the sources meanwhile.

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

/// Bytes of a record that a ConfigMap takes, whatever stands around it.
pub const MAX_RECORD_BYTES: usize = 900 << 10;

/// How many sets that subjects may still be on are kept loadable. Who is on an older one stays as it is until its turn.
const FORMERS: usize = 8;

/// What decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRecord {
    /// The digest of the set.
    pub digest: String,
    /// The number of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// The newest version of a host that has written it: the built-ins of an older one are no update.
    pub host: String,
    /// Since when this set decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The digests of the sets that decided before it and that subjects may still be on, the newest first; one of them at least.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formers: Vec<String>,
    /// The plugins, by name.
    pub plugins: BTreeMap<String, Recorded>,
    /// The rules, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, RecordedRule>,
}

/// One rule in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRule {
    /// What counts.
    pub active: PolicySetRule,
    /// What its ValidationRule says of updates, for the time when that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpdateStrategy>,
    /// Where it comes from.
    #[serde(default)]
    pub origin: Origin,
}

/// With which set, and by whom, something came to be as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The number of that set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<i64>,
    /// The field manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
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
    /// What its PolicyPlugin says of updates, for the time when that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpdateStrategy>,
    /// What decided before it, under other bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousSet>,
    /// Where it comes from.
    #[serde(default)]
    pub origin: Origin,
}

/// What decided before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviousSet {
    /// How it was bound.
    pub plugin: PolicySetPlugin,
    /// Since when it did.
    pub at: Time,
    /// The signature over its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<PluginSignature>,
}

impl Recorded {
    /// The signature over bytes that decide, or did before.
    pub fn signature_of(&self, digest: &str) -> Option<PluginSignature> {
        if self.active.digest == digest {
            return self.signature.clone();
        }
        self.previous.as_ref().filter(|former| former.plugin.digest == digest).and_then(|former| former.signature.clone())
    }
}

impl ActiveRecord {
    /// With a plugin put in the place of the one of its name. Whether other bytes decide now is what makes the former ones previous.
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

    /// Notes where a plugin or a rule comes from.
    pub(super) fn set_origin(&mut self, key: &ChangeKey, origin: Origin) {
        let place = match key {
            ChangeKey::Plugin(name) => self.plugins.get_mut(name).map(|recorded| &mut recorded.origin),
            ChangeKey::Rule(name) => self.rules.get_mut(name).map(|recorded| &mut recorded.origin),
        };
        if let Some(place) = place {
            *place = origin;
        }
    }

    /// Names the set that decides from now on. Where somebody may still be on former ones, they stay.
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
            data: Some([(KEY.to_owned(), serde_json::to_string(self)?)].into()),
            ..ConfigMap::default()
        })
    }

    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |text| text.len())
    }

    /// As it is read.
    pub fn from_config_map(config_map: &ConfigMap) -> Result<Self, String> {
        let text = config_map.data.as_ref().and_then(|data| data.get(KEY)).ok_or_else(|| format!("it has no data[{KEY}]"))?;
        serde_json::from_str(text).map_err(|error| format!("its {KEY} can't be parsed: {error}"))
    }
}

/// Whether a version is newer than another, as far as its numbers tell.
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
