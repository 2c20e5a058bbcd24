//! URLs, which are parsed as in Go's library for requests.

use std::collections::BTreeMap;
use std::fmt;

/// The parts of a URL that rules can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    /// In lower case; empty if there is none.
    pub(crate) scheme: String,
    /// Including the port.
    pub(crate) host: String,
    path: Vec<u8>,
    raw_path: String,
    query: String,
}

/// The position of an escape, which determines the characters that need one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlComponent {
    Path,
    Query,
    Host,
    Zone,
    User,
}

impl Url {
    /// Parses an absolute URL, or an absolute path.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // As in Go, it is parsed twice: as a request's URL, which has no fragment, and again without its fragment.
        read(text).map_err(|why| format!("parse {text:?}: {why}"))?;
        let (without, fragment) = text.split_once('#').unwrap_or((text, ""));
        unescape(fragment, UrlComponent::Path).map_err(|why| format!("parse {text:?}: {why}"))?;
        let mut url = read_leniently(without).map_err(|why| format!("parse {text:?}: {why}"))?;
        text.clone_into(&mut url.text);
        Ok(url)
    }

    /// Whether a text is a valid URL.
    pub(crate) fn is_valid(text: &str) -> Result<(), String> {
        read(text).map(|_| ()).map_err(|why| format!("parse {text:?}: {why}"))
    }

    /// The host without port and brackets.
    pub(crate) fn host_name(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or(self.host.as_str(), |(name, _)| name),
            None => self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name),
        }
    }

    /// The port; empty if there is none.
    pub(crate) fn port(&self) -> &str {
        let behind = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, behind)| behind);
        behind.rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// The path as written, or escaped if that isn't valid.
    pub(crate) fn escaped_path(&self) -> String {
        let valid = self.raw_path.bytes().all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_be_escaped(byte, UrlComponent::Path));
        if valid { self.raw_path.clone() } else { escape(&self.path) }
    }

    /// The query parameters with all their values.
    pub(crate) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Ok(key), Ok(value)) = (unescape(key, UrlComponent::Query), unescape(value, UrlComponent::Query)) {
                parameters
                    .entry(String::from_utf8_lossy(&key).into_owned())
                    .or_default()
                    .push(String::from_utf8_lossy(&value).into_owned());
            }
        }
        parameters
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Parses a request's URL, which has a scheme or starts with a slash.
fn read(text: &str) -> Result<Url, String> {
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let (scheme, rest) = scheme(text)?;
    if scheme.is_empty() && text != "*" && !rest.starts_with('/') {
        return Err("invalid URI for request".to_owned());
    }
    let authority = !scheme.is_empty();
    parts(text, scheme, rest, authority)
}

fn read_leniently(text: &str) -> Result<Url, String> {
    let (scheme, rest) = scheme(text)?;
    let authority = !scheme.is_empty() || !rest.starts_with("///");
    parts(text, scheme, rest, authority)
}

fn parts(text: &str, scheme: String, rest: &str, with_authority: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url =
        Url { text: String::new(), scheme, host: String::new(), path: Vec::new(), raw_path: String::new(), query: query.to_owned() };
    if !rest.starts_with('/') && !url.scheme.is_empty() {
        // Such as `mailto:somebody`: the rest after the scheme isn't parsed.
        return Ok(url);
    }
    let mut path = rest;
    if with_authority && let Some(behind) = rest.strip_prefix("//") {
        let end = behind.find('/').unwrap_or(behind.len());
        let (authority, rest) = behind.split_at(end);
        url.host = host_of(authority)?;
        path = rest;
    }
    url.path = unescape(path, UrlComponent::Path)?;
    path.clone_into(&mut url.raw_path);
    Ok(url)
}

fn scheme(text: &str) -> Result<(String, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => {
                let (scheme, rest) = text.split_at(at);
                return Ok((scheme.to_ascii_lowercase(), rest.get(1..).unwrap_or_default()));
            }
            _ => break,
        }
    }
    Ok((String::new(), text))
}

fn host_of(authority: &str) -> Result<String, String> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        if !user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        unescape(user, UrlComponent::User)?;
    }
    let port = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((inside, port)) = rest.rsplit_once(']') else {
                return Err("missing ']' in host".to_owned());
            };
            if let Some((address, zone)) = inside.split_once("%25") {
                unescape(address, UrlComponent::Host)?;
                unescape(zone, UrlComponent::Zone)?;
            } else {
                unescape(inside, UrlComponent::Host)?;
            }
            port
        }
        None => match host.find(':').map(|at| host.split_at(at)) {
            Some((_, port)) => port,
            None => "",
        },
    };
    if !(port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))) {
        return Err(format!("invalid port {port:?} after host"));
    }
    let place = if host.starts_with('[') { UrlComponent::Zone } else { UrlComponent::Host };
    unescape(host, place).map(|host| String::from_utf8_lossy(&host).into_owned())
}

fn must_be_escaped(byte: u8, place: UrlComponent) -> bool {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => false,
        b'!' | b'\'' | b'(' | b')' | b'*' | b'[' | b']' | b'<' | b'>' | b'"' => !matches!(place, UrlComponent::Host | UrlComponent::Zone),
        b'$' | b'&' | b'+' | b'=' | b':' => !matches!(place, UrlComponent::Path | UrlComponent::Host | UrlComponent::Zone),
        b',' | b';' => !matches!(place, UrlComponent::Host | UrlComponent::Zone),
        b'/' | b'@' => place != UrlComponent::Path,
        _ => true,
    }
}

fn unescape(text: &str, place: UrlComponent) -> Result<Vec<u8>, String> {
    let mut unescaped = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let rest: Vec<u8> = [byte].into_iter().chain(bytes.clone().take(2)).collect();
                let wrong = || format!("invalid URL escape {:?}", String::from_utf8_lossy(&rest));
                let (high, low) = (hex(bytes.next()).ok_or_else(wrong)?, hex(bytes.next()).ok_or_else(wrong)?);
                let meant = high << 4 | low;
                if place == UrlComponent::Host && high < 8 && meant != b'%' {
                    return Err(wrong());
                }
                unescaped.push(meant);
            }
            b'+' if place == UrlComponent::Query => unescaped.push(b' '),
            _ => {
                if matches!(place, UrlComponent::Host | UrlComponent::Zone) && byte < 0x80 && must_be_escaped(byte, place) {
                    return Err(format!("invalid character {:?} in host name", char::from(byte).to_string()));
                }
                unescaped.push(byte);
            }
        }
    }
    Ok(unescaped)
}

fn hex(digit: Option<u8>) -> Option<u8> {
    char::from(digit?).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn escape(path: &[u8]) -> String {
    let mut escaped = String::with_capacity(path.len());
    for &byte in path {
        if must_be_escaped(byte, UrlComponent::Path) {
            escaped.push('%');
            escaped.extend(
                [byte >> 4, byte & 0x0f]
                    .iter()
                    .filter_map(|digit| char::from_digit(u32::from(*digit), 16))
                    .map(|digit| digit.to_ascii_uppercase()),
            );
        } else {
            escaped.push(char::from(byte));
        }
    }
    escaped
}
