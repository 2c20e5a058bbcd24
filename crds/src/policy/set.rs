//! PolicySet: everything that decides, frozen.

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

/// A PolicySet is everything that decides, frozen: it is to plugins and rules what a ReplicaSet is to a Deployment. Every field
/// is typed, and a configuration is kept as text, so that the API server sees any change and refuses it.
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
    /// The digest of the plugins and rules. It names the set: equal ones are one.
    #[schemars(extend("pattern" = DIGEST))]
    pub digest: String,

    /// The number by which people speak of the set: one more than that of the set made before it. It is no part of the digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub number: Option<i64>,

    /// The host that the set was made by.
    pub host: PolicySetHost,

    /// The plugins, built-in ones included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub plugins: Vec<PolicySetPlugin>,

    /// The rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub rules: Vec<PolicySetRule>,

    /// With which set, and by whom, each plugin and rule came to be as it is. It is no part of the digest.
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

    /// The number of the set that brought it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub set: Option<i64>,

    /// The field manager that last wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub by: Option<String>,
}

/// The host that a set was made by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetHost {
    /// Its version.
    #[schemars(length(min = 1, max = 128))]
    pub version: String,

    /// The digest of the built-in plugins that it brings.
    #[schemars(extend("pattern" = DIGEST))]
    pub builtins: String,
}

/// A plugin as it was when the set was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetPlugin {
    /// The name of the PolicyPlugin.
    #[schemars(length(max = 253), extend("pattern" = SUBDOMAIN))]
    pub name: String,

    /// The digest of the bytes, by which the revision that keeps them is found.
    #[schemars(extend("pattern" = DIGEST))]
    pub digest: String,

    /// The version that the plugin describes itself with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub version: Option<String>,

    /// The policy points at which it is asked.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub points: Vec<PolicyPoint>,

    /// How its answer stands to those of plugins before it.
    pub mode: PluginMode,

    /// Where it stands in line.
    #[schemars(range(min = 0, max = 1000))]
    pub order: i32,

    /// How much its scores count.
    #[schemars(range(min = 0, max = 1000))]
    pub weight: i32,

    /// The subjects that it is asked about.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,

    /// CEL expressions that must all be true for it to be asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub match_conditions: Vec<MatchCondition>,

    /// Its configuration, as JSON text with sorted keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub config: Option<String>,

    /// What one call may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<PluginLimits>,

    /// What becomes of an instance after a call at scheduling-scoring.
    #[serde(default)]
    pub instances: PluginInstances,

    /// Who answers in its place when a call fails.
    pub failure_policy: PluginFailurePolicy,
}

/// A rule as it was when the set was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetRule {
    /// The name of the ValidationRule.
    #[schemars(length(max = 253), extend("pattern" = SUBDOMAIN))]
    pub name: String,

    /// The digest of its spec and of its parameters.
    #[schemars(extend("pattern" = DIGEST))]
    pub digest: String,

    /// Its spec, without what says how changes of it get active.
    pub spec: ValidationRuleSpec,

    /// The data of the ConfigMap that is `params`; absent where the rule names none, or there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<BTreeMap<String, String>>,
}

/// What is observed of a PolicySet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Where the set stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<PolicySetPhase>,

    /// The digest of the set that it was compared with: the one that was active when it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,

    /// What the set changed against the former one, in a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// What the set changed against the former one and who changed it, a change a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub changes: Vec<String>,

    /// What the set changes, or changed, on the live subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blast_radius: Option<BlastRadius>,

    /// What the set waits for, or why it was abandoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The name of the set that stands in its place, where it was abandoned for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub replaced_by: Option<String>,

    /// When the set got active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promoted_at: Option<Time>,

    /// Each time that the set became active, the newest last, with what was reported of it then. What is found out of the set later is not noted here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub activations: Vec<PolicySetActivation>,

    /// The state of the set. Known types: Shadowed, Approved, Promoted, RolledOut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One time that a policy set became active.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetActivation {
    /// When that was.
    pub at: Time,

    /// The digest of the set that it replaced, or was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,

    /// What it changed against that, in a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// What it changed on the live subjects, without examples. Absent until that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blast_radius: Option<BlastRadius>,
}

/// Where a policy set stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicySetPhase {
    /// It is to decide next, if all goes well.
    #[default]
    Candidate,
    /// It decides.
    Active,
    /// It decided before the active one.
    Previous,
    /// It never decided: a newer one took its place, or it failed.
    Abandoned,
}

/// What a policy set changes on the live subjects. A subject counts once, for the heaviest of its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlastRadius {
    /// How many subjects the set applies to.
    #[serde(default)]
    pub subjects: i64,

    /// How many of them were evaluated so far.
    #[serde(default)]
    pub evaluated: i64,

    /// How many subjects' pods restart.
    #[serde(default)]
    pub restarts: i64,

    /// How many subjects' objects change otherwise.
    #[serde(default)]
    pub objects: i64,

    /// How many subjects' metadata alone changes.
    #[serde(default)]
    pub metadata: i64,

    /// For how many subjects no plan can be made.
    #[serde(default)]
    pub failed: i64,

    /// How many subjects would choose another runtime when next asked, whatever else changes for them.
    #[serde(default)]
    pub choices: i64,

    /// What becomes of recorded questions at scheduling-scoring, where the set changes who answers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<ReplayedScores>,

    /// The first of the subjects that change, heaviest changes first, each with what changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub examples: Vec<String>,
}

/// What a policy set makes of questions at scheduling-scoring that were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayedScores {
    /// How many were put again.
    #[serde(default)]
    pub questions: i64,

    /// At how many another candidate is the best.
    #[serde(default)]
    pub best: i64,

    /// At how many the best one stays, with other scores.
    #[serde(default)]
    pub scores: i64,

    /// How many have no answer any more.
    #[serde(default)]
    pub failed: i64,
}
