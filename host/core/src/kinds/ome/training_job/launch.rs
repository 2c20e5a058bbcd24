//! Lets a launcher start processes on its workers without SSH: by an agent in each worker, and files in both.
//!
//! Images for training contain Python, but usually neither sshd nor keys. The agent (`agent.py`) only needs Python: no permissions in the
//! API, and no Secret, which the host would have to create in the tenants' namespaces. Workers accept commands only from the launcher's
//! address.
//!
//! The files are annotations of the pods, which the downward API mounts. ConfigMaps would require permission to write ConfigMaps in every
//! namespace, and in some clusters a ConfigMap in kube-system determines who is an administrator.

use super::{PlanError, Replica, spec::Training};
use pointsman_crds::ome::training_job::{MpiImplementation, TrainingFramework};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _};

const AGENT: &str = include_str!("agent.py");

/// The directory with the files, in launchers and workers: the one where Kubeflow's users expect the hostfile.
const FOLDER: &str = "/etc/mpi";

/// The default path of deepspeed's hostfile.
const DEEPSPEED_HOSTFILE: &str = "/job/hostfile";

/// The path of ssh for programs that can't use another agent: it precedes the image's own.
const SSH: &str = "/usr/local/bin/ssh";

/// The port on which agents accept commands.
pub(super) const AGENT_PORT: u16 = 23999;

const VOLUME: &str = "pointsman-launch";

/// The prefix of a file's annotation; the file's name follows.
const ANNOTATION: &str = "launch.pointsman.dev/";

/// The maximum total size of a pod's files, in bytes. Kubernetes accepts 256 KiB of annotations, and users have their own.
const MAX_FILES: usize = 192 << 10;

/// The script that programs call instead of ssh.
const WRAPPER: &str = "#!/bin/sh\nexec python3 /etc/mpi/agent.py run \"$@\"\n";

/// The path of the hostfile.
pub(super) fn hostfile() -> String {
    format!("{FOLDER}/hostfile")
}

/// The path of the replacement for ssh.
pub(super) fn ssh() -> String {
    format!("{FOLDER}/ssh")
}

/// Whether the workers run the agent: they do unless they have their own command.
pub(super) fn uses_agent(training: &Training) -> bool {
    let has_command = || {
        training
            .main_container(Replica::Worker)
            .is_some_and(|main| ["command", "args"].iter().any(|field| main[*field].as_array().is_some_and(|words| !words.is_empty())))
    };
    training.has_launcher() && !has_command()
}

/// Checks that the agents can identify the launcher, and that the files fit into a pod's annotations.
pub(super) fn check(training: &Training) -> Result<(), Box<PlanError>> {
    let size: usize = files(training, Replica::Launcher).values().map(String::len).sum();
    if size > MAX_FILES {
        let message = format!(
            "spec.worker.replicas is {}: the hostfile and the launch agent would have {} KiB; the limit in a pod's annotations is {} KiB. \
             Run fewer workers with more processes each, or give the job a shorter name.",
            training.workers(),
            size.div_ceil(1 << 10),
            MAX_FILES >> 10
        );
        return Err(PlanError::refused("NotSupported", message));
    }
    let shared = |replica: &Replica| training.template(*replica)["spec"]["hostNetwork"] == true;
    let Some(replica) = Replica::ALL.iter().find(|replica| uses_agent(training) && shared(replica)) else { return Ok(()) };
    let message = format!(
        "spec.{}.template.spec.hostNetwork is true: the workers identify the launcher by its address, which it then shares with its node. \
         Remove hostNetwork, or set a command for the workers that accepts the launcher, such as sshd with your own keys.",
        replica.name()
    );
    Err(PlanError::refused("NotSupported", message))
}

/// The files of a pod, by name.
pub(super) fn files(training: &Training, replica: Replica) -> BTreeMap<&'static str, String> {
    let mut files = BTreeMap::new();
    if training.spec.framework == TrainingFramework::Pytorch {
        return files;
    }
    let uses_agent = uses_agent(training);
    if replica == Replica::Launcher || !uses_agent {
        files.insert("hostfile", hosts(training, training.spec.mpi_implementation.unwrap_or_default()));
        if training.spec.framework == TrainingFramework::Deepspeed {
            files.insert("deepspeed-hostfile", hosts(training, MpiImplementation::OpenMPI));
        }
    }
    if uses_agent {
        files.insert("agent.py", AGENT.to_owned());
        files.insert("key", training.uid.clone());
        if replica == Replica::Launcher {
            files.insert("ssh", WRAPPER.to_owned());
        }
    }
    files
}

/// A pod's files as annotations.
pub(super) fn annotations(training: &Training, replica: Replica) -> impl Iterator<Item = (String, String)> {
    files(training, replica).into_iter().map(|(name, content)| (format!("{ANNOTATION}{name}"), content))
}

/// The hostfile: one line per worker, with the number of its processes.
fn hosts(training: &Training, implementation: MpiImplementation) -> String {
    let slots = training.processes.number;
    let mut lines = String::new();
    for index in 0..training.workers() {
        let host = training.host(Replica::Worker, index);
        // Writing to a String can't fail.
        _ = match implementation {
            MpiImplementation::OpenMPI => writeln!(lines, "{host} slots={slots}"),
            MpiImplementation::Intel | MpiImplementation::MPICH => writeln!(lines, "{host}:{slots}"),
        };
    }
    lines
}

/// Adds the files to a pod: its volumes, the main container's mounts, and its command.
pub(super) fn lay_into(training: &Training, replica: Replica, pod: &mut Value, main: &mut Value) {
    let files = files(training, replica);
    if files.is_empty() {
        return;
    }
    let items =
        files.keys().map(|name| json!({"path": name, "fieldRef": {"fieldPath": format!("metadata.annotations['{ANNOTATION}{name}']")}}));
    pod["volumes"] = json!([{"name": VOLUME, "downwardAPI": {"defaultMode": 0o555, "items": items.collect::<Vec<_>>()}}]);
    let mut mounts = vec![json!({"name": VOLUME, "mountPath": FOLDER, "readOnly": true})];
    for (path, name) in [(DEEPSPEED_HOSTFILE, "deepspeed-hostfile"), (SSH, "ssh")] {
        if files.contains_key(name) {
            mounts.push(json!({"name": VOLUME, "mountPath": path, "subPath": name, "readOnly": true}));
        }
    }
    if replica == Replica::Worker && uses_agent(training) {
        main["command"] = json!(["python3", format!("{FOLDER}/agent.py"), "serve", training.host(Replica::Launcher, 0)]);
    }
    main["volumeMounts"] = mounts.into();
}
