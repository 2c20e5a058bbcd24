//! Reads the host's own pod.

use crate::problem::sentence;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

/// The host's container in its own pod.
const CONTAINER: &str = "host";

/// Why the host doesn't know its own image.
#[derive(Debug, thiserror::Error)]
pub enum OwnImageError {
    /// There is no such pod.
    #[error("the host runs outside of a pod (there is no pod {0})")]
    NoPod(String),
    /// The API server refused the request or didn't respond.
    #[error("the host can't read its pod {pod} ({})", sentence(error))]
    Unread {
        /// The pod.
        pod: String,
        /// The error.
        error: kube::Error,
    },
}

impl OwnImageError {
    /// Whether the error repeats until somebody changes something.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::NoPod(_) => true,
            Self::Unread { error, .. } => matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403)),
        }
    }
}

/// The image of this host, from its own pod.
pub async fn image(client: &Client, namespace: &str, name: &str) -> Result<String, OwnImageError> {
    let pod = || format!("{namespace}/{name}");
    let found = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(name).await;
    let found = found.map_err(|error| OwnImageError::Unread { pod: pod(), error })?;
    let containers = found.and_then(|found| found.spec).map(|spec| spec.containers).unwrap_or_default();
    let own = containers.iter().find(|container| container.name == CONTAINER).or(containers.first());
    own.and_then(|container| container.image.clone()).ok_or_else(|| OwnImageError::NoPod(pod()))
}
