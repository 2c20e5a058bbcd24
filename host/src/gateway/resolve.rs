//! Resolves a backend's name to addresses that the gateway may connect to.

use super::address;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};
use tokio::{net::lookup_host, time::timeout};

/// The maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 16;

/// A name that is resolved without DNS, like curl's `--resolve`: HOST:PORT:ADDRESS[:PORT].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    host: String,
    port: u16,
    address: SocketAddr,
}

impl FromStr for Override {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} isn't HOST:PORT:ADDRESS or HOST:PORT:ADDRESS:PORT, such as vllm.ml.svc.cluster.local:8000:10.0.0.1");
        let (host, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (port, address) = rest.split_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(address);
        let address = match bare.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, port),
            Err(_) => address.parse().map_err(|_| wrong())?,
        };
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self { host: host.to_ascii_lowercase(), port, address })
    }
}

/// Resolves names.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// Names that are resolved without DNS.
    pub overrides: Vec<Override>,
    /// Whether loopback addresses are allowed.
    pub allow_loopback: bool,
}

impl Resolver {
    /// The addresses of a server. All of them are allowed.
    pub async fn addresses(&self, host: &str, port: u16, within: Duration) -> io::Result<Vec<SocketAddr>> {
        let known = self.overrides.iter().find(|known| known.host == host && known.port == port).map(|known| known.address);
        let known = known.or_else(|| Some(SocketAddr::new(host.parse().ok()?, port)));
        let found: Vec<SocketAddr> = if let Some(known) = known {
            vec![known]
        } else {
            // The dot prevents the use of the pod's search domains.
            let found = timeout(within, lookup_host((format!("{host}."), port))).await;
            let found = found.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "DNS doesn't answer"))?;
            found.map_err(|error| io::Error::new(error.kind(), format!("its name can't be resolved: {error}")))?.collect()
        };
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found.into_iter().take(MAX_ADDRESSES) {
            match address::check(address.ip(), self.allow_loopback) {
                Ok(()) => allowed.push(address),
                Err(reason) => refused = Some((address.ip(), reason)),
            }
        }
        match (allowed.is_empty(), refused) {
            (false, _) => Ok(allowed),
            (true, Some((address, refused))) => {
                let why = format!("the gateway doesn't connect to {address}: {}", refused.reason());
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            (true, None) => Err(io::Error::new(io::ErrorKind::NotFound, "its name has no address")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_written_as_curl_has_it() {
        let parsed = |text: &str| text.parse::<Override>().map(|known| known.address.to_string());
        assert_eq!(parsed("a.b:80:10.0.0.1").as_deref(), Ok("10.0.0.1:80"));
        assert_eq!(parsed("a.b:80:10.0.0.1:81").as_deref(), Ok("10.0.0.1:81"));
        assert_eq!(parsed("a.b:80:[fd00::1]:81").as_deref(), Ok("[fd00::1]:81"));
        assert_eq!(parsed("a.b:80:[fd00::1]").as_deref(), Ok("[fd00::1]:80"));
        for wrong in ["", "a", "a:80", ":80:10.0.0.1", "a:x:10.0.0.1", "a:80:b", "a:80:10.0.0.1:x"] {
            assert!(wrong.parse::<Override>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn an_address_that_is_refused_is_refused_as_an_override_too() {
        let resolver = |allow_loopback| Resolver { overrides: vec!["a.b:80:127.0.0.1:81".parse().unwrap()], allow_loopback };
        let within = Duration::from_secs(5);
        assert_eq!(resolver(true).addresses("a.b", 80, within).await.unwrap(), ["127.0.0.1:81".parse().unwrap()]);
        for host in ["a.b", "127.0.0.1", "169.254.169.254", "::ffff:169.254.169.254"] {
            let error = resolver(false).addresses(host, 80, within).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{host}: {error}");
        }
    }
}
