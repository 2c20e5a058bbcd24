//! Queries scheduler extenders for their records: at the addresses of a flag, or in a namespace of the cluster.

use super::remote;
use crate::{
    cli::output::note,
    permissions::{EXTENDER_CONTAINER, SCHEDULER_PODS},
    problem::sentence,
    scheduler_extender::placements::{MAX_ANSWER_BYTES, PATH, PlacementsAnswer},
};
use anyhow::{Context, Error, Result, bail};
use http::StatusCode;
use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};
use pointsman_sandbox::text::printable_line;
use serde_json::Value;

/// The name of the extender's port, and its number if the manifest has none.
const PORT_NAME: &str = "http";
const PORT: i32 = 8080;

/// An extender to query.
pub(in crate::cli) struct ExtenderSource {
    client: Client,
    /// The prefix of its endpoint's path.
    prefix: String,
    /// Its name in messages.
    pub(super) name: String,
}

impl ExtenderSource {
    /// The extenders at the addresses of --extender.
    pub(in crate::cli) fn at(addresses: &[String]) -> Result<Vec<Self>> {
        let source = |address: &String| -> Result<Self> {
            let client = remote::client("--extender", address)?;
            Ok(Self { client, prefix: String::new(), name: format!("the extender at {address}") })
        };
        addresses.iter().map(source).collect()
    }

    /// The extenders in a namespace of the cluster, through its API server.
    pub(super) async fn find(client: Client, namespace: &str) -> Result<Vec<Self>> {
        let selected = ListParams::default().labels(SCHEDULER_PODS);
        let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&selected).await;
        let pods = pods.with_context(|| format!("listing the pods of the scheduler in the namespace {namespace}"))?;
        let is_running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let source = |pod: Pod| {
            let (name, port) = (pod.name_any(), port(&pod));
            let prefix = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy");
            Self { client: client.clone(), prefix, name: format!("the extender in the pod {namespace}/{name}") }
        };
        let sources: Vec<Self> = pods.items.into_iter().filter(is_running).map(source).collect();
        if sources.is_empty() {
            bail!(
                "no pod with the label {SCHEDULER_PODS} runs in the namespace {namespace}: specify its namespace \
                 with --host-namespace, or an extender that runs elsewhere with --extender"
            );
        }
        Ok(sources)
    }

    /// Its response to a query with these parameters.
    pub(super) async fn ask(&self, query: &[(&str, &str)]) -> Result<PlacementsAnswer> {
        let answer = remote::ask(&self.client, &self.target(query), MAX_ANSWER_BYTES, &self.name).await?;
        if answer.status() != StatusCode::OK {
            let text = String::from_utf8_lossy(answer.body()).into_owned();
            let status: Value = serde_json::from_str(&text).unwrap_or_default();
            let message = status["message"].as_str().unwrap_or_else(|| text.lines().next().unwrap_or_default());
            bail!("{} answers {PATH} with status {}: {}", self.name, answer.status().as_u16(), printable_line(message));
        }
        serde_json::from_slice(answer.body()).with_context(|| format!("{} returns no placements", self.name))
    }

    fn target(&self, query: &[(&str, &str)]) -> String {
        let mut written = form_urlencoded::Serializer::new(String::new());
        for (name, value) in query {
            written.append_pair(name, value);
        }
        format!("{}{PATH}?{}", self.prefix, written.finish())
    }
}

/// The extenders' responses. One that doesn't respond is reported on stderr if another one responds: its pod may be terminating.
pub(in crate::cli) async fn ask_all<'s>(
    sources: &'s [ExtenderSource],
    query: &[(&str, &str)],
) -> Result<Vec<(&'s ExtenderSource, PlacementsAnswer)>> {
    let (mut answers, mut failures) = (Vec::new(), Vec::new());
    for source in sources {
        match source.ask(query).await {
            Ok(answer) => answers.push((source, answer)),
            Err(error) => failures.push(failure(&error)),
        }
    }
    if answers.is_empty() {
        bail!("{}", failures.join("; "));
    }
    for failure in failures {
        note(format!("{failure}; its placements are omitted"));
    }
    Ok(answers)
}

/// An error and its causes, as a sentence.
pub(super) fn failure(error: &Error) -> String {
    sentence(error.as_ref())
}

/// The port of the extender in a pod.
fn port(pod: &Pod) -> i32 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.filter(|container| container.name == EXTENDER_CONTAINER).flat_map(|container| container.ports.iter().flatten());
    let is_it = |port: &&ContainerPort| port.name.as_deref() == Some(PORT_NAME);
    ports.filter(is_it).map(|port| port.container_port).next().unwrap_or(PORT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_port_is_the_one_of_the_container() {
        let pod = |containers: Value| serde_json::from_value::<Pod>(json!({"spec": {"containers": containers}})).unwrap();
        let ports = json!([{"name": "x", "containerPort": 1}, {"name": "http", "containerPort": 9000}]);
        assert_eq!(port(&pod(json!([{"name": "scheduler", "ports": ports}, {"name": "extender", "ports": ports}]))), 9000);
        assert_eq!(port(&pod(json!([{"name": "extender"}]))), PORT);
    }
}
