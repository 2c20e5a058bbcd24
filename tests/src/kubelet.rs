//! Acts as the kubelet for the pods of an installation: no container runs on the nodes of tests, so the containers' programs run as local
//! processes.

use crate::{CommandOutput, Host, TestCluster, eventually};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::Behaviour;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    thread,
};
use tokio::{runtime::Handle, task::block_in_place};

/// The label that tells pods apart, and its values.
const LABEL: &str = "app.kubernetes.io/name";
const HOST: &str = "pointsman";
const JOB: &str = "pointsman-crds";

/// The annotation that makes kwok hold a pod back.
const HELD_BACK: &str = "cluster.pointsman.dev/behaviour";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The kubelet for the hosts' pods and for the job that installs the CRDs. A host runs while its pod exists. The pod is Ready once the host
/// is.
#[derive(Debug)]
pub struct Kubelet<'a> {
    cluster: &'a TestCluster,
    /// The program that replaces each image.
    programs: BTreeMap<String, PathBuf>,
    /// Whether it runs hosts too; otherwise kwok makes their pods Ready at once.
    plays_hosts: bool,
    /// The hosts with the names of their pods, by the pods' uids.
    hosts: BTreeMap<String, (String, Host<'a>)>,
    /// The uids of completed jobs' pods.
    done: BTreeSet<String>,
}

impl<'a> Kubelet<'a> {
    /// Runs future pods, each with the program for its image.
    pub fn new(cluster: &'a TestCluster, programs: &[(&str, PathBuf)]) -> Self {
        let kubelet = Self::for_jobs(cluster, programs);
        kubelet.hold_back(HOST);
        Self { plays_hosts: true, ..kubelet }
    }

    /// Runs only jobs.
    pub fn for_jobs(cluster: &'a TestCluster, programs: &[(&str, PathBuf)]) -> Self {
        let programs = programs.iter().map(|(image, program)| ((*image).to_owned(), program.clone())).collect();
        let kubelet = Self { cluster, programs, plays_hosts: false, hosts: BTreeMap::new(), done: BTreeSet::new() };
        kubelet.hold_back(JOB);
        kubelet
    }

    fn hold_back(&self, name: &str) {
        let held = self.cluster.behave(name, HOST_NAMESPACE, &BTreeMap::from([(LABEL, name)]), Behaviour::Pending);
        held.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The host of a pod.
    pub fn host(&self, pod: &str) -> Option<&Host<'a>> {
        self.hosts.values().find_map(|(name, host)| (name == pod).then_some(host))
    }

    /// The names of the pods with running hosts.
    pub fn pods(&self) -> BTreeSet<String> {
        self.hosts.values().map(|(name, _)| name.clone()).collect()
    }

    /// The pods of a kind that aren't terminating.
    fn find(&self, name: &str) -> Vec<Value> {
        let found = self.cluster.kubectl(&["get", "pods", "-n", HOST_NAMESPACE, "-l", &format!("{LABEL}={name}"), "-o", "json"]).ok();
        let list: Value = serde_json::from_str(&found).expect("kubectl prints JSON");
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect()
    }

    fn program(&self, pod: &Value) -> &PathBuf {
        let image = text(&pod["spec"]["containers"][0]["image"]);
        self.programs.get(image).unwrap_or_else(|| panic!("nothing runs in place of {image}"))
    }

