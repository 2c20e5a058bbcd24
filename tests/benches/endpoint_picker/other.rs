//! Another endpoint picker for the same pool, for comparison: llm-d's, or one with the same flags.

use crate::{POOL, WITHOUT_TLS, streams::places};
use pointsman_tests::{PICKER_ACCOUNT, TestNamespace, eventually};
use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener, TcpStream},
};

/// The variable with the path of the program.
const VARIABLE: &str = "POINTSMAN_OTHER_PICKER";

/// Its name among the cluster's parts.
pub(crate) const PART: &str = "other-picker";

/// Starts the picker from the variable, for the same pool with the same rights, and only with flags of llm-d's picker. Returns its address.
pub(crate) async fn start(space: &TestNamespace<'_>, tls: bool) -> Option<SocketAddr> {
    let program = std::env::var(VARIABLE).ok()?;
    let kubeconfig = space.cluster.kubeconfig_of_service_account(&space.name, PICKER_ACCOUNT).unwrap();
    // All at once, so that the ports differ.
    let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [grpc, health, metrics] = free.map(|listener| listener.local_addr().unwrap().port());
    let flags = [
        ("--pool-name", POOL.to_owned()),
        ("--pool-namespace", space.name.clone()),
        ("--grpc-port", grpc.to_string()),
        ("--grpc-health-port", health.to_string()),
        ("--metrics-port", metrics.to_string()),
    ];
    let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    let without_tls = (!tls).then(|| WITHOUT_TLS.to_owned());
    let command: Vec<String> = [program].into_iter().chain(flags).chain(without_tls).collect();
    let environment = BTreeMap::from([
        ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
        ("NAMESPACE".to_owned(), space.name.clone()),
        ("POD_NAME".to_owned(), "picker-0".to_owned()),
    ]);
    space.cluster.run(PART, &command, &environment).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], grpc));
    eventually("the other picker responds", async || {
        let answers = if tls { TcpStream::connect(address).is_ok() } else { places(address).await };
        answers.then_some(())
    })
    .await;
    Some(address)
}
