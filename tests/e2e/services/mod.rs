//! Inference services end to end: their objects and pods, on an embedded control plane with its real controllers.

mod choice;
mod healing;
mod inputs;
mod labels;
mod modes;
mod neighbours;
pub(crate) mod played;
pub(crate) mod policies;
mod quiet;
mod ray;
mod scaling;
mod serverless;
mod trouble;

use k8s_openapi::api::core::v1::{Event, Namespace, Node};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use pointsman_core::{
    resource::{
        BASE_MODEL, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, HTTP_ROUTE, INFERENCE_POOL, INFERENCE_SERVICE, JOB, KNATIVE_SERVICE,
        LEADER_WORKER_SET, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, POD, POD_DISRUPTION_BUDGET, RAY_CLUSTER, ROLE, ROLE_BINDING, Resource,
        SCALED_OBJECT, SERVICE, SERVICE_ACCOUNT, SERVING_RUNTIME,
    },
    subject_kind::SUBJECT_KINDS,
    world::child::SUBJECT_KIND,
};
use pointsman_tests::{CommandOutput, Host, TestCluster, TestNamespace, eventually, grants::host_user};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};
use tokio::sync::OnceCell;

/// The start of our host's user agent in the audit log.
pub(crate) const AGENT: &str = "pointsman/";

/// The kinds of a service's objects.
pub(crate) static CHILDREN: [&Resource; 16] = [
    &DEPLOYMENT,
    &HORIZONTAL_POD_AUTOSCALER,
    &HTTP_ROUTE,
    &INFERENCE_POOL,
    &JOB,
    &KNATIVE_SERVICE,
    &LEADER_WORKER_SET,
    &NETWORK_POLICY,
    &PERSISTENT_VOLUME_CLAIM,
    &POD_DISRUPTION_BUDGET,
    &RAY_CLUSTER,
    &ROLE,
    &ROLE_BINDING,
    &SCALED_OBJECT,
    &SERVICE,
    &SERVICE_ACCOUNT,
];

/// A namespace with the objects that a service needs: a model that is ready, and a suitable runtime.
pub(crate) struct Space<'a>(pub(crate) TestNamespace<'a>);

/// Creates the namespace of hosts.
pub(crate) async fn home(cluster: &TestCluster) {
    let mut home = Namespace::default();
    home.metadata.name = Some(pointsman_core::settings::HOST_NAMESPACE.to_owned());
    match Api::all(cluster.client().await).create(&PostParams::default(), &home).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        made => drop(made.unwrap()),
    }
}

/// A control plane for one test, with all parts and CRDs but only some neighbours.
pub(crate) fn own_cluster(neighbours: Option<&[&str]>) -> TestCluster {
    let neighbours = neighbours.map(|some| some.iter().map(ToString::to_string).collect());
    TestCluster::with_our_crds(pointsman_harness::Options { neighbours, ..Default::default() })
}

/// The spec of a runtime whose engine is one container.
pub(crate) fn simple_runtime() -> Value {
    json!({
        "supportedModelFormats": [{"modelFormat": {"name": "checkpoint"}, "autoSelect": true}],
        "engineConfig": {"runner": {"name": "ome-container", "image": "example.com/engine:1", "ports": [{"containerPort": 8000}]}},
    })
}

/// The spec of a service that uses its runtime's defaults, plus more.
pub(crate) fn with_model(more: Value) -> Value {
    let Value::Object(mut spec) = more else { panic!("{more} is no spec") };
    spec.insert("model".to_owned(), json!({"name": "model", "kind": "BaseModel"}));
    spec.into()
}

/// A component with a fixed number of replicas.
pub(crate) fn fixed(replicas: u32) -> Value {
    json!({"minReplicas": replicas, "maxReplicas": replicas})
}

/// The last observation, which is printed if a test fails.
#[derive(Default)]
pub(crate) struct LastSeen(Mutex<String>);

impl LastSeen {
    pub(crate) fn note(&self, seen: impl Into<String>) {
        *self.0.lock().unwrap() = seen.into();
    }
}

impl Drop for LastSeen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seen last: {}", self.0.lock().unwrap());
        }
    }
}

