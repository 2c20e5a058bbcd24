//! Asks a process of ours that has recorded what it has decided.

use crate::outbound;
use anyhow::{Context, Result, anyhow, bail};
use http::{Request, Response, Uri};
use hyper::body::Bytes;
use kube::Client;
use std::time::Duration;
use tokio::time::timeout;

/// How long it may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for the address of a flag.
pub(super) fn client(flag: &str, address: &str) -> Result<Client> {
    let server: Uri = format!("http://{address}").parse().with_context(|| format!("{flag} {address}"))?;
    if server.port().is_none() || server.path() != "/" {
        bail!("{flag} {address}: it is ADDRESS:PORT");
    }
    outbound::client(&server).with_context(|| format!("{flag} {address}"))
}

/// Its answer, whatever the status. `name` is what errors call it.
pub(super) async fn ask(client: &Client, target: &str, max_bytes: usize, name: &str) -> Result<Response<Bytes>> {
    let request = Request::get(target).body(Bytes::new())?;
    let answer = timeout(ANSWER_TIMEOUT, outbound::send(client, request, max_bytes)).await;
    let answer = answer.with_context(|| format!("{name} takes longer than {} s", ANSWER_TIMEOUT.as_secs()))?;
    answer.map_err(|error| anyhow!("{name} doesn't answer: {error}"))
}
