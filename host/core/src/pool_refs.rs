//! The status of InferenceObjectives and InferenceModelRewrites: whether the referenced pool exists.

use crate::{
    condition::{Condition, READY, condition_json},
    live_object::LiveObject,
    resource::{INFERENCE_POOL, X_INFERENCE_POOL},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Whether pickers of the pool use the object.
const ACCEPTED: &str = "Accepted";

/// The field manager of these statuses.
pub const STATUS_MANAGER: &str = "pointsman/pool-reference-status";

/// The maximum number of conditions.
const MAX_CONDITIONS: usize = 8;

/// An InferenceObjective or an InferenceModelRewrite.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolUser {
    /// Its state in the cluster.
    pub live: LiveObject,
    pool: PoolRef,
    /// Why its rules are invalid, if they are.
    invalid_rules: Option<String>,
}

/// The reference to a pool.
#[derive(Clone, Debug, PartialEq)]
struct PoolRef {
    group: String,
    kind: String,
    name: String,
}

/// The namespaces that contain a pool with this group and name.
pub type Pools = BTreeMap<(&'static str, String), BTreeSet<String>>;

impl PoolUser {
    /// Parses the object.
    pub fn from_object(object: &Value) -> Self {
        let pool = &object["spec"]["poolRef"];
        let text = |field: &str, default: &str| pool[field].as_str().unwrap_or(default).to_owned();
        Self {
            live: LiveObject::from_object(object),
            pool: PoolRef { group: text("group", INFERENCE_POOL.group), kind: text("kind", INFERENCE_POOL.kind), name: text("name", "") },
            invalid_rules: invalid_rules(&object["spec"]["rules"]),
        }
    }

    /// The group and name of the pool, if the reference is valid.
    pub fn pool(&self) -> Option<(&'static str, &str)> {
        let group = [INFERENCE_POOL.group, X_INFERENCE_POOL.group].into_iter().find(|group| *group == self.pool.group)?;
        (self.pool.kind == INFERENCE_POOL.kind).then_some((group, &self.pool.name))
    }

    /// Whether its pool exists and its rules are valid; if not, how to fix it.
    fn accepted(&self, namespace: &str, pools: &Pools, is_served: impl Fn(&str) -> bool, is_superseded: bool) -> Condition {
        let PoolRef { group, kind, name } = &self.pool;
        if name.is_empty() {
            let message = format!("spec.poolRef.name is missing: set it to the name of an InferencePool in the namespace {namespace}.");
            return Condition::no(ACCEPTED, "PoolNotFound", message);
        }
        let Some(pool) = self.pool() else {
            let message = format!(
                "spec.poolRef refers to a {kind} of the group {group:?}, which has no endpoint picker: set kind to {} and group to {} \
                 ({} for a v1alpha2 pool), or leave both out.",
                INFERENCE_POOL.kind, INFERENCE_POOL.group, X_INFERENCE_POOL.group
            );
            return Condition::no(ACCEPTED, "InvalidKind", message);
        };
        if !is_served(pool.0) {
            let message = format!(
                "The cluster has no kind {kind} of the group {group}: install the CRDs of the Gateway API Inference Extension, or set \
                 spec.poolRef.group to the group of the pool."
            );
            return Condition::no(ACCEPTED, "PoolNotFound", message);
        }
        let namespaces = pools.get(&(pool.0, name.clone()));
        if namespaces.is_none_or(|namespaces| !namespaces.contains(namespace)) {
            // The message doesn't name namespaces of other tenants.
            return if namespaces.is_some() {
                let message = format!(
                    "The {kind} {name} isn't in the namespace {namespace}, and poolRef refers to a pool of its own namespace: create \
                     this object in the pool's namespace."
                );
                Condition::no(ACCEPTED, "PoolInOtherNamespace", message)
            } else {
                let message = format!("There is no {kind} {name} of the group {group} in the namespace {namespace}.");
                Condition::no(ACCEPTED, "PoolNotFound", message)
            };
        }
        if let Some(why) = &self.invalid_rules {
            return Condition::no(ACCEPTED, "InvalidRules", why.clone());
        }
        // Such an object is valid, but a user who edits it should know.
        let superseded = if is_superseded {
            " The cluster serves the group llm-d.ai, and pickers that read it ignore this object: create it in that group."
        } else {
            ""
        };
        Condition::satisfied(ACCEPTED, ACCEPTED, format!("The {kind} {name} exists.{superseded}"))
    }

    /// The conditions to write, if they differ from the current ones. They replace the CRD's default, which states that no controller has
    /// reconciled the object. `is_superseded`: the cluster serves the same kind in a group that pickers prefer.
    pub fn status_to_write(
        &self,
        namespace: &str,
        pools: &Pools,
        is_served: impl Fn(&str) -> bool,
        is_superseded: bool,
        now: Timestamp,
    ) -> Option<Value> {
        if self.live.is_deleting {
            return None;
        }
        let known = self.live.status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let accepted = self.accepted(namespace, pools, is_served, is_superseded);
        let ready = Condition { type_: READY, ..accepted.clone() };
        // Conditions of others keep their positions.
        let mut room = MAX_CONDITIONS.saturating_sub(known.len());
        let mut conditions = Vec::new();
        for condition in [accepted, ready] {
            let former = known.iter().find(|former| former["type"] == condition.type_);
            if former.is_none() && room == 0 {
                continue;
            }
            room = room.saturating_sub(usize::from(former.is_none()));
            conditions.push(condition_json(condition, former, Some(self.live.generation), now));
        }
        let is_same = conditions.iter().all(|condition| known.contains(condition));
        (!is_same).then(|| json!({ "conditions": conditions }))
    }
}

/// Why the rules of an InferenceModelRewrite are invalid, for constraints that its schema can't express.
fn invalid_rules(rules: &Value) -> Option<String> {
    rules.as_array().into_iter().flatten().enumerate().find_map(|(at, rule)| {
        let targets = rule["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        let weighted = targets.iter().filter(|target| target["weight"].is_number()).count();
        (weighted > 0 && weighted < targets.len()).then(|| {
            format!("spec.rules[{at}].targets: {weighted} of {} targets have a weight: set it on all of them, or on none.", targets.len())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: (&str, &str) = ("inference.networking.k8s.io", "chat");

    fn pools(namespaces: &[&str]) -> Pools {
        let namespaces: BTreeSet<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        if namespaces.is_empty() { Pools::new() } else { Pools::from([((POOL.0, POOL.1.to_owned()), namespaces)]) }
    }

    fn user(spec: &Value, status: &Value) -> PoolUser {
        PoolUser::from_object(&json!({"metadata": {"generation": 2}, "spec": spec, "status": status}))
    }

    fn written(user: &PoolUser, pools: &Pools) -> Option<Value> {
        user.status_to_write("prod", pools, |group| group == POOL.0, false, "2026-01-01T00:00:00Z".parse().unwrap())
    }

    /// The status, reason and message of `Accepted`.
    fn accepted(spec: &Value, pools: &Pools) -> [String; 3] {
        let status = written(&user(spec, &json!({})), pools).unwrap();
        let condition = &status["conditions"][0];
        assert_eq!((&condition["type"], &condition["observedGeneration"]), (&json!("Accepted"), &json!(2)));
        ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_condition_says_what_is_wrong_with_the_pool_and_what_to_do() {
        let chat = json!({"poolRef": {"name": "chat"}});
        let of = |field: &str, value: &str| json!({"poolRef": {"name": "chat", field: value}});
        for (spec, namespaces, status, reason, part) in [
            (&chat, &["other", "prod"][..], "True", "Accepted", "The InferencePool chat exists."),
            (&chat, &[], "False", "PoolNotFound", "There is no InferencePool chat"),
            (&json!({}), &["prod"], "False", "PoolNotFound", "spec.poolRef.name is missing"),
            (&chat, &["other"], "False", "PoolInOtherNamespace", "create this object in the pool's namespace"),
            (&of("kind", "Service"), &["prod"], "False", "InvalidKind", "set kind to InferencePool"),
            (&of("group", ""), &["prod"], "False", "InvalidKind", "set kind to InferencePool and group to inference.networking.k8s.io"),
            (&of("group", "inference.networking.x-k8s.io"), &["prod"], "False", "PoolNotFound", "install the CRDs"),
        ] {
            let [is, why, message] = accepted(spec, &pools(namespaces));
            assert_eq!((&*is, &*why), (status, reason), "{message}");
            assert!(message.contains(part) && !message.contains("other "), "{message}");
        }
    }

    #[test]
    fn a_rewrite_with_some_weights_says_where() {
        let targets = |weights: [Option<i32>; 2]| {
            let target =
                |weight: Option<i32>| weight.map_or(json!({"modelRewrite": "a"}), |weight| json!({"modelRewrite": "a", "weight": weight}));
            json!({"poolRef": {"name": "chat"}, "rules": [{}, {"targets": weights.map(target)}]})
        };
        let [status, reason, message] = accepted(&targets([Some(1), None]), &pools(&["prod"]));
        assert_eq!((&*status, &*reason), ("False", "InvalidRules"));
        assert!(message.starts_with("spec.rules[1].targets: 1 of 2"), "{message}");
        for weights in [[Some(1), Some(2)], [None, None]] {
            assert_eq!(accepted(&targets(weights), &pools(&["prod"]))[0], "True");
        }
    }

    #[test]
    fn the_default_is_replaced_others_stay_and_it_is_written_once() {
        let spec = json!({"poolRef": {"name": "chat"}});
        let pending =
            json!({"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"});
        let status = written(&user(&spec, &json!({"conditions": [pending.clone()]})), &pools(&["prod"])).unwrap();
        let types: Vec<&str> = status["conditions"].as_array().unwrap().iter().filter_map(|condition| condition["type"].as_str()).collect();
        assert_eq!(types, ["Accepted", "Ready"]);
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(written(&user(&spec, &status), &pools(&["prod"])), None);
        assert!(written(&user(&spec, &status), &pools(&[])).is_some(), "the pool is gone");

        let foreign = |number: usize, with_default: bool| {
            let foreign = (0..number).map(|number| json!({"type": format!("Other{number}")}));
            foreign.chain(with_default.then(|| pending.clone())).collect::<Vec<_>>()
        };
        for (others, with_default, ours) in [(6, false, 2), (7, false, 1), (8, false, 0), (6, true, 2), (7, true, 1), (8, true, 1)] {
            let status = written(&user(&spec, &json!({"conditions": foreign(others, with_default)})), &pools(&["prod"]));
            assert_eq!(status.map_or(0, |status| status["conditions"].as_array().unwrap().len()), ours);
        }
        let deleted = PoolUser::from_object(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}));
        assert_eq!(written(&deleted, &pools(&["prod"])), None);
    }
}
