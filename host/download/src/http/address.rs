//! Which addresses a download may read from: whoever writes a storageUri must not reach what only the node may.

use futures::{FutureExt, future::BoxFuture};
use hyper_util::client::legacy::connect::dns::Name;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::{Context, Poll},
    vec::IntoIter,
};
use tower::Service;

/// Where clouds publish a machine's credentials, besides link-local addresses.
const METADATA: [Ipv4Addr; 3] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];
const METADATA_HOST: &str = "metadata.google.internal";

#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) loopback: bool,
    pub(super) metadata: bool,
}

impl Guard {
    /// Checks a host that is an address already; names are checked when they are resolved.
    pub(super) fn check_host(self, host: &str) -> Result<(), String> {
        if host.eq_ignore_ascii_case(METADATA_HOST) && !self.metadata {
            return Err(refusal(host));
        }
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if !self.allows(address) => Err(refusal(host)),
            _ => Ok(()),
        }
    }

    fn allows(self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) if v4.is_link_local() || METADATA.contains(&v4) => self.metadata,
            IpAddr::V4(v4) if v4.is_loopback() => self.loopback,
            IpAddr::V4(v4) => !(v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()),
            IpAddr::V6(v6) if v6.is_loopback() => self.loopback,
            // fe80::/10, and fd00:ec2::/32, where AWS has it.
            IpAddr::V6(v6) => {
                let [first, second, ..] = v6.segments();
                let metadata = first & 0xffc0 == 0xfe80 || (first, second) == (0xfd00, 0x0ec2);
                !(v6.is_unspecified() || v6.is_multicast() || metadata && !self.metadata)
            }
        }
    }
}

fn refusal(host: &str) -> String {
    format!("{host} belongs to the node itself, which isn't a source of models")
}

/// Resolves names to those addresses that are allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolver(pub(super) Guard);

impl Service<Name> for Resolver {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<IntoIter<SocketAddr>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        // The client's own check may allow the metadata service; a name that resolves to it is refused in any case.
        let guard = Guard { metadata: false, ..self.0 };
        async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let is_metadata_host = name.as_str().eq_ignore_ascii_case(METADATA_HOST);
            let allowed: Vec<_> = found.into_iter().filter(|address| is_metadata_host || guard.allows(address.ip())).collect();
            if allowed.is_empty() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal(name.as_str())));
            }
            Ok(allowed.into_iter())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_own_services_are_no_sources() {
        let guard = Guard { loopback: false, metadata: false };
        for host in [
            "169.254.169.254",
            "[fe80::1]",
            "127.0.0.1",
            "[::1]",
            "[::ffff:169.254.169.254]",
            "0.0.0.0",
            "[fd00:ec2::254]",
            "100.100.100.200",
            "metadata.google.internal",
        ] {
            assert!(guard.check_host(host).is_err(), "{host}");
        }
        for host in ["10.0.0.7", "huggingface.co", "[2001:db8::1]", "100.100.100.201"] {
            assert!(guard.check_host(host).is_ok(), "{host}");
        }
        assert!(Guard { loopback: true, metadata: false }.check_host("127.0.0.1").is_ok());
    }
}
