//! Our CRDs on a real API server.

use crate::objects::{api_of, create, delete, read};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::PostParams,
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
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn an_optional_kind_is_installed_only_when_asked_for_and_a_crd_that_others_took_over_stays_theirs() {
    let cluster = TestCluster::bare(&[]);
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    cluster.pointsman(&["crds", "install"]).ok();
    assert!(api.get_opt("trainingjobs.ome.io").await.unwrap().is_none());
    cluster.pointsman(&["crds", "install", "TrainingJob"]).ok();
    assert!(api.get_opt("trainingjobs.ome.io").await.unwrap().is_some());

    let name = "basemodels.ome.io";
    let mut theirs = api.get(name).await.unwrap();
    theirs.spec.names.short_names = Some(vec!["theirs".to_owned()]);
    let theirs = api.replace(name, &PostParams { field_manager: Some("ome".to_owned()), ..PostParams::default() }, &theirs).await.unwrap();
    let said = cluster.pointsman(&["crds", "install"]).ok();
    let line = said.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line.ends_with("not managed, stays unchanged: compatible"), "{line}");
    assert_eq!(api.get(name).await.unwrap().metadata.generation, theirs.metadata.generation);
}

#[tokio::test]
async fn a_new_inference_objective_has_the_default_condition_of_its_page() {
    let namespace = TestCluster::shared().namespace("defaults").await;
    let api = api_of(&namespace.client, "InferenceObjective", &namespace.name);
    let object = fixtures::base("InferenceObjective");
    // The response to the create request, because the host of another test may replace the object.
    let stored = create(&api, &object).await.unwrap();
    let condition = &stored["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"], &condition["reason"]), (&"Ready".into(), &"Unknown".into(), &"Pending".into()));
}

#[tokio::test]
async fn installing_again_changes_nothing() {
    let cluster = TestCluster::shared();
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    let versions = async || {
        let mut versions = Vec::new();
        for kind in KINDS {
            versions.push(api.get(&(kind.crd)().name_any()).await.unwrap().metadata.generation);
        }
        versions
    };
    let before = versions().await;
    let said = cluster.pointsman(&["crds", "install", "--all"]).ok();
    assert_eq!(said.lines().filter(|line| line.ends_with(" unchanged")).count(), KINDS.len(), "{said}");
    assert_eq!(said.lines().last(), Some(&*format!("unchanged: {}", KINDS.len())));
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
