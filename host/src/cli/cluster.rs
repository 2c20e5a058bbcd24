//! The connection to a cluster.

use super::progress;
use crate::problem::sentence;
use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use std::{
    env,
    error::Error as _,
    ffi::OsStr,
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Our user agent in the API server's audit log and metrics.
const AGENT: &str = concat!("pointsman/", env!("CARGO_PKG_VERSION"));

/// The variable with the kubeconfig's path, or with several.
const KUBECONFIG: &str = "KUBECONFIG";

/// The place of an error in the files of that variable, or in the default file.
const PLACE: &str = "in the kubeconfig";

/// The error if no kubeconfig exists and no pod has a ServiceAccount.
const NO_CLUSTER: &str = "no cluster is configured: specify one with --kubeconfig or KUBECONFIG, or run in a pod with a ServiceAccount";

/// Cluster to use, as with kubectl
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file; default: KUBECONFIG, ~/.kube/config, or the pod's own ServiceAccount
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArgs {
    /// Connects to a cluster, which must respond.
    pub(crate) async fn connect(&self) -> Result<Client> {
        progress::set("connecting to the API server");
        let (client, url) = self.client_with_url().await?;
        client.apiserver_version().await.with_context(|| no_answer(&url))?;
        Ok(client)
    }

    /// Creates a client for a cluster that may be unreachable for now.
    pub(crate) async fn client(&self) -> Result<Client> {
        Ok(self.client_with_url().await?.0)
    }

    /// The same, with the URL of the API server for messages.
    pub(super) async fn client_with_url(&self) -> Result<(Client, String)> {
        let config = self.config().await?;
        let url = config.cluster_url.to_string();
        Ok((Client::try_from(config).context("setting up the connection to the cluster")?, url))
    }

    /// The namespace of the kubeconfig's context, or that of the pod.
    pub(super) async fn default_namespace(&self) -> Result<String> {
        Ok(self.config().await?.default_namespace)
    }

    async fn config(&self) -> Result<Config> {
        let mut config = match (&self.kubeconfig, &self.context) {
            (Some(file), context) => {
                let place = format!("in the kubeconfig {}", file.display());
                let kubeconfig = Kubeconfig::read_from(file).map_err(|error| unread(error, &place))?;
                select(kubeconfig, context.clone()).await.context(place)?
            }
            (None, Some(context)) => {
                let kubeconfig = Kubeconfig::read().map_err(|error| missing().unwrap_or_else(|| unread(error, PLACE)))?;
                select(kubeconfig, Some(context.clone())).await.context(PLACE)?
            }
            (None, None) => Config::infer().await.map_err(|error| missing().unwrap_or_else(|| no_cluster(&error)))?,
        };
        config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
        Ok(config)
    }
}

/// The message about a cluster that doesn't respond.
pub(super) fn no_answer(url: &str) -> String {
    format!("the cluster at {url} doesn't answer")
}

/// The cluster of a context, by default the current one.
async fn select(kubeconfig: Kubeconfig, context: Option<String>) -> Result<Config> {
    let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    match Config::from_custom_kubeconfig(kubeconfig, &options).await {
        Err(KubeconfigError::LoadContext(name)) => Err(no_context(&name, &contexts)),
        read => Ok(read?),
    }
}

fn no_context(name: &str, contexts: &[String]) -> Error {
    if contexts.is_empty() {
        return anyhow!("there is no context {name}, nor any other: specify another kubeconfig");
    }
    anyhow!("there is no context {name}: specify one of {} with --context", contexts.join(", "))
}

fn unread(error: KubeconfigError, place: &str) -> Error {
    match error {
        // Its text is the debug form of the path.
        KubeconfigError::ReadConfig(error, file) => Error::from(error).context(format!("reading the kubeconfig {}", file.display())),
        error => Error::from(error).context(place.to_owned()),
    }
}

/// The error if KUBECONFIG names a file that doesn't exist.
fn missing() -> Option<Error> {
    missing_file(&env::var_os(KUBECONFIG)?)
}

fn missing_file(list: &OsStr) -> Option<Error> {
    let file = env::split_paths(list).find(|file| file.as_path() != Path::new("") && !file.exists())?;
    let file = file.display();
    Some(anyhow!("{KUBECONFIG} names {file}, which doesn't exist: set it to your kubeconfig, or specify one with --kubeconfig"))
}

/// Neither a kubeconfig nor a pod's ServiceAccount specifies a cluster. Outside of a pod, only an existing kubeconfig can be wrong.
fn no_cluster(error: &InferConfigError) -> Error {
    match error.source().and_then(|cause| cause.downcast_ref::<KubeconfigError>()) {
        Some(KubeconfigError::ReadConfig(cause, file)) if cause.kind() != ErrorKind::NotFound => {
            anyhow!("reading the kubeconfig {}: {cause}", file.display())
        }
        Some(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath) | None => anyhow!(NO_CLUSTER),
        Some(KubeconfigError::LoadContext(name)) => {
            anyhow!("{PLACE}: its current context {name} doesn't exist: specify another with --context")
        }
        Some(cause) => anyhow!("{PLACE}: {}", sentence(cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig() -> Kubeconfig {
        Kubeconfig::from_yaml(
            r#"
current-context: first
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts:
- {name: first, context: {cluster: c, namespace: team}}
- {name: second, context: {cluster: c}}
"#,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn the_namespace_is_the_one_of_the_context() {
        for (context, expected) in [(None, "team"), (Some("first"), "team"), (Some("second"), "default")] {
            let config = select(kubeconfig(), context.map(str::to_owned)).await.unwrap();
            assert_eq!(config.default_namespace, expected, "{context:?}");
        }
    }

    #[tokio::test]
    async fn a_context_that_does_not_exist_is_answered_with_those_that_do() {
        let error = select(kubeconfig(), Some("third".to_owned())).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no context third: specify one of first, second with --context");
        let error = select(Kubeconfig::default(), Some("third".to_owned())).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no context third, nor any other: specify another kubeconfig");
    }

    #[test]
    fn a_kubeconfig_that_does_not_exist_is_reported_by_its_path() {
        assert!(missing_file(OsStr::new("")).is_none() && missing_file(OsStr::new("Cargo.toml")).is_none());
        let error = missing_file(OsStr::new("Cargo.toml:/nowhere/k")).unwrap();
        assert_eq!(
            error.to_string(),
            "KUBECONFIG names /nowhere/k, which doesn't exist: set it to your kubeconfig, or specify one with --kubeconfig"
        );
        let error = unread(Kubeconfig::read_from("/nowhere/k").unwrap_err(), PLACE);
        assert_eq!(sentence(error.as_ref()), "reading the kubeconfig /nowhere/k: No such file or directory (os error 2)");
    }
}
