//! The API server accepts the objects that are planned for random services.

use k8s_openapi::{api::core::v1::ServiceAccount, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use pointsman::{keeper::builtins, load::Loader};
use pointsman_core::{
    decide::{Policies, Unheard},
    kinds, planning,
    resource::{INFERENCE_SERVICE, KNATIVE_SERVICE, LLM_D_INFERENCE_OBJECTIVE, LLM_INFERENCE_SERVICE, Resource},
    settings::{Gateway, Settings},
    subject_kind::ALL,
    world::{ObjectKey, World},
};
use pointsman_sandbox::{compile::Compilers, engine::Engines};
use pointsman_tests::{TestCluster, compiled, pointsman};
use proptest::{
    strategy::{BoxedStrategy, Strategy, ValueTree},
    test_runner::TestRunner,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The number of generated services per kind.
const SERVICES: usize = 300;

fn put(world: &mut World, object: &Value) {
    let text = |field: &str| object[field].as_str().unwrap();
    world.put(Resource::find(text("apiVersion"), text("kind")).unwrap(), object);
}

/// The built-in policies.
pub(crate) fn policies() -> Policies {
    let loader = Loader::new(Arc::new(Engines::with_slots(8).unwrap()), Compilers::new(pointsman(), &compiled()).unwrap());
    Policies::new(builtins(&loader).unwrap(), Arc::new(Unheard))
}

/// A world for generated services, with one of them.
pub(crate) fn world_of(namespace: &str, service: &Value) -> World {
    let mut world = World::default();
    pointsman_samples::context(namespace).iter().chain([service]).for_each(|object| put(&mut world, object));
    // llm-d's CRDs aren't installed here.
    world.set_available(ALL.iter().copied().filter(|resource| *resource != &LLM_D_INFERENCE_OBJECTIVE).collect());
    world
}

/// Plans generated services of a kind, and sends each object to the API server in a dry run.
async fn taken(kind: &'static Resource, services: fn(&'static str) -> BoxedStrategy<Value>) {
    let cluster = TestCluster::shared();
    let namespace = cluster.namespace("plans").await;
    let name: &'static str = namespace.name.clone().leak();
    let policies = policies();
    let gateway = Gateway { namespace: "gateways".into(), name: "public".into(), domain: "example.com".into() };
    let prometheus = Some("http://prometheus:9090".to_owned());
    let settings = Settings { gateway: Some(gateway), prometheus, ..Settings::default() };

    let (mut planned, mut written) = (0, 0);
    let mut runner = TestRunner::deterministic();
    for _ in 0..SERVICES {
        let mut service = services(name).new_tree(&mut runner).unwrap().current();
        let api = Api::<DynamicObject>::namespaced_with(namespace.client.clone(), name, &kind.api_resource());
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let taken = api.create(&dry, &serde_json::from_value(service.clone()).unwrap()).await;
        let taken = taken.unwrap_or_else(|error| panic!("the service isn't one: {error}\n{service:#}"));

        service["metadata"]["uid"] = taken.metadata.uid.clone().unwrap_or_else(|| "1".to_owned()).into();
        let world = world_of(name, &service);
        let key = ObjectKey { resource: kind, namespace: name.into(), name: service["metadata"]["name"].as_str().unwrap().into() };
        let snapshot = world.snapshot(&key, 0).unwrap();
        let plan = planning::plan(kinds::find(kind).unwrap(), snapshot, &policies, &settings);
        let Some(objects) = plan.objects else {
            let said = plan.status.conditions.iter().find(|condition| condition.status == Some(false)).unwrap();
            assert!(said.message.len() > 20, "a plan that isn't made must say why: {said:?}");
            continue;
        };
        planned += 1;
        for object in &objects {
            let api = Api::<DynamicObject>::namespaced_with(namespace.client.clone(), name, &object.key.resource.api_resource());
            let params = PatchParams { dry_run: true, force: true, field_manager: Some("test".into()), ..PatchParams::default() };
            let whole = object.manifest();
            // A dry run of a Knative Service also creates its pod, which requires its ServiceAccount.
            if let Some(account) =
                whole["spec"]["template"]["spec"]["serviceAccountName"].as_str().filter(|_| *object.key.resource == KNATIVE_SERVICE)
            {
                let accounts = Api::<ServiceAccount>::namespaced(namespace.client.clone(), name);
                let account = ServiceAccount {
                    metadata: ObjectMeta { name: Some(account.to_owned()), ..ObjectMeta::default() },
                    ..ServiceAccount::default()
                };
                // It may exist already.
                let _there = accounts.create(&PostParams::default(), &account).await;
            }
            if let Err(error) = api.patch(&object.key.name, &params, &Patch::Apply(&whole)).await {
                panic!("{error}\n{whole:#}\nfor\n{}", json!(service["spec"]));
            }
            written += 1;
        }
    }
    assert!(planned > SERVICES / 5, "only {planned} of {SERVICES} services came to a plan");
    assert!(written > planned * 4, "{written} objects for {planned} services");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_api_server_takes_the_plan_of_any_service_that_it_takes() {
    taken(&INFERENCE_SERVICE, pointsman_samples::service).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_api_server_takes_the_plan_of_any_llm_service_that_it_takes() {
    taken(&LLM_INFERENCE_SERVICE, pointsman_samples::llm_service).await;
}
