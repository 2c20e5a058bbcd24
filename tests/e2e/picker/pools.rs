//! Several pools in one process.

use super::{Load, PATIENT, POOL, Servers, all_are_served, folder, request, send, space, start_envoy_for};
use pointsman_core::resource::INFERENCE_POOL;
use pointsman_tests::{PickerProcess, eventually, model_server::ModelServer};

#[tokio::test(flavor = "multi_thread")]
async fn a_picker_serves_several_pools_each_at_its_own_port_and_a_missing_one_keeps_nobody_from_the_others() {
    let (here, there) = (space("pools").await, space("pools").await);
    PickerProcess::grant(&there.0, &here.0);
    let our_servers = Servers::start(&here, 2, |_| {}).await;
    let their_servers = Servers::start(&there, 1, |_| {}).await;
    let [ours, theirs, missing] =
        [format!("{}/{POOL}", here.0.name), format!("{}/{POOL}", there.0.name), format!("{}/missing", here.0.name)];
    let pools = [format!("{POOL}:0"), format!("{theirs}:0"), "missing:0".to_owned()];
    let flags: Vec<&str> = pools.iter().flat_map(|pool| ["--pool", pool]).chain(PATIENT).collect();
    let picker = PickerProcess::start_with(&here.0, &flags).await;
    eventually("it is ready", async || (picker.ready()?.0 == 200).then_some(())).await;
    picker.knows_of(&ours, 2).await;
    picker.knows_of(&theirs, 1).await;
    let [our_envoy, their_envoy, lost] = [
        start_envoy_for(picker.address_of(&ours).await, &folder("envoy", &here)).await,
        start_envoy_for(picker.address_of(&theirs).await, &folder("envoy", &there)).await,
        start_envoy_for(picker.address_of(&missing).await, &folder("envoy-missing", &here)).await,
    ];

    // Each pool only gets the requests of its own port.
    let seen = |servers: &Servers<'_>| servers.running.values().map(ModelServer::requests_seen).sum::<u64>();
    let (before, load) = (seen(&their_servers), Load::start(our_envoy.address(), 4));
    load.goes_on(40).await;
    all_are_served(&load.end().await);
    assert_eq!(seen(&their_servers), before, "these requests are for another pool");
    let before = seen(&our_servers);
    assert_eq!(send(&their_envoy, &request("for the other pool")).await.status, 200);
    assert_eq!(seen(&our_servers), before);
    let refused = send(&lost, &request("for nobody")).await;
    assert_eq!((refused.status, refused.header("x-llm-d-request-dropped-reason")), (503, "rejected-no-endpoints"));

    // Decisions name their pools.
    let decisions = eventually("all three are recorded", async || {
        let decisions = picker.decisions();
        let is_recorded = |pool: &String| decisions.iter().any(|decision| decision["pool"] == pool.as_str());
        [&ours, &theirs, &missing].into_iter().all(is_recorded).then_some(decisions)
    })
    .await;
    let decision = decisions.iter().find(|decision| decision["pool"] == theirs.as_str()).unwrap();
    let id = decision["request"].as_str().unwrap();
    let explained = here.0.cluster.pointsman(&["explain", "request", id, "--picker", picker.pages()]).ok();
    assert!(explained.contains(&theirs), "{explained}");

    for (service, expected) in [
        ("", Ok(true)),
        ("liveness", Ok(true)),
        (&*ours, Ok(true)),
        (&*theirs, Ok(true)),
        (&*missing, Ok(false)),
        ("a/b", Err("5".to_owned())),
    ] {
        assert_eq!(picker.health(service).await, expected, "{service}");
    }
    // A deleted pool doesn't affect the others.
    here.delete(&INFERENCE_POOL, POOL).await;
    eventually("its pool is gone", async || (picker.health(&ours).await == Ok(false)).then_some(())).await;
    assert_eq!((picker.health("").await, picker.ready().unwrap().0), (Ok(true), 200));
    assert_eq!(send(&their_envoy, &request("for the other pool again")).await.status, 200);
    picker.stop();
}
