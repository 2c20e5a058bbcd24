//! Plans for objects in the form of a cluster, with the built-in policies.

use crate::policies;
use pointsman::{keeper::builtins, load::Loader};
use pointsman_core::{
    decide::{Policies, Unheard},
    kinds,
    plan::Plan,
    planning,
    resource::Resource,
    settings::Settings,
    subject_kind::ALL,
    world::{ObjectKey, World},
};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The built-in policies.
pub(crate) fn decide() -> &'static Arc<Policies> {
    static POLICIES: OnceLock<Arc<Policies>> = OnceLock::new();
    POLICIES.get_or_init(|| {
        let loader = Loader::new(Arc::clone(policies::engines()), policies::compilers());
        Arc::new(Policies::new(builtins(&loader).unwrap(), Arc::new(Unheard)))
    })
}

pub(crate) fn resource(object: &Value) -> &'static Resource {
    let text = |field: &str| object[field].as_str().unwrap();
    Resource::find(text("apiVersion"), text("kind")).unwrap()
}

pub(crate) fn world<'a>(objects: impl IntoIterator<Item = &'a Value>) -> World {
    let mut world = World::default();
    for object in objects {
        world.put(resource(object), object);
    }
    world.set_available(ALL.iter().copied().collect());
    world
}

pub(crate) fn plan(world: &World, service: &Value) -> Plan {
    let text = |field: &str| service["metadata"][field].as_str().unwrap().to_owned();
    let key = ObjectKey { resource: resource(service), namespace: text("namespace"), name: text("name") };
    let snapshot = world.snapshot(&key, 1_000_000_000).unwrap();
    planning::plan(kinds::find(key.resource).unwrap(), snapshot, decide(), &Settings::default())
}
