//! Sets the scheduler of pods whose templates name none: an administrator's choice for new workloads, which restarts no existing pods.

use crate::{
    decide::templating::Inputs,
    plan::{Decided, Object},
    resource::KNATIVE_SERVICE,
    workload::Workload,
    world::{
        OwnedObject, Snapshot,
        child::{POD_SCHEDULER, SUBJECT_KIND},
    },
};
use pointsman_sandbox::point::Role;
use serde_json::Value;

/// Sets the scheduler in each pod template that names none. The templates of existing workloads only get it if they change anyway.
pub fn name_schedulers(snapshot: &Snapshot, scheduler: Option<&str>, decisions: &[Decided], objects: &mut [Object]) {
    for object in objects {
        let Some(workload) = Workload::find(object.key.resource).filter(|_| may_name(object, decisions)) else { continue };
        let live = snapshot.child(object.key.resource, &object.key.name);
        let known = live.and_then(|live| live.observed.pod_scheduler.as_deref());
        if known.is_none() && scheduler.is_none() {
            continue;
        }
        let keeps = |live: &OwnedObject, name: Option<&str>| {
            let body = named(workload, &object.body, name);
            keeps_pods(live, body.as_ref().unwrap_or(&object.body))
        };
        let chosen = match live {
            // Adding or editing the annotation must not restart pods.
            Some(live) => [known, None].into_iter().find(|name| keeps(live, *name)).unwrap_or(scheduler),
            None => scheduler,
        };
        if let Some(body) = named(workload, &object.body, chosen) {
            *object = Object { yields_replicas: object.yields_replicas, ..Object::new(object.key.clone(), body) };
        }
    }
}

/// Sets the scheduler in a template that names none. Adopted templates of another controller stay unchanged: only ours have our label.
pub fn name_scheduler(template: &mut Value, scheduler: &str) -> bool {
    let is_ours = template.pointer("/metadata/labels").is_some_and(|labels| labels.get(SUBJECT_KIND).is_some());
    let Some(spec) = template.get_mut("spec").filter(|spec| is_ours && spec.is_object()) else { return false };
    let is_named = spec.get("schedulerName").is_some_and(|name| !name.is_null() && name != "");
    if !is_named {
        spec["schedulerName"] = scheduler.into();
    }
    !is_named
}

/// Whether the scheduler may be set in the templates of an object: not for pods whose node the host chooses, and not for endpoint pickers,
/// which aren't models. Knative rejects the field unless one of its features is enabled.
fn may_name(object: &Object, decisions: &[Decided]) -> bool {
    let is_excluded = |inputs: &Inputs| matches!(inputs.role, Role::Server | Role::Scheduler | Role::Tokenizer);
    let excluded = |decided: &Decided| matches!(decided, Decided::Template(key, inputs, _) if *key == object.key && is_excluded(inputs));
    object.key.resource != &KNATIVE_SERVICE && !object.keeps_template && !decisions.iter().any(excluded)
}

/// Whether a plan keeps the pods of a workload. If another controller created the workload, the template of its pods is unknown.
fn keeps_pods(live: &OwnedObject, planned: &Value) -> bool {
    !live.ours() && live.observed.adopted.is_none() || live.keeps_pods(planned) || live.was_written_for_pods(planned)
}

