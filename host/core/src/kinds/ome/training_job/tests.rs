#![allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]

use super::{
    run::{Ended, Ending},
    *,
};
use crate::{
    decide::{Policies, Standing, Unheard, set::ActiveSet},
    resource::{FINE_TUNED_WEIGHT, JOB},
    subject_kind::TRAINING_JOB_UID,
    world::{
        ObjectKey, World,
        child::{ATTEMPT, SPEC_HASH, SUBJECT_KIND},
    },
};
use serde_json::{Map, json};
use std::sync::Arc;

/// 2026-01-01T01:00:00Z.
const NOW: u64 = 1_767_229_200;

/// A training job with its status and the world around it.
struct Case {
    spec: Value,
    status: Value,
    annotations: Value,
    labels: Value,
    /// The hash of the spec that its Jobs were created from.
    hash: String,
    world: World,
}

impl Case {
    fn new(spec: Value) -> Self {
        let mut whole = json!({"framework": "pytorch", "worker": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "side"}, {"name": "trainer", "image": "train", "resources": {"limits": {"nvidia.com/gpu": 4}}},
        ]}}}});
        merge(&mut whole, spec);
        let world = World::default();
        Self { spec: whole, status: Value::Null, annotations: json!({}), labels: json!({}), hash: "hash".to_owned(), world }
    }

    fn mpi(more: Value) -> Self {
        let mut spec = json!({"framework": "mpi", "launcher": {"template": {"spec": {"containers": [{"name": "run", "image": "mpi"}]}}}});
        merge(&mut spec, more);
        Self::new(spec)
    }

    fn status(self, status: Value) -> Self {
        Self { status, ..self }
    }

    /// Adds a Job of the run with this status.
    fn job(mut self, replica: Replica, attempt: i64, status: Value) -> Self {
        let fields = json!({"f:spec": {"f:completions": {}}});
        let name = replica.job_name("tune");
        self.world.put(
            &JOB,
            &json!({
                "metadata": {
                    "name": name, "namespace": "ml", "uid": name, "labels": {SUBJECT_KIND: "TrainingJob"},
                    "annotations": {ATTEMPT: attempt.to_string(), SPEC_HASH: self.hash}, "ownerReferences": [{"uid": "u", "controller": true}],
                    "managedFields": [{"manager": "pointsman/trainingjob", "operation": "Apply", "fieldsV1": fields}],
                },
                "spec": {"completions": 2},
                "status": status,
            }),
        );
        self
    }

    fn snapshot(&mut self) -> Snapshot {
        let metadata = json!({"name": "tune", "namespace": "ml", "uid": "u", "annotations": self.annotations, "labels": self.labels});
        self.world.put_subject_object(&TRAINING_JOB, &json!({"metadata": metadata, "spec": self.spec, "status": self.status}));
        let key = ObjectKey { resource: &TRAINING_JOB, namespace: "ml".to_owned(), name: "tune".to_owned() };
        self.world.snapshot(&key, NOW).unwrap()
    }

    fn with<T>(&mut self, test: impl FnOnce(&mut PlanBuilder<'_>, &Training, &Run<'_>) -> T) -> T {
        let snapshot = self.snapshot();
        let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        let (pinned, settings) = (policies.pin(Standing::New), Settings::default());
        let asking = Questions::new(&snapshot, &pinned, &settings);
        let mut making = PlanBuilder { snapshot: &snapshot, settings: &settings, asking, before: snapshot.subject.status() };
        let training = Training::read(&making.asking).unwrap_or_else(|stop| panic!("{}", stop.condition.message));
        let run = Run::assess(&snapshot, &making.before, &training);
        test(&mut making, &training, &run)
    }

    /// The plan, without policies.
    fn plan(&mut self) -> Plan {
        let snapshot = self.snapshot();
        let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        TrainingJobs.plan(&snapshot, &policies.pin(Standing::New), &Settings::default())
    }

    fn variables(&mut self, replica: Replica) -> Map<String, Value> {
        let variable = |variable: Value| {
            let value = variable.get("value").cloned().unwrap_or_else(|| variable["valueFrom"]["fieldRef"]["fieldPath"].clone());
            (variable["name"].as_str().unwrap().to_owned(), value)
        };
        self.with(|_, training, _| env::variables(training, replica).into_iter().map(variable).collect())
    }

    fn refused(&mut self) -> String {
        let plan = self.plan();
        let accepted = plan.status.conditions.iter().find(|condition| condition.type_ == ACCEPTED).unwrap();
        assert_eq!((accepted.status, plan.objects.is_none()), (Some(false), true), "{}", accepted.message);
        accepted.message.clone()
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn condition(plan: &Plan, type_: &str) -> String {
    let condition = plan.status.conditions.iter().find(|condition| condition.type_ == type_);
    condition.map(|condition| format!("{:?} {}: {}", condition.status, condition.reason, condition.message)).unwrap_or_default()
}

fn ended(type_: &str, reason: &str, time: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": reason, "message": "of the Job", "lastTransitionTime": time})
}

const INDEX: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

#[test]
fn torchrun_gets_a_fixed_number_of_workers_and_each_its_rank() {
    let expected = json!({
        "PYTHONUNBUFFERED": "1", "MASTER_ADDR": "tune-worker-0.tune", "MASTER_PORT": "29500", "WORLD_SIZE": "8", "RANK": INDEX,
        "PET_NNODES": "2", "PET_NODE_RANK": INDEX, "PET_NPROC_PER_NODE": "4", "PET_MASTER_ADDR": "tune-worker-0.tune", "PET_MASTER_PORT": "29500",
    });
    assert_eq!(Value::Object(Case::new(json!({})).variables(Replica::Worker)), expected);
    let alone = json!({"framework": "deepspeed", "procPerNode": 2, "worker": {"replicas": 3}});
    let variables = Case::new(alone).variables(Replica::Worker);
    assert_eq!(
        (&variables["WORLD_SIZE"], &variables["PET_NNODES"]),
        (&json!("6"), &json!("3")),
        "deepspeed without a launcher is the same"
    );
}

#[test]
fn an_elastic_run_meets_at_the_first_worker() {
    let elastic = json!({"procPerNode": "gpu", "elasticPolicy": {"minReplicas": 1, "maxReplicas": 5, "maxRestarts": 7}});
    let expected = json!({
        "PYTHONUNBUFFERED": "1", "PET_NNODES": "1:5", "PET_NPROC_PER_NODE": "gpu", "PET_MAX_RESTARTS": "7", "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "tune-worker-0.tune:29500", "PET_RDZV_ID": "tune",
    });
    assert_eq!(Value::Object(Case::new(elastic).variables(Replica::Worker)), expected);
    let default = Case::new(json!({"elasticPolicy": {}})).variables(Replica::Worker);
    assert_eq!((&default["PET_NNODES"], &default["PET_MAX_RESTARTS"]), (&json!("1:2"), &json!("3")));
}

#[test]
fn each_mpi_finds_the_hostfile_and_the_agent_by_its_own_variables() {
    for (implementation, hostfile, agent, lines) in [
        ("OpenMPI", "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_plm_rsh_agent", "tune-worker-0.tune slots=4\ntune-worker-1.tune slots=4\n"),
        ("OpenMPI", "PRTE_MCA_prte_default_hostfile", "PRTE_MCA_plm_ssh_agent", "tune-worker-0.tune slots=4\ntune-worker-1.tune slots=4\n"),
        ("Intel", "I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "tune-worker-0.tune:4\ntune-worker-1.tune:4\n"),
        ("MPICH", "HYDRA_HOST_FILE", "HYDRA_LAUNCHER_EXEC", "tune-worker-0.tune:4\ntune-worker-1.tune:4\n"),
    ] {
        let mut case = Case::mpi(json!({"mpiImplementation": implementation}));
        let variables = case.variables(Replica::Launcher);
        assert_eq!((&variables[hostfile], &variables[agent]), (&json!("/etc/mpi/hostfile"), &json!("/etc/mpi/ssh")), "{implementation}");
        assert!(case.variables(Replica::Worker).is_empty());
        let files = case.with(|_, training, _| launch::files(training, Replica::Launcher));
        assert_eq!((&*files["hostfile"], &*files["key"]), (lines, "u"));
        assert!(files["agent.py"].contains(&format!("{:?}", launch::AGENT_PORT.to_string())));
        let files = case.with(|_, training, _| launch::files(training, Replica::Worker));
        assert_eq!(files.keys().copied().collect::<Vec<_>>(), ["agent.py", "key"]);
    }
}

#[test]
fn workers_run_the_agent_unless_they_have_a_command() {
    let laid = |case: &mut Case, replica| {
        case.with(|_, training, _| {
            let (mut pod, mut main) = (json!({}), json!({}));
            launch::lay_into(training, replica, &mut pod, &mut main);
            main
        })
    };
    let paths = |main: &Value| -> Vec<String> {
        let mounts = main["volumeMounts"].as_array().unwrap().iter();
        mounts.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect()
    };
    let mut case = Case::mpi(json!({"framework": "deepspeed"}));
    let worker = laid(&mut case, Replica::Worker);
    assert_eq!(worker["command"], json!(["python3", "/etc/mpi/agent.py", "serve", "tune-launcher-0.tune"]));
    assert_eq!(paths(&laid(&mut case, Replica::Launcher)), ["/etc/mpi", "/job/hostfile", "/usr/local/bin/ssh"]);
    let sshd = json!({"worker": {"template": {"spec": {"containers": [{"name": "worker", "command": ["/usr/sbin/sshd", "-De"]}]}}}});
    let mut case = Case::mpi(sshd);
    assert_eq!(laid(&mut case, Replica::Worker)["command"], Value::Null);
    assert_eq!(paths(&laid(&mut case, Replica::Launcher)), ["/etc/mpi"]);
    assert!(!case.variables(Replica::Launcher).contains_key("OMPI_MCA_plm_rsh_agent"));
    for replica in Replica::ALL {
        assert_eq!(case.with(|_, training, _| launch::files(training, replica)).into_keys().collect::<Vec<_>>(), ["hostfile"]);
    }
    assert_eq!(laid(&mut Case::new(json!({})), Replica::Worker), json!({}), "pytorch has no files");
}

#[test]
fn what_can_not_be_carried_out_is_refused_with_the_field() {
    let template = |fields: Value| json!({"worker": {"template": {"spec": fields}}});
    for (mut case, says) in [
        (Case::new(template(json!({"restartPolicy": "OnFailure"}))), "spec.worker.template.spec.restartPolicy is OnFailure"),
        (Case::new(template(json!({"hostname": "a"}))), "spec.worker.template.spec.hostname is set"),
        (Case::new(template(json!({"subdomain": "a"}))), "spec.worker.template.spec.subdomain is set"),
        (Case::mpi(template(json!({"hostNetwork": true}))), "spec.worker.template.spec.hostNetwork is true"),
        (
            Case::new(
                json!({"fineTunedWeight": {"name": "llama.lora", "baseModelRef": {"name": "llama"}, "storage": {"storageUri": "s3://a"}}}),
            ),
            "set it to ml.tune",
        ),
        (Case::new(json!({"worker": {"replicas": "two"}})), "spec.worker.replicas can't be read"),
        (
            Case { annotations: json!({"training.ome.io/checkpoint-strategy": "often"}), ..Case::new(json!({})) },
            "must be epoch, step or time",
        ),
        (Case { annotations: json!({"storage.ome.io/class": "fast"}), ..Case::new(json!({})) }, "storage without a size"),
        (Case { annotations: json!({"monitoring.ome.io/port": "http"}), ..Case::new(json!({})) }, "monitoring.ome.io/port"),
    ] {
        let message = case.refused();
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_weight_says_nothing_that_only_an_administrator_may() {
    let storage = |storage: Value| {
        let weight = json!({"name": "ml.lora", "baseModelRef": {"name": "llama"}, "storage": storage});
        Case::new(json!({"fineTunedWeight": weight}))
    };
    for (refused, says) in [
        (json!({"storageUri": "local:///etc"}), "storage.storageUri is a path on nodes"),
        (json!({"storageUri": "pvc://other:out/lora"}), "storage.storageUri is a claim in another namespace"),
        (json!({"storageUri": "s3://a", "path": "/etc"}), "storage.path is a path"),
        (json!({"storageUri": "s3://a", "key": "admin"}), "storage.key names a Secret"),
        (json!({"storageUri": "s3://a", "parameters": {"secretKey": "token"}}), "storage.key names a Secret"),
    ] {
        let message = storage(refused).refused();
        assert!(message.contains(says), "{message}");
    }
    for uri in ["pvc://ml:out/lora", "pvc://out/lora", "s3://out/lora", "hf://team/lora"] {
        let plan = storage(json!({"storageUri": uri, "parameters": {"region": "r"}})).plan();
        assert!(condition(&plan, ACCEPTED).starts_with("Some(true)"), "{uri}");
    }
}

#[test]
fn a_run_ends_as_its_launcher_or_all_of_its_workers_do() {
    let time = "2026-01-01T00:30:00Z";
    let complete = || json!({"succeeded": 2, "completionTime": time, "conditions": [ended("Complete", "CompletionsReached", time)]});
    let failed = |reason: &str| json!({"succeeded": 1, "failed": 1, "conditions": [ended("Failed", reason, time)]});
    let running = || json!({"active": 2, "ready": 2});
    let elastic = json!({"elasticPolicy": {}});
    for (mut case, expected) in [
        (Case::new(json!({})).job(Replica::Worker, 0, running()), None),
        (Case::new(json!({})).job(Replica::Worker, 0, complete()), Some((true, "WorkersSucceeded"))),
        (Case::new(json!({})).job(Replica::Worker, 0, failed("BackoffLimitExceeded")), Some((false, "BackoffLimitExceeded"))),
        (Case::new(elastic.clone()).job(Replica::Worker, 0, failed("FailedIndexes")), Some((true, "WorkersSucceeded"))),
        (Case::new(elastic).job(Replica::Worker, 0, failed("MaxFailedIndexesExceeded")), Some((false, "MaxFailedIndexesExceeded"))),
        (Case::mpi(json!({})).job(Replica::Worker, 0, running()).job(Replica::Launcher, 0, complete()), Some((true, "LauncherSucceeded"))),
        (
            Case::mpi(json!({})).job(Replica::Worker, 0, running()).job(Replica::Launcher, 0, failed("DeadlineExceeded")),
            Some((false, "DeadlineExceeded")),
        ),
        (Case::mpi(json!({})).job(Replica::Worker, 0, complete()), Some((false, "WorkersEnded"))),
    ] {
        let seen = case.with(|_, _, run| match &run.phase {
            Phase::Ended(Ended { succeeded, ending, recorded: false }) => {
                assert_eq!((run.completion_time.as_deref(), run.recheck_after), (Some(time), Some(job_run::RECORD_DELAY)));
                Some((*succeeded, ending.reason.clone()))
            }
            _ => None,
        });
        assert_eq!(seen, expected.map(|(succeeded, reason)| (succeeded, reason.to_owned())), "{}", case.spec);
    }
}

#[test]
fn a_failure_is_recorded_before_the_pods_of_the_attempt_go_and_the_next_comes_after_them() {
    let failed = || json!({"failed": 1, "conditions": [ended("Failed", "BackoffLimitExceeded", "2026-01-01T00:30:00Z")]});
    let spec = json!({"backoffLimit": 1});
    let mut failing = Case::new(spec.clone()).job(Replica::Worker, 0, failed());
    assert_eq!(failing.with(|_, _, run| (run.restarts, run.attempt(Replica::Worker))), (1, 0), "the Job isn't that of the next attempt");
    let first = failing.plan();
    assert!(
        condition(&first, RESTARTING)
            .starts_with("Some(true) BackoffLimitExceeded: The run is restarting (1 of 1). The Job tune-worker has")
    );
    assert_eq!((&first.status.fields["restarts"], first.recheck_after), (&json!(1), Some(job_run::RECORD_DELAY)));
    let status = json!({"restarts": 1, "startTime": "2026-01-01T00:00:00Z"});
    let clearing = Case::new(spec.clone()).status(status.clone()).job(Replica::Worker, 0, failed()).with(|_, training, run| {
        assert!(!run.plans(Replica::Worker, training));
        (run.phase.clone(), run.start_time.clone())
    });
    assert_eq!(clearing, (Phase::Clearing, Some("2026-01-01T00:00:00Z".to_owned())), "its time goes on");
    let gone = Case::new(spec.clone()).status(status.clone()).with(|_, training, run| run.plans(Replica::Worker, training));
    assert!(gone, "the next attempt is created");
    let last = Case::new(spec).status(status).job(Replica::Worker, 1, failed()).plan();
    assert!(condition(&last, FAILED).starts_with("Some(true) BackoffLimitExceeded: The Job tune-worker has failed"));
}

#[test]
fn the_restart_policy_says_which_failures_are_repeated() {
    for (policy, reason, repeats) in [
        ("OnFailure", "BackoffLimitExceeded", true),
        ("OnFailure", "DeadlineExceeded", false),
        ("ExitCode", "BackoffLimitExceeded", true),
        ("ExitCode", "PodFailurePolicy", false),
        ("Never", "BackoffLimitExceeded", false),
    ] {
        let failed = json!({"failed": 1, "conditions": [ended("Failed", reason, "2026-01-01T00:30:00Z")]});
        let mut case = Case::new(json!({"restartPolicy": policy, "backoffLimit": 3})).job(Replica::Worker, 0, failed);
        let again = case.with(|_, _, run| matches!(run.phase, Phase::StartsAgain(_)));
        assert_eq!(again, repeats, "{policy} {reason}");
    }
}

#[test]
fn a_launcher_starts_once_all_workers_are_ready_and_stays() {
    let plans = |mut case: Case| case.with(|_, training, run| run.plans(Replica::Launcher, training));
    let hash = Case::mpi(json!({})).with(|_, training, _| training.hash.clone());
    let current = || Case { hash: hash.clone(), ..Case::mpi(json!({})) };
    let workers = |ready: i64| current().job(Replica::Worker, 0, json!({"active": 2, "ready": ready}));
    assert!(!plans(Case::mpi(json!({}))) && !plans(workers(1)) && plans(workers(2)));
    assert!(plans(workers(1).job(Replica::Launcher, 0, json!({"active": 1}))));
    // The spec has changed since then: the launcher would belong to other workers.
    let mut changed = Case::mpi(json!({})).job(Replica::Worker, 0, json!({"active": 2, "ready": 2}));
    assert!(condition(&changed.plan(), RUNNING).starts_with("Some(false) SpecChanged") && !plans(changed));
}

#[test]
fn a_launcher_whose_workers_a_queue_takes_away_goes_and_fails_nothing() {
    let suspended = || json!({"conditions": [{"type": "Suspended", "status": "True"}]});
    let failed = json!({"failed": 1, "conditions": [ended("Failed", "BackoffLimitExceeded", "2026-01-01T00:30:00Z")]});
    for launcher in [json!({"active": 1}), failed] {
        let mut case = Case::mpi(json!({})).job(Replica::Worker, 0, suspended()).job(Replica::Launcher, 0, launcher);
        let plans = case.with(|_, training, run| {
            assert_eq!(run.phase, Phase::Going);
            Replica::ALL.map(|replica| run.plans(replica, training))
        });
        assert_eq!(plans, [true, false]);
        assert!(condition(&case.plan(), RUNNING).starts_with("Some(false) Queued"));
    }
}

#[test]
fn after_the_end_the_policy_says_which_pods_go() {
    let time = "2026-01-01T00:30:00Z";
    let complete = || json!({"succeeded": 1, "completionTime": time, "conditions": [ended("Complete", "x", time)]});
    let record = || json!({"completionTime": time, "conditions": [{"type": SUCCEEDED, "status": "True", "reason": "LauncherSucceeded"}]});
    for (policy, expected) in
        [(None, [false, true]), (Some("None"), [true, true]), (Some("Running"), [false, true]), (Some("All"), [false, false])]
    {
        let spec = policy.map_or_else(|| json!({}), |policy| json!({"cleanPodPolicy": policy}));
        let mut case = Case::mpi(spec).status(record());
        case = case.job(Replica::Worker, 0, json!({"active": 2, "ready": 2})).job(Replica::Launcher, 0, complete());
        let plans = case.with(|_, training, run| Replica::ALL.map(|replica| run.plans(replica, training)));
        assert_eq!(plans, expected, "{policy:?}");
    }
    let mut gone = Case::mpi(json!({})).status(record());
    assert_eq!(
        gone.with(|_, training, run| Replica::ALL.map(|replica| run.plans(replica, training))),
        [false, false],
        "nothing runs again"
    );
}

#[test]
fn a_suspended_run_has_no_jobs_and_starts_anew() {
    let mut case = Case::new(json!({"suspend": true})).status(json!({"startTime": "2026-01-01T00:00:00Z"}));
    case = case.job(Replica::Worker, 0, json!({"active": 2, "ready": 2}));
    let plans = case.with(|_, training, run| run.plans(Replica::Worker, training));
    let plan = case.plan();
    assert!(!plans && condition(&plan, SUSPENDED).starts_with("Some(true) Suspended"));
    assert_eq!((&plan.status.fields["startTime"], condition(&plan, RUNNING).starts_with("Some(false) Suspended")), (&Value::Null, true));
    let queued = json!({"conditions": [{"type": "Suspended", "status": "True"}]});
    let mut case = Case { labels: json!({"kueue.x-k8s.io/queue-name": "gpus"}), ..Case::new(json!({})) }.job(Replica::Worker, 0, queued);
    let plan = case.plan();
    assert!(condition(&plan, SUSPENDED).contains("is queued in gpus") && condition(&plan, RUNNING).starts_with("Some(false) Queued"));
}

#[test]
fn a_run_that_was_started_again_has_one_deadline_for_all() {
    let spec = json!({"activeDeadlineSeconds": 3000, "backoffLimit": 5, "cleanPodPolicy": "None"});
    let status = |start: &str| json!({"restarts": 1, "startTime": start});
    let running = || json!({"active": 2, "ready": 2});
    let mut timely = Case::new(spec.clone()).status(status("2026-01-01T00:20:00Z")).job(Replica::Worker, 1, running());
    assert_eq!(timely.with(|_, _, run| run.recheck_after), Some(Duration::from_mins(10)));
    let late = Case::new(spec.clone()).status(status("2026-01-01T00:00:00Z")).job(Replica::Worker, 1, running()).plan();
    assert!(condition(&late, FAILED).starts_with("Some(true) DeadlineExceeded: The run has taken longer"), "{}", condition(&late, FAILED));
    let record = json!({
        "restarts": 1, "completionTime": "2026-01-01T00:50:00Z",
        "conditions": [{"type": FAILED, "status": "True", "reason": "DeadlineExceeded"}],
    });
    let mut case = Case::new(spec).status(record).job(Replica::Worker, 1, running());
    assert!(!case.with(|_, training, run| run.plans(Replica::Worker, training)), "it doesn't go on, whatever the policy");
}

#[test]
fn a_job_goes_once_its_time_to_live_is_over_and_its_end_is_recorded() {
    let record = |time: &str| json!({"completionTime": time, "conditions": [{"type": SUCCEEDED, "status": "True", "reason": "x"}]});
    let case = |time: &str| Case::new(json!({"ttlSecondsAfterFinished": 600})).status(record(time));
    assert_eq!((case("2026-01-01T00:49:59Z").plan().expired, case("2026-01-01T00:50:00Z").plan().expired), (true, true));
    let early = case("2026-01-01T00:55:00Z").with(|_, training, run| (run.expired(training, NOW), run.time_to_live(training, NOW)));
    assert_eq!(early, (false, Some(Duration::from_mins(5))));
    assert!(!Case::new(json!({})).status(record("2020-01-01T00:00:00Z")).plan().expired);
}

/// A successful job that requests a weight; `maker` is the uid of the creator of an existing weight with this name.
fn weight(maker: Option<&str>, conditions: Value) -> Plan {
    let asked = json!({
        "name": "ml.lora", "baseModelRef": {"name": "llama"}, "modelType": "LoRA", "storage": {"storageUri": "pvc://out/lora"},
    });
    let status = json!({"completionTime": "2026-01-01T00:00:00Z", "conditions": conditions});
    let mut case = Case::new(json!({"fineTunedWeight": asked, "ttlSecondsAfterFinished": 0})).status(status);
    case.world.set_available([&FINE_TUNED_WEIGHT].into());
    if let Some(maker) = maker {
        let labels = json!({TRAINING_JOB_UID: maker});
        let spec = json!({"baseModelRef": {"name": "llama"}, "storage": {"storageUri": "s3://a"}});
        case.world.put(&FINE_TUNED_WEIGHT, &json!({"metadata": {"name": "ml.lora", "labels": labels}, "spec": spec}));
    }
    case.plan()
}

#[test]
fn a_weight_is_created_once_and_never_over_one_of_others() {
    let succeeded = || json!([{"type": SUCCEEDED, "status": "True", "reason": "x"}]);
    let plan = weight(None, succeeded());
    assert!(condition(&plan, WEIGHT_CREATED).starts_with("None Creating"));
    let object = plan.creates[0].manifest();
    assert_eq!(object["spec"]["trainingJobRef"], json!({"name": "tune", "namespace": "ml"}));
    assert_eq!((&object["metadata"]["name"], object["metadata"].get("ownerReferences")), (&json!("ml.lora"), None));
    assert_eq!((&object["spec"]["modelType"], &object["spec"]["storage"]["storageUri"]), (&json!("LoRA"), &json!("pvc://out/lora")));
    assert!(!plan.expired, "the job stays until its weight is there");
    let ours = weight(Some("u"), succeeded());
    assert!(ours.creates.is_empty() && ours.expired && condition(&ours, WEIGHT_CREATED).starts_with("Some(true) Created"));
    let others = weight(Some("other"), succeeded());
    assert!(others.creates.is_empty() && condition(&others, WEIGHT_CREATED).starts_with("Some(false) NameTaken"));
    let created = json!([{"type": SUCCEEDED, "status": "True"}, {"type": WEIGHT_CREATED, "status": "True"}]);
    let deleted = weight(None, created);
    assert!(deleted.creates.is_empty() && condition(&deleted, WEIGHT_CREATED).starts_with("Some(true)"), "who has deleted it wants that");
    let failed = weight(None, json!([{"type": FAILED, "status": "True", "reason": "x"}]));
    assert!(failed.creates.is_empty() && condition(&failed, WEIGHT_CREATED).starts_with("Some(false) RunFailed"));
}

#[test]
fn a_changed_spec_says_what_it_takes() {
    let running = || json!({"active": 2, "ready": 2});
    let plan = Case::new(json!({})).job(Replica::Worker, 0, running()).plan();
    let text = condition(&plan, job_run::UP_TO_DATE);
    assert!(text.contains("`kubectl delete jobs --cascade=foreground -n ml tune-worker`") && text.contains("spec.suspend"), "{text}");
    let status = json!({"completionTime": "2026-01-01T00:00:00Z", "specHash": "other"});
    let text = condition(&Case::new(json!({})).status(status).plan(), job_run::UP_TO_DATE);
    assert!(text.contains("create another TrainingJob"), "{text}");
}

/// A plan with objects asks the policies. There are none here, so it reports that.
#[test]
fn an_edit_that_is_refused_leaves_a_run_under_supervision() {
    let refused = |more: Value| {
        let mut spec = json!({"worker": {"template": {"spec": {"hostname": "a"}}}});
        merge(&mut spec, more);
        spec
    };
    let running = || json!({"active": 2, "ready": 2});
    let plans_objects = |case: &mut Case| {
        let plan = case.plan();
        assert!(condition(&plan, ACCEPTED).contains("hostname is set"), "{}", condition(&plan, ACCEPTED));
        matches!(plan.status.undecided, UndecidedSteps::Some(_))
    };
    let mut going = Case::new(refused(json!({}))).job(Replica::Worker, 0, running());
    assert!(plans_objects(&mut going));
    let text = condition(&going.plan(), job_run::UP_TO_DATE);
    assert!(text.contains("revert the edit") && !text.contains("delete"), "{text}");
    let mut suspended = Case::new(refused(json!({"suspend": true}))).job(Replica::Worker, 0, running());
    assert!(plans_objects(&mut suspended));
    assert!(!suspended.with(|_, training, run| run.plans(Replica::Worker, training)), "it gets no pods");
    // Between two attempts, too, the remaining Jobs are deleted.
    let mut clearing = Case::new(refused(json!({}))).status(json!({"restarts": 1})).job(Replica::Worker, 0, running());
    assert!(plans_objects(&mut clearing));
    assert!(!plans_objects(&mut Case::new(refused(json!({})))), "where nothing exists, nothing is created");
}

/// FineTunedWeights count as administrators' objects, so an edit after the end must not bypass the check.
#[test]
fn a_weight_that_is_refused_is_not_created_after_the_run_either() {
    let weight = |name: &str| {
        json!({"fineTunedWeight": {
            "name": name, "baseModelRef": {"name": "llama"}, "modelType": "LoRA", "storage": {"storageUri": "s3://out/lora"},
        }})
    };
    let end = json!({"type": SUCCEEDED, "status": "True", "reason": "r", "message": "m"});
    let succeeded = || json!({"completionTime": "2026-01-01T00:50:00Z", "conditions": [end]});
    let mut case = Case::new(weight("ml.lora")).status(succeeded());
    case.world.set_available([&FINE_TUNED_WEIGHT].into());
    assert_eq!(case.plan().creates.len(), 1);
    let mut case = Case::new(weight("others.lora")).status(succeeded());
    case.world.set_available([&FINE_TUNED_WEIGHT].into());
    let plan = case.plan();
    let text = condition(&plan, WEIGHT_CREATED);
    assert!(plan.creates.is_empty() && text.starts_with("None NotAccepted") && text.contains("set it to ml."), "{text}");
    // An error in another field doesn't affect the weight.
    let mut spec = weight("ml.lora");
    merge(&mut spec, json!({"worker": {"template": {"spec": {"hostname": "a"}}}}));
    let mut case = Case::new(spec).status(succeeded());
    case.world.set_available([&FINE_TUNED_WEIGHT].into());
    assert_eq!(case.plan().creates.len(), 1);
}

#[test]
fn what_may_change_during_a_run_is_no_other_run() {
    let hash = |spec: Value| Case::new(spec).with(|_, training, _| training.hash.clone());
    let base = hash(json!({}));
    for same in
        [json!({"suspend": true}), json!({"backoffLimit": 3}), json!({"ttlSecondsAfterFinished": 1}), json!({"cleanPodPolicy": "All"})]
    {
        assert_eq!(hash(same), base);
    }
    assert_ne!(hash(json!({"worker": {"replicas": 3}})), base, "a fixed world has its size");
    let elastic = |replicas: i64| hash(json!({"worker": {"replicas": replicas}, "elasticPolicy": {"maxReplicas": 4}}));
    assert_eq!(elastic(2), elastic(4), "an elastic one changes it");
    let annotated = Case { annotations: json!({"training.ome.io/resume-from": "/3"}), ..Case::new(json!({})) }
        .with(|_, training, _| training.hash.clone());
    assert_ne!(annotated, base);
}

#[test]
fn the_status_counts_the_pods_of_each_kind_and_keeps_what_was_counted() {
    let mut case =
        Case::mpi(json!({})).job(Replica::Worker, 0, json!({"active": 2, "ready": 2, "failed": 1, "startTime": "2026-01-01T00:10:00Z"}));
    let fields = case.plan().status.fields;
    assert_eq!(fields["replicaStatuses"]["worker"], json!({"active": 2, "succeeded": 0, "failed": 1}));
    assert_eq!(fields["replicaStatuses"]["launcher"], json!({"active": 0, "succeeded": 0, "failed": 0}));
    assert_eq!((&fields["startTime"], &fields["specHash"]), (&json!("2026-01-01T00:10:00Z"), &json!("hash")));
    let before = json!({
        "completionTime": "2026-01-01T00:50:00Z", "replicaStatuses": {"worker": {"active": 2, "succeeded": 0, "failed": 1}}, "specHash": "hash",
    });
    let fields = Case::mpi(json!({})).status(before).plan().status.fields;
    assert_eq!(fields["replicaStatuses"]["worker"], json!({"active": 0, "succeeded": 0, "failed": 1}));
    assert_eq!(fields["specHash"], "hash");
}

#[test]
fn the_record_of_the_end_is_read_back_as_it_was_written() {
    let status =
        json!({"completionTime": "t", "conditions": [{"type": FAILED, "status": "True", "reason": "DeadlineExceeded", "message": "m"}]});
    let phase = Case::new(json!({})).status(status).with(|_, _, run| run.phase.clone());
    let ending = Ending { reason: "DeadlineExceeded".to_owned(), message: "m".to_owned() };
    assert_eq!(phase, Phase::Ended(Ended { succeeded: false, ending, recorded: true }));
}
