//! Finds the model in a JSON body as the body passes, in any chunks: only the name is buffered.
//!
//! The backend parses the body by itself, and must find the same name: otherwise a caller could reach a model that it may not use. So
//! bodies that servers parse differently are refused: a name that occurs twice or in capitals (Go ignores case), a byte order mark and
//! UTF-16 (Python accepts both), and anything after the object.

use super::{MAX_DEPTH, MAX_MODEL, Malformed};
use memchr::memchr2;

const MODEL: &[u8] = b"model";
const STREAM: &[u8] = b"stream";

/// The number of bytes of a key that distinguish it from those above.
const KEY_BYTES: usize = STREAM.len() + 1;

/// The state of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the object.
    Start,
    /// Before the first key, or the end of an empty object.
    FirstKey,
    /// Before a further key.
    NextKey,
    Key,
    Colon,
    Value,
    /// In the string with the model.
    Model,
    /// In another string, inside a number of objects and arrays.
    Text,
    /// After a backslash in such a string.
    TextEscape,
    /// In a number or a literal.
    Scalar,
    /// Inside nested objects and arrays.
    Nested,
    AfterValue,
    /// After the object.
    End,
}

/// The state of an escape in a key or in the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    /// The number of hexadecimal digits, and their value.
    Digits(u8, u32),
}

/// A scan of one body.
#[derive(Debug)]
pub struct JsonModel {
    state: State,
    /// The number of bytes that have passed.
    passed: u64,
    /// The start of the current key, or the name.
    text: Vec<u8>,
    escape: Escape,
    /// The first half of a surrogate pair.
    surrogate: Option<u32>,
    /// The number of open objects and arrays below the first, and which of them are objects: one bit each, the innermost last.
    depth: u32,
    objects: u128,
    is_model: bool,
    model: Option<String>,
    is_stream: bool,
    streams: bool,
}

impl Default for JsonModel {
    fn default() -> Self {
        Self {
            state: State::Start,
            passed: 0,
            text: Vec::new(),
            escape: Escape::None,
            surrogate: None,
            depth: 0,
            objects: 0,
            is_model: false,
            model: None,
            is_stream: false,
            streams: false,
        }
    }
}

impl JsonModel {
    /// The name, once it has passed.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Whether a true `stream` has passed: the client accepts events.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// Scans a chunk. Don't continue after an error.
    pub fn read(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut rest = chunk;
        while let Some((&byte, after)) = rest.split_first() {
            // Prompts are long texts: bytes that can't end one are skipped.
            let skipped = if self.state == State::Text { memchr2(b'"', b'\\', rest).unwrap_or(rest.len()) } else { 0 };
            if skipped > 0 {
                self.passed += skipped as u64;
                rest = &rest[skipped..];
                continue;
            }
            self.step(byte)?;
            self.passed += 1;
            rest = after;
        }
        Ok(())
    }

    /// Ends the scan at the end of the body.
    pub fn finish(self) -> Result<String, Malformed> {
        match self.state {
            State::Start => Err(Malformed::NotAnObject),
            State::End => self.model.ok_or(Malformed::NoModel),
            _ => Err(Malformed::Truncated),
        }
    }

