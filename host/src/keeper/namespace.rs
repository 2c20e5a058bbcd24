//! The preconditions of any decision: the host's namespace, and the last active set.

use super::{Keeper, sets};
use crate::problem::sentence;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};

impl Keeper {
    /// Whether the last active set is known. Without a record, the PolicySets' statuses name it, and this host waits until it is active.
    pub(super) async fn knows_the_last(&mut self) -> bool {
        if !self.record.plugins.is_empty() || self.in_force.is_some() {
            return true;
        }
        let told_active = |set: &&PolicySet| set.status.as_ref().is_some_and(|status| status.phase == Some(PolicySetPhase::Active));
        let last = self.sets.values().find(told_active).map(|set| set.spec.digest.clone());
        let builtins = self.policies.active().digest().to_string();
        let Some(last) = last.filter(|last| *last != builtins) else { return self.known.sets };
        let name = sets::name(&last);
        let why = format!(
            "the record of the active policy set is lost; the host is loading {name}, which was active last. To use the built-in policies \
             alone, delete the PolicySet"
        );
        self.ready.send_if_modified(|obstacle| obstacle.replace(why.clone()).as_ref() != Some(&why));
        if self.leadership.held() {
            self.reactivate(&last).await;
        }
        self.in_force.is_some()
    }

    /// Whether the host's namespace exists: without it nothing can be stored, and no host can lead.
    pub(super) async fn look_for_home(&mut self) -> bool {
        let name = &self.options.namespace;
        let why = match Api::<Namespace>::all(self.client.clone()).get_metadata_opt(name).await {
            Ok(Some(_)) => {
                self.known.namespace = true;
                return true;
            }
            Ok(None) => {
                format!("the host's namespace {name} doesn't exist: run `kubectl create namespace {name}`, or set --namespace")
            }
            Err(error) => format!("the host's namespace {name} can't be read: {}", sentence(&error)),
        };
        self.ready.send_if_modified(|obstacle| {
            let differs = obstacle.as_ref() != Some(&why);
            if differs {
                tracing::error!("{why}");
                *obstacle = Some(why);
            }
            differs
        });
        self.try_again();
        false
    }
}
