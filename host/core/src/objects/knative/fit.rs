//! Converts a pod spec for Knative, which accepts some fields always, some only if an administrator has enabled a feature, and others
//! never. Its webhook rejects an object only when it is applied, and doesn't name the feature.

use crate::objects::network::{DEFAULT_PORT, first_port};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A pod spec in the form that Knative accepts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fitted {
    /// The spec.
    pub spec: Value,
    /// The required features, with their names in the ConfigMap config-features.
    pub features: BTreeSet<&'static str>,
}

/// The fields of a pod that Knative accepts, with the required feature, if any.
const POD: [(&str, Option<&str>); 23] = [
    ("serviceAccountName", None),
    ("containers", None),
    ("initContainers", Some("kubernetes.podspec-init-containers")),
    ("volumes", None),
    ("imagePullSecrets", None),
    ("enableServiceLinks", None),
    ("automountServiceAccountToken", None),
    ("affinity", Some("kubernetes.podspec-affinity")),
    ("topologySpreadConstraints", Some("kubernetes.podspec-topologyspreadconstraints")),
    ("hostAliases", Some("kubernetes.podspec-hostaliases")),
    ("nodeSelector", Some("kubernetes.podspec-nodeselector")),
    ("runtimeClassName", Some("kubernetes.podspec-runtimeclassname")),
    ("tolerations", Some("kubernetes.podspec-tolerations")),
    ("securityContext", Some("kubernetes.podspec-securitycontext")),
    ("shareProcessNamespace", Some("kubernetes.podspec-shareprocessnamespace")),
    ("priorityClassName", Some("kubernetes.podspec-priorityclassname")),
    ("schedulerName", Some("kubernetes.podspec-schedulername")),
    ("dnsPolicy", Some("kubernetes.podspec-dnspolicy")),
    ("dnsConfig", Some("kubernetes.podspec-dnsconfig")),
    ("hostIPC", Some("kubernetes.podspec-hostipc")),
    ("hostPID", Some("kubernetes.podspec-hostpid")),
    ("hostNetwork", Some("kubernetes.podspec-hostnetwork")),
    // Knative sets this value itself.
    ("restartPolicy", None),
];

/// The fields of a container that Knative accepts.
const CONTAINER: [&str; 17] = [
    "name",
    "args",
    "command",
    "env",
    "envFrom",
    "workingDir",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "ports",
    "resources",
    "securityContext",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
];

/// The types of volumes that Knative accepts, with the required feature, if any.
const VOLUMES: [(&str, Option<&str>); 8] = [
    ("secret", None),
    ("configMap", None),
    ("projected", None),
    ("emptyDir", None),
    ("persistentVolumeClaim", Some("kubernetes.podspec-persistent-volume-claim")),
    ("hostPath", Some("kubernetes.podspec-volumes-hostpath")),
    ("csi", Some("kubernetes.podspec-volumes-csi")),
    ("image", Some("kubernetes.podspec-volumes-image")),
];

/// The ports, variables and paths that Knative reserves.
const RESERVED_PORTS: [i64; 6] = [8008, 8012, 8013, 8022, 9090, 9091];
const RESERVED_VARIABLES: [&str; 4] = ["PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION"];
const RESERVED_PATHS: [&str; 3] = ["/", "/dev", "/dev/log"];

