//! The kinds of objects that we read and write, by name.

use kube::core::ApiResource;

/// A kind of object in the API.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// Its group; empty for core kinds.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its plural name in URLs.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The project that installs it in a cluster; none for Kubernetes' own kinds.
    pub neighbour: Option<&'static str>,
}

impl Resource {
    /// The `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The resource for kube.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// The displayed name. Two kinds are named Service.
    pub fn display_name(&self) -> &'static str {
        if *self == KNATIVE_SERVICE { "Knative Service" } else { self.kind }
    }

    /// The name of its CustomResourceDefinition, which kubectl accepts for any kind.
    pub fn crd_name(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// How our kinds are installed in a cluster.
const OURS: Option<&str> = Some("`pointsman crds install`");

macro_rules! resources {
    ($(#[$doc:meta])* $list:ident; $($name:ident: $group:literal $version:literal $kind:literal $plural:literal $namespaced:literal $neighbour:expr;)*) => {
        $(
            #[allow(missing_docs)] // The names are self-explanatory.
            pub static $name: Resource = Resource {
                group: $group, version: $version, kind: $kind, plural: $plural, namespaced: $namespaced, neighbour: $neighbour,
            };
        )*

        $(#[$doc])*
        pub static $list: &[&Resource] = &[$(&$name),*];
    };
}

/// The kinds of which some objects may be ours, and others only named by a subject.
pub static REFERENCED_KINDS: [&Resource; 3] = [&GATEWAY, &HTTP_ROUTE, &INFERENCE_POOL];

resources! {
    /// The kinds that plans read or write, in addition to the subjects.
    OF_PLANS;
    NAMESPACE: "" "v1" "Namespace" "namespaces" false None;
    POD: "" "v1" "Pod" "pods" true None;
    SERVICE: "" "v1" "Service" "services" true None;
    SERVICE_ACCOUNT: "" "v1" "ServiceAccount" "serviceaccounts" true None;
    PERSISTENT_VOLUME_CLAIM: "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" true None;
    DEPLOYMENT: "apps" "v1" "Deployment" "deployments" true None;
    HORIZONTAL_POD_AUTOSCALER: "autoscaling" "v2" "HorizontalPodAutoscaler" "horizontalpodautoscalers" true None;
    POD_DISRUPTION_BUDGET: "policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets" true None;
    JOB: "batch" "v1" "Job" "jobs" true None;
    NETWORK_POLICY: "networking.k8s.io" "v1" "NetworkPolicy" "networkpolicies" true None;
    ROLE: "rbac.authorization.k8s.io" "v1" "Role" "roles" true None;
    ROLE_BINDING: "rbac.authorization.k8s.io" "v1" "RoleBinding" "rolebindings" true None;
    LEADER_WORKER_SET: "leaderworkerset.x-k8s.io" "v1" "LeaderWorkerSet" "leaderworkersets" true Some("LeaderWorkerSet");
    KNATIVE_SERVICE: "serving.knative.dev" "v1" "Service" "services" true Some("Knative Serving");
    RAY_CLUSTER: "ray.io" "v1" "RayCluster" "rayclusters" true Some("KubeRay");
    SCALED_OBJECT: "keda.sh" "v1alpha1" "ScaledObject" "scaledobjects" true Some("KEDA");
    HTTP_ROUTE: "gateway.networking.k8s.io" "v1" "HTTPRoute" "httproutes" true Some("the Gateway API");
    REFERENCE_GRANT: "gateway.networking.k8s.io" "v1beta1" "ReferenceGrant" "referencegrants" true Some("the Gateway API");
    GATEWAY: "gateway.networking.k8s.io" "v1" "Gateway" "gateways" true Some("the Gateway API");
    INFERENCE_POOL: "inference.networking.k8s.io" "v1" "InferencePool" "inferencepools" true Some("the Gateway API Inference Extension");
    INFERENCE_OBJECTIVE: "inference.networking.x-k8s.io" "v1alpha2" "InferenceObjective" "inferenceobjectives" true OURS;
    LLM_D_INFERENCE_OBJECTIVE: "llm-d.ai" "v1alpha2" "InferenceObjective" "inferenceobjectives" true Some("llm-d");
    LLM_CONFIG: "serving.kserve.io" "v1alpha1" "LLMInferenceServiceConfig" "llminferenceserviceconfigs" true OURS;
    SERVING_RUNTIME: "ome.io" "v1beta1" "ServingRuntime" "servingruntimes" true OURS;
    CLUSTER_SERVING_RUNTIME: "ome.io" "v1beta1" "ClusterServingRuntime" "clusterservingruntimes" false OURS;
    BASE_MODEL: "ome.io" "v1beta1" "BaseModel" "basemodels" true OURS;
    CLUSTER_BASE_MODEL: "ome.io" "v1beta1" "ClusterBaseModel" "clusterbasemodels" false OURS;
    FINE_TUNED_WEIGHT: "ome.io" "v1beta1" "FineTunedWeight" "finetunedweights" false OURS;
}

resources! {
    /// The kinds that users write and we serve. `subject_kind` determines which of them are subjects.
    SERVED;
    INFERENCE_SERVICE: "ome.io" "v1beta1" "InferenceService" "inferenceservices" true OURS;
    BENCHMARK_JOB: "ome.io" "v1beta1" "BenchmarkJob" "benchmarkjobs" true OURS;
    TRAINING_JOB: "ome.io" "v1beta1" "TrainingJob" "trainingjobs" true OURS;
    LLM_INFERENCE_SERVICE: "serving.kserve.io" "v1alpha1" "LLMInferenceService" "llminferenceservices" true OURS;
    INFERENCE_MODEL: "inference.eh-ops.io" "v1alpha1" "InferenceModel" "inferencemodels" true OURS;
    POLICY_PLUGIN: "policy.pointsman.dev" "v1alpha1" "PolicyPlugin" "policyplugins" false OURS;
    POLICY_SET: "policy.pointsman.dev" "v1alpha1" "PolicySet" "policysets" false OURS;
    VALIDATION_RULE: "policy.pointsman.dev" "v1alpha1" "ValidationRule" "validationrules" false OURS;
}

resources! {
    /// The other kinds that endpoint pickers read.
    PICKER_KINDS;
    X_INFERENCE_POOL: "inference.networking.x-k8s.io" "v1alpha2" "InferencePool" "inferencepools" true Some("the Gateway API Inference Extension");
    INFERENCE_MODEL_REWRITE: "inference.networking.x-k8s.io" "v1alpha2" "InferenceModelRewrite" "inferencemodelrewrites" true Some("the Gateway API Inference Extension");
    LLM_D_INFERENCE_MODEL_REWRITE: "llm-d.ai" "v1alpha2" "InferenceModelRewrite" "inferencemodelrewrites" true Some("llm-d");
}

/// The kinds that refer to a pool whose endpoint picker uses them.
pub static POOL_USERS: [&Resource; 4] =
    [&INFERENCE_OBJECTIVE, &LLM_D_INFERENCE_OBJECTIVE, &INFERENCE_MODEL_REWRITE, &LLM_D_INFERENCE_MODEL_REWRITE];

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_crds::KINDS;

    #[test]
    fn our_own_kinds_are_named_as_their_crds_name_them() {
        for resource in OF_PLANS.iter().chain(SERVED).filter(|resource| resource.neighbour == OURS) {
            let crd = KINDS.iter().map(|kind| (kind.resource)()).find(|ours| ours.kind == resource.kind).unwrap();
            assert_eq!(crd, resource.api_resource());
        }
    }
}