    /// Does one round of a kubelet's work.
    async fn step(&mut self) {
        for pod in self.find(JOB).iter().filter(|pod| pod["status"]["phase"] == "Pending") {
            self.run_job(pod);
        }
        if !self.plays_hosts {
            return;
        }
        let pods = self.find(HOST);
        let is_there = |uid: &String| pods.iter().any(|pod| pod["metadata"]["uid"] == **uid);
        let gone: Vec<String> = self.hosts.keys().filter(|uid| !is_there(uid)).cloned().collect();
        for (_, host) in gone.iter().filter_map(|uid| self.hosts.remove(uid)) {
            host.stop();
        }
        for pod in pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()) {
            let (uid, name) = (text(&pod["metadata"]["uid"]).to_owned(), text(&pod["metadata"]["name"]).to_owned());
            let Some((_, host)) = self.hosts.get(&uid) else {
                let host = Host::start_as_pod(self.cluster, self.program(pod), pod).await;
                self.hosts.insert(uid, (name, host));
                continue;
            };
            if pod["metadata"]["annotations"][HELD_BACK].is_string() && matches!(host.get("/readyz"), Ok((200, _))) {
                // Now kwok makes it Ready, and gives it an address. It may have been deleted.
                self.cluster.kubectl(&["annotate", "pod", &name, "-n", HOST_NAMESPACE, &format!("{HELD_BACK}-")]);
            }
        }
    }

    /// Runs the program of the job's container, as its ServiceAccount.
    fn run_job(&mut self, pod: &Value) {
        let (uid, name, account) = (&pod["metadata"]["uid"], text(&pod["metadata"]["name"]), text(&pod["spec"]["serviceAccountName"]));
        // A real kubelet takes longer to start a container than the API server takes to learn about a role.
        let user = format!("--as=system:serviceaccount:{HOST_NAMESPACE}:{account}");
        let may = self.cluster.kubectl(&["auth", "can-i", "create", "customresourcedefinitions", &user]).stdout.starts_with("yes");
        if !may || !self.done.insert(text(uid).to_owned()) {
            return;
        }
        let account = self.cluster.kubeconfig_of_service_account(HOST_NAMESPACE, account);
        let args = pod["spec"]["containers"][0]["args"].as_array().cloned().unwrap_or_default();
        let mut command = Command::new(self.program(pod));
        command.args(args.iter().map(text)).env("KUBECONFIG", account.unwrap_or_else(|error| panic!("{error}")));
        let run = CommandOutput::by(&mut command);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", run.stdout);
        let status = json!({"status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}}).to_string();
        self.cluster
            .kubectl(&["patch", "pod", name, "-n", HOST_NAMESPACE, "--subresource", "status", "--type", "merge", "-p", &status])
            .ok();
    }

    /// Works until there is an answer.
    pub async fn until<T>(&mut self, what: &str, mut answer: impl AsyncFnMut(&Self) -> Option<T>) -> T {
        eventually(what, async || {
            self.step().await;
            answer(self).await
        })
        .await
    }

    /// Works while commands run that wait for the pods.
    pub fn during(&mut self, commands: impl FnOnce() -> CommandOutput + Send) -> CommandOutput {
        thread::scope(|scope| {
            let commands = scope.spawn(commands);
            let ended = self.until("the commands have ended", async |_| commands.is_finished().then_some(()));
            block_in_place(|| Handle::current().block_on(ended));
            commands.join().expect("the commands don't panic")
        })
    }

    /// Works until only the Deployment's newest pods exist and are Ready, and the replaced hosts have ended.
    pub async fn roll_out(&mut self) {
        self.until("the rollout ends", async |kubelet| {
            let found = kubelet.cluster.kubectl(&["get", "deployment", "pointsman", "-n", HOST_NAMESPACE, "-o", "json"]).ok();
            let deployment: Value = serde_json::from_str(&found).ok()?;
            let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
            let all = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"].iter().all(|field| status[*field] == *wanted);
            let current = status["observedGeneration"] == deployment["metadata"]["generation"];
            (all && current && wanted.as_u64() == Some(kubelet.hosts.len() as u64)).then_some(())
        })
        .await;
    }

    /// Works until no host runs any more, because their pods are deleted.
    pub async fn all_end(&mut self) {
        self.until("all hosts have ended", async |kubelet| (kubelet.hosts.is_empty() && kubelet.find(HOST).is_empty()).then_some(())).await;
    }
}
