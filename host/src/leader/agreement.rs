//! The settings that hosts must share, because each may become the leader: the leader writes its own to the Lease, and the others compare.

use k8s_openapi::api::coordination::v1::Lease;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// The annotation of the Lease.
pub const ANNOTATION: &str = "pointsman.dev/leader-settings";

/// Flags that affect a host's writes, by name, with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSettings(pub BTreeMap<String, Vec<String>>);

/// The content of the annotation.
#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    /// The writer. A leader that doesn't know the annotation leaves its predecessor's unchanged.
    holder: String,
    settings: SharedSettings,
}

impl SharedSettings {
    /// The flags with different values. A flag that only one side has is from another version.
    fn differing(&self, other: &Self) -> Vec<String> {
        let differs = |(name, values): &(&String, &Vec<String>)| other.0.get(*name).is_some_and(|theirs| theirs != *values);
        self.0.iter().filter(differs).map(|(name, _)| format!("--{name}")).collect()
    }
}

/// Compares the settings of this host with those of the leader.
#[derive(Debug)]
pub struct Agreement {
    settings: SharedSettings,
    difference: watch::Sender<Option<String>>,
}

impl Default for Agreement {
    fn default() -> Self {
        Self::new(SharedSettings::default()).0
    }
}

impl Agreement {
    /// The receiver has the differences from the leader, as a sentence, or none.
    pub fn new(settings: SharedSettings) -> (Self, watch::Receiver<Option<String>>) {
        let (difference, differs) = watch::channel(None);
        (Self { settings, difference }, differs)
    }

    /// Writes this host's settings to a Lease that it takes or renews.
    pub(super) fn announce(&self, lease: &mut Lease, holder: &str) {
        self.publish(None);
        if self.settings.0.is_empty() {
            return;
        }
        let announcement = Announcement { holder: holder.to_owned(), settings: self.settings.clone() };
        if let Ok(text) = serde_json::to_string(&announcement) {
            lease.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), text);
        }
    }

    /// Compares with the settings that another host has written to the Lease.
    pub(super) fn compare(&self, lease: Option<&Lease>) {
        self.publish(lease.and_then(|lease| self.difference(lease)));
    }

    fn difference(&self, lease: &Lease) -> Option<String> {
        let holder = lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())?;
        let text = lease.metadata.annotations.as_ref()?.get(ANNOTATION)?;
        let announced = serde_json::from_str::<Announcement>(text).ok().filter(|announced| announced.holder == *holder)?;
        let flags = self.settings.differing(&announced.settings);
        (!flags.is_empty()).then(|| {
            format!(
                "this host has another {} than the leader {holder}, so the outcome depends on which of them leads: wait until the rollout has \
                 ended, or run all hosts with the same flags",
                flags.join(", ")
            )
        })
    }

    fn publish(&self, now: Option<String>) {
        self.difference.send_if_modified(|before| {
            let differs = *before != now;
            if differs {
                if let Some(message) = &now {
                    tracing::warn!("{message}");
                } else {
                    tracing::info!("this host no longer differs from the leader");
                }
                *before = now;
            }
            differs
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    fn settings(flags: &[(&str, &str)]) -> SharedSettings {
        SharedSettings(flags.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect())
    }

    fn lease(holder: &str) -> Lease {
        let spec = LeaseSpec { holder_identity: Some(holder.to_owned()), ..LeaseSpec::default() };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn flags_that_differ_from_the_leader_s_are_reported_until_they_are_the_same() {
        let (leader, _) = Agreement::new(settings(&[("pace", "1"), ("gateway", "a/b"), ("older", "x")]));
        let mut announced = lease("first");
        leader.announce(&mut announced, "first");
        let (follower, differs) = Agreement::new(settings(&[("pace", "2"), ("gateway", "a/b"), ("newer", "y")]));
        follower.compare(Some(&announced));
        let message = differs.borrow().clone().unwrap();
        assert!(message.starts_with("this host has another --pace than the leader first, so the outcome depends on"), "{message}");

        let (same, _) = Agreement::new(settings(&[("pace", "2"), ("gateway", "a/b")]));
        same.announce(&mut announced, "first");
        follower.compare(Some(&announced));
        assert_eq!(*differs.borrow(), None);
    }

    #[test]
    fn what_a_former_leader_has_announced_counts_for_nothing() {
        let (leader, _) = Agreement::new(settings(&[("pace", "1")]));
        let mut announced = lease("second");
        leader.announce(&mut announced, "first");
        let (follower, differs) = Agreement::new(settings(&[("pace", "2")]));
        for lease in [Some(&announced), Some(&lease("second")), Some(&lease("")), None] {
            follower.compare(lease);
            assert_eq!(*differs.borrow(), None);
        }
    }
}
