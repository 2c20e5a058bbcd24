//! The pods that controllers create for planned objects: the input of a prediction.

use super::pod::{EXCLUSIVE_TOPOLOGY, GROUP_INDEX, GROUP_SIZE, Pod, PodKey, SET_NAME};
use crate::{
    key::ObjectKey,
    objects::strings,
    resource::{DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, JOB, KNATIVE_SERVICE, LEADER_WORKER_SET, RAY_CLUSTER, SCALED_OBJECT},
    world::pod::WORKER_INDEX,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, iter};

/// The annotation of a Knative revision with its minimum number of pods.
const MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";

/// The annotation of a Knative revision with its initial number of pods.
const INITIAL_SCALE: &str = "autoscaling.knative.dev/initial-scale";

/// The target of an autoscaler: namespace, kind and name.
type ScaleTarget<'o> = (&'o str, &'o str, &'o str);

/// The pods of planned objects, object by object; those of a LeaderWorkerSet group by group, the leader first. Each is older than the next,
/// so that a simulation places them in this order. An autoscaler's target has the autoscaler's minimum number of pods.
pub fn pods<'o>(objects: &'o [(&'o ObjectKey, &'o Value)]) -> impl Iterator<Item = Pod> + 'o {
    let minimums = minimums(objects);
    let values = objects.iter().flat_map(move |(key, body)| {
        let minimum = minimums.get(&(key.namespace.as_str(), key.resource.kind, key.name.as_str())).copied();
        let replicas = minimum.or_else(|| body["spec"]["replicas"].as_u64()).unwrap_or(1);
        object_pods(key, body, replicas)
    });
    (0..).zip(values).filter_map(|(created, value)| Some(Pod { created, ..Pod::from_value(&value)? }))
}

/// The positions of pods in a listing, by key: in the given order, except that all members of a gang follow its first one.
pub fn listing(pods: &[Pod]) -> BTreeMap<PodKey, (usize, usize)> {
    let mut firsts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut listing = BTreeMap::new();
    for (at, pod) in pods.iter().enumerate() {
        let first = match &pod.gang {
            Some(gang) => *firsts.entry((pod.namespace.as_str(), gang.name.as_str())).or_insert(at),
            None => at,
        };
        listing.insert(pod.key(), (first, at));
    }
    listing
}

/// The minimum number of replicas from autoscalers.
fn minimums<'o>(objects: &'o [(&'o ObjectKey, &'o Value)]) -> BTreeMap<ScaleTarget<'o>, u64> {
    let mut minimums = BTreeMap::new();
    for (key, body) in objects {
        let spec = &body["spec"];
        let minimum = if *key.resource == HORIZONTAL_POD_AUTOSCALER {
            spec["minReplicas"].as_u64().unwrap_or(1)
        } else if *key.resource == SCALED_OBJECT {
            spec["minReplicaCount"].as_u64().unwrap_or(0)
        } else {
            continue;
        };
        let target = &spec["scaleTargetRef"];
        if let (Some(kind), Some(name)) = (target["kind"].as_str(), target["name"].as_str()) {
            minimums.insert((key.namespace.as_str(), kind, name), minimum);
        }
    }
    minimums
}

/// The pods of one object.
fn object_pods<'o>(key: &'o ObjectKey, body: &'o Value, replicas: u64) -> Box<dyn Iterator<Item = Value> + 'o> {
    let (resource, spec) = (key.resource, &body["spec"]);
    if *resource == LEADER_WORKER_SET {
        return Box::new(group_pods(key, body, replicas));
    }
    if *resource == RAY_CLUSTER {
        return Box::new(ray_pods(key, spec));
    }
    let template = &spec["template"];
    let number = if *resource == DEPLOYMENT {
        replicas
    } else if *resource == JOB {
        job_pods(spec)
    } else if *resource == KNATIVE_SERVICE {
        revision_pods(template)
    } else {
        0
    };
    Box::new((0..number).map(move |at| pod(key, &format!("{}-{at}", key.name), template, &[], &[])))
}

