//! The demo: Pointsman on an embedded control plane, as a user would see it.

use crate::{
    beside::Beside,
    build,
    guard::{Guarded, Running},
    tools,
};
use anyhow::{Context, Result, bail};
use pointsman_harness::{Cluster, Options, http_get, listening_address, workspace};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Exits after the demo has shown everything.
    #[arg(long)]
    exit: bool,
    /// Uses an existing cluster instead of the embedded one. The demo installs Pointsman's CRDs and the sample there, and doesn't remove
    /// them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "api_port"])]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    /// The nodes to simulate; tests/cluster/assets/nodes.yaml is the default and shows the format.
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// The API server's port; a free one by default.
    #[arg(long, value_name = "PORT")]
    api_port: Option<u16>,
}

/// The sample's model.
const MODEL: &str = "llama-3-1-8b-instruct";

/// The nodes of deploy/sample-models.yaml.
const MODELS_NODES: &str = "nvidia.com/gpu.product=NVIDIA-L4";

/// The plugin that the demo pushes.
const CHEAP: &str = "pointsman-example-rust-cost";

/// The neighbours whose kinds the sample uses or could use. Knative isn't one of them: its webhook takes minutes to build, and the sample
/// has no service for it.
const NEIGHBOURS: [&str; 5] = ["lws", "keda", "ray", "gateway", "inference-pool"];

/// How long kubectl waits for a condition.
const WAIT: &str = "120s";

/// How long the host may take to become ready.
const READY_WITHIN: Duration = Duration::from_mins(1);

pub(crate) fn run(args: &Args) -> Result<()> {
    let stop = Stop::listen()?;
    tools::rust()?;
    tools::kubectl()?;
    if args.kubeconfig.is_none() {
        tools::go()?;
    }
    let mut control_plane = args.kubeconfig.is_none().then(|| Beside::start("the control plane's build", build::kubernetes));
    let cheap = build::plugin(CHEAP)?;
    let host = build::host()?;
    if let Some(control_plane) = &mut control_plane {
        control_plane.finish()?;
    }
    let (kubeconfig, cluster) = if let Some(yours) = &args.kubeconfig {
        (yours.clone(), None)
    } else {
        let cluster = start_cluster(&args.cluster, Some(NEIGHBOURS.map(str::to_owned).into()))?;
        (cluster.kubeconfig.clone(), Some(cluster))
    };

    heading("pointsman crds install");
    Guarded::new(&host)?.args(["crds", "install"]).env("KUBECONFIG", &kubeconfig).succeed("installing the CRDs")?;

    let kubectl = |args: &[&str]| kubectl(&kubeconfig, cluster.as_ref(), args);
    let deploy = |file: &str| workspace().join("deploy").join(file).to_string_lossy().into_owned();
    kubectl(&["apply", "--server-side", "-f", &deploy("host/namespace.yaml")])?;

    let log = match &cluster {
        Some(cluster) => cluster.log_of("host"),
        None => std::env::temp_dir().join(format!("pointsman-host-{}.log", std::process::id())),
    };
    let mut controller = Guarded::new(&host)?
        .args(["controller", "--listen", "127.0.0.1:0"])
        .env("KUBECONFIG", &kubeconfig)
        .env("POINTSMAN_PICKER_IMAGE", "pointsman")
        .log(&log)?
        .start()?;
    let address = wait_until_ready(&mut controller, &log)?;
    heading(&format!("the host is ready: http://{address}/healthz answers, its log is {}", log.display()));

    let pointsman = |args: &[&str]| {
        heading(&format!("pointsman {}", args.join(" ")));
        Guarded::new(&host)?.args(args).env("KUBECONFIG", &kubeconfig).succeed("pointsman")
    };
    show(&kubectl, &pointsman, &deploy, cluster.is_some().then_some(&cheap))?;
    if args.exit {
        return Ok(());
    }

    heading("the demo runs until Ctrl-C; in another shell:");
    println!("export KUBECONFIG={}", kubeconfig.display());
    println!("kubectl get pointsman -A");
    println!("kubectl annotate isvc llama-chat pointsman.dev/choose-runtime=now   # takes the better runtime");
    stop.wait(|| match controller.ended() {
        Some(status) => bail!("the host ended ({status}); its log is {}", log.display()),
        None => Ok(()),
    })
}

