//! The APIs whose bodies are read, by a request's path.

/// What a request's body looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's chat completions, and what renders their prompts.
    ChatCompletions,
    /// OpenAI's completions, and what renders their prompts.
    Completions,
    /// OpenAI's embeddings.
    Embeddings,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's conversations.
    Conversations,
    /// OpenAI's images of a prompt.
    Images,
    /// OpenAI's transcriptions, translations and edits of images: a multipart form. Edits may be JSON.
    Form,
    /// Anthropic's messages, and the count of their tokens.
    Messages,
    /// vLLM's generation from token ids.
    VllmGenerate,
    /// SGLang's generation from text or token ids.
    SglangGenerate,
}

/// The paths that end in these words are of these APIs.
const PATHS: [(&str, Api); 15] = [
    ("chat/completions", Api::ChatCompletions),
    ("chat/completions/render", Api::ChatCompletions),
    ("completions", Api::Completions),
    ("completions/render", Api::Completions),
    ("embeddings", Api::Embeddings),
    ("responses", Api::Responses),
    ("conversations", Api::Conversations),
    ("images/generations", Api::Images),
    ("images/edits", Api::Form),
    ("audio/transcriptions", Api::Form),
    ("audio/translations", Api::Form),
    ("messages", Api::Messages),
    ("messages/count_tokens", Api::Messages),
    ("inference/v1/generate", Api::VllmGenerate),
    ("generate", Api::SglangGenerate),
];

impl Api {
    /// The API of a path with or without a query: the longest of the known ends counts. None: the body goes through unread.
    pub fn of_path(path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let is_end = |end: &str| path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'));
        PATHS.iter().filter(|(end, _)| is_end(end)).max_by_key(|(end, _)| end.len()).map(|(_, api)| *api)
    }
}
