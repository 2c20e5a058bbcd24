//! Models that aren't on the nodes, adapters, and storage.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value)]

mod asked;

use asked::{TestRequest, ask, runner};
use pointsman_plugin::Role;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PATH: &str = "/mnt/models/llama";

fn model(uri: &str) -> Value {
    json!({"name": "llama", "storageUri": uri, "nodeLabel": "models.ome.io/clusterbasemodel.llama", "download": true})
}

fn downloaded(uri: &str) -> TestRequest {
    ask([("runtime", runner(json!({}))), ("model", model(uri))])
}

fn mount(name: &str, path: &str) -> Value {
    json!({"name": name, "mountPath": path, "readOnly": true})
}

#[test]
fn an_init_container_downloads_the_model() {
    for uri in ["s3://bucket/llama", "oci://n/ns/b/bucket/o/llama", "meta/llama"] {
        let asked = downloaded(uri);
        let spec = asked.spec();
        let initializer = json!([{
            "name": "model-initializer",
            "image": "kserve/storage-initializer:v0.18.0",
            "args": [uri, PATH],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [{"name": "model", "mountPath": PATH}],
        }]);
        assert_eq!(spec["initContainers"], initializer);
        assert_eq!(spec["volumes"], json!([{"name": "model", "emptyDir": {}}]));
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount("model", PATH)]));
        assert_eq!(spec["containers"][0]["env"], json!([{"name": "MODEL_PATH", "value": PATH}]));
        assert_eq!(spec.get("nodeSelector"), None, "no node has it");
        assert_eq!(asked.codes(), ["ModelDownloaded", "ReadinessProbe"]);
        assert!(asked.steps().iter().any(|step| step.starts_with("model + /spec/initContainers")));
    }
    let config = json!({"storageInitializer": "mirror/init:1"});
    assert_eq!(downloaded("hf://meta/llama").config(config).spec()["initContainers"][0]["image"], "mirror/init:1");
}

#[test]
fn a_claim_and_a_folder_of_the_node_need_no_download() {
    let spec = downloaded("pvc://claim/a").spec();
    assert_eq!(spec["volumes"], json!([{"name": "model", "persistentVolumeClaim": {"claimName": "claim", "readOnly": true}}]));
    for uri in ["local:///raid/llama/", "local://raid/llama"] {
        let asked = downloaded(uri);
        let spec = asked.spec();
        assert_eq!(spec["volumes"], json!([{"name": "model", "hostPath": {"path": "/raid/llama"}}]));
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount("model", PATH)]));
        assert_eq!((spec.get("initContainers"), spec.get("nodeSelector")), (None, None));
        assert_eq!(asked.said("ModelFromNode"), "The model llama comes from the node's /raid/llama.");
    }
}

#[test]
fn what_says_no_place_is_refused() {
    let said = "the model llama has no location: set its storage URI, such as hf://ORGANISATION/NAME";
    assert_eq!(downloaded("").failure(), said);
    assert_eq!(ask([("runtime", runner(json!({}))), ("model", json!({"name": "llama", "download": true}))]).failure(), said);
    assert_eq!(downloaded("local:///").failure(), "the URI local:/// of the model llama has no folder: write local:///PATH");
    assert!(downloaded("pvc://other:claim").failure().contains("serve it in other, or create a claim in prod and use that"));
}

