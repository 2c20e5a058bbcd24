//! Finds the model in a multipart form as the form passes, in any chunks: audio is sent in forms. Only a part's headers and the name are
//! buffered.
//!
//! As in [`super::json_model`], forms that servers parse differently are refused: two parts of that name, a name in capitals or with
//! escapes, folded headers, bare line ends, encodings, and anything before the first part or after the last.

use super::{MAX_MODEL, Malformed};

/// The longest boundary that RFC 2046 allows.
const MAX_BOUNDARY: usize = 70;

/// The maximum size of a part's headers.
const MAX_HEADERS: usize = 8192;

/// The maximum number of parts.
const MAX_PARTS: usize = 256;

const LINE_END: &[u8] = b"\r\n";
const HEADERS_END: &[u8] = b"\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// After a delimiter, where a part begins or the form ends.
    Delimiter,
    Headers,
    /// In the part with the model.
    Model,
    /// In another part.
    Other,
    /// After the last delimiter.
    End,
}

/// A scan of one form.
#[derive(Debug)]
pub struct FormModel {
    state: State,
    /// The separator of parts.
    delimiter: Vec<u8>,
    /// The bytes that aren't parsed yet.
    pending: Vec<u8>,
    parts: usize,
    text: Vec<u8>,
    model: Option<String>,
}

impl FormModel {
    /// Starts a scan with the value of Content-Type.
    pub fn new(content_type: &str) -> Result<Self, Malformed> {
        let (media, parameters) = header_value(content_type).ok_or(Malformed::Boundary)?;
        let boundary = only(&parameters, "boundary")
            .map_err(|_| Malformed::Boundary)?
            .filter(|boundary| !boundary.is_empty() && boundary.len() <= MAX_BOUNDARY);
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
        let boundary = boundary.filter(|boundary| boundary.bytes().all(is_allowed) && !boundary.ends_with(' '));
        let Some(boundary) = boundary.filter(|_| media.eq_ignore_ascii_case("multipart/form-data")) else {
            return Err(Malformed::Boundary);
        };
        let delimiter = [LINE_END, b"--", boundary.as_bytes()].concat();
        // The first delimiter has no line before it.
        Ok(Self { state: State::Other, delimiter, pending: LINE_END.to_vec(), parts: 0, text: Vec::new(), model: None })
    }

    /// The name, once it has passed.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Scans a chunk. Don't continue after an error.
    pub fn read(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut chunk = chunk;
        loop {
            // In pieces, so that little is pending even if the chunk is large.
            let (next, rest) = chunk.split_at(chunk.len().min(MAX_HEADERS));
            self.pending.extend_from_slice(next);
            chunk = rest;
            while self.step()? {}
            if chunk.is_empty() {
                return Ok(());
            }
        }
    }

    /// Ends the scan at the end of the form.
    pub fn finish(self) -> Result<String, Malformed> {
        if self.state != State::End {
            return Err(Malformed::FormTruncated);
        }
        self.model.ok_or(Malformed::NoModel)
    }

    /// Parses as much of the pending bytes as possible. Returns false if it needs more.
    fn step(&mut self) -> Result<bool, Malformed> {
        match self.state {
            State::Delimiter => self.after_delimiter(),
            State::Headers => self.headers(),
            State::Model | State::Other => self.content(),
            // Some clients add a line end.
            State::End if self.pending.is_empty() || LINE_END.starts_with(&self.pending) => Ok(false),
            State::End => Err(Malformed::Form),
        }
    }

    fn after_delimiter(&mut self) -> Result<bool, Malformed> {
        let Some(next) = self.pending.first_chunk::<2>() else { return Ok(false) };
        self.state = match next {
            b"--" => State::End,
            b"\r\n" => State::Headers,
            _ => return Err(Malformed::Form),
        };
        if self.state == State::Headers {
            self.parts += 1;
            if self.parts > MAX_PARTS {
                return Err(Malformed::TooManyParts);
            }
            // It stays, so that the headers of a part without any end in the same way.
            return Ok(true);
        }
        self.pending.drain(..2);
        Ok(true)
    }

