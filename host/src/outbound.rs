//! Requests to other servers than the API server, by kube's HTTP client, which speaks TLS as with an API server.

use http::{
    Request, Response, Uri,
    uri::{PathAndQuery, Scheme},
};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use kube::{Client, Config, client::Body};
use std::error::Error;

/// Why there is no answer.
pub type OutboundError = Box<dyn Error + Send + Sync>;

/// A client of the server of a URL, which the system's CAs verify. Requests have the path.
pub fn client(url: &Uri) -> kube::Result<Client> {
    let mut server = url.clone().into_parts();
    server.path_and_query = Some(PathAndQuery::from_static("/"));
    let mut config = Config::new(Uri::from_parts(server).map_err(|error| kube::Error::HttpError(error.into()))?);
    // Whoever asks retries by itself.
    config.default_retry = false;
    if url.scheme() == Some(&Scheme::HTTP) {
        // An image may be without CAs.
        config.root_cert = Some(Vec::new());
    }
    Client::try_from(config)
}

/// Sends a request, and reads an answer of at most so many bytes.
pub async fn send(client: &Client, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, OutboundError> {
    let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
    let body = Limited::new(body, max_bytes).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
