//! IP addresses and networks.

use super::args::{Answer, Args, any, give_bool, give_int, give_special, special, text};
use super::{Function, P, global, member};
use crate::error::fail;
use crate::value::cidr::{Cidr, Ip};
use cel::ExecutionError;
use cel::common::types::CelString;

const IP: P = P::Special("net.IP");
const CIDR: P = P::Special("net.CIDR");

pub(crate) const FUNCTIONS: &[Function] = &[
    global("ip", &[(&[P::String], IP)], |args| give_special(parse_ip(&args, 0)?)),
    global("isIP", &[(&[P::String], P::Bool)], |args| give_bool(Ip::parse(text(&args, 0)?).is_ok())),
    global("ip.isCanonical", &[(&[P::String], P::Bool)], |args| give_bool(parse_ip(&args, 0)?.to_string() == text(&args, 0)?)),
    member("family", &[(&[IP], P::Int)], |args| give_int(special::<Ip>(&args, 0)?.family())),
    member("isUnspecified", &[(&[IP], P::Bool)], |args| about(&args, |ip| ip.0.is_unspecified())),
    member("isLoopback", &[(&[IP], P::Bool)], |args| about(&args, |ip| ip.0.is_loopback())),
    member("isLinkLocalMulticast", &[(&[IP], P::Bool)], |args| about(&args, Ip::is_link_local_multicast)),
    member("isLinkLocalUnicast", &[(&[IP], P::Bool)], |args| about(&args, Ip::is_link_local_unicast)),
    member("isGlobalUnicast", &[(&[IP], P::Bool)], |args| about(&args, Ip::is_global_unicast)),
    global("cidr", &[(&[P::String], CIDR)], |args| give_special(parse_cidr(&args, 0)?)),
    global("isCIDR", &[(&[P::String], P::Bool)], |args| give_bool(Cidr::parse(text(&args, 0)?).is_ok())),
    member("containsIP", &[(&[CIDR, P::String], P::Bool), (&[CIDR, IP], P::Bool)], |args| {
        let address = if is_text(&args) { parse_ip(&args, 1)? } else { *special::<Ip>(&args, 1)? };
        give_bool(special::<Cidr>(&args, 0)?.contains(&address))
    }),
    member("containsCIDR", &[(&[CIDR, P::String], P::Bool), (&[CIDR, CIDR], P::Bool)], |args| {
        let network = if is_text(&args) { parse_cidr(&args, 1)? } else { *special::<Cidr>(&args, 1)? };
        give_bool(special::<Cidr>(&args, 0)?.contains_network(&network))
    }),
    member("ip", &[(&[CIDR], IP)], |args| give_special(special::<Cidr>(&args, 0)?.address())),
    member("prefixLength", &[(&[CIDR], P::Int)], |args| give_int(special::<Cidr>(&args, 0)?.bits())),
    member("masked", &[(&[CIDR], CIDR)], |args| give_special(special::<Cidr>(&args, 0)?.masked())),
];

fn parse_ip(args: &Args<'_, '_>, at: usize) -> Result<Ip, ExecutionError> {
    Ip::parse(text(args, at)?).map_err(fail)
}

fn parse_cidr(args: &Args<'_, '_>, at: usize) -> Result<Cidr, ExecutionError> {
    Cidr::parse(text(args, at)?).map_err(fail)
}

fn is_text(args: &Args<'_, '_>) -> bool {
    any(args, 1).is_ok_and(|value| value.downcast_ref::<CelString<'_>>().is_some())
}

fn about<'b, 'v>(args: &Args<'b, 'v>, question: fn(&Ip) -> bool) -> Answer<'b, 'v> {
    give_bool(question(special::<Ip>(args, 0)?))
}
