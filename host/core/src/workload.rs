//! The kinds of objects that run pods, in one table. A new kind needs an entry here, and a builder in `objects`.

use crate::resource::{DEPLOYMENT, JOB, KNATIVE_SERVICE, LEADER_WORKER_SET, RAY_CLUSTER, Resource};
use serde_json::Value;

/// The data of a kind that runs pods.
#[derive(Debug)]
pub struct Workload {
    /// The kind.
    pub resource: &'static Resource,
    /// The fields that pods are created from: if they change, pods are replaced.
    pub made_from: &'static [&'static str],
    /// Its pod templates.
    pub templates: &'static [Template],
    /// The effect of a changed template on pods.
    pub change: TemplateChange,
    /// The format of the numbers of updated and available pods in its status.
    pub status: WorkloadStatus,
    /// Whether its condition `Progressing` becomes False when a rollout is stuck. A LeaderWorkerSet's also does so normally.
    pub reports_stuck: bool,
    /// Whether old pods stay until enough new ones are available, so that during a rollout one available replica suffices.
    pub keeps_old_pods: bool,
    /// The label with the object's name that its own controller adds to pods; none if it can't be adopted with running pods.
    pub adopted_by: Option<&'static str>,
    /// Whether its controller creates an object of another kind with the same name, which is deleted with it.
    pub occupies_other_names: bool,
}

/// A pod template in an object.
#[derive(Debug)]
pub struct Template {
    /// Its path; `*` stands for each item of a list.
    pub path: &'static str,
    /// The role of its pods in a group; none without groups.
    pub group_role: Option<GroupRole>,
}

/// The role of a pod in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRole {
    /// The leader.
    Leader,
    /// A worker.
    Worker,
}

/// The effect of a changed template on pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateChange {
    /// The object's own controller replaces the pods.
    RolledOut,
    /// Its controller doesn't replace pods, so each revision is an object with another name.
    NewObject,
    /// The API server rejects the change: the pods stay unchanged until the object is deleted (`kinds::job_run`).
    Immutable,
}

/// The format of its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadStatus {
    /// A Deployment's, or a similar one.
    Replicas,
    /// Knative's.
    Knative,
    /// KubeRay's.
    Ray,
    /// A Job's.
    Job,
}

/// All kinds that run pods.
pub static WORKLOADS: [Workload; 5] = [
    Workload {
        resource: &DEPLOYMENT,
        made_from: &["/spec/template"],
        templates: &[Template { path: "/spec/template", group_role: None }],
        change: TemplateChange::RolledOut,
        status: WorkloadStatus::Replicas,
        reports_stuck: true,
        keeps_old_pods: true,
        // An adopted Deployment keeps its own selector.
        adopted_by: Some("leaderworkerset.sigs.k8s.io/name"),
        occupies_other_names: false,
    },
    Workload {
        resource: &LEADER_WORKER_SET,
        made_from: &["/spec/leaderWorkerTemplate", "/spec/networkConfig"],
        templates: &[
            Template { path: "/spec/leaderWorkerTemplate/leaderTemplate", group_role: Some(GroupRole::Leader) },
            Template { path: "/spec/leaderWorkerTemplate/workerTemplate", group_role: Some(GroupRole::Worker) },
        ],
        change: TemplateChange::RolledOut,
        status: WorkloadStatus::Replicas,
        reports_stuck: false,
        keeps_old_pods: false,
        adopted_by: Some("leaderworkerset.sigs.k8s.io/name"),
        occupies_other_names: false,
    },
    Workload {
        resource: &KNATIVE_SERVICE,
        made_from: &["/spec/template"],
        templates: &[Template { path: "/spec/template", group_role: None }],
        change: TemplateChange::RolledOut,
        status: WorkloadStatus::Knative,
        reports_stuck: true,
        keeps_old_pods: false,
        adopted_by: Some("serving.knative.dev/service"),
        occupies_other_names: true,
    },
    Workload {
        resource: &RAY_CLUSTER,
        made_from: &["/spec"],
        templates: &[
            Template { path: "/spec/headGroupSpec/template", group_role: Some(GroupRole::Leader) },
            Template { path: "/spec/workerGroupSpecs/*/template", group_role: Some(GroupRole::Worker) },
        ],
        change: TemplateChange::NewObject,
        status: WorkloadStatus::Ray,
        reports_stuck: true,
        keeps_old_pods: false,
        adopted_by: None,
        occupies_other_names: false,
    },
    Workload {
        resource: &JOB,
        // All fields that the API server treats as immutable.
        made_from: &[
            "/spec/template",
            "/spec/selector",
            "/spec/completions",
            "/spec/completionMode",
            "/spec/podFailurePolicy",
            "/spec/successPolicy",
            "/spec/backoffLimitPerIndex",
            "/spec/managedBy",
        ],
        templates: &[Template { path: "/spec/template", group_role: None }],
        change: TemplateChange::Immutable,
        status: WorkloadStatus::Job,
        reports_stuck: false,
        keeps_old_pods: false,
        adopted_by: None,
        occupies_other_names: false,
    },
];

