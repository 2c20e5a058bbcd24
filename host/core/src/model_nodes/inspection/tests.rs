use super::*;
use k8s_openapi::api::batch::v1::Job;

#[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
fn model(more: Value) -> LiveModel {
    let mut object = json!({
        "metadata": {"name": "llama-3.1", "namespace": "ml", "uid": "m"},
        "spec": {"storage": {"storageUri": "pvc://claim/llama"}},
        "status": {},
    });
    for (part, fields) in more.as_object().unwrap() {
        object.pointer_mut(part).unwrap().as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    }
    LiveModel::from_object(&object).unwrap()
}

fn place(namespace: Option<&str>) -> ClaimPath {
    ClaimPath { namespace: namespace.map(str::to_owned), claim: "claim".to_owned(), path: "llama".to_owned() }
}

fn inspection(live: &LiveModel) -> Inspection<'_> {
    Inspection { live, key: "k", place: Ok(place(None)), image: Ok("host:1"), refusal: None, jobs: Vec::new(), pods: Vec::new() }
}

/// The Job for a model, with the fields that the API server adds, and this status.
fn created(live: &LiveModel, status: Value) -> InspectionJob {
    let Outcome { steps, .. } = inspection(live).outcome();
    let [Step::Create(job)] = &steps[..] else { panic!("{steps:?}") };
    let mut job = job.clone();
    job["metadata"]["uid"] = json!("j");
    job["status"] = status;
    InspectionJob::from_job(&serde_json::from_value(job).unwrap()).unwrap()
}

#[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
fn pod(status: Value) -> InspectionPod {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "j", "controller": true});
    let pod = json!({"metadata": {"name": "p", "namespace": "ml", "ownerReferences": [owner]}, "status": status});
    InspectionPod::from_pod(&serde_json::from_value(pod).unwrap()).unwrap()
}

/// A pod to which a mesh has added a container.
#[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
fn in_state(state: Value) -> InspectionPod {
    let container = |name: &str, state: &Value| json!({"name": name, "image": "host:1", "imageID": "i", "ready": false, "restartCount": 0, "state": state});
    pod(json!({"containerStatuses": [container("audit", &json!({"terminated": {"exitCode": 0}})), container("inspect", &state)]}))
}

fn ended(exit_code: i32, message: &str) -> InspectionPod {
    in_state(json!({"terminated": {"exitCode": exit_code, "message": message, "reason": "Error"}}))
}

fn with_condition(type_: &str) -> Value {
    json!({"conditions": [{"type": type_, "status": "True", "message": "Job has reached the specified backoff limit"}]})
}

fn said(outcome: &Outcome) -> (LifeCycleState, &str, &str) {
    (outcome.summary.state, &outcome.summary.condition.reason, &outcome.summary.condition.message)
}

#[test]
fn a_job_reads_the_claim_where_it_can_be_mounted() {
    let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}});
    let live = model(json!({"/spec/storage": {"nodeSelector": {"zone": "a"}, "nodeAffinity": nodes}}));
    let outcome = inspection(&live).outcome();
    assert_eq!((said(&outcome).0, said(&outcome).1), (LifeCycleState::InTransit, INSPECTING));
    let [Step::Create(job)] = &outcome.steps[..] else { panic!("{outcome:?}") };
    let job: Job = serde_json::from_value(job.clone()).unwrap();
    let metadata = &job.metadata;
    assert!(metadata.name.as_deref().unwrap().starts_with("inspect-llama-3-1-"), "{metadata:?}");
    assert_eq!((metadata.namespace.as_deref(), model_key(metadata)), (Some("ml"), Some("k")));
    let pod = job.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.node_selector.unwrap()["zone"], "a");
    assert!(pod.affinity.unwrap().node_affinity.is_some());
    let claim = pod.volumes.unwrap()[0].persistent_volume_claim.clone().unwrap();
    assert_eq!((&*claim.claim_name, claim.read_only), ("claim", Some(true)));
    assert!(pod.containers[0].args.as_ref().unwrap().contains(&"/claim/llama".to_owned()));
}

