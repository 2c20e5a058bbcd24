//! ValidationRule: CEL expressions that must be true.

use crate::{
    policy::{
        EXPRESSION, LABEL, SUBDOMAIN,
        plugin::UpdateStrategy,
        selection::{KindReference, MatchCondition, Selection},
    },
    schema::rules,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const DENY_OR_WARN: (&str, &str) = (
    "!(self.exists(action, action == 'Deny') && self.exists(action, action == 'Warn'))",
    "actions can't hold both Deny and Warn, for a denial says all that a warning would: remove one of them",
);

const LOOKED_UP: (&str, &str) = (
    "self.stage != 'Output' || !has(self.lookups) || size(self.lookups) == 0",
    "lookups are for rules of stage Input: remove them, or set stage to Input",
);

const ONE_LOOKUP: (&str, &str) = (
    "[has(self.models), has(self.runtimes), has(self.subjects)].filter(given, given).size() == 1",
    "a lookup needs exactly one of models, runtimes and subjects: keep one and remove the others",
);

/// A ValidationRule is a set of CEL expressions that must be true of what users write, or of the objects that policies plan.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "policy.pointsman.dev",
    version = "v1alpha1",
    kind = "ValidationRule",
    plural = "validationrules",
    shortname = "vrule",
    category = "pointsman",
    schema = "disabled",
    status = "ValidationRuleStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "ValidationRule is a set of CEL expressions that must hold on what users write, or on the objects that policies plan.",
    printcolumn = r#"{"name":"Stage","type":"string","jsonPath":".spec.stage"}"#,
    printcolumn = r#"{"name":"Actions","type":"string","jsonPath":".status.actionNames"}"#,
    printcolumn = r#"{"name":"Enabled","type":"boolean","jsonPath":".spec.enabled"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Active","type":"string","jsonPath":".status.conditions[?(@.type=='Active')].status"}"#,
    printcolumn = r#"{"name":"Rejected","type":"integer","jsonPath":".status.counts.rejected"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[schemars(extend("x-kubernetes-validations" = rules(&[LOOKED_UP])))]
pub struct ValidationRuleSpec {
    /// Whether the rule is enabled.
    #[serde(default = "yes")]
    pub enabled: bool,

    /// The objects that the rule checks: those that users write, or those that policies plan.
    #[serde(default)]
    pub stage: RuleStage,

    /// The objects that the rule checks; absent means all of them.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub selection: Option<RuleSelection>,

    /// CEL expressions that must all be true for the rule to apply to an object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub match_conditions: Vec<MatchCondition>,

    /// The lookups in the cluster, as `lookups.NAME`. A lookup runs if the rule's conditions are true, and only at stage Input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub lookups: Vec<RuleLookup>,

    /// Values that the validations share, as `variables.NAME`. A variable may use those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub variables: Vec<Variable>,

    /// The expressions that must be true. Stage Input provides `object`, `oldObject`, `namespaceObject`, `params`, `request` and `lookups`;
    /// stage Output provides the planned `object`, its `subject`, `layers` (the sources of each field), `added` (the fields that only a
    /// plugin requested), `namespaceObject` and `params`.
    #[schemars(length(min = 1, max = 64))]
    pub validations: Vec<Validation>,

    /// What happens when a validation is false.
    #[serde(default = "default_actions")]
    #[schemars(
        length(min = 1, max = 3),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules(&[DENY_OR_WARN]))
    )]
    pub actions: Vec<RuleAction>,

    /// What happens if an expression can't be evaluated.
    #[serde(default)]
    pub failure_policy: RuleFailurePolicy,

    /// A ConfigMap, as `params`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<RuleParams>,

    /// How a change of the rule becomes active. Absent means Guarded: it needs an approval if a live subject newly violates the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpdateStrategy>,
}

impl Default for ValidationRuleSpec {
    fn default() -> Self {
        Self {
            enabled: true,
            stage: RuleStage::default(),
            selection: None,
            match_conditions: Vec::new(),
            lookups: Vec::new(),
            variables: Vec::new(),
            validations: Vec::new(),
            actions: default_actions(),
            failure_policy: RuleFailurePolicy::default(),
            params: None,
            strategy: None,
        }
    }
}

fn yes() -> bool {
    true
}

fn default_actions() -> Vec<RuleAction> {
    vec![RuleAction::Deny]
}

fn default_operations() -> Vec<Operation> {
    vec![Operation::Create, Operation::Update]
}

/// The objects that a rule checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuleStage {
    /// What users write: the subjects, and the other kinds that Pointsman serves.
    #[default]
    Input,
    /// What policies plan: every object of a plan, before it is applied.
    Output,
}

