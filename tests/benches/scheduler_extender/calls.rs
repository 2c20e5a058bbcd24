//! Asks an extender as kube-scheduler does, without a scheduler: one call after the other, on a connection that is kept.

use crate::objects::{SERVICE, SERVICES, service_name};
use pointsman_tests::load::{Connection, Question};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// The rank of the best node.
const HIGHEST: i64 = 10;

/// The next pod's number: no two have the same uid.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// What the calls about a pod took.
pub(crate) struct Asked {
    pub(crate) filter: Duration,
    pub(crate) prioritize: Duration,
}

impl Asked {
    pub(crate) fn both(&self) -> Duration {
        self.filter + self.prioritize
    }
}

/// A connection to the extender.
pub(crate) struct Caller<'a> {
    connection: Connection,
    /// The pod that all are copies of.
    template: &'a Value,
    /// The nodes that are offered.
    nodes: &'a [String],
}

impl<'a> Caller<'a> {
    pub(crate) async fn open(address: SocketAddr, template: &'a Value, nodes: &'a [String]) -> Self {
        Self { connection: Connection::open(address).await.unwrap(), template, nodes }
    }

    /// Asks about a pod that is new to the extender, also if another one has had its name.
    pub(crate) async fn ask(&mut self, name: &str) -> Asked {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut pod = self.template.clone();
        let metadata = &mut pod["metadata"];
        metadata["name"] = name.into();
        metadata["uid"] = format!("00000000-0000-4000-8000-{number:012}").into();
        metadata["labels"][SERVICE] = service_name(number % SERVICES).into();
        let (filter, mut filtered) = self.call("/filter", &json!({"Pod": pod, "Nodes": null, "NodeNames": self.nodes})).await;
        let names = filtered["NodeNames"].take();
        assert_eq!(names.as_array().map(Vec::len), Some(self.nodes.len()), "{filtered}");
        let (prioritize, ranks) = self.call("/prioritize", &json!({"Pod": pod, "Nodes": null, "NodeNames": names})).await;
        let highest = ranks.as_array().into_iter().flatten().filter_map(|rank| rank["Score"].as_i64()).max();
        assert_eq!(highest, Some(HIGHEST), "{ranks}");
        Asked { filter, prioritize }
    }

    /// What the answer took, and the answer. JSON is written before that, and read afterwards.
    async fn call(&mut self, path: &str, args: &Value) -> (Duration, Value) {
        let question = Question::new(path, args);
        let begun = Instant::now();
        self.connection.ask(&question).await.unwrap();
        let took = begun.elapsed();
        (took, serde_json::from_slice(self.connection.body()).unwrap())
    }
}
