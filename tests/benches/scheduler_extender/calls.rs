//! Calls an extender as kube-scheduler does, without a scheduler: one call after the other, on a persistent connection.

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

/// The number of the next pod: no two pods have the same uid.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The times of the calls for a pod.
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
    /// The template of all pods.
    template: &'a Value,
    /// The names of the candidate nodes.
    nodes: &'a [String],
}

impl<'a> Caller<'a> {
    pub(crate) async fn open(address: SocketAddr, template: &'a Value, nodes: &'a [String]) -> Self {
        Self { connection: Connection::open(address).await.unwrap(), template, nodes }
    }

    /// Sends the calls for a pod that is new to the extender, even if an earlier pod had the same name.
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

    /// The time of the response, and the response. Writing and reading JSON aren't included.
    async fn call(&mut self, path: &str, args: &Value) -> (Duration, Value) {
        let question = Question::new(path, args);
        let begun = Instant::now();
        self.connection.ask(&question).await.unwrap();
        let took = begun.elapsed();
        (took, serde_json::from_slice(self.connection.body()).unwrap())
    }
}
