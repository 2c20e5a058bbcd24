//! Restricts the addresses that the gateway connects to. A model's `backendUrl` is its author's, and the gateway can reach addresses that
//! its author can't: the host's own network, and the cloud's metadata service with its credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is the gateway's own machine. Can be allowed, for tests.
    Loopback,
    /// It is link-local, like most metadata services of clouds.
    LinkLocal,
    /// It is a cloud's metadata service at another address.
    Metadata,
    /// It isn't the address of a single machine.
    NotUnicast,
}

impl Refused {
    /// The reason, as part of a sentence.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Loopback => "it is a loopback address",
            Self::LinkLocal => "it is a link-local address, where clouds have their metadata",
            Self::Metadata => "it is the address of a cloud's metadata",
            Self::NotUnicast => "it is not the address of a host",
        }
    }
}

/// Metadata services that aren't link-local: Alibaba's, Oracle's, Azure's, and Amazon's IPv6 address.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Checks the address that a name has been resolved to: connect to this address, and don't resolve the name again.
pub fn check(address: IpAddr, allow_loopback: bool) -> Result<(), Refused> {
    let address = as_ipv4(address);
    if METADATA.contains(&address) {
        return Err(Refused::Metadata);
    }
    let refused = match address {
        IpAddr::V4(v4) if v4.is_loopback() => Some(Refused::Loopback),
        IpAddr::V4(v4) if v4.is_link_local() => Some(Refused::LinkLocal),
        // Some systems treat all of 0.0.0.0/8 as this machine.
        IpAddr::V4(v4) if v4.octets()[0] == 0 || v4.is_multicast() || v4.is_broadcast() => Some(Refused::NotUnicast),
        IpAddr::V6(v6) if v6.is_loopback() => Some(Refused::Loopback),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(Refused::LinkLocal),
        IpAddr::V6(v6) if v6.is_unspecified() || v6.is_multicast() => Some(Refused::NotUnicast),
        _ => None,
    };
    match refused {
        None => Ok(()),
        Some(Refused::Loopback) if allow_loopback => Ok(()),
        Some(refused) => Err(refused),
    }
}

/// The IPv4 address in an IPv6 address: mapped, compatible, 6to4 or NAT64.
fn as_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let ipv4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => ipv4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => ipv4(high, low),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_an_address_leads_to_this_machine_or_to_metadata() {
        use Refused::{LinkLocal, Loopback, Metadata, NotUnicast};
        for (text, expected) in [
            ("127.0.0.1", Some(Loopback)),
            ("127.8.9.10", Some(Loopback)),
            ("::1", Some(Loopback)),
            ("::ffff:127.0.0.1", Some(Loopback)),
            ("::127.0.0.1", Some(Loopback)),
            ("64:ff9b::7f00:1", Some(Loopback)),
            ("2002:7f00:1::", Some(Loopback)),
            ("169.254.169.254", Some(LinkLocal)),
            ("::ffff:169.254.169.254", Some(LinkLocal)),
            ("64:ff9b::a9fe:a9fe", Some(LinkLocal)),
            ("fe80::1", Some(LinkLocal)),
            ("febf::1", Some(LinkLocal)),
            ("fd00:ec2::254", Some(Metadata)),
            ("100.100.100.200", Some(Metadata)),
            ("::ffff:100.100.100.200", Some(Metadata)),
            ("168.63.129.16", Some(Metadata)),
            ("0.0.0.0", Some(NotUnicast)),
            ("0.1.2.3", Some(NotUnicast)),
            ("::", Some(NotUnicast)),
            ("224.0.0.1", Some(NotUnicast)),
            ("255.255.255.255", Some(NotUnicast)),
            ("ff02::1", Some(NotUnicast)),
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("100.64.0.1", None),
            ("8.8.8.8", None),
            ("fd00::1", None),
            ("2001:db8::1", None),
            ("2002:a00:1::", None),
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(check(address, false).err(), expected, "{text}");
            assert_eq!(check(address, true).err(), expected.filter(|refused| *refused != Loopback), "{text}, with loopback");
        }
    }
}
