//! Requests to servers other than the API server, with kube's HTTP client, which uses TLS as it does for an API server.

use http::{
    Request, Response, Uri,
    uri::{PathAndQuery, Scheme},
};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use kube::{Client, Config, client::Body};
use std::error::Error;

/// The reason why there is no response.
pub type OutboundError = Box<dyn Error + Send + Sync>;

/// A client of the server of a URL. The system's CAs verify the server. Each request has its own path.
pub fn client(url: &Uri) -> kube::Result<Client> {
    let mut server = url.clone().into_parts();
    server.path_and_query = Some(PathAndQuery::from_static("/"));
    let mut config = Config::new(Uri::from_parts(server).map_err(|error| kube::Error::HttpError(error.into()))?);
    // Callers retry.
    config.default_retry = false;
    if url.scheme() == Some(&Scheme::HTTP) {
        // An image may have no CAs.
        config.root_cert = Some(Vec::new());
    }
    Client::try_from(config)
}

/// Sends a request, and reads a response of at most `max_bytes`.
pub async fn send(client: &Client, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, OutboundError> {
    let (head, body) = client.send(request.map(Body::from)).await?.into_parts();
    let body = Limited::new(body, max_bytes).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
