//! Collects the rights that this process lacks, from the requests that the API server refuses. It logs one line for all rights that a role
//! grants together: when it finds them missing, and when they are granted.

use crate::permissions::{self, EXTERNAL_METRICS, MODEL_REPORTS};
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::sleep;

/// The start of the API server's message about a missing right. The messages about quotas and Pod Security start differently.
const LACKS_RIGHT: &str = " is forbidden: User \"";

/// The delay during which refusals are gathered. A role grants many rights, and an API server that has just started may refuse a right for
/// a moment.
const GATHER: Duration = Duration::from_secs(1);

/// The namespace in which Kubernetes describes who may call extension API servers.
const EXTENSION_NAMESPACE: &str = "kube-system";

/// A right in the terms of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// For example `list`.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The plural name of the kind, with the subresource if any: `pods`, `deployments/status`.
    pub resource: String,
    /// None for a cluster-scoped resource, and for all namespaces.
    pub namespace: Option<String>,
}

impl Right {
    /// The resource with its group: `deployments.apps/status`.
    pub fn resource_name(&self) -> String {
        let (plural, part) = self.resource.split_once('/').map_or((&*self.resource, None), |(plural, part)| (plural, Some(part)));
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        format!("{plural}{group}{}", part.map(|part| format!("/{part}")).unwrap_or_default())
    }
}

/// Parses the user and the missing right from the API server's message.
fn parse(message: &str) -> Option<(&str, Right)> {
    let (_, rest) = message.split_once(LACKS_RIGHT)?;
    let (user, rest) = rest.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once("\" in API group \"")?;
    let (group, rest) = rest.split_once('"')?;
    let namespace = rest.strip_prefix(" in the namespace \"").and_then(|rest| Some(rest.split_once('"')?.0.to_owned()));
    Some((user, Right { verb: verb.to_owned(), group: group.to_owned(), resource: resource.to_owned(), namespace }))
}

/// The name of a user or ServiceAccount for a message.
fn display_user(user: &str) -> String {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    account.map_or_else(|| format!("the user {user}"), |(namespace, name)| format!("the ServiceAccount {namespace}/{name}"))
}

/// A request that was refused.
#[derive(Debug)]
struct Refusal {
    /// The user who lacks the right, and the remedy.
    complaint: String,
    /// The right for the request, which may need several: an apply that creates an object needs two.
    requested: Right,
    is_logged: bool,
}

#[derive(Debug, Default)]
struct State {
    missing: BTreeMap<Right, Refusal>,
    /// The rights that are granted again, which isn't logged yet.
    granted: BTreeSet<Right>,
    /// Whether a task is about to log the changes.
    is_due: bool,
}

/// The rights that are known to be missing.
#[derive(Debug)]
pub struct MissingRights {
    /// The host's own namespace.
    home: String,
    /// The namespaces that the host serves; all if empty.
    served: BTreeSet<String>,
    state: Mutex<State>,
}

impl MissingRights {
    /// Creates an empty list for a host in the namespace `home` that serves these namespaces, or all if there are none.
    pub fn new(home: &str, served: BTreeSet<String>) -> Self {
        Self { home: home.to_owned(), served, state: Mutex::default() }
    }

    /// Records that the API server has refused a request about the object of this name, with this message.
    pub fn refused(self: &Arc<Self>, requested: Right, name: Option<&str>, message: &str) {
        let Some((user, right)) = parse(message) else { return };
        let remedy = self.remedy(&right, name).map(|remedy| format!(": {remedy}")).unwrap_or_default();
        let complaint = format!("{} lacks the right{remedy}", display_user(user));
        let key = self.without_tenant(right);
        let mut state = locked(&self.state);
        // It was logged before, and nothing has been logged since.
        let is_logged =
            state.granted.remove(&key) || state.missing.get(&key).is_some_and(|known| known.is_logged && known.complaint == complaint);
        state.missing.insert(key, Refusal { complaint, requested, is_logged });
        if !is_logged {
            self.log_soon(&mut state);
        }
    }

    /// Records that the API server has allowed a request, which may have created an object.
    pub fn allowed(self: &Arc<Self>, request: &Right, has_created: bool) {
        let mut state = locked(&self.state);
        if state.missing.is_empty() {
            return;
        }
        // A right in another namespace may be granted by a role of only that namespace.
        let is_granted = |right: &Right, refusal: &Refusal| refusal.requested == *request && (right.verb == request.verb || has_created);
        let granted: Vec<Right> =
            state.missing.iter().filter(|(right, refusal)| is_granted(right, refusal)).map(|(right, _)| right.clone()).collect();
        for right in granted {
            if state.missing.remove(&right).is_some_and(|refusal| refusal.is_logged) {
                state.granted.insert(right);
                self.log_soon(&mut state);
            }
        }
    }

