//! What the picker adds to a request through Envoy: the same Envoy with the picker and without it, in turn and in short rounds, so that what
//! else the machine does is the same for both.

use crate::{
    chats::{chat, digits},
    rounds,
    servers::CHAT,
    start, tell_failures,
};
use pointsman_picker::protocol::DESTINATION;
use pointsman_tests::{
    Envoy, EnvoySettings, EnvoyStyle, TestNamespace,
    load::{Question, Round, Scenario},
    measure::{goal, keep, ours, quantile, taken_by_part},
};
use std::{net::SocketAddr, time::Duration};

/// How many clients there are, each of which sends its next request when it has its answer.
const CLIENTS: [usize; 2] = [1, 16];

/// How many different chats there are. Each comes again, as the turns of a conversation have the same beginning.
const CHATS: u64 = 500;

/// How often each is asked, and how long each time.
const ROUNDS: usize = 24;
const ROUNDS_QUICK: usize = 5;
const LASTS: Duration = Duration::from_millis(500);

/// What the picker may add for one client, which waits for nothing but the machine.
const GOAL: Duration = Duration::from_micros(500);

pub(crate) async fn measure(space: &TestNamespace<'_>, servers: &[SocketAddr]) {
    let picker = start(space, &[]).await;
    let settings = EnvoySettings { picker: picker.address, picker_tls: true, style: EnvoyStyle::OriginalDst, failure_mode_allow: false };
    let (envoy, direct) = Envoy::start_with_direct(&space.cluster.dir.join("envoy"), &settings).await;
    let chats = || (0..CHATS).map(|number| chat(&digits(number)));
    let picked = chats().map(|chat| Question::new(CHAT, &chat)).collect();
    // As many connections behind Envoy as with the picker.
    let to = |server: &SocketAddr, chat| Question::with_headers(CHAT, &[(DESTINATION, &*server.to_string())], &chat);
    let unpicked = servers.iter().cycle().zip(chats()).map(|(server, chat)| to(server, chat)).collect();
    let scenario = |questions| Scenario { questions, answer: ("\"usage\"", 1), connections: 1 };
    let mut asked = [
        Asked { name: "without the picker", address: direct, scenario: scenario(unpicked), rounds: Vec::new() },
        Asked { name: "with it", address: envoy.address(), scenario: scenario(picked), rounds: Vec::new() },
    ];
    let mut added = Vec::new();
    for clients in CLIENTS {
        let cpu = || (taken_by_part(space.cluster, &picker.part).cpu(), ours().cpu());
        let before = cpu();
        run(&mut asked, clients);
        let after = cpu();
        println!("\nthrough Envoy, {clients} clients, {} rounds of {LASTS:?} each", asked[0].rounds.len());
        added.push(tell(&asked));
        let taken = [after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)];
        println!("  CPU of all rounds: {:.1?} of the picker, {:.1?} of clients and model servers", taken[0], taken[1]);
    }
    tell_failures("through Envoy", &picker);
    goal("p50 added for 1 client", &format!("{:.1?}", added[0]), &format!("<= {GOAL:?}"), added[0] <= GOAL);
    keep("p50 that the endpoint picker adds", &[("1 client", added[0]), ("16 clients", added[1])]);
    drop(envoy);
    picker.kill();
}

/// One of the two that are compared.
struct Asked {
    name: &'static str,
    address: SocketAddr,
    scenario: Scenario,
    rounds: Vec<Round>,
}

impl Asked {
    fn median(&self, value: fn(&Round) -> Duration) -> Duration {
        quantile(&self.rounds.iter().map(value).collect::<Vec<_>>(), 0.5)
    }
}

/// Asks both in turn; each is the first as often as the other.
fn run(asked: &mut [Asked; 2], clients: usize) {
    for asked in asked.iter_mut() {
        asked.rounds.clear();
        asked.scenario.connections = clients;
        // The picker and Envoy connect to what they haven't yet.
        asked.scenario.round(asked.address, LASTS);
    }
    for number in 0..rounds(ROUNDS, ROUNDS_QUICK) {
        for at in 0..asked.len() {
            let asked = &mut asked[(number + at) % 2];
            asked.rounds.push(asked.scenario.round(asked.address, LASTS));
        }
    }
}

/// Prints what was seen, and returns the p50 that the picker adds.
fn tell(asked: &[Asked; 2]) -> Duration {
    for asked in asked {
        let (p50, p99) = (asked.median(|round| round.p50), asked.median(|round| round.p99));
        let answers: u32 = asked.rounds.iter().map(|round| round.answers).sum();
        println!("  {:<20} p50 {p50:>9.1?}, p99 {p99:>9.1?}, of {answers} requests", asked.name);
    }
    let [without, with] = asked;
    let added = |value: fn(&Round) -> Duration| with.median(value).saturating_sub(without.median(value));
    let (p50, p99) = (added(|round| round.p50), added(|round| round.p99));
    println!("  {:<20} p50 {p50:>9.1?}, p99 {p99:>9.1?}", "the picker adds");
    p50
}
