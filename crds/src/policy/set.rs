//! PolicySet: an immutable snapshot of all plugins and rules.

use crate::{
    policy::{
        DIGEST, SUBDOMAIN,
        plugin::{PluginFailurePolicy, PluginInstances, PluginLimits, PluginMode, PolicyPoint},
        rule::ValidationRuleSpec,
        selection::{MatchCondition, Selection},
    },
    schema::rules,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const FROZEN: (&str, &str) =
    ("self == oldSelf", "a PolicySet never changes: change the PolicyPlugin or ValidationRule, and a new set is made of it");

/// A PolicySet is an immutable snapshot of all plugins and rules: it is to them what a ReplicaSet is to a Deployment. Every field is typed,
/// and a configuration is stored as text, so that the API server rejects any change.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "policy.pointsman.dev",
    version = "v1alpha1",
    kind = "PolicySet",
    plural = "policysets",
    shortname = "pset",
    category = "pointsman",
    schema = "disabled",
    status = "PolicySetStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PolicySet is everything that decides, frozen: it is to plugins and rules what a ReplicaSet is to a Deployment.",
    printcolumn = r#"{"name":"Number","type":"integer","jsonPath":".spec.number"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Change","type":"string","jsonPath":".status.summary"}"#,
    printcolumn = r#"{"name":"Restarts","type":"integer","jsonPath":".status.blastRadius.restarts"}"#,
    printcolumn = r#"{"name":"Objects","type":"integer","jsonPath":".status.blastRadius.objects"}"#,
    printcolumn = r#"{"name":"Metadata","type":"integer","jsonPath":".status.blastRadius.metadata"}"#,
    printcolumn = r#"{"name":"Failed","type":"integer","jsonPath":".status.blastRadius.failed"}"#,
    printcolumn = r#"{"name":"Choices","type":"integer","jsonPath":".status.blastRadius.choices"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message","priority":1}"#
)]
#[schemars(extend("x-kubernetes-validations" = rules(&[FROZEN])))]
pub struct PolicySetSpec {
    /// The digest of the plugins and rules. It identifies the set.
    #[schemars(extend("pattern" = DIGEST))]
    pub digest: String,

    /// The number of the set, for display: one more than that of the set created before it. It is not part of the digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub number: Option<i64>,

    /// The host that created the set.
    pub host: PolicySetHost,

    /// The plugins, including built-in ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub plugins: Vec<PolicySetPlugin>,

    /// The rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub rules: Vec<PolicySetRule>,

    /// Which set and which field manager last changed each plugin and rule. It is not part of the digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind", "name"]))]
    pub origins: Vec<PolicySetOrigin>,
}

/// Where a plugin or rule of a set comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetOrigin {
    /// PolicyPlugin or ValidationRule.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// The name of the PolicyPlugin or ValidationRule.
    #[schemars(length(max = 253), extend("pattern" = SUBDOMAIN))]
    pub name: String,

    /// The number of the set that last changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub set: Option<i64>,

    /// The field manager that last wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub by: Option<String>,
}

/// The host that created a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetHost {
    /// Its version.
    #[schemars(length(min = 1, max = 128))]
    pub version: String,

    /// The digest of its built-in plugins.
    #[schemars(extend("pattern" = DIGEST))]
    pub builtins: String,
}

/// A plugin as it was when the set was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetPlugin {
    /// The name of the PolicyPlugin.
    #[schemars(length(max = 253), extend("pattern" = SUBDOMAIN))]
    pub name: String,

    /// The digest of the bytes, which identifies their revision.
    #[schemars(extend("pattern" = DIGEST))]
    pub digest: String,

    /// The version that the plugin reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub version: Option<String>,

    /// The policy points at which it is called.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub points: Vec<PolicyPoint>,

    /// How its answer combines with those of plugins before it.
    pub mode: PluginMode,

    /// Its position.
    #[schemars(range(min = 0, max = 1000))]
    pub order: i32,

    /// The weight of its scores.
    #[schemars(range(min = 0, max = 1000))]
    pub weight: i32,

    /// The subjects that it is called for.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,

    /// CEL expressions that must all be true for it to be called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub match_conditions: Vec<MatchCondition>,

    /// Its configuration, as JSON text with sorted keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub config: Option<String>,

    /// The limits of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<PluginLimits>,

    /// What happens to an instance after a call at scheduling-scoring.
    #[serde(default)]
    pub instances: PluginInstances,

    /// Who answers if a call fails.
    pub failure_policy: PluginFailurePolicy,
}

