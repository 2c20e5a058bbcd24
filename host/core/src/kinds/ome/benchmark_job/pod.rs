//! Builds the Job: its pod, and the labels and annotations of both.

use super::{
    ACCEPTED, PlanBuilder, PlanError,
    arguments::{API_KEY, Arguments},
    endpoint::Endpoint,
    served::Tokenizer,
    spec::Accepted,
    storage::{self, DATASET_CONFIG, Dataset, Storage},
};
use crate::{
    kinds::questions::{MetadataQuestion, PodRole, TemplateQuestion},
    model_nodes::names::node_label,
    objects::Metadata,
    question::entries,
    settings::BENCHMARK_IMAGE,
    subject_kind::{APP_COMPONENT, BENCHMARK_CONTAINER, BENCHMARK_NAME},
    world::{ObjectKey, child::VERSION, ome::ModelView},
};
use pointsman_crds::ome::benchmark_job::PodOverride;
use pointsman_sandbox::{
    digest::Digested,
    point::{Entry, Role, mirrored, propagation, templating::Layer},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The component label of the pods.
const COMPONENT: &str = "benchmark";

/// The label that OME's own controller sets.
const UPSTREAM_LABEL: &str = "benchmark";

/// The label that Oracle's log collector selects.
const LOGGING_FORWARD: &str = "logging-forward";

/// The default resources of the benchmark container.
const CPU: &str = "2";
const MEMORY: &str = "2Gi";

/// The taint of GPU nodes, which have the model's files.
const GPU_TAINT: &str = "nvidia.com/gpu";

/// The init container with which policies download a dataset.
const DATASET_INITIALIZER: &str = "dataset-initializer";

/// The key in the Hugging Face Secret, which is also OME's name of the variable.
const HUGGING_FACE_KEY: &str = "HUGGINGFACE_API_KEY";
/// The variable that the tool reads.
const HUGGING_FACE_TOKEN: &str = "HF_TOKEN";

const PLACE: PodRole = PodRole { role: Role::Job, group: None };

/// The immutable fields of a Job's spec.
pub(super) fn fixed(template: Option<Value>) -> Map<String, Value> {
    template.into_iter().map(|template| ("template".to_owned(), template)).collect()
}

impl PlanBuilder<'_> {
    /// The fields of the Job's spec that may change at any time.
    pub(super) fn changeable(&self) -> Map<String, Value> {
        let (backoff_limit, deadline, ttl) = self.benchmark.changeable();
        let ttl = self.record.ttl(self.job(), ttl);
        let fields = [("backoffLimit", Some(backoff_limit)), ("activeDeadlineSeconds", deadline), ("ttlSecondsAfterFinished", ttl)];
        fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?.into()))).collect()
    }

    /// The pod template of a new Job, once everything that it needs exists.
    pub(super) fn template(&mut self, key: &ObjectKey) -> Result<Value, Box<PlanError>> {
        let accepted = self.benchmark.accept()?;
        let refused = |(reason, message): storage::Refusal| PlanError::new(ACCEPTED, reason, message);
        let (output, _) = self.output(&accepted).map_err(refused)?;
        let dataset = accepted.spec.dataset.as_ref().map(|spec| storage::dataset(spec, &self.benchmark.namespace)).transpose();
        let mut dataset = dataset.map_err(refused)?.unwrap_or_default();
        let endpoint = self.endpoint(&accepted)?;
        let mut arguments = Arguments::from_benchmark(&accepted, &endpoint);
        let mut storages = [output, std::mem::take(&mut dataset.storage)];
        for storage in &mut storages {
            arguments.0.append(&mut storage.arguments.0);
        }
        arguments.check_length().map_err(|message| PlanError::new(ACCEPTED, "TooLarge", message))?;
        let model = self.mounted_model(&endpoint);
        let layers = layers(&accepted, &dataset, model.as_deref(), &storages);
        // Only administrators write cluster-scoped models.
        let admin_layers =
            if model.as_ref().is_some_and(|view| view.model.namespace.is_empty()) { vec!["model".to_owned()] } else { Vec::new() };
        let frame = self.frame(&accepted, &arguments, &dataset, &storages)?;
        let subject = self.benchmark.subject.clone();
        let question = TemplateQuestion { layers, admin_layers, frame };
        let template = self.asking.template(&subject, PLACE, question, key).map_err(|undecided| self.undecided(&undecided))?;
        let of_model = endpoint.served.model.as_ref().and_then(|key| self.asking.snapshot.models.get(&key.namespace, &key.name)).cloned();
        let about = MetadataQuestion { key, role: Some(Role::Job), pods: Some(PLACE), template: Some(&template["metadata"]) };
        let metadata = self.metadata(about, of_model.as_deref())?;
        Ok(json!({"metadata": metadata.into_value(), "spec": template["spec"]}))
    }

    /// The labels and annotations of the Job itself.
    pub(super) fn job_metadata(&mut self, key: &ObjectKey) -> Result<Metadata, Box<PlanError>> {
        self.metadata(MetadataQuestion { key, role: Some(Role::Job), pods: None, template: None }, None)
    }

    fn metadata(&mut self, about: MetadataQuestion<'_>, model: Option<&ModelView>) -> Result<Metadata, Box<PlanError>> {
        let label = self.asking.snapshot.subject.label.clone();
        let ours = [(BENCHMARK_NAME, &*label), (UPSTREAM_LABEL, &*label), (APP_COMPONENT, COMPONENT)];
        let ours: BTreeMap<String, String> = ours.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let live = self.asking.snapshot.child(about.key.resource, &about.key.name);
        let version = live.and_then(|live| live.observed.made_by.clone()).unwrap_or_else(|| self.settings.version.clone());
        let layer =
            |name: &str, labels: Vec<Entry>, annotations: Vec<Entry>| propagation::Layer { name: name.to_owned(), labels, annotations };
        let layers = vec![
            layer("namespace", entries(&self.asking.snapshot.namespace_labels), Vec::new()),
            layer("subject", entries(&self.benchmark.labels), entries(&self.benchmark.annotations)),
            layer("facts", self.facts(model, &version), Vec::new()),
        ];
        let subject = self.benchmark.subject.clone();
        let metadata = self.asking.metadata(&subject, about, ours, Digested::new(layers).unwrap_or_default());
        metadata.map_err(|undecided| self.undecided(&undecided))
    }

    /// Known facts, under the keys from OME's page on labels.
    fn facts(&self, model: Option<&ModelView>, version: &str) -> Vec<Entry> {
        let fact = |fact: fn(&ModelView) -> Option<String>| model.and_then(fact);
        let facts = [
            (BENCHMARK_NAME, Some(self.benchmark.name.clone())),
            ("benchmark.ome.io/target-service", self.benchmark.target_service()),
            ("benchmark.ome.io/task-type", self.benchmark.task()),
            ("model.ome.io/format", fact(|view| view.model.format.as_ref().map(|format| format.name.clone()))),
            ("model.ome.io/name", fact(|view| Some(view.model.name.clone()))),
            ("model.ome.io/size", fact(|view| view.model.parameter_size.clone())),
            ("model.ome.io/type", fact(|view| view.model.model_type.clone())),
            ("model.ome.io/vendor", fact(|view| view.vendor.clone())),
            ("ome.io/part-of", Some(self.benchmark.name.clone())),
            (VERSION, Some(version.to_owned())),
        ];
        facts.into_iter().filter_map(|(key, value)| Some(Entry { key: key.to_owned(), value: value? })).collect()
    }

    /// The directory for the results: one per spec, so that a second run doesn't overwrite the first.
    pub(super) fn folder(&self, accepted: &Accepted) -> Result<String, storage::Refusal> {
        let made_up = || format!("{}-{}", self.benchmark.name, self.benchmark.spec_hash);
        let folder = accepted.spec.result_folder_name.clone().filter(|folder| !folder.is_empty()).unwrap_or_else(made_up);
        let is_inside = folder.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if is_inside && folder.len() <= MAX_FOLDER_BYTES {
            return Ok(folder);
        }
        let message =
            format!("spec.resultFolderName must be a relative path of at most {MAX_FOLDER_BYTES} bytes, without `.` and `..`: correct it.");
        Err(("InvalidOutput", message))
    }

    /// The model whose files the pod mounts for its tokenizer.
    fn mounted_model(&self, endpoint: &Endpoint) -> Option<Arc<ModelView>> {
        let key = endpoint.served.model.as_ref()?;
        let view = self.asking.snapshot.models.get(&key.namespace, &key.name)?;
        let is_used = endpoint.served.tokenizer == Some(Tokenizer::Mounted(endpoint.tokenizer.clone()));
        is_used.then(|| Arc::clone(view))
    }

    /// The host's frame.
    fn frame(&self, accepted: &Accepted, arguments: &Arguments, dataset: &Dataset, storages: &[Storage]) -> Result<Value, Box<PlanError>> {
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        let mut env = vec![variable("ENABLE_UI", "false"), variable(API_KEY, "none")];
        if let Some(secret) = &accepted.spec.hugging_face_secret_reference {
            let reference = json!({"secretKeyRef": {"name": secret.name, "key": HUGGING_FACE_KEY}});
            env.extend([HUGGING_FACE_TOKEN, HUGGING_FACE_KEY].map(|name| json!({"name": name, "valueFrom": reference})));
        }
        if let Some(rate) = self.benchmark.target_qps()? {
            env.push(variable("TARGET_QPS", rate));
        }
        let all = |part: fn(&Storage) -> &Vec<Value>| storages.iter().flat_map(part).cloned().collect::<Vec<Value>>();
        env.extend(all(|storage| &storage.env));
        let amounts = default_amounts(accepted.spec.pod_override.as_ref());
        let container = json!({
            "name": BENCHMARK_CONTAINER,
            "image": self.image(),
            "command": ["genai-bench"],
            "args": arguments.0,
            "env": env,
            "resources": {"requests": amounts, "limits": amounts},
            "volumeMounts": all(|storage| &storage.mounts),
            // `failureMessage` contains the end of the log.
            "terminationMessagePolicy": "FallbackToLogsOnError",
        });
        let mut annotations = json!({LOGGING_FORWARD: "true"});
        if let Some(config) = &dataset.config {
            annotations[DATASET_CONFIG] = config.as_str().into();
        }
        let spec = json!({"restartPolicy": "Never", "containers": [container], "volumes": all(|storage| &storage.volumes)});
        Ok(json!({"metadata": {"annotations": annotations}, "spec": spec}))
    }

    /// The default image, which only an administrator sets.
    fn image(&self) -> String {
        let image = &self.settings.benchmark_image;
        match &self.settings.image_mirror {
            Some(mirror) if image == BENCHMARK_IMAGE => mirrored(image, mirror),
            _ => image.clone(),
        }
    }
}