/// The body with the scheduler in each template that names none; none if that changes nothing.
fn named(workload: &Workload, body: &Value, scheduler: Option<&str>) -> Option<Value> {
    let (scheduler, mut body, mut changed) = (scheduler?, body.clone(), false);
    workload.change_templates(&mut body, |template| changed |= name_scheduler(template, scheduler));
    if changed && !workload.is_immutable() {
        // Tells the next plan that neither a policy nor a user has set the scheduler.
        body["metadata"]["annotations"][POD_SCHEDULER] = scheduler.into();
    }
    changed.then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::Decision,
        resource::{DEPLOYMENT, INFERENCE_SERVICE, JOB, LEADER_WORKER_SET, RAY_CLUSTER, Resource},
        world::{ObjectKey, World},
    };
    use pointsman_sandbox::digest::Digest;
    use serde_json::json;
    use std::sync::Arc;

    fn key(resource: &'static Resource) -> ObjectKey {
        ObjectKey { resource, namespace: "chat".to_owned(), name: "a".to_owned() }
    }

    fn template(image: &str, scheduler: Option<&str>) -> Value {
        let mut template = json!({
            "metadata": {"labels": {SUBJECT_KIND: "InferenceService"}}, "spec": {"containers": [{"name": "main", "image": image}]},
        });
        if let Some(scheduler) = scheduler {
            template["spec"]["schedulerName"] = scheduler.into();
        }
        template
    }

    fn deployment(template: &Value) -> Object {
        Object::new(key(&DEPLOYMENT), json!({"metadata": {"labels": {}}, "spec": {"template": template}}))
    }

    /// A Deployment as the host wrote it, with the API server's defaults.
    fn live(template: &Value, annotation: Option<&str>) -> Value {
        let mut pods = json!({
            "f:metadata": {"f:labels": {format!("f:{SUBJECT_KIND}"): {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}}}},
        });
        let mut template = template.clone();
        if template["spec"]["schedulerName"].is_string() {
            pods["f:spec"]["f:schedulerName"] = json!({});
        } else {
            template["spec"]["schedulerName"] = "default-scheduler".into();
        }
        let mut live = json!({
            "metadata": {
                "name": "a", "namespace": "chat", "uid": "d", "labels": {SUBJECT_KIND: "InferenceService"},
                "ownerReferences": [{"uid": "u", "controller": true}],
                "managedFields": [{"manager": "pointsman/inferenceservice", "operation": "Apply", "fieldsV1": {"f:spec": {"f:template": pods}}}],
            },
            "spec": {"template": template},
        });
        if let Some(annotation) = annotation {
            live["metadata"]["annotations"] = json!({POD_SCHEDULER: annotation});
        }
        live
    }

    fn snapshot(deployment: Option<&Value>) -> Snapshot {
        let mut world = World::default();
        world.put(&INFERENCE_SERVICE, &json!({"metadata": {"name": "a", "namespace": "chat", "uid": "u"}, "spec": {}}));
        if let Some(deployment) = deployment {
            world.put(&DEPLOYMENT, deployment);
        }
        world.snapshot(&key(&INFERENCE_SERVICE), 0).unwrap()
    }

    fn planned(live: Option<&Value>, scheduler: Option<&str>, object: Object, decisions: &[Decided]) -> Object {
        let mut objects = [object];
        name_schedulers(&snapshot(live), scheduler, decisions, &mut objects);
        let [object] = objects;
        assert_eq!(object.fingerprint, Object::new(object.key.clone(), object.body.clone()).fingerprint);
        object
    }

    /// The scheduler in a Deployment's template, and the annotation.
    fn outcome(live: Option<&Value>, scheduler: Option<&str>, template: &Value) -> (Option<String>, Option<String>) {
        let Object { body, .. } = planned(live, scheduler, deployment(template), &[]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        (text(&body["spec"]["template"]["spec"]["schedulerName"]), text(&body["metadata"]["annotations"][POD_SCHEDULER]))
    }

    fn both(scheduler: &str) -> (Option<String>, Option<String>) {
        (Some(scheduler.to_owned()), Some(scheduler.to_owned()))
    }

    #[test]
    fn new_workloads_get_the_scheduler_unless_their_template_names_one() {
        assert_eq!(outcome(None, Some("pointsman"), &template("a", None)), both("pointsman"));
        assert_eq!(outcome(None, None, &template("a", None)), (None, None));
        assert_eq!(outcome(None, Some("pointsman"), &template("a", Some("volcano"))), (Some("volcano".to_owned()), None));
    }

    #[test]
    fn workloads_that_exist_keep_theirs_until_their_template_changes() {
        let (plain, marked) = (template("a", None), template("a", Some("pointsman")));
        let (without, with) = (live(&plain, None), live(&marked, Some("pointsman")));
        assert_eq!(outcome(Some(&without), Some("pointsman"), &plain), (None, None));
        for switched in [Some("pointsman"), Some("other"), None] {
            assert_eq!(outcome(Some(&with), switched, &plain), both("pointsman"), "{switched:?}");
        }
        let changed = template("b", None);
        assert_eq!(outcome(Some(&without), Some("pointsman"), &changed), both("pointsman"));
        assert_eq!(outcome(Some(&with), Some("other"), &changed), both("other"));
        assert_eq!(outcome(Some(&with), None, &changed), (None, None));
        assert_eq!(outcome(Some(&with), Some("pointsman"), &template("a", Some("volcano"))), (Some("volcano".to_owned()), None));
        // The user has removed it from the service.
        let volcano = live(&template("a", Some("volcano")), None);
        assert_eq!(outcome(Some(&volcano), Some("pointsman"), &plain), both("pointsman"));
        assert_eq!(outcome(Some(&volcano), None, &plain), (None, None));
        // A user has edited or removed the annotation.
        assert_eq!(outcome(Some(&live(&plain, Some("edited"))), Some("pointsman"), &plain), (None, None));
        assert_eq!(outcome(Some(&live(&marked, None)), Some("pointsman"), &plain), both("pointsman"));
        // The written template is unknown.
        let mut others = without;
        others["metadata"]["managedFields"] = json!([]);
        assert_eq!(outcome(Some(&others), Some("pointsman"), &changed), (None, None));
    }

    #[test]
    fn each_template_of_a_group_gets_it_and_a_job_no_annotation() {
        let group = json!({"leaderTemplate": template("a", None), "workerTemplate": template("a", Some("volcano"))});
        let set = Object::new(key(&LEADER_WORKER_SET), json!({"spec": {"leaderWorkerTemplate": group}}));
        let body = planned(None, Some("pointsman"), set, &[]).body;
        let group = &body["spec"]["leaderWorkerTemplate"];
        assert_eq!(group["leaderTemplate"]["spec"]["schedulerName"], "pointsman");
        assert_eq!(group["workerTemplate"]["spec"]["schedulerName"], "volcano");

        let spec = json!({"headGroupSpec": {"template": template("a", None)}, "workerGroupSpecs": [{"template": template("a", None)}]});
        let body = planned(None, Some("pointsman"), Object::new(key(&RAY_CLUSTER), json!({"spec": spec})), &[]).body;
        for path in ["/spec/headGroupSpec/template/spec/schedulerName", "/spec/workerGroupSpecs/0/template/spec/schedulerName"] {
            assert_eq!(body.pointer(path).unwrap(), "pointsman", "{path}");
        }

        let job = Object::new(key(&JOB), json!({"spec": {"template": template("a", None)}}));
        let exists = Object { keeps_template: true, ..job.clone() };
        assert_eq!(
            planned(None, Some("pointsman"), job, &[]).body,
            json!({"spec": {"template": template("a", Some("pointsman"))}}),
            "its template stays, so that nothing needs to be known of it"
        );
        assert_eq!(planned(None, Some("pointsman"), exists.clone(), &[]).body, exists.body);
    }

    #[test]
    fn pods_of_knative_of_inference_models_and_of_pickers_and_templates_of_others_are_left_out() {
        let unchanged = |object: Object, decisions: &[Decided]| {
            let body = object.body.clone();
            assert_eq!(planned(None, Some("pointsman"), object, decisions).body, body);
        };
        let object = deployment(&template("a", None));
        unchanged(Object::new(key(&KNATIVE_SERVICE), object.body.clone()), &[]);
        for role in [Role::Server, Role::Scheduler, Role::Tokenizer] {
            let decision = Decision { answer: Arc::default(), inputs: Digest::hash(b""), plugins: Vec::new(), failed: Vec::new() };
            let decided = Decided::Template(key(&DEPLOYMENT), Inputs { role, ..Inputs::default() }, Arc::new(decision));
            unchanged(object.clone(), &[decided]);
        }
        unchanged(deployment(&json!({"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": []}})), &[]);
    }
}
