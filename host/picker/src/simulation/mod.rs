//! The engine of a simulated model server: a queue, a limit for running requests, a KV cache with prefixes, and the time that tokens take.
//! It replaces a real one in tests, and in the evaluation of a policy before it becomes active.

mod blocks;
mod engine;
mod prompt;
#[cfg(test)]
mod tests;

pub use engine::{EngineCounts, EngineEvent, EngineRequest, EngineSettings, Micros, ModelEngine, Progress, TooLong};
pub use prompt::{BYTES_PER_TOKEN, EnginePrompt, PromptBlocks};
