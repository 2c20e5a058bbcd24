//! The client of all tasks that write on the leader: it sends a write only while this host is the leader, and limits the wait for a
//! response to less than the lease. Every writer gets its client here, so none can forget either.

use super::Leadership;
use http::{Method, Request, Response};
use kube::{Client, client::Body};
use std::time::Duration;
use tokio::time::timeout;

/// The timeout of a write, up to the last byte of the response: another host may hold the lease afterwards.
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// The timeout of a read. It changes nothing, but its caller does nothing else meanwhile.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request was not sent, or its response not awaited.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// Another host is the leader now.
    #[error("this host is no longer the leader")]
    NotLeading,
    /// The connection may be half open.
    #[error("the API server took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
}

impl FenceError {
    /// This error, if it is why a request failed.
    pub fn find(error: &kube::Error) -> Option<&Self> {
        if let kube::Error::Service(error) = error { error.downcast_ref() } else { None }
    }
}

impl From<FenceError> for kube::Error {
    fn from(error: FenceError) -> Self {
        Self::Service(Box::new(error))
    }
}

/// A client that writes only while we lead. It can't be used for watches.
pub fn fenced(client: Client, leadership: Leadership) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |request: Request<Body>| {
        let (client, leadership) = (client.clone(), leadership.clone());
        async move {
            let writes = request.method() != Method::GET;
            if writes && !leadership.held() {
                return Err(kube::Error::from(FenceError::NotLeading));
            }
            let patience = if writes { WRITE_TIMEOUT } else { READ_TIMEOUT };
            let whole = async {
                let (head, body) = client.send(request).await?.into_parts();
                Ok(Response::from_parts(head, Body::from(body.collect_bytes().await?.to_vec())))
            };
            timeout(patience, whole).await.unwrap_or_else(|_| Err(FenceError::TimedOut(patience).into()))
        }
    };
    Client::new(tower::service_fn(send), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, body::Body as AxumBody, extract::State, response::IntoResponse};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, api::PostParams};
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };
    use tokio::{sync::watch, time::Instant};

    /// Counts requests, starts a response, and never ends it.
    async fn hang(State(reached): State<Arc<AtomicU32>>) -> impl IntoResponse {
        reached.fetch_add(1, Ordering::SeqCst);
        let first = futures::stream::once(async { Ok::<_, std::convert::Infallible>(r#"{"kind":"#) });
        AxumBody::from_stream(futures::StreamExt::chain(first, futures::stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_by_who_does_not_lead_and_no_answer_is_waited_for_for_ever() {
        let reached = Arc::<AtomicU32>::default();
        let server = Router::new().fallback(hang).with_state(Arc::clone(&reached));
        let (leads, leadership) = watch::channel(Some(Instant::now() + Duration::from_secs(10)));
        let maps = Api::<ConfigMap>::namespaced(fenced(Client::new(server, "default"), Leadership(leadership)), "default");
        let create = async || maps.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err();

        let begun = Instant::now();
        let error = create().await;
        assert_eq!(FenceError::find(&error).unwrap().to_string(), "the API server took longer than 4 s");
        assert_eq!(begun.elapsed(), WRITE_TIMEOUT);
        let begun = Instant::now();
        maps.get("a").await.unwrap_err();
        assert_eq!((begun.elapsed(), reached.load(Ordering::SeqCst)), (READ_TIMEOUT, 2));

        // The lease has expired by now.
        assert!(matches!(FenceError::find(&create().await), Some(FenceError::NotLeading)));
        assert_eq!(reached.load(Ordering::SeqCst), 2);
        leads.send_replace(Some(Instant::now() + Duration::from_secs(10)));
        assert!(matches!(FenceError::find(&create().await), Some(FenceError::TimedOut(_))));
        assert_eq!(reached.load(Ordering::SeqCst), 3);
    }
}
