//! The kinds that admission handles: all that this project serves, even those that no plan reads.

use pointsman_core::{
    resource::{POLICY_SET, Resource, SERVED, VALIDATION_RULE},
    world::subject::CONTROL,
};
use pointsman_crds::KINDS;
use serde_json::Value;
use std::{collections::BTreeSet, sync::LazyLock};

/// Whether this project serves kinds of an API group.
fn is_served(group: &str) -> bool {
    static GROUPS: LazyLock<BTreeSet<String>> = LazyLock::new(|| KINDS.iter().map(|served| (served.resource)().group).collect());
    GROUPS.contains(group)
}

/// The served kind of an object.
pub fn find(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let known = Resource::find(api_version, kind).filter(|resource| is_served(resource.group));
    known.or_else(|| SERVED.iter().copied().find(|served| served.kind == kind && served.api_version() == api_version))
}

/// Whether rules apply to objects of a kind. Rules and policy sets stay changeable, because otherwise a wrong rule could never be removed.
pub fn is_judged(resource: &Resource) -> bool {
    ![&VALIDATION_RULE, &POLICY_SET].contains(&resource)
}

/// Whether an object is a subject whose annotation excludes it: no rule applies to it.
pub fn is_left_alone(resource: &Resource, object: &Value) -> bool {
    resource.is_subject() && object["metadata"]["annotations"][CONTROL] == "false"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_we_serve_is_known_as_its_crd_names_it() {
        for served in KINDS {
            let (ours, crd) = ((served.resource)(), (served.crd)());
            let known = find(&ours.api_version, &ours.kind).unwrap();
            assert_eq!(known.api_resource(), ours);
            assert_eq!(known.namespaced, crd.spec.scope == "Namespaced", "{}", ours.kind);
        }
    }

    #[test]
    fn rules_are_asked_about_all_kinds_but_those_that_say_what_must_hold() {
        let resources = KINDS.iter().map(|served| (served.resource)());
        let others = resources.filter(|ours| !is_judged(find(&ours.api_version, &ours.kind).unwrap()));
        let mut others: Vec<String> = others.map(|ours| ours.kind).collect();
        others.sort();
        assert_eq!(others, ["PolicySet", "ValidationRule"]);
    }

    #[test]
    fn only_a_service_can_say_that_it_is_to_be_left_alone() {
        let said = |word: &str| serde_json::json!({"metadata": {"annotations": {CONTROL: word}}});
        let service = find("ome.io/v1beta1", "InferenceService").unwrap();
        assert!(is_left_alone(service, &said("false")) && !is_left_alone(service, &said("true")));
        assert!(!is_left_alone(find("ome.io/v1beta1", "BaseModel").unwrap(), &said("false")));
    }

    #[test]
    fn kinds_of_others_and_other_versions_are_not_ours() {
        assert_eq!(find("v1", "Pod"), None);
        assert_eq!(find("apps/v1", "Deployment"), None);
        assert_eq!(find("ome.io/v1", "InferenceService"), None);
    }
}
