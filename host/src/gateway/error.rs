//! The gateway's own errors, in the format of OpenAI's clients.

use super::Malformed;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use hyper::body::Bytes;
use serde_json::json;

/// An error response of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayError {
    /// The status of the response.
    pub status: StatusCode,
    /// The code for clients.
    pub code: &'static str,
    /// The problem and the remedy.
    pub message: String,
    /// The invalid field of the request.
    pub param: Option<&'static str>,
    /// The number of seconds after which the client should retry.
    pub retry_after: Option<u64>,
}

impl GatewayError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), param: None, retry_after: None }
    }

    /// An invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// A body in which no model can be found.
    pub fn malformed(malformed: &Malformed) -> Self {
        Self { param: Some("model"), ..Self::invalid(format!("{malformed}.")) }
    }

    /// A path that isn't served.
    pub fn unknown_path(path: &str) -> Self {
        let message = format!("The gateway doesn't serve {path:?}: use one of the paths in its flag --path.");
        Self::new(StatusCode::NOT_FOUND, "unknown_url", message)
    }

    /// A method that isn't served.
    pub fn method(message: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    /// A model that doesn't exist, or that this caller may not use: both get the same response.
    pub fn model_not_found(name: &str) -> Self {
        let message = format!("The model {name:?} does not exist or you do not have access to it: list models with GET /v1/models.");
        Self { param: Some("model"), ..Self::new(StatusCode::NOT_FOUND, "model_not_found", message) }
    }

    /// A model that has no memory.
    pub fn insufficient_memory(message: impl Into<String>, retry_after: u64) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "insufficient_memory", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// A model that can't respond now.
    pub fn model_not_ready(message: impl Into<String>, retry_after: Option<u64>) -> Self {
        Self { retry_after, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "model_not_ready", message) }
    }

    /// The gateway has reached one of its limits.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self { retry_after: Some(5), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message) }
    }

    /// A backend that can't be reached, or fails before its response begins.
    pub fn backend_unavailable(message: impl Into<String>, retry_after: Option<u64>) -> Self {
        Self { retry_after, ..Self::new(StatusCode::BAD_GATEWAY, "backend_unavailable", message) }
    }

    /// A backend whose response doesn't begin in time.
    pub fn backend_timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "backend_timeout", message)
    }

    /// A body that is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    }

    /// A body that arrives too slowly.
    pub fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "The request's body came too slowly: send it without long pauses.")
    }

    /// An unknown caller.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    }

    /// The caller can't be identified now.
    pub fn authentication_unavailable() -> Self {
        let message = "The API server that checks tokens doesn't answer: try again.";
        Self { retry_after: Some(5), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "authentication_unavailable", message) }
    }

    /// An exhausted quota.
    pub fn rate_limited(message: impl Into<String>, retry_after: u64) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// The `type` in the body.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS if self.code == "rate_limit_exceeded" => "rate_limit_error",
            status if status.is_server_error() || self.code == "insufficient_memory" => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body, as JSON in one line.
    pub fn json(&self) -> String {
        json!({"error": {"message": self.message, "type": self.kind(), "param": self.param, "code": self.code}}).to_string()
    }

    /// The response.
    pub fn response(&self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.json()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_shape_that_openai_s_clients_read() {
        let error = GatewayError::model_not_found("a\"b");
        let body: serde_json::Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!(body["error"]["code"], "model_not_found");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["param"], "model");
        let response = GatewayError::insufficient_memory("ml/large takes 80Gi.", 0).response();
        assert_eq!((response.status().as_u16(), response.headers()[RETRY_AFTER].to_str().unwrap()), (429, "1"));
    }
}