    fn headers(&mut self) -> Result<bool, Malformed> {
        let Some(end) = find(&self.pending, HEADERS_END) else {
            return if self.pending.len() > MAX_HEADERS { Err(Malformed::HeadersTooLong) } else { Ok(false) };
        };
        if end > MAX_HEADERS {
            return Err(Malformed::HeadersTooLong);
        }
        let headers = std::str::from_utf8(&self.pending[..end]).map_err(|_| Malformed::Form)?;
        let is_model = is_model(headers.strip_prefix("\r\n").unwrap_or_default())?;
        if is_model && (self.model.is_some() || self.state == State::Model) {
            return Err(Malformed::Twice);
        }
        // The line end before a delimiter is part of it, even if a part is empty.
        self.pending.drain(..end + LINE_END.len());
        self.text.clear();
        self.state = if is_model { State::Model } else { State::Other };
        Ok(true)
    }

    /// Skips a part's content up to the next delimiter.
    fn content(&mut self) -> Result<bool, Malformed> {
        let end = find(&self.pending, &self.delimiter);
        // The start of a delimiter may have arrived.
        let judged = end.unwrap_or_else(|| self.pending.len().saturating_sub(self.delimiter.len() - 1));
        // Nothing may precede the first part.
        if self.parts == 0 && judged > 0 {
            return Err(Malformed::Form);
        }
        if self.state == State::Model {
            self.text.extend_from_slice(&self.pending[..judged]);
            if self.text.len() > MAX_MODEL + LINE_END.len() {
                return Err(Malformed::TooLong);
            }
        }
        if end.is_none() {
            self.pending.drain(..judged);
            return Ok(false);
        }
        self.pending.drain(..judged + self.delimiter.len());
        if self.state == State::Model {
            let text = std::mem::take(&mut self.text);
            let name = String::from_utf8(text.strip_prefix(LINE_END).unwrap_or_default().to_vec()).map_err(|_| Malformed::Form)?;
            if name.is_empty() {
                return Err(Malformed::Empty);
            }
            if name.len() > MAX_MODEL {
                return Err(Malformed::TooLong);
            }
            self.model = Some(name);
        }
        self.state = State::Delimiter;
        Ok(true)
    }
}

/// Whether a part has the model, by its headers.
fn is_model(headers: &str) -> Result<bool, Malformed> {
    let mut disposition = None;
    let mut is_plain = true;
    for line in headers.split("\r\n") {
        let (name, value) = line.split_once(':').ok_or(Malformed::Form)?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        // This also refuses folded lines.
        if name.is_empty() || !name.bytes().all(is_token) || value.contains(['\r', '\n', '\0']) {
            return Err(Malformed::Form);
        }
        if name.eq_ignore_ascii_case("content-disposition") {
            if disposition.replace(value).is_some() {
                return Err(Malformed::Form);
            }
        } else if name.eq_ignore_ascii_case("content-type") {
            let (media, parameters) = header_value(value).ok_or(Malformed::Form)?;
            let is_utf8 = |charset: &str| charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("us-ascii");
            is_plain &= media.eq_ignore_ascii_case("text/plain") && only(&parameters, "charset")?.is_none_or(is_utf8);
        } else {
            // An encoding, or a header that a server may take for one.
            is_plain = false;
        }
    }
    let (kind, parameters) = disposition.and_then(header_value).ok_or(Malformed::Form)?;
    let name = only(&parameters, "name")?.filter(|_| kind.eq_ignore_ascii_case("form-data")).ok_or(Malformed::Form)?;
    let is_file = only(&parameters, "filename")?.is_some();
    if !name.eq_ignore_ascii_case("model") {
        return Ok(false);
    }
    if name != "model" {
        return Err(Malformed::Capitals);
    }
    if is_file || !is_plain { Err(Malformed::NotAString) } else { Ok(true) }
}

