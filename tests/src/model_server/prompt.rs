//! The parts of an OpenAI request that matter to an engine.

use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

/// The API of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Completions,
}

/// The body of a request, without fields that don't matter here.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    pub(super) model: Option<String>,
    #[serde(default)]
    messages: Vec<Message>,
    prompt: Option<Value>,
    #[serde(default)]
    pub(super) stream: bool,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
}

impl Asked {
    /// Whether a stream ends with the usage.
    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// The requested number of tokens.
    pub(super) fn max_tokens(&self) -> Option<usize> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    /// The prompt; `None` if the request has none for this API.
    pub(super) fn prompt(&self, endpoint: Endpoint) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        match endpoint {
            Endpoint::Chat if self.messages.is_empty() => return None,
            Endpoint::Chat => {
                for Message { role, content } in &self.messages {
                    bytes.extend_from_slice(role.as_bytes());
                    bytes.push(b'\n');
                    append(&mut bytes, content);
                    bytes.push(b'\n');
                }
            }
            Endpoint::Completions => append(&mut bytes, self.prompt.as_ref()?),
        }
        Some(bytes)
    }
}

/// Text, parts of text, or token numbers.
fn append(bytes: &mut Vec<u8>, content: &Value) {
    match content {
        Value::String(text) => bytes.extend_from_slice(text.as_bytes()),
        Value::Array(parts) => parts.iter().for_each(|part| append(bytes, part)),
        Value::Number(token) => {
            let token = token.as_u64().and_then(|token| u32::try_from(token).ok()).unwrap_or_default();
            bytes.extend_from_slice(&token.to_le_bytes());
        }
        Value::Object(part) => {
            let text = part.get("text").and_then(Value::as_str).map_or_else(|| Cow::from(content.to_string()), Cow::from);
            bytes.extend_from_slice(text.as_bytes());
        }
        Value::Null | Value::Bool(_) => {}
    }
}
