//! Allocates memory to models, on the leader: collects the inputs, allocates, writes the reservations, and only then publishes the entries
//! for plans.

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

/// The inputs of [`run`].
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// Whether this host is the leader.
    pub leadership: Leadership,
    /// The world, which has the models and publishes the entries for plans.
    pub shared: Shared,
    /// The subjects that this host serves.
    pub claims: Claims,
    /// The policies, which rank models.
    pub policies: Arc<Policies>,
    /// Counts up when another policy set becomes active.
    pub changes: watch::Receiver<u64>,
    /// The namespace of the hosts, where reservations are written.
    pub namespace: String,
    /// The results of plans.
    pub settled: Arc<Settled>,
    /// The reasons why something isn't listed yet, or why the policies aren't active.
    pub obstacles: [watch::Receiver<Option<String>>; 2],
}

/// The reservation with which the objects of each stopping model were last written: no earlier plan is still in progress.
#[derive(Debug)]
pub struct Settled(watch::Sender<BTreeMap<ObjectKey, u64>>);

impl Default for Settled {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Settled {
    /// Records the reservation of a model.
    pub fn note(&self, model: &ObjectKey, since: u64) {
        self.0.send_if_modified(|settled| settled.insert(model.clone(), since) != Some(since));
    }
}

/// Allocates while this host is the leader. It never ends.
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
        // Another host is the leader now. This host doesn't know its entries.
        inputs.settled.0.send_modify(BTreeMap::clear);
        inputs.shared.change(|world| {
            world.set_allocated(&BTreeMap::new());
            world.set_unallocated(None);
        });
    }
}
