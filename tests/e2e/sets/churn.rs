//! A plugin that is pushed again and again: nobody else's update waits for it.

use super::{LABELS, bring, by_itself, digest, next, start};
use pointsman_tests::{PolicyCluster, eventually, plugin_bytes, with_other_digest};
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_plugin_that_is_pushed_every_moment_delays_no_other_plugin_s_update() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let labels = [plugin_bytes(LABELS), next()];
    bring(&cluster, "labels", &labels[0], by_itself()).await;
    cluster.active("labels", &digest(&labels[0])).await;
    let cost = plugin_bytes("pointsman-example-rust-cost");
    bring(&cluster, "cost", &cost, by_itself()).await;
    cluster.active("cost", &digest(&cost)).await;

    let pushed = AtomicUsize::new(0);
    let pushing = async {
        // At once again: while one version is loaded, the next one is there.
        loop {
            let number = pushed.load(Ordering::Relaxed) + 1;
            cluster.config_map("labels", &with_other_digest(&labels[number % 2], number)).await;
            pushed.store(number, Ordering::Relaxed);
        }
    };
    let update = async {
        eventually("it is pushed again and again", async || (pushed.load(Ordering::Relaxed) > 10).then_some(())).await;
        let newer = with_other_digest(&cost, 1);
        cluster.config_map("cost", &newer).await;
        cluster.active("cost", &digest(&newer)).await;
    };
    // The pushes go on until the other one's update is active.
    tokio::select! {
        () = update => {}
        () = pushing => {}
    }

    // Once it is quiet its newest version becomes active too.
    let last = pushed.into_inner();
    let [either, or] = [last, last + 1].map(|number| digest(&with_other_digest(&labels[number % 2], number)));
    cluster
        .status("labels", "its newest version is active", |status| {
            let active = status.active.as_ref().map(|active| &*active.digest);
            active == Some(&*either) || active == Some(&*or)
        })
        .await;
    host.stop();
}
