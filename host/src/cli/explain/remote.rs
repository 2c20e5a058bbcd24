//! Reads the recorded decisions of another Pointsman process: from its response, or from a file with one.

use crate::{
    cli::exit::{InputResult, usage},
    outbound,
};
use anyhow::{Context, Result, anyhow, bail};
use http::{Request, Response, Uri};
use hyper::body::Bytes;
use kube::Client;
use std::{
    fs,
    io::{self, Read},
    path::Path,
    time::Duration,
};
use tokio::time::timeout;

/// The timeout of a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for the address of a flag.
pub(super) fn client(flag: &str, address: &str) -> Result<Client> {
    let server: Uri = format!("http://{address}").parse().with_context(|| format!("{flag} {address}"))?;
    if server.port().is_none() || server.path() != "/" {
        bail!(usage(format!("{flag} {address}: expected ADDRESS:PORT")));
    }
    outbound::client(&server).with_context(|| format!("{flag} {address}"))
}

/// The response, regardless of its status. `name` is the process's name in errors.
pub(super) async fn ask(client: &Client, target: &str, max_bytes: usize, name: &str) -> Result<Response<Bytes>> {
    let request = Request::get(target).body(Bytes::new())?;
    let answer = timeout(ANSWER_TIMEOUT, outbound::send(client, request, max_bytes)).await;
    let answer = answer.with_context(|| format!("{name} takes longer than {} s", ANSWER_TIMEOUT.as_secs()))?;
    answer.map_err(|error| anyhow!("{name} doesn't answer: {error}"))
}

/// The content of a file, or standard input for `-`.
pub(in crate::cli) fn read_file(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).context("standard input").readable()?;
        return Ok(text);
    }
    fs::read_to_string(file).with_context(|| file.display().to_string()).readable()
}
