//! PolicyPlugin: a Wasm component bound to policy points.

use crate::{
    RawObject,
    policy::{
        BYTES, DIGEST,
        selection::{MatchCondition, Selection},
    },
    schema::{DURATION, rules},
};
use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, Time},
    util::intstr::IntOrString,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const BUILTINS_COME_FIRST: (&str, &str) =
    ("self.order > 0 || has(self.source.builtin)", "order 0 is reserved for built-in plugins: set order to a number from 1 to 1000");

const ONE_SOURCE: (&str, &str) = (
    "[has(self.builtin), has(self.file), has(self.configMap)].filter(given, given).size() == 1",
    "source needs exactly one of builtin, file and configMap: keep one and remove the others",
);

const INSIDE_THE_DIRECTORY: (&str, &str) = (
    "!has(self.file) || (!self.file.path.startsWith('/') && !self.file.path.split('/').exists(part, part == '..'))",
    "source.file.path must lie inside the host's plugin directory: give it relative to that directory and without ..",
);

const LIMITS_ARE_GUARDED: (&str, &str) = (
    "self.type == 'Guarded' || (!has(self.maxChanged) && !has(self.maxRestarting) && !has(self.maxChoices))",
    "maxChanged, maxRestarting and maxChoices limit a Guarded update: set type to Guarded or remove them",
);

/// A PolicyPlugin binds a Wasm component to policy points.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "policy.pointsman.dev",
    version = "v1alpha1",
    kind = "PolicyPlugin",
    plural = "policyplugins",
    shortname = "pp",
    category = "pointsman",
    schema = "disabled",
    status = "PolicyPluginStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PolicyPlugin binds a Wasm component to the policy points that it answers.",
    printcolumn = r#"{"name":"Points","type":"string","jsonPath":".status.pointNames"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Order","type":"integer","jsonPath":".spec.order"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.active.version"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.conditions[?(@.type=='Active')].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Source","type":"string","jsonPath":".status.source","priority":1}"#,
    printcolumn = r#"{"name":"Digest","type":"string","jsonPath":".status.active.digest","priority":1}"#
)]
#[schemars(extend("x-kubernetes-validations" = rules(&[BUILTINS_COME_FIRST])))]
pub struct PolicyPluginSpec {
    /// The policy points at which the plugin is called; absent means all that the plugin supports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub points: Vec<PolicyPoint>,

    /// Where the component's bytes come from.
    pub source: PluginSource,

    /// How the plugin's answer combines with those of plugins before it.
    #[serde(default)]
    pub mode: PluginMode,

    /// The plugin's position: lower numbers are called first, and equal ones by name. Built-in plugins have 0.
    #[serde(default = "default_order")]
    #[schemars(range(min = 0, max = 1000))]
    pub order: i32,

    /// The weight of the plugin's scores among those of others at scheduling-scoring.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: i32,

    /// The subjects that the plugin is called for; absent means every subject.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,

    /// CEL expressions over the subject (`object`) and its namespace (`namespaceObject`) that must all be true for the plugin to be called
    /// for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub match_conditions: Vec<MatchCondition>,

    /// The plugin's configuration. It must match the plugin's JSON Schema. Server-side apply treats it as one value.
    // If it were merged by key, server-side apply of `{}` over an existing value would make it null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub config: Option<RawObject>,

    /// The limits of one call of the plugin; absent fields have the host's default. They can't exceed the host's maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<PluginLimits>,

    /// What happens to an instance of the plugin after a call at scheduling-scoring.
    #[serde(default)]
    pub instances: PluginInstances,

    /// Who answers if a call of the plugin fails. Existing objects stay unchanged in any case.
    #[serde(default)]
    pub failure_policy: PluginFailurePolicy,

    /// The only accepted digest of the component's bytes. To roll back, set the digest of a stored revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DIGEST))]
    pub digest: Option<String>,

    /// A signature over the component's bytes. The host may require one by a trusted key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<PluginSignature>,

    /// The number of the component's revisions that are retained in addition to those in use.
    #[serde(default = "default_revision_history_limit")]
    #[schemars(range(min = 0, max = 100))]
    pub revision_history_limit: i32,

    /// How an update of the plugin becomes active; absent means Guarded without restarts for a plugin at pod-templating or
    /// metadata-propagation, and Immediate for others, unless the host is configured otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpdateStrategy>,
}

impl Default for PolicyPluginSpec {
    fn default() -> Self {
        Self {
            points: Vec::new(),
            source: PluginSource::default(),
            mode: PluginMode::default(),
            order: default_order(),
            weight: default_weight(),
            selection: None,
            match_conditions: Vec::new(),
            config: None,
            limits: None,
            instances: PluginInstances::default(),
            failure_policy: PluginFailurePolicy::default(),
            digest: None,
            signature: None,
            revision_history_limit: default_revision_history_limit(),
            strategy: None,
        }
    }
}

fn default_order() -> i32 {
    100
}

fn default_weight() -> i32 {
    1
}

fn default_revision_history_limit() -> i32 {
    5
}

/// A question that the host asks plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyPoint {
    /// Which runtime serves a model.
    RuntimeSelection,
    /// The pod templates of a subject.
    PodTemplating,
    /// Which labels and annotations are copied to which objects.
    MetadataPropagation,
    /// How suitable each candidate (a node, a model, an endpoint) is.
    SchedulingScoring,
}

