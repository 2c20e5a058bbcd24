//! `--image-mirror`: all images except those of users come from one registry, and docs/install.md lists them all.

use crate::program::{ended, folder};
use std::{collections::BTreeSet, fs, path::Path};

/// Services that together use every image of ours, and one with its own image.
const SERVICES: &str = r#"
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: apart}
spec:
  model: {uri: "hf://example/llama", name: llama}
  prefill: {}
  router: {scheduler: {}}
---
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: groups, annotations: {pointsman.dev/scheduler: llm-d}}
spec:
  model: {uri: "s3://example/llama", name: llama}
  router: {scheduler: {}}
  parallelism: {data: 2, dataLocal: 1}
  worker: {containers: []}
---
apiVersion: ome.io/v1beta1
kind: BenchmarkJob
metadata: {name: benchmark}
spec:
  endpoint: {endpoint: {url: "http://llama.example.com", apiFormat: openai, modelName: example/llama}}
  task: text-to-text
  maxTimePerIteration: 5
  maxRequestsPerIteration: 100
  dataset: {storageUri: "hf://example/prompts"}
  outputLocation: {storageUri: "pvc://results/llama"}
---
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata:
  name: own
  annotations: {model.ome.io/storage-uri: "hf://example/llama"}
spec:
  engine: {minReplicas: 1, maxReplicas: 1, runner: {name: ome-container, image: "example.com/vllm:1"}}
"#;

/// The user's image, and the host's own.
const OWN: [&str; 2] = ["example.com/vllm:1", "pointsman"];

fn images(folder: &Path, flags: &[&str]) -> BTreeSet<String> {
    let (printed, _) = ended(0, folder, &[&["render", "-f", "services.yaml", "-o", "json"], flags].concat(), "");
    let image = |line: &str| Some(line.trim().strip_prefix("\"image\": \"")?.trim_end_matches([',', '"']).to_owned());
    printed.lines().filter_map(image).collect()
}

#[test]
fn images_that_no_user_names_come_from_the_mirror_and_the_guide_lists_all() {
    let folder = folder("image-mirror");
    fs::write(folder.join("services.yaml"), SERVICES).unwrap();
    let mirror = "mirror.example.com/ai";
    let published = images(&folder, &[]);
    let mirrored = images(&folder, &["--image-mirror", mirror]);
    let others = |images: &BTreeSet<String>| -> BTreeSet<String> {
        assert!(OWN.iter().all(|own| images.contains(*own)), "{images:?}");
        images.iter().filter(|image| !OWN.contains(&image.as_str())).cloned().collect()
    };
    let (published, mirrored) = (others(&published), others(&mirrored));
    let elsewhere: Vec<&String> = mirrored.iter().filter(|image| !image.starts_with(mirror)).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");

    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md")).unwrap();
    let cells = |row: &str, cell: usize| Some(row.split('|').nth(cell)?.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned());
    let rows: Vec<&str> = guide.lines().filter(|line| line.contains(mirror) && line.starts_with('|')).collect();
    let column = |cell: usize| -> BTreeSet<String> { rows.iter().filter_map(|row| cells(row, cell)).collect() };
    assert_eq!(column(1), published, "docs/install.md: the images that are named");
    assert_eq!(column(3), mirrored, "docs/install.md: the same in the mirror");
}

#[test]
fn what_is_no_registry_is_refused() {
    let folder = folder("image-mirror-refused");
    fs::write(folder.join("services.yaml"), SERVICES).unwrap();
    for mirror in ["https://mirror.example.com", "mirror.example.com/", "", "Mirror"] {
        let (_, said) = ended(64, &folder, &["render", "-f", "services.yaml", "--image-mirror", mirror], "");
        assert!(said.contains("no scheme, no slash at the end, as in mirror.example.com/ai"), "{mirror}: {said}");
    }
}
