//! The page about a first service: runs its blocks in order, in a cluster without a host.

use pointsman_tests::{
    TestCluster,
    guide::{blocks, fenced, page, sections},
    model_server::{ModelServer, Settings},
};
use std::{fs, path::Path, process::Command};

/// Precedes the commands that start the host. Port 8080 may be in use, and `$!` must be the process of the host itself.
const STARTED: &str = r#"
pointsman() { [ "$1" = controller ] || { "$POINTSMAN" "$@"; return; }; exec "$POINTSMAN" "${@/127.0.0.1:8080/127.0.0.1:0}"; }
"#;

/// Precedes the commands that send a request to the service. Without a kubelet no port can be forwarded, so curl connects to a model server
/// that isn't a pod.
const FORWARDED: &str = r#"
kubectl() { case "$1" in port-forward) exec sleep 300;; *) command kubectl "$@";; esac; }
curl() { command curl "${@//127.0.0.1:8081/ADDRESS}"; }
"#;

/// The host that the page starts. It is terminated even if the test fails.
struct StartedHost<'f>(&'f Path);

impl Drop for StartedHost<'_> {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.0.join("pointsman.pid")) {
            // It has already terminated if the page ran to its end.
            Command::new("kill").arg(pid.trim()).output().ok();
        }
    }
}

/// Runs all commands of the page, in order; and others before the last section, in the same folder.
pub(crate) fn run_the_page(cluster: &TestCluster, before_removal: impl FnOnce(&Path)) {
    let folder = cluster.dir.join("first-service");
    fs::create_dir(&folder).unwrap();
    let _host = StartedHost(&folder);
    let commands = blocks("first-service.md", "The host");
    let [start] = &commands[..] else { panic!("{commands:#?}") };
    start.run_with(cluster, &folder, STARTED).ok();

    let commands = blocks("first-service.md", "A runtime, a model and a service");
    let [apply] = &commands[..] else { panic!("{commands:#?}") };
    let said = apply.run(cluster, &folder).ok();
    let page = page("first-service.md");
    let (_, section) = sections(&page).into_iter().find(|(heading, _)| *heading == "A runtime, a model and a service").unwrap();
    let (_, message) = fenced(section).into_iter().find(|(language, _)| *language == "text").unwrap();
    assert!(said.ends_with(message), "the page says that this is printed: {message}\nand this is: {said}");

    let commands = blocks("first-service.md", "The model's files");
    let [by_hand] = &commands[..] else { panic!("{commands:#?}") };
    by_hand.run(cluster, &folder).ok();

    let commands = blocks("first-service.md", "Ready");
    let [ask, explain] = &commands[..] else { panic!("{commands:#?}") };
    let server = ModelServer::start("127.0.0.1:0".parse().unwrap(), Settings::new("first", &["qwen"]));
    let said = ask.run_with(cluster, &folder, &FORWARDED.replace("ADDRESS", &server.address().to_string())).ok();
    assert!(said.contains("condition met") && said.contains("\"choices\""), "{said}");
    let said = explain.run(cluster, &folder).ok();
    assert!(said.contains("llama-cpp"), "{said}");

    before_removal(&folder);
    let commands = blocks("first-service.md", "Removing it");
    let [removal] = &commands[..] else { panic!("{commands:#?}") };
    removal.run(cluster, &folder).ok();
}