    /// Whether a text reports a right that is known to be missing. It is logged here, so its other callers needn't log it.
    pub fn repeats(&self, text: &str) -> bool {
        let key = |(_, right)| self.without_tenant(right);
        parse(text).map(key).is_some_and(|key| locked(&self.state).missing.contains_key(&key))
    }

    fn log_soon(self: &Arc<Self>, state: &mut State) {
        if !std::mem::replace(&mut state.is_due, true) {
            let rights = Arc::clone(self);
            tokio::spawn(async move {
                sleep(GATHER).await;
                for line in rights.news() {
                    line.log();
                }
            });
        }
    }

    /// The changes that aren't logged yet: one line for all resources with the same text.
    fn news(&self) -> Vec<Line> {
        let mut state = locked(&self.state);
        let State { missing, granted, is_due } = &mut *state;
        *is_due = false;
        let mut lines: BTreeMap<(String, Option<String>, Option<String>), Vec<String>> = BTreeMap::new();
        for (right, refusal) in missing.iter_mut().filter(|(_, refusal)| !refusal.is_logged) {
            refusal.is_logged = true;
            let key = (right.verb.clone(), right.namespace.clone(), Some(refusal.complaint.clone()));
            lines.entry(key).or_default().push(right.resource_name());
        }
        for right in std::mem::take(granted) {
            lines.entry((right.verb.clone(), right.namespace.clone(), None)).or_default().push(right.resource_name());
        }
        lines.into_iter().map(|((verb, namespace, complaint), resources)| Line { verb, resources, namespace, complaint }).collect()
    }

    /// A right as it is counted: if the host serves all namespaces, the rights in all namespaces of tenants are one.
    fn without_tenant(&self, right: Right) -> Right {
        let namespace = right.namespace.filter(|namespace| *namespace == self.home || !self.served.is_empty());
        Right { namespace, ..right }
    }

    /// The role to apply, if one of ours grants the right.
    fn remedy(&self, right: &Right, name: Option<&str>) -> Option<String> {
        let namespace = right.namespace.as_deref();
        let is_at_home = namespace == Some(&*self.home);
        let resource = (&*right.group, &*right.resource);
        if let Some(feature) = permissions::grants(&right.verb, resource, name, is_at_home) {
            return Some(permissions::missing_role(feature, &self.served, namespace).to_string());
        }
        match (resource, namespace) {
            (("", "configmaps"), Some(EXTENSION_NAMESPACE)) => Some(format!("apply deploy/roles/{EXTERNAL_METRICS}")),
            (("", "configmaps"), Some(agents)) => Some(format!("apply deploy/{MODEL_REPORTS} to the namespace {agents}")),
            _ => None,
        }
    }
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    verb: String,
    resources: Vec<String>,
    namespace: Option<String>,
    /// None if the rights are granted again.
    complaint: Option<String>,
}