#[test]
fn a_layer_may_say_more_about_the_init_container() {
    let user = json!({"pod": {"initContainers": [
        {"name": "warm-up", "image": "w"},
        {"name": "model-initializer", "env": [{"name": "HF_TOKEN", "value": "t"}], "resources": {"limits": {"memory": "8Gi"}}},
    ]}});
    let spec = ask([("runtime", runner(json!({}))), ("user", user), ("model", model("s3://b/m"))]).spec();
    let initializer = &spec["initContainers"][1];
    assert_eq!(initializer["env"], json!([{"name": "HF_TOKEN", "value": "t"}]));
    assert_eq!((&initializer["resources"]["limits"]["memory"], &initializer["args"]), (&json!("8Gi"), &json!(["s3://b/m", PATH])));
    assert_eq!(spec["initContainers"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_mounted_there_already_is_not_downloaded() {
    let fields = json!({"volumeMounts": [{"name": "mine", "mountPath": PATH}]});
    let storage = json!({"claim": "chat", "readOnly": false});
    let asked = ask([("runtime", runner(fields)), ("model", model("s3://b/m")), ("storage", storage)]);
    let spec = asked.spec();
    assert_eq!(spec.get("initContainers"), None);
    assert_eq!(asked.codes(), ["ModelMountKept", "ReadinessProbe"]);
    assert_eq!(spec["containers"][0]["volumeMounts"][1]["mountPath"], "/mnt/storage", "the claim holds no model");
}

#[test]
fn storage_holds_a_model_that_is_downloaded() {
    let with = |read_only: bool| {
        let storage = json!({"claim": "chat-storage", "readOnly": read_only});
        ask([("runtime", runner(json!({}))), ("model", model("s3://b/m")), ("storage", storage)])
    };
    let asked = with(false);
    let spec = asked.spec();
    assert_eq!(spec["volumes"], json!([{"name": "model", "persistentVolumeClaim": {"claimName": "chat-storage"}}]));
    let folder = "model-a21e2af381024cb5";
    let read = json!({"name": "model", "mountPath": PATH, "readOnly": true, "subPath": folder});
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([read]));
    assert_eq!(spec["initContainers"][0]["volumeMounts"], json!([{"name": "model", "mountPath": PATH, "subPath": folder}]));
    assert_eq!(spec["containers"][0]["env"], json!([{"name": "MODEL_PATH", "value": PATH}]));
    assert!(
        asked.said("ModelDownloaded").ends_with(&format!("downloads from s3://b/m into the folder {folder} of the claim chat-storage."))
    );
    let said = with(true).failure();
    assert!(said.starts_with("the model llama is to be downloaded into the claim chat-storage, which is read-only"), "{said}");
}

/// A model that a pod with these fields downloads into a claim.
fn stored(uri: &str, pod: Value) -> TestRequest {
    ask([("runtime", runner(json!({}))), ("user", json!({"pod": pod})), ("model", model(uri)), ("storage", json!({"claim": "s"}))])
}

#[test]
fn another_uri_has_another_folder_of_the_claim() {
    let folder = |uri: &str| stored(uri, json!({})).spec()["containers"][0]["volumeMounts"][0]["subPath"].take();
    let long = format!("s3://b/{}", "m/".repeat(500));
    let uris = ["s3://b/m", "s3://b/m/", "s3://b/../m", "hf://b/m", "hf://b/m@main", &long];
    let folders: BTreeSet<_> = uris.iter().map(|uri| folder(uri).as_str().unwrap().to_owned()).collect();
    assert_eq!(folders.len(), uris.len());
    assert!(folders.iter().all(|folder| folder.len() < 64 && !folder.contains(['/', '.'])), "{folders:?}");
    assert_eq!(folder(uris[0]), folder(uris[0]));
}

#[test]
fn a_claim_that_is_filled_is_given_to_a_group() {
    let asked = stored("s3://b/m", json!({}));
    assert_eq!(asked.spec()["securityContext"], json!({"fsGroup": 1000}), "Knative takes no fsGroupChangePolicy");
    assert!(asked.steps().contains(&r#"storage + /spec/securityContext {"fsGroup":1000}"#.to_owned()));
    assert_eq!(
        asked.said("ClaimWritable"),
        "The claim s is given to the group 1000 by fsGroup, so that the init container model-initializer, which isn't root, can write to it."
    );
    let other = stored("s3://b/m", json!({"securityContext": {"runAsNonRoot": true}}));
    assert_eq!(other.spec()["securityContext"], json!({"runAsNonRoot": true, "fsGroup": 1000}));

    for context in [json!({"fsGroup": 7}), json!({"runAsUser": 7}), json!({"runAsGroup": 7})] {
        let asked = stored("s3://b/m", json!({"securityContext": context}));
        assert_eq!((asked.spec()["securityContext"].take(), asked.said("ClaimWritable")), (context, String::new()));
    }
    let root = json!({"name": "model-initializer", "securityContext": {"runAsNonRoot": false, "runAsUser": 0}});
    assert_eq!(stored("s3://b/m", json!({"initContainers": [root]})).spec().get("securityContext"), None, "root can write");
    for asked in [downloaded("s3://b/m"), stored("pvc://claim", json!({})), stored("local:///raid", json!({}))] {
        assert_eq!(asked.spec().get("securityContext"), None, "nothing fills a claim");
    }
}

#[test]
fn other_storage_is_mounted_beside_the_model() {
    for (read_only, source, mounted) in [
        (false, json!({"claimName": "s"}), json!({"name": "storage", "mountPath": "/mnt/storage"})),
        (true, json!({"claimName": "s", "readOnly": true}), mount("storage", "/mnt/storage")),
    ] {
        let storage = json!({"claim": "s", "readOnly": read_only});
        for model in [Value::Null, json!({"name": "llama"}), model("pvc://claim"), model("local:///raid")] {
            let asked = ask([("runtime", runner(json!({}))), ("model", model), ("storage", storage.clone())]);
            let spec = asked.spec();
            let volumes = spec["volumes"].as_array().unwrap();
            assert_eq!(volumes.last(), Some(&json!({"name": "storage", "persistentVolumeClaim": source})));
            let container = &spec["containers"][0];
            assert_eq!(container["volumeMounts"].as_array().unwrap().last(), Some(&mounted));
            assert!(container["env"].as_array().unwrap().contains(&json!({"name": "STORAGE_PATH", "value": "/mnt/storage"})));
        }
    }
    let own = json!({"volumeMounts": [{"name": "mine", "mountPath": "/mnt/storage"}]});
    let asked = ask([("runtime", runner(own.clone())), ("storage", json!({"claim": "s"}))]);
    assert_eq!((&asked.container()["volumeMounts"], asked.spec().get("volumes")), (&own["volumeMounts"], None));
    assert_eq!(asked.said("StorageMountKept"), "Something is mounted at /mnt/storage already, so the claim s isn't.");
}

fn adapted(adapter: Value, fields: Value) -> TestRequest {
    ask([("runtime", runner(fields)), ("adapter", adapter)])
}

fn vllm(args: &[&str]) -> Value {
    json!({"command": ["vllm", "serve"], "args": args})
}

#[test]
fn an_adapter_is_downloaded_or_comes_from_a_claim() {
    let spec = adapted(json!({"name": "sql", "storageUri": "s3://b/sql"}), json!({})).config(json!({"adapterInitializer": "a:1"})).spec();
    let initializer = &spec["initContainers"][0];
    assert_eq!((&initializer["name"], &initializer["image"]), (&json!("adapter-initializer"), &json!("a:1")));
    assert_eq!(initializer["args"], json!(["s3://b/sql", "/mnt/adapters/sql"]));
    assert_eq!(spec["volumes"], json!([{"name": "adapter", "emptyDir": {}}]));
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount("adapter", "/mnt/adapters/sql")]));
    assert_eq!(spec["containers"][0]["env"], json!([{"name": "ADAPTER_PATH", "value": "/mnt/adapters/sql"}]));
    let default = adapted(json!({"name": "sql", "storageUri": "s3://b/sql"}), json!({})).spec();
    assert_eq!(default["initContainers"][0]["image"], "kserve/storage-initializer:v0.18.0");

    let asked = adapted(json!({"name": "sql", "storageUri": "pvc://claim/sql"}), json!({}));
    let spec = asked.spec();
    assert_eq!(spec["volumes"], json!([{"name": "adapter", "persistentVolumeClaim": {"claimName": "claim", "readOnly": true}}]));
    assert_eq!((spec["containers"][0]["volumeMounts"][0]["subPath"].as_str(), spec.get("initContainers")), (Some("sql"), None));
    assert!(asked.steps().iter().any(|step| step.starts_with("adapter + /spec/volumes")));
}

#[test]
fn an_adapter_is_beside_a_model_that_is_downloaded_into_storage() {
    let adapter = json!({"name": "sql", "storageUri": "s3://b/sql"});
    let layers = [("runtime", runner(json!({}))), ("model", model("s3://b/m")), ("adapter", adapter), ("storage", json!({"claim": "s"}))];
    let spec = ask(layers).spec();
    let volumes = json!([{"name": "model", "persistentVolumeClaim": {"claimName": "s"}}, {"name": "adapter", "emptyDir": {}}]);
    assert_eq!(spec["volumes"], volumes);
    assert_eq!(spec["initContainers"].as_array().unwrap().len(), 2);
}

#[test]
fn engines_are_told_of_an_adapter() {
    let args = |adapter_type: Value, fields: Value| {
        let asked = adapted(json!({"name": "sql", "storageUri": "pvc://a", "modelType": adapter_type}), fields);
        (asked.container()["args"].take(), asked.codes())
    };
    for kind in [Value::Null, json!(""), json!("LoRA"), json!("lora"), json!("Adapter")] {
        let (told, codes) = args(kind.clone(), vllm(&["m"]));
        assert_eq!(told, json!(["m", "--enable-lora", "--lora-modules", "sql=/mnt/adapters/sql"]));
        assert_eq!(codes, ["ModelFromClaim", "ReadinessProbe"]);
        let sglang = json!({"command": ["sglang", "serve"], "args": []});
        assert_eq!(args(kind, sglang).0, json!(["--enable-lora", "--lora-paths", "sql=/mnt/adapters/sql"]));
    }
    let given = args(json!("LoRA"), vllm(&["--enable_lora"])).0;
    assert_eq!(given, json!(["--enable_lora", "--lora-modules", "sql=/mnt/adapters/sql"]));
    let (given, codes) = args(json!("LoRA"), vllm(&["--lora-modules", "a=/b"]));
    assert_eq!(given, json!(["--lora-modules", "a=/b", "--enable-lora"]));
    assert!(codes.contains(&"FlagKept".to_owned()));
    for (kind, fields) in [("Tfidf", vllm(&["m"])), ("LoRA", json!({"command": ["sh"], "args": ["m"]})), ("LoRA", json!({"args": ["m"]}))] {
        let (told, codes) = args(json!(kind), fields);
        assert_eq!(told, json!(["m"]));
        assert!(codes.contains(&"AdapterUntold".to_owned()), "{kind}");
    }
}

#[test]
fn an_adapter_needs_a_name_and_a_place_and_a_router_needs_none() {
    for name in ["", "../a", "a b", "a=b", "/a"] {
        let said = adapted(json!({"name": name, "storageUri": "pvc://a"}), json!({})).failure();
        assert!(said.starts_with("the adapter is called "), "{said}");
    }
    assert!(adapted(json!({"name": "sql"}), json!({})).failure().starts_with("the adapter sql has no location"));
    let router = adapted(json!({"name": "sql", "storageUri": "pvc://a"}), vllm(&["m"])).role(Role::Router);
    assert_eq!((router.spec().get("volumes"), router.container()["args"].take()), (None, json!(["m"])));
}

fn several(adapters: &[Value], fields: Value) -> TestRequest {
    let mut asked = ask([("runtime", runner(fields))]);
    for adapter in adapters {
        asked.request.layers.extend(ask([("adapter", adapter.clone())]).request.layers);
    }
    asked
}

fn lora(name: &str, rank: Value) -> Value {
    json!({"name": name, "storageUri": format!("hf://org/{name}"), "modelType": "LoRA", "rank": rank})
}

#[test]
fn several_adapters_are_fetched_each_and_loaded_together() {
    let asked = several(&[lora("sql", json!(null)), lora("legal", json!(null))], vllm(&["m"]));
    let spec = asked.spec();
    let initializers = spec["initContainers"].as_array().unwrap();
    let mut fetched: Vec<_> = initializers.iter().map(|one| (one["name"].as_str().unwrap(), one["args"].to_string())).collect();
    fetched.sort_unstable();
    let expected = [
        ("adapter-initializer", r#"["hf://org/sql","/mnt/adapters/sql"]"#.to_owned()),
        ("adapter-initializer-2", r#"["hf://org/legal","/mnt/adapters/legal"]"#.to_owned()),
    ];
    assert_eq!(fetched, expected);
    assert_eq!(spec["volumes"], json!([{"name": "adapter", "emptyDir": {}}, {"name": "adapter-2", "emptyDir": {}}]));
    let container = &spec["containers"][0];
    let modules = ["sql=/mnt/adapters/sql", "legal=/mnt/adapters/legal"];
    assert_eq!(container["args"], json!(["m", "--enable-lora", "--lora-modules", modules[0], modules[1], "--max-loras", "2"]));
    assert_eq!(container["env"], json!([{"name": "ADAPTER_PATHS", "value": modules.join(",")}]));
    let sglang = several(&[lora("sql", json!(8)), lora("legal", json!(64))], json!({"command": ["sglang", "serve"], "args": []}));
    assert_eq!(sglang.container()["args"], json!(["--enable-lora", "--lora-paths", modules[0], modules[1]]));
}

#[test]
fn vllm_gets_room_for_the_largest_rank() {
    let limits = |adapters: &[Value], words: &[&str]| -> Vec<String> {
        let args = several(adapters, vllm(words)).container()["args"].take();
        let args: Vec<String> = args.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
        let at = args.iter().rposition(|word| word.starts_with("a=") || word.starts_with("b=")).map_or(0, |at| at + 1);
        args[at..].to_vec()
    };
    let (small, large, unknown) = (lora("a", json!(8)), lora("b", json!(20)), lora("b", json!(null)));
    assert_eq!(limits(std::slice::from_ref(&small), &["m"]), ["--max-lora-rank", "8"]);
    assert_eq!(limits(&[small.clone(), large.clone()], &["m"]), ["--max-loras", "2", "--max-lora-rank", "32"]);
    // By default, vLLM accepts ranks up to 16.
    assert_eq!(limits(&[small.clone(), unknown], &["m"]), ["--max-loras", "2", "--max-lora-rank", "16"]);
    let given = ["m", "--max-cpu-loras=1", "--max_lora_rank", "64"];
    assert_eq!(limits(&[small.clone(), large], &given), [""; 0]);
    let said = several(&[small, lora("b", json!(513))], vllm(&["m"])).failure();
    assert!(said.starts_with("the hyperParameters of the FineTunedWeight b have rank 513, but vLLM loads ranks up to 512:"), "{said}");
}

#[test]
fn several_adapters_that_nothing_loads_are_refused() {
    let two = [lora("sql", json!(null)), lora("legal", json!(null))];
    let own = json!({"command": ["serve"], "args": ["m"]});
    let said = several(&two, own).failure();
    assert!(
        said.starts_with("2 weights can't be served beside the model, because the command line of ome-container is unknown:"),
        "{said}"
    );
    let mut distilled = two.clone();
    distilled[1]["modelType"] = json!("Tfew");
    let said = several(&distilled, vllm(&["m"])).failure();
    assert!(said.contains("vLLM loads no weights of the type Tfew: name only one of them"), "{said}");
    for fields in [
        json!({"command": ["serve"], "args": ["--adapters", "$(ADAPTER_PATHS)"]}),
        json!({"command": ["serve", "/mnt/adapters/sql"]}),
        json!({"env": [{"name": "MINE", "value": "$(ADAPTER_PATHS)"}]}),
    ] {
        assert_eq!(
            several(&two, fields).said("AdapterUntold").split(" itself: ").next().unwrap(),
            "The container ome-container must load the adapters in ADAPTER_PATHS"
        );
    }
}