impl<'a> Space<'a> {
    /// A namespace on the shared control plane, where one host serves all of these tests.
    pub(crate) async fn shared(what: &str) -> Space<'static> {
        static HOST: OnceCell<Host<'static>> = OnceCell::const_new();
        let cluster = TestCluster::shared();
        HOST.get_or_init(async || {
            home(cluster).await;
            let host = Host::start(cluster, &[]).await;
            host.ready().await;
            host
        })
        .await;
        Space::on(cluster, what).await
    }

    /// A namespace on a control plane with a host, or with a later one.
    pub(crate) async fn on(cluster: &'a TestCluster, what: &str) -> Self {
        let space = Self::bare(cluster, what).await;
        space.furnish().await;
        space
    }

    /// Creates the model and the runtime.
    pub(crate) async fn furnish(&self) {
        self.model("model").await;
        self.create(&SERVING_RUNTIME, "runtime", json!({"spec": simple_runtime()})).await;
    }

    /// A namespace without a model and a runtime.
    pub(crate) async fn bare(cluster: &'a TestCluster, what: &str) -> Self {
        Self(cluster.namespace(&format!("isvc-{what}")).await)
    }

    /// A namespace without a model and a runtime, on the shared control plane.
    pub(crate) async fn shared_bare(what: &str) -> Space<'static> {
        drop(Space::shared("host").await);
        Space::bare(TestCluster::shared(), what).await
    }

    pub(crate) fn api(&self, resource: &Resource) -> Api<DynamicObject> {
        Api::namespaced_with(self.0.client.clone(), &self.0.name, &resource.api_resource())
    }

    pub(crate) async fn create(&self, resource: &Resource, name: &str, more: Value) -> Value {
        let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object["metadata"]["name"] = name.into();
        let object = serde_json::from_value(object).unwrap();
        serde_json::to_value(self.api(resource).create(&PostParams::default(), &object).await.unwrap()).unwrap()
    }

    pub(crate) async fn patch(&self, resource: &Resource, name: &str, change: Value) -> Value {
        let made = self.api(resource).patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        serde_json::to_value(made).unwrap()
    }

    pub(crate) async fn patch_status(&self, resource: &Resource, name: &str, status: Value) {
        let change = Patch::Merge(json!({"status": status}));
        self.api(resource).patch_status(name, &PatchParams::default(), &change).await.unwrap();
    }

    pub(crate) async fn delete(&self, resource: &Resource, name: &str) {
        self.api(resource).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// An object, if it exists.
    pub(crate) async fn find(&self, resource: &Resource, name: &str) -> Option<Value> {
        self.api(resource).get_opt(name).await.unwrap().map(|object| serde_json::to_value(object).unwrap())
    }

    /// An object that must exist.
    pub(crate) async fn get(&self, resource: &Resource, name: &str) -> Value {
        self.find(resource, name).await.unwrap_or_else(|| panic!("there is no {} {name}", resource.kind))
    }

    /// Waits until an object is as expected.
    pub(crate) async fn becomes(&self, resource: &Resource, name: &str, what: &str, expected: impl Fn(&Value) -> bool) -> Value {
        let last = LastSeen::default();
        eventually(&format!("{} {name}: {what}", resource.kind), async || {
            let found = self.find(resource, name).await;
            last.note(format!("{found:#?}"));
            found.filter(&expected)
        })
        .await
    }

    /// Waits until an object is gone.
    pub(crate) async fn goes(&self, resource: &Resource, name: &str) {
        eventually(&format!("{} {name} goes", resource.kind), async || self.find(resource, name).await.is_none().then_some(())).await;
    }

    /// A model that is ready, on the nodes for ordinary pods.
    pub(crate) async fn model(&self, name: &str) {
        self.unready_model(name, json!({})).await;
        self.patch_status(&BASE_MODEL, name, json!({"state": "Ready"})).await;
    }

    pub(crate) async fn unready_model(&self, name: &str, more: Value) {
        let mut spec =
            json!({"modelFormat": {"name": "checkpoint"}, "modelParameterSize": "7B", "storage": {"storageUri": "hf://some/model"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.create(&BASE_MODEL, name, json!({"spec": spec})).await;
        let label = format!("models.ome.io/{}.basemodel.{name}", self.0.name);
        let nodes = Api::<Node>::all(self.0.client.clone());
        for node in ["cpu-0", "cpu-1", "cpu-2"] {
            let change = Patch::Merge(json!({"metadata": {"labels": {&label: "Ready"}}}));
            nodes.patch(node, &PatchParams::default(), &change).await.unwrap();
        }
    }

    pub(crate) async fn service(&self, name: &str, spec: Value) -> Value {
        self.create(&INFERENCE_SERVICE, name, json!({"spec": spec})).await
    }

    /// A service with annotations.
    pub(crate) async fn annotated(&self, name: &str, annotations: Value, spec: Value) -> Value {
        self.create(&INFERENCE_SERVICE, name, json!({"metadata": {"annotations": annotations}, "spec": spec})).await
    }

    pub(crate) async fn annotate(&self, name: &str, annotations: Value) {
        self.patch(&INFERENCE_SERVICE, name, json!({"metadata": {"annotations": annotations}})).await;
    }

    pub(crate) async fn change(&self, name: &str, spec: Value) {
        self.patch(&INFERENCE_SERVICE, name, json!({"spec": spec})).await;
    }

    /// Waits until a condition of a service has this status and reason for the service's newest generation. Returns its message.
    pub(crate) async fn says(&self, name: &str, type_: &str, status: &str, reason: &str) -> String {
        self.says_of(&INFERENCE_SERVICE, name, type_, status, reason).await
    }

    /// The same for another kind.
    pub(crate) async fn says_of(&self, resource: &Resource, name: &str, type_: &str, status: &str, reason: &str) -> String {
        let expected = |service: &Value| {
            let told = condition(service, type_);
            (told["status"].as_str(), told["reason"].as_str()) == (Some(status), Some(reason))
                && told["observedGeneration"] == service["metadata"]["generation"]
        };
        let service = self.becomes(resource, name, &format!("{type_} is {status} {reason}"), expected).await;
        condition(&service, type_)["message"].as_str().unwrap().to_owned()
    }

    /// Waits until a service is Ready with all its pods of the newest revision, and returns it.
    pub(crate) async fn ready(&self, name: &str) -> Value {
        let expected = |service: &Value| {
            let ready = condition(service, "Ready");
            ready["status"] == "True"
                && ready["observedGeneration"] == service["metadata"]["generation"]
                && service["status"]["modelStatus"]["transitionStatus"] == "UpToDate"
        };
        self.becomes(&INFERENCE_SERVICE, name, "it is Ready and UpToDate", expected).await
    }

    /// Creates a service and waits until it is Ready.
    pub(crate) async fn serves(&self, name: &str, spec: Value) -> Value {
        self.service(name, spec).await;
        self.ready(name).await
    }

    /// All objects in this namespace that hosts have created, as `Kind name`.
    pub(crate) async fn made(&self) -> BTreeSet<String> {
        let mut made = BTreeSet::new();
        for resource in CHILDREN {
            let ours = ListParams::default().labels(SUBJECT_KIND);
            let listed = match self.api(resource).list(&ours).await {
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                listed => listed.unwrap(),
            };
            // The children of a workload have its labels; only objects with a service as an owner are ours.
            let owned = listed.items.into_iter().filter(|object| {
                object
                    .metadata
                    .owner_references
                    .iter()
                    .flatten()
                    .any(|owner| SUBJECT_KINDS.iter().any(|kind| kind.resource.kind == owner.kind))
            });
            made.extend(owned.map(|object| format!("{} {}", resource.kind, object.metadata.name.unwrap())));
        }
        made
    }

    /// The pods of a service, by name.
    pub(crate) async fn pods(&self, service: &str) -> BTreeMap<String, Value> {
        self.pods_with(&format!("serving.ome.io/inferenceservice={service}")).await
    }

    /// The pods that a selector finds, by name.
    pub(crate) async fn pods_with(&self, selector: &str) -> BTreeMap<String, Value> {
        let pods = self.api(&POD).list(&ListParams::default().labels(selector)).await.unwrap().items;
        pods.into_iter().map(|pod| (pod.metadata.name.clone().unwrap(), serde_json::to_value(pod).unwrap())).collect()
    }

    /// The pods behind a Service, in order.
    pub(crate) fn reached(&self, service: &str) -> Vec<String> {
        let selector = format!("kubernetes.io/service-name={service}");
        let slices: Value = serde_json::from_str(&self.kubectl(&["get", "endpointslices", "-l", &selector, "-o", "json"]).ok()).unwrap();
        let endpoints = slices["items"].as_array().unwrap().iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let mut names: Vec<String> = endpoints.filter_map(|endpoint| endpoint["targetRef"]["name"].as_str().map(str::to_owned)).collect();
        names.sort();
        names
    }

    /// Waits until a Service reaches exactly these pods. Its endpoints follow the readiness of pods with a delay.
    pub(crate) async fn reaches(&self, service: &str, pods: &[&str]) {
        eventually(&format!("the Service {service} reaches {pods:?} and no others"), async || {
            (self.reached(service) == pods).then_some(())
        })
        .await;
    }

    /// The uids of a service's pods. They change with a restart.
    pub(crate) async fn pod_uids(&self, service: &str) -> BTreeSet<String> {
        self.pods(service).await.values().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    }

    /// The events about a service: type, reason and note.
    pub(crate) async fn events(&self, service: &str) -> Vec<(String, String, String)> {
        let events = Api::<Event>::namespaced(self.0.client.clone(), &self.0.name).list(&ListParams::default()).await.unwrap();
        let about = events.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(service));
        about.map(|event| (event.type_.unwrap_or_default(), event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }

    /// Waits for a warning about a service, and returns its note.
    pub(crate) async fn warned(&self, service: &str, reason: &str) -> String {
        eventually(&format!("a warning {reason} about {service}"), async || {
            let events = self.events(service).await;
            events.into_iter().find_map(|(type_, why, note)| (type_ == "Warning" && why == reason).then_some(note))
        })
        .await
    }

    /// The writes of our host in this namespace so far, without those to runtimes.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.all_writes().0
    }

    /// Those and the writes to runtimes: the host updates their users in their status with a delay.
    pub(crate) fn all_writes(&self) -> (Vec<String>, Vec<String>) {
        let all = writes(self.0.cluster, |request| request["objectRef"]["namespace"] == self.0.name.as_str());
        all.into_iter().partition(|write| !write.contains(" servingruntimes/"))
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> CommandOutput {
        self.0.cluster.kubectl(&[&["-n", &self.0.name], args].concat())
    }
}

/// The hosts' writes without those to the Lease, and the number of the latter.
pub(crate) fn writes_and_renewals(cluster: &TestCluster) -> (Vec<String>, usize) {
    let host = host_user();
    let all = writes(cluster, |request| request["user"]["username"] == *host);
    let (renewals, others): (Vec<String>, Vec<String>) = all.into_iter().partition(|write| write.contains(" leases/"));
    (others, renewals.len())
}

/// Only the writes that the API server accepted: the host repeats rejected ones, while a webhook moves to another pod.
pub(crate) fn accepted_writes(cluster: &TestCluster) -> Vec<String> {
    let host = host_user();
    let is_accepted = |request: &Value| request["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
    let all = writes(cluster, |request| request["user"]["username"] == *host && is_accepted(request));
    all.into_iter().filter(|write| !write.contains(" leases/")).collect()
}

/// Waits until hosts write nothing but their Lease.
pub(crate) async fn hosts_rest(cluster: &TestCluster) {
    let (mut before, mut since) = writes_and_renewals(cluster);
    let last = LastSeen::default();
    eventually("the hosts write nothing but their Lease", async || {
        let (now, renewals) = writes_and_renewals(cluster);
        if now != before {
            last.note(format!("{:#?}", &now[before.len()..]));
            (before, since) = (now, renewals);
        }
        // Remaining reports are written within 5 s, and the Lease is renewed every 2 s.
        (renewals >= since + 4).then_some(())
    })
    .await;
}

/// The writes of our hosts, as `verb resource/name/subresource`.
fn writes(cluster: &TestCluster, such: impl Fn(&Value) -> bool) -> Vec<String> {
    let reads = ["get", "list", "watch"];
    let requests = cluster.requests().into_iter().filter(|request| {
        request["userAgent"].as_str().is_some_and(|agent| agent.starts_with(AGENT))
            && !reads.contains(&request["verb"].as_str().unwrap_or_default())
            && such(request)
    });
    let told = requests.map(|request| {
        let text = |field: &str| request["objectRef"][field].as_str().unwrap_or_default().to_owned();
        let verb = request["verb"].as_str().unwrap_or_default();
        let whole = format!("{verb} {}/{}/{}", text("resource"), text("name"), text("subresource"));
        whole.trim_end_matches('/').to_owned()
    });
    told.collect()
}

/// A condition of an object; null if there is none.
pub(crate) fn condition(object: &Value, type_: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == type_).cloned().unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

pub(crate) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap()
}

pub(crate) fn set<const N: usize>(items: [&str; N]) -> BTreeSet<String> {
    items.map(str::to_owned).into()
}
