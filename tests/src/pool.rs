//! Control planes that tests use one after the other. The start of one takes as much CPU time as most of these tests; restoring its initial
//! state takes a tenth of a second.

use crate::{
    TestCluster,
    cluster::{OwnClusterPermit, bare},
};
use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Mutex, PoisonError},
};

/// The control planes that no test is using. They end with this process.
static IDLE: Mutex<VecDeque<TestCluster>> = Mutex::new(VecDeque::new());

/// An API server and its storage with our CRDs, the shipped roles and the host's namespace, for one test at a time.
#[derive(Debug)]
pub(crate) struct PooledCluster(Option<TestCluster>);

impl PooledCluster {
    /// Takes an idle one, or starts one.
    pub(crate) fn take() -> Self {
        let permit = OwnClusterPermit::take();
        // Late requests of the previous test may have arrived after it released the cluster, so it is restored again.
        while let Some(mut cluster) = idle().pop_front() {
            if cluster.restore().is_ok() {
                cluster.begin(permit);
                return Self(Some(cluster));
            }
        }
        drop(permit);
        let cluster = TestCluster::with_our_crds(bare(&[]));
        cluster.snapshot().unwrap_or_else(|error| panic!("{error}"));
        Self(Some(cluster))
    }
}

fn idle() -> std::sync::MutexGuard<'static, VecDeque<TestCluster>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for PooledCluster {
    type Target = TestCluster;
    fn deref(&self) -> &TestCluster {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for PooledCluster {
    fn drop(&mut self) {
        let Some(mut cluster) = self.0.take() else { return };
        // If the test failed, or changed something that can't be restored, the cluster ends as others do.
        if !std::thread::panicking() && cluster.restore().is_ok() {
            cluster.end();
            idle().push_back(cluster);
        }
    }
}
