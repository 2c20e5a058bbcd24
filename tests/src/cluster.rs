//! The control plane of the tests.

use crate::{
    CommandOutput, TEST_TIMEOUT,
    command::{CACHE, compiled, helm_folders},
    grants, helm, pointsman,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use pointsman::permissions::ACCOUNT;
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::{Cluster, Options, SHARED_CLUSTER, workspace};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    mem,
    ops::Deref,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

/// A running control plane, with the operations that tests need.
#[derive(Debug)]
pub struct TestCluster {
    cluster: Cluster,
    /// Set once the shipped roles are installed.
    roles: OnceLock<()>,
    audit: Mutex<AuditLog>,
    /// The permit of a cluster that isn't shared. Fields are dropped in this order, so it is released once the processes have ended.
    permit: Option<OwnClusterPermit>,
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        grants::record(&self.audit_lines());
    }
}

impl Deref for TestCluster {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

/// The maximum number of tests with their own control planes at once: an API server takes 17 seconds of CPU until it serves our CRDs, and 2
/// GiB.
const OWN: usize = 3;

/// The permit for one of them.
#[derive(Debug)]
pub struct OwnClusterPermit(());

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl OwnClusterPermit {
    /// Waits for a permit. It blocks the thread of the test, which has nothing else to do.
    pub fn take() -> Self {
        let taken = TAKEN.lock().expect("no panic while it is held");
        let mut taken = FREED.wait_while(taken, |taken| *taken >= OWN).expect("no panic while it is held");
        *taken += 1;
        Self(())
    }
}

impl Drop for OwnClusterPermit {
    fn drop(&mut self) {
        *TAKEN.lock().expect("no panic while it is held") -= 1;
        FREED.notify_one();
    }
}

impl TestCluster {
    /// The control plane that tests share, with every part, neighbour and CRD, including optional ones. `cargo xtask test` starts it and
    /// waits for its end. Otherwise it ends with the test process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestCluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let cluster = match std::env::var(SHARED_CLUSTER) {
                Ok(ready) => Self::new(Cluster::attach(ready).expect("what xtask told of its cluster"), None),
                Err(_) => Self::started(&Options::default(), None),
            };
            cluster.pointsman(&["crds", "install", "--all"]).ok();
            cluster
        })
    }

    /// A control plane for one test, without our CRDs.
    pub fn start(options: &Options) -> Self {
        Self::started(options, Some(OwnClusterPermit::take()))
    }

    /// A control plane for one test, with our CRDs and the host's namespace.
    pub fn with_our_crds(options: Options) -> Self {
        // Before the permit is taken: the first caller prepares the data, and must not wait for callers that wait for it.
        let data = our_crds();
        let cluster = Self::start(&Options { etcd_data: Some(data.to_owned()), ..options });
        cluster.roles.get_or_init(|| ());
        cluster
    }

    fn started(options: &Options, permit: Option<OwnClusterPermit>) -> Self {
        Self::new(Cluster::start(options).unwrap_or_else(|error| panic!("{error}")), permit)
    }

    fn new(cluster: Cluster, permit: Option<OwnClusterPermit>) -> Self {
        let audit = Mutex::new(AuditLog { path: cluster.audit_log.clone(), ..AuditLog::default() });
        Self { cluster, roles: OnceLock::new(), audit, permit }
    }

    /// Assigns it to a further test.
    pub(crate) fn begin(&mut self, permit: OwnClusterPermit) {
        self.permit = Some(permit);
    }

    /// Ends its use by a test: records the hosts' requests, and hides them from the next test.
    pub(crate) fn end(&mut self) {
        grants::record(&self.audit_lines());
        let audit = self.audit.get_mut().unwrap_or_else(PoisonError::into_inner);
        *audit = AuditLog::beginning_now(mem::take(&mut audit.path));
        self.permit = None;
    }

    /// An API server and its storage with these neighbours, which is enough for CRDs.
    pub fn bare(neighbours: &[&str]) -> Self {
        Self::start(&bare(neighbours))
    }

    /// A client of the administrator. A client belongs to the runtime that created it, and every test has its own runtime.
    pub async fn client(&self) -> Client {
        client(&self.kubeconfig).await
    }

    /// A kubeconfig, with its own token, for the ServiceAccount of hosts. It only has the rights of `deploy/roles`.
    pub fn host_kubeconfig(&self) -> PathBuf {
        self.roles.get_or_init(|| self.install_roles());
        self.kubeconfig_of_service_account(HOST_NAMESPACE, ACCOUNT).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Applies the host's namespace and the shipped roles.
    fn install_roles(&self) {
        let deploy = workspace().join("deploy");
        for (flag, path) in [("-f", "host/namespace.yaml"), ("-k", "roles"), ("-k", "roles/webhook"), ("-k", "roles/external-metrics")] {
            let applied = self.apply_from(&[flag, &deploy.join(path).to_string_lossy()]);
            assert_eq!(applied.stderr, "", "a warning, or an error");
        }
        // The API server learns about roles and bindings by its own watches, in this order.
        let user = format!("--as={}", grants::host_user());
        for (resource, place) in [
            ("mutatingwebhookconfigurations/pointsman", "--all-namespaces"),
            ("secrets/pointsman-webhook", "--namespace=pointsman-system"),
            ("configmaps/extension-apiserver-authentication", "--namespace=kube-system"),
        ] {
            let started = Instant::now();
            while !self.kubectl(&["auth", "can-i", "list", resource, place, &user]).stdout.starts_with("yes") {
                assert!(started.elapsed() < TEST_TIMEOUT, "it never happened: hosts may list {resource}");
            }
        }
    }

    /// A namespace that no other test uses.
    pub async fn namespace(&self, what: &str) -> TestNamespace<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{what}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let client = self.client().await;
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("creating a namespace");
        TestNamespace { cluster: self, client, name }
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self, args: &[&str]) -> CommandOutput {
        let cache = self.dir.join("kube-cache");
        CommandOutput::by(Command::new("kubectl").args(args).env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", cache))
    }

    /// Helm as the administrator.
    pub fn helm(&self, args: &[&str]) -> CommandOutput {
        let mut helm = Command::new(helm());
        CommandOutput::by(helm_folders(helm.args(args).env("KUBECONFIG", &self.kubeconfig), &self.dir))
    }

    /// Applies an object like [`apply_from`](Self::apply_from), even if another field manager owns its fields.
    pub fn apply(&self, object: &Value) -> CommandOutput {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let file = self.dir.join(format!("apply-{}.json", COUNT.fetch_add(1, Ordering::Relaxed)));
        fs::write(&file, object.to_string()).expect("writing the object to apply");
        self.apply_from(&["--force-conflicts", "-f", &file.to_string_lossy()])
    }

    /// `kubectl apply` with these arguments. It doesn't validate, because reading the API's description takes seconds, and minutes if the
    /// API server is busy.
    pub fn apply_from(&self, args: &[&str]) -> CommandOutput {
        self.kubectl(&[&["apply", "--server-side", "--validate=false"], args].concat())
    }

    /// Our own command line against this cluster.
    pub fn pointsman(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::by(Command::new(pointsman()).args(args).env("KUBECONFIG", &self.kubeconfig).env(CACHE, compiled()))
    }

    /// The requests that the API server has served so far, from its audit log.
    pub fn requests(&self) -> Vec<Arc<Value>> {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner).requests()
    }

    /// The text of the audit log.
    pub fn audit_lines(&self) -> String {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

/// An API server's audit log. Tests read it many times per second, so each line is parsed once.
#[derive(Debug, Default)]
struct AuditLog {
    path: PathBuf,
    /// The offset of this test's first line.
    begin: u64,
    /// The number of parsed bytes.
    parsed: u64,
    requests: Vec<Arc<Value>>,
}

impl AuditLog {
    fn beginning_now(path: PathBuf) -> Self {
        let begin = fs::metadata(&path).map_or(0, |file| file.len());
        Self { path, begin, parsed: begin, requests: Vec::new() }
    }

    fn text(&self) -> String {
        let mut text = Vec::new();
        // A cluster that didn't start has no audit log.
        if let Ok(mut log) = File::open(&self.path) {
            log.seek(SeekFrom::Start(self.begin)).expect("the log only grows");
            log.read_to_end(&mut text).expect("reading the audit log");
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    fn requests(&mut self) -> Vec<Arc<Value>> {
        let mut log = File::open(&self.path).expect("opening the audit log");
        log.seek(SeekFrom::Start(self.parsed)).expect("the log only grows");
        let mut further = Vec::new();
        log.read_to_end(&mut further).expect("reading the audit log");
        // The API server may be writing a line.
        let whole = further.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = further[..whole].split(|byte| *byte == b'\n');
        self.requests.extend(lines.filter_map(|line| serde_json::from_slice(line).ok()).map(Arc::new));
        self.parsed += whole as u64;
        self.requests.clone()
    }
}

/// The options for only an API server and its storage.
pub(crate) fn bare(neighbours: &[&str]) -> Options {
    Options {
        parts: Some(vec!["etcd".to_owned(), "apiserver".to_owned()]),
        neighbours: Some(neighbours.iter().map(ToString::to_string).collect()),
        ..Options::default()
    }
}

/// The data of an etcd with our CRDs and the host's namespace. An API server starts much faster with existing CRDs than it accepts new
/// ones. The data is deleted with the shared cluster.
fn our_crds() -> &'static Path {
    static DATA: OnceLock<PathBuf> = OnceLock::new();
    DATA.get_or_init(|| {
        // Each cluster creates its own nodes.
        let cluster = TestCluster::start(&Options { nodes: Some("none".into()), ..bare(&[]) });
        cluster.pointsman(&["crds", "install"]).ok();
        cluster.install_roles();
        cluster.stop_part("apiserver").expect("stopping the API server");
        cluster.stop_part("etcd").expect("stopping etcd");
        let data = TestCluster::shared().dir.join(format!("our-crds-{}", std::process::id()));
        CommandOutput::by(Command::new("cp").arg("-r").arg(cluster.dir.join("etcd")).arg(&data)).ok();
        data
    })
}

/// A client for a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("reading the kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("using the kubeconfig");
    Client::try_from(config).expect("making a client")
}

/// A namespace of one test. It ends with the control plane.
#[allow(missing_debug_implementations)]
pub struct TestNamespace<'a> {
    /// Its cluster.
    pub cluster: &'a TestCluster,
    /// A client of the administrator.
    pub client: Client,
    /// Its name.
    pub name: String,
}
