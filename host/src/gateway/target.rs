//! The target of a model's requests: its `backendUrl`, with a host name completed for its namespace.

use http::{HeaderValue, Uri, uri::PathAndQuery};
use std::net::IpAddr;

/// The maximum length of a host name in DNS.
const MAX_HOST: usize = 253;

/// A server, which identifies connections and failures.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Whether it uses TLS.
    pub tls: bool,
    /// A fully qualified name, or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// A server, and a model's path on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub server: Server,
    /// The Host header of requests.
    pub host: HeaderValue,
    /// The prefix of each path, without a slash at its end.
    base: String,
}

impl Target {
    /// Parses a `backendUrl`. A host without dots is a Service in the model's namespace, and one of two parts is NAME.NAMESPACE; a trailing
    /// dot means that the name is fully qualified.
    pub fn parse(url: &str, namespace: &str, cluster_domain: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("spec.backendUrl {url:?} {what}");
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("is not a URL ({error}): write one such as http://vllm-server:8000")))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("must begin with http:// or https://")),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("contains a user: remove it"));
        }
        if url.contains(['?', '#']) {
            return Err(wrong("has a query or a fragment: remove it"));
        }
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_ascii_lowercase();
        let host = if host.parse::<IpAddr>().is_ok() { host } else { complete(&host, namespace, cluster_domain) };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if host.parse::<IpAddr>().is_err() && (host.len() > MAX_HOST || !host.chars().all(is_name) || host.split('.').any(str::is_empty)) {
            return Err(wrong("has no valid host"));
        }
        let default = if tls { 443 } else { 80 };
        // The parser ignores a port that is too large.
        let given = uri.authority().and_then(|authority| authority.as_str().strip_prefix(uri.host()?)).unwrap_or_default();
        let port = match given.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong("has no valid port"))?,
            None => default,
        };
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = if port == default { shown } else { format!("{shown}:{port}") };
        let authority = HeaderValue::from_str(&authority).map_err(|_| wrong("has no valid host"))?;
        let base = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { server: Server { tls, host, port }, host: authority, base })
    }

    /// The target of a request line.
    pub fn path(&self, requested: &PathAndQuery) -> Result<Uri, http::Error> {
        if self.base.is_empty() {
            return Uri::builder().path_and_query(requested.clone()).build();
        }
        Uri::builder().path_and_query(format!("{}{requested}", self.base)).build()
    }
}

fn complete(host: &str, namespace: &str, cluster_domain: &str) -> String {
    if let Some(complete) = host.strip_suffix('.') {
        return complete.to_owned();
    }
    let parts: Vec<&str> = host.split('.').collect();
    match parts[..] {
        [name] => format!("{name}.{namespace}.svc.{cluster_domain}"),
        [_, _] => format!("{host}.svc.{cluster_domain}"),
        [_, _, "svc"] => format!("{host}.{cluster_domain}"),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_the_model_s_namespace_means_them() {
        for (url, host, port, tls, shown) in [
            ("http://vllm:8000", "vllm.ml.svc.cluster.local", 8000, false, "vllm.ml.svc.cluster.local:8000"),
            ("http://VLLM", "vllm.ml.svc.cluster.local", 80, false, "vllm.ml.svc.cluster.local"),
            ("http://localhost/", "localhost.ml.svc.cluster.local", 80, false, "localhost.ml.svc.cluster.local"),
            ("http://vllm.other:1", "vllm.other.svc.cluster.local", 1, false, "vllm.other.svc.cluster.local:1"),
            ("http://vllm.other.svc", "vllm.other.svc.cluster.local", 80, false, "vllm.other.svc.cluster.local"),
            ("https://api.example.com", "api.example.com", 443, true, "api.example.com"),
            ("https://example.com./v1", "example.com", 443, true, "example.com"),
            ("http://10.0.0.1:8000", "10.0.0.1", 8000, false, "10.0.0.1:8000"),
            ("http://[fd00::1]:8000", "fd00::1", 8000, false, "[fd00::1]:8000"),
        ] {
            let target = Target::parse(url, "ml", "cluster.local").unwrap();
            assert_eq!(target.server, Server { tls, host: host.to_owned(), port }, "{url}");
            assert_eq!(target.host, shown, "{url}");
        }
    }

    #[test]
    fn a_url_that_could_mean_something_else_is_refused() {
        for url in [
            "vllm:8000",
            "ftp://vllm",
            "file:///etc/passwd",
            "http://",
            "http://user@vllm",
            "http://a:b@vllm",
            "http://vllm?x=1",
            "http://vllm#x",
            "http://vllm:0",
            "http://vllm:99999",
            "http://a..b.c",
            "http://a%2eb",
            "http://a b",
        ] {
            assert!(Target::parse(url, "ml", "cluster.local").unwrap_err().starts_with("spec.backendUrl"), "{url}");
        }
    }

    #[test]
    fn the_path_of_the_url_comes_before_that_of_a_request() {
        let path = |url: &str| {
            let target = Target::parse(url, "ml", "cluster.local").unwrap();
            target.path(&PathAndQuery::from_static("/v1/chat/completions?a=b")).unwrap().to_string()
        };
        assert_eq!(path("http://vllm"), "/v1/chat/completions?a=b");
        assert_eq!(path("http://vllm/base/"), "/base/v1/chat/completions?a=b");
    }
}
