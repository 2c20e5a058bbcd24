//! The APIs whose bodies are read, by the path of a request.

/// The format of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's chat completions, including the rendering of their prompts.
    ChatCompletions,
    /// OpenAI's completions, including the rendering of their prompts.
    Completions,
    /// OpenAI's embeddings.
    Embeddings,
    /// OpenAI's responses.
    Responses,
    /// OpenAI's conversations.
    Conversations,
    /// OpenAI's images from a prompt.
    Images,
    /// OpenAI's transcriptions, translations and image edits: a multipart form. Image edits may be JSON.
    Form,
    /// Anthropic's messages, including the counting of their tokens.
    Messages,
    /// vLLM's generation from token ids.
    VllmGenerate,
    /// SGLang's generation from text or token ids.
    SglangGenerate,
}

/// The ends of paths, with their APIs.
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
    /// The API of a path with or without a query, by the longest known end. If there is none, the body passes unread.
    pub fn of_path(path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let is_end = |end: &str| path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'));
        PATHS.iter().filter(|(end, _)| is_end(end)).max_by_key(|(end, _)| end.len()).map(|(_, api)| *api)
    }
}