/// Serves a model three times as OME's kind and once as KServe's. On the embedded cluster, pushes the plugin `cheap`, serves the model once
/// more, and lets three of eh-ops' models compete for two nodes.
fn show(
    kubectl: &impl Fn(&[&str]) -> Result<()>,
    pointsman: &impl Fn(&[&str]) -> Result<()>,
    deploy: &impl Fn(&str) -> String,
    cheap: Option<&PathBuf>,
) -> Result<()> {
    if cheap.is_some() {
        // Reserve the nodes for which models compete below: eh-ops' models tolerate this taint, and the services don't.
        kubectl(&["taint", "nodes", "--selector", MODELS_NODES, "nvidia.com/gpu=models:NoSchedule"])?;
    }
    kubectl(&["apply", "--server-side", "-f", &deploy("sample.yaml")])?;
    // The demo runs no agent on the nodes: set the status that it would report.
    let ready = r#"{"status":{"state":"Ready"}}"#;
    kubectl(&["patch", "clusterbasemodel", MODEL, "--subresource", "status", "--type", "merge", "--patch", ready])?;
    let Some(cheap) = cheap else {
        heading(&format!("pods go to nodes with the label models.ome.io/clusterbasemodel.{MODEL}=Ready; the demo doesn't label yours"));
        return kubectl(&["get", "pointsman", "--all-namespaces"]);
    };
    kubectl(&["label", "nodes", "--selector", "nvidia.com/gpu.product", &format!("models.ome.io/clusterbasemodel.{MODEL}=Ready")])?;
    kubectl(&["wait", "--for=condition=Ready", "isvc,llmisvc", "--all", "--timeout", WAIT])?;
    kubectl(&["get", "isvc,llmisvc"])?;
    // All kinds of objects that a service of any kind owns.
    let made = "deployments,leaderworkersets,services,inferencepools,hpa,pdb,pods";
    kubectl(&["get", made, "--selector", "pointsman.dev/subject-kind"])?;

    // The push changes the policy through a ConfigMap. A new service gets what the policy prefers; existing services stay unchanged and
    // report what they would get.
    pointsman(&["plugin", "push", "--name", "prefer-cheap", "--order", "100", "--config", r#"{"weight":100}"#, &cheap.to_string_lossy()])?;
    kubectl(&["apply", "--server-side", "-f", &deploy("sample-later.yaml")])?;
    kubectl(&["wait", "--for=condition=Ready", "isvc/llama-later", "--timeout", WAIT])?;
    kubectl(&["wait", "--for=condition=RuntimeUpToDate=False", "isvc/llama-chat", "--timeout", WAIT])?;
    let condition = |field: &str| format!(r#".status.conditions[?(@.type=="RuntimeUpToDate")].{field}"#);
    let columns = format!(
        "custom-columns=NAME:.metadata.name,RUNTIME:.status.runtime.name,UP-TO-DATE:{},WHY:{}",
        condition("status"),
        condition("message")
    );
    kubectl(&["get", "isvc", "--output", &columns])?;

    // Models compete for the memory of two nodes. One has to wait, and reports what it waits for.
    kubectl(&["apply", "--server-side", "-f", &deploy("sample-models.yaml")])?;
    kubectl(&["wait", "--for=condition=Ready", "infmodel/llama-70b", "infmodel/mixtral-8x7b", "--timeout", WAIT])?;
    kubectl(&["wait", "--for=condition=Allocated=False", "infmodel/qwen-72b", "--timeout", WAIT])?;
    kubectl(&["get", "infmodel"])?;
    pointsman(&["explain", "infmodel/qwen-72b"])
}

/// `cargo xtask cluster`.
pub(crate) fn run_cluster(args: &ClusterArgs) -> Result<()> {
    let stop = Stop::listen()?;
    tools::go()?;
    build::control_plane()?;
    let cluster = start_cluster(args, None)?;
    println!("export KUBECONFIG={}", cluster.kubeconfig.display());
    stop.wait(|| Ok(()))
}

fn start_cluster(args: &ClusterArgs, neighbours: Option<Vec<String>>) -> Result<Cluster> {
    heading("starting Kubernetes");
    let options = Options { nodes: args.nodes.clone(), api_port: args.api_port, neighbours, progress: true, ..Options::default() };
    Ok(Cluster::start(&options)?)
}

/// Ctrl-C and similar signals. Until `wait` runs, such a signal ends this program at once, and everything that it started.
struct Stop {
    awaited: Arc<AtomicBool>,
    told: Receiver<()>,
}

impl Stop {
    fn listen() -> Result<Self> {
        let awaited = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let somebody_waits = Arc::clone(&awaited);
        ctrlc::set_handler(move || {
            if !somebody_waits.load(Ordering::SeqCst) || tell.send(()).is_err() {
                std::process::exit(130);
            }
        })
        .context("listening for Ctrl-C")?;
        Ok(Self { awaited, told })
    }

    /// Waits for a signal, and calls `check` regularly: its error ends the wait.
    fn wait(&self, mut check: impl FnMut() -> Result<()>) -> Result<()> {
        self.awaited.store(true, Ordering::SeqCst);
        while self.told.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
            check()?;
        }
        println!("stopping");
        Ok(())
    }
}

/// Waits until the host is ready, and returns the address that it listens on.
fn wait_until_ready(host: &mut Running, log: &Path) -> Result<String> {
    let started = Instant::now();
    let mut said = "it doesn't report its address".to_owned();
    while started.elapsed() < READY_WITHIN {
        if let Some(status) = host.ended() {
            let printed = std::fs::read_to_string(log).unwrap_or_default();
            bail!("the host ended ({status}): {}", printed.lines().last().unwrap_or("it printed nothing"));
        }
        if let Some(address) = listening_address(log) {
            match http_get(&address, "/readyz") {
                Ok((200, _)) => return Ok(address),
                Ok((_, body)) => said = body,
                Err(error) => said = format!("{address}: {error}"),
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
    bail!("the host isn't ready after {} s: {}", READY_WITHIN.as_secs(), said.trim_end())
}

fn kubectl(kubeconfig: &Path, cluster: Option<&Cluster>, args: &[&str]) -> Result<()> {
    heading(&format!("kubectl {}", args.join(" ")));
    let kubectl = Guarded::new("kubectl")?.args(args).env("KUBECONFIG", kubeconfig);
    // kubectl's discovery cache is keyed by the server's address, and the next embedded cluster may have the same one.
    let kubectl = match cluster {
        Some(cluster) => kubectl.env("KUBECACHEDIR", cluster.dir.join("kube-cache")),
        None => kubectl,
    };
    kubectl.succeed("kubectl")
}

fn heading(text: &str) {
    println!("\n# {text}");
}