/// The number of pods that a Job runs at once.
fn job_pods(spec: &Value) -> u64 {
    if spec["suspend"] == true {
        return 0;
    }
    let parallelism = spec["parallelism"].as_u64().unwrap_or(1);
    spec["completions"].as_u64().map_or(parallelism, |completions| completions.min(parallelism))
}

/// The initial number of pods of a Knative revision.
fn revision_pods(template: &Value) -> u64 {
    let number = |key: &str| template["metadata"]["annotations"][key].as_str().and_then(|written| written.parse::<u64>().ok());
    number(MIN_SCALE).unwrap_or(0).max(number(INITIAL_SCALE).unwrap_or(1))
}

/// The pods of a LeaderWorkerSet, with its controller's labels and annotations.
fn group_pods<'o>(key: &'o ObjectKey, body: &'o Value, replicas: u64) -> impl Iterator<Item = Value> + 'o {
    let group = &body["spec"]["leaderWorkerTemplate"];
    let worker = &group["workerTemplate"];
    let leader = Some(&group["leaderTemplate"]).filter(|leader| leader.is_object()).unwrap_or(worker);
    let size = group["size"].as_u64().unwrap_or(1);
    let topology = body["metadata"]["annotations"][EXCLUSIVE_TOPOLOGY].as_str();
    let topology = topology.map(|topology| (EXCLUSIVE_TOPOLOGY, topology.to_owned()));
    let annotations: Vec<(&str, String)> = iter::once((GROUP_SIZE, size.to_string())).chain(topology).collect();
    (0..replicas).flat_map(move |index| {
        let annotations = annotations.clone();
        (0..size).map(move |at| {
            let (name, template) =
                if at == 0 { (format!("{}-{index}", key.name), leader) } else { (format!("{}-{index}-{at}", key.name), worker) };
            let labels = [(SET_NAME, key.name.clone()), (GROUP_INDEX, index.to_string()), (WORKER_INDEX, at.to_string())];
            pod(key, &name, template, &labels, &annotations)
        })
    })
}

/// The head of a RayCluster and its workers.
fn ray_pods<'o>(key: &'o ObjectKey, spec: &'o Value) -> impl Iterator<Item = Value> + 'o {
    let head = pod(key, &format!("{}-head", key.name), &spec["headGroupSpec"]["template"], &[], &[]);
    let groups = spec["workerGroupSpecs"].as_array().into_iter().flatten();
    let workers = groups.flat_map(move |group| {
        let name = group["groupName"].as_str().unwrap_or("workers");
        let hosts = group["numOfHosts"].as_u64().unwrap_or(1);
        let number = group["replicas"].as_u64().unwrap_or(1).saturating_mul(hosts);
        (0..number).map(move |at| pod(key, &format!("{}-{name}-{at}", key.name), &group["template"], &[], &[]))
    });
    iter::once(head).chain(workers)
}

