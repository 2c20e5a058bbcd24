//! A simulated model server in a process of its own, for tests that kill it.

use clap::Parser;
use pointsman_tests::model_server::{EngineSettings, ModelServer, Settings};
use serde_json::json;
use std::{
    io::{self, Read},
    net::SocketAddr,
};

/// Answers as a model server would, until it is killed.
#[derive(Debug, Parser)]
struct Args {
    /// Where it listens; port 0 is any that is free.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Its name, of which answers consist.
    #[arg(long, default_value = "server")]
    name: String,
    /// The base model.
    #[arg(long, default_value = "base")]
    model: String,
    /// An adapter of the base; repeatable.
    #[arg(long)]
    adapter: Vec<String>,
    /// Tokens of an answer unless the request sets that.
    #[arg(long, default_value_t = 16)]
    max_tokens: usize,
    /// Requests that run at once.
    #[arg(long, default_value_t = EngineSettings::default().max_num_seqs)]
    max_num_seqs: usize,
    /// Blocks of the KV cache.
    #[arg(long, default_value_t = EngineSettings::default().blocks)]
    blocks: usize,
    /// Tokens of a block.
    #[arg(long, default_value_t = EngineSettings::default().block_size)]
    block_size: usize,
    /// Microseconds for a token of a prompt that isn't cached.
    #[arg(long, default_value_t = EngineSettings::default().prefill_us_per_token)]
    prefill_us_per_token: u64,
    /// Microseconds for a token for all running requests.
    #[arg(long, default_value_t = EngineSettings::default().decode_us)]
    decode_us: u64,
    /// Microseconds more for each of them.
    #[arg(long, default_value_t = EngineSettings::default().decode_us_per_running)]
    decode_us_per_running: u64,
    /// Ends when its stdin closes, so that it ends with whoever has started it.
    #[arg(long)]
    until_stdin_closes: bool,
}

fn main() {
    let args = Args::parse();
    let engine = EngineSettings {
        max_num_seqs: args.max_num_seqs,
        blocks: args.blocks,
        block_size: args.block_size,
        prefill_us_per_token: args.prefill_us_per_token,
        decode_us: args.decode_us,
        decode_us_per_running: args.decode_us_per_running,
    };
    let models = [args.model].into_iter().chain(args.adapter).collect();
    let server = ModelServer::start(args.listen, Settings { name: args.name, models, max_tokens: args.max_tokens, engine });
    // As the host's log says it, for `listening_address`.
    println!("{}", json!({"message": "listening", "address": server.address().to_string()}));
    if args.until_stdin_closes {
        io::stdin().read_to_end(&mut Vec::new()).ok();
    } else {
        server.wait();
    }
}
