//! Storages for results and datasets: what the tool, the container and the pod need for each kind.

use super::arguments::{Arguments, literal};
use pointsman_crds::ome::storage::StorageSpec;
use serde_json::{Value, json};

/// The directory for results, until they are uploaded or for good.
const RESULTS: &str = "/mnt/results";
const RESULTS_VOLUME: &str = "results";

/// The directory where a Secret's entries are mounted as files.
const CREDENTIALS: &str = "/mnt/credentials";
const CREDENTIALS_VOLUME: &str = "credentials";

/// The directory where a dataset is mounted.
const DATASET: &str = "/mnt/dataset";

/// The file types that genai-bench reads.
const DATASET_SUFFIXES: [&str; 3] = [".csv", ".json", ".txt"];

/// A reason and a message.
pub(super) type Refusal = (&'static str, String);

/// The additions of a storage to the pod.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Storage {
    pub(super) arguments: Arguments,
    pub(super) env: Vec<Value>,
    pub(super) env_from: Vec<Value>,
    pub(super) mounts: Vec<Value>,
    pub(super) volumes: Vec<Value>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// A secret that the tool reads from a variable: the variable, OME's parameter, and the entry in a Secret if its name differs from the
/// variable's.
type SecretVariable = (&'static str, &'static str, &'static str);

const AWS: [SecretVariable; 3] = [
    ("AWS_ACCESS_KEY_ID", "aws_access_key_id", "aws_access_key_id"),
    ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key", "aws_secret_access_key"),
    ("AWS_SESSION_TOKEN", "aws_session_token", "aws_session_token"),
];
const AZURE: [SecretVariable; 3] = [
    ("AZURE_STORAGE_ACCOUNT_KEY", "azure_account_key", "azure_storage_account_key"),
    ("AZURE_STORAGE_SAS_TOKEN", "azure_sas_token", "azure_storage_sas_token"),
    ("AZURE_STORAGE_CONNECTION_STRING", "azure_connection_string", "azure_storage_connection_string"),
];
const GITHUB: [SecretVariable; 1] = [("GITHUB_TOKEN", "github_token", "token")];
const OCI: [SecretVariable; 1] = [("OCI_SECURITY_TOKEN", "security_token", "security_token")];

/// The storage for the results, and their readable location.
pub(super) fn output(spec: &StorageSpec, namespace: &str, folder: &str) -> Result<(Storage, String), Refusal> {
    let uri = spec.storage_uri.as_str();
    let (scheme, rest) = uri.split_once("://").unwrap_or_default();
    let mut storage = Storage::default();
    storage.arguments.flag("--experiment-base-dir", RESULTS);
    storage.arguments.flag("--experiment-folder-name", folder);
    let location = match scheme {
        "pvc" => {
            let (claim, path) = claim(uri, rest, namespace, "spec.outputLocation")?;
            let source = json!({"name": RESULTS_VOLUME, "persistentVolumeClaim": {"claimName": claim}});
            storage.volumes.push(source);
            let mut mount = json!({"name": RESULTS_VOLUME, "mountPath": RESULTS});
            if !path.is_empty() {
                mount["subPath"] = path.into();
            }
            storage.mounts.push(mount);
            return Ok((storage, joined(uri, folder)));
        }
        "oci" => storage.upload_to_oci(spec, rest, folder)?,
        "s3" => storage.upload_to_s3(spec, rest, folder),
        "gs" => storage.upload_to_gcs(spec, rest, folder),
        "az" => storage.upload_to_azure(spec, rest, folder)?,
        "github" => storage.upload_to_github(spec, rest, folder)?,
        _ => {
            let message = format!(
                "spec.outputLocation.storageUri is {uri}, where results can't be written: use pvc://, s3://, gs://, az://, \
                 oci://n/NAMESPACE/b/BUCKET/o/PATH or github://OWNER/REPO@TAG."
            );
            return Err(("OutputNotSupported", message));
        }
    };
    storage.volumes.push(json!({"name": RESULTS_VOLUME, "emptyDir": {}}));
    storage.mounts.push(json!({"name": RESULTS_VOLUME, "mountPath": RESULTS}));
    Ok((storage, location))
}

impl Storage {
    fn upload(&mut self, provider: &str, bucket: &str, prefix: &str) {
        self.arguments.switch("--upload-results");
        self.arguments.flag("--storage-provider", provider);
        self.arguments.flag("--storage-bucket", bucket);
        self.arguments.flag("--storage-prefix", prefix);
    }

    /// Adds the tool's variables: from the Secret, whose entries may have the variables' names or others, and from parameters.
    fn secrets(&mut self, spec: &StorageSpec, variables: &[SecretVariable]) {
        if let Some(secret) = given(spec.key.as_deref()) {
            self.env_from.push(json!({"secretRef": {"name": secret}}));
        }
        for (variable, parameter, entry) in variables {
            if let Some(value) = spec.parameters.get(*parameter) {
                self.env.push(json!({"name": variable, "value": literal(value)}));
                self.notes.push(format!(
                    "spec.outputLocation.parameters.{parameter} is readable by everyone who can read the benchmark: move it to a Secret, \
                     as {variable}, and name the Secret in spec.outputLocation.key."
                ));
            } else if let Some(secret) = given(spec.key.as_deref()) {
                let reference = json!({"name": secret, "key": entry, "optional": true});
                self.env.push(json!({"name": variable, "valueFrom": {"secretKeyRef": reference}}));
            }
        }
    }

    /// Mounts the Secret for the tool to read as files, and returns the path of a file there.
    fn credentials_file(&mut self, spec: &StorageSpec, file: &str) -> Option<String> {
        let secret = given(spec.key.as_deref())?;
        self.volumes.push(json!({"name": CREDENTIALS_VOLUME, "secret": {"secretName": secret}}));
        self.mounts.push(json!({"name": CREDENTIALS_VOLUME, "mountPath": CREDENTIALS, "readOnly": true}));
        Some(format!("{CREDENTIALS}/{file}"))
    }

    fn upload_to_s3(&mut self, spec: &StorageSpec, rest: &str, folder: &str) -> String {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (bucket, region) = bucket.split_once('@').map_or((bucket, None), |(bucket, region)| (bucket, Some(region)));
        let prefix = joined(prefix, folder);
        self.upload("aws", bucket, &prefix);
        let region = parameter(spec, &["aws_region", "region"]).or(region);
        self.arguments.optional("--storage-aws-region", region);
        self.arguments.optional("--storage-aws-profile", parameter(spec, &["aws_profile"]));
        self.secrets(spec, &AWS);
        format!("s3://{bucket}/{prefix}")
    }

    fn upload_to_gcs(&mut self, spec: &StorageSpec, rest: &str, folder: &str) -> String {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = joined(prefix, folder);
        self.upload("gcp", bucket, &prefix);
        self.arguments.optional("--storage-gcp-project-id", parameter(spec, &["gcp_project_id"]));
        let file = parameter(spec, &["gcp_credentials_path"]).and_then(|path| path.rsplit('/').next());
        let path = self.credentials_file(spec, file.unwrap_or("gcloud-application-credentials.json"));
        self.arguments.optional("--storage-gcp-credentials-path", path.as_deref());
        format!("gs://{bucket}/{prefix}")
    }

    fn upload_to_azure(&mut self, spec: &StorageSpec, rest: &str, folder: &str) -> Result<String, Refusal> {
        let mut parts = rest.splitn(3, '/');
        let (account, container, prefix) = (parts.next().unwrap_or_default(), parts.next(), parts.next().unwrap_or_default());
        let Some(container) = container.filter(|container| !container.is_empty()) else {
            let message = format!(
                "spec.outputLocation.storageUri is {}, which has no container: write az://ACCOUNT/CONTAINER/PATH.",
                spec.storage_uri
            );
            return Err(("InvalidOutput", message));
        };
        let account = account.split('.').next().unwrap_or_default();
        let prefix = joined(prefix, folder);
        self.upload("azure", container, &prefix);
        self.arguments.flag("--storage-azure-account-name", parameter(spec, &["azure_account_name"]).unwrap_or(account));
        self.secrets(spec, &AZURE);
        Ok(format!("az://{account}/{container}/{prefix}"))
    }

    fn upload_to_github(&mut self, spec: &StorageSpec, rest: &str, folder: &str) -> Result<String, Refusal> {
        let (repository, tag) = rest.split_once('@').map_or((rest, None), |(repository, tag)| (repository, given(Some(tag))));
        let Some((owner, name)) = repository.split_once('/').filter(|(owner, name)| !owner.is_empty() && !name.is_empty()) else {
            let message =
                format!("spec.outputLocation.storageUri is {}, which has no repository: write github://OWNER/REPO@TAG.", spec.storage_uri);
            return Err(("InvalidOutput", message));
        };
        let name = name.trim_end_matches('/');
        // Results are assets of a release, which the tool creates if there is none.
        let tag = tag.or_else(|| parameter(spec, &["github_tag"])).unwrap_or(folder);
        self.upload("github", tag, "");
        self.arguments.flag("--github-owner", owner);
        self.arguments.flag("--github-repo", name);
        self.secrets(spec, &GITHUB);
        Ok(format!("github://{owner}/{name}@{tag}"))
    }

    fn upload_to_oci(&mut self, spec: &StorageSpec, rest: &str, folder: &str) -> Result<String, Refusal> {
        let parts: Vec<&str> = rest.splitn(6, '/').collect();
        let ["n", namespace, "b", bucket, "o", prefix] = parts[..] else {
            let message = format!(
                "spec.outputLocation.storageUri is {}: write a location in OCI Object Storage as oci://n/NAMESPACE/b/BUCKET/o/PATH.",
                spec.storage_uri
            );
            return Err(("InvalidOutput", message));
        };
        let prefix = joined(prefix, folder);
        self.upload("oci", bucket, &prefix);
        self.arguments.flag("--namespace", namespace);
        let auth = parameter(spec, &["auth"]).map(oci_auth);
        self.arguments.optional("--auth", auth.as_deref());
        let file = parameter(spec, &["config_file"]).and_then(|path| path.rsplit('/').next());
        let is_by_file = auth.as_deref().is_none_or(|auth| auth == "user_principal");
        let path = if is_by_file { self.credentials_file(spec, file.unwrap_or("config")) } else { None };
        self.arguments.optional("--config-file", path.as_deref().or_else(|| parameter(spec, &["config_file"])));
        self.arguments.optional("--profile", parameter(spec, &["profile"]));
        self.arguments.optional("--region", parameter(spec, &["region"]));
        if auth.as_deref().is_some_and(|auth| auth == "security_token") {
            self.secrets(spec, &OCI);
            // The tool reads no variable for it, so the kubelet puts it into the arguments.
            self.arguments.variable("--security-token", "OCI_SECURITY_TOKEN");
        }
        Ok(format!("oci://n/{namespace}/b/{bucket}/o/{prefix}"))
    }
}

/// The dataset for requests.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Dataset {
    pub(super) storage: Storage,
    /// The layer for the policies at pod-templating: the source of the files and their path in the pod.
    pub(super) layer: Option<Value>,
    /// The Secret with the credentials for the download.
    pub(super) secret: Option<String>,
    /// The tool's configuration for the dataset as JSON, which becomes an annotation of the pod.
    pub(super) config: Option<String>,
}

/// The annotation of a pod with the configuration for its dataset, which the container reads as a file.
pub(super) const DATASET_CONFIG: &str = "benchmark.pointsman.dev/dataset-config";

/// The hub library's parameters in addition to the name of a dataset.
const HUB_PARAMETERS: [&str; 2] = ["name", "split"];

/// The dataset that the tool reads.
pub(super) fn dataset(spec: &StorageSpec, namespace: &str) -> Result<Dataset, Refusal> {
    let uri = spec.storage_uri.as_str();
    let (scheme, rest) = uri.split_once("://").unwrap_or_default();
    let mut dataset = Dataset::default();
    let columns = [("--dataset-prompt-column", "prompt_column"), ("--dataset-image-column", "image_column")];
    if scheme == "hf" {
        let (repository, revision) = rest.split_once('@').map_or((rest, None), |(repository, revision)| (repository, Some(revision)));
        let arguments = HUB_PARAMETERS.iter().filter_map(|name| Some((*name, parameter(spec, &[name])?)));
        let arguments: Vec<_> = arguments.chain(revision.map(|revision| ("revision", revision))).collect();
        if arguments.is_empty() {
            dataset.storage.arguments.flag("--dataset-path", repository);
        } else {
            let keywords: serde_json::Map<String, Value> =
                arguments.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            let mut config = json!({"source": {"type": "huggingface", "path": repository, "huggingface_kwargs": keywords}});
            for (_, column) in columns {
                if let Some(value) = parameter(spec, &[column]) {
                    config[column] = value.into();
                }
            }
            dataset.config = Some(config.to_string());
            let field = json!({"fieldPath": format!("metadata.annotations['{DATASET_CONFIG}']")});
            let items = json!([{"path": "config.json", "fieldRef": field}]);
            dataset.storage.volumes.push(json!({"name": "dataset-config", "downwardAPI": {"items": items}}));
            dataset.storage.mounts.push(json!({"name": "dataset-config", "mountPath": DATASET, "readOnly": true}));
            dataset.storage.arguments.flag("--dataset-config", &format!("{DATASET}/config.json"));
            return Ok(dataset);
        }
    } else {
        let file = uri.rsplit('/').next().unwrap_or_default();
        if !DATASET_SUFFIXES.iter().any(|suffix| file.ends_with(suffix)) {
            let message = format!(
                "spec.dataset.storageUri is {uri}: name a file that ends in {}, or a Hugging Face dataset (hf://ORG/NAME).",
                DATASET_SUFFIXES.join(", ")
            );
            return Err(("DatasetNotSupported", message));
        }
        if scheme == "pvc" {
            claim(uri, rest, namespace, "spec.dataset")?;
        }
        // On a claim or a node, the file is mounted at its own path; a download is put into a directory.
        let path = format!("{DATASET}/{file}");
        let place = if ["pvc", "local"].contains(&scheme) { path.as_str() } else { DATASET };
        dataset.layer = Some(json!({"name": file, "storageUri": uri, "path": place}));
        let is_downloaded = place == DATASET;
        dataset.secret = given(spec.key.as_deref()).filter(|_| is_downloaded).map(str::to_owned);
        dataset.storage.arguments.flag("--dataset-path", &path);
    }
    for (flag, column) in columns {
        dataset.storage.arguments.optional(flag, parameter(spec, &[column]));
    }
    Ok(dataset)
}

/// The claim and the path in a URI, if a pod of the namespace can mount it.
fn claim<'u>(uri: &str, rest: &'u str, namespace: &str, field: &str) -> Result<(&'u str, &'u str), Refusal> {
    let (claim, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    let (of, claim) = claim.split_once(':').map_or((namespace, claim), |(of, claim)| (of, claim));
    if of != namespace {
        let message =
            format!("{field}.storageUri is {uri}, but a pod can only mount claims of its own namespace, {namespace}: use one of those.");
        return Err(("ClaimOfAnotherNamespace", message));
    }
    if claim.is_empty() || path.split('/').any(|part| part == "..") {
        return Err(("InvalidStorage", format!("{field}.storageUri is {uri}: write pvc://CLAIM/PATH, without `..`.")));
    }
    Ok((claim, path))
}

/// The tool's name for one of OME's authentication methods.
fn oci_auth(word: &str) -> String {
    match word {
        "UserPrincipal" => "user_principal",
        "InstancePrincipal" => "instance_principal",
        "SecurityToken" => "security_token",
        "InstanceOboUser" => "instance_obo_user",
        other => other,
    }
    .to_owned()
}

fn parameter<'s>(spec: &'s StorageSpec, names: &[&str]) -> Option<&'s str> {
    names.iter().find_map(|name| given(spec.parameters.get(*name).map(String::as_str)))
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn joined(prefix: &str, folder: &str) -> String {
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() { folder.to_owned() } else { format!("{prefix}/{folder}") }
}
