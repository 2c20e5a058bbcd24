//! The Helm chart in `deploy/`, tested with Helm itself.

use crate::services::{Space, fixed, with_model};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::{Options, workspace};
use pointsman_tests::{CommandOutput, Host, TestCluster, guide::blocks, helm, kubelet::Kubelet, pointsman};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The image that `deploy/host` names. The chart requires a value for it.
const IMAGE: &str = "image=pointsman";

/// Values of the chart that no overlay covers, each with the equivalent kustomization.
const ALSO: [(&str, &str); 4] = [
    (
        "a cluster that serves one system",
        "resources: [DEPLOY/host, DEPLOY/roles/base, DEPLOY/roles/ome, DEPLOY/roles/keda]
---
roles: {kserve: false, eh-ops: false, leaderworkerset: false, knative: false, ray: false, gateway: false, inference-pool: false}",
    ),
    (
        "model agents on some nodes, with a folder of their own",
        "resources: [DEPLOY/install]
components: [DEPLOY/components/model-agent]
patches:
  - target: {kind: DaemonSet}
    patch: |-
      - {op: add, path: /spec/template/spec/nodeSelector, value: {gpu: h100}}
      - {op: replace, path: /spec/template/spec/tolerations, value: [{key: nvidia.com/gpu, operator: Exists}]}
      - {op: replace, path: /spec/template/spec/containers/0/resources, value: {limits: {memory: 2Gi}}}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --root=/raid/models}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --bandwidth=500Mi}
      - {op: replace, path: /spec/template/spec/containers/0/volumeMounts/0/mountPath, value: /raid/models}
      - {op: replace, path: /spec/template/spec/volumes/0/hostPath/path, value: /raid/models}
---
modelAgent:
  enabled: true
  root: /raid/models
  nodeSelector: {gpu: h100}
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  resources: {limits: {memory: 2Gi}}
  extraArgs: [--bandwidth=500Mi]",
    ),
    (
        "pods whose templates name no scheduler go to the scheduler with the extender",
        "resources: [DEPLOY/install, DEPLOY/scheduler]
patches:
  - target: {kind: Deployment, name: pointsman}
    patch: |-
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --pod-scheduler=pointsman}
---
scheduler: {enabled: true, podTemplates: true}",
    ),
    (
        "all components, a mirror's image and a place for the pods",
        "resources: [DEPLOY/install]
components: [DEPLOY/components/webhook, DEPLOY/components/cert-manager, DEPLOY/components/external-metrics, DEPLOY/components/signatures,
  DEPLOY/components/hardened, DEPLOY/components/service-monitor, DEPLOY/components/alerts, DEPLOY/components/dashboard]
images: [{name: pointsman, newName: mirror.example.com/pointsman, newTag: '1'}]
patches:
  - target: {kind: Deployment}
    patch: |-
      - {op: add, path: /spec/template/spec/nodeSelector, value: {pool: system}}
      - {op: add, path: /spec/template/spec/tolerations, value: [{key: system, operator: Exists}]}
      - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: mirror}]}
      - {op: replace, path: /spec/template/spec/containers/0/resources, value: {limits: {memory: 4Gi}}}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --image-mirror=mirror.example.com}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --cluster-domain=example.local}
---
image: mirror.example.com/pointsman:1
imageMirror: mirror.example.com
imagePullSecrets: [{name: mirror}]
nodeSelector: {pool: system}
tolerations: [{key: system, operator: Exists}]
resources: {limits: {memory: 4Gi}}
extraArgs: [--cluster-domain=example.local]
webhook: {enabled: true, certManager: true}
externalMetrics: {enabled: true}
signatures: {required: true}
enableRules: [hardened-pods]
serviceMonitor: {enabled: true}
alerts: {enabled: true}
dashboard: {enabled: true}",
    ),
];

fn deploy() -> PathBuf {
    workspace().join("deploy")
}

/// Objects by API version, kind, namespace and name.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let text = |object: &Value, path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or("-").to_owned();
    let key = |object: &Value| ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(|path| text(object, path)).join(" ");
    objects.into_iter().filter(|object| !object.is_null()).map(|object| (key(&object), object)).collect()
}

