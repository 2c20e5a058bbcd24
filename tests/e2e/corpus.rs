//! Manifests as OME's users have them, applied unchanged: each service becomes Ready, with the runtime and the objects that
//! `tests/corpus/expected.yaml` specifies.

use crate::services::{LastSeen, condition, own_cluster, played::play};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use pointsman_core::resource::{
    BASE_MODEL, CLUSTER_BASE_MODEL, DEPLOYMENT, FINE_TUNED_WEIGHT, HORIZONTAL_POD_AUTOSCALER, INFERENCE_SERVICE, KNATIVE_SERVICE,
    LEADER_WORKER_SET, RAY_CLUSTER, Resource, SCALED_OBJECT, SERVICE,
};
use pointsman_harness::workspace;
use pointsman_tests::{CommandOutput, Host, eventually, pointsman};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

/// In the order of their dependencies.
const FOLDERS: [&str; 3] = ["models", "runtimes", "services"];

/// The kinds that run pods.
const WORKLOADS: [&str; 4] = ["Deployment", "LeaderWorkerSet", "KnativeService", "RayCluster"];

/// An entry of `expected.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    service: String,
    runtime: Option<String>,
    modes: BTreeMap<String, String>,
    objects: BTreeSet<String>,
}

/// The outcome for a service.
#[derive(Debug, Default, PartialEq)]
struct Became {
    runtime: Option<String>,
    objects: BTreeSet<String>,
}

fn corpus(file: &str) -> PathBuf {
    workspace().join("tests/corpus").join(file)
}

/// `-f FOLDER` for each folder of the corpus.
fn folders() -> Vec<String> {
    FOLDERS.iter().flat_map(|folder| ["-f".to_owned(), corpus(folder).display().to_string()]).collect()
}

/// The expected outcome of each service, by `NAMESPACE/NAME`.
fn expected() -> BTreeMap<String, Became> {
    let text = fs::read_to_string(corpus("expected.yaml")).unwrap();
    let expected: Vec<Expected> = serde_saphyr::from_str(&text).unwrap();
    let count = expected.len();
    let by_service: BTreeMap<_, _> = expected
        .into_iter()
        .map(|expected| {
            let workloads = |object: &&String| WORKLOADS.contains(&object.split(' ').next().unwrap_or_default());
            let named: BTreeSet<String> = expected.objects.iter().filter(workloads).cloned().collect();
            assert_eq!(named, workloads_of(&expected), "the modes and the objects of {} disagree", expected.service);
            (expected.service, Became { runtime: expected.runtime, objects: expected.objects })
        })
        .collect();
    assert_eq!(by_service.len(), count, "expected.yaml names a service twice");
    by_service
}

/// The workload kinds of a service, by the modes of its components.
fn workloads_of(expected: &Expected) -> BTreeSet<String> {
    let (_, name) = expected.service.split_once('/').unwrap();
    let workload = |(component, mode): (&String, &String)| match mode.as_str() {
        "RawDeployment" => format!("Deployment {name}-{component}"),
        "MultiNode" => format!("LeaderWorkerSet {name}-{component}-mn"),
        "Serverless" => format!("KnativeService {name}-{component}"),
        "MultiNodeRayVLLM" => format!("RayCluster {name}-{component}-*"),
        other => panic!("{}: there is no mode {other}", expected.service),
    };
    expected.modes.iter().map(workload).collect()
}

/// The kinds that are compared, under their names in expected.yaml.
static COMPARED: [(&str, &Resource); 7] = [
    ("Deployment", &DEPLOYMENT),
    ("LeaderWorkerSet", &LEADER_WORKER_SET),
    ("KnativeService", &KNATIVE_SERVICE),
    ("RayCluster", &RAY_CLUSTER),
    ("HorizontalPodAutoscaler", &HORIZONTAL_POD_AUTOSCALER),
    ("ScaledObject", &SCALED_OBJECT),
    ("Service", &SERVICE),
];

/// The service that an object belongs to, and the object as expected.yaml writes it.
fn made_for(called: &str, object: &Value) -> Option<(String, String)> {
    let metadata = &object["metadata"];
    // The children of a workload have its labels; only objects with the service as an owner are ours. Offline, no object has an owner.
    let owners = metadata["ownerReferences"].as_array();
    if owners.is_some_and(|owners| owners.iter().all(|owner| owner["kind"] != "InferenceService")) {
        return None;
    }
    let service = metadata["labels"]["serving.ome.io/inferenceservice"].as_str()?;
    let name = metadata["name"].as_str()?;
    // A RayCluster is immutable, so each revision has its own.
    let name = match name.rsplit_once('-') {
        Some((rest, _)) if called == "RayCluster" => format!("{rest}-*"),
        _ => name.to_owned(),
    };
    Some((format!("{}/{service}", metadata["namespace"].as_str()?), format!("{called} {name}")))
}

fn everywhere(client: &Client, resource: &Resource) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource.api_resource())
}

