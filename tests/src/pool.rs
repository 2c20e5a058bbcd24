//! Control planes that tests use one after the other. To start one takes as much CPU time as most tests that use it; to restore what it held at
//! its start takes a tenth of a second.

use crate::{
    TestCluster,
    cluster::{OwnClusterPermit, bare},
};
use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Mutex, PoisonError},
};

/// Those that no test uses now. They end with this process.
static IDLE: Mutex<VecDeque<TestCluster>> = Mutex::new(VecDeque::new());

/// An API server and its storage with our CRDs, the shipped roles and the host's namespace, for one test alone.
#[derive(Debug)]
pub(crate) struct PooledCluster(Option<TestCluster>);

impl PooledCluster {
    /// Takes one that is idle, or starts one.
    pub(crate) fn take() -> Self {
        let permit = OwnClusterPermit::take();
        // What a former test did as it ended may have come after the cluster was given back, so it is restored once more.
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
        // Where a test failed or changed what can't be restored, the cluster ends as others do.
        if !std::thread::panicking() && cluster.restore().is_ok() {
            cluster.end();
            idle().push_back(cluster);
        }
    }
}
