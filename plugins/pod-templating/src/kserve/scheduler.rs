//! The arguments of the endpoint picker: its pool, and its configuration.

use crate::{
    arguments,
    node::{By, Node},
    pod::{Pod, add_arguments, line_of},
    volume,
};
use pointsman_plugin::{Failure, Reason, pod_templating::Request, reason};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The flag with which several pickers elect a leader, which gets all requests.
const ELECTS: &str = "--ha-enable-leader-election";

/// The mount path of a ConfigMap's configuration.
const CONFIG: &str = "/etc/pointsman/scheduler";

/// The layer `scheduler`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scheduler {
    pool: String,
    namespace: String,
    #[serde(default)]
    replicas: u64,
    /// Whether several pickers elect a leader.
    #[serde(default = "yes")]
    elects: bool,
    config: Option<Map<String, Value>>,
    config_map: Option<Key>,
}

fn yes() -> bool {
    true
}

/// A key of a ConfigMap.
#[derive(Debug, Deserialize)]
struct Key {
    name: String,
    key: String,
}

/// Adds the arguments that the picker lacks.
pub(crate) fn configure(request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let by = By { layer: "scheduler", ..By::PLUGIN };
    let Some(scheduler) = request.layer::<Option<Scheduler>>("scheduler")?.flatten() else { return Ok(()) };
    let Some(main) = pod.main() else { return Ok(()) };
    let line = line_of(main);
    if arguments::is_shell(&line) {
        reasons
            .push(reason("SchedulerUntold", "The command line of main is a script, which must set the pool and the configuration itself."));
        return Ok(());
    }
    // Pickers before 1.0 use `-poolName`.
    let plain = |flag: &str| flag.replace('-', "").to_ascii_lowercase();
    let given: Vec<_> = line.iter().filter_map(|word| arguments::flag(word)).map(|flag| plain(&flag)).collect();
    let is_given = |flag: &str| given.contains(&plain(flag));
    let configured = is_given("--config-text") || is_given("--config-file");
    let mut words: Vec<String> = Vec::new();
    for (flag, value) in [("--pool-name", scheduler.pool), ("--pool-namespace", scheduler.namespace)] {
        if !is_given(flag) {
            words.extend([flag.to_owned(), value]);
        }
    }
    if scheduler.elects && scheduler.replicas > 1 && !is_given(ELECTS) {
        words.push(ELECTS.to_owned());
    }
    match (scheduler.config, scheduler.config_map) {
        _ if configured => {}
        // JSON is also valid YAML, which the picker parses.
        (Some(config), _) => words.extend(["--config-text".to_owned(), Value::Object(config).to_string()]),
        (None, Some(Key { name, key })) => {
            words.extend(["--config-file".to_owned(), format!("{CONFIG}/{key}")]);
            if !volume::is_mounted(main, CONFIG) {
                let text = |text: &str| Node::text(text, by);
                // With `items`, the kubelet reports a missing key.
                let items = Node::list(vec![Node::object([("key", text(&key)), ("path", text(&key))], by)], by);
                let source = ("configMap", Node::object([("name", text(&name)), ("items", items)], by));
                let volume = volume::add(pod, "scheduler", source, by);
                volume::mount(pod, &volume, CONFIG, "", by);
            }
        }
        (None, None) => {}
    }
    if let Some(main) = pod.main_mut().filter(|_| !words.is_empty()) {
        add_arguments(main, words, by);
    }
    Ok(())
}
