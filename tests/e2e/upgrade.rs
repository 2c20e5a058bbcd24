//! The upgrade from the first version with a chart to the current one, by kustomize and by Helm, with a hundred services; and the removal
//! of each.

mod lease;
mod services;
mod traces;

use crate::services::{Space, hosts_rest};
use lease::LeaseLog;
use pointsman_harness::{Options, forget_our_package, target_dir, workspace};
use pointsman_tests::{CommandOutput, TestCluster, eventually, guide::blocks, is_full, kubelet::Kubelet, pointsman};
use services::Services;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use traces::Traces;

/// The commit of the manifests in `tests/fixtures`.
const COMMIT: &str = "c988aff";

/// The images in the guide, before and after the upgrade.
const OLD: &str = "registry.example.com/pointsman:0.1.0";
const NEW: &str = "registry.example.com/pointsman:0.2.0";

/// Unpacks the old manifests into a folder.
fn unpack(folder: &Path) {
    let archive = workspace().join("tests/fixtures").join(format!("installation-{COMMIT}.tar.xz"));
    fs::create_dir_all(folder).unwrap();
    CommandOutput::by(Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(folder)).ok();
}

/// Replaces them with the current manifests, like a user who updates a clone.
fn update(folder: &Path) {
    for name in ["crds", "deploy"] {
        fs::remove_dir_all(folder.join(name)).unwrap();
        CommandOutput::by(Command::new("cp").arg("-r").arg(workspace().join(name)).arg(folder)).ok();
    }
}

/// The old host: with `--full` its own binary, which takes minutes to build, and otherwise the current one.
fn old_program() -> PathBuf {
    if !is_full() {
        return pointsman();
    }
    let (source, archive) = (target_dir().join("upgrade/source"), target_dir().join("upgrade/source.tar"));
    fs::create_dir_all(&source).unwrap();
    let archive = archive.display().to_string();
    let archived = CommandOutput::by(Command::new("git").args(["archive", "--output", &archive, COMMIT]).current_dir(workspace()));
    assert!(
        archived.success,
        "the commit {COMMIT}, whose host is to be upgraded, can't be read: fetch the whole history (`git fetch --unshallow`): {}",
        archived.stderr
    );
    CommandOutput::by(Command::new("tar").args(["-xf", &archive, "-C"]).arg(&source)).ok();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_our_package(&mut cargo);
    let target = target_dir().join("upgrade/target");
    cargo.args(["build", "--quiet", "--package", "pointsman", "--target-dir"]).arg(&target).current_dir(&source);
    CommandOutput::by(&mut cargo).ok();
    target.join("debug/pointsman")
}

/// Waits until the leader has reconciled all services, and the hosts write nothing but their Lease.
async fn settled(cluster: &TestCluster, kubelet: &mut Kubelet<'_>, services: &Services<'_>) {
    let looked = async |kubelet: &Kubelet<'_>| {
        let holder = lease::holder(cluster)?;
        (kubelet.host(&holder)?.reconciles() >= services.number()).then_some(())
    };
    kubelet.until("the leader has looked at all services", looked).await;
    // The old host may never report counts.
    if !is_full() {
        counted(cluster, services).await;
    }
    hosts_rest(cluster).await;
}

/// Waits until a rule reports on all services, which is the last of all reports.
async fn counted(cluster: &TestCluster, services: &Services<'_>) {
    let matched = ["get", "validationrule", "guard-privileged", "-o", "jsonpath={.status.counts.matched}"];
    let is_counted = async || (cluster.kubectl(&matched).stdout == services.number().to_string()).then_some(());
    eventually("all services are counted", is_counted).await;
}

