//! The formats of strings in schemas.

use crate::duration;
use k8s_openapi::jiff::civil::Date;
use pointsman_sandbox::words::dns_label;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether the API server checks a format, as we do. Dashes in its name are ignored.
pub(super) fn known(format: &str) -> bool {
    const KNOWN: [&str; 13] =
        ["datetime", "date", "duration", "uri", "ipv4", "ipv6", "cidr", "mac", "uuid", "hostname", "byte", "k8sshortname", "k8slongname"];
    KNOWN.contains(&&*plain(format))
}

/// Whether a text has a format. For unknown formats, always true.
pub(super) fn is(format: &str, text: &str) -> bool {
    match &*plain(format) {
        "datetime" => date_time(text),
        "date" => date(text),
        "duration" => duration::parse(text).is_some(),
        "uri" => uri(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => uuid(text),
        "hostname" => hostname(text),
        "byte" => base64(text),
        "k8sshortname" => text.len() <= 63 && dns_label(text),
        "k8slongname" => subdomain(text),
        _ => true,
    }
}

/// Whether a text is a lower-case DNS subdomain, like the names of objects.
pub(super) fn subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(dns_label)
}

fn plain(format: &str) -> String {
    format.replace('-', "")
}

fn digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    matches!(parts[..], [year, month, day] if digits(year, 4) && digits(month, 2) && digits(day, 2)) && text.parse::<Date>().is_ok()
}

fn date_time(text: &str) -> bool {
    let Some((day, time)) = text.split_once(['t', 'T']) else { return false };
    let Some((clock, zone)) = time.split_at_checked(8) else { return false };
    let parts: Vec<&str> = clock.split(':').collect();
    let clock = matches!(parts[..], [hour, minute, second]
        if digits(hour, 2) && digits(minute, 2) && digits(second, 2) && hour <= "23" && minute <= "59" && second <= "59");
    let zone = match zone.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => zone,
    };
    let offset = |zone: &str| {
        let zone = zone.strip_prefix(['+', '-']).and_then(|zone| zone.split_once(':'));
        zone.is_some_and(|(hours, minutes)| digits(hours, 2) && digits(minutes, 2))
    };
    date(day) && clock && (zone.eq_ignore_ascii_case("z") || offset(zone))
}

fn uri(text: &str) -> bool {
    if text.chars().any(|c| c.is_ascii_control() || c == ' ') {
        return false;
    }
    let scheme = text.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| !scheme.contains('/'));
    let inner = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    text.starts_with('/') || scheme.is_some_and(|scheme| scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(inner))
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(length) = length.parse::<u8>() else { return false };
    address.parse::<IpAddr>().is_ok_and(|address| length <= if address.is_ipv4() { 32 } else { 128 })
}

fn mac(text: &str) -> bool {
    let pairs = |separator: char| {
        let parts: Vec<&str> = text.split(separator).collect();
        [6, 8, 20].contains(&parts.len()) && parts.iter().all(|part| hexadecimal(part, 2))
    };
    let quads = || {
        let parts: Vec<&str> = text.split('.').collect();
        [3, 4, 10].contains(&parts.len()) && parts.iter().all(|part| hexadecimal(part, 4))
    };
    pairs(':') || pairs('-') || quads()
}

fn hexadecimal(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn uuid(text: &str) -> bool {
    let mut rest = text;
    for (number, count) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if number > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, next)) = rest.split_at_checked(count) else { return false };
        if !hexadecimal(part, count) {
            return false;
        }
        rest = next;
    }
    rest.is_empty()
}

fn hostname(text: &str) -> bool {
    let part = |part: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !part.is_empty() && part.len() <= 63 && part.chars().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 255 && text.split('.').all(part)
}

fn base64(text: &str) -> bool {
    let padding = text.len() - text.trim_end_matches('=').len();
    let digit = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && text.trim_end_matches('=').chars().all(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_its_format_or_not() {
        let cases = [
            ("date-time", "2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z"),
            ("date-time", "2024-01-01t00:00:00.5+01:00", "2024-01-01 00:00:00Z"),
            ("date-time", "2024-01-01T23:59:59z", "2024-01-01T24:00:00Z"),
            ("date", "2024-12-31", "2024-13-01"),
            ("duration", "1h30m", "1 fortnight"),
            ("duration", "-1.5s", "s"),
            ("uri", "http://a/b", "a b"),
            ("uri", "/a", "a/b:c"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:00:5e:00:53:01", "00:00"),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("hostname", "A.example.com", "-a"),
            ("byte", "YWI=", "YWI"),
            ("k8s-short-name", "a-1", "A"),
            ("k8s-long-name", "a.b-c", "a..b"),
        ];
        for (format, good, bad) in cases {
            assert!(known(format) && is(format, good) && !is(format, bad), "{format}");
        }
        assert!(!known("quantity") && is("quantity", "anything"));
    }
}