    fn syntax(&self) -> Malformed {
        Malformed::Syntax(self.passed)
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.state = match (self.state, byte) {
            (State::Key | State::Model, _) => return self.step_in_string(byte),
            (State::Text, b'"') if self.depth > 0 => State::Nested,
            (State::Text, b'"') => State::AfterValue,
            (State::Text, b'\\') => State::TextEscape,
            (State::Text | State::TextEscape, _) => State::Text,
            (State::Scalar | State::AfterValue, b',') => State::NextKey,
            (State::Scalar | State::AfterValue, b'}') => State::End,
            (State::Scalar, _) if is_space => State::AfterValue,
            (State::Scalar, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') => State::Scalar,
            (state, _) if is_space => state,
            (State::Start, b'{') => State::FirstKey,
            (State::Start, _) => return Err(Malformed::NotAnObject),
            (State::FirstKey, b'}') => State::End,
            (State::FirstKey | State::NextKey, b'"') => {
                self.text.clear();
                State::Key
            }
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') if self.is_model => {
                self.text.clear();
                State::Model
            }
            (State::Value, _) if self.is_model => return Err(Malformed::NotAString),
            (State::Value | State::Nested, b'"') => State::Text,
            (State::Value | State::Nested, b'{' | b'[') => self.open(byte == b'{')?,
            (State::Value, b't') if self.is_stream => {
                self.streams = true;
                State::Scalar
            }
            (State::Value, b'0'..=b'9' | b'-' | b'a'..=b'z' | b'A'..=b'Z') => State::Scalar,
            (State::Nested, b'}' | b']') => self.close(byte == b'}')?,
            // The backend checks the syntax between strings and brackets of nested values.
            (State::Nested, _) => State::Nested,
            _ => return Err(self.syntax()),
        };
        Ok(())
    }

