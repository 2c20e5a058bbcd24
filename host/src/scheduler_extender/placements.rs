//! `GET /placements`: the last placements and their reasons, for `pointsman explain pod/NAME`.

use super::Extender;
use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use pointsman_core::{
    decide::{
        Standing,
        scoring::{Candidates, Explained},
    },
    placement::record::Placement,
};
use pointsman_sandbox::{
    isolate::isolated,
    point::{Question, scoring::Term},
    sync::locked,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::{sync::Semaphore, task::spawn_blocking};

/// The path.
pub const PATH: &str = "/placements";

/// The maximum size of a response, in bytes. Older placements are left out.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The maximum number of nodes that are explained at once.
pub const MAX_EXPLAINED: usize = 16;

/// The default number of placements in a response, and the maximum that a request may set.
const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 1000;

/// A response. It is written from references to placements.
#[derive(Debug, Serialize, Deserialize)]
pub struct PlacementsAnswer<P = Placement> {
    /// The placements, newest first.
    pub placements: Vec<P>,
    /// The explained nodes of the newest placement.
    #[serde(default)]
    pub explained: Vec<ExplainedNode>,
    /// Why no node is explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The composition of a node's score.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExplainedNode {
    /// The node.
    pub node: String,
    /// The explanation of each plugin.
    pub plugins: Vec<ExplainedByPlugin>,
}

/// A plugin's explanation of a node's score.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExplainedByPlugin {
    /// The plugin.
    pub plugin: String,
    /// The parts of the score.
    #[serde(default)]
    pub terms: Vec<Term>,
    /// Why there is no explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl From<Explained> for ExplainedByPlugin {
    fn from(Explained { plugin, terms }: Explained) -> Self {
        match terms {
            Ok(terms) => Self { plugin, terms, problem: None },
            Err(error) => Self { plugin, terms: Vec::new(), problem: Some(error.to_string()) },
        }
    }
}

/// The parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    namespace: Option<String>,
    name: Option<String>,
    explain: Vec<String>,
    limit: usize,
}

impl Wanted {
    fn parse(query: &str) -> Result<Self, String> {
        let mut wanted = Self { namespace: None, name: None, explain: Vec::new(), limit: DEFAULT_LIMIT };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "namespace" => wanted.namespace = Some(value.into_owned()),
                "name" => wanted.name = Some(value.into_owned()),
                "explain" => wanted.explain.push(value.into_owned()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    wanted.limit = limit.ok_or_else(|| format!("limit: set a number from 1 to {MAX_LIMIT}"))?;
                }
                _ => return Err("the only parameters are namespace, name, explain and limit".to_owned()),
            }
        }
        if wanted.namespace.is_some() != wanted.name.is_some() {
            return Err("namespace and name: set both or neither".to_owned());
        }
        if !wanted.explain.is_empty() && wanted.name.is_none() {
            return Err("explain: also set namespace and name".to_owned());
        }
        if wanted.explain.len() > MAX_EXPLAINED {
            return Err(format!("explain: repeat it at most {MAX_EXPLAINED} times"));
        }
        Ok(wanted)
    }
}

/// The state of the route. One response is written at a time: schedulers take precedence.
#[derive(Clone, Debug)]
struct Served {
    extender: Arc<Extender>,
    turn: Arc<Semaphore>,
}

/// The route.
pub fn routes(extender: Arc<Extender>) -> Router {
    Router::new().route(PATH, get(answer).with_state(Served { extender, turn: Arc::new(Semaphore::new(1)) }))
}

async fn answer(State(Served { extender, turn }): State<Served>, RawQuery(query): RawQuery) -> Response {
    let wanted = match Wanted::parse(query.as_deref().unwrap_or_default()) {
        Ok(wanted) => wanted,
        Err(sentence) => return (StatusCode::BAD_REQUEST, sentence + "\n").into_response(),
    };
    let _turn = turn.acquire().await;
    // Some megabytes of JSON would block a thread for calls.
    match spawn_blocking(move || isolated(|| extender.placements_answer(&wanted))).await {
        Ok(Ok(json)) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("writing the placements failed: {error}\n")).into_response(),
    }
}

impl Extender {
    fn placements_answer(&self, wanted: &Wanted) -> Vec<u8> {
        let placements: Vec<Arc<Placement>> = {
            let known = locked(&self.placements);
            match (&wanted.namespace, &wanted.name) {
                (Some(namespace), Some(name)) => known.find(namespace, name).into_iter().take(wanted.limit).collect(),
                _ => known.newest().take(wanted.limit).cloned().collect(),
            }
        };
        let (mut explained, mut note) = (Vec::new(), None);
        if let Some(newest) = placements.first().filter(|_| !wanted.explain.is_empty()) {
            match self.explained(newest, &wanted.explain) {
                Ok(known) => explained = known,
                Err(why) => note = Some(why),
            }
        }
        let mut answer = PlacementsAnswer { placements: placements.iter().map(|placement| &**placement).collect(), explained, note };
        loop {
            // Plain data always serializes.
            let json = serde_json::to_vec(&answer).unwrap_or_default();
            if json.len() <= MAX_ANSWER_BYTES || answer.placements.len() <= 1 {
                return json;
            }
            answer.placements.truncate(answer.placements.len() / 2);
        }
    }

    /// The plugins' explanations of nodes of a placement, from its record. Blocks.
    fn explained(&self, placement: &Placement, nodes: &[String]) -> Result<Vec<ExplainedNode>, String> {
        let policies = self.policies();
        let pinned = policies.pin(Standing::New);
        if pinned.set().digest().to_string() != placement.set {
            return Err(format!("another policy set is active now, and {} was active then: request a newer placement", placement.set));
        }
        let subject = placement.subject.as_ref().ok_or("the labels of the pod are too large to be recorded, which select the plugins")?;
        let features: Vec<&str> = placement.features.iter().map(String::as_str).collect();
        let candidates = Candidates { features: &features, values: &placement.values };
        let explain = |node: &String| {
            let row = placement.nodes.iter().position(|known| known == node)?;
            let explained = pinned.explain(subject, Question::NodePlacement, candidates, row);
            Some(ExplainedNode { node: node.clone(), plugins: explained.into_iter().map(ExplainedByPlugin::from).collect() })
        };
        Ok(nodes.iter().filter_map(explain).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_pod_whole_and_a_bounded_number() {
        let wanted = |query: &str| Wanted::parse(query);
        let all = Wanted { namespace: None, name: None, explain: Vec::new(), limit: DEFAULT_LIMIT };
        assert_eq!(wanted(""), Ok(all.clone()));
        let one = Wanted {
            namespace: Some("chat".to_owned()),
            name: Some("a b".to_owned()),
            explain: vec!["n1".to_owned(), "n2".to_owned()],
            limit: 1,
        };
        assert_eq!(wanted("namespace=chat&name=a%20b&explain=n1&explain=n2&limit=1"), Ok(one));
        for wrong in ["limit=0", "limit=1001", "name=a", "namespace=a", "explain=n1", "pod=a"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
        assert!(wanted(&format!("namespace=a&name=b{}", "&explain=n".repeat(MAX_EXPLAINED + 1))).is_err());
    }
}
