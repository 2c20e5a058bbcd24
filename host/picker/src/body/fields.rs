//! The fields of requests for each API.

use super::{
    Api, MAX_MODEL, MAX_SALT,
    json::{Field, Take},
};

/// A field of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Model,
    Stream,
    /// The maximum number of tokens in a response. The number is the precedence of the name, 0 first.
    Limit(usize),
    Count,
    Salt,
    /// A part of the prompt, by its position in the model's input.
    Part(usize),
}

/// The parts of a prompt: `TOOLS`, `SYSTEM`, and from `PROMPT` on the user's input.
pub(super) const PARTS: usize = 5;
pub(super) const TOOLS: usize = 0;
const SYSTEM: usize = 1;
pub(super) const PROMPT: usize = 2;

/// The number of names for the limit of a response.
pub(super) const LIMITS: usize = 3;

const MODEL: Field<Id> = Field { key: "model", take: Take::Text(Id::Model, MAX_MODEL) };
const STREAM: Field<Id> = Field { key: "stream", take: Take::Scalar(Id::Stream) };
const SALT: Field<Id> = Field { key: "cache_salt", take: Take::Text(Id::Salt, MAX_SALT) };
const COUNT: Field<Id> = scalar("n", Id::Count);
const MAX_COMPLETION_TOKENS: Field<Id> = scalar("max_completion_tokens", Id::Limit(0));
const MAX_OUTPUT_TOKENS: Field<Id> = scalar("max_output_tokens", Id::Limit(1));
const MAX_TOKENS: Field<Id> = scalar("max_tokens", Id::Limit(2));

const fn scalar(key: &'static str, id: Id) -> Field<Id> {
    Field { key, take: Take::Scalar(id) }
}

const fn part(key: &'static str, place: usize) -> Field<Id> {
    Field { key, take: Take::Place(Id::Part(place)) }
}

const CHAT: &[Field<Id>] = &[MODEL, part("messages", PROMPT), part("tools", TOOLS), STREAM, MAX_COMPLETION_TOKENS, MAX_TOKENS, COUNT, SALT];

const COMPLETIONS: &[Field<Id>] = &[
    MODEL,
    part("prompt", PROMPT),
    // vLLM also accepts embeddings.
    part("prompt_embeds", PROMPT + 1),
    STREAM,
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    COUNT,
    SALT,
];

/// vLLM also accepts messages here.
const EMBEDDINGS: &[Field<Id>] = &[MODEL, part("input", PROMPT), part("messages", PROMPT + 1), STREAM, SALT];

const RESPONSES: &[Field<Id>] = &[
    MODEL,
    part("input", PROMPT),
    part("instructions", SYSTEM),
    part("tools", TOOLS),
    STREAM,
    MAX_OUTPUT_TOKENS,
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    SALT,
];

const CONVERSATIONS: &[Field<Id>] = &[MODEL, part("items", PROMPT), STREAM, SALT];

const IMAGES: &[Field<Id>] = &[MODEL, part("prompt", PROMPT), STREAM, COUNT];

const MESSAGES: &[Field<Id>] = &[MODEL, part("messages", PROMPT), part("system", SYSTEM), part("tools", TOOLS), STREAM, MAX_TOKENS, SALT];

const VLLM_GENERATE: &[Field<Id>] =
    &[MODEL, part("token_ids", PROMPT), STREAM, SALT, Field { key: "sampling_params", take: Take::Fields(&[MAX_TOKENS, COUNT]) }];

const SGLANG_GENERATE: &[Field<Id>] = &[
    MODEL,
    part("input_ids", PROMPT),
    part("text", PROMPT + 1),
    part("input_embeds", PROMPT + 2),
    STREAM,
    Field { key: "extra_key", take: Take::Text(Id::Salt, MAX_SALT) },
    Field { key: "sampling_params", take: Take::Fields(&[scalar("max_new_tokens", Id::Limit(0)), COUNT]) },
];

/// An image edit as JSON.
const FORM: &[Field<Id>] = &[MODEL, part("prompt", PROMPT), STREAM, COUNT];

/// The fields to find in a JSON body.
pub(super) fn of(api: Api) -> &'static [Field<Id>] {
    match api {
        Api::ChatCompletions => CHAT,
        Api::Completions => COMPLETIONS,
        Api::Embeddings => EMBEDDINGS,
        Api::Responses => RESPONSES,
        Api::Conversations => CONVERSATIONS,
        Api::Images => IMAGES,
        Api::Form => FORM,
        Api::Messages => MESSAGES,
        Api::VllmGenerate => VLLM_GENERATE,
        Api::SglangGenerate => SGLANG_GENERATE,
    }
}

/// The name of the prompt, if the API requires one.
pub(super) fn required_prompt(api: Api) -> Option<&'static str> {
    match api {
        Api::ChatCompletions | Api::Messages => Some("`messages`"),
        Api::Completions | Api::Images => Some("`prompt`"),
        Api::Embeddings | Api::Responses => Some("`input`"),
        Api::Conversations => Some("`items`"),
        Api::VllmGenerate => Some("`token_ids`"),
        Api::SglangGenerate => Some("`input_ids` or `text`"),
        Api::Form => None,
    }
}

/// Whether the API requires a model. Servers that generate from token ids serve only one, and requests may omit it.
pub(super) fn requires_model(api: Api) -> bool {
    !matches!(api, Api::VllmGenerate | Api::SglangGenerate)
}