/// A rule as it was when the set was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetRule {
    /// The name of the ValidationRule.
    #[schemars(length(max = 253), extend("pattern" = SUBDOMAIN))]
    pub name: String,

    /// The digest of its spec and of its parameters.
    #[schemars(extend("pattern" = DIGEST))]
    pub digest: String,

    /// Its spec, without its strategy.
    pub spec: ValidationRuleSpec,

    /// The data of the ConfigMap that is `params`; absent if the rule specifies none, or if it doesn't exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<BTreeMap<String, String>>,
}

/// The observed state of a PolicySet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The phase of the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<PolicySetPhase>,

    /// The digest of the set that it was compared with: the one that was active when it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,

    /// The changes from the previous set, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// The changes from the previous set and the field managers that made them, one change per line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub changes: Vec<String>,

    /// The effect of the set on the live subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blast_radius: Option<BlastRadius>,

    /// What the set waits for, or why it was abandoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The name of the set that replaced it, if it was abandoned for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub replaced_by: Option<String>,

    /// When the phase last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_since: Option<Time>,

    /// When the set became active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promoted_at: Option<Time>,

    /// Each time that the set became active, the newest last, with its report at that time. Later findings are not added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub activations: Vec<PolicySetActivation>,

    /// The state of the set. Known types: Shadowed, Approved, Promoted, RolledOut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One activation of a policy set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetActivation {
    /// When the set became active.
    pub at: Time,

    /// The digest of the set that it replaced, or was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,

    /// The changes from that set, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// The effect on the live subjects, without examples. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blast_radius: Option<BlastRadius>,
}

/// The phase of a policy set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicySetPhase {
    /// It may become active.
    #[default]
    Candidate,
    /// It is active.
    Active,
    /// It was active before the active one.
    Previous,
    /// It was never active: a newer one replaced it, or it failed.
    Abandoned,
}

/// The effect of a policy set on the live subjects. A subject counts once, for its most disruptive change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlastRadius {
    /// The number of subjects that the set applies to.
    #[serde(default)]
    pub subjects: i64,

    /// The number of subjects that have been evaluated so far.
    #[serde(default)]
    pub evaluated: i64,

    /// The number of subjects whose pods restart.
    #[serde(default)]
    pub restarts: i64,

    /// The number of subjects whose objects change without a restart.
    #[serde(default)]
    pub objects: i64,

    /// The number of subjects of which only metadata changes.
    #[serde(default)]
    pub metadata: i64,

    /// The number of subjects for which planning fails.
    #[serde(default)]
    pub failed: i64,

    /// The number of subjects that would get another runtime at the next choice, regardless of other changes.
    #[serde(default)]
    pub choices: i64,

    /// The results of recorded scheduling-scoring questions, if the set changes who answers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<ReplayedScores>,

    /// The first subjects that change, the most disruptive changes first, each with its changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub examples: Vec<String>,
}

/// The results of a policy set on recorded scheduling-scoring questions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayedScores {
    /// The number of questions that were asked again.
    #[serde(default)]
    pub questions: i64,

    /// The number of questions with another best candidate.
    #[serde(default)]
    pub best: i64,

    /// The number of questions with the same best candidate, but other scores.
    #[serde(default)]
    pub scores: i64,

    /// The number of questions that no longer have an answer.
    #[serde(default)]
    pub failed: i64,
}
