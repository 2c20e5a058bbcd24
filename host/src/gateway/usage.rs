//! Counts the tokens of a response as it passes: from its last `usage`, or by its number of events.

use memchr::{memchr, memchr2};
use serde::Deserialize;

/// The maximum size of a `usage` that is parsed, in bytes.
const MAX_USAGE: usize = 4096;

const KEY: &[u8] = b"\"usage\"";
const EVENT: &[u8] = b"data:";

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens of the request.
    pub input: u64,
    /// The tokens of the response.
    pub output: u64,
}

impl Tokens {
    /// The sum of both.
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// The names in servers' responses: the first ones in chat and completions, the others in responses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names)] // They are the servers' names.
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

impl Usage {
    fn tokens(&self) -> Option<Tokens> {
        let input = self.prompt_tokens.or(self.input_tokens);
        let output = self.completion_tokens.or(self.output_tokens);
        let total = self.total_tokens;
        input.or(output).or(total)?;
        let input = input.unwrap_or_else(|| total.unwrap_or(0).saturating_sub(output.unwrap_or(0)));
        let output = output.unwrap_or_else(|| total.unwrap_or(0).saturating_sub(input));
        Some(Tokens { input, output })
    }
}

#[derive(Debug, Default)]
enum State {
    /// Searching for the key, with the number of its bytes that have arrived.
    #[default]
    Key,
    /// After the key, before the colon or the object.
    Before { colon: bool },
    /// In the object: its depth, and whether in a string, after a backslash.
    Inside { depth: u32, text: bool, escaped: bool },
}

/// Scans a response. A key within a string has escaped quotes, and isn't mistaken for one.
#[derive(Debug, Default)]
pub struct UsageScan {
    state: State,
    matched: usize,
    object: Vec<u8>,
    usage: Option<Tokens>,
    is_events: bool,
    /// The number of bytes of an event's start that have arrived on this line; none if the line is another one.
    event: Option<usize>,
    events: u64,
}

impl UsageScan {
    /// Starts a scan, of server-sent events or of JSON.
    pub fn new(is_events: bool) -> Self {
        Self { is_events, event: Some(0), ..Self::default() }
    }

    /// Scans a chunk.
    pub fn read(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while let Some((&byte, after)) = rest.split_first() {
            self.step(byte);
            rest = after;
            // Responses are long texts: bytes that can start neither the key nor an event are skipped.
            if matches!(self.state, State::Key) && self.matched == 0 {
                let next = match (self.is_events, self.event) {
                    (false, _) => memchr(KEY[0], rest),
                    (true, None) => memchr2(KEY[0], b'\n', rest),
                    (true, Some(_)) => continue,
                };
                rest = &rest[next.unwrap_or(rest.len())..];
            }
        }
    }

    /// The result: a response without `usage` has one token per event, except for the last one, which marks the end.
    pub fn tokens(&self) -> Option<Tokens> {
        self.usage.or_else(|| self.is_events.then(|| Tokens { input: 0, output: self.events.saturating_sub(1) }))
    }

    /// Whether the response has reported its tokens.
    pub fn is_reported(&self) -> bool {
        self.usage.is_some()
    }

    fn step(&mut self, byte: u8) {
        if self.is_events {
            self.event = match (self.event, byte) {
                (_, b'\n') => Some(0),
                (Some(matched), _) if EVENT.get(matched) == Some(&byte) => {
                    if matched + 1 == EVENT.len() {
                        self.events += 1;
                        None
                    } else {
                        Some(matched + 1)
                    }
                }
                _ => None,
            };
        }
        match &mut self.state {
            State::Key => {
                if KEY[self.matched] == byte {
                    self.matched += 1;
                    if self.matched == KEY.len() {
                        self.matched = 0;
                        self.state = State::Before { colon: false };
                    }
                } else {
                    self.matched = usize::from(byte == KEY[0]);
                }
            }
            State::Before { colon } => match byte {
                b':' if !*colon => *colon = true,
                b'{' if *colon => {
                    self.object.clear();
                    self.object.push(byte);
                    self.state = State::Inside { depth: 1, text: false, escaped: false };
                }
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ => {
                    self.state = State::Key;
                    self.matched = usize::from(byte == KEY[0]);
                }
            },
            State::Inside { depth, text, escaped } => {
                self.object.push(byte);
                match (*text, byte) {
                    (true, _) if *escaped => *escaped = false,
                    (true, b'\\') => *escaped = true,
                    (_, b'"') => *text = !*text,
                    (false, b'{') => *depth += 1,
                    (false, b'}') => *depth -= 1,
                    _ => {}
                }
                if *depth == 0 {
                    let read: Option<Usage> = serde_json::from_slice(&self.object).ok();
                    self.usage = read.and_then(|usage| usage.tokens()).or(self.usage);
                    self.state = State::Key;
                } else if self.object.len() >= MAX_USAGE {
                    self.state = State::Key;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(is_events: bool, answer: &str) -> Option<Tokens> {
        let mut results = [1, 2, 5, answer.len().max(1)].map(|size| {
            let mut scan = UsageScan::new(is_events);
            answer.as_bytes().chunks(size).for_each(|chunk| scan.read(chunk));
            scan.tokens()
        });
        results.sort_by_key(|tokens| tokens.map(Tokens::total));
        assert_eq!(results[0], results[3], "the chunks make a difference: {answer}");
        results[0]
    }

    #[test]
    fn tokens_are_those_of_the_last_usage() {
        let some = |input, output| Some(Tokens { input, output });
        for (answer, expected) in [
            (r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#, some(3, 4)),
            (r#"{"usage": {"input_tokens": 3, "output_tokens": 4, "details": {"a": "}"}}}"#, some(3, 4)),
            (r#"{"usage":{"prompt_tokens":5,"total_tokens":5},"data":[]}"#, some(5, 0)),
            (r#"{"usage":{"total_tokens":5}}"#, some(5, 0)),
            (r#"{"usage":null,"a":"usage","b":{"usage":{"prompt_tokens":1,"completion_tokens":1}}}"#, some(1, 1)),
            (r#"{"text":"\"usage\":{\"prompt_tokens\":9}"}"#, None),
            (r#"{"usage":{"prompt_tokens":"many"}}"#, None),
            (r#"{"usage":{}}"#, None),
            ("", None),
        ] {
            assert_eq!(scan(false, answer), expected, "{answer}");
        }
    }

    #[test]
    fn a_stream_without_usage_has_a_token_for_each_event() {
        let events = "data: {\"a\":1}\n\ndata: {\"a\":\"data: x\"}\n\n: comment\n\ndata: [DONE]\n\n";
        assert_eq!(scan(true, events), Some(Tokens { input: 0, output: 2 }));
        let with = "data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n";
        assert_eq!(scan(true, with), Some(Tokens { input: 3, output: 9 }));
    }

    #[test]
    fn an_endless_usage_isn_t_kept() {
        let mut scan = UsageScan::new(false);
        scan.read(br#"{"usage":{"a":""#);
        scan.read(&vec![b'x'; 1 << 20]);
        assert!(scan.object.len() <= MAX_USAGE && scan.tokens().is_none());
    }
}