/// Upgrades, and checks that the upgrade has no unwanted effects.
async fn upgrades(cluster: &TestCluster, kubelet: &mut Kubelet<'_>, services: &Services<'_>, how: impl FnOnce() -> CommandOutput + Send) {
    let (before, writes, old) = (services.state(), services.writes(), kubelet.pods());
    let log = LeaseLog::start(cluster).await;
    kubelet.during(how).ok();
    kubelet.roll_out().await;
    assert!(kubelet.pods().is_disjoint(&old), "all pods of the hosts are new");
    settled(cluster, kubelet, services).await;
    log.end(&old, &kubelet.pods());
    assert_eq!(services.state(), before, "no pod and no ReplicaSet is another");
    let needless = services.writes().split_off(writes.len());
    if is_full() {
        println!("written by hosts of another version: {needless:#?}");
        let objects: Vec<_> = needless.iter().filter(|write| Services::is_object(write)).collect();
        assert!(objects.is_empty(), "{objects:#?}");
    } else {
        // The old roles lack the rights for these and the current ones grant them, so each service is labelled once.
        let is_granted_now = |write: &String| {
            write.starts_with("patch servingruntimes/") || write.starts_with("patch inferenceservices/") && !write.ends_with("/status")
        };
        let (now, needless): (Vec<_>, Vec<_>) = needless.into_iter().partition(is_granted_now);
        assert!(needless.is_empty(), "{needless:#?}");
        let labelled: Vec<_> = now.iter().filter(|write| !write.ends_with("/status")).collect();
        assert_eq!(labelled.iter().collect::<BTreeSet<_>>().len(), labelled.len(), "{labelled:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_first_version_is_upgraded_beside_a_hundred_services_and_removed_by_kustomize_and_by_helm() {
    let old = old_program();
    let cluster = TestCluster::start(&Options { neighbours: Some(Vec::new()), ..Options::default() });
    let (kustomize, chart) = (cluster.dir.join("kustomize"), cluster.dir.join("chart"));
    for folder in [&kustomize, &chart] {
        unpack(folder);
    }
    let mut kubelet = Kubelet::new(&cluster, &[(OLD, old), (NEW, pointsman())]);
    let traces = Traces::begin(&cluster);

    let commands = blocks("install.md", "By kustomize");
    let [crds, install, removal] = &commands[..] else { panic!("{commands:#?}") };
    crds.run(&cluster, &kustomize).ok();
    kubelet.during(|| install.run(&cluster, &kustomize)).ok();
    let services = Services::create(Space::on(&cluster, "upgraded").await);
    services.all_ready().await;
    settled(&cluster, &mut kubelet, &services).await;

    let commands = blocks("operate.md", "Upgrading");
    let [by_helm, by_kustomize] = &commands[..] else { panic!("{commands:#?}") };
    update(&kustomize);
    upgrades(&cluster, &mut kubelet, &services, || by_kustomize.run(&cluster, &kustomize)).await;

    let before = services.state();
    kubelet.during(|| removal.run(&cluster, &kustomize)).ok();
    kubelet.all_end().await;
    traces.match_page("`kubectl delete -k my-cluster`").await;
    services.delete_one_per_kind();

    // An installation by Helm manages the same services. Its built-in policies may differ from the last active ones.
    let commands = blocks("operate.md", "Removing it");
    let [namespace, sets, crds] = &commands[..] else { panic!("{commands:#?}") };
    sets.run(&cluster, &chart).ok();
    let commands = blocks("install.md", "By Helm");
    let [install, webhook, removal] = &commands[..] else { panic!("{commands:#?}") };
    kubelet.during(|| install.run(&cluster, &chart)).ok();
    kubelet.during(|| webhook.run(&cluster, &chart)).ok();
    kubelet.roll_out().await;
    settled(&cluster, &mut kubelet, &services).await;
    assert!(services.state().is_subset(&before), "another installation keeps the pods");
    update(&chart);
    upgrades(&cluster, &mut kubelet, &services, || by_helm.run(&cluster, &chart)).await;

    kubelet.during(|| removal.run(&cluster, &chart)).ok();
    kubelet.all_end().await;
    traces.match_page("`helm uninstall`").await;
    services.delete_one_per_kind();

    namespace.run(&cluster, &chart).ok();
    crds.run(&cluster, &chart).ok();
    eventually("nothing is left, but the namespace of the services", async || traces.left().is_empty().then_some(())).await;
    eventually("all pods of services are gone", async || services.state().is_empty().then_some(())).await;
}