/// The maximum length of the directory's name.
const MAX_FOLDER_BYTES: usize = 512;

/// The default amounts, for resources that the benchmark doesn't specify at all: a limit below a larger request would be rejected.
fn default_amounts(changes: Option<&PodOverride>) -> Value {
    let resources = changes.and_then(|changes| changes.resources.as_ref());
    let lists = || resources.into_iter().flat_map(|resources| [&resources.limits, &resources.requests]).flatten();
    let amounts = [("cpu", CPU), ("memory", MEMORY)].into_iter().filter(|(name, _)| !lists().any(|list| list.contains_key(*name)));
    amounts.map(|(name, amount)| (name.to_owned(), Value::from(amount))).collect::<Map<String, Value>>().into()
}

/// The layers of the pod in order of precedence, the lowest first.
fn layers(accepted: &Accepted, dataset: &Dataset, model: Option<&ModelView>, storages: &[Storage]) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut add = |name: &str, content: &Value| layers.push(Layer { name: name.to_owned(), content: content.to_string() });
    add("user", &user_layer(accepted.spec.pod_override.as_ref(), storages, dataset.secret.as_deref()));
    if let Some(view) = model {
        let ModelView { model, storage_uri, .. } = view;
        let content = json!({
            "kind": model.kind, "namespace": model.namespace, "name": model.name, "path": view.files_path(), "storageUri": storage_uri,
            "nodeLabel": node_label(&model.namespace, &model.name),
        });
        add("model", &content);
    }
    if let Some(layer) = &dataset.layer {
        add("dataset", layer);
    }
    if !accepted.settings.is_empty() {
        add("settings", &json!(accepted.settings));
    }
    layers
}