    fn open(&mut self, object: bool) -> Result<State, Malformed> {
        if self.depth == MAX_DEPTH {
            return Err(Malformed::TooDeep);
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        Ok(State::Nested)
    }

    fn close(&mut self, object: bool) -> Result<State, Malformed> {
        if (self.objects & 1 == 1) != object {
            return Err(self.syntax());
        }
        self.depth -= 1;
        self.objects >>= 1;
        Ok(if self.depth == 0 { State::AfterValue } else { State::Nested })
    }

    /// In a key or in the name, where escapes matter.
    fn step_in_string(&mut self, byte: u8) -> Result<(), Malformed> {
        match (self.escape, byte) {
            (Escape::None, b'"') => return self.end_string(),
            (Escape::None, b'\\') => self.escape = Escape::Begun,
            (Escape::None, 0..0x20) => return Err(self.syntax()),
            (Escape::None, _) => self.push(&[byte])?,
            (Escape::Begun, b'u') => self.escape = Escape::Digits(0, 0),
            (Escape::Begun, _) => {
                let meant = match byte {
                    b'"' | b'\\' | b'/' => byte,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    _ => return Err(self.syntax()),
                };
                self.escape = Escape::None;
                self.push(&[meant])?;
            }
            (Escape::Digits(count, value), _) => {
                let Some(digit) = char::from(byte).to_digit(16) else { return Err(self.syntax()) };
                let value = value << 4 | digit;
                if count < 3 {
                    self.escape = Escape::Digits(count + 1, value);
                } else {
                    self.escape = Escape::None;
                    self.push_code(value)?;
                }
            }
        }
        Ok(())
    }

    /// Adds an escaped character, which may be the second half of a surrogate pair.
    fn push_code(&mut self, value: u32) -> Result<(), Malformed> {
        let code = match (self.surrogate.take(), value) {
            (Some(first), 0xDC00..=0xDFFF) => 0x1_0000 + ((first - 0xD800) << 10) + (value - 0xDC00),
            (Some(_), _) | (None, 0xDC00..=0xDFFF) => return Err(self.syntax()),
            (None, 0xD800..=0xDBFF) => {
                self.surrogate = Some(value);
                return Ok(());
            }
            (None, value) => value,
        };
        let character = char::from_u32(code).ok_or_else(|| self.syntax())?;
        self.push(character.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        // Half a surrogate pair isn't a character.
        if self.surrogate.is_some() {
            return Err(self.syntax());
        }
        if self.state == State::Model {
            self.text.extend_from_slice(bytes);
            return if self.text.len() > MAX_MODEL { Err(Malformed::TooLong) } else { Ok(()) };
        }
        // A longer key is another one.
        let room = KEY_BYTES.saturating_sub(self.text.len());
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    }

    fn end_string(&mut self) -> Result<(), Malformed> {
        if self.surrogate.is_some() {
            return Err(self.syntax());
        }
        if self.state == State::Model {
            let name = String::from_utf8(std::mem::take(&mut self.text)).map_err(|_| self.syntax())?;
            if name.is_empty() {
                return Err(Malformed::Empty);
            }
            self.model = Some(name);
            self.state = State::AfterValue;
            return Ok(());
        }
        self.is_model = self.text == MODEL;
        self.is_stream = self.text == STREAM;
        if self.is_model && self.model.is_some() {
            return Err(Malformed::Twice);
        }
        if !self.is_model && self.text.eq_ignore_ascii_case(MODEL) {
            return Err(Malformed::Capitals);
        }
        self.state = State::Colon;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prelude::*, sample::Index};
    use serde_json::{Value, json};

    /// The model that is found in a body with chunks of this size.
    fn scan(body: &[u8], size: usize) -> Result<String, Malformed> {
        let mut scan = JsonModel::default();
        body.chunks(size.max(1)).try_for_each(|chunk| scan.read(chunk))?;
        scan.finish()
    }

    fn found(body: &str) -> Result<String, Malformed> {
        let whole = scan(body.as_bytes(), body.len());
        for size in 1..4 {
            assert_eq!(scan(body.as_bytes(), size), whole, "{body} in chunks of {size}");
        }
        whole
    }

    #[test]
    fn the_name_is_found_wherever_it_stands_and_however_it_is_written() {
        for body in [
            r#"{"model":"llama"}"#,
            r#" { "messages" : [{"role": "user", "content": "\"model\": \"other\""}], "model" : "llama" , "n": 1 } "#,
            r#"{"a":{"model":"other"},"b":["model","x"],"model":"llama","c":null}"#,
            r#"{"\u006dodel":"ll\u0061ma"}"#,
            r#"{"n":1.5e3,"t":true,"model":"llama"}"#,
            r#"{"s":"\\","model":"llama","models":"other","mode":"x"}"#,
        ] {
            assert_eq!(found(body).as_deref(), Ok("llama"), "{body}");
        }
        assert_eq!(found(r#"{"model":"a\/\ud83d\ude00é\n"}"#).as_deref(), Ok("a/😀é\n"));
    }

    #[test]
    fn the_name_is_known_as_soon_as_it_has_passed() {
        let mut scan = JsonModel::default();
        scan.read(br#"{"model":"llama","#).unwrap();
        assert_eq!(scan.model(), Some("llama"));
    }

    #[test]
    fn whether_the_answer_is_to_be_a_stream_is_known() {
        for (body, expected) in [
            (r#"{"model":"a","stream":true}"#, true),
            (r#"{"stream": true, "model":"a"}"#, true),
            (r#"{"stream":false,"model":"a"}"#, false),
            (r#"{"streams":true,"x":{"stream":true},"model":"a"}"#, false),
            (r#"{"stream":"true","model":"a"}"#, false),
        ] {
            let mut scan = JsonModel::default();
            scan.read(body.as_bytes()).unwrap();
            assert_eq!(scan.streams(), expected, "{body}");
        }
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        use Malformed::{Capitals, Empty, NoModel, NotAString, NotAnObject, Syntax, TooDeep, TooLong, Truncated, Twice};
        let deep = format!(r#"{{"a":{}"#, "[".repeat(200));
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(MAX_MODEL + 1));
        for (body, expected) in [
            (r#"{"model":"a","model":"b"}"#, Twice),
            (r#"{"model":"a","\u006dodel":"b"}"#, Twice),
            (r#"{"model":"a","Model":"b"}"#, Capitals),
            (r#"{"MODEL":"b"}"#, Capitals),
            ("\u{feff}{\"model\":\"a\"}", NotAnObject),
            ("{\0\"\0m\0", Syntax(1)),
            (r#"[{"model":"a"}]"#, NotAnObject),
            (r#""model""#, NotAnObject),
            ("", NotAnObject),
            (r#"{"model":"a"}{"model":"b"}"#, Syntax(13)),
            (r#"{"model":"a"} x"#, Syntax(14)),
            (r#"{"model":"a",}"#, Syntax(13)),
            (r#"{"model":"a" "b":1}"#, Syntax(13)),
            (r#"{"model" "a"}"#, Syntax(9)),
            (r#"{model:"a"}"#, Syntax(1)),
            ("{'model':'a'}", Syntax(1)),
            (r#"{/**/"model":"a"}"#, Syntax(1)),
            (r#"{"a":[1},"model":"a"}"#, Syntax(7)),
            (r#"{"model":"\ud83d"}"#, Syntax(16)),
            (r#"{"model":"\ude00"}"#, Syntax(15)),
            (r#"{"model":"\x61"}"#, Syntax(11)),
            (r#"{"model":"\u00zz"}"#, Syntax(14)),
            (r#"{"model":1}"#, NotAString),
            (r#"{"model":null}"#, NotAString),
            (r#"{"model":["a"]}"#, NotAString),
            (r#"{"model":""}"#, Empty),
            (r#"{"model":"a"#, Truncated),
            (r#"{"model":"a""#, Truncated),
            (r#"{"model":"a","b":[{"#, Truncated),
            ("{}", NoModel),
            (r#"{"a":1}"#, NoModel),
            (&deep, TooDeep),
            (&long, TooLong),
        ] {
            assert_eq!(found(body), Err(expected), "{body}");
        }
        assert_eq!(scan(b"{\"model\":\"\xff\"}", 3), Err(Syntax(11)));
        assert_eq!(scan(b"{\"model\":\"a\nb\"}", 3), Err(Syntax(11)));
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![Just("model".to_owned()), Just("\"model\":\"x\"".to_owned()), ".{0,12}", r#"[\\"{}\[\],:]{0,8}"#];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let key = prop_oneof![Just("model".to_owned()), ".{0,6}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((key, inner), 0..4).prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    fn cases() -> ProptestConfig {
        ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 200_000 } else { 2_000 })
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn of_any_object_it_finds_what_a_json_parser_finds(
            before in prop::collection::vec(("[a-l]{0,4}", value()), 0..4),
            name in ".{1,20}",
            after in prop::collection::vec(("[n-z]{1,4}", value()), 0..4),
            pretty in any::<bool>(),
            size in 1..20_usize,
        ) {
            let field = |(key, value): &(String, Value)| format!("{}:{}", json!(key), if pretty { format!("{value:#}") } else { value.to_string() });
            let fields: Vec<String> =
                before.iter().map(field).chain([field(&("model".to_owned(), json!(name)))]).chain(after.iter().map(field)).collect();
            let body = format!("{{{}}}", fields.join(if pretty { " ,\n" } else { "," }));
            prop_assert_eq!(scan(body.as_bytes(), size), Ok(name), "{}", body);
        }

        /// A damaged body is refused, or has the name that a parser finds in it: never another one.
        #[test]
        fn a_damaged_body_is_refused_or_read_as_a_parser_reads_it(
            value in value(),
            damage in prop::collection::vec((any::<Index>(), any::<u8>(), 0..3_u8), 1..4),
            size in 1..20_usize,
        ) {
            let mut body = json!({"a": value, "model": "llama", "z": "model"}).to_string().into_bytes();
            for (place, byte, how) in damage {
                let at = place.index(body.len());
                match how {
                    0 => body[at] = byte,
                    1 => body.insert(at, byte),
                    _ if body.len() > 1 => drop(body.remove(at)),
                    _ => {}
                }
            }
            let scanned = scan(&body, size);
            if let (Ok(name), Ok(parsed)) = (&scanned, serde_json::from_slice::<Value>(&body)) {
                prop_assert_eq!(&json!(name), &parsed["model"], "{}", String::from_utf8_lossy(&body));
            }
        }
    }
}
