//! Reads the inputs of plans from a cluster: once, and only those of the requested services.

use super::{
    ClusterArgs,
    cache::CacheArgs,
    exit::usage,
    memory::observe,
    offline::{Offline, OfflineArgs},
    output::{self, OutputArgs},
    progress,
    render::loader,
};
use crate::{keeper::recorded, load::Loader, watch::apis};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use pointsman_core::{
    decide::{Policies, Unheard, set::ActiveSet},
    objects::label_value,
    resource::{
        BENCHMARK_JOB, DEPLOYMENT, FINE_TUNED_WEIGHT, GATEWAY, INFERENCE_MODEL, LLM_CONFIG, NAMESPACE, POD, REFERENCE_GRANT,
        REFERENCED_KINDS, Resource,
    },
    rules::Rules,
    subject_kind::{ALL, SUBJECT_KINDS, SubjectKind},
    world::{ObjectKey, World, child::SUBJECT_KIND},
};
use pointsman_crds::policy::rule::LookupScope;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

/// The number of objects per page of a list.
const PAGE: u32 = 200;

/// The kinds that plans read in addition to those that are created for subjects.
fn used() -> impl Iterator<Item = &'static Resource> {
    let reads: BTreeSet<&Resource> = SUBJECT_KINDS.iter().flat_map(|kind| kind.reads.iter().copied()).collect();
    reads.into_iter().chain([&FINE_TUNED_WEIGHT]).filter(|resource| !ELSEWHERE.contains(resource))
}

/// The kinds that a service may name in other namespaces.
static ELSEWHERE: [&Resource; 3] = [&LLM_CONFIG, &GATEWAY, &REFERENCE_GRANT];

/// Files or cluster to inspect, and the output format
#[derive(Args, Debug)]
pub(super) struct ViewArgs {
    #[command(flatten)]
    pub(super) offline: OfflineArgs,
    #[command(flatten)]
    pub(super) cache: CacheArgs,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// A cluster to read from.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub(super) struct Source {
    pub(super) client: Client,
    /// The kinds that it serves.
    pub(super) available: BTreeSet<&'static Resource>,
}

impl Source {
    pub(super) async fn connect(cluster: &ClusterArgs) -> Result<Self> {
        let client = cluster.connect().await?;
        let served = apis::discover(&client).await.context("requesting the served kinds from the API server")?;
        let serves =
            |resource: &&Resource| resource.neighbour.is_none() || served.serves(resource.group, resource.version, resource.plural);
        Ok(Self { available: ALL.iter().copied().filter(serves).collect(), client })
    }

    /// The requested namespace; otherwise, the one of the kubeconfig's context.
    pub(super) fn namespace<'a>(&'a self, requested: Option<&'a str>) -> &'a str {
        requested.unwrap_or_else(|| self.client.default_namespace())
    }

    /// Fails if a kind isn't served.
    pub(super) fn demand(&self, resource: &'static Resource) -> Result<()> {
        if !self.available.contains(resource) {
            bail!("the cluster serves no {}: `pointsman crds install` installs the CRDs", resource.crd_name());
        }
        Ok(())
    }

    /// A service, or an error if it doesn't exist.
    pub(super) async fn subject(&self, key: &ObjectKey) -> Result<Value> {
        let ObjectKey { resource, namespace, name } = key;
        self.demand(resource)?;
        let found = self.one(resource, namespace, name).await?;
        found.ok_or_else(|| anyhow!("there is no {} {name} in the namespace {namespace}; -n specifies another", resource.kind))
    }

    pub(super) async fn one(&self, resource: &'static Resource, namespace: &str, name: &str) -> Result<Option<Value>> {
        let found = self.api(resource, namespace).get_opt(name).await;
        let found = found.with_context(|| format!("reading the {} {name}", resource.kind))?;
        found.map(serde_json::to_value).transpose().context("reading the response of the API server")
    }

    /// The objects of a kind in a namespace, or in all if that is empty.
    pub(super) async fn list(&self, resource: &'static Resource, namespace: &str, selector: &str) -> Result<Vec<Value>> {
        let mut objects = Vec::new();
        self.each(resource, namespace, selector, |object| objects.push(object)).await?;
        Ok(objects)
    }

    /// Puts the objects of a kind into a world.
    async fn put(&self, world: &mut World, resource: &'static Resource, namespace: &str, selector: &str) -> Result<()> {
        self.each(resource, namespace, selector, |object| world.put(resource, &object)).await
    }

