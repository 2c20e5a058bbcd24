//! The number of training processes per worker.

use super::spec::main_container;
use crate::quantity::{self, WHOLE};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

/// The number of training processes per worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Processes {
    /// The number, where one is needed.
    pub(super) number: i64,
    /// The value for torchrun.
    pub(super) word: String,
}

impl Processes {
    /// Derives it from the spec and the pods' resources.
    pub(super) fn new(asked: Option<&IntOrString>, pod: &Value) -> Self {
        let gpus = || gpus(pod).max(1);
        let cpus = || limit(pod, |resource| resource == "cpu").max(1);
        let (number, word) = match asked {
            None => (gpus(), None),
            Some(IntOrString::Int(number)) => (i64::from(*number).max(1), None),
            Some(IntOrString::String(word)) => {
                let number = match word.as_str() {
                    "cpu" => cpus(),
                    "auto" if self::gpus(pod) == 0 => cpus(),
                    _ => gpus(),
                };
                (number, Some(word.clone()))
            }
        };
        Self { number, word: word.unwrap_or_else(|| number.to_string()) }
    }
}

/// The number of GPUs of a pod's main container.
fn gpus(pod: &Value) -> i64 {
    limit(pod, |resource| resource.ends_with("/gpu") || resource.starts_with("nvidia.com/mig-") || resource == "habana.ai/gaudi")
}

/// The main container's total limit of the matching resources, as an integer.
fn limit(pod: &Value, is_meant: impl Fn(&str) -> bool) -> i64 {
    let Some(main) = main_container(pod) else { return 0 };
    let sum = |list: &str| {
        let amounts = main["resources"][list].as_object().into_iter().flatten().filter(|(resource, _)| is_meant(resource));
        amounts
            .filter_map(|(_, amount)| quantity::parse(amount))
            .map(|amount| i64::try_from(amount / WHOLE).unwrap_or(i64::MAX))
            .fold(0, i64::saturating_add)
    };
    match sum("limits") {
        0 => sum("requests"),
        limit => limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn processes_follow_the_spec_else_the_gpus() {
        let pod = |resources: Value| json!({"containers": [{"name": "side"}, {"name": "trainer", "resources": resources}]});
        let gpus = pod(json!({"limits": {"nvidia.com/gpu": 8, "cpu": "12"}}));
        let cpus = pod(json!({"requests": {"cpu": "3500m"}}));
        let word = |word: &str| Some(IntOrString::String(word.to_owned()));
        for (asked, pod, expected) in [
            (None, &gpus, (8, "8")),
            (None, &cpus, (1, "1")),
            (Some(IntOrString::Int(2)), &gpus, (2, "2")),
            (word("gpu"), &gpus, (8, "gpu")),
            (word("gpu"), &cpus, (1, "gpu")),
            (word("cpu"), &gpus, (12, "cpu")),
            (word("cpu"), &cpus, (3, "cpu")),
            (word("auto"), &gpus, (8, "auto")),
            (word("auto"), &cpus, (3, "auto")),
            (word("auto"), &json!({}), (1, "auto")),
        ] {
            let Processes { number, word } = Processes::new(asked.as_ref(), pod);
            assert_eq!((number, word.as_str()), expected, "{asked:?} {pod}");
        }
    }
}
