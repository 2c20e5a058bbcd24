//! The objects of a training job.

use super::{Made, PlanBuilder, PlanError, Replica, env, keys::Storage, launch, run::Run, spec::Training, state::QUEUE};
use crate::{
    kinds::{
        job_run,
        questions::{MetadataQuestion, PodRole, TemplateQuestion},
    },
    objects::{
        Metadata,
        network::{self, Port},
        storage, strings,
    },
    plan::Object,
    question::entries,
    resource::{JOB, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, Resource, SERVICE},
    subject_kind::{REPLICA_TYPE, TRAINER_CONTAINER, TRAINING_JOB_NAME, TRAINING_JOB_UID},
    world::{
        ObjectKey, OwnedObject,
        child::{ATTEMPT, VERSION},
    },
};
use pointsman_crds::ome::training_job::RestartPolicy;
use pointsman_sandbox::{
    digest::Digested,
    point::{Entry, Role, propagation, templating},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The exit codes that programs set themselves. Higher ones result from signals.
const OWN_EXIT_CODES: std::ops::RangeInclusive<i32> = 1..=127;

impl Replica {
    fn role(self) -> Role {
        match self {
            Self::Worker => Role::Trainer,
            Self::Launcher => Role::Launcher,
        }
    }
}

impl PlanBuilder<'_> {
    /// All objects of the job, in the order in which they are written.
    pub(super) fn objects(&mut self, training: &Training, run: &Run<'_>) -> Made {
        let mut objects = Vec::new();
        if let Some(Storage { class, size, mode }) = &training.keys.storage {
            let key = self.key(&PERSISTENT_VOLUME_CLAIM, &training.name);
            let metadata = self.metadata(training, &key, None, None)?;
            objects.push(Object::new(key, storage::claim(metadata, class.as_deref(), size, mode)));
        }
        let key = self.key(&SERVICE, &training.name);
        let metadata = self.metadata(training, &key, None, None)?;
        objects.push(Object::new(key, network::headless(metadata, &self.selector(None), &[port(training)])));
        if training.keys.isolated {
            let key = self.key(&NETWORK_POLICY, &training.name);
            let metadata = self.metadata(training, &key, None, None)?;
            let own = self.selector(None);
            objects.push(Object::new(key, network::own_pods_only(metadata, &own, training.keys.metrics_port)));
        }
        // A Job whose part was removed from the spec continues, like the rest of the run.
        let is_known = |replica: &Replica| training.replicas().any(|known| known == *replica) || run.jobs.contains_key(replica);
        for replica in Replica::ALL.into_iter().filter(|replica| is_known(replica) && run.plans(*replica, training)) {
            objects.push(self.job(training, run, replica)?);
        }
        Ok(objects)
    }

    fn key(&self, resource: &'static Resource, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: self.snapshot.subject.key.namespace.clone(), name: name.to_owned() }
    }

    /// The labels that select the pods. Policies can't change them.
    fn selector(&self, replica: Option<Replica>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([(TRAINING_JOB_NAME.to_owned(), self.snapshot.subject.label.clone())]);
        labels.extend(replica.map(|replica| (REPLICA_TYPE.to_owned(), replica.name().to_owned())));
        labels
    }

    fn job(&mut self, training: &Training, run: &Run<'_>, replica: Replica) -> Result<Object, Box<PlanError>> {
        let key = self.key(&JOB, &replica.job_name(&training.name));
        let mut metadata = self.metadata(training, &key, Some(replica), None)?;
        metadata.annotations.insert(ATTEMPT.to_owned(), run.attempt(replica).to_string());
        if let Some(queue) = training.labels.get(QUEUE) {
            // Set regardless of the policies: a Job without the label would bypass its queue.
            metadata.labels.insert(QUEUE.to_owned(), queue.clone());
        }
        let snapshot = self.snapshot;
        let changeable = changeable(training, replica, job_run::find(snapshot, &key).and_then(OwnedObject::made_from).as_ref());
        job_run::object(snapshot, key.clone(), metadata, &training.hash, changeable, || {
            let template = self.template(training, replica, &key)?;
            let mut fixed = fixed(training, replica);
            fixed.insert("template".to_owned(), template);
            Ok(fixed)
        })
    }

    /// The pod template, as policies decide it from the spec.
    fn template(&mut self, training: &Training, replica: Replica, key: &ObjectKey) -> Result<Value, Box<PlanError>> {
        let place = PodRole { role: replica.role(), group: None };
        let question = TemplateQuestion { layers: layers(training, replica), admin_layers: Vec::new(), frame: frame(training, replica) };
        let template = self.asking.template(&training.subject, place, question, key);
        let mut template = template.map_err(|undecided| self.undecided(&undecided))?;
        let mut pods = self.metadata(training, key, Some(replica), Some((place, &template["metadata"])))?;
        pods.annotations.extend(launch::annotations(training, replica));
        let spec = &mut template["spec"];
        // Without these, the pods would have no host names, and a single container could restart on its own.
        spec["subdomain"] = training.name.as_str().into();
        spec["restartPolicy"] = "Never".into();
        Ok(json!({"metadata": pods.into_value(), "spec": spec}))
    }

    /// The metadata of an object, or of its pods.
    fn metadata(
        &mut self,
        training: &Training,
        key: &ObjectKey,
        replica: Option<Replica>,
        pods: Option<(PodRole, &Value)>,
    ) -> Result<Metadata, Box<PlanError>> {
        let version = self.snapshot.child(key.resource, &key.name).and_then(|child| child.observed.made_by.clone());
        let version = version.unwrap_or_else(|| self.settings.version.clone());
        let layers = metadata_layers(training, replica, &self.snapshot.namespace_labels, &version);
        let about = MetadataQuestion {
            key,
            role: replica.map(Replica::role),
            pods: pods.map(|(place, _)| place),
            template: pods.map(|(_, metadata)| metadata),
        };
        let metadata = self.asking.metadata(&training.subject, about, self.selector(replica), layers);
        metadata.map_err(|undecided| self.undecided(&undecided))
    }
}

