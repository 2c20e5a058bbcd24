//! The presets: what a service of a shape starts from, where it and its base configurations say nothing.

use super::combine::merged;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The name of the layer that they are.
pub(super) const PRESET: &str = "preset";

/// Parts of a configuration, by what they are for.
struct Parts {
    single: Value,
    decode: Value,
    prefill: Value,
    groups_pipeline: Value,
    groups_data: Value,
    scheduler: Value,
}

static PARTS: LazyLock<Result<Parts, String>> = LazyLock::new(|| {
    let read = |name: &str, text: &str| -> Result<Value, String> {
        serde_saphyr::from_str(text).map_err(|error| format!("The built-in preset {name} can't be read: {error}."))
    };
    Ok(Parts {
        single: read("single", include_str!("presets/single.yaml"))?,
        decode: read("decode", include_str!("presets/decode.yaml"))?,
        prefill: read("prefill", include_str!("presets/prefill.yaml"))?,
        groups_pipeline: read("groups-pipeline", include_str!("presets/groups-pipeline.yaml"))?,
        groups_data: read("groups-data", include_str!("presets/groups-data.yaml"))?,
        scheduler: read("scheduler", include_str!("presets/scheduler.yaml"))?,
    })
});

/// The preset for what a service says, as a spec.
pub(super) fn of(said: &Value) -> Result<Value, String> {
    let parts = PARTS.as_ref().map_err(Clone::clone)?;
    let given = |path: &str| said.pointer(path).is_some_and(|value| !value.is_null());
    let groups = |workload: &str| {
        if given(&format!("{workload}/parallelism/pipeline")) { &parts.groups_pipeline } else { &parts.groups_data }
    };
    let disaggregated = given("/prefill");
    let main = if given("/worker") {
        groups("")
    } else if disaggregated {
        &parts.decode
    } else {
        &parts.single
    };
    let mut preset = main.clone();
    if disaggregated {
        let prefill = if given("/prefill/worker") { groups("/prefill") } else { &parts.prefill };
        // A fragment speaks of a workload, wherever that stands.
        preset = merged(preset, &json!({ "prefill": prefill.get("prefill").unwrap_or(prefill) }));
    }
    if given("/router/scheduler") {
        preset = merged(preset, &parts.scheduler);
    }
    Ok(preset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_has_pods_with_an_image() {
        let image = |preset: &Value, path: &str| {
            let containers = preset.pointer(path).and_then(|pod| pod["containers"].as_array()).cloned().unwrap_or_default();
            containers.iter().any(|container| container["name"] == "main" && container["image"].is_string())
        };
        let single = of(&json!({})).unwrap();
        assert!(image(&single, "/template") && single.get("worker").is_none() && single.get("prefill").is_none());
        let groups = of(&json!({"worker": {}, "parallelism": {"pipeline": 2}})).unwrap();
        assert!(image(&groups, "/template") && image(&groups, "/worker"));
        let all = json!({"prefill": {"worker": {}, "parallelism": {"data": 4, "dataLocal": 2}}, "router": {"scheduler": {}}});
        let all = of(&all).unwrap();
        for path in ["/template", "/prefill/template", "/prefill/worker", "/router/scheduler/template"] {
            assert!(image(&all, path), "{path}");
        }
        assert!(all.get("worker").is_none());
    }
}