/// Where a component's bytes come from: exactly one of its fields is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[ONE_SOURCE, INSIDE_THE_DIRECTORY])))]
pub struct PluginSource {
    /// A built-in component of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub builtin: Option<BuiltinSource>,

    /// A file in the host's plugin directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<FileSource>,

    /// One or more ConfigMaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
}

/// A built-in component of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuiltinSource {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// A file in the host's plugin directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSource {
    /// The file's path, relative to the directory.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
}

/// ConfigMaps whose binaryData holds a component, uncompressed or compressed with gzip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// The namespace of the ConfigMaps; absent means the host's own. The host reads others only if it is configured to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,

    /// The ConfigMap that holds the component, or its first part.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The key that holds the bytes, in every part.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,

    /// The ConfigMaps that hold the second part and those after it, in order, if the component is too large for one. The parts are used
    /// only if all of them belong together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub parts: Vec<String>,
}

impl Default for ConfigMapSource {
    fn default() -> Self {
        Self { namespace: None, name: String::new(), key: default_key(), parts: Vec::new() }
    }
}

fn default_key() -> String {
    "plugin.wasm".to_owned()
}

/// How a plugin's answer combines with those of plugins before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PluginMode {
    /// Its answer is merged over theirs.
    #[default]
    Extend,
    /// Plugins before it aren't called.
    Replace,
}

/// The limits of one call of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginLimits {
    /// Memory in bytes, such as 64Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = BYTES))]
    pub memory: Option<String>,

    /// Steps of computation, counted alike on every machine. Calls at hot points have only the deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub fuel: Option<i64>,

    /// Time, as a Go duration such as 50ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("pattern" = DURATION))]
    pub deadline: Option<String>,

    /// The size of the answer in bytes, such as 1Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = BYTES))]
    pub output: Option<String>,
}

/// What happens to an instance after its call at a hot policy point. Elsewhere each call has its own instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PluginInstances {
    /// It is dropped, so that calls share no state.
    #[default]
    Fresh,
    /// It serves further calls, which is much faster, until it traps or has served a thousand.
    Warm,
}

/// Who answers instead of a failed plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PluginFailurePolicy {
    /// Nobody: the subject waits, and its status gives the reason.
    #[default]
    Fail,
    /// The built-in plugin.
    Default,
    /// The plugin's previous revision.
    Previous,
    /// The other plugins, as if this one didn't exist.
    Skip,
}

/// A signature over a component's bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginSignature {
    /// The name of the key in the host's configuration; absent means any trusted key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub key_name: Option<String>,

    /// The Ed25519 signature, in base64.
    #[schemars(regex(pattern = r"^[A-Za-z0-9+/]{86}==$"))]
    pub ed25519: String,
}

/// How an update becomes active.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[LIMITS_ARE_GUARDED])))]
pub struct UpdateStrategy {
    /// What an update waits for.
    #[serde(rename = "type")]
    pub type_: UpdateStrategyType,

    /// The maximum number of subjects that a Guarded update may change without approval, as a number or in percent of all subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(100|[0-9]{1,2})%$", "minimum" = 0))]
    pub max_changed: Option<IntOrString>,

    /// The maximum number of subjects whose pods a Guarded update may restart without approval, as a number or in percent of all subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(100|[0-9]{1,2})%$", "minimum" = 0))]
    pub max_restarting: Option<IntOrString>,

    /// The maximum number of subjects for which a Guarded update may change the next choice of runtime without approval, as a number or in
    /// percent of all subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(100|[0-9]{1,2})%$", "minimum" = 0))]
    pub max_choices: Option<IntOrString>,
}

/// What an update waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// The comparison: then it becomes active, regardless of its changes. If it makes planning fail for a subject that had a plan, it needs
    /// an approval.
    Immediate,
    /// The comparison: within `maxRestarting`, `maxChanged` and `maxChoices` it becomes active. Beyond them, or if it makes planning fail
    /// for a subject that had a plan, it needs an approval.
    #[default]
    Guarded,
    /// It is compared and never becomes active.
    Shadow,
}

/// The observed state of a PolicyPlugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPluginStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The state of the plugin. Known types: Ready, Loaded, Active, Quarantined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The policy points at which the plugin is called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub points: Vec<PolicyPoint>,

    /// The same as one text, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point_names: Option<String>,

    /// The kind of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,

    /// The active revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<PluginRevision>,

    /// The previously active revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<PluginRevision>,

    /// The candidate revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<PluginRevision>,

    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<PluginError>,

    /// The revisions whose calls failed while they were active, the latest last. A rollback skips them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["digest"]))]
    pub failed_revisions: Vec<FailedRevision>,
}

/// A revision whose calls have failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedRevision {
    /// The digest of the bytes.
    pub digest: String,

    /// One CamelCase word for the first failure.
    pub reason: String,

    /// When it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// One state of a plugin's bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginRevision {
    /// The digest of the bytes.
    pub digest: String,

    /// The version that the plugin reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// When the revision entered this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// An error of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginError {
    /// The error as one CamelCase word.
    pub reason: String,

    /// What happened, and how to fix it.
    pub message: String,

    /// When it first happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}
