//! The kinds of object that run pods: what there is to know of each, in one table. A further one is a line here, and its builder in `objects`.

use crate::resource::{DEPLOYMENT, JOB, KNATIVE_SERVICE, LEADER_WORKER_SET, RAY_CLUSTER, Resource};
use serde_json::Value;

/// What is known of a kind of object that runs pods.
#[derive(Debug)]
pub struct Workload {
    /// The kind.
    pub resource: &'static Resource,
    /// Where its objects say what pods are made from: another state there, and the pods are others.
    pub made_from: &'static [&'static str],
    /// Its templates of pods.
    pub templates: &'static [Template],
    /// How a changed template reaches pods.
    pub change: TemplateChange,
    /// How its status tells how many of its pods are updated and available.
    pub status: WorkloadStatus,
    /// Whether its condition `Progressing` turns False when a rollout is stuck. A LeaderWorkerSet's does when all is well, too.
    pub reports_stuck: bool,
    /// Whether old pods stay until there are enough new ones, so that one available replica is enough while pods are replaced.
    pub keeps_old_pods: bool,
    /// The label that its own controller puts on pods, with the object's name; none where it can't be adopted while its pods run.
    pub adopted_by: Option<&'static str>,
    /// Whether its controller makes an object of another kind under the same name, which goes with it.
    pub occupies_other_names: bool,
}

/// A template of pods in an object.
#[derive(Debug)]
pub struct Template {
    /// Where it is; a `*` stands for each item of a list.
    pub path: &'static str,
    /// What its pods do in a group; none where there are no groups.
    pub group_role: Option<GroupRole>,
}

/// What a pod does in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRole {
    /// It leads.
    Leader,
    /// It follows.
    Worker,
}

/// How a changed template reaches pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateChange {
    /// The object's own controller replaces the pods.
    RolledOut,
    /// Its controller replaces none, so another revision is an object of another name.
    NewObject,
    /// The API server rejects it: the pods stay what they were created from until the object is deleted (`kinds::job_run`).
    Immutable,
}

/// Whose words its status uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadStatus {
    /// A Deployment's, or nearly.
    Replicas,
    /// Knative's.
    Knative,
    /// KubeRay's.
    Ray,
    /// Those of a Job.
    Job,
}

/// All of them.
pub static WORKLOADS: [Workload; 5] = [
    Workload {
        resource: &DEPLOYMENT,
        made_from: &["/spec/template"],
        templates: &[Template { path: "/spec/template", group_role: None }],
        change: TemplateChange::RolledOut,
        status: WorkloadStatus::Replicas,
        reports_stuck: true,
        keeps_old_pods: true,
        // A Deployment that was adopted keeps its own selector.
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
        // Everything that the API server lets nobody change.
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
    /// What is known of a kind, if it runs pods.
    pub fn find(resource: &Resource) -> Option<&'static Self> {
        WORKLOADS.iter().find(|workload| workload.resource == resource)
    }

    /// Whether its pods stay what they were created from until the object is deleted.
    pub fn is_immutable(&self) -> bool {
        self.change == TemplateChange::Immutable
    }

    /// Whether its pods come in groups, each with a leader.
    pub fn is_grouped(&self) -> bool {
        self.templates.iter().any(|template| template.group_role.is_some())
    }

    /// The templates of pods in an object, and what their pods do in a group.
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

    /// Changes each template of pods in an object.
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
    /// Where its objects say what pods are made from; nowhere where they make none.
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
