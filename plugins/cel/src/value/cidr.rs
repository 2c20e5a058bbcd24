//! IP addresses and networks.

use std::fmt;
use std::net::IpAddr;

/// An address of version 4, or of version 6 that isn't a mapped IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip(pub(crate) IpAddr);

/// A network: an address, and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    address: Ip,
    bits: u8,
}

impl Ip {
    /// Parses an address.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some((address, zone)) = text.split_once('%')
            && !zone.is_empty()
            && address.parse::<std::net::Ipv6Addr>().is_ok()
        {
            return Err(format!("IP address {text:?} with zone value is not allowed"));
        }
        let address: IpAddr =
            text.parse().map_err(|_| format!("IP Address {text:?} parse error during conversion from string: unable to parse IP"))?;
        if mapped(&address) {
            return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
        }
        Ok(Ip(address))
    }

    /// 4 or 6.
    pub(crate) fn family(&self) -> i64 {
        if self.0.is_ipv4() { 4 } else { 6 }
    }

    /// Whether it is a multicast address on the local link.
    pub(crate) fn is_link_local_multicast(&self) -> bool {
        match self.0 {
            IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
            IpAddr::V6(address) => {
                let [first, second, ..] = address.octets();
                first == 0xff && second & 0x0f == 0x02
            }
        }
    }

    /// Whether it is a unicast address on the local link.
    pub(crate) fn is_link_local_unicast(&self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }

    /// Whether it is a global unicast address. This includes private addresses.
    pub(crate) fn is_global_unicast(&self) -> bool {
        let everybody = matches!(self.0, IpAddr::V4(address) if address.is_broadcast());
        !(everybody || self.0.is_unspecified() || self.0.is_loopback() || self.0.is_multicast() || self.is_link_local_unicast())
    }

    /// The address with all bits after the prefix set to 0.
    fn masked(self, bits: u8) -> Ip {
        Ip(match self.0 {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        })
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Cidr {
    /// Parses a network.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("network address parse error during conversion from string: {why}"));
        let Some((address, bits)) = text.rsplit_once('/') else {
            return wrong(&format!("netip.ParsePrefix({text:?}): no '/'"));
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return wrong(&format!("netip.ParsePrefix({text:?}): unable to parse IP"));
        };
        if bits.len() > 1 && !bits.starts_with(|first: char| ('1'..='9').contains(&first)) {
            return wrong(&format!("netip.ParsePrefix({text:?}): bad bits after slash"));
        }
        let most = if address.is_ipv4() { 32 } else { 128 };
        match bits.parse::<u8>() {
            Ok(_) if mapped(&address) => Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed")),
            Ok(bits) if bits <= most => Ok(Cidr { address: Ip(address), bits }),
            _ => wrong(&format!("netip.ParsePrefix({text:?}): prefix length out of range")),
        }
    }

    /// Its address as written.
    pub(crate) fn address(&self) -> Ip {
        self.address
    }

    /// The length of the prefix, in bits.
    pub(crate) fn bits(&self) -> i64 {
        i64::from(self.bits)
    }

    /// The network with its host bits set to 0.
    pub(crate) fn masked(&self) -> Cidr {
        Cidr { address: self.address.masked(self.bits), bits: self.bits }
    }

    /// Whether it contains an address.
    pub(crate) fn contains(&self, address: &Ip) -> bool {
        self.address.0.is_ipv4() == address.0.is_ipv4() && self.address.masked(self.bits) == address.masked(self.bits)
    }

    /// Whether it contains another network completely.
    pub(crate) fn contains_network(&self, other: &Cidr) -> bool {
        self.bits <= other.bits && self.contains(&other.address)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

fn mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}
