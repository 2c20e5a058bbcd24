//! Releases services: the host stops managing them, and their objects belong to the other controller again, unchanged.

use super::{
    AdoptArgs, AdoptionReport, Mode, Refusal, change,
    change::{give_back, managed, release},
    fate::runs_pods,
    read::{AdoptableServices, Service, find},
    services, tell,
};
use crate::cli::live::Source;
use anyhow::{Context, Result, bail};
use kube::{
    api::{DeleteParams, DynamicObject},
    core::params::Preconditions,
};
use pointsman_core::{
    resource::{HORIZONTAL_POD_AUTOSCALER, NETWORK_POLICY, POD_DISRUPTION_BUDGET, Resource, SCALED_OBJECT},
    world::{ObjectKey, adopted::ADOPTED, child::SUBJECT_KIND, writers},
};
use serde_json::Value;
use std::process::ExitCode;

/// The maximum number of checks that the host has stopped: a write may have been in progress.
const MAX_CHECKS: usize = 10;

/// Objects that serve no requests: if the other controller has none, ours are deleted. A PersistentVolumeClaim never is, because it has
/// files.
static DISPENSABLE: [&Resource; 4] = [&POD_DISRUPTION_BUDGET, &HORIZONTAL_POD_AUTOSCALER, &SCALED_OBJECT, &NETWORK_POLICY];

pub(super) async fn run(source: &Source, args: &AdoptArgs) -> Result<ExitCode> {
    let AdoptableServices { services: found, .. } = find(source, args).await?;
    services(found.len())?;
    let mut outlooks = Vec::new();
    for service in found {
        let mut outlook = outlook(&service);
        if args.yes && outlook.refused.is_none() {
            outlook.done(perform(source, service).await);
        }
        outlooks.push(outlook);
    }
    Ok(tell(&outlooks, args.yes))
}

fn adopted(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ADOPTED].as_str()
}

fn ours(object: &Value) -> bool {
    object["metadata"]["labels"].get(SUBJECT_KIND).is_some() && writers::ours(&managed(object))
}

/// The manager that everything is returned to.
fn former(service: &Service) -> Option<String> {
    service.children.iter().find_map(|(_, child)| adopted(child)).map(str::to_owned)
}

fn goes(key: &ObjectKey, object: &Value) -> bool {
    adopted(object).is_none() && DISPENSABLE.contains(&key.resource)
}

fn outlook(service: &Service) -> AdoptionReport {
    let ObjectKey { resource, namespace, name } = &service.key;
    let head = format!("{} {namespace}/{name}: 0 pods restart", resource.kind);
    let mut outlook = AdoptionReport::new(head);
    let Some(former) = former(service) else {
        outlook.refused = Some("It was not adopted from another controller: there is none to release it to.".to_owned());
        return outlook;
    };
    for (key, object) in service.children.iter().filter(|(_, object)| ours(object)) {
        let what = match adopted(object) {
            Some(_) => "released unchanged",
            None if goes(key, object) => "removed: the other controller didn't create it",
            None if runs_pods(key.resource) => "released unchanged; created by Pointsman: the other controller may expect another selector",
            None => "released unchanged; created by Pointsman",
        };
        let manager = adopted(object).unwrap_or(&former).to_owned();
        outlook.rows.push([key.resource.kind.to_owned(), key.name.clone(), manager, what.to_owned()]);
    }
    outlook
}

/// First the service, so that the host stops, then its objects.
async fn perform(source: &Source, service: Service) -> Result<()> {
    let to = former(&service).unwrap_or_default();
    change(source, &service.key, service.object, release, Mode::Done).await?;
    for (key, _) in service.children.iter().filter(|(_, object)| ours(object)) {
        let ObjectKey { resource, namespace, name } = key;
        // A write of the host that was in progress sets our label on the object again.
        for look in 0.. {
            let Some(object) = source.one(resource, namespace, name).await?.filter(ours) else { break };
            if look == MAX_CHECKS {
                bail!("a host repeatedly writes the {key}, although the service is not managed: check its log");
            }
            if goes(key, &object) {
                remove(source, key, &object).await?;
            } else {
                let to = adopted(&object).unwrap_or(&to).to_owned();
                change(source, key, object, |object| give_back(resource, object, &to), Mode::Done).await?;
            }
        }
    }
    Ok(())
}

async fn remove(source: &Source, key: &ObjectKey, object: &Value) -> Result<()> {
    let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
    let params = DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() };
    let api: kube::Api<DynamicObject> = source.api(key.resource, &key.namespace);
    match api.delete(&key.name, &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(kube::Error::Api(status)) => Err(Refusal::from_status(key, &status).into()),
        done => done.map(|_| ()).with_context(|| format!("deleting the {key}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::resource::{DEPLOYMENT, PERSISTENT_VOLUME_CLAIM};
    use serde_json::json;

    #[test]
    fn only_what_was_made_here_and_serves_nobody_goes() {
        let goes = |resource: &'static Resource, annotations: Value| {
            let key = ObjectKey { resource, namespace: "a".to_owned(), name: "b".to_owned() };
            goes(&key, &json!({"metadata": {"annotations": annotations}}))
        };
        assert!(goes(&POD_DISRUPTION_BUDGET, json!({})) && goes(&NETWORK_POLICY, json!({})));
        assert!(!goes(&NETWORK_POLICY, json!({ADOPTED: "manager"})));
        assert!(!goes(&PERSISTENT_VOLUME_CLAIM, json!({})) && !goes(&DEPLOYMENT, json!({})));
    }
}