    /// Passes one object of a kind after the other: those of a large cluster don't fit into memory together.
    async fn each(&self, resource: &'static Resource, namespace: &str, selector: &str, mut take: impl FnMut(Value)) -> Result<()> {
        let (api, mut unread) = (self.api(resource, namespace), None);
        let listed = each_page(&api, selector, |mut object| {
            // Listed objects lack their kind.
            object.types = Some(kube::api::TypeMeta { api_version: resource.api_version(), kind: resource.kind.to_owned() });
            match serde_json::to_value(object) {
                Ok(object) => take(object),
                Err(error) => unread = Some(error),
            }
        });
        listed.await.with_context(|| format!("listing {}", resource.plural))?;
        unread.map_or(Ok(()), |error| Err(error).context("reading the response of the API server"))
    }

    /// All services of a namespace, or of all if that is empty, with the objects that they may use and those that were created for them.
    pub(super) async fn read_all(&self, namespace: &str) -> Result<World> {
        let mut world = World::default();
        progress::set("reading the services");
        for resource in SUBJECT_KINDS.iter().map(|kind| kind.resource).filter(|resource| self.available.contains(resource)) {
            self.put(&mut world, resource, namespace, "").await?;
        }
        progress::set("reading runtimes, models and what services reference");
        self.surroundings(&mut world, namespace).await?;
        progress::set("reading the objects of the services");
        // Pods show a service's health, and don't affect its plan.
        for resource in self.made().filter(|resource| *resource != &POD) {
            self.put(&mut world, resource, namespace, SUBJECT_KIND).await?;
        }
        world.set_available(self.available.clone());
        Ok(world)
    }

    /// The kinds that are only created for services.
    fn made(&self) -> impl Iterator<Item = &'static Resource> {
        let known = |resource: &Resource| {
            used().any(|used| used == resource) || ELSEWHERE.contains(&resource) || REFERENCED_KINDS.contains(&resource)
        };
        self.available.iter().copied().filter(move |resource| *resource != &NAMESPACE && !resource.is_subject() && !known(resource))
    }

    /// Puts a namespace into a world, or all if that is empty, with the objects that its services may use or name.
    pub(super) async fn surroundings(&self, world: &mut World, namespace: &str) -> Result<()> {
        if namespace.is_empty() {
            self.put(world, &NAMESPACE, "", "").await?;
        } else if let Some(namespace) = self.one(&NAMESPACE, "", namespace).await? {
            world.put(&NAMESPACE, &namespace);
        }
        let kinds = used().chain(ELSEWHERE).chain(REFERENCED_KINDS);
        for resource in kinds.filter(|resource| self.available.contains(*resource)) {
            let place = if ELSEWHERE.contains(&resource) { "" } else { namespace };
            self.put(world, resource, place, "").await?;
        }
        Ok(())
    }

    /// Puts the services into a world that rules count in addition to those of a namespace.
    pub(super) async fn crowd(&self, world: &mut World, rules: &Rules, namespace: &str) -> Result<()> {
        let place = match rules.sums() {
            None => return Ok(()),
            Some(LookupScope::Namespace) => namespace,
            Some(LookupScope::Cluster) => "",
        };
        for resource in SUBJECT_KINDS.iter().map(|kind| kind.resource).filter(|resource| self.available.contains(resource)) {
            self.put(world, resource, place, "").await?;
        }
        Ok(())
    }

    /// Puts the service that a benchmark measures into a world.
    async fn measured(&self, world: &mut World, benchmark: &Value, namespace: &str) -> Result<()> {
        let reference = &benchmark["spec"]["endpoint"]["inferenceService"];
        let kind = reference["kind"].as_str().unwrap_or("InferenceService");
        let resource = SUBJECT_KINDS.iter().map(|known| known.resource).find(|resource| resource.kind == kind);
        let (Some(name), Some(resource)) = (reference["name"].as_str(), resource.filter(|resource| self.available.contains(resource)))
        else {
            return Ok(());
        };
        let namespace = reference["namespace"].as_str().unwrap_or(namespace);
        if let Some(service) = self.one(resource, namespace, name).await? {
            world.put(resource, &service);
        }
        Ok(())
    }

    /// The active policies in the host's record. Blocks while plugins are compiled.
    pub(super) async fn policies(&self, host_namespace: &str, cache: &CacheArgs) -> Result<(Policies, Vec<String>)> {
        let loader = tokio::task::block_in_place(|| loader(cache))?;
        let (set, notes) = self.set(host_namespace, Arc::new(loader)).await?;
        Ok((Policies::new(set, Arc::new(Unheard)), notes))
    }

    /// The active set, and notes on members that can't be loaded.
    pub(super) async fn set(&self, host_namespace: &str, loader: Arc<Loader>) -> Result<(ActiveSet, Vec<String>)> {
        progress::set("loading the active policy set");
        let set = recorded(self.client.clone(), host_namespace, loader).await.map_err(|error| anyhow!(error))?;
        let missing = set.members().iter();
        let notes = missing.filter_map(|member| Some(format!("the plugin {} can't be loaded: {}", member.name(), member.missing()?)));
        let notes: Vec<String> = notes.collect();
        for note in &notes {
            output::note(note);
        }
        Ok((set, notes))
    }

    pub(super) fn api(&self, resource: &'static Resource, namespace: &str) -> Api<DynamicObject> {
        let (client, kind) = (self.client.clone(), resource.api_resource());
        if resource.namespaced && !namespace.is_empty() {
            Api::namespaced_with(client, namespace, &kind)
        } else {
            Api::all_with(client, &kind)
        }
    }
}