/// The first word of a header's value, and its parameters. None if it is ambiguous: with escapes, with RFC 5987's encoding, or malformed.
fn header_value(value: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let (word, mut rest) = value.split_once(';').unwrap_or((value, ""));
    let mut parameters = Vec::new();
    rest = rest.trim_start_matches([' ', '\t']);
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let (text, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find([';', ' ', '\t', '"']).unwrap_or(after.len())),
        };
        // Browsers write a quote in a name as %22.
        if !is_key || text.contains(['\\', '%']) && key.eq_ignore_ascii_case("name") || text.contains('\\') {
            return None;
        }
        parameters.push((key, text));
        let after = after.trim_start_matches([' ', '\t']);
        rest = if after.is_empty() { "" } else { after.strip_prefix(';')?.trim_start_matches([' ', '\t']) };
    }
    Some((word.trim_matches([' ', '\t']), parameters))
}

/// A parameter, which may occur once.
fn only<'v>(parameters: &[(&'v str, &'v str)], key: &str) -> Result<Option<&'v str>, Malformed> {
    let mut found = parameters.iter().filter(|(known, _)| known.eq_ignore_ascii_case(key)).map(|(_, value)| *value);
    let first = found.next();
    if found.next().is_some() { Err(Malformed::Form) } else { Ok(first) }
}

