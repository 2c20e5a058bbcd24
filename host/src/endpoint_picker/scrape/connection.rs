//! A connection to an endpoint, and the read of a page on it.

use super::ScrapeError;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::{
    StatusCode,
    body::{Body, Bytes},
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use pointsman_picker::engine_metrics::{MAX_PAGE, MetricsError};
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// The maximum size of a response's headers in bytes, and their maximum number.
const MAX_HEADER_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// The future that drives a connection's I/O.
type ConnectionDriver = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// A connection to an endpoint. The reader drives it, so that there is one task per endpoint, not two.
pub(super) struct MetricsConnection {
    sender: SendRequest<Empty<Bytes>>,
    /// None after its end.
    driver: Option<ConnectionDriver>,
}

impl MetricsConnection {
    pub(super) async fn open(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Self, ScrapeError> {
        let mut builder = Builder::new();
        let builder = builder.max_buf_size(MAX_HEADER_BYTES).max_headers(MAX_HEADERS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(ScrapeError::Http)?;
        Ok(Self { sender, driver: Some(Box::pin(connection)) })
    }

    /// Whether it is ready for another request. Without a task, only this check notices that the server has closed it.
    pub(super) fn is_usable(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && !self.sender.is_closed()
    }

    /// Sends a request, and reads the page of its response.
    pub(super) async fn exchange(&mut self, request: Request<Empty<Bytes>>, page: &mut Vec<u8>) -> Result<(), ScrapeError> {
        let Self { sender, driver } = self;
        let mut answer = pin!(receive(sender, request, page));
        poll_fn(|context| {
            drive(driver, context);
            match answer.as_mut().poll(context) {
                Poll::Pending => {
                    drive(driver, context);
                    answer.as_mut().poll(context)
                }
                ready @ Poll::Ready(_) => ready,
            }
        })
        .await
    }
}

fn drive(driver: &mut Option<ConnectionDriver>, context: &mut Context<'_>) {
    // The request also learns how it ends.
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
        *driver = None;
    }
}

async fn receive(sender: &mut SendRequest<Empty<Bytes>>, request: Request<Empty<Bytes>>, page: &mut Vec<u8>) -> Result<(), ScrapeError> {
    page.clear();
    sender.ready().await.map_err(ScrapeError::Http)?;
    let response = sender.send_request(request).await.map_err(ScrapeError::Http)?;
    if response.status() != StatusCode::OK {
        return Err(ScrapeError::Status(response.status()));
    }
    let mut body = response.into_body();
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > MAX_PAGE {
        return Err(MetricsError::TooLarge(expected).into());
    }
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ScrapeError::Http)?.into_data() else { continue };
        let bytes = page.len() + data.len();
        if bytes > MAX_PAGE {
            return Err(MetricsError::TooLarge(bytes).into());
        }
        page.extend_from_slice(&data);
    }
    Ok(())
}