/// The objects of the chart, without its hooks.
fn by_chart(chart: &Path, values: &Path) -> BTreeMap<String, Value> {
    let mut template = Command::new(helm());
    template.args(["template", "pointsman"]).arg(chart).args(["--namespace", HOST_NAMESPACE, "--values"]).arg(values);
    let mut objects = objects(&CommandOutput::by(&mut template).ok());
    objects.retain(|_, object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    objects
}

/// The objects of a kustomization, without the namespace: Helm requires it to exist before it stores a release there.
fn by_kustomize(folder: &Path) -> BTreeMap<String, Value> {
    let mut objects = objects(&CommandOutput::by(Command::new("kubectl").arg("kustomize").arg(folder)).ok());
    let namespace = objects.remove(&format!("v1 Namespace - {HOST_NAMESPACE}"));
    assert!(namespace.is_some(), "{}: {:?}", folder.display(), objects.keys());
    objects
}

/// All pairs of a kustomization and the equivalent values, each with a description.
fn pairs(folder: &Path) -> Vec<(String, PathBuf, PathBuf)> {
    let write = |file: &str, text: &str| {
        let file = folder.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    };
    let with_image = |name: &str, values: &str| {
        let image = if values.contains("image: ") { String::new() } else { format!("{}\n", IMAGE.replace('=', ": ")) };
        write(&format!("{name}.yaml"), &format!("{image}{values}"))
    };
    let mut pairs = vec![("install".to_owned(), deploy().join("install"), with_image("install", ""))];
    for overlay in fs::read_dir(deploy().join("overlays")).unwrap() {
        let overlay = overlay.unwrap();
        let name = overlay.file_name().to_string_lossy().into_owned();
        let values = fs::read_to_string(overlay.path().join("values.yaml")).unwrap();
        pairs.push((name.clone(), overlay.path(), with_image(&name, &values)));
    }
    // Kustomize only accepts paths that are relative to the kustomization's folder.
    std::os::unix::fs::symlink(workspace(), folder.join("clone")).unwrap();
    for (number, (what, both)) in ALSO.into_iter().enumerate() {
        let (kustomization, values) = both.split_once("\n---\n").unwrap();
        let kustomization = kustomization.replace("DEPLOY", "../clone/deploy");
        write(&format!("{number}/kustomization.yaml"), &kustomization);
        pairs.push((what.to_owned(), folder.join(number.to_string()), with_image(&number.to_string(), values)));
    }
    pairs
}

#[test]
fn the_chart_and_kustomize_make_the_same_objects_and_the_package_as_the_folder() {
    let folder = fresh("chart");
    let package = {
        let mut package = Command::new(helm());
        CommandOutput::by(package.arg("package").arg(deploy()).arg("--destination").arg(&folder)).ok();
        folder.join(format!("pointsman-{}.tgz", env!("CARGO_PKG_VERSION")))
    };
    let pairs = pairs(&folder);
    assert!(pairs.len() >= 9, "{pairs:?}");
    for (what, kustomization, values) in pairs {
        let lint = CommandOutput::by(
            Command::new(helm()).args(["lint", "--strict", "--namespace", HOST_NAMESPACE, "--values"]).arg(&values).arg(deploy()),
        );
        assert!(
            lint.success && !lint.stdout.contains("[WARNING]") && !lint.stdout.contains("[ERROR]"),
            "{what}: {}{}",
            lint.stdout,
            lint.stderr
        );
        let (chart, kustomize) = (by_chart(&deploy(), &values), by_kustomize(&kustomization));
        assert_eq!(chart.keys().collect::<Vec<_>>(), kustomize.keys().collect::<Vec<_>>(), "{what}");
        for (key, object) in &chart {
            assert_eq!(object, &kustomize[key], "{what}: {key}, by the chart on the left and by kustomize on the right");
        }
        assert_eq!(by_chart(&package, &values), chart, "{what}: by the package");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// An empty folder for this test.
fn fresh(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pointsman-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn wrong_values_are_refused_with_the_value_and_what_to_do() {
    let refusal = |namespace: &str, set: &str| {
        let mut template = Command::new(helm());
        template.args(["template", "pointsman", "--namespace", namespace]).arg(deploy()).args(["--set", set]);
        CommandOutput::by(&mut template).refused()
    };
    for (set, expected) in [
        ("replicas=2", "at '/image'"),
        ("image=a,replica=2", "additional properties 'replica' not allowed"),
        ("image=a,replicas=0", "at '/replicas': minimum"),
        ("image=a,roles.omee=true", "at '/roles': additional properties 'omee' not allowed"),
        ("image=a,webhook.certManager=true", "enable the webhook, or set webhook.certManager to false"),
        ("image=a,scheduler.podTemplates=true", "enable the scheduler, or set --pod-scheduler in extraArgs"),
    ] {
        let why = refusal(HOST_NAMESPACE, set);
        assert!(why.contains(expected), "{set}: {why}");
    }
    let why = refusal("default", IMAGE);
    assert!(why.contains("install with --namespace pointsman-system"), "{why}");
}

fn deployment(cluster: &TestCluster) -> Value {
    serde_json::from_str(&cluster.kubectl(&["get", "deployment", "pointsman", "-n", HOST_NAMESPACE, "-o", "json"]).ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn by_the_guide_helm_installs_a_host_upgrades_and_removes_it() {
    let cluster = TestCluster::start(&Options { neighbours: Some(vec!["lws".to_owned()]), ..Options::default() });
    let clone = cluster.dir.join("clone");
    fs::create_dir(&clone).unwrap();
    CommandOutput::by(Command::new("cp").arg("-r").arg(deploy()).arg(&clone)).ok();
    let commands = blocks("install.md", "By Helm");
    let [install, upgrade, removal] = &commands[..] else { panic!("{commands:#?}") };
    let mut kubelet = Kubelet::for_jobs(&cluster, &[("registry.example.com/pointsman:0.1.0", pointsman())]);
    kubelet.during(|| install.run(&cluster, &clone)).ok();
    let left = cluster.kubectl(&["get", "clusterrole,clusterrolebinding", "-o", "name"]).ok();
    assert!(left.contains("pointsman-base") && !left.contains("pointsman-crds"), "the rights to install CRDs are gone: {left}");
    let host = Host::start_as_deployed(&cluster, &deployment(&cluster)).await;
    host.ready().await;
    let space = Space::on(&cluster, "first").await;
    space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    space.ready("chat").await;
    let pods = space.pod_uids("chat").await;

    kubelet.during(|| upgrade.run(&cluster, &clone)).ok();
    let upgraded = deployment(&cluster);
    let args = &upgraded["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(args.as_array().unwrap().contains(&json!("--webhook=0.0.0.0:9443")), "{args}");
    host.stop();
    let host = Host::start_as_deployed(&cluster, &upgraded).await;
    host.ready().await;
    space.ready("chat").await;
    assert_eq!(space.pod_uids("chat").await, pods, "no pod has restarted");

    host.stop();
    removal.run(&cluster, &clone).ok();
    let left = cluster.kubectl(&["get", "clusterroles,deployments,validatingwebhookconfigurations", "-A", "-o", "name"]).ok();
    assert!(!left.contains("pointsman") && left.contains("deployment.apps/chat-engine"), "{left}");
    space.kubectl(&["delete", "isvc", "chat", "--timeout", "600s"]).ok();
}

#[test]
#[ignore = "long: `cargo xtask test --full` runs it"]
fn every_setting_is_installed_without_a_warning_and_its_pods_pass_pod_security() {
    let neighbours = ["cert-manager", "prometheus-operator"].map(str::to_owned).to_vec();
    let cluster = TestCluster::start(&Options { neighbours: Some(neighbours), ..Options::default() });
    cluster.kubectl(&["apply", "--server-side", "-f", &deploy().join("host/namespace.yaml").to_string_lossy()]).ok();
    for namespace in ["team-a", "team-b"] {
        cluster.kubectl(&["create", "namespace", namespace]).ok();
    }
    let folder = fresh("chart-values");
    for (what, _, values) in pairs(&folder) {
        let (chart, values) = (deploy().display().to_string(), values.display().to_string());
        let upgrade = [
            "upgrade",
            "--install",
            "pointsman",
            &chart,
            "--namespace",
            HOST_NAMESPACE,
            "--values",
            &values,
            "--set",
            "crds.install=false",
        ];
        let done = cluster.helm(&upgrade);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{what}: {}", done.stdout);
        // With some values, no node matches the pods' node selector.
        if deployment(&cluster)["spec"]["template"]["spec"]["nodeSelector"].is_null() {
            let waited = cluster.kubectl(&["rollout", "status", "deployment/pointsman", "-n", HOST_NAMESPACE, "--timeout", "600s"]);
            assert!(waited.success, "{what}: {}", waited.stderr);
        }
    }
    fs::remove_dir_all(folder).unwrap();
}