#[test]
fn what_its_pod_reports_stays_in_the_status_when_the_job_goes() {
    let live = model(json!({}));
    let job = created(&live, with_condition("Complete"));
    let pod = ended(0, r#"{"modelType": "llama"}"#);
    let outcome = Inspection { jobs: vec![&job], pods: vec![&pod], ..inspection(&live) }.outcome();
    assert_eq!((said(&outcome).0, said(&outcome).1), (LifeCycleState::Ready, INSPECTED));
    assert_eq!((outcome.summary.facts.as_deref(), outcome.steps.len()), (Some(r#"{"modelType": "llama"}"#), 0));
    // A sidecar keeps the pod, and therefore the Job, from ending.
    let kept = created(&live, json!({}));
    let beside = Inspection { jobs: vec![&kept], pods: vec![&pod], ..inspection(&live) }.outcome();
    assert_eq!((said(&beside), beside.steps.len()), (said(&outcome), 0));
    let condition = json!({
        "type": "Ready", "status": "True", "reason": INSPECTED, "message": outcome.summary.condition.message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let recorded = |more: Value| {
        let mut parts = json!({"/status": {"state": "Ready", "conditions": [condition]}});
        parts.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        model(parts)
    };
    let same = recorded(json!({}));
    let alone = inspection(&same).outcome();
    assert_eq!((said(&alone), alone.steps.len(), alone.needs_image), (said(&outcome), 0, false));
    assert!(alone.summary.facts.is_none(), "what is filled in stays");
    let recorded_beside = Inspection { jobs: vec![&kept], pods: vec![&pod], ..inspection(&same) }.outcome();
    assert_eq!((said(&recorded_beside), &recorded_beside.steps[..]), (said(&outcome), &[Step::Delete(kept)][..]));
    // A state that another writer has set isn't the record.
    let overwritten = recorded(json!({"/status": {"state": "Failed", "conditions": [condition]}}));
    assert_eq!(said(&inspection(&overwritten).outcome()).0, LifeCycleState::Ready);
    // Another path is read, regardless of the recorded one.
    let other = recorded(json!({"/spec/storage": {"storageUri": "pvc://claim/other"}}));
    let outcome = Inspection { jobs: vec![&job], ..inspection(&other) }.outcome();
    assert_eq!(said(&outcome).0, LifeCycleState::InTransit);
    assert!(matches!(&outcome.steps[..], [Step::Delete(_), Step::Create(_)]), "{:?}", outcome.steps);
}

#[test]
fn a_result_that_is_lost_is_waited_for_and_repeated_with_the_next_job() {
    let live = model(json!({}));
    let job = created(&live, with_condition("Complete"));
    let outcome = Inspection { jobs: vec![&job], ..inspection(&live) }.outcome();
    assert_eq!((said(&outcome).0, outcome.steps.len()), (LifeCycleState::InTransit, 0));
    assert!(said(&outcome).2.contains("the result of its pod is unknown. Pointsman tries again"), "{}", said(&outcome).2);
    let silent = in_state(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
    let outcome = Inspection { jobs: vec![&job], pods: vec![&silent], ..inspection(&live) }.outcome();
    assert_eq!((said(&outcome).0, outcome.steps.len()), (LifeCycleState::Failed, 0));
    assert!(said(&outcome).2.contains("reported nothing (exit code 0, Completed). Pointsman tries"), "{}", said(&outcome).2);
}

#[test]
fn a_failure_has_its_reason() {
    let live = model(json!({}));
    let job = created(&live, with_condition("Failed"));
    let pod = ended(1, "error: /claim/llama: No such file or directory\n");
    let outcome = Inspection { jobs: vec![&job], pods: vec![&pod], ..inspection(&live) }.outcome();
    let (state, reason, message) = said(&outcome);
    assert_eq!((state, reason, outcome.steps.len()), (LifeCycleState::Failed, "InspectionFailed", 0));
    assert!(message.contains("claim: error: /claim/llama: No such file or directory. Pointsman tries again"), "{message}");
    let outcome = Inspection { jobs: vec![&job], ..inspection(&live) }.outcome();
    assert!(said(&outcome).2.contains("backoff limit. Pointsman tries again"), "{}", said(&outcome).2);
}

#[test]
fn what_it_waits_for_is_said() {
    let live = model(json!({}));
    let job = created(&live, json!({}));
    let waiting = |pods: Vec<&InspectionPod>| {
        let outcome = Inspection { jobs: vec![&job], pods, ..inspection(&live) }.outcome();
        assert_eq!((said(&outcome).0, said(&outcome).1, outcome.steps.len()), (LifeCycleState::InTransit, INSPECTING, 0));
        outcome.summary.condition.message
    };
    let message = r#"persistentvolumeclaim "claim" not found"#;
    let unscheduled = pod(json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}));
    assert!(waiting(vec![&unscheduled]).ends_with(r#"waits: persistentvolumeclaim "claim" not found."#));
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        let image = in_state(json!({"waiting": {"reason": reason, "message": "no such image"}}));
        assert!(waiting(vec![&image]).ends_with("waits: The image host:1 can't be pulled."));
    }
    let starting = in_state(json!({"waiting": {"reason": "ContainerCreating"}}));
    assert!(waiting(vec![&starting]).ends_with("is starting."));
    assert!(waiting(vec![&in_state(json!({"running": {}}))]).ends_with("is reading the claim claim."));
    assert!(waiting(vec![]).contains("`kubectl describe job inspect-llama-3-1-"));

    let suspended = created(&live, with_condition("Suspended"));
    assert_eq!(said(&Inspection { jobs: vec![&suspended], ..inspection(&live) }.outcome()).1, "JobSuspended");
    let refused = Inspection { refusal: Some("exceeded quota"), ..inspection(&live) }.outcome();
    assert_eq!(said(&refused).1, "JobRejected");
    assert!(matches!(&refused.steps[..], [Step::Create(_)]), "it is tried again");
    let unknown = Inspection { image: Err("set a flag"), ..inspection(&live) }.outcome();
    assert_eq!((said(&unknown).1, unknown.steps.len(), unknown.needs_image), ("ImageUnknown", 0, true));
}

#[test]
fn a_job_that_waits_gets_an_image_that_was_corrected() {
    let live = model(json!({}));
    let job = created(&live, json!({}));
    assert_eq!(Inspection { jobs: vec![&job], ..inspection(&live) }.outcome().steps, []);
    let corrected = |pods| Inspection { image: Ok("host:2"), jobs: vec![&job], pods, ..inspection(&live) }.outcome().steps;
    assert_eq!(corrected(vec![]), [Step::Delete(job.clone())]);
    assert_eq!(corrected(vec![&in_state(json!({"running": {}}))]), []);
}

#[test]
fn another_storage_is_another_job() {
    let before = model(json!({}));
    let old = created(&before, with_condition("Complete"));
    for change in [
        json!({"/spec/storage": {"storageUri": "pvc://claim/other"}}),
        json!({"/spec/storage": {"nodeSelector": {"a": "b"}}}),
        json!({"/metadata": {"annotations": {"pointsman.dev/download-again": "2"}}}),
    ] {
        let after = model(change.clone());
        let steps = Inspection { jobs: vec![&old], ..inspection(&after) }.outcome().steps;
        assert!(matches!(&steps[..], [Step::Delete(job), Step::Create(_)] if *job == old), "{change}: {steps:?}");
    }
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": []});
    let same = model(json!({"/spec/storage": {"nodeAffinity": preferred}}));
    assert_eq!(inspection(&same).job_name(), old.name);
    // A Job of another model with the same name isn't ours.
    let another = model(json!({"/metadata": {"uid": "n"}}));
    let steps = Inspection { jobs: vec![&old], ..inspection(&another) }.outcome().steps;
    assert!(matches!(&steps[..], [Step::Create(_)]), "{steps:?}");
}

#[test]
fn claims_of_other_namespaces_are_refused() {
    let own = model(json!({}));
    let at = |live, namespace| {
        let outcome = Inspection { place: Ok(place(namespace)), ..inspection(live) }.outcome();
        (outcome.summary.state, outcome.summary.condition.reason, outcome.steps.len())
    };
    assert_eq!(at(&own, Some("other")), (LifeCycleState::Failed, "ClaimOfAnotherNamespace".to_owned(), 0));
    assert_eq!(at(&own, Some("ml")), (LifeCycleState::InTransit, INSPECTING.to_owned(), 1));
    let cluster = model(json!({"/metadata": {"namespace": ""}}));
    assert_eq!(at(&cluster, None), (LifeCycleState::Failed, "ClaimWithoutNamespace".to_owned(), 0));
    assert_eq!(at(&cluster, Some("other")), (LifeCycleState::InTransit, INSPECTING.to_owned(), 1));
    let wrong = Inspection { place: Err("it has no path".to_owned()), ..inspection(&own) }.outcome();
    assert_eq!(said(&wrong), (LifeCycleState::Failed, "InvalidStorage", "spec.storage.storageUri: it has no path."));
}

#[test]
fn only_pods_of_its_job_are_believed_and_only_objects() {
    let live = model(json!({}));
    let job = created(&live, with_condition("Complete"));
    for foreign in [
        InspectionPod { owner: "another".to_owned(), ..ended(0, "{}") },
        InspectionPod { namespace: "another".to_owned(), ..ended(0, "{}") },
    ] {
        let outcome = Inspection { jobs: vec![&job], pods: vec![&foreign], ..inspection(&live) }.outcome();
        assert_eq!((said(&outcome).0, outcome.summary.facts.is_none()), (LifeCycleState::InTransit, true));
    }
    for text in ["[]", "no JSON", "", &format!(r#"{{"a": "{}"}}"#, "x".repeat(MAX_FACTS))] {
        assert!(matches!(ended(0, text).progress, PodProgress::Failed(_)), "{text}");
    }
}
