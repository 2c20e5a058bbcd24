//! The view of a user with kubectl.

use crate::objects::{api_of, create};
use pointsman_crds::KINDS;
use pointsman_tests::{TestCluster, fixtures};

#[tokio::test]
async fn every_kind_answers_to_its_short_names_and_category() {
    let cluster = TestCluster::shared();
    let listed = cluster.kubectl(&["api-resources", "--categories=pointsman", "--no-headers", "-o", "name"]).ok();
    let wide = cluster.kubectl(&["api-resources", "--no-headers", "-o", "wide"]).ok();
    for kind in KINDS {
        let crd = (kind.crd)();
        let full = format!("{}.{}", crd.spec.names.plural, crd.spec.group);
        assert!(listed.lines().any(|line| line == full), "{full} is not in the category: {listed}");
        let short = crd.spec.names.short_names.unwrap_or_default();
        assert!(!short.is_empty(), "{full} has no short name");
        for name in short {
            let is_ours =
                |line: &&str| line.starts_with(&format!("{} ", crd.spec.names.plural)) && line.contains(&format!(" {}/", crd.spec.group));
            let ours = wide.lines().find(is_ours).unwrap();
            assert!(ours.contains(&name), "{ours}");
            // If two kinds share a short name, kubectl silently resolves it to the wrong one.
            let said = cluster.kubectl(&["get", &name, "--all-namespaces", "-o", "name"]);
            assert!(said.success && !said.stderr.contains("could also match"), "{name}: {}", said.stderr);
        }
    }
}

#[tokio::test]
async fn the_category_lists_objects_of_several_kinds() {
    let namespace = TestCluster::shared().namespace("category").await;
    for kind in ["InferenceService", "LLMInferenceService", "InferenceModel", "BenchmarkJob"] {
        create(&api_of(&namespace.client, kind, &namespace.name), &fixtures::base(kind)).await.unwrap();
    }
    let said = namespace.cluster.kubectl(&["get", "pointsman", "-n", &namespace.name, "-o", "name"]).ok();
    for kind in [
        "inferenceservice.ome.io/",
        "llminferenceservice.serving.kserve.io/",
        "inferencemodel.inference.eh-ops.io/",
        "benchmarkjob.ome.io/",
    ] {
        assert!(said.lines().any(|line| line.starts_with(kind)), "{kind}: {said}");
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn every_field_is_explained() {
    let cluster = TestCluster::shared();
    let said = cluster.kubectl(&["explain", "inferenceservice.spec.engine.minReplicas"]).ok();
    assert!(said.contains("integer") && said.contains("DESCRIPTION"), "{said}");
    for kind in KINDS {
        let crd = (kind.crd)();
        let version = &crd.spec.versions[0].name;
        let said = cluster
            .kubectl(&["explain", &format!("{}.spec", crd.spec.names.plural), &format!("--api-version={}/{version}", crd.spec.group)])
            .ok();
        assert!(!said.contains("<no description>") && !said.contains("<empty>"), "{}: {said}", crd.spec.names.kind);
    }
}

#[tokio::test]
async fn the_selectors_of_the_labels_page_find_the_page_s_objects() {
    let namespace = TestCluster::shared().namespace("selectors").await;
    for (_, example) in fixtures::examples() {
        let (kind, name) = (example["kind"].as_str().unwrap(), example["metadata"]["name"].as_str().unwrap());
        let from_the_page = [("InferenceService", "llama-chat"), ("TrainingJob", "bert-finetune"), ("BenchmarkJob", "performance-test")];
        if from_the_page.contains(&(kind, name)) {
            create(&api_of(&namespace.client, kind, &namespace.name), &example).await.unwrap();
        }
    }
    let get = |kind: &str, selector: &str| {
        let said = namespace.cluster.kubectl(&["get", kind, "-n", &namespace.name, "-l", selector]).ok();
        said.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(get("inferenceservice", "serving.ome.io/model=llama-7b-instruct"), ["llama-chat"]);
    assert_eq!(get("trainingjob", "training.ome.io/framework=pytorch"), ["bert-finetune"]);
    assert_eq!(get("benchmarkjob", "benchmark.ome.io/target-service=llama-chat"), ["performance-test"]);
    assert_eq!(get("inferenceservice", "serving.ome.io/model=another"), Vec::<String>::new());
    // No object has this label yet: only the objects of services get it.
    assert!(namespace.cluster.kubectl(&["get", "all", "-n", &namespace.name, "-l", "ome.io/managed-by=ome-controller"]).success);
}

#[tokio::test]
async fn the_columns_of_an_inference_model_are_those_of_its_page() {
    let namespace = TestCluster::shared().namespace("columns").await;
    let mut model = fixtures::base("InferenceModel");
    model["metadata"]["name"] = "llama-2-7b".into();
    model["spec"]["memory"] = "16Gi".into();
    model["status"] = serde_json::json!({ "ready": true, "replicas": 1 });
    create(&api_of(&namespace.client, "InferenceModel", &namespace.name), &model).await.unwrap();
    let said = namespace.cluster.kubectl(&["get", "inferencemodels", "-n", &namespace.name]).ok();
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    // After the page's columns, so that scripts still find those at their positions.
    assert_eq!((&rows[0][..5], &rows[0][5..]), (&["NAME", "READY", "REPLICAS", "MEMORY", "AGE"][..], &["REASON"][..]));
    assert_eq!(rows[1][..4], ["llama-2-7b", "true", "1", "16Gi"]);
}

#[tokio::test]
async fn kubectl_knows_the_server_s_version() {
    let said = TestCluster::shared().kubectl(&["version", "-o", "json"]).ok();
    let version: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(version["serverVersion"]["gitVersion"], "v1.36.3");
}
