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

/// A running control plane and what tests do with it.
#[derive(Debug)]
pub struct TestCluster {
    cluster: Cluster,
    /// Set once the shipped roles are there.
    roles: OnceLock<()>,
    audit: Mutex<AuditLog>,
    /// The permit of one that isn't shared. Given back after the processes have ended: fields are dropped in this order.
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

/// How many tests have control planes of their own at once: an API server takes 17 seconds of CPU until it serves our CRDs, and 2 GiB.
const OWN: usize = 3;

/// One of those.
#[derive(Debug)]
pub struct OwnClusterPermit(());

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl OwnClusterPermit {
    /// Waits for one. The whole thread of the test waits, which has nothing else to do.
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
    /// The one that the tests share, with every part, neighbour and CRD, the optional ones too. `cargo xtask test` starts it
    /// and waits for its end; without it, it ends with the test process.
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

    /// One of a test's own, without our CRDs.
    pub fn start(options: &Options) -> Self {
        Self::started(options, Some(OwnClusterPermit::take()))
    }

    /// The same with our CRDs and the host's namespace.
    pub fn with_our_crds(options: Options) -> Self {
        // One after the other: the first prepares the data, and must not wait for those that wait for it.
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

    /// Begins the use by a further test.
    pub(crate) fn begin(&mut self, permit: OwnClusterPermit) {
        self.permit = Some(permit);
    }

    /// Ends the use by a test: what hosts did is recorded, and the next test sees none of it.
    pub(crate) fn end(&mut self) {
        grants::record(&self.audit_lines());
        let audit = self.audit.get_mut().unwrap_or_else(PoisonError::into_inner);
        *audit = AuditLog::beginning_now(mem::take(&mut audit.path));
        self.permit = None;
    }

    /// An API server and its storage, which is enough for CRDs, with these neighbours.
    pub fn bare(neighbours: &[&str]) -> Self {
        Self::start(&bare(neighbours))
    }

    /// A client of the administrator. A client belongs to the runtime that made it, and every test has its own.
    pub async fn client(&self) -> Client {
        client(&self.kubeconfig).await
    }

    /// A kubeconfig, with a token of its own, of the ServiceAccount that hosts run as: it has the rights of `deploy/roles` and no others.
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
        // The API server learns of roles and bindings by watches of its own, in their order.
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

    /// Applies an object, as [`apply_from`](Self::apply_from) does, whoever has its fields.
    pub fn apply(&self, object: &Value) -> CommandOutput {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let file = self.dir.join(format!("apply-{}.json", COUNT.fetch_add(1, Ordering::Relaxed)));
        fs::write(&file, object.to_string()).expect("writing the object to apply");
        self.apply_from(&["--force-conflicts", "-f", &file.to_string_lossy()])
    }

    /// kubectl applies what its further arguments name. It doesn't ask for the API's description first, which takes the API server seconds, and
    /// minutes where it is busy.
    pub fn apply_from(&self, args: &[&str]) -> CommandOutput {
        self.kubectl(&[&["apply", "--server-side", "--validate=false"], args].concat())
    }

    /// Our own command line against this cluster.
    pub fn pointsman(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::by(Command::new(pointsman()).args(args).env("KUBECONFIG", &self.kubeconfig).env(CACHE, compiled()))
    }

    /// The requests that the API server has answered so far, as its audit log tells them.
    pub fn requests(&self) -> Vec<Arc<Value>> {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner).requests()
    }

    /// The same as the log's text.
    pub fn audit_lines(&self) -> String {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

/// An API server's audit log. Tests ask for it many times a second, so each line is parsed once.
#[derive(Debug, Default)]
struct AuditLog {
    path: PathBuf,
    /// Where in the file the lines begin that are of this test.
    begin: u64,
    /// How many of its bytes have been parsed.
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
        // A cluster that didn't start has none.
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
        // The API server may be in the middle of a line.
        let whole = further.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = further[..whole].split(|byte| *byte == b'\n');
        self.requests.extend(lines.filter_map(|line| serde_json::from_slice(line).ok()).map(Arc::new));
        self.parsed += whole as u64;
        self.requests.clone()
    }
}

/// What starts an API server and its storage alone.
pub(crate) fn bare(neighbours: &[&str]) -> Options {
    Options {
        parts: Some(vec!["etcd".to_owned(), "apiserver".to_owned()]),
        neighbours: Some(neighbours.iter().map(ToString::to_string).collect()),
        ..Options::default()
    }
}

/// The data of an etcd with our CRDs and the host's namespace. To find them there costs an API server a fraction of what it costs to accept
/// them. The data goes with the shared cluster.
fn our_crds() -> &'static Path {
    static DATA: OnceLock<PathBuf> = OnceLock::new();
    DATA.get_or_init(|| {
        // Each cluster makes its own nodes.
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

/// A namespace of one test; it goes with the control plane.
#[allow(missing_debug_implementations)]
pub struct TestNamespace<'a> {
    /// Where it is.
    pub cluster: &'a TestCluster,
    /// A client of the administrator.
    pub client: Client,
    /// Its name.
    pub name: String,
}
