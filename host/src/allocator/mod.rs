//! Decides which models have memory, on the leader: reads what an allocation is about, has it made, writes what it reserves, and only then gives
//! the plans their entries.

mod history;
mod leading;
mod places;
mod requests;
mod steps;
mod stores;

pub(crate) use requests::{annotate, objects, some_at_once};

use crate::{leader::Leadership, watch::Shared};
use kube::Client;
use leading::Leading;
use pointsman_core::{claims::Claims, decide::Policies, world::ObjectKey};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// What it needs.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// Whether this host leads.
    pub leadership: Leadership,
    /// What is known of the models, and where plans read what was decided.
    pub shared: Shared,
    /// Which of them are ours.
    pub claims: Claims,
    /// What decides which of two is worth more.
    pub policies: Arc<Policies>,
    /// Counts up when another set decides.
    pub changes: watch::Receiver<u64>,
    /// The namespace of the hosts, where reservations are written.
    pub namespace: String,
    /// What plans have brought about.
    pub settled: Arc<Settled>,
    /// What keeps everything from being known, and the policies from being in force.
    pub obstacles: [watch::Receiver<Option<String>>; 2],
}

/// With which reservation the objects of models that stop were last written: no plan from before is on its way any more.
#[derive(Debug)]
pub struct Settled(watch::Sender<BTreeMap<ObjectKey, u64>>);

impl Default for Settled {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Settled {
    /// Notes it of a model.
    pub fn note(&self, model: &ObjectKey, since: u64) {
        self.0.send_if_modified(|settled| settled.insert(model.clone(), since) != Some(since));
    }
}

/// Allocates whenever this host leads. It never ends.
pub async fn run(inputs: Inputs) {
    let mut leadership = inputs.leadership.clone();
    let inputs = Arc::new(inputs);
    loop {
        leadership.acquired().await;
        let mut leading = Leading::new(Arc::clone(&inputs));
        let [mut listed, mut in_force] = inputs.obstacles.clone();
        tokio::select! {
            () = leadership.lost() => {}
            () = async {
                if listed.wait_for(Option::is_none).await.is_ok() && in_force.wait_for(Option::is_none).await.is_ok() {
                    leading.run().await;
                }
                std::future::pending::<()>().await;
            } => {}
        }
        // Another host decides now. What it says isn't known here.
        inputs.settled.0.send_modify(BTreeMap::clear);
        inputs.shared.change(|world| {
            world.set_allocated(&BTreeMap::new());
            world.set_unallocated(None);
        });
    }
}
