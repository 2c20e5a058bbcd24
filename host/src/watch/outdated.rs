//! Our CRDs of other versions that lack fields which this host writes or reads. Each is reported; the host works with the fields that they
//! have.

use crate::crds::{self, Outcome};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    core::PartialObjectMeta,
    runtime::watcher::{self, Event},
};
use pointsman_crds::KINDS;
use std::collections::BTreeMap;

/// The uid of a CRD and the generation of its spec.
type Version = (Option<String>, Option<i64>);

/// The installed CRDs, from a watch of their metadata, and the results for ours.
#[derive(Debug, Default)]
pub(super) struct InstalledCrds {
    seen: BTreeMap<String, Version>,
    /// The content of a list that hasn't ended yet.
    listed: BTreeMap<String, Version>,
    /// Each version of our CRDs is read and compared once, because a CRD has up to a megabyte.
    compared: BTreeMap<String, (Version, Option<String>)>,
}

impl InstalledCrds {
    /// Records an event of the watch.
    pub(super) fn record(&mut self, event: &watcher::Result<Event<PartialObjectMeta<CustomResourceDefinition>>>) {
        let version = |crd: &PartialObjectMeta<_>| (crd.metadata.uid.clone(), crd.metadata.generation);
        match event {
            Ok(Event::Init) => self.listed.clear(),
            Ok(Event::InitApply(crd)) => _ = self.listed.insert(crd.name_any(), version(crd)),
            Ok(Event::InitDone) => self.seen = std::mem::take(&mut self.listed),
            Ok(Event::Apply(crd)) => _ = self.seen.insert(crd.name_any(), version(crd)),
            Ok(Event::Delete(crd)) => _ = self.seen.remove(&crd.name_any()),
            Err(_) => {}
        }
    }

    /// A sentence for each of our CRDs that lacks fields. A CRD that can't be read keeps its result, and is read again next time.
    pub(super) async fn outdated(&mut self, client: &Client) -> kube::Result<Vec<String>> {
        let api = Api::<CustomResourceDefinition>::all(client.clone());
        for kind in KINDS {
            let resource = (kind.resource)();
            let name = format!("{}.{}", resource.plural, resource.group);
            let Some(version) = self.seen.get(&name) else {
                self.compared.remove(&name);
                continue;
            };
            if self.compared.get(&name).is_some_and(|(compared, _)| compared == version) {
                continue;
            }
            let (version, Some(found)) = (version.clone(), api.get_opt(&name).await?) else { continue };
            // Building our CRD from its Rust type takes as long as planning several services.
            let crd = kind.crd;
            let message = tokio::task::spawn_blocking(move || complaint(&crd(), &found)).await.unwrap_or_default();
            if let Some(message) = &message {
                tracing::warn!("{message}");
            }
            self.compared.insert(name, (version, message));
        }
        Ok(self.compared.values().filter_map(|(_, message)| message.clone()).collect())
    }
}

/// The fields that one of our CRDs lacks, and the remedy. Others' CRDs are for `pointsman crds check`: their projects decide on their
/// fields.
fn complaint(ours: &CustomResourceDefinition, found: &CustomResourceDefinition) -> Option<String> {
    let (comparison, remedy) = match crds::standing(ours, found) {
        Outcome::Outdated(comparison) => (comparison, "run `pointsman crds install`"),
        Outcome::Foreign(comparison) if crds::is_labelled_ours(found) => (comparison, "run `kubectl apply --server-side -k crds`"),
        _ => return None,
    };
    let name = ours.name_any();
    (!comparison.compatible()).then(|| format!("the CRD {name} is older than this host, and {comparison}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A PolicySet's CRD without a field, as an older version or another writer has written it.
    fn installed(manager: &str, ours: bool) -> (CustomResourceDefinition, CustomResourceDefinition) {
        let kind = KINDS.iter().find(|kind| (kind.resource)().kind == "PolicySet").unwrap();
        let mut found = serde_json::to_value((kind.crd)()).unwrap();
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        found.pointer_mut(path).unwrap().as_object_mut().unwrap().remove("summary").unwrap();
        found["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}}}]);
        if !ours {
            found["metadata"]["labels"] = json!({});
        }
        ((kind.crd)(), serde_json::from_value(found).unwrap())
    }

    #[test]
    fn an_older_crd_is_reported_with_what_it_lacks_however_it_was_installed() {
        for (manager, remedy) in
            [(crds::FIELD_MANAGER, "run `pointsman crds install`"), ("kubectl", "run `kubectl apply --server-side -k crds`")]
        {
            let (ours, found) = installed(manager, true);
            let expected =
                format!("the CRD policysets.policy.pointsman.dev is older than this host, and has no field status.summary: {remedy}");
            assert_eq!(complaint(&ours, &found), Some(expected));
        }
        let (ours, found) = installed("ome", false);
        assert_eq!(complaint(&ours, &found), None, "another project's");
    }

    #[test]
    fn a_newer_crd_has_all_that_this_host_needs() {
        let (ours, found) = installed(crds::FIELD_MANAGER, true);
        let metadata = found.metadata.clone();
        assert_eq!(complaint(&found, &CustomResourceDefinition { metadata, ..ours }), None);
    }
}
