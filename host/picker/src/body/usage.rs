//! Reads the token counts from a streamed response, and counts its events.

use super::{
    BodyError,
    answer::{Answer, Framing},
    json::{Field, Kind, Sink, Take, Value},
};

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The tokens of the prompt, including cached ones.
    pub prompt: u64,
    /// The tokens that the model has generated.
    pub completion: u64,
    /// The cached tokens of the prompt, if the server reports them.
    pub cached: Option<u64>,
}

/// A number in `usage`.
#[derive(Clone, Copy, Debug)]
enum Id {
    Prompt,
    /// The name in responses and messages. In Anthropic's, it excludes cached tokens.
    Input,
    Output,
    Total,
    Cached,
    /// Only in Anthropic's.
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

/// The places of usage: next to the choices, in events of responses, in Anthropic's first event, and SGLang's own.
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

/// Reads a response in chunks. It stores only a few numbers, regardless of the response's length.
#[derive(Debug)]
pub struct UsageReader {
    answer: Answer<Id>,
    numbers: Numbers,
}

#[derive(Debug, Default)]
struct Numbers([Option<u64>; NUMBERS]);

impl UsageReader {
    /// Starts a response.
    pub fn new(framing: Framing) -> Self {
        Self { answer: Answer::new(framing, FIELDS), numbers: Numbers::default() }
    }

    /// Processes the next chunk.
    pub fn read(&mut self, chunk: &[u8]) {
        self.answer.read(chunk, &mut self.numbers);
    }

    /// The number of events that have begun with a JSON object. `[DONE]`, comments and pings without one aren't counted.
    pub fn events(&self) -> u64 {
        self.answer.events()
    }

    /// The token counts so far. If a number occurs again, the last one is used.
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
