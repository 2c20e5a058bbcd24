//! The rights of the hosts' ServiceAccount, as the API server evaluates them.

use super::{Checked, Finding, Installation, hosts::Deployed};
use crate::permissions::{ACCOUNT, BASE, BESIDE_NAMESPACES, EXTERNAL_METRICS, Feature, IN_NAMESPACE, features};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use serde_json::Value;

/// The maximum number of concurrent requests.
const AT_ONCE: usize = 8;

/// Checks a host that serves only these namespaces, or all if there are none. `outside` is the leader if it runs with its user's rights.
pub(super) async fn check(
    installation: &Installation,
    deployed: Option<&Deployed>,
    namespaces: &[String],
    outside: Option<&str>,
) -> Checked {
    if let Some(host) = outside {
        let message = format!("the host {host} runs outside of the cluster, so the rights of the ServiceAccount aren't checked");
        return Ok(vec![Finding::note(message, "if hosts are to run in the cluster, apply deploy/install")]);
    }
    let asking = Asking::choose(installation).await?;
    let mut reviews = Vec::new();
    for feature in features().iter().filter(|feature| is_needed(installation, deployed, feature)) {
        let wanted = attributes(feature, &installation.namespace, namespaces);
        let total = wanted.len();
        let answers = stream::iter(wanted).map(|right| async { asking.may(&right).await.map(|may| (!may).then_some(right)) });
        let refused: Vec<ResourceAttributes> =
            answers.buffer_unordered(AT_ONCE).try_filter_map(async |right| Ok(right)).try_collect().await?;
        let Feature { name, .. } = feature;
        // The webhook's rights aren't in any of them.
        let remedy = if namespaces.is_empty() || feature.in_namespace().is_empty() {
            format!("apply deploy/roles/{name}")
        } else {
            let beside =
                if feature.host_objects().is_empty() { String::new() } else { format!(", and deploy/roles/{BESIDE_NAMESPACES}/{name}") };
            format!("apply deploy/roles/{IN_NAMESPACE}/{name} to each of {}{beside}", namespaces.join(", "))
        };
        reviews.push(FeatureReview { feature: (*name).to_owned(), total, refused, remedy });
    }
    Ok(asking.account().findings(&reviews))
}

/// The review of a feature's rights.
struct FeatureReview {
    feature: String,
    /// The number of its rights.
    total: usize,
    refused: Vec<ResourceAttributes>,
    remedy: String,
}

/// The account with its verbs.
struct ReviewedAccount {
    name: &'static str,
    has: &'static str,
    lacks: &'static str,
}

impl ReviewedAccount {
    /// The findings: one for the features without any right, which a cluster may intend, and one for each other feature.
    fn findings(&self, reviews: &[FeatureReview]) -> Vec<Finding> {
        let Self { name: who, has, lacks } = self;
        let mut findings = Vec::new();
        let mut absent: Vec<&FeatureReview> = Vec::new();
        for review in reviews {
            let FeatureReview { feature, total, refused, remedy } = review;
            if refused.is_empty() {
                findings.push(Finding::ok(format!("{who} {has} all rights of {feature}")));
            } else if refused.len() < *total {
                let mut names: Vec<String> = refused.iter().map(text).collect();
                names.sort();
                findings.push(Finding::wrong(format!("{who} {lacks} rights of {feature} ({})", names.join(", ")), remedy));
            } else if feature == BASE {
                findings.push(Finding::wrong(format!("{who} {has} no right of {feature}, without which no host becomes ready"), remedy));
            } else {
                absent.push(review);
            }
        }
        if !absent.is_empty() {
            let names: Vec<&str> = absent.iter().map(|review| review.feature.as_str()).collect();
            let remedies: Vec<&str> = absent.iter().map(|review| review.remedy.as_str()).collect();
            let message = format!("{who} {has} no right of {}, so nothing that needs one is served", names.join(", "));
            findings.push(Finding::note(message, format!("if this is unintended, {}", remedies.join("; "))));
        }
        findings
    }
}

/// Whether the cluster has the kinds of a feature, or the hosts have its flag. Hosts have some of the external metrics API's rights for
/// other reasons.
fn is_needed(installation: &Installation, deployed: Option<&Deployed>, feature: &Feature) -> bool {
    if feature.name == EXTERNAL_METRICS {
        return deployed.and_then(|deployed| deployed.has_flag("--external-metrics")) == Some(true);
    }
    let Some(first) = feature.everywhere.first() else { return false };
    let text = |field: &str| first[field][0].as_str().unwrap_or_default().to_owned();
    feature.name == BASE || installation.served.serves_any_version(&text("apiGroups"), &text("resources"))
}

