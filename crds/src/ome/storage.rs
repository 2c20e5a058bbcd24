//! The location of the files of a model, a weight, a dataset or a benchmark's results.

use k8s_openapi::api::core::v1::NodeAffinity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The rules for every `storageUri`, as pairs of CEL rule and message.
pub(super) const STORAGE_URI_RULES: &[(&str, &str)] = &[
    (
        "self.matches('^(oci|pvc|hf|s3|gs|az|https?|github|vendor|local)://.')",
        "storageUri must begin with oci://, pvc://, hf://, s3://, gs://, az://, http://, https://, github://, vendor:// or local://, followed by a location",
    ),
    (
        "!self.startsWith('oci://') || self.matches('^oci://(n/[^/]+/b/[^/]+/o/|(localhost|[^/]*[.:][^/]*)/.)')",
        "write a location in OCI Object Storage as oci://n/NAMESPACE/b/BUCKET/o/PATH, and an image as oci://REGISTRY/REPOSITORY:TAG, whose REGISTRY has a dot or a port",
    ),
    (
        "!self.startsWith('pvc://') || self.matches('^pvc://([^/:]+:)?[^/:]+/')",
        "write a location on a PersistentVolumeClaim as pvc://NAME/PATH, or pvc://NAMESPACE:NAME/PATH",
    ),
    (
        "!self.startsWith('hf://') || self.matches('^hf://[^/@][^@]*(@[^@]+)?$')",
        "write a Hugging Face repository as hf://ORG/MODEL, or hf://ORG/MODEL@REVISION",
    ),
];

/// The location of files, the access to it, and the nodes that may store a copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// The absolute path of the files on a node. Pods mount the model from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,

    /// The path, within the storage, of the model's schema or configuration file. It has no effect: config.json is found automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_path: Option<String>,

    /// Settings that override the storage's defaults, such as a region, an endpoint or an authentication method.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,

    /// The name of the Secret with the credentials for the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,

    /// The location of the files:
    /// oci://n/NAMESPACE/b/BUCKET/o/PATH (OCI Object Storage),
    /// oci://REGISTRY/REPOSITORY:TAG (an image or artifact),
    /// pvc://NAME/PATH or pvc://NAMESPACE:NAME/PATH (a PersistentVolumeClaim, by default in the namespace of the object),
    /// hf://ORG/MODEL or hf://ORG/MODEL@REVISION (Hugging Face),
    /// s3://, gs:// and az:// (object stores), http:// and https://, github:// (releases),
    /// vendor://VENDOR/TYPE/PATH, or local:// (already on the node).
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = crate::schema::rules(STORAGE_URI_RULES)))]
    pub storage_uri: String,

    /// Whether the model may share equal files on a node with other models of the namespace; ReuseIfExists by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download_policy: Option<DownloadPolicy>,

    /// Labels that a node must have to get a copy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub node_selector: BTreeMap<String, String>,

    /// Additional requirements for a node to get a copy. Preferred terms are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// The handling of equal files that are already on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DownloadPolicy {
    /// The model gets its own files.
    AlwaysDownload,
    /// Equal files of models of the namespace share one file on the disk.
    ReuseIfExists,
}
