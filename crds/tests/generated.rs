//! The requirements of the API server and of the repository on the generated CRDs.
#![allow(clippy::unwrap_used, clippy::panic)]

use pointsman_crds::{KINDS, file_name, yaml};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// etcd refuses requests of 1.5 MiB; managed fields and status come on top of the definition.
const LARGEST: usize = 1_258_291;

#[test]
fn the_files_in_crds_yaml_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("yaml");
    let there: BTreeMap<String, String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap())
        })
        .collect();
    let mut expected: Vec<_> = KINDS.iter().map(|kind| file_name(&(kind.crd)())).collect();
    expected.sort();
    let found: Vec<_> = there.keys().cloned().collect();
    assert_eq!(found, expected, "run `cargo xtask generate`");
    for kind in KINDS {
        let crd = (kind.crd)();
        let name = file_name(&crd);
        // Not assert_eq, which would print a megabyte.
        assert!(there[&name] == yaml(&crd).unwrap(), "{name} is out of date: run `cargo xtask generate`");
    }
}

#[test]
fn kustomize_installs_what_crds_install_does() {
    let file = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("kustomization.yaml")).unwrap();
    let found: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("  - yaml/")).collect();
    let mut expected: Vec<_> = KINDS.iter().filter(|kind| !kind.optional).map(|kind| file_name(&(kind.crd)())).collect();
    expected.sort();
    assert_eq!(found, expected, "list them in crds/kustomization.yaml");
}

#[test]
fn every_crd_fits_into_etcd() {
    for kind in KINDS {
        let crd = (kind.crd)();
        let size = serde_json::to_string(&crd).unwrap().len();
        println!("{:>9} bytes  {}", size, crd.spec.names.kind);
        assert!(size <= LARGEST, "{} has {size} bytes", crd.spec.names.kind);
    }
}

#[test]
fn every_kind_has_a_category_an_age_and_described_fields_of_our_own() {
    for kind in KINDS {
        let crd = (kind.crd)();
        let name = &crd.spec.names.kind;
        let version = &crd.spec.versions[0];
        // KServe's presets are only read; its own CRD has no status either.
        let parts: &[&str] = if name == "LLMInferenceServiceConfig" { &["spec"] } else { &["spec", "status"] };
        assert_eq!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()), parts.contains(&"status"), "{name}");
        // `kubectl get all -l ome.io/managed-by=ome-controller` finds services, as OME's page on labels promises.
        let categories: &[&str] = if name == "InferenceService" { &["pointsman", "all"] } else { &["pointsman"] };
        assert_eq!(crd.spec.names.categories.as_deref().unwrap_or_default(), categories, "{name}");
        // Without columns in the CRD, kubectl shows the age.
        let columns = version.additional_printer_columns.as_ref();
        assert!(columns.is_none_or(|columns| columns.iter().any(|column| column.name == "Age")), "{name}");
        let schema = serde_json::to_value(version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap();
        for part in parts {
            for (field, property) in schema["properties"][part]["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{name}.{part}.{field} has no description");
            }
        }
    }
}

#[test]
fn every_schema_is_structural() {
    for kind in KINDS {
        let crd = (kind.crd)();
        let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()).unwrap();
        structural(&schema, &crd.spec.names.kind);
    }
}

fn structural(schema: &Value, path: &str) {
    for key in ["$ref", "anyOf", "oneOf", "allOf", "not", "nullable", "title"] {
        assert_eq!(schema.get(key), None, "{path}");
    }
    let untyped = schema["x-kubernetes-int-or-string"] == true || schema["x-kubernetes-preserve-unknown-fields"] == true;
    assert!(schema["type"].is_string() || untyped, "{path} has no type");
    assert!(!path.ends_with("onditions") || schema["x-kubernetes-list-type"] == "map", "{path} is not a map by type");
    for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
        let items = &schema["items"];
        let required = items["required"].as_array().is_some_and(|required| required.contains(key));
        let default = items["properties"][key.as_str().unwrap()].get("default").is_some();
        assert!(required || default, "{path}: the key {key} is neither required nor has it a default");
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        structural(property, &format!("{path}.{name}"));
    }
    for child in ["items", "additionalProperties"] {
        if schema[child].is_object() {
            structural(&schema[child], &format!("{path}.{child}"));
        }
    }
}
