//! Malicious tenants, with an API server and a host: most of their objects are accepted, the host reports on each subject, and it serves
//! another tenant's service and repairs it meanwhile.

use crate::services::{Space, fixed, home, own_cluster, with_model};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use pointsman_core::resource::{DEPLOYMENT, Resource};
use pointsman_samples::hostile_tenant;
use pointsman_tests::{Host, TestCluster, eventually, is_full};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use serde_json::{Value, json};

/// The number of tenants. Each has its own namespace.
fn tenants() -> usize {
    if is_full() { 400 } else { 40 }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.pointer(field).and_then(Value::as_str).unwrap_or_default()
}

/// The API for objects like this one.
fn api(client: &kube::Client, object: &Value) -> Api<DynamicObject> {
    let described = Resource::find(text(object, "/apiVersion"), text(object, "/kind")).unwrap().api_resource();
    match text(object, "/metadata/namespace") {
        "" => Api::all_with(client.clone(), &described),
        namespace => Api::namespaced_with(client.clone(), namespace, &described),
    }
}

/// Creates an object with its status, or returns the API server's error.
async fn create(client: &kube::Client, object: &Value) -> kube::Result<()> {
    let api = api(client, object);
    api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await?;
    if let Some(status) = object.get("status") {
        api.patch_status(text(object, "/metadata/name"), &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    }
    Ok(())
}

/// Whether the API server accepts an object. Prints the error if it doesn't.
async fn accepted(client: &kube::Client, object: &Value) -> bool {
    let created = create(client, object).await;
    if let Err(error) = &created {
        println!("{}: {}", text(object, "/kind"), error.to_string().chars().take(200).collect::<String>());
    }
    created.is_ok()
}

/// The namespace of a tenant with the objects that samples refer to. Its quota allows no pods, because some tenants request millions.
async fn settled(cluster: &TestCluster) -> &'static str {
    let space = cluster.namespace("hostile").await;
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    let quotas = Api::<ResourceQuota>::namespaced(space.client.clone(), &space.name);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let name: &'static str = space.name.clone().leak();
    for object in pointsman_samples::context(name).iter().filter(|object| object["kind"] != "Namespace") {
        match create(&space.client, object).await {
            // Cluster-wide objects exist since the first tenant, and the API server rejects some samples.
            Err(kube::Error::Api(status)) if [409, 422].contains(&status.code) => {}
            created => created.unwrap(),
        }
    }
    name
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_host_reports_on_every_hostile_subject_and_serves_another_tenant_meanwhile() {
    let cluster = own_cluster(None);
    home(&cluster).await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let calm = Space::on(&cluster, "calm").await;
    let client = cluster.client().await;

    let mut runner = TestRunner::deterministic();
    let mut subjects = Vec::new();
    for _ in 0..tenants() {
        let tenant = hostile_tenant(settled(&cluster).await).new_tree(&mut runner).unwrap().current();
        // The objects that the service refers to may be too large.
        for object in &tenant.context {
            accepted(&client, object).await;
        }
        if accepted(&client, &tenant.service).await {
            subjects.push(tenant.service);
        }
    }
    println!("{} of {} hostile subjects are accepted", subjects.len(), tenants());
    assert!(subjects.len() * 10 > tenants() * 6, "the API server accepts {} of {} hostile subjects", subjects.len(), tenants());

    calm.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    calm.ready("chat").await;
    let former = calm.get(&DEPLOYMENT, "chat-engine").await;
    calm.delete(&DEPLOYMENT, "chat-engine").await;
    calm.becomes(&DEPLOYMENT, "chat-engine", "it is there again", |now| now["metadata"]["uid"] != former["metadata"]["uid"]).await;

    for subject in &subjects {
        let api = api(&client, subject);
        let name = text(subject, "/metadata/name");
        let what = format!("{} {}/{name} is reported on", text(subject, "/kind"), text(subject, "/metadata/namespace"));
        eventually(&what, async || {
            let now = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
            let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["observedGeneration"] == now["metadata"]["generation"]).then_some(())
        })
        .await;
    }
    let (_, metrics) = host.get("/metrics").unwrap();
    assert!(metrics.contains("\npointsman_internal_errors_total 0\n"), "{metrics}");
    let quarantined = metrics.lines().filter(|line| line.starts_with("pointsman_policy_quarantined")).collect::<Vec<_>>();
    assert!(quarantined.iter().all(|line| line.ends_with(" 0")), "{quarantined:?}");
    calm.ready("chat").await;
    host.stop();
}
