//! The engine of a simulated model server: a queue, seats, a KV cache with prefixes, and the time that tokens take. It stands in for a real one
//! in tests, and where a policy is judged before it decides.

mod blocks;
mod engine;
mod prompt;
#[cfg(test)]
mod tests;

pub use engine::{EngineCounts, EngineEvent, EngineRequest, EngineSettings, Micros, ModelEngine, Progress, TooLong};
pub use prompt::{BYTES_PER_TOKEN, EnginePrompt, PromptBlocks};
