//! A dry run of the host's first plan of an adopted service: the API server reports for each object whether it accepts it, and changes
//! nothing.

use super::{
    AdoptArgs, Mode, Refusal, change,
    change::{TakenOver, take_over},
    read::Service,
    take_over::{PlannedAdoption, perform},
};
use crate::cli::live::Source;
use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use pointsman_core::{
    plan::Object,
    status::difference,
    world::{ObjectKey, child::manager, owned},
};
use serde_json::Value;

/// The start of the API server's message about a missing right.
const LACKS_RIGHT: [&str; 2] = [" is forbidden: user ", " is forbidden: cannot set blockownerdeletion "];

/// Tests all objects. Returns notes on those that this user can't test, or that depend on objects which don't exist yet.
pub(super) async fn rehearse(
    source: &Source,
    prospect: &PlannedAdoption,
    planned: &[Object],
    now: &(impl Fn() -> Timestamp + Sync),
    args: &AdoptArgs,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    match perform(source, prospect, now, args.new_templates, Mode::Tried).await.map_err(refusal) {
        Ok(()) => {}
        // Without --yes, no right to write is needed.
        Err(Ok(refusal)) if !args.yes && refusal.lacks_right() => {
            notes.push(format!("--yes needs more rights: {}", refusal.said));
        }
        Err(refused) => return Err(refused.map_or_else(|error| error, Into::into)),
    }
    let live = |key: &ObjectKey| prospect.service.children.iter().find(|(known, _)| known == key).map(|(_, child)| child);
    let made: Vec<&str> = planned.iter().filter(|object| live(&object.key).is_none()).map(|object| object.key.name.as_str()).collect();
    for object in planned {
        match attempt(source, prospect, object, live(&object.key), args.new_templates).await.map_err(refusal) {
            Ok(()) => {}
            Err(Ok(refusal)) if refusal.lacks_right() || refusal.misses(&made) => {
                notes.push(format!("whether the API server accepts the {} couldn't be tested: {}", object.key, refusal.said));
            }
            Err(refused) => return Err(refused.map_or_else(|error| error, Into::into)),
        }
    }
    Ok(notes)
}

/// Tests one object.
async fn attempt(source: &Source, prospect: &PlannedAdoption, object: &Object, live: Option<&Value>, new_templates: bool) -> Result<()> {
    let PlannedAdoption { service, taken, .. } = prospect;
    match live {
        Some(live) if taken.contains_key(&object.key) => {
            change(source, &object.key, live.clone(), |live| as_ours(service, live, object, new_templates), Mode::Tried).await
        }
        // Like the host: with force if the object is already ours, and without it if it is created.
        live => apply(source, object, service.kind(), live.is_some()).await,
    }
}

/// The API server's rejection, or another error.
fn refusal(error: anyhow::Error) -> Result<Refusal, anyhow::Error> {
    error.downcast()
}

impl Refusal {
    /// Whether only a right of the user is missing, which the host may have.
    fn lacks_right(&self) -> bool {
        let said = self.said.to_lowercase();
        self.code == 403 && LACKS_RIGHT.iter().any(|lacks| said.contains(lacks))
    }

    /// Whether only one of these objects doesn't exist yet.
    fn misses(&self, made: &[&str]) -> bool {
        self.said.contains("not found") && made.iter().any(|name| self.said.contains(&format!("{name:?}")))
    }
}

/// The patch from another controller's object to the host's plan after the adoption. A server-side apply today, even with force, would
/// differ: the other controller's unplanned fields would remain.
fn as_ours(service: &Service, object: &Value, planned: &Object, new_templates: bool) -> Value {
    let TakenOver { after, .. } = take_over(planned.key.resource, object, (service.kind(), service.uid()), new_templates);
    let ours = owned::part(&after, &manager(service.kind()));
    let mut applied = owned::applied(&after, &ours, &planned.manifest());
    applied["metadata"]["managedFields"] = object["metadata"]["managedFields"].clone();
    difference(object, &applied)
}

async fn apply(source: &Source, object: &Object, kind: &str, force: bool) -> Result<()> {
    let key = &object.key;
    let params = PatchParams { dry_run: true, force, field_manager: Some(manager(kind)), ..PatchParams::default() };
    let applied = source.api(key.resource, &key.namespace).patch(&key.name, &params, &Patch::Apply(object.manifest())).await;
    match applied.map(|_: DynamicObject| ()) {
        Err(kube::Error::Api(status)) => Err(Refusal::from_status(key, &status).into()),
        done => done.with_context(|| format!("trying the {key}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::resource::{INFERENCE_SERVICE, POD_DISRUPTION_BUDGET, Resource, SERVICE};
    use serde_json::json;

    fn key(resource: &'static Resource) -> ObjectKey {
        ObjectKey { resource, namespace: "chat".to_owned(), name: "a".to_owned() }
    }

    #[test]
    fn what_the_other_controller_wrote_and_is_not_planned_is_not_tried() {
        let fields =
            json!({"f:metadata": {"f:labels": {"f:old": {}}}, "f:spec": {"f:type": {}, "f:ports": {"k:{\"port\":80}": {".": {}}}}});
        let live = json!({
            "metadata": {
                "name": "a", "labels": {"old": "1"},
                "managedFields": [{"manager": "manager", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}],
            },
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "name": "http"}]},
        });
        let service = Service { key: key(&INFERENCE_SERVICE), object: json!({"metadata": {"uid": "u"}}), children: Vec::new() };
        let planned = Object::new(key(&SERVICE), json!({"spec": {"ports": [{"port": 8080, "name": "http"}]}}));
        let patch = as_ours(&service, &live, &planned, false);
        assert_eq!(patch["spec"], json!({"type": null, "ports": [{"port": 8080, "name": "http"}]}));
        assert_eq!(patch.pointer("/metadata/labels/old"), Some(&Value::Null));
        assert_eq!(patch.pointer("/metadata/managedFields"), None);
    }

    #[test]
    fn a_right_that_the_user_lacks_is_told_from_what_the_host_would_meet_too() {
        let of = |code: u16, said: &str| Refusal { key: key(&POD_DISRUPTION_BUDGET), code, said: said.to_owned(), advice: "" };
        let lacks_right = |code: u16, said: &str| of(code, said).lacks_right();
        assert!(lacks_right(403, r#"pdbs.policy "a" is forbidden: User "alice" cannot patch resource "pdbs" in API group "policy""#));
        let grants = r#"roles "a" is forbidden: user "alice" (groups=["dev"]) is attempting to grant RBAC permissions not currently held"#;
        assert!(lacks_right(403, grants));
        assert!(!lacks_right(403, r#"pdbs.policy "a" is forbidden: exceeded quota: none, requested: 1, used: 0, limited: 0"#));
        assert!(!lacks_right(400, r#"admission webhook "x" denied the request: it is forbidden: user "alice" is unknown"#));
        let misses = |name: &str| of(404, r#"roles.rbac.authorization.k8s.io "chat" not found"#).misses(&["a", name]);
        assert!(misses("chat") && !misses("cha"));
    }
}
