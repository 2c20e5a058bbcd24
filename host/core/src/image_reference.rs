//! References to container images, as kubelets read them: the grammar of `distribution/reference`.

/// The maximum length of registry and repository together, and of the tag.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// The digest algorithms of image references, each with its number of hexadecimal digits.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// Why a reference is invalid, and how to fix it; none if a kubelet accepts it.
pub fn flaw(reference: &str) -> Option<String> {
    if reference.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Some(format!("the image {reference:?} contains spaces: remove them"));
    }
    if reference.len() == 64 && reference.bytes().all(is_lower_hex) {
        return Some(format!(
            "the image {reference:?} is not a reference: 64 hexadecimal digits are the ID of an image: name its repository"
        ));
    }
    let (name, digest) = reference.split_once('@').map_or((reference, None), |(name, digest)| (name, Some(digest)));
    let (registry, rest) = split_registry(name);
    let (path, tag) = rest.rsplit_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
    let wrong = registry.and_then(registry_flaw).or_else(|| repository_flaw(path)).or_else(|| tag.and_then(tag_flaw));
    let wrong = wrong.or_else(|| digest.and_then(digest_flaw)).or_else(|| {
        let length = registry.map_or(0, |registry| registry.len() + 1) + path.len();
        (length > MAX_NAME).then(|| format!("its registry and repository have {length} characters: use at most {MAX_NAME}"))
    });
    wrong.map(|wrong| format!("the image {reference:?} is not a reference: {wrong}"))
}

/// The registry, if the first part is one, and the rest.
fn split_registry(name: &str) -> (Option<&str>, &str) {
    let is_registry =
        |first: &str| first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|byte| byte.is_ascii_uppercase());
    name.split_once('/').filter(|(first, _)| is_registry(first)).map_or((None, name), |(registry, rest)| (Some(registry), rest))
}

fn registry_flaw(registry: &str) -> Option<String> {
    let address = registry.strip_prefix('[').and_then(|address| address.split_once(']'));
    let (is_host, port) = if let Some((address, port)) = address {
        let is_address = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
        (is_address, port.strip_prefix(':').or((!port.is_empty()).then_some("")))
    } else {
        let (host, port) = registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
        (host.split('.').all(is_host_part), port)
    };
    let is_port = port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    (!is_host || !is_port).then(|| format!("the registry {registry:?} is not HOST or HOST:PORT"))
}

fn is_host_part(part: &str) -> bool {
    let inner = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
}

fn repository_flaw(path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("it has no repository: write REPOSITORY:TAG".to_owned());
    }
    let lower = path.to_lowercase();
    if lower != path {
        return Some(format!("its repository must be lower case: write {lower}"));
    }
    let part = path.split('/').find(|part| !is_path_part(part))?;
    Some(format!(
        "the part {part:?} of its repository must consist of letters and digits, separated by one . or _, by __ or by dashes: correct it"
    ))
}

/// Lower-case letters and digits, separated by `.`, `_`, `__` or any number of `-`.
fn is_path_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = part.split(is_word).filter(|between| !between.is_empty());
    let is_separator = |between: &str| [".", "_", "__"].contains(&between) || between.bytes().all(|byte| byte == b'-');
    part.starts_with(is_word) && part.ends_with(is_word) && separators.into_iter().all(is_separator)
}

fn tag_flaw(tag: &str) -> Option<String> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let is_tag = !tag.is_empty() && tag.len() <= MAX_TAG && tag.bytes().all(inner) && !tag.starts_with(['.', '-']);
    (!is_tag).then(|| {
        format!(
            "the tag {tag:?} must consist of 1 to {MAX_TAG} letters, digits, _ . and -, and begin with a letter, a digit or _: correct it"
        )
    })
}

fn digest_flaw(digest: &str) -> Option<String> {
    let known = digest.split_once(':').and_then(|(algorithm, hex)| {
        let (_, length) = DIGESTS.iter().find(|(known, _)| *known == algorithm)?;
        (hex.len() == *length && hex.bytes().all(is_lower_hex)).then_some(())
    });
    known.is_none().then(|| format!("the digest {digest:?} is not sha256: with 64 lower-case hexadecimal digits: correct it"))
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn what_kubelets_read_is_a_reference() {
        let digest = format!("a@sha256:{HEX}");
        let both = format!("registry.example.com:5000/a/b_c/d__e/f---g.h:v1.2-3_x@sha256:{HEX}");
        let long = format!("a:{}", "t".repeat(MAX_TAG));
        let longest = format!("{}/b", "a".repeat(MAX_NAME - 2));
        for reference in [
            "busybox",
            "vllm/vllm-openai:v0.9.1",
            "localhost/a",
            "registry:5000/a",
            "Host/a",
            "EXAMPLE.com/a:Tag",
            "a:_x",
            "1/2:3",
            "127.0.0.1:80/a",
            "[::1]/a",
            "[2001:db8::1]:5000/a:1",
            &digest,
            &both,
            &long,
            &longest,
        ] {
            assert_eq!(flaw(reference), None, "{reference}");
        }
    }

    #[test]
    fn what_they_refuse_is_told_with_what_to_do() {
        let short = format!("a@sha256:{}", &HEX[1..]);
        let upper = format!("a@sha256:{}", HEX.to_uppercase());
        let unknown = format!("a@md5:{HEX}");
        let long = format!("a:{}", "t".repeat(MAX_TAG + 1));
        let longest = format!("{}/b", "a".repeat(MAX_NAME - 1));
        for (reference, says) in [
            ("a b", "contains spaces: remove them"),
            (" a", "contains spaces"),
            ("a\n", "contains spaces"),
            ("repo/Name:tag", "its repository must be lower case: write repo/name"),
            ("Name", "write name"),
            ("", "it has no repository: write REPOSITORY:TAG"),
            (":tag", "it has no repository"),
            ("registry:5000/", "it has no repository"),
            ("a:", "the tag \"\" must consist of"),
            ("a:b:c", "the part \"a:b\" of its repository"),
            ("a:-b", "the tag \"-b\" must consist of"),
            ("a:b$", "the tag \"b$\" must consist of"),
            (&long, "1 to 128 letters"),
            ("a//b", "the part \"\" of its repository"),
            ("a_-b", "the part \"a_-b\" of its repository"),
            ("a..b", "the part \"a..b\""),
            ("a___b", "separated by one . or _"),
            ("-a", "the part \"-a\""),
            ("a-", "the part \"a-\""),
            ("https://example.com/a", "the registry \"https:\" is not HOST or HOST:PORT"),
            ("-x.com/a", "the registry \"-x.com\""),
            ("x..com/a", "the registry \"x..com\""),
            ("a.b:port/c", "the registry \"a.b:port\""),
            ("[::1]x/a", "the registry \"[::1]x\""),
            ("[]/a", "its repository"),
            (HEX, "64 hexadecimal digits are the ID of an image"),
            (&short, "is not sha256: with 64 lower-case hexadecimal digits"),
            (&upper, "is not sha256:"),
            (&unknown, "is not sha256:"),
            ("a@", "the digest \"\""),
            ("a@sha256:x@sha256:y", "the digest \"sha256:x@sha256:y\""),
            (&longest, "use at most 255"),
        ] {
            let said = flaw(reference).unwrap_or_else(|| panic!("{reference} is read"));
            assert!(said.contains(says), "{reference}: {said}");
        }
    }
}
