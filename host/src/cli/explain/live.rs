//! What a service of a cluster is planned from: read once, and no more of it than concerns the service.

use crate::{
    cli::{
        ClusterArgs,
        cache::CacheArgs,
        offline::{Offline, OfflineArgs},
        render::loader,
    },
    objects::label_value,
    policy::{decide::Policies, keeper::recorded},
    world::{
        ObjectKey, World, apis,
        child::SUBJECT_KIND,
        pod::{APP_NAME, SUBJECT},
        resource::{
            ALL, BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, GATEWAY, INFERENCE_SERVICE, LLM_CONFIG, LLM_INFERENCE_SERVICE,
            NAMED_BY_SUBJECTS, NAMESPACE, POD, Resource, SERVING_RUNTIME,
        },
    },
};
use anyhow::{Context, Result, anyhow, bail};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::mpsc;

/// How many objects are listed at once.
const PAGE: u32 = 200;

/// What people call the kinds that are served.
static WORDS: [(&[&str], &Resource); 2] = [
    (&["inferenceservice", "inferenceservices", "isvc"], &INFERENCE_SERVICE),
    (&["llminferenceservice", "llminferenceservices", "llmisvc"], &LLM_INFERENCE_SERVICE),
];

pub(super) async fn read(subject: &str, args: &OfflineArgs, cache: &CacheArgs, cluster: &ClusterArgs) -> Result<Offline> {
    let (resource, name) = named(subject)?;
    let client = cluster.connect().await?;
    let served = apis::discover(&client).await.context("asking the API server what it serves")?;
    let available: BTreeSet<&'static Resource> = ALL
        .iter()
        .copied()
        .filter(|resource| resource.neighbour.is_none() || served.serves(resource.group, resource.version, resource.plural))
        .collect();
    let key = ObjectKey { resource, namespace: args.namespace.clone(), name: name.to_owned() };
    if !available.contains(key.resource) {
        bail!("the cluster serves no {}: `pointsman crds install` installs the CRDs", key.resource.crd_name());
    }
    let mut world = World::default();
    let found = one(&client, key.resource, &key.namespace, name).await?;
    let found =
        found.ok_or_else(|| anyhow!("there is no {} {name} in the namespace {}; -n names another", resource.kind, key.namespace))?;
    world.put(key.resource, &found);
    if let Some(namespace) = one(&client, &NAMESPACE, "", &key.namespace).await? {
        world.put(&NAMESPACE, &namespace);
    }
    for resource in available.iter().copied().filter(|resource| *resource != &NAMESPACE && !resource.is_subject()) {
        for object in list(&client, resource, &key).await? {
            world.put(resource, &object);
        }
    }
    world.set_available(available);
    let loader = tokio::task::block_in_place(|| loader(cache))?;
    let set = recorded(client, &args.host_namespace, Arc::new(loader)).await.map_err(|error| anyhow!(error))?;
    let notes =
        set.members().iter().filter_map(|member| Some(format!("the plugin {} can't be loaded: {}", member.name(), member.missing()?)));
    let notes: Vec<String> = notes.collect();
    for note in &notes {
        eprintln!("{note}");
    }
    let (news, _) = mpsc::unbounded_channel();
    Ok(Offline { world, subjects: vec![key], policies: Policies::new(set, news), settings: args.settings.settings(), notes })
}

/// The kind and the name in KIND/NAME.
fn named(subject: &str) -> Result<(&'static Resource, &str)> {
    let known = |kind: &str| {
        let word = kind.split('.').next().unwrap_or_default().to_lowercase();
        WORDS.iter().find_map(|(words, resource)| words.contains(&word.as_str()).then_some(*resource))
    };
    match subject.split_once('/').map(|(kind, name)| (kind, known(kind), name)) {
        Some((_, Some(resource), name)) if !name.is_empty() && !name.contains('/') => Ok((resource, name)),
        Some((kind, None, _)) => bail!("{kind} is no kind that is explained: name an inferenceservice/NAME or an llminferenceservice/NAME"),
        _ => bail!("{subject:?} names no service: give inferenceservice/NAME or llminferenceservice/NAME, and its namespace with -n"),
    }
}

async fn one(client: &Client, resource: &'static Resource, namespace: &str, name: &str) -> Result<Option<Value>> {
    let found = api(client, resource, namespace).get_opt(name).await;
    let found = found.with_context(|| format!("reading the {} {name}", resource.kind))?;
    found.map(serde_json::to_value).transpose().context("reading what the API server says")
}

/// The objects of a kind that a service may depend on: of what it may use or name all, of everything else what was made for services of
/// its namespace.
async fn list(client: &Client, resource: &'static Resource, key: &ObjectKey) -> Result<Vec<Value>> {
    let used = [&BASE_MODEL, &CLUSTER_BASE_MODEL, &SERVING_RUNTIME, &CLUSTER_SERVING_RUNTIME].contains(&resource);
    // A service names configurations and Gateways of other namespaces.
    let elsewhere = [&LLM_CONFIG, &GATEWAY].contains(&resource);
    let selector = if used || elsewhere || NAMED_BY_SUBJECTS.contains(&resource) {
        String::new()
    } else if resource == &POD {
        let of = if key.resource == &LLM_INFERENCE_SERVICE { APP_NAME } else { SUBJECT };
        format!("{SUBJECT_KIND}={},{of}={}", key.resource.kind, label_value(&key.name))
    } else {
        SUBJECT_KIND.to_owned()
    };
    let kind = resource.api_resource();
    let api: Api<DynamicObject> = if elsewhere { Api::all_with(client.clone(), &kind) } else { api(client, resource, &key.namespace) };
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().labels(&selector).limit(PAGE);
    loop {
        let page = api.list(&parameters).await.with_context(|| format!("listing {}", resource.plural))?;
        for mut object in page.items {
            // What is listed doesn't say of what kind it is.
            object.types = Some(kube::api::TypeMeta { api_version: resource.api_version(), kind: resource.kind.to_owned() });
            objects.push(serde_json::to_value(object).context("reading what the API server says")?);
        }
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => parameters.continue_token = Some(more),
            None => return Ok(objects),
        }
    }
}

fn api(client: &Client, resource: &'static Resource, namespace: &str) -> Api<DynamicObject> {
    let kind = resource.api_resource();
    if resource.namespaced { Api::namespaced_with(client.clone(), namespace, &kind) } else { Api::all_with(client.clone(), &kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_as_kubectl_takes_it() {
        for subject in ["isvc/a", "InferenceService/a", "inferenceservices.ome.io/a"] {
            assert_eq!(named(subject).unwrap(), (&INFERENCE_SERVICE, "a"), "{subject}");
        }
        assert_eq!(named("llmisvc/a").unwrap(), (&LLM_INFERENCE_SERVICE, "a"));
        for (subject, says) in [("a", "names no service"), ("pod/a", "no kind that is explained"), ("isvc/", "names no service")] {
            assert!(named(subject).unwrap_err().to_string().contains(says), "{subject}");
        }
    }
}
