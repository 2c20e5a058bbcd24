//! The data for a support case in one archive, without Secrets.

use super::{Installation, Line, hosts::Deployed};
use crate::{cli::output::columns, problem::sentence};
use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{ConfigMap, Pod},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, ListParams},
    core::PartialObjectMeta,
};
use pointsman_crds::KINDS;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    fmt::Debug,
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The maximum number of objects per kind.
const MOST_OBJECTS: u32 = 1000;

/// The maximum size of a pod's log, from its end.
const LOG_BYTES: u64 = 5 << 20;

/// The maximum size of a text in a ConfigMap: longer ones are plugins.
const LONGEST_TEXT: usize = 64 << 10;

/// The replacement for values that may be secret.
const LEFT_OUT: &str = "(left out by pointsman doctor)";

/// Parts of the names of variables whose values may be secret.
const SECRET_NAMES: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL"];

/// Annotations that repeat an object's spec as a text.
const COPIES: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", "ome.io/last-applied-configuration"];

/// The gathered files.
struct Bundle<'a> {
    installation: &'a Installation,
    files: Vec<(String, Vec<u8>)>,
    /// The data that couldn't be read, with the reasons.
    missing: Vec<String>,
}

/// Writes the archive, and lists its content.
pub(super) async fn write(installation: &Installation, deployed: Option<&Deployed>, findings: &[Line], file: &Path) -> Result<String> {
    let context = || format!("--bundle {}", file.display());
    // First, so that nothing is gathered if the file can't be written. Only its owner may read it.
    let archive = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).with_context(context)?;
    let mut bundle = Bundle { installation, files: Vec::new(), missing: Vec::new() };
    bundle.gather(deployed, findings).await;
    let Bundle { mut files, missing, .. } = bundle;
    if !missing.is_empty() {
        files.push(("missing.txt".to_owned(), (missing.join("\n") + "\n").into_bytes()));
    }
    pack(archive, &files).with_context(context)?;
    let rows: Vec<[String; 2]> = files.iter().map(|(name, content)| [name.clone(), content.len().to_string()]).collect();
    let note = "It contains no Secrets, and no values of environment variables whose names sound secret. Arguments, URIs and logs are \
        unchanged: read them before you pass it on.";
    Ok(format!("{} contains:\n{}{note}", file.display(), columns(["FILE", "BYTES"], &rows)))
}

fn pack(archive: std::fs::File, files: &[(String, Vec<u8>)]) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(archive, Compression::default()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, PathBuf::from("pointsman-bundle").join(name), &content[..])?;
    }
    archive.into_inner()?.finish()?.flush()
}

