//! The presets: the defaults for services of a shape, below their base configurations and their own specs.

use super::combine::merged;
use crate::settings::Scheduler;
use pointsman_sandbox::point::mirrored;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The name of the presets' layer.
pub(super) const PRESET: &str = "preset";

/// The parts of presets, by purpose.
struct Parts {
    single: Value,
    decode: Value,
    prefill: Value,
    groups_pipeline: Value,
    groups_data: Value,
    scheduler: Value,
    endpoint_picker: Value,
    disaggregated: Value,
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
        endpoint_picker: read("endpoint-picker", include_str!("presets/endpoint-picker.yaml"))?,
        disaggregated: read("disaggregated", include_str!("presets/disaggregated.yaml"))?,
    })
});

/// The preset for a service's spec, as a spec. It depends on the scheduler, and on whether the scheduler has another image than the
/// preset's.
pub(super) fn for_spec(said: &Value, scheduler: Scheduler, another_image: bool) -> Result<Value, String> {
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
        let mut prefill = if given("/prefill/worker") { groups("/prefill").clone() } else { parts.prefill.clone() };
        // Only for data parallelism: with pipeline parallelism, each stage has a different part of the cache.
        if given("/worker") && given("/parallelism/data") {
            hand_over(&mut preset, &parts.decode);
            listen_behind(&mut preset["template"], &parts.decode["template"]);
        }
        if given("/prefill/worker") && given("/prefill/parallelism/data") {
            hand_over(&mut prefill, &parts.prefill);
        }
        preset = merged(preset, &json!({ "prefill": prefill }));
    }
    if given("/router/scheduler") {
        let picker = match scheduler {
            Scheduler::Pointsman => &parts.endpoint_picker,
            Scheduler::LlmD => &parts.scheduler,
        };
        preset = merged(preset, picker);
        // Other images may not have the plugins that it names.
        if disaggregated && (!another_image || scheduler == Scheduler::Pointsman) {
            preset = merged(preset, &parts.disaggregated);
            if scheduler == Scheduler::Pointsman {
                drop_headers_handler(&mut preset);
            }
        }
    }
    Ok(preset)
}

/// Removes the plugin: this project's picker names the prefill pod in a header without it.
fn drop_headers_handler(preset: &mut Value) {
    if let Some(plugins) = preset.pointer_mut("/router/scheduler/config/inline/plugins").and_then(Value::as_array_mut) {
        plugins.retain(|plugin| plugin["type"] != "disagg-headers-handler");
    }
}

/// Sets the scheduler's image.
pub(super) fn run_scheduler(preset: &mut Value, image: &str) {
    if let Some(main) = main_of(&mut preset["router"]["scheduler"]["template"]) {
        main["image"] = image.into();
    }
}

/// Replaces the registry of all images.
pub(super) fn mirror(preset: &mut Value, registry: &str) {
    match preset {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(image) if key == "image" => *image = mirrored(image, registry),
                    value => mirror(value, registry),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| mirror(value, registry)),
        _ => {}
    }
}

/// Whether a layer sets the scheduler's image.
pub(super) fn has_scheduler_of_its_own(layer: &Value) -> bool {
    let containers = layer.pointer("/router/scheduler/template/containers").and_then(Value::as_array);
    containers.into_iter().flatten().any(|container| container["name"] == MAIN && container["image"].is_string())
}

/// The name of the main container.
const MAIN: &str = "main";

fn main_of(pod: &mut Value) -> Option<&mut Value> {
    pod["containers"].as_array_mut()?.iter_mut().find(|container| container["name"] == MAIN)
}

/// Configures the pods of a group to transfer cache blocks, like the one-node preset for the same role.
fn hand_over(group: &mut Value, single: &Value) {
    let mut single = single["template"].clone();
    let Some(single) = main_of(&mut single) else { return };
    let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    let words = list(single, "args");
    let at = words.iter().position(|word| word == "--kv-transfer-config").unwrap_or(words.len());
    for pod in ["template", "worker"] {
        let Some(main) = main_of(&mut group[pod]) else { continue };
        main["args"] = list(main, "args").into_iter().chain(words[at..].iter().cloned()).collect();
        let known = list(main, "env");
        let new = list(single, "env").into_iter().filter(|one| known.iter().all(|known| known["name"] != one["name"]));
        main["env"] = known.iter().cloned().chain(new).collect();
    }
}

/// Adds the sidecar of the one-node decode preset to a group's leader, and changes the leader's ports to those that the sidecar uses.
fn listen_behind(leader: &mut Value, single: &Value) {
    leader["initContainers"] = single["initContainers"].clone();
    let mut single = single.clone();
    let (Some(main), Some(single)) = (main_of(leader), main_of(&mut single)) else { return };
    for field in ["args", "ports", "startupProbe", "readinessProbe", "livenessProbe"] {
        main[field] = single[field].clone();
    }
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
        let of = |said: &Value| for_spec(said, Scheduler::LlmD, false).unwrap();
        let single = of(&json!({}));
        assert!(image(&single, "/template") && single.get("worker").is_none() && single.get("prefill").is_none());
        let groups = of(&json!({"worker": {}, "parallelism": {"pipeline": 2}}));
        assert!(image(&groups, "/template") && image(&groups, "/worker"));
        let all = json!({"prefill": {"worker": {}, "parallelism": {"data": 4, "dataLocal": 2}}, "router": {"scheduler": {}}});
        let all = of(&all);
        for path in ["/template", "/prefill/template", "/prefill/worker", "/router/scheduler/template"] {
            assert!(image(&all, path), "{path}");
        }
        assert!(all.get("worker").is_none());
    }

    #[test]
    fn copies_side_by_side_hand_their_cache_over_and_the_scheduler_knows_of_it() {
        let data = json!({"worker": {}, "parallelism": {"data": 4, "dataLocal": 2}});
        let mut said = data.clone();
        said["prefill"] = data;
        said["router"] = json!({"scheduler": {}});
        let mut all = for_spec(&said, Scheduler::LlmD, false).unwrap();
        for path in ["/template", "/worker", "/prefill/template", "/prefill/worker"] {
            let main = main_of(all.pointer_mut(path).unwrap()).unwrap().clone();
            let words: Vec<&str> = main["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert_eq!(words.iter().filter(|word| **word == "--kv-transfer-config").count(), 1, "{path}: {words:?}");
            let env = main["env"].as_array().unwrap();
            assert_eq!(env.iter().filter(|one| one["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST").count(), 1, "{path}");
        }
        let leader = main_of(all.pointer_mut("/template").unwrap()).unwrap().clone();
        assert_eq!((&leader["readinessProbe"]["httpGet"]["port"], &leader["ports"][0]["containerPort"]), (&json!(8200), &json!(8200)));
        assert_eq!(all["template"]["initContainers"][0]["name"], "llm-d-routing-sidecar");
        assert!(all["prefill"]["template"].get("initContainers").is_none());
        assert_eq!(all["router"]["scheduler"]["config"]["inline"]["kind"], "EndpointPickerConfig");

        // Each pipeline stage has a different part of the cache, and another scheduler may have other plugins.
        let stages = json!({"worker": {}, "parallelism": {"pipeline": 2}});
        let said = json!({"worker": {}, "parallelism": {"pipeline": 2}, "prefill": stages, "router": {"scheduler": {}}});
        let all = for_spec(&said, Scheduler::LlmD, true).unwrap();
        assert!(!all["template"].to_string().contains("kv-transfer-config"));
        assert!(all["router"]["scheduler"].get("config").is_none());
    }
}
