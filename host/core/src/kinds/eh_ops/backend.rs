//! The Service in the model's own namespace that `backendUrl` refers to.

use pointsman_sandbox::words;

/// A Service and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) service: String,
    pub(super) port: i64,
}

impl Backend {
    /// The Service in a URL, if it is in this namespace: `NAME` or `NAME.NAMESPACE`, optionally with `.svc` and the cluster domain.
    pub(super) fn parse(url: &str, namespace: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let default = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| (1..=65_535).contains(port))?),
            None => (authority, default),
        };
        let mut labels = host.trim_end_matches('.').split('.');
        let service = labels.next()?;
        let is_own = labels.next().is_none_or(|label| label == namespace) && labels.next().is_none_or(|label| label == "svc");
        (is_own && words::service_name(service)).then(|| Self { service: service.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_of_the_same_namespace_is_one_of_the_model() {
        let parse = |url: &str| Backend::parse(url, "ml").map(|backend| format!("{}:{}", backend.service, backend.port));
        for (url, expected) in [
            ("http://vllm-server:8000", "vllm-server:8000"),
            ("http://vllm-server", "vllm-server:80"),
            ("https://vllm-server.ml/v1", "vllm-server:443"),
            ("http://vllm-server.ml.svc.cluster.local.:8000/v1?x", "vllm-server:8000"),
        ] {
            assert_eq!(parse(url).as_deref(), Some(expected), "{url}");
        }
        for url in [
            "http://vllm-server.other:8000",
            "https://inference.example.com",
            "http://10.0.0.1:8000",
            "http://[::1]:8000",
            "http://user@vllm-server",
            "http://vllm-server:0",
            "http://vllm-server:99999",
            "ftp://vllm-server",
            "vllm-server",
            "http://",
        ] {
            assert_eq!(parse(url), None, "{url}");
        }
    }
}