/// Which objects, and which operations on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleSelection {
    /// The objects: at stage Input those that Pointsman serves, at stage Output those of a plan.
    #[serde(flatten)]
    pub objects: Selection,

    /// The operations at admission. The controller evaluates every rule for CREATE or UPDATE.
    #[serde(default = "default_operations")]
    #[schemars(length(min = 1, max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub operations: Vec<Operation>,
}

impl Default for RuleSelection {
    fn default() -> Self {
        Self { objects: Selection::default(), operations: default_operations() }
    }
}

/// An operation at admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
}

/// A query of other objects in the cluster. Its result depends only on existing objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[ONE_LOOKUP])))]
pub struct RuleLookup {
    /// Its name, a CEL identifier.
    #[schemars(length(max = 63), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,

    /// The models with a name, as a list: the cluster-scoped one, then the one of the object's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelsLookup>,

    /// Runtimes that a service of the object's namespace could use, as a list: the cluster-scoped ones, then those of the namespace. The
    /// object itself isn't among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtimes: Option<RuntimesLookup>,

    /// A sum over the services that are older than the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subjects: Option<SubjectsLookup>,
}

/// The models with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelsLookup {
    /// A CEL expression over `object`, `namespaceObject` and `params` that returns the name.
    #[schemars(length(min = 1, max = EXPRESSION))]
    pub name: String,
}

/// Runtimes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimesLookup {
    /// A CEL expression over `object`, `namespaceObject` and `params` that returns their name; absent means all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = EXPRESSION))]
    pub name: Option<String>,
}

/// A sum over services. An object that is being created is newer than all others. Of those with the same creation time, the first by kind
/// and name is the oldest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectsLookup {
    /// The kinds of services to sum; absent means those that the rule checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["group", "kind"]))]
    pub kinds: Vec<KindReference>,

    /// The scope of the services to sum.
    #[serde(default)]
    pub within: LookupScope,

    /// A CEL expression over `object`, which is one of those services, and `params`. It returns the number to add.
    #[schemars(length(min = 1, max = EXPRESSION))]
    pub sum: String,
}

/// The scope of a lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LookupScope {
    /// In the object's namespace.
    #[default]
    Namespace,
    /// Everywhere.
    Cluster,
}

/// A value with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Its name, a CEL identifier.
    #[schemars(length(max = 63), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,

    /// The CEL expression that returns the value.
    #[schemars(length(min = 1, max = EXPRESSION))]
    pub expression: String,
}

/// A condition that must be true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// The CEL expression that must be true.
    #[schemars(length(min = 1, max = EXPRESSION))]
    pub expression: String,

    /// The message if it is false; absent means the expression itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,

    /// A CEL expression that returns the message. If it fails, `message` is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = EXPRESSION))]
    pub message_expression: Option<String>,

    /// The reason of a denial for API clients; Invalid if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<DenialReason>,
}

/// The reason of a denial for API clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DenialReason {
    /// The object is invalid (422).
    #[default]
    Invalid,
    /// The user has no permission (403).
    Forbidden,
    /// The user is unknown (401).
    Unauthorized,
    /// The object is too large (413).
    RequestEntityTooLarge,
}

/// What happens when a validation is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuleAction {
    /// Admission rejects the object; existing objects stay unchanged.
    Deny,
    /// The user gets a warning.
    Warn,
    /// The audit log gets an entry.
    Audit,
}

/// What happens if an expression can't be evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuleFailurePolicy {
    /// The same as a false validation.
    #[default]
    Fail,
    /// Nothing.
    Ignore,
}

/// Values from outside a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleParams {
    /// The ConfigMap that is `params`: its values are in `params.data`.
    pub config_map: ParamsConfigMap,

    /// What happens if the ConfigMap doesn't exist.
    #[serde(default)]
    pub not_found: ParamsNotFound,
}

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParamsConfigMap {
    /// Its namespace; absent means the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("pattern" = LABEL))]
    pub namespace: Option<String>,

    /// Its name.
    #[schemars(length(max = 253), extend("pattern" = SUBDOMAIN))]
    pub name: String,
}

/// What happens if a rule's ConfigMap doesn't exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ParamsNotFound {
    /// The same as an expression that can't be evaluated.
    #[default]
    Deny,
    /// The rule doesn't apply.
    Allow,
}

/// The observed state of a ValidationRule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValidationRuleStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The state of the rule. Known types: Compiled, Active, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The actions of the spec as one text, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_names: Option<String>,

    /// The results of the rule on the live objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<RuleCounts>,

    /// The first of the live objects that the rule rejects, or would reject if it denied, each as KIND NAMESPACE/NAME.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub rejects: Vec<String>,
}

/// The results of a rule on the live objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleCounts {
    /// The number of objects for which the rule was evaluated.
    #[serde(default)]
    pub matched: i64,

    /// The number of objects for which a validation is false.
    #[serde(default)]
    pub rejected: i64,

    /// The number of objects for which an expression can't be evaluated.
    #[serde(default)]
    pub failed: i64,
}
