//! Filters the headers that pass the gateway: none that belong to only one connection, and none that two servers could parse differently.

use super::error::GatewayError;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri, Version,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
        TRANSFER_ENCODING, UPGRADE,
    },
};

/// The maximum length of a path with its query, in bytes.
const MAX_PATH: usize = 8192;

/// The headers that always belong to one connection.
static HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The headers that a Connection header may not remove: the gateway or the backend relies on them.
static KEPT: [HeaderName; 4] = [AUTHORIZATION, HOST, CONTENT_LENGTH, http::header::CONTENT_TYPE];

/// Refuses a request that another server could parse differently.
pub fn check(method: &Method, uri: &Uri, version: Version, headers: &HeaderMap) -> Result<(), GatewayError> {
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(GatewayError::method(format!("The gateway doesn't serve {method}.")));
    }
    if uri.path_and_query().is_some_and(|all| all.as_str().len() > MAX_PATH) {
        return Err(GatewayError::invalid(format!("The path is longer than {MAX_PATH} bytes.")));
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(GatewayError::invalid("The request has more than one Host header.")),
        (None, None) if version == Version::HTTP_11 => return Err(GatewayError::invalid("The request has no Host header.")),
        (Some(host), None) if !is_host(host) => return Err(GatewayError::invalid("The Host header isn't valid.")),
        _ => {}
    }
    // hyper has refused all except `chunked` at the end; a list could still hide another coding from the backend.
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(GatewayError::invalid("Transfer-Encoding must be `chunked` alone."));
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(GatewayError::invalid("The request has both Transfer-Encoding and Content-Length."));
        }
    }
    if headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(GatewayError::invalid("The request has more than one Content-Length header."));
    }
    if headers.get_all(http::header::CONTENT_TYPE).iter().count() > 1 {
        return Err(GatewayError::invalid("The request has more than one Content-Type header."));
    }
    if headers.contains_key(http::header::CONTENT_ENCODING) {
        return Err(GatewayError::invalid("The body is compressed, so that its model can't be found: send it without Content-Encoding."));
    }
    if headers.get_all(EXPECT).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(GatewayError::invalid("The Expect header must be `100-continue`."));
    }
    Ok(())
}

/// Refuses a path that a backend could parse differently.
pub fn check_path(path: &str) -> Result<(), GatewayError> {
    if !path.starts_with('/') || path.contains("//") || path.contains(['\\', ';']) || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(GatewayError::invalid("The path isn't valid: use a path such as /v1/chat/completions."));
    }
    // Some servers compare before they unescape.
    let lower = path.to_ascii_lowercase();
    let is_hidden = ["%2e", "%2f", "%5c", "%25", "%00"].iter().any(|escaped| lower.contains(escaped));
    if is_hidden || path.split('/').any(|part| part == "." || part == "..") {
        return Err(GatewayError::invalid("The path contains `.`, `..` or an escaped separator: write it plainly."));
    }
    Ok(())
}

fn is_host(host: &HeaderValue) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !host.is_empty() && host.as_bytes().iter().all(|byte| is_allowed(*byte))
}

/// Removes the headers that belong to one connection.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !KEPT.contains(name))
        .collect();
    for name in HOP_BY_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
}

/// Converts a client's headers to those for a backend. The sender of the body sets the length.
pub fn for_backend(headers: &mut HeaderMap, host: &HeaderValue, keeps_authorization: bool) {
    let takes_trailers = headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("trailers")));
    remove_hop_by_hop(headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    headers.remove(http::header::TRAILER);
    // The tokens in the response are counted, so it must not be compressed.
    headers.remove(ACCEPT_ENCODING);
    if !keeps_authorization {
        headers.remove(AUTHORIZATION);
    }
    headers.insert(HOST, host.clone());
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
}

/// Converts a backend's headers to those for a client.
pub fn for_client(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
}

/// Whether a client accepts server-sent events: it must name them explicitly.
pub fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted
        .flat_map(|value| value.split(','))
        .any(|range| range.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream")))
}

/// Whether a response is a stream of server-sent events.
pub fn is_events(headers: &HeaderMap) -> bool {
    let media = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media.and_then(|value| value.split(';').next()).is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap());
        pairs.iter().map(pair).fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        })
    }

    #[test]
    fn what_belongs_to_one_connection_doesn_t_pass() {
        let mut all = headers(&[
            ("connection", "close, X-Secret, host, authorization"),
            ("x-secret", "1"),
            ("keep-alive", "5"),
            ("proxy-authorization", "a"),
            ("proxy-connection", "a"),
            ("te", "trailers, gzip"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("authorization", "Bearer x"),
            ("host", "evil"),
            ("x-kept", "1"),
        ]);
        let mut without = all.clone();
        for_backend(&mut all, &HeaderValue::from_static("good"), true);
        let expected =
            headers(&[("authorization", "Bearer x"), ("host", "good"), ("x-kept", "1"), ("te", "trailers"), ("connection", "te")]);
        assert_eq!(all, expected);
        for_backend(&mut without, &HeaderValue::from_static("good"), false);
        assert!(!without.contains_key(AUTHORIZATION));
    }

    #[test]
    fn paths_that_servers_read_differently_are_refused() {
        for path in ["/v1/../x", "/v1/%2e%2E/x", "/v1//x", "/v1/a%2fb", "/v1/a;b", "/./v1", "/v1/%00", "/v1/..", "/v1/%252e", "*", ""] {
            assert!(check_path(path).is_err(), "{path}");
        }
        for path in ["/v1/chat/completions", "/v1/a..b", "/v1/org%20x"] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn only_who_names_events_takes_them() {
        assert!(accepts_events(&headers(&[("accept", "application/json, Text/Event-Stream;q=0.5")])));
        assert!(!accepts_events(&headers(&[("accept", "*/*, application/json")])));
    }
}
