//! The responses to requests.

use super::{
    Progress,
    prompt::{Asked, Endpoint},
    worker::Ticket,
};
use axum::body::Bytes;
use serde_json::{Value, json};

/// The same time for all responses, in seconds, so that equal requests have equal responses.
const CREATED: u64 = 1_764_000_000;

/// A response that is being generated.
pub(super) struct Answer {
    endpoint: Endpoint,
    ticket: Ticket,
    /// The prefix of its tokens.
    server: String,
    model: String,
    include_usage: bool,
    prompt_tokens: usize,
    cached_tokens: usize,
    tokens: usize,
    /// Whether the last part was sent.
    has_ended: bool,
}

impl Answer {
    pub(super) fn new(endpoint: Endpoint, ticket: Ticket, server: &str, model: &str, asked: &Asked) -> Self {
        let (server, model, include_usage) = (server.to_owned(), model.to_owned(), asked.include_usage());
        Self { endpoint, ticket, server, model, include_usage, prompt_tokens: 0, cached_tokens: 0, tokens: 0, has_ended: false }
    }

    /// The next token's number, and whether it is the last one. `None` if the server ends before.
    async fn token(&mut self) -> Option<(usize, bool)> {
        loop {
            match self.ticket.next().await?.progress {
                Progress::Started { prompt_tokens, cached_tokens } => {
                    (self.prompt_tokens, self.cached_tokens) = (prompt_tokens, cached_tokens);
                }
                Progress::Token { number, is_last } => {
                    self.tokens = number + 1;
                    return Some((number, is_last));
                }
            }
        }
    }

    fn text(&self, number: usize) -> String {
        let space = if number == 0 { "" } else { " " };
        format!("{space}{}-{number}", self.server)
    }

    /// The whole response at once.
    pub(super) async fn whole(mut self) -> Option<Value> {
        let mut text = String::new();
        loop {
            let (number, is_last) = self.token().await?;
            text.push_str(&self.text(number));
            if is_last {
                break;
            }
        }
        let (object, choice) = match self.endpoint {
            Endpoint::Chat => {
                let message = json!({"role": "assistant", "content": text});
                ("chat.completion", json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "length"}))
            }
            Endpoint::Completions => ("text_completion", json!({"index": 0, "text": text, "logprobs": null, "finish_reason": "length"})),
        };
        Some(self.object(object, &json!([choice]), Some(&self.usage())))
    }

    /// The next part of a stream; `None` after the last one.
    pub(super) async fn part(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let is_first = self.tokens == 0;
        let (number, is_last) = self.token().await?;
        let mut part = String::new();
        if is_first && self.endpoint == Endpoint::Chat {
            part.push_str(&self.event(&json!([chat_choice(&json!({"role": "assistant", "content": ""}), false)]), None));
        }
        let text = self.text(number);
        let choice = match self.endpoint {
            Endpoint::Chat => chat_choice(&json!({"content": text}), is_last),
            Endpoint::Completions => json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason(is_last)}),
        };
        part.push_str(&self.event(&json!([choice]), None));
        if is_last {
            if self.include_usage {
                part.push_str(&self.event(&json!([]), Some(&self.usage())));
            }
            part.push_str("data: [DONE]\n\n");
            self.has_ended = true;
        }
        Some(part.into())
    }

    fn event(&self, choices: &Value, usage: Option<&Value>) -> String {
        let object = if self.endpoint == Endpoint::Chat { "chat.completion.chunk" } else { "text_completion" };
        format!("data: {}\n\n", self.object(object, choices, usage))
    }

    fn object(&self, object: &str, choices: &Value, usage: Option<&Value>) -> Value {
        let prefix = if self.endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
        let id = format!("{prefix}-{}-{}", self.server, self.ticket.id);
        let mut object = json!({"id": id, "object": object, "created": CREATED, "model": self.model, "choices": choices});
        if let Some(usage) = usage {
            object["usage"] = usage.clone();
        }
        object
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
            "completion_tokens": self.tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        })
    }
}

fn chat_choice(delta: &Value, is_last: bool) -> Value {
    json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason(is_last)})
}

fn finish_reason(is_last: bool) -> Option<&'static str> {
    is_last.then_some("length")
}
