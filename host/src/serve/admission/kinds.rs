//! The kinds that admission knows: all that we serve, also those that no plan reads.

use crate::world::resource::Resource;

/// The API groups of what we serve.
const GROUPS: [&str; 5] = ["ome.io", "serving.kserve.io", "inference.eh-ops.io", "inference.networking.x-k8s.io", "policy.pointsman.dev"];

/// What brings our kinds into a cluster.
const CRDS: Option<&str> = Some("`pointsman crds install`");

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Resource {
    Resource { group, version, kind, plural, namespaced, neighbour: CRDS }
}

/// What says what must hold.
pub static VALIDATION_RULE: Resource = kind("policy.pointsman.dev", "v1alpha1", "ValidationRule", "validationrules", false);

/// What decides, frozen.
pub static POLICY_SET: Resource = kind("policy.pointsman.dev", "v1alpha1", "PolicySet", "policysets", false);

static POLICY_PLUGIN: Resource = kind("policy.pointsman.dev", "v1alpha1", "PolicyPlugin", "policyplugins", false);
static BENCHMARK_JOB: Resource = kind("ome.io", "v1beta1", "BenchmarkJob", "benchmarkjobs", true);
static TRAINING_JOB: Resource = kind("ome.io", "v1beta1", "TrainingJob", "trainingjobs", true);
static INFERENCE_MODEL: Resource = kind("inference.eh-ops.io", "v1alpha1", "InferenceModel", "inferencemodels", true);
static INFERENCE_OBJECTIVE: Resource = kind("inference.networking.x-k8s.io", "v1alpha2", "InferenceObjective", "inferenceobjectives", true);

/// Those that the world doesn't hold.
static OTHERS: [&Resource; 7] =
    [&VALIDATION_RULE, &POLICY_SET, &POLICY_PLUGIN, &BENCHMARK_JOB, &TRAINING_JOB, &INFERENCE_MODEL, &INFERENCE_OBJECTIVE];

/// The kind of ours that an object says it is of.
pub fn of(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let known = Resource::of(api_version, kind).filter(|resource| GROUPS.contains(&resource.group));
    known.or_else(|| OTHERS.into_iter().find(|other| other.kind == kind && other.api_version() == api_version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::KINDS;

    #[test]
    fn every_kind_that_we_serve_is_known_as_its_crd_names_it() {
        for served in KINDS {
            let (ours, crd) = ((served.resource)(), (served.crd)());
            let known = of(&ours.api_version, &ours.kind).unwrap();
            assert_eq!(known.api_resource(), ours);
            assert_eq!(known.namespaced, crd.spec.scope == "Namespaced", "{}", ours.kind);
        }
    }

    #[test]
    fn kinds_of_others_and_other_versions_are_not_ours() {
        assert_eq!(of("v1", "Pod"), None);
        assert_eq!(of("apps/v1", "Deployment"), None);
        assert_eq!(of("ome.io/v1", "InferenceService"), None);
    }
}