impl Bundle<'_> {
    async fn gather(&mut self, deployed: Option<&Deployed>, findings: &[Line]) {
        let client = self.installation.client.clone();
        let namespace = &self.installation.namespace;
        self.add("findings.json", &findings);
        let kubernetes = client.apiserver_version().await.map(|version| version.git_version);
        let kubernetes = self.had("the version of Kubernetes", kubernetes);
        self.add("versions.json", &json!({"pointsman": env!("CARGO_PKG_VERSION"), "kubernetes": kubernetes}));

        let crds = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone());
        self.list("cluster/customresourcedefinitions.json", &crds).await;
        self.list("cluster/validatingwebhookconfigurations.json", &Api::<ValidatingWebhookConfiguration>::all(client.clone())).await;
        self.list("cluster/mutatingwebhookconfigurations.json", &Api::<MutatingWebhookConfiguration>::all(client.clone())).await;
        self.list("host/deployments.json", &Api::<Deployment>::namespaced(client.clone(), namespace)).await;
        self.list("host/pods.json", &Api::<Pod>::namespaced(client.clone(), namespace)).await;
        self.list("host/leases.json", &Api::<Lease>::namespaced(client.clone(), namespace)).await;
        self.list("host/events.json", &Api::<Event>::namespaced(client.clone(), namespace)).await;
        // The record of the active set and the reports of sets are ConfigMaps.
        self.list("host/configmaps.json", &Api::<ConfigMap>::namespaced(client.clone(), namespace)).await;

        for kind in KINDS {
            let resource = (kind.resource)();
            if self.installation.served.serves(&resource.group, &resource.version, &resource.plural) {
                let name = format!("objects/{}.{}.json", resource.plural, resource.group);
                self.list(&name, &Api::<DynamicObject>::all_with(client.clone(), &resource)).await;
            }
        }
        for pod in deployed.map(Deployed::pods).unwrap_or_default() {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
            let log = format!("{path}/log?timestamps=true&limitBytes={LOG_BYTES}&tailLines=50000");
            self.text(&client, &format!("hosts/{pod}.log"), &log).await;
            self.text(&client, &format!("hosts/{pod}.metrics.txt"), &format!("{path}:8080/proxy/metrics")).await;
            self.text(&client, &format!("hosts/{pod}.readyz.txt"), &format!("{path}:8080/proxy/readyz")).await;
        }
    }

    /// The result of a read, or a note on its failure.
    fn had<T>(&mut self, what: &str, result: kube::Result<T>) -> Option<T> {
        result.map_err(|error| self.missing.push(format!("{what}: {}", sentence(&error)))).ok()
    }

    fn add(&mut self, name: &str, content: &impl Serialize) {
        let text = serde_json::to_string_pretty(content).unwrap_or_default() + "\n";
        self.files.push((name.to_owned(), text.into_bytes()));
    }

    async fn list<K>(&mut self, name: &str, api: &Api<K>)
    where
        K: Resource + Clone + Debug + DeserializeOwned + Serialize,
    {
        let listed = api.list(&ListParams::default().limit(MOST_OBJECTS)).await;
        let Some(listed) = self.had(name, listed) else { return };
        if listed.metadata.continue_.is_some_and(|rest| !rest.is_empty()) {
            self.missing.push(format!("{name}: there are more than {MOST_OBJECTS}"));
        }
        let objects: Vec<Value> = listed
            .items
            .iter()
            .map(|object| {
                let mut value = serde_json::to_value(object).unwrap_or_default();
                without_secrets(&mut value);
                if value.get("metadata").is_none() {
                    value["metadata"] = json!({"name": object.name_any()});
                }
                value
            })
            .collect();
        self.add(name, &objects);
    }

    async fn text(&mut self, client: &Client, name: &str, path: &str) {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
        let answer = match request {
            Ok(request) => client.request_text(request).await,
            Err(error) => Err(error),
        };
        if let Some(text) = self.had(name, answer) {
            self.files.push((name.to_owned(), text.into_bytes()));
        }
    }
}

/// Removes values that may be secret, and long texts.
fn without_secrets(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for copy in COPIES {
                if let Some(text) = object.get_mut(copy) {
                    *text = LEFT_OUT.into();
                }
            }
            object.remove("binaryData");
            let secret = object.get("name").and_then(Value::as_str).is_some_and(|name| {
                let name = name.to_uppercase();
                SECRET_NAMES.iter().any(|part| name.contains(part))
            });
            if let Some(text) = object.get_mut("value").filter(|value| secret && value.is_string()) {
                *text = LEFT_OUT.into();
            }
            for value in object.values_mut() {
                without_secrets(value);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(without_secrets),
        Value::String(text) if text.len() > LONGEST_TEXT => *value = format!("(left out: {} bytes)", text.len()).into(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_left_out_and_the_rest_stays() {
        let mut object = json!({
            "metadata": {"name": "chat", "annotations": {COPIES[0]: "{\"env\": \"hunter2\"}", "team": "a"}},
            "spec": {"containers": [{"name": "main", "env": [
                {"name": "HF_TOKEN", "value": "hunter2"}, {"name": "aws_secret_access_key", "value": "hunter2"},
                {"name": "LOG", "value": "info"}, {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
            ]}]},
            "data": {"long": "x".repeat(LONGEST_TEXT + 1), "short": "x"}, "binaryData": {"plugin": "AAAA"},
        });
        without_secrets(&mut object);
        let text = object.to_string();
        assert!(!text.contains("hunter2") && !text.contains("AAAA") && text.len() < LONGEST_TEXT, "{text}");
        assert_eq!(object.pointer("/metadata/annotations/team"), Some(&json!("a")));
        let env = &object["spec"]["containers"][0]["env"];
        assert_eq!((&env[2]["value"], &env[3]["valueFrom"]["secretKeyRef"]["key"]), (&json!("info"), &json!("b")));
        assert_eq!(object["data"]["short"], "x");
    }
}
