//! The latency that the picker adds to a request through Envoy: the same Envoy with and without the picker, alternating in short rounds, so
//! that other load on the machine affects both equally.

use crate::{
    chats::{chat, digits},
    other, rounds,
    servers::CHAT,
    start, tell_failures,
};
use pointsman_picker::protocol::DESTINATION;
use pointsman_tests::{
    Envoy, EnvoySettings, EnvoyStyle, TestNamespace,
    load::{Question, Round, Scenario},
    measure::{goal, keep, quantile, taken_by_part},
};
use std::{net::SocketAddr, time::Duration};

/// The numbers of clients. Each sends its next request when it has the response.
const CLIENTS: [usize; 2] = [1, 16];

/// The number of different chats. They are repeated, because the turns of a conversation have the same beginning.
const CHATS: u64 = 500;

/// The number of rounds, and the duration of each.
const ROUNDS: usize = 24;
const ROUNDS_QUICK: usize = 5;
const LASTS: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(200);

/// The maximum added latency for one client, which waits only for the machine.
const GOAL: Duration = Duration::from_micros(500);

pub(crate) async fn measure(space: &TestNamespace<'_>, servers: &[SocketAddr]) {
    let picker = start(space, &[]).await;
    let settings = |picker| EnvoySettings { picker, picker_tls: true, style: EnvoyStyle::OriginalDst, failure_mode_allow: false };
    let (envoy, direct) = Envoy::start_with_direct(&space.cluster.dir.join("envoy"), &settings(picker.address)).await;
    let chats = || (0..CHATS).map(|number| chat(&digits(number)));
    let picked: Vec<Question> = chats().map(|chat| Question::new(CHAT, &chat)).collect();
    // Envoy has as many connections to servers as with the picker.
    let to = |server: &SocketAddr, chat| Question::with_headers(CHAT, &[(DESTINATION, &*server.to_string())], &chat);
    let unpicked: Vec<Question> = servers.iter().cycle().zip(chats()).map(|(server, chat)| to(server, chat)).collect();
    let mut asked = vec![
        Asked::new("without the picker", direct, None, unpicked),
        Asked::new("with it", envoy.address(), Some(&picker.part), picked.clone()),
    ];
    // The other picker has its own Envoy.
    let mut other_envoy = None;
    if let Some(address) = other::start(space, true).await {
        let envoy = Envoy::start(&space.cluster.dir.join("other-envoy"), &settings(address)).await;
        asked.push(Asked::new("with the other picker", envoy.address(), Some(other::PART), picked));
        other_envoy = Some(envoy);
    }
    for part in asked.iter().filter_map(|asked| asked.part) {
        space.cluster.pause_part(part).unwrap();
    }
    let mut added = Vec::new();
    for clients in CLIENTS {
        run(space, &mut asked, clients);
        println!("\nthrough Envoy, {clients} clients, {} rounds of {LASTS:?} each", asked[0].rounds.len());
        added.push(tell(&asked));
    }
    space.cluster.resume_part(&picker.part).unwrap();
    tell_failures("through Envoy", &picker);
    goal("p50 added for 1 client", &format!("{:.1?}", added[0][0]), &format!("<= {GOAL:?}"), added[0][0] <= GOAL);
    for (clients, added) in CLIENTS.iter().zip(&added) {
        let names = ["pointsman", "other picker"];
        let rows: Vec<(&str, Duration)> = names.into_iter().zip(added.iter().copied()).collect();
        keep(&format!("p50 that a picker adds, {clients} clients"), &rows);
    }
    drop((envoy, other_envoy));
    if asked.len() > 2 {
        space.cluster.kill_part(other::PART).unwrap();
    }
    picker.kill();
}

/// One of the compared variants.
struct Asked<'a> {
    name: &'static str,
    address: SocketAddr,
    /// The picker's name among the cluster's parts. It is paused while others are measured.
    part: Option<&'a str>,
    scenario: Scenario,
    rounds: Vec<Round>,
    cpu: Duration,
}

impl<'a> Asked<'a> {
    fn new(name: &'static str, address: SocketAddr, part: Option<&'a str>, questions: Vec<Question>) -> Self {
        let scenario = Scenario { questions: questions.into(), answer: ("\"usage\"", 1), connections: 1 };
        Self { name, address, part, scenario, rounds: Vec::new(), cpu: Duration::ZERO }
    }

    fn median(&self, value: fn(&Round) -> Duration) -> Duration {
        quantile(&self.rounds.iter().map(value).collect::<Vec<_>>(), 0.5)
    }

    fn round(&mut self, space: &TestNamespace<'_>) {
        if let Some(part) = self.part {
            space.cluster.resume_part(part).unwrap();
        }
        // After a pause, the picker's reports are old. The warm-up also opens all connections.
        self.scenario.round(self.address, WARM_UP);
        let cpu = || self.part.map(|part| taken_by_part(space.cluster, part).cpu()).unwrap_or_default();
        let before = cpu();
        let round = self.scenario.round(self.address, LASTS);
        let taken = cpu().saturating_sub(before);
        if let Some(part) = self.part {
            space.cluster.pause_part(part).unwrap();
        }
        self.cpu += taken;
        self.rounds.push(round);
    }
}

/// Measures all variants in turn. Each runs first equally often.
fn run(space: &TestNamespace<'_>, asked: &mut [Asked<'_>], clients: usize) {
    for asked in asked.iter_mut() {
        asked.rounds.clear();
        asked.cpu = Duration::ZERO;
        asked.scenario.connections = clients;
    }
    for number in 0..rounds(ROUNDS, ROUNDS_QUICK) {
        for at in 0..asked.len() {
            let place = (number + at) % asked.len();
            asked[place].round(space);
        }
    }
}

/// Prints the results, and returns the p50 that each picker adds.
fn tell(asked: &[Asked<'_>]) -> Vec<Duration> {
    let [without, pickers @ ..] = asked else { return Vec::new() };
    for asked in asked {
        let (p50, p99) = (asked.median(|round| round.p50), asked.median(|round| round.p99));
        let answers: u32 = asked.rounds.iter().map(|round| round.answers).sum();
        let cpu = asked.cpu / answers.max(1);
        println!("  {:<22} p50 {p50:>9.1?}, p99 {p99:>9.1?}, of {answers} requests; CPU of the picker per request: {cpu:.1?}", asked.name);
    }
    let added = |picker: &Asked<'_>| {
        let value = |value: fn(&Round) -> Duration| picker.median(value).saturating_sub(without.median(value));
        let (p50, p99) = (value(|round| round.p50), value(|round| round.p99));
        println!("  {:<22} p50 {p50:>9.1?}, p99 {p99:>9.1?} more than without a picker", picker.name);
        p50
    };
    pickers.iter().map(added).collect()
}
