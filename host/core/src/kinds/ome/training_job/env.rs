//! The environment variables by which the processes of a run find each other.
//!
//! A variable with the same name in the template takes precedence: its author has a reason.

use super::{
    Replica, launch,
    spec::{Elastic, Training},
};
use pointsman_crds::ome::training_job::{MpiImplementation, TrainingFramework};
use serde_json::{Value, json};

/// torchrun's default port for the workers' rendezvous.
pub(super) const MASTER_PORT: u16 = 29500;

/// The annotation with a pod's index in its Job.
const INDEX: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

/// The variables for the main container.
pub(super) fn variables(training: &Training, replica: Replica) -> Vec<Value> {
    match (training.spec.framework, training.elastic()) {
        (TrainingFramework::Pytorch, Some(elastic)) => torchrun_elastic(training, elastic),
        (TrainingFramework::Pytorch, None) => torchrun(training),
        (TrainingFramework::Deepspeed, _) if !training.has_launcher() => torchrun(training),
        _ if replica == Replica::Launcher => launcher(training),
        _ => Vec::new(),
    }
}

fn variable(name: &str, value: impl Into<String>) -> Value {
    json!({"name": name, "value": value.into()})
}

fn index(name: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": INDEX}}})
}

/// Variables for a fixed number of workers. RANK is the worker's index: torchrun replaces it for each process, and without torchrun there
/// is only one.
fn torchrun(training: &Training) -> Vec<Value> {
    let (address, port) = (training.host(Replica::Worker, 0), MASTER_PORT.to_string());
    let (workers, processes) = (training.workers(), &training.processes);
    let world = i64::from(workers).saturating_mul(processes.number);
    vec![
        // Otherwise the last output of a killed process would be lost.
        variable("PYTHONUNBUFFERED", "1"),
        variable("MASTER_ADDR", &*address),
        variable("MASTER_PORT", &*port),
        variable("WORLD_SIZE", world.to_string()),
        index("RANK"),
        variable("PET_NNODES", workers.to_string()),
        index("PET_NODE_RANK"),
        variable("PET_NPROC_PER_NODE", &*processes.word),
        variable("PET_MASTER_ADDR", address),
        variable("PET_MASTER_PORT", port),
    ]
}

/// Variables for a variable number of workers: torchrun assigns the ranks at the rendezvous.
fn torchrun_elastic(training: &Training, Elastic { min, max, max_restarts }: Elastic) -> Vec<Value> {
    vec![
        variable("PYTHONUNBUFFERED", "1"),
        variable("PET_NNODES", format!("{min}:{max}")),
        variable("PET_NPROC_PER_NODE", &*training.processes.word),
        variable("PET_MAX_RESTARTS", max_restarts.to_string()),
        variable("PET_RDZV_BACKEND", "c10d"),
        variable("PET_RDZV_ENDPOINT", format!("{}:{MASTER_PORT}", training.host(Replica::Worker, 0))),
        variable("PET_RDZV_ID", &*training.name),
    ]
}

/// Variables for mpirun: where the workers are, and how it starts processes on them.
fn launcher(training: &Training) -> Vec<Value> {
    let file = launch::hostfile();
    // Workers with their own command have their own method, such as sshd.
    let agent = launch::uses_agent(training).then(launch::ssh);
    let mut all = vec![variable("PYTHONUNBUFFERED", "1")];
    let mut set = |names: &[&str], value: &str| all.extend(names.iter().map(|name| variable(name, value)));
    match training.spec.mpi_implementation.unwrap_or_default() {
        MpiImplementation::OpenMPI => {
            // Of each pair, Open MPI 4 reads the first and Open MPI 5 the second.
            set(&["OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"], &file);
            set(&["OMPI_MCA_orte_keep_fqdn_hostnames", "PRTE_MCA_prte_keep_fqdn_hostnames"], "true");
            if let Some(agent) = agent {
                set(&["OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"], &agent);
                // Workers accept commands only from the launcher, so they can't start processes on other workers.
                set(&["OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn"], "1");
            }
        }
        MpiImplementation::Intel => {
            set(&["I_MPI_HYDRA_HOST_FILE"], &file);
            set(&["I_MPI_PERHOST"], &training.processes.number.to_string());
            set(&["I_MPI_HYDRA_BOOTSTRAP"], "ssh");
            if let Some(agent) = agent {
                set(&["I_MPI_HYDRA_BOOTSTRAP_EXEC"], &agent);
            }
        }
        MpiImplementation::MPICH => {
            set(&["HYDRA_HOST_FILE"], &file);
            set(&["HYDRA_LAUNCHER"], "ssh");
            if let Some(agent) = agent {
                set(&["HYDRA_LAUNCHER_EXEC"], &agent);
            }
        }
    }
    all
}