/// The port on which the pods connect.
fn port(training: &Training) -> Port {
    let (name, number) = if launch::uses_agent(training) { ("launch", launch::AGENT_PORT) } else { ("rendezvous", env::MASTER_PORT) };
    let number = i64::from(number);
    Port { name: name.to_owned(), port: number, target: number, protocol: "TCP".to_owned() }
}

/// The host's frame of the pods.
fn frame(training: &Training, replica: Replica) -> Value {
    let name = training.main_container(replica).and_then(|main| main["name"].as_str()).unwrap_or(TRAINER_CONTAINER);
    let mut pod = json!({"restartPolicy": "Never", "subdomain": training.name});
    let mut main = json!({"name": name, "env": env::variables(training, replica)});
    launch::lay_into(training, replica, &mut pod, &mut main);
    pod["containers"] = json!([main]);
    json!({"metadata": {}, "spec": pod})
}

/// The layers of the pods in order of precedence, the lowest first.
fn layers(training: &Training, replica: Replica) -> Vec<templating::Layer> {
    let mut layers = Vec::new();
    let mut add = |name: &str, content: Value| layers.push(templating::Layer { name: name.to_owned(), content: content.to_string() });
    add("user", json!({"pod": training.template(replica)["spec"]}));
    if let Some(Storage { mode, .. }) = &training.keys.storage {
        add("storage", json!({"claim": training.name, "readOnly": *mode == "ReadOnlyMany"}));
    }
    if !training.keys.settings.is_empty() {
        add("settings", json!(training.keys.settings));
    }
    layers
}