/// All objects of a kind in all namespaces.
async fn all(client: &Client, resource: &Resource) -> Vec<Value> {
    let listed = everywhere(client, resource).list(&ListParams::default()).await.unwrap();
    listed.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

async fn patch_status(client: &Client, resource: &Resource, object: &Value, status: Value) {
    let metadata = &object["metadata"];
    let api = match metadata["namespace"].as_str() {
        Some(namespace) => Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource.api_resource()),
        None => everywhere(client, resource),
    };
    let change = Patch::Merge(json!({"status": status}));
    api.patch_status(metadata["name"].as_str().unwrap(), &PatchParams::default(), &change).await.unwrap();
}

/// The labels of nodes that hold models with long names: OME's agent joins the start of the name's hash and the end of the name.
const SHORTENED: [(&str, &str); 2] = [
    ("llama-3-3-70b-instruct-fp8-dynamic", "24cc880d-0b-instruct-fp8-dynamic"),
    ("llama-4-maverick-17b-128e-instruct-fp8", "321a5921-k-17b-128e-instruct-fp8"),
];

/// Acts as the nodes' agent: reports every model as Ready and labels the nodes that hold it.
async fn download(client: &Client) {
    let mut labels = Map::new();
    for resource in [&CLUSTER_BASE_MODEL, &BASE_MODEL, &FINE_TUNED_WEIGHT] {
        for model in all(client, resource).await {
            let metadata = &model["metadata"];
            let name = metadata["name"].as_str().unwrap();
            let short = SHORTENED.iter().find_map(|(long, short)| (*long == name).then_some(*short)).unwrap_or(name);
            match metadata["namespace"].as_str() {
                Some(namespace) => labels.insert(format!("models.ome.io/{namespace}.basemodel.{short}"), "Ready".into()),
                None => labels.insert(format!("models.ome.io/clusterbasemodel.{short}"), "Ready".into()),
            };
            patch_status(client, resource, &model, json!({"state": "Ready"})).await;
        }
    }
    let nodes = Api::<Node>::all(client.clone());
    let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
    for node in nodes.list(&ListParams::default()).await.unwrap().items {
        nodes.patch(&node.metadata.name.unwrap(), &PatchParams::default(), &change).await.unwrap();
    }
}

fn name_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn is_ready(service: &Value) -> bool {
    let ready = condition(service, "Ready");
    ready["status"] == "True"
        && ready["observedGeneration"] == service["metadata"]["generation"]
        && service["status"]["modelStatus"]["transitionStatus"] == "UpToDate"
}

/// Reports every service that differs, not only the first one.
fn compare(became: &BTreeMap<String, Became>, expected: &BTreeMap<String, Became>) {
    let names: BTreeSet<&String> = became.keys().chain(expected.keys()).collect();
    let different = names.into_iter().filter(|name| became.get(*name) != expected.get(*name));
    let told: Vec<String> =
        different.map(|name| format!("{name}\n  expected {:?}\n  became {:?}", expected.get(name), became.get(name))).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn every_service_of_the_corpus_becomes_ready_as_it_is() {
    let cluster = own_cluster(None);
    cluster.add_nodes(&fs::read_to_string(corpus("nodes.yaml")).unwrap()).unwrap();
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let folders = folders();
    let files = folders.iter().map(String::as_str);
    cluster.kubectl(&["apply"].into_iter().chain(files).collect::<Vec<_>>()).ok();

    let client = cluster.client().await;
    download(&client).await;
    let _play = play([everywhere(&client, &KNATIVE_SERVICE), everywhere(&client, &RAY_CLUSTER)]);
    let last = LastSeen::default();
    let services = eventually("every service of the corpus is Ready", async || {
        let services = all(&client, &INFERENCE_SERVICE).await;
        let waiting = services.iter().filter(|service| !is_ready(service));
        let told: Vec<String> = waiting.map(|service| format!("{}: {}", name_of(service), condition(service, "Ready"))).collect();
        last.note(told.join("\n"));
        told.is_empty().then_some(services)
    })
    .await;

    let mut became: BTreeMap<String, Became> = services
        .iter()
        .map(|service| {
            let runtime = service["status"]["runtime"]["name"].as_str().map(str::to_owned);
            (name_of(service), Became { runtime, ..Became::default() })
        })
        .collect();
    for (called, resource) in COMPARED {
        for (service, object) in all(&client, resource).await.iter().filter_map(|object| made_for(called, object)) {
            became.entry(service).or_default().objects.insert(object);
        }
    }
    compare(&became, &expected());
}

#[test]
fn offline_the_corpus_becomes_the_same() {
    let said = CommandOutput::by(Command::new(pointsman()).args(["render", "-o", "json"]).args(folders())).ok();
    let list: Value = serde_json::from_str(&said).unwrap();
    let mut became: BTreeMap<String, Became> = BTreeMap::new();
    for object in list["items"].as_array().unwrap() {
        let is = |resource: &Resource| object["apiVersion"] == resource.api_version() && object["kind"] == resource.kind;
        let Some((called, _)) = COMPARED.iter().find(|(_, resource)| is(resource)) else { continue };
        let (service, told) = made_for(called, object).unwrap_or_else(|| panic!("it is for no service: {object:#}"));
        let became = became.entry(service).or_default();
        became.runtime = object["metadata"]["labels"]["serving.ome.io/runtime"].as_str().map(str::to_owned);
        became.objects.insert(told);
    }
    compare(&became, &expected());
}
