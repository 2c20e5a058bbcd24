//! Reads the tokens of an answer while it passes, and counts its events.

use super::{
    BodyError,
    answer::{Answer, Framing},
    json::{Field, Kind, Sink, Take, Value},
};

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those of the prompt, cached ones among them.
    pub prompt: u64,
    /// Those that the model has made.
    pub completion: u64,
    /// Those of the prompt that were cached, if the server says so.
    pub cached: Option<u64>,
}

/// A number in a `usage`.
#[derive(Clone, Copy, Debug)]
enum Id {
    Prompt,
    /// As responses and messages name it. Anthropic's has no cached ones in it.
    Input,
    Output,
    Total,
    Cached,
    /// Anthropic's.
    CacheRead,
    CacheCreation,
}

const NUMBERS: usize = 7;

const fn number(key: &'static str, id: Id) -> Field<Id> {
    Field { key, take: Take::Scalar(id) }
}

const DETAILS: Take<Id> = Take::Fields(&[number("cached_tokens", Id::Cached)]);

const USAGE: Field<Id> = Field {
    key: "usage",
    take: Take::Fields(&[
        number("prompt_tokens", Id::Prompt),
        number("completion_tokens", Id::Output),
        number("input_tokens", Id::Input),
        number("output_tokens", Id::Output),
        number("total_tokens", Id::Total),
        number("cache_read_input_tokens", Id::CacheRead),
        number("cache_creation_input_tokens", Id::CacheCreation),
        Field { key: "prompt_tokens_details", take: DETAILS },
        Field { key: "input_tokens_details", take: DETAILS },
    ]),
};

/// Where servers put it: beside the choices, in events of responses, in Anthropic's first event, and SGLang's own.
const FIELDS: &[Field<Id>] = &[
    USAGE,
    Field { key: "response", take: Take::Fields(&[USAGE]) },
    Field { key: "message", take: Take::Fields(&[USAGE]) },
    Field {
        key: "meta_info",
        take: Take::Fields(&[
            number("prompt_tokens", Id::Prompt),
            number("completion_tokens", Id::Output),
            number("cached_tokens", Id::Cached),
        ]),
    },
];

/// Reads an answer in chunks as they come; it keeps a few numbers, however long the answer is.
#[derive(Debug)]
pub struct UsageReader {
    answer: Answer<Id>,
    numbers: Numbers,
}

#[derive(Debug, Default)]
struct Numbers([Option<u64>; NUMBERS]);

impl UsageReader {
    /// Begins an answer.
    pub fn new(framing: Framing) -> Self {
        Self { answer: Answer::new(framing, FIELDS), numbers: Numbers::default() }
    }

    /// Reads the next chunk.
    pub fn read(&mut self, chunk: &[u8]) {
        self.answer.read(chunk, &mut self.numbers);
    }

    /// How many events with a JSON object have begun: `[DONE]`, comments and pings without one don't count.
    pub fn events(&self) -> u64 {
        self.answer.events()
    }

    /// The tokens that the answer has named so far: of numbers that it names again the last.
    pub fn usage(&self) -> Option<Usage> {
        let number = |id: Id| self.numbers.0[id as usize];
        let read = number(Id::CacheRead);
        let beside = read.unwrap_or(0).saturating_add(number(Id::CacheCreation).unwrap_or(0));
        let prompt = number(Id::Prompt).or_else(|| number(Id::Input).map(|input| input.saturating_add(beside)));
        let output = number(Id::Output);
        let total = number(Id::Total);
        prompt.or(output).or(total)?;
        let total = total.unwrap_or(0);
        let prompt = prompt.unwrap_or_else(|| total.saturating_sub(output.unwrap_or(0)));
        let completion = output.unwrap_or_else(|| total.saturating_sub(prompt));
        Some(Usage { prompt, completion, cached: number(Id::Cached).or(read) })
    }
}

impl Sink<Id> for Numbers {
    fn end(&mut self, id: Id, value: &Value<'_>) -> Result<(), BodyError> {
        if value.kind == Kind::Scalar
            && let Some(number) = value.number()
        {
            self.0[id as usize] = Some(number);
        }
        Ok(())
    }
}
