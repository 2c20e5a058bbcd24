//! The pods of a Ray cluster, which the mode MultiNodeRayVLLM is.
//!
//! KubeRay writes a command of its own over that of the first container, which starts Ray and nothing else. It leaves a command alone
//! that starts Ray itself, and any command where an annotation says so; then it gives its own in a variable.

use crate::{
    arguments,
    engine::{self, Engine},
    group,
    node::{By, Node},
    pod::{Pod, add_arguments, line_of},
};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request, reason};

/// The annotation that has KubeRay leave a command alone.
const OVERWRITE: &str = "ray.io/overwrite-container-cmd";

/// The variable with KubeRay's own command.
const GENERATED: &str = "KUBERAY_GEN_RAY_START_CMD";

/// Starts Ray, without waiting for its end, and becomes the command that follows. The words of that are no part of the script, so that
/// what the kubelet puts into them may have quotes.
const SCRIPT: &str = r#"ulimit -n 65536; eval "${KUBERAY_GEN_RAY_START_CMD/--block/}" && exec "$@""#;

/// KubeRay's own shell, without a profile that would put another PATH in place of the image's.
const SHELL: [&str; 3] = ["/bin/bash", "-c", "--"];

/// What a container says of the engine that it starts.
const OF_ENGINE: [&str; 6] = ["command", "args", "livenessProbe", "readinessProbe", "startupProbe", "ports"];

const BACKEND: &str = "--distributed-executor-backend";

const BY: By<'static> = By { layer: "group", ..By::PLUGIN };

/// What a pod is to a Ray cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ray {
    /// It belongs to none.
    Absent,
    /// It starts Ray itself.
    Own,
    /// Ray is started before its command.
    Head,
    /// It runs Ray and nothing else.
    Worker,
}

impl Ray {
    /// Makes the command line one that can be read and added to, as far as there is one.
    pub(super) fn begin(request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<Self, Failure> {
        let Some(group) = group(request)?.filter(|group| group.ray) else { return Ok(Self::Absent) };
        pod.put_main_first();
        let Some(main) = pod.main_mut() else { return Ok(Self::Absent) };
        if group.overwrite || starts_ray(main) {
            // KubeRay looks for `ray start` in one word.
            pod.annotate(OVERWRITE, "true", BY);
            return Ok(Self::Own);
        }
        if request.role == Role::Worker {
            // An engine's probes would have the kubelet restart Ray for ever, and KubeRay adds its own only where there are none.
            let left: Vec<_> = OF_ENGINE.into_iter().filter(|field| main.take(field).is_some()).collect();
            let left = if left.is_empty() { String::new() } else { format!(", so these are left out: {}", left.join(", ")) };
            reasons.push(reason("RayWorker", format!("KubeRay gives a worker its command line, which runs no engine{left}.")));
            return Ok(Self::Worker);
        }
        if main.items_at("command").is_empty() {
            let command = entry_point(main)?.iter().map(|word| Node::text(*word, BY)).collect();
            main.set("command", Node::list(command, BY));
        }
        Ok(Self::Head)
    }

    /// Whether an engine runs in the pod that can be told something.
    pub(super) fn runs_engine(self) -> bool {
        self != Self::Worker
    }

    /// How many nodes the engine is told of, which are those that it can use.
    pub(super) fn nodes(self, nodes: u32, pod: &Pod<'_>, reasons: &mut Vec<Reason>) -> u32 {
        if self == Self::Absent || nodes <= 1 || pod.main().and_then(Engine::detect) != Some(Engine::Sglang) {
            return nodes;
        }
        let message = "SGLang doesn't run on Ray, so it uses the GPUs of the head alone: set the mode MultiNode for it.";
        reasons.push(reason("RayUnused", message));
        1
    }

    /// Puts Ray before the head's command, once that is as it will be.
    pub(super) fn finish(self, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
        let Some(main) = pod.main_mut().filter(|_| self == Self::Head) else { return };
        if Engine::detect(main) == Some(Engine::Vllm) && !engine::given(main).iter().any(|flag| flag == BACKEND) {
            add_arguments(main, [BACKEND.to_owned(), "ray".to_owned()], BY);
        }
        let text = |word: &str| Node::text(word, BY);
        // Behind the script a shell is told its name.
        let mut words: Vec<_> = [SCRIPT, "bash"].map(text).into();
        words.extend(["command", "args"].iter().filter_map(|field| main.take(field)).flat_map(|list| list.items().to_vec()));
        main.set("command", Node::list(SHELL.map(text).into(), BY));
        main.set("args", Node::list(words, BY));
        pod.annotate(OVERWRITE, "true", BY);
        reasons.push(reason("RayHead", "Ray starts on the head before its command, with the command that KubeRay passes as a variable."));
    }
}

fn starts_ray(container: &Node<'_>) -> bool {
    let line = line_of(container).join(" ");
    line.contains("ray start") || line.contains(GENERATED)
}

/// What the image starts by itself, if that is known.
fn entry_point(container: &Node<'_>) -> Result<&'static [&'static str], Failure> {
    let image = container.text_at("image").unwrap_or_default();
    if arguments::basename(engine::repository(image)) != "vllm-openai" {
        let name = container.text_at("name").unwrap_or_default();
        return Err(format!(
            "the container {name} of the leader needs a command, such as [vllm, serve], because Ray starts before it and the image's own \
             command ({image}) is unknown: set runner.command in the leader of the runtime or the service"
        )
        .into());
    }
    // With a model that no flag names only this one does something.
    let serves = container.items_at("args").first().and_then(Node::as_str).is_some_and(|word| !word.starts_with('-'));
    Ok(if serves { &["vllm", "serve"] } else { &["python3", "-m", "vllm.entrypoints.openai.api_server"] })
}
