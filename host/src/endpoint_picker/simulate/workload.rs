//! Generated requests, equal for equal seeds, so that a simulation needs no trace.

use super::trace::{BlockHash, Trace, TraceBuilder, TraceLine};
use clap::ValueEnum;
use pointsman_picker::{random, simulation::EngineSettings};

/// The number of concurrent conversations.
const CONVERSATIONS: u64 = 64;

/// The number of bits of a block's number that are its position; the other bits are its owner.
const PLACE_BITS: u32 = 24;

/// The interval between the starts of bursts, and their duration.
const BURST_EVERY: f64 = 10.0;
const BURST_SECONDS: f64 = 2.0;

/// The rate in a burst, as a multiple of the mean rate. The rate between bursts gives the mean.
const BURST_RATE: f64 = 4.0;

/// The kind of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WorkloadKind {
    /// Conversations that begin with one of a few system prompts, and grow by each turn
    #[default]
    SharedPrefix,
    /// Prompts of all lengths that share nothing, most of which come in bursts
    Bursty,
}

/// The requests to generate.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Their kind.
    pub kind: WorkloadKind,
    /// Their number.
    pub requests: usize,
    /// The mean number of arrivals per second.
    pub rate: f64,
    /// Equal seeds generate equal requests.
    pub seed: u64,
    /// The number of prompts that start conversations.
    pub system_prompts: u64,
}

impl Workload {
    /// Generates them, for endpoints with these engines.
    pub fn trace(&self, engine: &EngineSettings) -> Result<Trace, String> {
        let mut random = Random::new(self.seed);
        let mut builder = TraceBuilder::new(engine);
        let mut conversations = Conversations::new(self.system_prompts, &mut random);
        let block_tokens = engine.block_size.max(1) as u64;
        let mut at = 0.0;
        for number in 0..self.requests as u64 {
            let mut line = match self.kind {
                WorkloadKind::SharedPrefix => conversations.turn(block_tokens, &mut random),
                WorkloadKind::Bursty => alone(number, block_tokens, &mut random),
            };
            line.at = at;
            builder.add(line)?;
            at += random.exponential() / self.rate_at(at);
        }
        Ok(builder.finish())
    }

    fn rate_at(&self, at: f64) -> f64 {
        let share = match self.kind {
            WorkloadKind::SharedPrefix => 1.0,
            WorkloadKind::Bursty if at % BURST_EVERY < BURST_SECONDS => BURST_RATE,
            WorkloadKind::Bursty => (BURST_EVERY - BURST_SECONDS * BURST_RATE) / (BURST_EVERY - BURST_SECONDS),
        };
        self.rate * share
    }
}

/// A request that shares nothing with others. Lengths are distributed evenly on a logarithmic scale.
fn alone(number: u64, block_tokens: u64, random: &mut Random) -> TraceLine {
    let tokens = random.scaled(128.0, 5.0);
    let output = random.scaled(16.0, 5.0);
    let blocks = (0..tokens / block_tokens).map(|place| block(number, place)).collect();
    TraceLine { blocks, tokens: Some(tokens), output, ..TraceLine::default() }
}

fn block(owner: u64, place: u64) -> BlockHash {
    BlockHash((owner << PLACE_BITS) + place)
}

/// The current conversations.
struct Conversations {
    /// The tokens of each system prompt.
    system: Vec<u64>,
    going_on: Vec<Conversation>,
    begun: u64,
}

struct Conversation {
    number: u64,
    system: u64,
    tokens: u64,
    turns: u64,
}

impl Conversations {
    fn new(system_prompts: u64, random: &mut Random) -> Self {
        let system = (0..system_prompts.max(1)).map(|_| 1024 + random.below(2048)).collect();
        let mut conversations = Self { system, going_on: Vec::new(), begun: 0 };
        for _ in 0..CONVERSATIONS {
            let begun = conversations.begin(random);
            conversations.going_on.push(begun);
        }
        conversations
    }

