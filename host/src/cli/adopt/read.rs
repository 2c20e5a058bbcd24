//! The selected services, with all of their objects, in their current state.

use super::AdoptArgs;
use crate::{
    cli::live::{Source, parse_subject},
    watch::made,
};
use anyhow::Result;
use pointsman_core::{resource::Resource, subject_kind::SUBJECT_KINDS, world::ObjectKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A service and its objects.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) key: ObjectKey,
    pub(super) object: Value,
    pub(super) children: Vec<(ObjectKey, Value)>,
}

impl Service {
    pub(super) fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &'static str {
        self.key.resource.kind
    }
}

/// The services, and all names that are in use in their namespaces.
pub(super) struct AdoptableServices {
    pub(super) services: Vec<Service>,
    pub(super) taken: BTreeSet<ObjectKey>,
}

pub(super) async fn find(source: &Source, args: &AdoptArgs) -> Result<AdoptableServices> {
    let mut services: Vec<Service> = Vec::new();
    let namespace = source.namespace(args.namespace.as_deref());
    if args.subjects.is_empty() {
        let namespace = if args.all_namespaces { "" } else { namespace };
        for resource in SUBJECT_KINDS.iter().map(|kind| kind.resource).filter(|resource| source.available.contains(resource)) {
            for object in source.list(resource, namespace, "").await? {
                services.push(Service { key: key(resource, &object), object, children: Vec::new() });
            }
        }
    }
    for subject in &args.subjects {
        let (resource, name) = parse_subject(subject)?;
        let key = ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() };
        let object = source.subject(&key).await?;
        services.push(Service { key, object, children: Vec::new() });
    }
    services.retain(|service| service.object["metadata"]["deletionTimestamp"].is_null());
    let mut found = AdoptableServices { services, taken: BTreeSet::new() };
    let owner_key = |service: &Service| (service.key.namespace.clone(), service.uid().to_owned());
    let by_uid: BTreeMap<(String, String), usize> =
        found.services.iter().enumerate().map(|(at, service)| (owner_key(service), at)).collect();
    for namespace in found.services.iter().map(|service| service.key.namespace.clone()).collect::<BTreeSet<_>>() {
        for resource in made().filter(|resource| resource.neighbour.is_none() || source.available.contains(resource)) {
            for object in source.list(resource, &namespace, "").await? {
                let key = key(resource, &object);
                found.taken.insert(key.clone());
                let there = object["metadata"]["deletionTimestamp"].is_null();
                if let Some(at) = owner(&object).filter(|_| there).and_then(|uid| by_uid.get(&(namespace.clone(), uid.to_owned()))) {
                    found.services[*at].children.push((key, object));
                }
            }
        }
    }
    Ok(found)
}

pub(super) fn key(resource: &'static Resource, object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    ObjectKey { resource, namespace: text("namespace"), name: text("name") }
}

/// The uid of an object's owner.
fn owner(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}
