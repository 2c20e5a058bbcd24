//! Our CRDs on a real API server.

use crate::objects::{api_of, create, delete, read};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{conditions::is_crd_established, wait::Condition},
};
use pointsman_crds::KINDS;
use pointsman_harness::lost;
use pointsman_tests::{TestCluster, fixtures};

#[tokio::test]
async fn every_crd_is_installed_and_served() {
    let cluster = TestCluster::shared();
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    for kind in KINDS {
        let name = (kind.crd)().name_any();
        let crd = api.get(&name).await.unwrap();
        assert!(is_crd_established().matches_object(Some(&crd)), "{name}: {:?}", crd.status);
        let problems: Vec<_> =
            crd.status.iter().flat_map(|status| status.conditions.iter().flatten()).filter(|c| c.type_ == "NonStructuralSchema").collect();
        assert!(problems.is_empty(), "{name}: {problems:?}");
    }
}

#[tokio::test]
async fn installing_again_changes_nothing() {
    let cluster = TestCluster::shared();
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    let versions = async || -> Vec<_> {
        api.list(&ListParams::default()).await.unwrap().into_iter().map(|crd| (crd.name_any(), crd.resource_version())).collect()
    };
    let before = versions().await;
    let said = cluster.pointsman(&["crds", "install", "--all"]).ok();
    assert_eq!(said.lines().filter(|line| line.ends_with(" unchanged")).count(), KINDS.len(), "{said}");
    assert_eq!(versions().await, before);
    assert!(cluster.pointsman(&["crds", "check", "--all"]).success);
}

#[tokio::test]
async fn every_example_is_accepted_and_reads_back_without_a_field_lost() {
    let namespace = TestCluster::shared().namespace("examples").await;
    let mut seen = std::collections::BTreeSet::new();
    for (file, example) in fixtures::examples() {
        let kind = example["kind"].as_str().unwrap();
        let what = format!("{file}: {kind} {}", example["metadata"]["name"]);
        let api = api_of(&namespace.client, kind, &namespace.name);
        let stored = create(&api, &example).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(lost(&example, &stored), Vec::<String>::new(), "the API server dropped fields of {what}");
        let kept = read(&stored).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(lost(&stored, &kept), Vec::<String>::new(), "our types have no place for fields of {what}");
        delete(&api, &example).await;
        seen.insert(kind.to_owned());
    }
    let without: Vec<_> = KINDS.iter().map(|kind| (kind.resource)().kind).filter(|kind| !seen.contains(kind)).collect();
    assert!(without.is_empty(), "these kinds have no example: {without:?}");
}