/// The sources of labels and annotations.
fn metadata_layers(
    training: &Training,
    replica: Option<Replica>,
    namespace: &BTreeMap<String, String>,
    version: &str,
) -> Digested<Vec<propagation::Layer>> {
    let layer = |name: &str, labels: Vec<Entry>, annotations: Vec<Entry>| propagation::Layer { name: name.to_owned(), labels, annotations };
    let mut layers = vec![
        layer("namespace", entries(namespace), Vec::new()),
        layer("subject", entries(&training.labels), entries(&training.annotations)),
    ];
    if let Some(replica) = replica {
        let metadata = &training.template(replica)["metadata"];
        layers.push(layer("component", entries(&strings(&metadata["labels"])), entries(&strings(&metadata["annotations"]))));
    }
    let facts = [
        ("ome.io/component", Some("trainer")),
        ("ome.io/part-of", Some(training.name.as_str())),
        (VERSION, Some(version)),
        ("training.ome.io/framework", Some(training.framework())),
        (TRAINING_JOB_NAME, Some(&training.name)),
        // Offline there is no uid.
        (TRAINING_JOB_UID, Some(training.uid.as_str()).filter(|uid| !uid.is_empty())),
        // One template for several pods can't contain an index: an admission policy adds it (docs/training.md).
        ("training.ome.io/replica-index", replica.filter(|replica| *replica == Replica::Launcher).map(|_| "0")),
        (REPLICA_TYPE, replica.map(Replica::name)),
    ];
    let facts = facts.into_iter().filter_map(|(key, value)| Some(Entry { key: key.to_owned(), value: value?.to_owned() }));
    layers.push(layer("facts", facts.collect(), Vec::new()));
    Digested::new(layers).unwrap_or_default()
}

/// The fields of a Job's spec that may change while it exists. Those that depend on how the Job was created follow that, regardless of the
/// current spec.
fn changeable(training: &Training, replica: Replica, created_from: Option<&Value>) -> Map<String, Value> {
    let kept = created_from.map(|created| &created["spec"]);
    let is_elastic =
        replica == Replica::Worker && kept.map_or_else(|| training.elastic().is_some(), |kept| kept["backoffLimitPerIndex"].is_number());
    let pods = match (replica, kept.and_then(|kept| kept["completions"].as_i64())) {
        (Replica::Launcher, _) => 1,
        (Replica::Worker, Some(created)) if !is_elastic => created,
        (Replica::Worker, _) => training.workers().into(),
    };
    let mut spec = Map::new();
    let mut set = |field: &str, value: Value| spec.insert(field.to_owned(), value);
    set("parallelism", pods.into());
    if is_elastic {
        // The API server only accepts a change of both together.
        set("completions", pods.into());
        let min = training.elastic().map_or(1, |elastic| i64::from(elastic.min));
        set("maxFailedIndexes", (pods - min).max(0).into());
    } else {
        // One lost pod ends the attempt: the whole run restarts.
        set("backoffLimit", 0.into());
    }
    if let Some(seconds) = training.spec.active_deadline_seconds {
        set("activeDeadlineSeconds", seconds.into());
    }
    spec
}

/// The immutable fields of a Job's spec, without the template.
fn fixed(training: &Training, replica: Replica) -> Map<String, Value> {
    let mut spec = Map::new();
    let mut set = |field: &str, value: Value| spec.insert(field.to_owned(), value);
    let workers = if replica == Replica::Launcher { 1 } else { training.workers() };
    set("completionMode", "Indexed".into());
    set("completions", workers.into());
    let elastic = training.elastic().filter(|_| replica == Replica::Worker);
    if let Some(elastic) = elastic {
        let restarts = if training.restart_policy() == RestartPolicy::Never { 0 } else { elastic.max_restarts };
        set("backoffLimitPerIndex", restarts.into());
    }
    if training.restart_policy() == RestartPolicy::ExitCode {
        // An eviction isn't a failure of the program, regardless of its exit code.
        let evicted = if elastic.is_some() { "Ignore" } else { "Count" };
        let codes: Vec<i32> = OWN_EXIT_CODES.collect();
        let rules = json!([
            {"action": evicted, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": codes}},
        ]);
        set("podFailurePolicy", json!({"rules": rules}));
    }
    spec
}