/// The pod spec for Knative, or the fields that it never accepts. The main container is the one that receives requests.
pub fn fit(spec: &Value, main: &str) -> Result<Fitted, Vec<String>> {
    let mut fitting = Fitting::default();
    let mut fitted = Map::new();
    // For two fields, `false` is meaningful.
    let said =
        |field: &str, value: &Value| says(value) || *value == false && ["automountServiceAccountToken", "hostUsers"].contains(&field);
    for (field, value) in spec.as_object().into_iter().flatten().filter(|(field, value)| said(field, value)) {
        match POD.iter().find(|(known, _)| known == field) {
            Some((_, feature)) => {
                fitting.features.extend(*feature);
                fitted.insert(field.clone(), value.clone());
            }
            None => fitting.refused.push(field.clone()),
        }
    }
    if fitted.get("automountServiceAccountToken") == Some(&true.into()) {
        fitted.remove("automountServiceAccountToken");
    }
    if fitted.remove("restartPolicy").is_some_and(|policy| policy != "Always") {
        fitting.refused.push("restartPolicy".to_owned());
    }
    fitting.pod_security(fitted.get("securityContext"));
    for list in ["initContainers", "containers"] {
        for container in fitted.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            fitting.container(container, list, main);
        }
    }
    // The main container comes first; only it has a port.
    if let Some(containers) = fitted.get_mut("containers").and_then(Value::as_array_mut) {
        containers.sort_by_key(|container| container["name"] != main);
    }
    if let Some(volumes) = fitted.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| volume["name"].as_str().is_some_and(|name| fitting.mounted.contains(name)));
        for volume in volumes.iter() {
            fitting.volume(volume);
        }
    }
    if fitted.get("volumes").is_some_and(|volumes| !says(volumes)) {
        fitted.remove("volumes");
    }
    let volumes = fitted.get("volumes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // These volumes are read-only anyway, and Knative requires the mounts to be.
    let read_only = names(volumes, |volume| {
        let always = ["secret", "configMap", "projected", "image"].iter().any(|kind| volume.get(kind).is_some());
        always || volume["persistentVolumeClaim"]["readOnly"] == true
    });
    let of_the_host = names(volumes, |volume| volume.get("hostPath").is_some() || volume.get("csi").is_some());
    for list in ["initContainers", "containers"] {
        for container in fitted.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let whose = item_name(container).to_owned();
            for mount in container.get_mut("volumeMounts").and_then(Value::as_array_mut).into_iter().flatten() {
                let volume = item_name(mount).to_owned();
                if read_only.contains(&volume) {
                    if let Some(mount) = mount.as_object_mut() {
                        mount.insert("readOnly".to_owned(), true.into());
                    }
                } else if of_the_host.contains(&volume) && mount["readOnly"] != true {
                    fitting.refused.push(format!("a volumeMount of {volume} in the container {whose} that isn't readOnly"));
                }
            }
        }
    }
    let spec = Value::Object(fitted);
    if fitting.refused.is_empty() { Ok(Fitted { spec, features: fitting.features }) } else { Err(fitting.refused) }
}

