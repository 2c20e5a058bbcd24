//! Campaigns against an API server with one lease, in a time that advances when all tasks wait.

use super::*;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::{sync::oneshot, task::JoinHandle};

/// An API server with one lease and its versions.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    lease: Option<Lease>,
    version: u64,
    writes: u64,
    mood: Mood,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Mood {
    #[default]
    Well,
    /// It refuses every request.
    Failing,
    /// It never responds.
    Hanging,
}

fn status(code: StatusCode, reason: &str) -> Response {
    let body = json!({ "kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code.as_u16() });
    (code, body.to_string()).into_response()
}

async fn answer(State(server): State<Server>, method: Method, body: Bytes) -> Response {
    match server.mood() {
        Mood::Hanging => std::future::pending().await,
        Mood::Failing => return status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        Mood::Well => {}
    }
    let mut stored = server.0.lock().unwrap();
    let version = stored.lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
    if method != Method::GET {
        let mut lease: Lease = serde_json::from_slice(&body).unwrap();
        match (method == Method::POST, &version) {
            (true, Some(_)) => return status(StatusCode::CONFLICT, "AlreadyExists"),
            (false, None) => return status(StatusCode::NOT_FOUND, "NotFound"),
            (false, version) if lease.metadata.resource_version != *version => return status(StatusCode::CONFLICT, "Conflict"),
            _ => {}
        }
        stored.version += 1;
        stored.writes += 1;
        lease.metadata.resource_version = Some(stored.version.to_string());
        stored.lease = Some(lease);
    }
    stored
        .lease
        .as_ref()
        .map_or_else(|| status(StatusCode::NOT_FOUND, "NotFound"), |lease| serde_json::to_string(lease).unwrap().into_response())
}

impl Server {
    fn client(&self) -> Client {
        Client::new(Router::new().fallback(answer).with_state(self.clone()), "default")
    }

    fn mood(&self) -> Mood {
        self.0.lock().unwrap().mood
    }

    fn is(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    /// The holder and the number of transitions.
    fn record(&self) -> (Value, Value) {
        let lease = serde_json::to_value(self.0.lock().unwrap().lease.as_ref().unwrap()).unwrap();
        (lease["spec"]["holderIdentity"].clone(), lease["spec"]["leaseTransitions"].clone())
    }

    fn joins(&self, identity: &str) -> Host {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            stopped.await.ok();
        };
        let (leadership, campaign) =
            campaign(self.client(), "pointsman", "host", identity, Timing::default(), Agreement::default(), stopped);
        Host { leadership, stop, campaign: tokio::spawn(campaign) }
    }
}

struct Host {
    leadership: Leadership,
    stop: oneshot::Sender<()>,
    campaign: JoinHandle<()>,
}

#[tokio::test(start_paused = true)]
async fn one_of_several_leads_and_another_follows_at_once_when_it_stops() {
    let server = Server::default();
    let mut first = server.joins("first");
    first.leadership.acquired().await;
    let mut second = server.joins("second");
    sleep(Duration::from_mins(5)).await;
    assert!(first.leadership.held() && !second.leadership.held());
    assert_eq!(server.record(), (json!("first"), json!(0)));

    first.stop.send(()).unwrap();
    first.campaign.await.unwrap();
    assert!(!first.leadership.held());
    let since = Instant::now();
    second.leadership.acquired().await;
    assert!(since.elapsed() <= Timing::default().retry);
    assert_eq!(server.record(), (json!("second"), json!(1)));
    second.stop.send(()).unwrap();
    second.campaign.await.unwrap();
    assert_eq!(server.record(), (Value::Null, json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_after_its_lease_and_not_before() {
    let server = Server::default();
    let mut first = server.joins("first");
    first.leadership.acquired().await;
    let mut second = server.joins("second");
    sleep(Duration::from_secs(1)).await;
    first.campaign.abort();
    first.campaign.await.unwrap_err();
    assert!(!first.leadership.held());
    let since = Instant::now();
    second.leadership.acquired().await;
    assert!(since.elapsed() > Duration::from_secs(13), "{:?}", since.elapsed());
    assert_eq!(server.record(), (json!("second"), json!(1)));
}

#[tokio::test(start_paused = true)]
async fn leadership_ends_before_the_lease_when_the_api_server_is_away_and_comes_back_with_it() {
    for mood in [Mood::Failing, Mood::Hanging] {
        let server = Server::default();
        let mut host = server.joins("host");
        host.leadership.acquired().await;
        server.is(mood);
        let since = Instant::now();
        host.leadership.lost().await;
        assert!(!host.leadership.held());
        assert!(since.elapsed() <= Timing::default().renew);
        // Waiting for a past event ends at once.
        host.leadership.lost().await;

        sleep(Duration::from_mins(1)).await;
        server.is(Mood::Well);
        host.leadership.acquired().await;
        assert_eq!(server.record(), (json!("host"), json!(0)));
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_never_two_leaders() {
    let server = Server::default();
    let hosts: Vec<Host> = (0..5).map(|number| server.joins(&format!("host-{number}"))).collect();
    let mut led = 0;
    for minute in 0..30 {
        server.is(match minute % 3 {
            0 => Mood::Well,
            1 => Mood::Failing,
            _ => Mood::Hanging,
        });
        for _ in 0..60 {
            sleep(Duration::from_secs(1)).await;
            let leaders = hosts.iter().filter(|host| host.leadership.held()).count();
            assert!(leaders <= 1, "{leaders}");
            led += leaders;
        }
    }
    // In one minute of three, give or take some seconds.
    assert!((300..900).contains(&led), "{led}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_edited_or_deleted_stays_with_its_leader_and_one_that_is_taken_does_not() {
    let server = Server::default();
    let mut host = server.joins("host");
    host.leadership.acquired().await;
    let edit = |change: &dyn Fn(&mut Lease)| {
        let mut stored = server.0.lock().unwrap();
        stored.version += 1;
        let version = stored.version.to_string();
        let lease = stored.lease.as_mut().unwrap();
        lease.metadata.resource_version = Some(version);
        change(lease);
    };
    edit(&|lease| lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
    sleep(Duration::from_mins(1)).await;
    assert!(host.leadership.held());
    assert!(server.0.lock().unwrap().lease.as_ref().unwrap().metadata.labels.is_some());
    server.0.lock().unwrap().lease = None;
    sleep(Duration::from_mins(1)).await;
    assert!(host.leadership.held());
    edit(&|lease| lease.spec.as_mut().unwrap().holder_identity = Some("other".to_owned()));
    host.leadership.lost().await;
    assert_eq!(server.record().0, json!("other"));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_writes_nothing() {
    let server = Server::default();
    let mut first = server.joins("first");
    first.leadership.acquired().await;
    first.campaign.abort();
    first.campaign.await.unwrap_err();
    let second = server.joins("second");
    sleep(Duration::from_secs(14)).await;
    assert_eq!(server.0.lock().unwrap().writes, 1);
    // It has nothing to release, so it doesn't wait for an unreachable API server.
    server.is(Mood::Hanging);
    let since = Instant::now();
    second.stop.send(()).unwrap();
    second.campaign.await.unwrap();
    assert_eq!(since.elapsed(), Duration::ZERO);
}

#[test]
fn a_timing_that_loses_the_lease_by_itself_is_refused() {
    assert_eq!(Timing::default().flaw(), None);
    let second = Duration::from_secs(1);
    assert!(Timing { lease: second, ..Timing::default() }.flaw().unwrap().contains("must be longer"));
    assert!(Timing { retry: second * 6, ..Timing::default() }.flaw().unwrap().contains("twice"));
    assert!(Timing { retry: Duration::ZERO, ..Timing::default() }.flaw().is_some());
}