/// The rights of a feature as review requests. A list by name isn't requested: only the host's own field selector limits it.
fn attributes(feature: &Feature, home: &str, namespaces: &[String]) -> Vec<ResourceAttributes> {
    let within = |namespace: &str| Some(namespace.to_owned());
    let granted: Vec<(Vec<Value>, Option<String>)> = if namespaces.is_empty() {
        vec![(feature.everywhere.clone(), None), (feature.at_home.clone(), within(home))]
    } else {
        let tenants = namespaces.iter().map(|namespace| (feature.in_namespace(), within(namespace)));
        tenants.chain([(feature.for_everywhere(), None), (feature.beside_namespaces(), within(home))]).collect()
    };
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|item| Some(item.as_str()?.to_owned())).collect()
    };
    let mut wanted = Vec::new();
    for (rules, namespace) in granted {
        for rule in rules {
            let name = list(&rule["resourceNames"]).into_iter().next();
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    let (resource, subresource) = match resource.split_once('/') {
                        Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
                        None => (resource, None),
                    };
                    wanted.extend(list(&rule["verbs"]).into_iter().map(|verb| ResourceAttributes {
                        group: Some(group.clone()),
                        resource: Some(resource.clone()),
                        subresource: subresource.clone(),
                        verb: Some(verb),
                        name: name.clone(),
                        namespace: namespace.clone(),
                        ..ResourceAttributes::default()
                    }));
                }
            }
        }
    }
    wanted
}

fn text(right: &ResourceAttributes) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    let subresource = right.subresource.as_ref().map(|subresource| format!("/{subresource}")).unwrap_or_default();
    let group = right.group.as_ref().filter(|group| !group.is_empty()).map(|group| format!(".{group}")).unwrap_or_default();
    let place = right.namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    format!("{} {}{subresource}{group}{place}", part(&right.verb), part(&right.resource))
}

/// The account whose rights are reviewed.
enum Asking<'a> {
    /// The ServiceAccount.
    Account(&'a Installation),
    /// The user, who may not review others' rights. It is the host itself if the command runs there.
    User(&'a Installation),
}

impl<'a> Asking<'a> {
    async fn choose(installation: &'a Installation) -> kube::Result<Self> {
        let harmless =
            ResourceAttributes { verb: Some("get".to_owned()), resource: Some("pods".to_owned()), ..ResourceAttributes::default() };
        match Self::Account(installation).may(&harmless).await {
            Ok(_) => Ok(Self::Account(installation)),
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Self::User(installation)),
            Err(error) => Err(error),
        }
    }

    fn account(&self) -> ReviewedAccount {
        match self {
            Self::Account(_) => ReviewedAccount { name: "the ServiceAccount", has: "has", lacks: "lacks" },
            Self::User(_) => ReviewedAccount { name: "you, the user of this kubeconfig,", has: "have", lacks: "lack" },
        }
    }

    async fn may(&self, right: &ResourceAttributes) -> kube::Result<bool> {
        let asked = PostParams::default();
        let status = match self {
            Self::Account(installation) => {
                let home = &installation.namespace;
                let spec = SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{home}:{ACCOUNT}")),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{home}"),
                        "system:authenticated".to_owned(),
                    ]),
                    resource_attributes: Some(right.clone()),
                    ..SubjectAccessReviewSpec::default()
                };
                let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
                Api::<SubjectAccessReview>::all(installation.client.clone()).create(&asked, &review).await?.status
            }
            Self::User(installation) => {
                let spec =
                    SelfSubjectAccessReviewSpec { resource_attributes: Some(right.clone()), ..SelfSubjectAccessReviewSpec::default() };
                let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
                Api::<SelfSubjectAccessReview>::all(installation.client.clone()).create(&asked, &review).await?.status
            }
        };
        Ok(status.is_some_and(|status| status.allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_without_a_right_are_one_finding_and_the_user_is_addressed_as_you() {
        let right =
            || ResourceAttributes { verb: Some("get".to_owned()), resource: Some("pods".to_owned()), ..ResourceAttributes::default() };
        let review = |feature: &str, refused: usize| FeatureReview {
            feature: feature.to_owned(),
            total: 2,
            refused: vec![right(); refused],
            remedy: format!("apply deploy/roles/{feature}"),
        };
        let reviews = [review(BASE, 2), review("keda", 2), review("kserve", 1), review("leaderworkerset", 2), review("ome", 0)];
        let you = ReviewedAccount { name: "you", has: "have", lacks: "lack" };
        let lines: Vec<String> = you
            .findings(&reviews)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.message, finding.remedy.unwrap_or_default()))
            .collect();
        assert_eq!(
            lines,
            [
                "you have no right of base, without which no host becomes ready: apply deploy/roles/base",
                "you lack rights of kserve (get pods): apply deploy/roles/kserve",
                "you have all rights of ome: ",
                "you have no right of keda, leaderworkerset, so nothing that needs one is served: if this is unintended, \
                 apply deploy/roles/keda; apply deploy/roles/leaderworkerset",
            ]
        );
    }
}
