//! Where the files of a model, a weight, a dataset or a benchmark's results are.

use k8s_openapi::api::core::v1::NodeAffinity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What every `storageUri` must look like, as pairs of CEL rule and message.
pub(super) const STORAGE_URI_RULES: &[(&str, &str)] = &[
    (
        "self.matches('^(oci|pvc|hf|s3|gs|az|https?|github|vendor|local)://.')",
        "storageUri must begin with oci://, pvc://, hf://, s3://, gs://, az://, http://, https://, github://, vendor:// or local://, and name a place after it",
    ),
    (
        "!self.startsWith('oci://') || self.matches('^oci://(n/[^/]+/b/[^/]+/o/|(localhost|[^/]*[.:][^/]*)/.)')",
        "write a place in OCI Object Storage as oci://n/NAMESPACE/b/BUCKET/o/PATH, and an image as oci://REGISTRY/REPOSITORY:TAG, whose REGISTRY has a dot or a port",
    ),
    (
        "!self.startsWith('pvc://') || self.matches('^pvc://([^/:]+:)?[^/:]+/')",
        "write a place on a PersistentVolumeClaim as pvc://NAME/PATH, or pvc://NAMESPACE:NAME/PATH",
    ),
    (
        "!self.startsWith('hf://') || self.matches('^hf://[^/@][^@]*(@[^@]+)?$')",
        "write a Hugging Face repository as hf://ORG/MODEL, or hf://ORG/MODEL@REVISION",
    ),
];

/// A place that holds files, how to get at it, and which nodes may keep a copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// The absolute path on a node under which the files are kept. Pods find the model there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// The path, within the storage, of the model's schema or configuration file; with it a model can be checked or its
    /// loading adjusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_path: Option<String>,

    /// Settings that replace the storage's defaults, such as a region, an endpoint or a kind of authentication.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,

    /// The key, in a Secret, of the credentials that open the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,

    /// Where the files come from:
    /// oci://n/NAMESPACE/b/BUCKET/o/PATH (OCI Object Storage),
    /// oci://REGISTRY/REPOSITORY:TAG (an image or artifact),
    /// pvc://NAME/PATH or pvc://NAMESPACE:NAME/PATH (a PersistentVolumeClaim; without a namespace that of the object),
    /// hf://ORG/MODEL or hf://ORG/MODEL@REVISION (Hugging Face),
    /// s3://, gs:// and az:// (object stores), http:// and https://, github:// (releases),
    /// vendor://VENDOR/TYPE/PATH, or local:// (already on the node).
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = crate::schema::rules(STORAGE_URI_RULES)))]
    pub storage_uri: String,

    /// Whether equal files that another model of the namespace has on a node may be used for this one, too. If absent, they may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_policy: Option<DownloadPolicy>,

    /// Labels that a node must have to get a copy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub node_selector: BTreeMap<String, String>,

    /// What else a node must have to get a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// What becomes of files that are on a node already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DownloadPolicy {
    /// The model gets files of its own.
    AlwaysDownload,
    /// Equal files of the namespace's models are one file on the disk.
    ReuseIfExists,
}