/// Whether a value is set: Knative reads it with Go's types, for which `false` and an empty list are unset.
fn says(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

fn item_name(item: &Value) -> &str {
    item["name"].as_str().unwrap_or_default()
}

/// The names of the matching volumes.
fn names(volumes: &[Value], sort: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    volumes.iter().filter(|volume| sort(volume)).map(|volume| item_name(volume).to_owned()).collect()
}

#[derive(Default)]
struct Fitting {
    features: BTreeSet<&'static str>,
    refused: Vec<String>,
    mounted: BTreeSet<String>,
}

impl Fitting {
    fn pod_security(&mut self, context: Option<&Value>) {
        const TAKEN: [&str; 6] = ["runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "supplementalGroups", "seccompProfile"];
        for (field, _) in context.and_then(Value::as_object).into_iter().flatten().filter(|(_, value)| says(value)) {
            if !TAKEN.contains(&field.as_str()) {
                self.refused.push(format!("securityContext.{field}"));
            }
        }
    }

    fn container(&mut self, container: &mut Value, list: &str, main: &str) {
        let name = item_name(container).to_owned();
        let initial = list == "initContainers";
        let serves = !initial && name == main;
        let port = first_port(Some(container)).unwrap_or(DEFAULT_PORT);
        let h2c = container["ports"].as_array().into_iter().flatten().any(|declared| {
            declared["containerPort"] == port && declared["name"].as_str().is_some_and(|name| name.starts_with("h2c") || name == "grpc")
        });
        let ports = container.get("ports").cloned().unwrap_or_default();
        let Some(fields) = container.as_object_mut() else { return };
        fields.retain(|_, value| says(value));
        for field in fields.keys() {
            let probe = ["livenessProbe", "readinessProbe", "startupProbe"].contains(&field.as_str());
            if !CONTAINER.contains(&field.as_str()) || initial && probe {
                self.refused.push(format!("{field} of the container {name}"));
            } else if probe && !serves && field != "startupProbe" {
                self.features.insert("multi-container-probing");
            }
        }
        fields.remove("ports");
        if serves {
            if RESERVED_PORTS.contains(&port) {
                self.refused.push(format!("the port {port} of the container {name}, which Knative keeps for itself"));
            }
            let mut only = json!({"containerPort": port});
            if h2c {
                only["name"] = "h2c".into();
            }
            fields.insert("ports".to_owned(), json!([only]));
        }
        // A probe may refer to the port by the name that was removed.
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            for handler in ["httpGet", "tcpSocket"] {
                let Some(at) = fields.get_mut(probe).and_then(|probe| probe.get_mut(handler)?.get_mut("port")) else { continue };
                if let Some(number) = ports.as_array().into_iter().flatten().find(|port| at.is_string() && port["name"] == *at) {
                    *at = number["containerPort"].clone();
                }
            }
        }
        self.security(fields.get("securityContext"), &name);
        if name == "queue-proxy" {
            self.refused.push("a container of the name queue-proxy".to_owned());
        }
        if fields.get("resources").and_then(|resources| resources.get("claims")).is_some_and(says) {
            self.refused.push(format!("resources.claims of the container {name}"));
        }
        for variable in fields.get("env").and_then(Value::as_array).into_iter().flatten() {
            let variable_name = variable["name"].as_str().unwrap_or_default();
            if RESERVED_VARIABLES.contains(&variable_name) && (serves || variable_name != "PORT") {
                self.refused.push(format!("the variable {variable_name} of the container {name}, which Knative gives itself"));
            }
            if ["fieldRef", "resourceFieldRef"].iter().any(|source| variable["valueFrom"].get(source).is_some()) {
                self.features.insert("kubernetes.podspec-fieldref");
            }
        }
        for mount in fields.get("volumeMounts").and_then(Value::as_array).into_iter().flatten() {
            self.mounted.extend(mount["name"].as_str().map(str::to_owned));
            let path = mount["mountPath"].as_str().unwrap_or_default();
            if RESERVED_PATHS.contains(&path) || RESERVED_PATHS.contains(&path.trim_end_matches('/')) {
                self.refused.push(format!("a volumeMount of the container {name} at {path}"));
            }
            if mount.get("mountPropagation").is_some_and(says) {
                self.features.insert("kubernetes.podspec-volumes-mount-propagation");
            }
            for field in ["subPathExpr", "recursiveReadOnly"] {
                if mount.get(field).is_some_and(says) {
                    self.refused.push(format!("{field} of a volumeMount of the container {name}"));
                }
            }
        }
    }

    fn security(&mut self, context: Option<&Value>, container: &str) {
        const TAKEN: [&str; 7] = [
            "capabilities",
            "readOnlyRootFilesystem",
            "runAsUser",
            "runAsGroup",
            "runAsNonRoot",
            "allowPrivilegeEscalation",
            "seccompProfile",
        ];
        for (field, value) in context.and_then(Value::as_object).into_iter().flatten().filter(|(_, value)| says(value)) {
            if !TAKEN.contains(&field.as_str()) {
                self.refused.push(format!("securityContext.{field} of the container {container}"));
            } else if field == "capabilities" && value.get("add").is_some_and(says) {
                self.features.insert("kubernetes.containerspec-addcapabilities");
            }
        }
    }

    fn volume(&mut self, volume: &Value) {
        let name = item_name(volume);
        for (kind, value) in volume.as_object().into_iter().flatten().filter(|(field, value)| *field != "name" && !value.is_null()) {
            match VOLUMES.iter().find(|(known, _)| known == kind) {
                Some((_, feature)) => self.features.extend(*feature),
                None => self.refused.push(format!("the volume {name}, a {kind}")),
            }
            if kind == "persistentVolumeClaim" && value["readOnly"] != true {
                self.features.insert("kubernetes.podspec-persistent-volume-write");
            }
        }
    }
}