    fn begin(&mut self, random: &mut Random) -> Conversation {
        let system = random.below(self.system.len() as u64);
        let number = self.system.len() as u64 + self.begun;
        self.begun += 1;
        let tokens = usize::try_from(system).ok().and_then(|at| self.system.get(at)).copied().unwrap_or_default();
        Conversation { number, system, tokens, turns: 2 + random.below(9) }
    }

    /// The next turn of one of them: the conversation so far, and a message.
    fn turn(&mut self, block_tokens: u64, random: &mut Random) -> TraceLine {
        let at = usize::try_from(random.below(CONVERSATIONS)).unwrap_or_default();
        if self.going_on[at].turns == 0 {
            self.going_on[at] = self.begin(random);
        }
        let conversation = &mut self.going_on[at];
        conversation.turns -= 1;
        conversation.tokens += 32 + random.below(225);
        let tokens = conversation.tokens;
        let output = 32 + random.below(225);
        conversation.tokens += output;
        let system_tokens = self.system[usize::try_from(conversation.system).unwrap_or_default()];
        let owner = |place: u64| if (place + 1) * block_tokens <= system_tokens { conversation.system } else { conversation.number };
        let blocks = (0..tokens / block_tokens).map(|place| block(owner(place), place)).collect();
        let session = Some(format!("conversation-{}", conversation.number));
        TraceLine { blocks, tokens: Some(tokens), output, session, ..TraceLine::default() }
    }
}

/// The random sequence of a seed, and the number of used values.
struct Random {
    seed: u64,
    used: u64,
}

impl Random {
    fn new(seed: u64) -> Self {
        Self { seed, used: 0 }
    }

    fn next(&mut self) -> u64 {
        self.used += 1;
        random::nth(self.seed, self.used - 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// The time to the next of independent events, with a mean of 1.
    fn exponential(&mut self) -> f64 {
        -random::unit(self.next()).ln()
    }

    /// From `least` to 2^`doublings` times that.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Some thousands.
    fn scaled(&mut self, least: f64, doublings: f64) -> u64 {
        (least * (random::unit(self.next()) * doublings).exp2()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn workload(kind: WorkloadKind, seed: u64) -> Trace {
        let engine = EngineSettings { blocks: 1024, block_size: 64, ..EngineSettings::default() };
        Workload { kind, requests: 2_000, rate: 20.0, seed, system_prompts: 4 }.trace(&engine).unwrap()
    }

    /// The share of blocks that an earlier prompt has had.
    #[allow(clippy::cast_precision_loss)]
    fn seen(trace: &Trace) -> f64 {
        let (mut known, mut all, mut seen) = (HashSet::new(), 0, 0);
        for hash in trace.requests.iter().flat_map(|request| request.prompt.hashes.iter()) {
            all += 1;
            seen += usize::from(!known.insert(*hash));
        }
        seen as f64 / f64::from(all)
    }

    #[test]
    fn workloads_have_their_rate_and_their_shape_and_equal_seeds_are_equal() {
        for kind in [WorkloadKind::SharedPrefix, WorkloadKind::Bursty] {
            let (trace, again, other) = (workload(kind, 1), workload(kind, 1), workload(kind, 2));
            assert_eq!(format!("{trace:?}"), format!("{again:?}"));
            assert_ne!(format!("{trace:?}"), format!("{other:?}"));
            assert!((85.0..115.0).contains(&trace.seconds()), "{kind:?}: {} s", trace.seconds());
        }
        let (shared, bursty) = (workload(WorkloadKind::SharedPrefix, 1), workload(WorkloadKind::Bursty, 1));
        assert!(seen(&shared) > 0.9, "{}", seen(&shared));
        assert!(seen(&bursty) < 1e-9);
        let in_bursts = bursty.requests.iter().filter(|request| request.at % 10_000_000 < 2_000_000).count();
        assert!((1_500..1_700).contains(&in_bursts), "{in_bursts} of 2000");
    }
}
