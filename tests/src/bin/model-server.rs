//! A simulated model server in its own process, for tests that kill it.

use clap::Parser;
use pointsman_tests::model_server::{EngineSettings, ModelServer, Settings};
use serde_json::json;
use std::{
    io::{self, Read},
    net::SocketAddr,
};

/// Serves requests like a model server, until it is killed.
#[derive(Debug, Parser)]
struct Args {
    /// The address to listen on; port 0 is any free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Its name, which is part of each generated token.
    #[arg(long, default_value = "server")]
    name: String,
    /// The base model.
    #[arg(long, default_value = "base")]
    model: String,
    /// An adapter of the base model; repeatable.
    #[arg(long)]
    adapter: Vec<String>,
    /// The number of tokens of a response, unless the request sets it.
    #[arg(long, default_value_t = 16)]
    max_tokens: usize,
    /// The maximum number of running requests.
    #[arg(long, default_value_t = EngineSettings::default().max_num_seqs)]
    max_num_seqs: usize,
    /// The number of blocks of the KV cache.
    #[arg(long, default_value_t = EngineSettings::default().blocks)]
    blocks: usize,
    /// The number of tokens in a block.
    #[arg(long, default_value_t = EngineSettings::default().block_size)]
    block_size: usize,
    /// Microseconds per uncached token of a prompt.
    #[arg(long, default_value_t = EngineSettings::default().prefill_us_per_token)]
    prefill_us_per_token: u64,
    /// Microseconds for a token of all running requests.
    #[arg(long, default_value_t = EngineSettings::default().decode_us)]
    decode_us: u64,
    /// Additional microseconds per running request.
    #[arg(long, default_value_t = EngineSettings::default().decode_us_per_running)]
    decode_us_per_running: u64,
    /// Terminates when its stdin closes, and so with its parent process.
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
    // In the format of the host's log, for `listening_address`.
    println!("{}", json!({"message": "listening", "address": server.address().to_string()}));
    if args.until_stdin_closes {
        io::stdin().read_to_end(&mut Vec::new()).ok();
    } else {
        server.wait();
    }
}
