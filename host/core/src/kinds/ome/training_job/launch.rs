//! How a launcher starts processes on its workers without SSH: an agent in each worker, and the files of both.
//!
//! Images for training have Python, and mostly neither sshd nor keys. The agent (`agent.py`) needs nothing else, no right in the API, and no
//! Secret, which the host would have to create in the namespaces of tenants. Workers take commands from the launcher's address alone.

use super::{PlanError, Replica, spec::Training};
use pointsman_crds::ome::training_job::{MpiImplementation, TrainingFramework};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

const AGENT: &str = include_str!("agent.py");

/// Where the files are, in launchers and workers: where Kubeflow's users know the hostfile.
const FOLDER: &str = "/etc/mpi";

/// Where deepspeed looks for the hostfile by itself.
const DEEPSPEED_HOSTFILE: &str = "/job/hostfile";

/// Where programs find an ssh that know no other agent: before the image's own.
const SSH: &str = "/usr/local/bin/ssh";

/// The port on which agents take commands.
pub(super) const AGENT_PORT: u16 = 23999;

const VOLUME: &str = "pointsman-launch";

/// What programs call in place of ssh.
const WRAPPER: &str = "#!/bin/sh\nexec python3 /etc/mpi/agent.py run \"$@\"\n";

/// Where the hostfile is.
pub(super) fn hostfile() -> String {
    format!("{FOLDER}/hostfile")
}

/// What stands in for ssh.
pub(super) fn ssh() -> String {
    format!("{FOLDER}/ssh")
}

/// The name of the ConfigMap with the files.
pub(super) fn config_map(training: &Training) -> String {
    format!("{}-hostfile", training.name)
}

/// Whether the job has a hostfile.
pub(super) fn has_files(training: &Training) -> bool {
    training.spec.framework != TrainingFramework::Pytorch
}

/// Whether the workers run the agent: unless they have a command of their own.
pub(super) fn uses_agent(training: &Training) -> bool {
    let has_command = || {
        training
            .main_container(Replica::Worker)
            .is_some_and(|main| ["command", "args"].iter().any(|field| main[*field].as_array().is_some_and(|words| !words.is_empty())))
    };
    training.has_launcher() && !has_command()
}

/// Whether the agents can know the launcher.
pub(super) fn check(training: &Training) -> Result<(), Box<PlanError>> {
    let shared = |replica: &Replica| training.template(*replica)["spec"]["hostNetwork"] == true;
    let Some(replica) = Replica::ALL.iter().find(|replica| uses_agent(training) && shared(replica)) else { return Ok(()) };
    let message = format!(
        "spec.{}.template.spec.hostNetwork is true: the workers know the launcher by its address, which it shares with its node there. Remove \
         hostNetwork, or set a command for the workers that lets the launcher in, such as sshd with keys of your own.",
        replica.name()
    );
    Err(PlanError::refused("NotSupported", message))
}

/// The data of the ConfigMap.
pub(super) fn files(training: &Training) -> Map<String, Value> {
    let mut files = Map::new();
    files.insert("hostfile".to_owned(), hosts(training, training.spec.mpi_implementation.unwrap_or_default()).into());
    if training.spec.framework == TrainingFramework::Deepspeed {
        files.insert("deepspeed-hostfile".to_owned(), hosts(training, MpiImplementation::OpenMPI).into());
    }
    if uses_agent(training) {
        files.insert("agent.py".to_owned(), AGENT.into());
        files.insert("ssh".to_owned(), WRAPPER.into());
        files.insert("key".to_owned(), training.uid.as_str().into());
    }
    files
}

/// A line for each worker, with the number of its processes.
fn hosts(training: &Training, implementation: MpiImplementation) -> String {
    let slots = training.processes.number;
    let mut lines = String::new();
    for index in 0..training.workers() {
        let host = training.host(Replica::Worker, index);
        // Writing to a text can't fail.
        _ = match implementation {
            MpiImplementation::OpenMPI => writeln!(lines, "{host} slots={slots}"),
            MpiImplementation::Intel | MpiImplementation::MPICH => writeln!(lines, "{host}:{slots}"),
        };
    }
    lines
}

/// The files in a pod: its volumes, what the main container mounts, and the command that it has.
pub(super) fn lay_into(training: &Training, replica: Replica, pod: &mut Value, main: &mut Value) {
    if !has_files(training) {
        return;
    }
    pod["volumes"] = json!([{"name": VOLUME, "configMap": {"name": config_map(training), "defaultMode": 0o555}}]);
    let mut mounts = vec![json!({"name": VOLUME, "mountPath": FOLDER, "readOnly": true})];
    let mut mount = |path: &str, file: &str| {
        mounts.push(json!({"name": VOLUME, "mountPath": path, "subPath": file, "readOnly": true}));
    };
    if training.spec.framework == TrainingFramework::Deepspeed {
        mount(DEEPSPEED_HOSTFILE, "deepspeed-hostfile");
    }
    if uses_agent(training) {
        match replica {
            Replica::Launcher => mount(SSH, "ssh"),
            Replica::Worker => {
                main["command"] = json!(["python3", format!("{FOLDER}/agent.py"), "serve", training.host(Replica::Launcher, 0)]);
            }
        }
    }
    main["volumeMounts"] = mounts.into();
}