impl Workload {
    /// The data of a kind, if it runs pods.
    pub fn find(resource: &Resource) -> Option<&'static Self> {
        WORKLOADS.iter().find(|workload| workload.resource == resource)
    }

    /// Whether its pods stay unchanged until the object is deleted.
    pub fn is_immutable(&self) -> bool {
        self.change == TemplateChange::Immutable
    }

    /// Whether its pods come in groups, each with a leader.
    pub fn is_grouped(&self) -> bool {
        self.templates.iter().any(|template| template.group_role.is_some())
    }

    /// The pod templates in an object, with the roles of their pods in a group.
    pub fn templates_in<'o>(&self, object: &'o Value) -> Vec<(&'o Value, Option<GroupRole>)> {
        let mut found = Vec::new();
        for Template { path, group_role } in self.templates {
            let mut places = match path.split_once("/*") {
                None => vec![object.pointer(path)],
                Some((list, rest)) => {
                    let items = object.pointer(list).and_then(Value::as_array).into_iter().flatten();
                    items.map(|item| item.pointer(rest)).collect()
                }
            };
            places.retain(|template| template.is_some_and(Value::is_object));
            found.extend(places.into_iter().flatten().map(|template| (template, *group_role)));
        }
        found
    }

    /// Changes each pod template in an object.
    pub fn change_templates(&self, object: &mut Value, mut change: impl FnMut(&mut Value)) {
        for Template { path, .. } in self.templates {
            match path.split_once("/*") {
                None => object.pointer_mut(path).into_iter().for_each(&mut change),
                Some((list, rest)) => {
                    let items = object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
                    items.filter_map(|item| item.pointer_mut(rest)).for_each(&mut change);
                }
            }
        }
    }
}

impl Resource {
    /// The fields that pods are created from; empty for a kind without pods.
    pub fn pods(&self) -> &'static [&'static str] {
        Workload::find(self).map_or(&[], |workload| workload.made_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_template_lies_where_pods_are_made_from() {
        for Workload { resource, made_from, templates, .. } in &WORKLOADS {
            for Template { path, .. } in *templates {
                assert!(made_from.iter().any(|part| path.starts_with(part)), "{} {path}", resource.kind);
            }
        }
    }

    #[test]
    fn each_worker_group_of_a_ray_cluster_has_its_template() {
        let template = |name: &str| json!({"metadata": {"name": name}});
        let groups = json!([{"template": template("a")}, {}, {"template": template("b")}]);
        let cluster = json!({"spec": {"headGroupSpec": {"template": template("head")}, "workerGroupSpecs": groups}});
        let found = Workload::find(&RAY_CLUSTER).unwrap().templates_in(&cluster);
        let (leader, worker) = (Some(GroupRole::Leader), Some(GroupRole::Worker));
        assert_eq!(found, [(&template("head"), leader), (&template("a"), worker), (&template("b"), worker)]);
    }
}
