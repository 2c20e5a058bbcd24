//! The gateway as a process, for a test's cluster.

use crate::{TestCluster, eventually, pointsman};
use pointsman::permissions::GATEWAY_ACCOUNT;
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::{http_get, listening_address, log_lines, workspace};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A running `pointsman gateway`. It ends with its cluster.
#[derive(Debug)]
pub struct GatewayProcess<'a> {
    cluster: &'a TestCluster,
    /// The name of its part in the cluster.
    pub part: String,
    /// The address for clients.
    pub address: String,
    /// The address of /readyz and /metrics.
    pub pages: String,
    log: PathBuf,
}

impl<'a> GatewayProcess<'a> {
    /// Starts it as the ServiceAccount of gateways, and waits until it serves. Gateways of one cluster need different numbers, because its
    /// rights to write depend on the number.
    pub async fn start(cluster: &'a TestCluster, number: u32, flags: &[String]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let roles = workspace().join("deploy/gateway/roles.yaml");
        cluster.apply_from(&["-f", &roles.to_string_lossy()]).ok();
        let kubeconfig = cluster.kubeconfig_of_service_account(HOST_NAMESPACE, GATEWAY_ACCOUNT);
        let kubeconfig = kubeconfig.unwrap_or_else(|error| panic!("{error}"));
        let part = format!("gateway-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let (program, number) = (pointsman().display().to_string(), number.to_string());
        let fixed = ["gateway", "--listen", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--identity", &number, "--shutdown-delay", "0s"];
        let command: Vec<String> = [program].into_iter().chain(fixed.map(str::to_owned)).chain(flags.iter().cloned()).collect();
        let environment = BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig.display().to_string())]);
        let log = cluster.run(&part, &command, &environment).unwrap_or_else(|error| panic!("{error}"));
        let address = eventually("the gateway answers clients", async || serving_address(&log)).await;
        let pages = listening_address(&log).expect("it says that first");
        Self { cluster, part, address, pages, log }
    }

    /// The value of a series on its metrics page, by the exact text of the series.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let (_, page) = http_get(&self.pages, "/metrics").ok()?;
        page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// The lines of its log.
    pub fn log(&self) -> Vec<Value> {
        log_lines(&self.log)
    }

    /// Kills it.
    pub fn kill(&self) {
        self.cluster.kill_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Stops it like a kubelet.
    pub fn stop(&self) {
        self.cluster.stop_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The address for clients, once it is logged.
fn serving_address(log: &Path) -> Option<String> {
    let line = log_lines(log).into_iter().find(|line| line["message"] == "answering clients")?;
    line["address"].as_str().map(str::to_owned)
}