/// A pod as its controller creates it, with labels and annotations in addition to the template's.
fn pod(key: &ObjectKey, name: &str, template: &Value, labels: &[(&str, String)], annotations: &[(&str, String)]) -> Value {
    let with = |field: &str, further: &[(&str, String)]| {
        let mut all = strings(&template["metadata"][field]);
        all.extend(further.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        all
    };
    json!({
        "metadata": {
            "namespace": key.namespace,
            "name": name,
            "labels": with("labels", labels),
            "annotations": with("annotations", annotations),
            "ownerReferences": [{"kind": key.resource.kind, "name": key.name, "controller": true}],
        },
        "spec": template["spec"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        placement::Gang,
        resource::{Resource, SERVICE},
        subject_kind::SUBJECT_KIND,
    };

    fn key(resource: &'static Resource, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: "ml".to_owned(), name: name.to_owned() }
    }

    fn template(gpus: u64) -> Value {
        let requests = json!({"nvidia.com/gpu": gpus.to_string()});
        json!({
            "metadata": {"labels": {SUBJECT_KIND: "LLMInferenceService", "app.kubernetes.io/name": "chat"}},
            "spec": {"schedulerName": "pointsman", "containers": [{"name": "main", "resources": {"requests": requests}}]},
        })
    }

    fn planned(objects: &[(ObjectKey, Value)]) -> Vec<Pod> {
        let objects: Vec<(&ObjectKey, &Value)> = objects.iter().map(|(key, body)| (key, body)).collect();
        pods(&objects).collect()
    }

    fn names(objects: &[(ObjectKey, Value)]) -> Vec<String> {
        planned(objects).into_iter().map(|pod| pod.name).collect()
    }

    #[test]
    fn a_deployment_has_pods_of_its_template_in_their_order() {
        let deployment =
            |name: &str, replicas: Value| (key(&DEPLOYMENT, name), json!({"spec": {"replicas": replicas, "template": template(2)}}));
        let found = planned(&[deployment("b", json!(2)), (key(&SERVICE, "b"), json!({"spec": {}})), deployment("a", Value::Null)]);
        let listed: Vec<(&str, u64)> = found.iter().map(|pod| (pod.name.as_str(), pod.created)).collect();
        assert_eq!(listed, [("b-0", 0), ("b-1", 1), ("a-0", 2)]);
        let first = &found[0];
        assert_eq!((&*first.namespace, &*first.scheduler, first.accelerator()), ("ml", "pointsman", Some(("nvidia.com/gpu", 2))));
        let owner = first.owner.as_ref().unwrap();
        assert_eq!((owner.kind, owner.name.as_str()), ("LLMInferenceService", "chat"));
        assert!(names(&[deployment("none", json!(0))]).is_empty());
    }

    #[test]
    fn a_pod_of_no_subject_belongs_to_what_creates_it() {
        let body = json!({"spec": {"template": {"spec": {"containers": []}}}});
        let found = planned(&[(key(&DEPLOYMENT, "a"), body)]);
        assert_eq!(found[0].owner.as_ref().unwrap().name, "Deployment/a");
    }

    #[test]
    fn what_is_scaled_has_the_minimum_of_its_autoscaler() {
        let workload = |resource, name: &str| (key(resource, name), json!({"spec": {"replicas": 9, "template": template(1)}}));
        let target = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let horizontal = |name: &str, least: Value| {
            let spec = json!({"scaleTargetRef": target(name), "minReplicas": least, "maxReplicas": 5});
            (key(&HORIZONTAL_POD_AUTOSCALER, name), json!({ "spec": spec }))
        };
        let keda = |name: &str, least: Value| {
            let spec = json!({"scaleTargetRef": target(name), "minReplicaCount": least, "maxReplicaCount": 5});
            (key(&SCALED_OBJECT, name), json!({ "spec": spec }))
        };
        assert_eq!(names(&[workload(&DEPLOYMENT, "a"), horizontal("a", json!(2))]), ["a-0", "a-1"]);
        assert_eq!(names(&[horizontal("a", Value::Null), workload(&DEPLOYMENT, "a")]), ["a-0"]);
        assert_eq!(names(&[workload(&DEPLOYMENT, "a"), keda("a", json!(1))]), ["a-0"]);
        assert!(names(&[workload(&DEPLOYMENT, "a"), keda("a", Value::Null)]).is_empty());
        let mut elsewhere = horizontal("a", json!(2));
        elsewhere.0.namespace = "other".to_owned();
        for scaler in [elsewhere, horizontal("b", json!(2))] {
            assert_eq!(names(&[workload(&DEPLOYMENT, "a"), scaler]).len(), 9);
        }
    }

    #[test]
    fn each_group_of_a_leader_worker_set_is_a_gang() {
        let set = |replicas: u64, group: Value, annotations: Value| {
            let spec = json!({"replicas": replicas, "leaderWorkerTemplate": group});
            planned(&[(key(&LEADER_WORKER_SET, "x"), json!({"metadata": {"annotations": annotations}, "spec": spec}))])
        };
        let group = json!({"leaderTemplate": template(1), "workerTemplate": template(8), "size": 2});
        let found = set(2, group, json!({}));
        let listed: Vec<&str> = found.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(listed, ["x-0", "x-0-1", "x-1", "x-1-1"]);
        let gang = |name: &str, leads: bool| Some(Gang { name: name.to_owned(), size: 2, leads, native: false });
        let expected = [gang("lws/x/0", true), gang("lws/x/0", false), gang("lws/x/1", true), gang("lws/x/1", false)];
        assert_eq!(found.iter().map(|pod| pod.gang.clone()).collect::<Vec<_>>(), expected);
        let requested: Vec<i64> = found.iter().map(|pod| pod.requests.get("nvidia.com/gpu")).collect();
        assert_eq!(requested, [1, 8, 1, 8]);

        let alone = set(1, json!({"workerTemplate": template(4)}), json!({}));
        assert_eq!((alone.len(), &alone[0].gang, alone[0].requests.get("nvidia.com/gpu")), (1, &None, 4));
        let exclusive = set(1, json!({"workerTemplate": template(4), "size": 3}), json!({EXCLUSIVE_TOPOLOGY: "zone"}));
        assert!(exclusive.len() == 3 && exclusive.iter().all(|pod| pod.gang.as_ref().is_some_and(|gang| gang.native)));
    }

    #[test]
    fn a_job_runs_no_more_pods_than_it_completes() {
        let job = |spec: Value| {
            let mut body = json!({"spec": {"template": template(1)}});
            for (field, value) in spec.as_object().unwrap() {
                body["spec"][field.as_str()] = value.clone();
            }
            names(&[(key(&JOB, "tune"), body)]).len()
        };
        assert_eq!((job(json!({})), job(json!({"parallelism": 4}))), (1, 4));
        assert_eq!(job(json!({"parallelism": 4, "completions": 2})), 2);
        assert_eq!((job(json!({"completions": 3})), job(json!({"parallelism": 4, "suspend": true}))), (1, 0));
    }

    #[test]
    fn a_knative_service_starts_with_one_pod_unless_its_revision_requests_another_number() {
        let service = |annotations: Value| {
            let mut template = template(1);
            template["metadata"]["annotations"] = annotations;
            names(&[(key(&KNATIVE_SERVICE, "chat"), json!({"spec": {"template": template}}))]).len()
        };
        assert_eq!((service(json!({})), service(json!({MIN_SCALE: "0"})), service(json!({MIN_SCALE: "3"}))), (1, 1, 3));
        assert_eq!((service(json!({INITIAL_SCALE: "0"})), service(json!({INITIAL_SCALE: "2"}))), (0, 2));
    }

    #[test]
    fn a_ray_cluster_has_a_head_and_the_workers_of_each_group() {
        let workers = json!({"groupName": "workers", "replicas": 2, "template": template(8)});
        let big = json!({"groupName": "big", "template": template(8)});
        let body = json!({"spec": {"headGroupSpec": {"template": template(8)}, "workerGroupSpecs": [workers, big]}});
        assert_eq!(names(&[(key(&RAY_CLUSTER, "chat"), body)]), ["chat-head", "chat-workers-0", "chat-workers-1", "chat-big-0"]);
    }

    #[test]
    fn the_members_of_a_gang_are_listed_together() {
        let pod = |name: &str, gang: Option<&str>| {
            let gang = gang.map(|gang| Gang { name: gang.to_owned(), size: 2, leads: false, native: false });
            Pod { namespace: "ml".to_owned(), name: name.to_owned(), gang, ..Pod::default() }
        };
        let pods = [pod("1", Some("g")), pod("2", None), pod("3", Some("g")), pod("4", Some("h"))];
        let mut listed: Vec<((usize, usize), String)> = listing(&pods).into_iter().map(|((_, name), place)| (place, name)).collect();
        listed.sort();
        assert_eq!(listed.into_iter().map(|(_, name)| name).collect::<Vec<_>>(), ["1", "3", "2", "4"]);
    }
}