/// Passes one object after the other, page by page: those of a large cluster don't fit into memory together.
pub(super) async fn each_page<K>(api: &Api<K>, selector: &str, mut take: impl FnMut(K)) -> kube::Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut parameters = ListParams::default().labels(selector).limit(PAGE);
    loop {
        let page = api.list(&parameters).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => parameters.continue_token = Some(more),
            None => return Ok(()),
        }
    }
}

/// The inputs of `explain` for one service.
pub(super) async fn read(subject: &str, view: &ViewArgs) -> Result<Offline> {
    let ViewArgs { offline, cache, cluster, .. } = view;
    let (resource, name) = parse_subject(subject)?;
    let source = Source::connect(cluster).await?;
    let key = ObjectKey { resource, namespace: source.namespace(offline.namespace.as_deref()).to_owned(), name: name.to_owned() };
    let (policies, notes) = source.policies(&offline.host.host_namespace, cache).await?;
    let mut world = World::default();
    source.crowd(&mut world, policies.active().rules(), &key.namespace).await?;
    let subject = source.subject(&key).await?;
    world.put(key.resource, &subject);
    if *key.resource == BENCHMARK_JOB {
        source.measured(&mut world, &subject, &key.namespace).await?;
    }
    source.surroundings(&mut world, &key.namespace).await?;
    for resource in source.made() {
        let selector = if resource == &POD {
            let of_subject = SubjectKind::find(key.resource).map(|kind| format!(",{}={}", kind.pod_labels.subject, label_value(&key.name)));
            format!("{SUBJECT_KIND}={}{}", key.resource.kind, of_subject.unwrap_or_default())
        } else {
            SUBJECT_KIND.to_owned()
        };
        source.put(&mut world, resource, &key.namespace, &selector).await?;
    }
    world.set_available(source.available.clone());
    if *key.resource == INFERENCE_MODEL {
        source.put(&mut world, &INFERENCE_MODEL, "", "").await?;
        source.put(&mut world, &DEPLOYMENT, "", &format!("{SUBJECT_KIND}={}", INFERENCE_MODEL.kind)).await?;
        observe(&source, &mut world, &policies, &offline.host.host_namespace).await;
    }
    Ok(Offline { world, subjects: vec![key], policies, settings: offline.settings.settings(), notes, nodes: Vec::new() })
}

/// The kind and the name in KIND/NAME.
pub(super) fn parse_subject(subject: &str) -> Result<(&'static Resource, &str)> {
    match subject.split_once('/').map(|(word, name)| (word, SubjectKind::parse(word), name)) {
        Some((_, Some(kind), name)) if !name.is_empty() && !name.contains('/') => Ok((kind.resource, name)),
        Some((word, None, _)) => bail!(usage(format!("{word} is not a served kind: use {}", SubjectKind::list()))),
        _ => bail!(usage(format!("{subject:?} is not KIND/NAME: KIND is {}, and -n specifies the namespace", SubjectKind::list()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE};

    #[test]
    fn a_service_is_named_as_kubectl_takes_it() {
        for subject in ["isvc/a", "InferenceService/a", "inferenceservices.ome.io/a"] {
            assert_eq!(parse_subject(subject).unwrap(), (&INFERENCE_SERVICE, "a"), "{subject}");
        }
        assert_eq!(parse_subject("llmisvc/a").unwrap(), (&LLM_INFERENCE_SERVICE, "a"));
        for (subject, says) in [("a", "is not KIND/NAME"), ("pod/a", "not a served kind"), ("isvc/", "is not KIND/NAME")] {
            assert!(parse_subject(subject).unwrap_err().to_string().contains(says), "{subject}");
        }
    }
}