impl Line {
    fn log(&self) {
        if self.complaint.is_some() {
            tracing::warn!("{self}");
        } else {
            tracing::info!("{self}");
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resources, namespace, complaint } = self;
        let resources = resources.join(", ");
        let place = namespace.as_ref().map(|namespace| format!(" in the namespace {namespace}")).unwrap_or_default();
        match complaint {
            Some(complaint) => write!(f, "can't {verb} {resources}{place}: {complaint}"),
            None => write!(f, "can {verb} {resources}{place} again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "system:serviceaccount:pointsman-system:pointsman";

    fn right(verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> Right {
        let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
        Right { verb, group, resource, namespace: namespace.map(str::to_owned) }
    }

    /// Refuses a request with the API server's message.
    fn refuse(rights: &Arc<MissingRights>, right: &Right) {
        let Right { verb, group, resource, namespace } = right;
        let place = namespace.as_ref().map_or_else(|| "at the cluster scope".to_owned(), |name| format!("in the namespace \"{name}\""));
        let message = format!(
            "{}.{group} \"x\" is forbidden: User \"{HOST}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}",
            resource.split('/').next().unwrap(),
        );
        rights.refused(right.clone(), None, &message);
    }

    fn lines(rights: &MissingRights) -> Vec<String> {
        rights.news().iter().map(Line::to_string).collect()
    }

    fn missing(served: &[&str]) -> Arc<MissingRights> {
        Arc::new(MissingRights::new("pointsman-system", served.iter().map(|namespace| (*namespace).to_owned()).collect()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_rights_of_a_role_are_one_line_when_they_are_missed_first_and_one_when_they_are_there() {
        let rights = missing(&[]);
        let (pods, namespaces) = (right("list", "", "pods", None), right("list", "", "namespaces", None));
        let status = right("patch", "ome.io", "inferenceservices/status", Some("chat"));
        for _ in 0..3 {
            for right in [&pods, &namespaces, &status] {
                refuse(&rights, right);
            }
        }
        let lacks = "the ServiceAccount pointsman-system/pointsman lacks the right";
        let expected = [
            format!("can't list namespaces, pods: {lacks}: apply deploy/roles/base"),
            format!("can't patch inferenceservices.ome.io/status: {lacks}: apply deploy/roles/ome"),
        ];
        assert_eq!(lines(&rights), expected);
        let others =
            |verb: &str| format!("trying again: pods is forbidden: User \"{HOST}\" cannot {verb} resource \"pods\" in API group \"\" at");
        assert!(rights.repeats(&others("list")) && !rights.repeats(&others("watch")));
        // Neither a retry nor the same right in another namespace is logged.
        refuse(&rights, &pods);
        refuse(&rights, &right("patch", "ome.io", "inferenceservices/status", Some("shop")));
        assert_eq!(lines(&rights), [""; 0]);

        rights.allowed(&pods, false);
        rights.allowed(&right("patch", "ome.io", "inferenceservices/status", Some("chat")), false);
        assert_eq!(lines(&rights), ["can list pods again"], "in the namespace shop nothing was let through yet");
        rights.allowed(&right("patch", "ome.io", "inferenceservices/status", Some("shop")), false);
        refuse(&rights, &status);
        assert_eq!(lines(&rights), [""; 0], "it was away for a moment");
        rights.allowed(&status, false);
        refuse(&rights, &pods);
        assert_eq!(lines(&rights).len(), 2, "it is granted, and the other one is missing again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_apply_that_lacks_the_right_to_create_has_it_once_something_is_created() {
        let rights = missing(&[]);
        let patch = right("patch", "apps", "deployments", Some("chat"));
        let message = format!(
            "deployments.apps \"x\" is forbidden: User \"{HOST}\" cannot create resource \"deployments\" in API group \"apps\" in the \
             namespace \"chat\""
        );
        rights.refused(patch.clone(), Some("x"), &message);
        assert!(lines(&rights)[0].starts_with("can't create deployments.apps: "));
        rights.allowed(&patch, false);
        assert_eq!(lines(&rights), [""; 0], "another object was only changed");
        rights.allowed(&patch, true);
        assert_eq!(lines(&rights), ["can create deployments.apps again"]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_namespaces_have_roles_of_their_own_each_is_named() {
        let rights = missing(&["a", "b"]);
        for namespace in [Some("a"), Some("b"), Some("pointsman-system"), None] {
            refuse(&rights, &right("list", "", if namespace.is_none() { "namespaces" } else { "configmaps" }, namespace));
        }
        refuse(&rights, &right("list", "", "pods", Some("b")));
        let said = lines(&rights);
        let remedies: Vec<&str> = said.iter().map(|line| line.split("lacks the right: ").nth(1).unwrap()).collect();
        assert_eq!(
            remedies,
            [
                "apply deploy/roles/namespaced/host/base",
                "apply deploy/model-reports to the namespace a",
                "apply deploy/model-reports to the namespace b",
                "apply deploy/roles/namespaced/tenant/base to the namespace b",
                "apply deploy/roles/namespaced/host/base",
            ],
            "{said:#?}"
        );
        assert!(said[3].starts_with("can't list pods in the namespace b: "), "{said:#?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_another_reason_is_no_missing_right() {
        let rights = missing(&[]);
        for message in ["pods \"x\" is forbidden: exceeded quota: q", "pods \"x\" is forbidden: violates PodSecurity \"restricted\""] {
            rights.refused(right("create", "", "pods", Some("a")), Some("x"), message);
        }
        assert_eq!(lines(&rights), [""; 0]);
        let message =
            "secrets is forbidden: User \"alice\" cannot list resource \"secrets\" in API group \"\" in the namespace \"pointsman-system\"";
        let secrets = right("list", "", "secrets", Some("pointsman-system"));
        rights.refused(secrets, Some("pointsman-external-metrics"), message);
        assert_eq!(
            lines(&rights),
            ["can't list secrets in the namespace pointsman-system: the user alice lacks the right: apply deploy/roles/external-metrics"]
        );
    }
}
