//! docs/gateway.md describes every flag, error and metric of the gateway.

use super::{
    backend::Backend,
    rig::{Rig, bytes},
};
use crate::program::pointsman;
use pointsman::{gateway::counts::GatewayState, metrics::Format};
use prometheus_client::registry::Registry;
use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn page() -> String {
    fs::read_to_string(root().join("docs/gateway.md")).unwrap()
}

#[tokio::test]
async fn every_metric_is_on_the_page() {
    let backend = Backend::start().await;
    let rig = Rig::with(&backend).await;
    bytes(rig.chat("a", &[]).await).await;
    let mut registry = Registry::default();
    rig.proxy.counts.register(&mut registry);
    let (models, backends) = (Arc::clone(&rig.proxy.models), Arc::clone(&rig.proxy.backends));
    registry.register_collector(Box::new(GatewayState { models, backends, buffered: rig.proxy.buffered.clone() }));
    let metrics = Format::Prometheus.page(&registry).unwrap();
    let (names, page) = (metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()), page());
    let missing: Vec<&str> = names
        .filter(|name| {
            let short = name.strip_prefix("pointsman_gateway").unwrap();
            !page.contains(&format!("`{name}`")) && !page.contains(&format!("`{short}`"))
        })
        .collect();
    assert!(missing.is_empty(), "docs/gateway.md lacks {missing:?}");
    assert!(metrics.contains("pointsman_gateway_routable{model=\"a\"} 1"), "{metrics}");
}

#[test]
fn every_flag_on_the_page_is_one_and_every_error_is_on_it() {
    let help = String::from_utf8(pointsman(&["gateway", "--help"]).output().unwrap().stdout).unwrap();
    let page = page();
    let flags: BTreeSet<&str> = page
        .split("--")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next().unwrap())
        // The page also contains a flag of Helm.
        .filter(|flag| flag.len() > 2 && *flag != "set")
        .collect();
    let unknown: Vec<&&str> =
        flags.iter().filter(|flag| !help.contains(&format!("--{flag} ")) && !help.contains(&format!("--{flag}\n"))).collect();
    assert!(unknown.is_empty() && flags.len() > 15, "no flags of the gateway: {unknown:?} of {flags:?}");
    let source = fs::read_to_string(root().join("host/src/gateway/error.rs")).unwrap();
    let codes = source.split("Self::new(StatusCode::").skip(1).filter_map(|rest| rest.split('"').nth(1));
    let missing: Vec<&str> = codes.filter(|code| !page.contains(&format!("`{code}`"))).collect();
    assert!(missing.is_empty(), "docs/gateway.md lacks {missing:?}");
}