/// The benchmark's changes to its pod. Lists that replace the host's begin with the host's entries.
fn user_layer(changes: Option<&PodOverride>, storages: &[Storage], dataset_secret: Option<&str>) -> Value {
    let none = PodOverride::default();
    let changes = changes.unwrap_or(&none);
    let gpu = json!({"key": GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"});
    let tolerations: Vec<Value> = [gpu].into_iter().chain(changes.tolerations.iter().map(|toleration| json!(toleration))).collect();
    let mut pod = json!({"tolerations": tolerations});
    let mut runner = json!({});
    let env_from = storages.iter().flat_map(|storage| storage.env_from.iter().cloned());
    let env_from: Vec<Value> = env_from.chain(changes.env_from.iter().map(|source| json!(source))).collect();
    let set = |target: &mut Value, field: &str, value: Value| {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if !is_empty {
            target[field] = value;
        }
    };
    // Policies merge it with the init container for downloads.
    let initializer = dataset_secret.map(|secret| json!([{"name": DATASET_INITIALIZER, "envFrom": [{"secretRef": {"name": secret}}]}]));
    set(&mut pod, "initContainers", json!(initializer));
    set(&mut pod, "nodeSelector", json!(changes.node_selector));
    set(&mut pod, "affinity", json!(changes.affinity));
    set(&mut pod, "volumes", json!(changes.volumes));
    set(&mut runner, "image", json!(changes.image));
    set(&mut runner, "env", json!(changes.env));
    set(&mut runner, "envFrom", json!(env_from));
    set(&mut runner, "volumeMounts", json!(changes.volume_mounts));
    set(&mut runner, "resources", json!(changes.resources));
    json!({"pod": pod, "runner": runner})
}