/// The position of a text that starts with a line end.
fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        from += bytes[from..].iter().position(|byte| *byte == text[0])?;
        if bytes[from..].starts_with(text) {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prelude::*, sample::Index};

    const TYPE: &str = "multipart/form-data; boundary=b0";

    fn scan(form: &[u8], size: usize) -> Result<String, Malformed> {
        let mut scan = FormModel::new(TYPE)?;
        form.chunks(size.max(1)).try_for_each(|chunk| scan.read(chunk))?;
        scan.finish()
    }

    fn found(form: &str) -> Result<String, Malformed> {
        let whole = scan(form.as_bytes(), form.len());
        for size in [1, 2, 3, 7] {
            assert_eq!(scan(form.as_bytes(), size), whole, "{form} in chunks of {size}");
        }
        whole
    }

    fn part(headers: &str, content: &str) -> String {
        format!("--b0\r\n{headers}\r\n\r\n{content}\r\n")
    }

    fn field(name: &str, content: &str) -> String {
        part(&format!("Content-Disposition: form-data; name=\"{name}\""), content)
    }

    fn form(parts: &[String]) -> String {
        format!("{}--b0--\r\n", parts.concat())
    }

    #[test]
    fn the_name_is_found_before_and_behind_a_file() {
        let file = || {
            let headers = "Content-Disposition: form-data; name=\"file\"; filename=\"a b.wav\"\r\nContent-Type: audio/wav";
            part(headers, "RIFF\r\n--b\r\n--b1 name=\"model\"\r\n\r\nother")
        };
        let model = || field("model", "whisper");
        for parts in [vec![model(), file()], vec![file(), model()], vec![field("n", ""), model()], vec![model(), field("models", "x")]] {
            assert_eq!(found(&form(&parts)).as_deref(), Ok("whisper"), "{parts:?}");
        }
        let plain = "content-disposition:form-data;name=model\r\ncontent-type: text/plain; charset=UTF-8";
        assert_eq!(found(&form(&[part(plain, "whisper")])).as_deref(), Ok("whisper"));
        assert_eq!(found(form(&[model()]).trim_end()).as_deref(), Ok("whisper"), "without an end of the last line");
        let long = format!("{}{}", "x".repeat(3 * MAX_HEADERS), "\r\n--b");
        assert_eq!(found(&form(&[field("file", &long), model()])).as_deref(), Ok("whisper"));
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        use Malformed::{Capitals, Empty, Form, FormTruncated, HeadersTooLong, NoModel, NotAString, TooLong, TooManyParts, Twice};
        let disposition = |rest: &str| part(&format!("Content-Disposition: form-data; {rest}"), "a");
        for (form, expected) in [
            (form(&[field("model", "a"), field("model", "b")]), Twice),
            (form(&[field("Model", "a")]), Capitals),
            (form(&[field("model", "")]), Empty),
            (form(&[field("model", &"x".repeat(MAX_MODEL + 1))]), TooLong),
            (form(&[field("file", "a")]), NoModel),
            (form(&[]), NoModel),
            (form(&[disposition("name=\"model\"; filename=\"m\"")]), NotAString),
            (form(&[part("Content-Disposition: form-data; name=\"model\"\r\nContent-Transfer-Encoding: base64", "YQ==")]), NotAString),
            (form(&[part("Content-Disposition: form-data; name=\"model\"\r\nContent-Type: text/plain; charset=utf-16", "a")]), NotAString),
            (form(&[disposition("name=\"a\"; name=\"model\"")]), Form),
            (form(&[disposition("name=\"mod\\el\"")]), Form),
            (form(&[disposition("name=\"mod%65l\"")]), Form),
            (form(&[disposition("name*=utf-8''model")]), Form),
            (form(&[disposition("name=\"model")]), Form),
            (form(&[part("Content-Disposition: form-data;\r\n name=\"model\"", "a")]), Form),
            (form(&[part("Content-Disposition : form-data; name=\"model\"", "a")]), Form),
            (form(&[part("Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"model\"", "a")]), Form),
            (form(&[part("X: y\nContent-Disposition: form-data; name=\"model\"", "a")]), Form),
            (form(&[part("X: y", "a")]), Form),
            ("--b0\r\n\r\na\r\n--b0--".to_owned(), Form),
            (format!("before\r\n{}", form(&[field("model", "a")])), Form),
            (format!("{}{}", form(&[field("model", "a")]), form(&[field("model", "b")])), Form),
            (form(&[field("model", "a")]).replace("\r\n", "\n"), Form),
            (field("model", "a"), FormTruncated),
            (String::new(), FormTruncated),
            (form(&vec![field("a", "b"); MAX_PARTS + 1]), TooManyParts),
            (form(&[part(&"x".repeat(2 * MAX_HEADERS), "a")]), HeadersTooLong),
        ] {
            assert_eq!(found(&form), Err(expected), "{form}");
        }
    }

    #[test]
    fn a_boundary_must_be_one() {
        for content_type in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/mixed; boundary=a",
            "multipart/form-data; boundary=\"a\\b\"",
            "multipart/form-data; boundary=\"a ",
            "multipart/form-data; boundary=\"a\u{e9}\"",
            &format!("multipart/form-data; boundary={}", "x".repeat(MAX_BOUNDARY + 1)),
        ] {
            assert_eq!(FormModel::new(content_type).err(), Some(Malformed::Boundary), "{content_type}");
        }
        assert!(FormModel::new("Multipart/Form-Data; charset=utf-8; boundary=\"a b\"").is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 100_000 } else { 1_000 }))]

        #[test]
        fn the_chunks_of_a_form_make_no_difference_even_if_it_is_damaged(
            contents in prop::collection::vec("[-\r\nb0x]{0,40}", 0..4),
            damage in prop::collection::vec((any::<Index>(), prop::sample::select(b"-\r\n\":;b0m ".to_vec()), any::<bool>()), 0..4),
            sizes in (1..30_usize, 1..30_usize),
        ) {
            let parts: Vec<String> = contents.iter().map(|content| field("file", content)).chain([field("model", "whisper")]).collect();
            let mut form = form(&parts).into_bytes();
            let is_whole = damage.is_empty() && contents.iter().all(|content| !format!("\r\n{content}\r\n").contains("\r\n--b0"));
            for (place, byte, inserts) in damage {
                let at = place.index(form.len());
                if inserts { form.insert(at, byte) } else { form[at] = byte }
            }
            let scanned = scan(&form, sizes.0);
            prop_assert_eq!(&scanned, &scan(&form, sizes.1));
            prop_assert!(!is_whole || scanned == Ok("whisper".to_owned()), "{:?}", scanned);
        }
    }
}
